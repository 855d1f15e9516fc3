//! `/proc/PID/smaps`, but only what a program asked of the kernel for a VMA (`VmFlags`) and what it has freed lazily there
//! (`LazyFree`).
//!
//! Nowhere else does the kernel say that. It walks all of the process's page tables to say the
//! rest of the file, as for [`smaps`](crate::smaps), so this is not to be read in a tight loop.
//! [proc_pid_smaps(5)](https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html).

use crate::error::Result;
use crate::own_memory::{OwnMemory, Wish};
use crate::process::Process;
use crate::text;
use bitflags::bitflags;
use std::sync::OnceLock;
use superpage_units::{Bytes, HugePages, VirtAddr};

/// The most that is read of one process's `smaps`. Chosen: what some 90,000 VMAs take; the kernel allows 65,530 by default.
pub const LONGEST: Bytes = Bytes::from_mib(64);

bitflags! {
    /// Flags of a VMA.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// Its program asked for huge pages (`MADV_HUGEPAGE`).
        ///
        /// A process that forbade itself all other huge pages (`PR_THP_DISABLE_EXCEPT_ADVISED`) has them from the kernel in
        /// such VMAs only, so it needs no question of its own. Memory that a program collapsed itself (`MADV_COLLAPSE`) leaves
        /// no trace.
        const HUGE = 1;
        /// Its program asked for no huge pages (`MADV_NOHUGEPAGE`).
        const NO_HUGE = 1 << 1;
        /// Equal pages in it may be merged (KSM).
        const MERGEABLE = 1 << 2;
        /// The VMA is registered with a userfaultfd: who holds that fills missing pages, or hears of writes.
        const USERFAULTFD = 1 << 3;
        /// The VMA is locked (`mlock`, `mlockall`).
        const LOCKED = 1 << 4;
        /// All pages of the VMA count as written to since soft-dirty bits were cleared last. Where the kernel has such bits, a VMA without
        /// the flag is one whose writes somebody follows.
        const SOFT_DIRTY = 1 << 5;
    }
}

/// A VMA, and what is said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flagged {
    /// Its first address.
    pub start: VirtAddr,
    /// The first address after it.
    pub end: VirtAddr,
    /// The flags of the VMA.
    pub flags: Flags,
    /// The resident memory of the VMA.
    pub resident: Bytes,
    /// The part of the resident memory that the program has freed lazily (`MADV_FREE`), so that the kernel may take it when
    /// memory is short.
    pub lazily_freed: Bytes,
}

/// All VMAs of `process`, in address order.
///
/// # Errors
/// [`Error::Gone`](crate::Error::Gone), [`Error::Denied`](crate::Error::Denied), and
/// [`Error::TooLong`](crate::Error::TooLong) beyond [`LONGEST`].
pub fn of(process: &Process) -> Result<Vec<Flagged>> {
    let mut reader = Reader::default();
    process.for_each_line("smaps", LONGEST, |_, line| {
        reader.add(line);
        Ok(())
    })?;
    Ok(reader.found)
}

/// Whether this kernel keeps soft-dirty bits, by which programs such as CRIU find out what was written to; also where that
/// cannot be found out now.
#[must_use]
pub fn kernel_has_soft_dirty() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    if HAS.get().is_none()
        && let Some(found) = find_soft_dirty()
    {
        let _ = HAS.set(found);
    }
    HAS.get().copied().unwrap_or(true)
}

fn find_soft_dirty() -> Option<bool> {
    let memory = OwnMemory::map(HugePages(1), Wish::Nothing).ok()?;
    let found = of(&Process::current().ok()?).ok()?;
    let holds = |vma: &&Flagged| {
        memory.ranges().any(|range| vma.start <= range.start() && range.end() <= vma.end)
    };
    // Nobody clears bits of memory that is this new.
    found.iter().find(holds).map(|vma| vma.flags.contains(Flags::SOFT_DIRTY))
}

/// Takes in the lines of a `smaps` file; what it does not understand is left out.
#[derive(Debug, Default)]
struct Reader {
    found: Vec<Flagged>,
}

impl Reader {
    fn add(&mut self, line: &[u8]) {
        if let Some((start, end)) = head(line) {
            let (flags, resident, lazily_freed) = Default::default();
            self.found.push(Flagged { start, end, flags, resident, lazily_freed });
            return;
        }
        let Some(vma) = self.found.last_mut() else { return };
        let mut words = text::words(line);
        match words.next() {
            Some(b"Rss:") => vma.resident = size(words.next()),
            Some(b"LazyFree:") => vma.lazily_freed = size(words.next()),
            Some(b"VmFlags:") => vma.flags = words.map(flag).collect(),
            _ => {}
        }
    }
}

fn size(word: Option<&[u8]>) -> Bytes {
    Bytes::from_kib(word.and_then(text::decimal).unwrap_or(0))
}

fn flag(word: &[u8]) -> Flags {
    match word {
        b"hg" => Flags::HUGE,
        b"nh" => Flags::NO_HUGE,
        b"mg" => Flags::MERGEABLE,
        b"um" | b"uw" | b"ui" => Flags::USERFAULTFD,
        b"lo" => Flags::LOCKED,
        b"sd" => Flags::SOFT_DIRTY,
        _ => Flags::empty(),
    }
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

    const TEXT: &[u8] =
        b"1000-2000 rw-p 00000000 00:00 0 [heap]\nSize: 4 kB\nRss: 4 kB\nVmFlags: rd wr mr hg sd\n\
        2000-3000 rw-p 00000000 00:00 0 \nVmFlags: rd wr\n\
        4000-6000 rw-p 00000000 00:00 0 /a-b\nRss: 8 kB\nLazyFree: 4 kB\nVmFlags: rd nh wr lo\n\
        6000-7000 rw-p 0 00:00 0 \nVmFlags: rd wr mr mg\n\
        7000-8000 rw-p 0 00:00 0 \nVmFlags: rd um\n";

    fn parse(text: &[u8]) -> Vec<Flagged> {
        let mut reader = Reader::default();
        text::lines(text).for_each(|(_, line)| reader.add(line));
        reader.found
    }

    #[test]
    fn flags_belong_to_their_vmas() {
        let vma = |start, end, flags, resident, freed| Flagged {
            start: VirtAddr(start),
            end: VirtAddr(end),
            flags,
            resident: Bytes::from_kib(resident),
            lazily_freed: Bytes::from_kib(freed),
        };
        let expected = [
            vma(0x1000, 0x2000, Flags::HUGE | Flags::SOFT_DIRTY, 4, 0),
            vma(0x2000, 0x3000, Flags::empty(), 0, 0),
            vma(0x4000, 0x6000, Flags::NO_HUGE | Flags::LOCKED, 8, 4),
            vma(0x6000, 0x7000, Flags::MERGEABLE, 0, 0),
            vma(0x7000, 0x8000, Flags::USERFAULTFD, 0, 0),
        ];
        assert_eq!(parse(TEXT), expected);
        assert!(parse(b"VmFlags: hg\n").is_empty());
    }

    #[test]
    fn our_own_wish_shows() {
        let memory = OwnMemory::map(HugePages(1), Wish::HugePages).expect("2 MiB");
        let range = memory.ranges().next().expect("one");
        let found = of(&Process::current().expect("we run")).expect("our own reads");
        let holds = |vma: &&Flagged| vma.start <= range.start() && range.end() <= vma.end;
        let vma = found.iter().find(holds).expect("it is mapped");
        assert!(vma.flags.contains(Flags::HUGE), "{vma:?}");
        assert_eq!(vma.flags.contains(Flags::SOFT_DIRTY), kernel_has_soft_dirty());
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(TEXT, parse);
    }
}
