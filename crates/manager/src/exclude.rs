//! Which memory of a process is neither read nor changed from outside, and why: what KSM merges, what is registered with
//! a userfaultfd, the areas of a program under `superpage run`, and what a purpose leaves alone besides.
//!
//! That a program allows merging is no reason before its pages are merged: nothing is lost then by a huge page.
//!
//! Whoever reads a missing page of memory that is registered with a userfaultfd waits until the process fills it,
//! and for as long as the process is stopped. The library of `superpage run` registers and unregisters parts of its
//! areas all the time, so all of them are left alone: what is read of them may be registered by then.

use crate::process::Purpose;
use superpage_kernel::habits::Habits;
use superpage_kernel::maps::{Sharing, Vma};
use superpage_kernel::smaps_flags::{self, Flagged, Flags};
use superpage_units::{Bytes, VirtAddr};

/// The size of the areas, which the library reserves as one mapping and in which it leaves no hole
/// (`runtime/src/start.rs`). Where the address space is too small for that, it reserves less, and only what is
/// registered with a userfaultfd is left alone.
const AREAS: Bytes = Bytes::from_gib(1024);

/// Why memory is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The library of `superpage run` manages it.
    Managed,
    /// Equal pages of it are merged (KSM).
    Merged,
    /// The memory is registered with a userfaultfd.
    Userfaultfd,
    /// Somebody follows the writes to it by soft-dirty bits.
    Followed,
    /// Its program has locked it.
    Locked,
    /// Its program has freed much of it lazily.
    LazilyFreed,
}

impl Why {
    /// The reason as one word.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Merged => "merged",
            Self::Userfaultfd => "userfaultfd",
            Self::Followed => "followed",
            Self::Locked => "locked",
            Self::LazilyFreed => "lazily-freed",
        }
    }

    /// The reason in words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Managed => "`superpage run` manages it",
            Self::Merged => "equal pages of it are merged (KSM)",
            Self::Userfaultfd => "registered with a userfaultfd",
            Self::Followed => "somebody follows its writes",
            Self::Locked => "locked",
            Self::LazilyFreed => "freed lazily (MADV_FREE)",
        }
    }
}

/// Why a VMA is left alone for this purpose, if it is, in a process with these habits.
pub(crate) fn why(vma: &Flagged, habits: Habits, purpose: Purpose) -> Option<Why> {
    let has = |flags| vma.flags.contains(flags);
    let is_userfaultfd = has(Flags::USERFAULTFD).then_some(Why::Userfaultfd);
    let is_merged = (habits.merges && has(Flags::MERGEABLE)).then_some(Why::Merged);
    is_merged.or(is_userfaultfd).or_else(|| match purpose {
        Purpose::Read => None,
        Purpose::Split => (smaps_flags::kernel_has_soft_dirty() && !has(Flags::SOFT_DIRTY))
            .then_some(Why::Followed),
        Purpose::Collapse(terms) if has(Flags::LOCKED) && !terms.locked => Some(Why::Locked),
        Purpose::Collapse(terms) => (vma.lazily_freed.share_of(vma.resident)
            > terms.most_lazily_freed)
            .then_some(Why::LazilyFreed),
    })
}

/// Memory that is left alone, in address order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excluded(Vec<(VirtAddr, VirtAddr)>);

impl Excluded {
    /// The memory in any of `parts`: first addresses, and first addresses after.
    pub(crate) fn new(mut parts: Vec<(VirtAddr, VirtAddr)>) -> Self {
        parts.sort_unstable();
        parts.dedup_by(|next, before| {
            let touches = next.0 <= before.1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
        Self(parts)
    }

    /// Whether nothing is left alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether anything from `start` up to `end` is left alone.
    pub(crate) fn overlaps(&self, start: VirtAddr, end: VirtAddr) -> bool {
        let next = self.0.partition_point(|part| part.1 <= start);
        self.0.get(next).is_some_and(|part| part.0 < end)
    }
}

/// The areas of a program under `superpage run`, by all its VMAs; none of other programs, and of its children that
/// run another program, which have the library but no areas. Private memory of the program that adjoins the areas
/// cannot be told from them.
pub(crate) fn areas(vmas: &[Vma]) -> Vec<(VirtAddr, VirtAddr)> {
    if !vmas.iter().any(is_library) {
        return Vec::new();
    }
    // A list that was read while it changed may show the same address twice.
    let runs = vmas.chunk_by(|vma, next| next.start <= vma.end);
    let holds_areas = |run: &&[Vma]| {
        run.first()
            .zip(run.last())
            .is_some_and(|(first, last)| last.end.since(first.start) >= AREAS)
    };
    let is_private = |vma: &&Vma| vma.sharing == Sharing::Private;
    runs.filter(holds_areas).flatten().filter(is_private).map(|vma| (vma.start, vma.end)).collect()
}

/// Whether the library of `superpage run` is mapped here.
fn is_library(vma: &Vma) -> bool {
    // An update deletes the file.
    let name = vma.name.strip_suffix(b" (deleted)").unwrap_or(&vma.name);
    name.ends_with(b"/libsuperpage.so")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Terms;
    use proptest::prelude::*;
    use std::path::Path;
    use superpage_kernel::maps;

    const LIBRARY: &str =
        "7fff00000000-7fff00001000 r-xp 00000000 08:01 5 /usr/lib/libsuperpage.so\n";

    fn parse(text: &str) -> Vec<Vma> {
        maps::parse(text.as_bytes(), Path::new("maps")).expect("VMAs")
    }

    fn part(start: u64, end: u64) -> (VirtAddr, VirtAddr) {
        (VirtAddr(start), VirtAddr(end))
    }

    /// A TiB with a gigantic page and 2 MiB of other memory in it, a shared mapping that adjoins it, and memory
    /// elsewhere.
    const MAPS: &str = "7e0000000000-7e0040000000 rw-p 00000000 00:10 5 /anon_hugepage (deleted)\n\
         7e0040000000-7e0040200000 rw-p 00000000 00:00 0 \n\
         7e0040200000-7f0000000000 ---p 00000000 00:00 0 \n\
         7f0000000000-7f0010000000 rw-s 00000000 00:01 9 /memfd:guest (deleted)\n\
         7f4000000000-7f4010000000 rw-p 00000000 00:00 0 \n";

    #[test]
    fn the_areas_are_a_run_of_a_tib_in_a_program_with_the_library() {
        let expected = [
            part(0x7e00_0000_0000, 0x7e00_4000_0000),
            part(0x7e00_4000_0000, 0x7e00_4020_0000),
            part(0x7e00_4020_0000, 0x7f00_0000_0000),
        ];
        assert_eq!(areas(&parse(&format!("{MAPS}{LIBRARY}"))), expected);
        let updated = LIBRARY.replace(".so", ".so (deleted)");
        assert_eq!(areas(&parse(&format!("{MAPS}{updated}"))), expected);
        assert_eq!(areas(&parse(MAPS)), [], "another program's");
        let other = LIBRARY.replace(".so", ".so.bak");
        assert_eq!(areas(&parse(&format!("{MAPS}{other}"))), []);
    }

    #[test]
    fn what_is_smaller_or_has_a_hole_is_no_area() {
        let with_hole = MAPS.replace("7e0040200000-", "7e0040201000-");
        assert_eq!(areas(&parse(&format!("{with_hole}{LIBRARY}"))), []);
        assert_eq!(areas(&parse(LIBRARY)), []);
    }

    #[test]
    fn what_may_be_merged_is_left_alone_while_pages_are() {
        let vma = |flags| Flagged {
            start: VirtAddr(0),
            end: VirtAddr(1 << 21),
            flags: flags | Flags::SOFT_DIRTY,
            resident: Bytes::from_mib(2),
            lazily_freed: Bytes::ZERO,
        };
        let merging = Habits { merges: true, ..Habits::default() };
        for purpose in [Purpose::Read, Purpose::Split, Purpose::Collapse(Terms::ASKED_FOR)] {
            let of = |flags, habits| why(&vma(flags), habits, purpose);
            assert_eq!(of(Flags::MERGEABLE, Habits::default()), None);
            assert_eq!(of(Flags::MERGEABLE, merging), Some(Why::Merged));
            assert_eq!(of(Flags::empty(), merging), None, "other memory of the process");
            assert_eq!(of(Flags::USERFAULTFD, Habits::default()), Some(Why::Userfaultfd));
        }
        let locked = Terms { locked: false, ..Terms::ASKED_FOR };
        let of = |terms| why(&vma(Flags::LOCKED), merging, Purpose::Collapse(terms));
        assert_eq!((of(locked), of(Terms::ASKED_FOR)), (Some(Why::Locked), None));
    }

    #[test]
    fn what_touches_is_excluded_as_one() {
        let excluded = Excluded::new(vec![part(30, 40), part(10, 20), part(20, 30), part(12, 15)]);
        assert_eq!(excluded, Excluded(vec![part(10, 40)]));
        assert!(!Excluded::default().overlaps(VirtAddr(0), VirtAddr(u64::MAX)));
    }

    proptest! {
        #[test]
        fn overlaps_are_those_of_any_part(parts in prop::collection::vec((0_u64..60, 1_u64..9), 0..8), start in 0_u64..60, length in 1_u64..9) {
            let parts: Vec<_> = parts.into_iter().map(|(at, length)| part(at, at + length)).collect();
            let (start, end) = part(start, start + length);
            let expected = parts.iter().any(|part| part.0 < end && start < part.1);
            prop_assert_eq!(Excluded::new(parts).overlaps(start, end), expected);
        }
    }
}
