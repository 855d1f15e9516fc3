//! `/proc/meminfo`: how much memory the machine has and how much is left.
//!
//! Not whose it is (that is [`smaps`](crate::smaps) and [`cgroup`](crate::cgroup)), and not what
//! happened to it ([`vmstat`](crate::vmstat)).
//! [proc_meminfo(5)](https://man7.org/linux/man-pages/man5/proc_meminfo.5.html).

use crate::error::{Error, Result};
use crate::text;
use crate::zoneinfo;
use std::path::Path;
pub use superpage_uapi::meminfo::total_and_available;
use superpage_units::Bytes;

/// The machine's memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meminfo {
    /// What the kernel manages at all.
    pub total: Bytes,
    /// Memory set aside for hugetlb pages of all sizes, in use or not: programs cannot have it as ordinary memory.
    pub hugetlb: Bytes,
    /// What nobody uses for anything.
    pub free: Bytes,
    /// What new programs could have without swapping: free memory and what can be dropped.
    pub available: Bytes,
    /// Anonymous memory that is mapped, by pages of all sizes but hugetlb's.
    pub anonymous: Bytes,
    /// Anonymous memory that is mapped by huge pages; `None` on a kernel built without them.
    pub anon_huge_pages: Option<Bytes>,
    /// All swap space.
    pub swap_total: Bytes,
    /// Swap space not in use.
    pub swap_free: Bytes,
}

impl Meminfo {
    /// The memory that is not set aside for hugetlb.
    #[must_use]
    pub fn ordinary(&self) -> Bytes {
        self.total.saturating_sub(self.hugetlb)
    }

    /// Memory in use, without hugetlb, that the kernel could not free without swapping or killing.
    #[must_use]
    pub fn used(&self) -> Bytes {
        self.ordinary().saturating_sub(self.available)
    }
}

/// The machine's memory now, from `meminfo` in `proc_root` (normally `/proc`).
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
pub fn read(proc_root: &Path) -> Result<Meminfo> {
    let path = proc_root.join("meminfo");
    parse(&text::read(&path)?, &path)
}

/// The memory that a new program can have without swapping, about: what the kernel says is available, and free pages on the CPUs'
/// own lists, which it leaves out ([`zoneinfo`]).
///
/// # Errors
/// As [`read`].
pub fn obtainable(proc_root: &Path) -> Result<Bytes> {
    let available = read(proc_root)?.available;
    Ok(available + zoneinfo::read(proc_root).unwrap_or_default().all())
}

/// Understands the text of a `meminfo` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`] if a line that is always there is not, or has no size in kB.
pub fn parse(text: &[u8], path: &Path) -> Result<Meminfo> {
    let fields = Fields::of(text, path);
    Ok(Meminfo {
        total: fields.size("MemTotal")?,
        // Not there on a kernel built without hugetlb.
        hugetlb: fields.optional_size("Hugetlb")?.unwrap_or_default(),
        free: fields.size("MemFree")?,
        available: fields.size("MemAvailable")?,
        anonymous: fields.size("AnonPages")?,
        anon_huge_pages: fields.optional_size("AnonHugePages")?,
        swap_total: fields.size("SwapTotal")?,
        swap_free: fields.size("SwapFree")?,
    })
}

/// The `Key:  value` lines that several files of `/proc` consist of.
///
/// Found by walking the text for each key: these files have some dozens of short lines, of which
/// a handful is wanted, so an index would cost more than it saves.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    text: &'a [u8],
    path: &'a Path,
}

impl<'a> Fields<'a> {
    /// The lines of `text`, which was read from `path`.
    pub(crate) fn of(text: &'a [u8], path: &'a Path) -> Self {
        Self { text, path }
    }

    /// The number of the line with `key`, and what follows the colon, without surrounding space.
    pub(crate) fn find(self, key: &str) -> Option<(usize, &'a [u8])> {
        text::lines(self.text).find_map(|(number, line)| Some((number, text::value(line, key)?)))
    }

    /// As [`Fields::find`]; without such a line, an error that says so with `expected`.
    pub(crate) fn require(self, key: &str, expected: &'static str) -> Result<(usize, &'a [u8])> {
        let missing = || Error::malformed(self.path, 0, expected, key.as_bytes());
        self.find(key).ok_or_else(missing)
    }

    /// The size that the line with `key` states in kB.
    pub(crate) fn size(self, key: &str) -> Result<Bytes> {
        let (number, value) = self.require(key, "a line for every key, also for this one")?;
        self.kibibytes(number, value)
    }

    /// As [`Fields::size`], or `None` if there is no such line.
    pub(crate) fn optional_size(self, key: &str) -> Result<Option<Bytes>> {
        self.find(key).map(|(number, value)| self.kibibytes(number, value)).transpose()
    }

    fn kibibytes(self, number: usize, value: &[u8]) -> Result<Bytes> {
        text::kibibytes(value)
            .ok_or_else(|| Error::malformed(self.path, number, "a size in kB", value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/proc/meminfo");

    fn parsed(text: &[u8]) -> Result<Meminfo> {
        parse(text, Path::new("meminfo"))
    }

    #[test]
    fn a_real_file_reads() {
        let info = parsed(GOOD).expect("the fixture is good");
        assert_eq!(info.total, Bytes::from_kib(24_684_096));
        assert_eq!(info.free, Bytes::from_kib(24_263_696));
        assert_eq!(info.available, Bytes::from_kib(24_315_960));
        assert_eq!(info.anonymous, Bytes::from_kib(346_236));
        assert_eq!(info.anon_huge_pages, Some(Bytes::from_mib(4)));
        assert_eq!(info.used(), info.total - info.available);
    }

    #[test]
    fn a_kernel_without_huge_pages_reads_too() {
        let text =
            b"MemTotal: 4 kB\nMemFree: 3 kB\nMemAvailable: 2 kB\nSwapTotal: 1 kB\nSwapFree: 0 kB\n\
              AnonPages: 1 kB\n";
        let info = parsed(text).expect("nothing that is required is missing");
        assert_eq!(info.anon_huge_pages, None);
        assert_eq!(info.swap_total, Bytes::from_kib(1));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let missing = parsed(b"MemTotal: 4 kB\n").expect_err("MemFree is missing");
        assert!(missing.to_string().contains("MemFree"), "{missing}");
        let no_unit = parsed(b"MemTotal: 4 kB\nMemFree: many\n").expect_err("no size");
        assert!(no_unit.to_string().contains("meminfo:2:"), "{no_unit}");
        let missing_file = read(Path::new("/nonexistent"));
        assert!(matches!(missing_file, Err(Error::Missing { .. })));
    }

    #[test]
    fn procfs_sees_the_same_machine() {
        use procfs::Current;
        let ours = read(Path::new("/proc")).expect("we have /proc");
        let theirs = procfs::Meminfo::current().expect("procfs reads it too");
        assert_eq!(ours.total, Bytes(theirs.mem_total));
        assert_eq!(ours.swap_total, Bytes(theirs.swap_total));
        let apart = ours.free.0.abs_diff(theirs.mem_free);
        assert!(apart < ours.total.0 / 10, "{apart} bytes apart");
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sizes: [u32; 6]) {
            let [total, free, available, anonymous, huge, swap] = sizes;
            let text = format!(
                "MemTotal: {total} kB\nMemFree:{free} kB\nMemAvailable:  {available} kB\n\
                 SwapTotal: {swap} kB\nSwapFree: {swap} kB\nAnonPages: {anonymous} kB\n\
                 AnonHugePages: {huge} kB\n"
            );
            let size = |kib: u32| Bytes::from_kib(kib.into());
            prop_assert_eq!(parsed(text.as_bytes()), Ok(Meminfo {
                total: size(total),
                hugetlb: Bytes::ZERO,
                free: size(free),
                available: size(available),
                anonymous: size(anonymous),
                anon_huge_pages: Some(size(huge)),
                swap_total: size(swap),
                swap_free: size(swap),
            }));
        }
    }
}
