//! Swap areas: those that are in use, from `/proc/swaps`, and a file of our own to swap to.
//!
//! A [`SwapFile`] is recorded ([`made`](crate::made)), laid out, put into use and, when dropped, taken out of use and removed. A
//! process that was killed leaves it in use, and its record.
//! [swapon(2)](https://man7.org/linux/man-pages/man2/swapon.2.html),
//! [proc_swaps(5)](https://man7.org/linux/man-pages/man5/proc_swaps.5.html).

#![expect(unsafe_code, reason = "swapon(2) and swapoff(2) are only to be had from libc")]

use crate::cgroup::unescaped;
use crate::error::{Error, Result};
use crate::made::{Made, Thing};
use crate::text;
use crate::width::to_usize;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// The name that every [`SwapFile`] has in its directory.
pub const NAME: &str = "superpage.swap";

/// A swap area that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The file or the block device.
    pub path: PathBuf,
    /// The size of the area.
    pub size: Bytes,
    /// The part of the area that is in use.
    pub used: Bytes,
}

/// The swap areas in use, from `swaps` in `proc_root` (normally `/proc`).
///
/// # Errors
/// [`Error::Missing`] on a kernel without swap, [`Error::Denied`] or [`Error::Malformed`].
pub fn areas(proc_root: &Path) -> Result<Vec<Area>> {
    let path = proc_root.join("swaps");
    parse(&text::read(&path)?, &path)
}

/// Understands the text of a `swaps` file; `path` is for the message if it cannot be.
fn parse(text: &[u8], path: &Path) -> Result<Vec<Area>> {
    text::lines(text)
        .skip(1)
        .map(|(number, line)| {
            area(line).ok_or_else(|| {
                Error::malformed(path, number, "'file type size used priority'", line)
            })
        })
        .collect()
}

/// `/path file 1048572 0 -2`, the sizes in KiB.
fn area(line: &[u8]) -> Option<Area> {
    let mut words = text::words(line);
    let path = unescaped(words.next()?);
    let mut size = || Some(Bytes(words.by_ref().find_map(text::decimal)?.checked_mul(1 << 10)?));
    Some(Area { path, size: size()?, used: size()? })
}

/// A file that the kernel swaps to, before all other areas. Dropping it takes it out of use, for which the kernel
/// reads back what is in it: whoever swapped should have ended before.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    made: Option<Made>,
}

impl SwapFile {
    /// Puts a new file of `size` in `directory` into use, which must be on a disk, and records it in the directory `state`. What a
    /// process that was killed left of an earlier one there is replaced.
    ///
    /// # Errors
    /// [`Error::Denied`]; [`Error::Busy`] if such a file is in use there; [`Error::Unsupported`] and
    /// [`Error::Failed`] where there is no room, or the file system has no swap files.
    pub fn create(directory: &Path, size: Bytes, state: &Path) -> Result<Self> {
        let fail = |error: &std::io::Error| Error::from_io(error, "resolve", directory);
        let path = std::fs::canonicalize(directory).map_err(|error| fail(&error))?.join(NAME);
        if areas(Path::new("/proc"))?.iter().any(|area| area.path == path) {
            return Err(Error::Busy { pid: None });
        }
        let made = Made::record(state, Thing::SwapFile(path.clone()))?;
        // Fails unless it was left behind, which is all that is wanted.
        let _ = std::fs::remove_file(&path);
        let done = lay_out(&path, size).and_then(|()| swap_on(&path));
        if done.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        done.map(|()| Self { path, made: Some(made) })
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        if remove(&self.path).is_err() {
            // The next run, or `superpage restore`, tries again.
            self.made.take().into_iter().for_each(Made::leave);
        }
    }
}

/// Takes the file at `path` out of use, if it is in use, and removes it: one that a process left when it was killed.
///
/// # Errors
/// [`Error::Refused`] if it has another name than ours; as [`areas`]; [`Error::Denied`]; [`Error::Failed`] if there is too little
/// memory for what is in it.
pub(crate) fn take_away(path: &Path) -> Result<()> {
    if path.file_name().is_none_or(|name| name != NAME) {
        let reason = "it is not named as a swap file of ours";
        return Err(Error::Refused { path: path.to_owned(), reason });
    }
    if areas(Path::new("/proc"))?.iter().any(|area| area.path == path) {
        return remove(path);
    }
    std::fs::remove_file(path).map_err(|error| Error::from_io(&error, "remove", path))
}

fn remove(path: &Path) -> Result<()> {
    swap_off(path)?;
    std::fs::remove_file(path).map_err(|error| Error::from_io(&error, "remove", path))
}

/// Makes a file without holes, with the header that mkswap(8) writes.
fn lay_out(path: &Path, size: Bytes) -> Result<()> {
    let pages = size.to_base_pages().0;
    let last = pages.checked_sub(1).and_then(|last| u32::try_from(last).ok());
    let last = last.filter(|last| *last > 0);
    let last = last.ok_or_else(|| Error::from_errno(Errno::INVAL, format!("swap to {size}")))?;
    let explain = |error: &std::io::Error| Error::from_io(error, "lay out", path);
    let file = new_file(path).map_err(|error| explain(&error))?;
    fallocate(&file, FallocateFlags::empty(), 0, pages * BASE_PAGE_BYTES)
        .map_err(|errno| explain(&errno.into()))?;
    let written = file.write_all_at(&header(last), 0).and_then(|()| file.sync_all());
    written.map_err(|error| explain(&error))
}

fn new_file(path: &Path) -> std::io::Result<File> {
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(no_follow).open(path)
}

/// The first page of a swap area, of which `last` is the last one: `union swap_header` of linux/swap.h.
fn header(last: u32) -> Vec<u8> {
    /// The part in which a boot sector may be.
    const BOOT: usize = 1024;
    const VERSION: u32 = 1;
    const MAGIC: &[u8] = b"SWAPSPACE2";
    let mut page = vec![0; to_usize(BASE_PAGE_BYTES)];
    page[BOOT..BOOT + 4].copy_from_slice(&VERSION.to_ne_bytes());
    page[BOOT + 4..BOOT + 8].copy_from_slice(&last.to_ne_bytes());
    let magic = page.len() - MAGIC.len();
    page[magic..].copy_from_slice(MAGIC);
    page
}

fn swap_on(path: &Path) -> Result<()> {
    /// `SWAP_FLAG_PREFER` of sys/swap.h, with the highest priority.
    const FIRST: libc::c_int = 0x8000 | 0x7fff;
    let name = c_string(path)?;
    // SAFETY: the name is text that ends with a zero; the kernel only reads it.
    let done = unsafe { libc::swapon(name.as_ptr(), FIRST) };
    done_or(done, path, "swap to")
}

fn swap_off(path: &Path) -> Result<()> {
    let name = c_string(path)?;
    // SAFETY: as in `swap_on`.
    let done = unsafe { libc::swapoff(name.as_ptr()) };
    done_or(done, path, "no longer swap to")
}

fn done_or(done: libc::c_int, path: &Path, what: &str) -> Result<()> {
    match done {
        0 => Ok(()),
        _ => Err(Error::from_io(&std::io::Error::last_os_error(), what, path)),
    }
}

fn c_string(path: &Path) -> Result<CString> {
    let refused = |_| Error::Refused { path: path.to_owned(), reason: "its name has a zero in it" };
    CString::new(path.as_os_str().as_bytes()).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;

    const GOOD: &[u8] = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
        /dev/vdb2                               partition\t2097148\t\t1024\t\t-2\n\
        /mnt/a\\040b/superpage.swap               file\t\t1048572\t\t0\t\t32767\n";

    fn parsed(text: &[u8]) -> Result<Vec<Area>> {
        parse(text, Path::new("swaps"))
    }

    #[test]
    fn areas_are_read_with_spaces_in_their_names() {
        let areas = parsed(GOOD).expect("good");
        let names: Vec<&Path> = areas.iter().map(|area| area.path.as_path()).collect();
        assert_eq!(names, [Path::new("/dev/vdb2"), Path::new("/mnt/a b/superpage.swap")]);
        assert_eq!((areas[0].size, areas[0].used), (Bytes(2_097_148 << 10), Bytes::from_mib(1)));
    }

    #[test]
    fn a_bad_line_is_named_and_no_swap_is_none() {
        assert_eq!(parsed(b"Filename Type Size Used Priority\n"), Ok(Vec::new()));
        let bad = parsed(b"Filename Type Size Used Priority\n/dev/vdb2 partition 12\n");
        assert!(matches!(bad, Err(Error::Malformed { line: 2, .. })), "{bad:?}");
        assert!(matches!(areas(Path::new("/nonexistent")), Err(Error::Missing { .. })));
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }

    #[test]
    fn the_header_is_where_the_kernel_looks_for_it() {
        let page = header(7);
        assert_eq!(page[1024..1032], [1_u32.to_ne_bytes(), 7_u32.to_ne_bytes()].concat());
        assert_eq!(&page[page.len() - 10..], b"SWAPSPACE2");
    }

    #[test]
    fn a_size_that_is_no_swap_area_is_refused_and_leaves_no_file() {
        let directory = tempfile::tempdir().expect("a directory");
        for size in [Bytes::ZERO, Bytes(BASE_PAGE_BYTES)] {
            let state = directory.path().join("state");
            assert!(SwapFile::create(directory.path(), size, &state).is_err());
            assert_eq!(made::left_behind(&state), Ok(Vec::new()));
        }
        assert!(!directory.path().join(NAME).exists());
    }
}
