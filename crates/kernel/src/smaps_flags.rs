//! `/proc/PID/smaps`, but only its `VmFlags` lines: what a program asked of the kernel for a VMA
//! (`madvise`).
//!
//! Nowhere else does the kernel say that. It walks all of the process's page tables to say the
//! rest of the file, as for [`smaps`](crate::smaps), so this is not to be read in a tight loop.
//! [proc_pid_smaps(5)](https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html).

use crate::error::Result;
use crate::process::Process;
use crate::text;
use std::collections::BTreeMap;
use superpage_units::VirtAddr;

/// What a program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Huge pages (`MADV_HUGEPAGE`).
    Huge,
    /// No huge pages (`MADV_NOHUGEPAGE`).
    NoHuge,
}

/// The VMAs of `process`, by their start, for which it asked for something.
///
/// # Errors
/// [`Error::Gone`](crate::Error::Gone), [`Error::Denied`](crate::Error::Denied).
pub fn of(process: &Process) -> Result<BTreeMap<VirtAddr, Wish>> {
    Ok(parse(&process.read_file("smaps")?))
}

/// The memory of `process` that others have a hand in, because the program wants equal pages in it merged
/// (KSM), or fills it itself (userfaultfd): the first address of each VMA and the first one after it, in
/// address order.
///
/// # Errors
/// As [`of`].
pub fn in_other_hands(process: &Process) -> Result<Vec<(VirtAddr, VirtAddr)>> {
    let found = flagged(&process.read_file("smaps")?, other_hands);
    Ok(found.into_iter().map(|vma| (vma.start, vma.end)).collect())
}

/// The memory for which `process` asked for huge pages (`MADV_HUGEPAGE`): the first address of each
/// VMA and the first one after it, in address order.
///
/// A process that forbade itself all other huge pages (`PR_THP_DISABLE_EXCEPT_ADVISED`) has them from
/// the kernel in such VMAs only, so it needs no question of its own. Memory that a program collapsed
/// itself (`MADV_COLLAPSE`) leaves no trace.
///
/// # Errors
/// As [`of`].
pub fn asking_for_huge(process: &Process) -> Result<Vec<(VirtAddr, VirtAddr)>> {
    let found = flagged(&process.read_file("smaps")?, |flag| (flag == b"hg").then_some(()));
    Ok(found.into_iter().map(|vma| (vma.start, vma.end)).collect())
}

fn other_hands(flag: &[u8]) -> Option<()> {
    matches!(flag, b"mg" | b"um" | b"uw" | b"ui").then_some(())
}

/// Understands the text of a `smaps` file; what it does not understand is left out.
#[must_use]
pub fn parse(text: &[u8]) -> BTreeMap<VirtAddr, Wish> {
    let found = flagged(text, |flag| match flag {
        b"hg" => Some(Wish::Huge),
        b"nh" => Some(Wish::NoHuge),
        _ => None,
    });
    found.into_iter().map(|vma| (vma.start, vma.meaning)).collect()
}

/// A VMA with a flag that means something.
struct Flagged<T> {
    start: VirtAddr,
    end: VirtAddr,
    meaning: T,
}

/// The VMAs with a flag that means something.
fn flagged<T>(text: &[u8], meaning: impl Fn(&[u8]) -> Option<T>) -> Vec<Flagged<T>> {
    let mut found = Vec::new();
    let mut place = None;
    for (_, line) in text::lines(text) {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            if let (Some((start, end)), Some(meaning)) =
                (place, text::words(flags).find_map(&meaning))
            {
                found.push(Flagged { start, end, meaning });
            }
        } else {
            place = head(line).or(place);
        }
    }
    found
}

/// The addresses at the head of a VMA; other lines begin with a name and a colon.
fn head(line: &[u8]) -> Option<(VirtAddr, VirtAddr)> {
    let mut addresses = text::words(line).next()?.split(|byte| *byte == b'-');
    let mut next = || addresses.next().and_then(text::hexadecimal).map(VirtAddr);
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_memory::{OwnMemory, Wish as Asked};
    use superpage_units::HugePages;

    const TEXT: &[u8] =
        b"1000-2000 rw-p 00000000 00:00 0 [heap]\nSize: 4 kB\nVmFlags: rd wr mr hg \n\
        2000-3000 rw-p 00000000 00:00 0 \nVmFlags: rd wr\n\
        4000-6000 rw-p 00000000 00:00 0 /a-b\nVmFlags: rd nh wr\n";

    #[test]
    fn wishes_belong_to_their_vmas() {
        let found: Vec<_> = parse(TEXT).into_iter().collect();
        assert_eq!(found, [(VirtAddr(0x1000), Wish::Huge), (VirtAddr(0x4000), Wish::NoHuge)]);
        assert!(parse(b"VmFlags: hg\n").is_empty());
    }

    #[test]
    fn our_own_wish_shows() {
        let memory = OwnMemory::map(HugePages(1), Asked::HugePages).expect("2 MiB");
        let range = memory.ranges().next().expect("one");
        let found = of(&Process::current().expect("we run")).expect("our own reads");
        let below = found.range(..=range.start()).next_back();
        assert_eq!(below.map(|(_, wish)| *wish), Some(Wish::Huge), "{found:?}");
        let asking = asking_for_huge(&Process::current().expect("we run")).expect("our own reads");
        let holds = |vma: &&(VirtAddr, VirtAddr)| vma.0 <= range.start() && range.end() <= vma.1;
        assert!(asking.iter().any(|vma| holds(&vma)), "{asking:?}");
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(TEXT, parse);
    }

    #[test]
    fn vmas_in_other_hands_are_those_merged_or_filled_from_outside() {
        let text = b"1000-2000 rw-p 0 00:00 0 \nRss: 4 kB\nVmFlags: rd wr mr mg\n\
                     2000-3000 rw-p 0 00:00 0 \nVmFlags: rd wr hg\n\
                     3000-4000 rw-p 0 00:00 0 \nVmFlags: rd um\n";
        let found: Vec<_> =
            flagged(text, other_hands).into_iter().map(|a| (a.start, a.end)).collect();
        let vma = |start, end| (VirtAddr(start), VirtAddr(end));
        assert_eq!(found, [vma(0x1000, 0x2000), vma(0x3000, 0x4000)]);
    }
}
