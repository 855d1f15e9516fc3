//! `/proc/kpageflags`: what each base page of physical memory is used for. Only root may read it.
//!
//! The file has eight bytes for each base page, by physical address. Here it says how many gigantic pages the
//! kernel could make: a gigantic page is an aligned GiB of physical memory, and the kernel moves away what is
//! in it, if all of that can be moved. Nothing is changed, and whether a move succeeds is not known before.
//! [pagemap](https://docs.kernel.org/admin-guide/mm/pagemap.html).

use crate::error::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, GIGANTIC_PAGE_BYTES};

// Bits of include/uapi/linux/kernel-page-flags.h, and KPF_RESERVED of include/linux/kernel-page-flags.h.
const LRU: u64 = 1 << 5;
const SLAB: u64 = 1 << 7;
const BUDDY: u64 = 1 << 10;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;
const HUGETLB: u64 = 1 << 17;
const POISONED: u64 = 1 << 19;
const NO_PAGE: u64 = 1 << 20;
const OFFLINE: u64 = 1 << 23;
const PAGE_TABLE: u64 = 1 << 26;
const RESERVED: u64 = 1 << 32;
/// The flags of pages that the kernel does not move.
const FIXED: u64 = SLAB | HUGETLB | POISONED | NO_PAGE | OFFLINE | PAGE_TABLE | RESERVED;

const ENTRY_BYTES: usize = size_of::<u64>();
const ENTRIES: u64 = GIGANTIC_PAGE_BYTES / BASE_PAGE_BYTES;
/// The bytes that one call reads. Chosen: most GiB have a page that cannot be moved near their beginning,
/// and the rest of such a GiB need not be read.
const CHUNK: usize = 65_536;

/// How many gigantic pages the kernel could make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contiguous {
    /// Aligned GiB in which every page is free, or a program's or a file's, and so can be moved.
    pub movable: u64,
    /// The same, and those in which the only other pages have no flags: such a page is the kernel's, or free
    /// and on the list of a CPU. From [`ENOUGH`] on there may be more.
    pub at_most: u64,
}

/// Once so many gigantic pages could be made, the rest of memory is not read. Chosen: a GiB that is read whole takes
/// the kernel 26 to 45 ms.
pub const ENOUGH: u64 = 32;

/// How many gigantic pages the kernel could make, from `kpageflags` in `proc_root` (normally `/proc`). Takes less
/// than 0.1 s where few can be made, and a second or two where many can.
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] without root, [`Error::Failed`].
pub fn contiguous(proc_root: &Path) -> Result<Contiguous> {
    contiguous_up_to(proc_root, ENOUGH)
}

fn contiguous_up_to(proc_root: &Path, enough: u64) -> Result<Contiguous> {
    let path = proc_root.join("kpageflags");
    let failed = |error: std::io::Error| Error::from_io(&error, "read", &path);
    let file = File::open(&path).map_err(failed)?;
    let mut found = Contiguous::default();
    for gib in 0.. {
        match gib_of(&file, gib * ENTRIES * ENTRY_BYTES as u64).map_err(failed)? {
            None => break,
            Some(Use::Fixed) => {}
            Some(Use::Unknown) => found.at_most += 1,
            Some(Use::Movable) => {
                found.movable += 1;
                found.at_most += 1;
            }
        }
        if found.at_most >= enough {
            break;
        }
    }
    Ok(found)
}

/// Whether the kernel can move a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Movable,
    Unknown,
    Fixed,
}

/// The obstacles to a gigantic page in the GiB whose entries begin at `start`; `None` where memory
/// ends before or in it.
fn gib_of(file: &File, start: u64) -> std::io::Result<Option<Use>> {
    let mut chunk = vec![0; CHUNK];
    // No tail comes before its head: no page of several is larger than what is looked at.
    let (mut all, mut head, mut is_memory) = (Use::Movable, Use::Fixed, false);
    for number in 0..ENTRIES * ENTRY_BYTES as u64 / CHUNK as u64 {
        match file.read_exact_at(&mut chunk, start + number * CHUNK as u64) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        for entry in chunk.chunks_exact(ENTRY_BYTES) {
            let flags = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
            let found = if flags & TAIL == 0 { use_of(flags) } else { head };
            if flags & HEAD != 0 {
                head = found;
            }
            is_memory |= found == Use::Movable;
            all = all.max(found);
        }
        if all == Use::Fixed {
            return Ok(Some(all));
        }
    }
    // The entries of addresses without memory may all be zero.
    Ok(Some(if is_memory { all } else { Use::Fixed }))
}

/// Whether the kernel can move a page with these flags, the first of several or one by itself.
fn use_of(flags: u64) -> Use {
    match flags {
        _ if flags & FIXED != 0 => Use::Fixed,
        _ if flags & (BUDDY | LRU) != 0 => Use::Movable,
        _ if flags & HEAD != 0 => Use::Fixed,
        // A program's page that is not on the LRU list yet has other flags, and may be moved soon.
        _ => Use::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::width::to_usize;

    const HEAD_OF_FILE: u64 = HEAD | LRU;
    const HEAD_OF_SLAB: u64 = HEAD | SLAB;

    /// A machine with a GiB for each item, free but for these flags from its page 1000 on.
    fn found(gibs: &[&[u64]], enough: u64) -> Result<Contiguous> {
        let root = tempfile::tempdir().expect("there is room");
        let mut entries = vec![BUDDY; gibs.len() * to_usize(ENTRIES)];
        for (gib, flags) in gibs.iter().enumerate() {
            let from = gib * to_usize(ENTRIES) + 1000;
            entries[from..from + flags.len()].copy_from_slice(flags);
        }
        let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_ne_bytes).collect();
        std::fs::write(root.path().join("kpageflags"), bytes).expect("there is room");
        contiguous_up_to(root.path(), enough)
    }

    fn of(movable: u64, at_most: u64) -> Result<Contiguous> {
        Ok(Contiguous { movable, at_most })
    }

    #[test]
    fn one_page_that_cannot_be_moved_is_in_the_way() {
        assert_eq!(found(&[&[], &[LRU], &[HEAD_OF_FILE, TAIL, TAIL]], 9), of(3, 3));
        for flags in [SLAB, HUGETLB, PAGE_TABLE, RESERVED, NO_PAGE, HEAD, LRU | POISONED] {
            assert_eq!(found(&[&[flags], &[]], 9), of(1, 1), "{flags:#x}");
        }
    }

    #[test]
    fn a_tail_is_what_its_head_is() {
        assert_eq!(found(&[&[HEAD_OF_SLAB, TAIL], &[HEAD_OF_FILE, TAIL | LRU]], 9), of(1, 1));
    }

    #[test]
    fn a_page_without_flags_leaves_it_open() {
        assert_eq!(found(&[&[0], &[]], 9), of(1, 2));
        assert_eq!(found(&[&[0, SLAB]], 9), of(0, 0));
        assert_eq!(found(&[&vec![0; to_usize(ENTRIES) - 1000]], 9), of(0, 1));
    }

    #[test]
    fn where_there_is_no_memory_there_is_no_gigantic_page() {
        let root = tempfile::tempdir().expect("there is room");
        assert!(matches!(contiguous(root.path()), Err(Error::Missing { .. })));
        let path = root.path().join("kpageflags");
        std::fs::write(&path, vec![0; to_usize(ENTRIES) * ENTRY_BYTES]).expect("there is room");
        assert_eq!(contiguous(root.path()), of(0, 0), "a hole");
        std::fs::write(&path, BUDDY.to_ne_bytes()).expect("there is room");
        assert_eq!(contiguous(root.path()), of(0, 0), "less than a GiB");
    }

    #[test]
    fn no_more_is_read_than_is_needed() {
        assert_eq!(found(&[&[], &[], &[]], 2), of(2, 2));
    }
}
