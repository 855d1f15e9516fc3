//! `/proc/PID/smaps_rollup`: the memory of a whole process, summed up by the kernel.
//!
//! Not VMA by VMA. The kernel walks all of the process's page tables for it: 16 ms for each GiB
//! on base pages, measured on a virtual machine, so not to be read in a tight loop. What
//! [`status`](crate::status) says costs next to nothing.
//! [proc_pid_smaps(5)](https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html).

use crate::error::Result;
use crate::meminfo::Fields;
use crate::process::Process;
use std::path::Path;
use superpage_units::Bytes;

/// A process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// Resident.
    pub rss: Bytes,
    /// Resident, what is shared counted in equal parts.
    pub pss: Bytes,
    /// Anonymous memory, the shared zero page not counted.
    pub anonymous: Bytes,
    /// Anonymous memory mapped by huge pages; `None` on a kernel that does not say.
    pub anon_huge_pages: Option<Bytes>,
    /// Shared memory (tmpfs, memfd) mapped by huge pages; `None` on a kernel that does not say.
    pub shmem_huge_pages: Option<Bytes>,
    /// Files mapped by huge pages; `None` on a kernel that does not say.
    pub file_huge_pages: Option<Bytes>,
    /// Hugetlb pages of all sizes, which are not resident; `None` on a kernel that does not say.
    pub hugetlb: Option<Bytes>,
    /// Swapped out; `None` on a kernel that does not say.
    pub swap: Option<Bytes>,
}

impl Rollup {
    /// Resident memory that is mapped by base pages.
    #[must_use]
    pub fn on_base_pages(&self) -> Bytes {
        let huge = [self.anon_huge_pages, self.shmem_huge_pages, self.file_huge_pages];
        self.rss.saturating_sub(huge.into_iter().flatten().sum())
    }
}

/// The memory of `process` now.
///
/// # Errors
/// [`Error::Gone`](crate::Error::Gone) (also for a kernel thread, which has none),
/// [`Error::Denied`](crate::Error::Denied) or [`Error::Malformed`](crate::Error::Malformed).
pub fn of(process: &Process) -> Result<Rollup> {
    parse(&process.read_file("smaps_rollup")?, &process.path("smaps_rollup"))
}

/// Understands the text of a `smaps_rollup` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`](crate::Error::Malformed) if a line that is always there is not.
pub fn parse(text: &[u8], path: &Path) -> Result<Rollup> {
    let fields = Fields::of(text, path);
    Ok(Rollup {
        rss: fields.size("Rss")?,
        pss: fields.size("Pss")?,
        anonymous: fields.size("Anonymous")?,
        anon_huge_pages: fields.optional_size("AnonHugePages")?,
        shmem_huge_pages: fields.optional_size("ShmemPmdMapped")?,
        file_huge_pages: fields.optional_size("FilePmdMapped")?,
        hugetlb: hugetlb(fields)?,
        swap: fields.optional_size("Swap")?,
    })
}

fn hugetlb(fields: Fields<'_>) -> Result<Option<Bytes>> {
    let private = fields.optional_size("Private_Hugetlb")?;
    let shared = fields.optional_size("Shared_Hugetlb")?;
    Ok(private.map(|private| private + shared.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::text;
    use proptest::prelude::*;

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/proc/smaps_rollup");

    fn parsed(text: &[u8]) -> Result<Rollup> {
        parse(text, Path::new("smaps_rollup"))
    }

    #[test]
    fn a_real_file_reads() {
        assert_eq!(
            parsed(GOOD),
            Ok(Rollup {
                rss: Bytes::from_kib(1576),
                pss: Bytes::from_kib(303),
                anonymous: Bytes::from_kib(100),
                anon_huge_pages: Some(Bytes::ZERO),
                shmem_huge_pages: Some(Bytes::ZERO),
                file_huge_pages: Some(Bytes::ZERO),
                hugetlb: Some(Bytes::ZERO),
                swap: Some(Bytes::ZERO),
            })
        );
    }

    #[test]
    fn some_lines_may_be_missing_and_some_not() {
        let small = parsed(b"Rss: 8 kB\nPss: 4 kB\nAnonymous: 4 kB\n").expect("enough");
        assert_eq!((small.anon_huge_pages, small.swap, small.hugetlb), (None, None, None));
        assert_eq!(small.on_base_pages(), Bytes::from_kib(8));
        let missing = parsed(b"Rss: 8 kB\n").expect_err("no Pss");
        assert!(missing.to_string().contains("Pss"), "{missing}");
        assert!(matches!(parsed(b"Rss: x kB\n"), Err(Error::Malformed { line: 1, .. })));
    }

    #[test]
    fn our_own_memory_shows() {
        let me = Process::current().expect("we are alive");
        let memory = vec![1_u8; 8 << 20];
        let rollup = of(&me).expect("our own reads");
        assert!(rollup.anonymous >= Bytes::from_mib(8), "{rollup:?}");
        assert!(rollup.rss >= rollup.pss);
        drop(memory);
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(rss: u32, pss: u32, anonymous: u32, swap: u32, huge: [u32; 5]) {
            let [huge, shmem, file, private, shared] = huge;
            let text = format!(
                "1000-2000 ---p 00000000 00:00 0 [rollup]\nRss: {rss:8} kB\nPss: {pss:8} kB\n\
                 Anonymous: {anonymous} kB\nAnonHugePages: {huge} kB\nSwap: {swap} kB\n\
                 ShmemPmdMapped: {shmem} kB\nFilePmdMapped: {file} kB\n\
                 Shared_Hugetlb: {shared} kB\nPrivate_Hugetlb: {private} kB\n"
            );
            let size = |kib: u32| Bytes::from_kib(kib.into());
            let rollup = parsed(text.as_bytes()).expect("good");
            let by_size = rollup.on_base_pages() + size(huge) + size(shmem) + size(file);
            prop_assert_eq!(by_size, size(rss).max(size(huge) + size(shmem) + size(file)));
            prop_assert_eq!(rollup, Rollup {
                rss: size(rss),
                pss: size(pss),
                anonymous: size(anonymous),
                anon_huge_pages: Some(size(huge)),
                shmem_huge_pages: Some(size(shmem)),
                file_huge_pages: Some(size(file)),
                hugetlb: Some(size(private) + size(shared)),
                swap: Some(size(swap)),
            });
        }
    }
}
