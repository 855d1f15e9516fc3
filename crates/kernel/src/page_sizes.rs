//! The sizes of pages that this kernel was built with: base pages, from the auxiliary vector, and huge pages, from
//! `/sys/kernel/mm/transparent_hugepage/hpage_pmd_size`.
//!
//! All of superpage counts in base pages of 4 KiB and huge pages of 2 MiB. On arm64 a kernel may have 16 KiB and 32 MiB, or
//! 64 KiB and 512 MiB: what is asked there about a PMD range would be answered about a part of one.
//! [Transparent hugepage support](https://docs.kernel.org/admin-guide/mm/transhuge.html),
//! [getauxval(3)](https://man7.org/linux/man-pages/man3/getauxval.3.html).

use crate::error::{Error, Result};
use crate::text;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, Bytes, HUGE_PAGE_BYTES};

/// Fails unless pages have the sizes that superpage counts in. A kernel without transparent huge pages says nothing of
/// theirs, and passes.
///
/// # Errors
/// [`Error::OtherPages`]; [`Error::Denied`] or [`Error::Malformed`] where the size cannot be read.
pub fn check() -> Result<()> {
    check_under(Path::new("/"), Bytes(rustix::param::page_size() as u64))
}

/// As [`check`], of a kernel with base pages of size `base` whose `/sys` lies below `root`.
///
/// # Errors
/// As [`check`].
pub fn check_under(root: &Path, base: Bytes) -> Result<()> {
    let path = root.join("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let huge = match text::read_decimal(&path) {
        Ok(size) => Some(Bytes(size)),
        Err(Error::Missing { .. }) => None,
        Err(error) => return Err(error),
    };
    let fits = base == Bytes(BASE_PAGE_BYTES) && huge.is_none_or(|huge| huge.0 == HUGE_PAGE_BYTES);
    if fits { Ok(()) } else { Err(Error::OtherPages { base, huge }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The answer where `hpage_pmd_size` has this text; `None`: where it is not there.
    fn answer(base: Bytes, text: Option<&str>) -> Result<()> {
        let root = tempfile::tempdir().expect("a directory");
        let directory = root.path().join("sys/kernel/mm/transparent_hugepage");
        fs::create_dir_all(&directory).expect("made");
        if let Some(text) = text {
            fs::write(directory.join("hpage_pmd_size"), text).expect("written");
        }
        check_under(root.path(), base)
    }

    #[test]
    fn only_4_kib_and_2_mib_will_do() {
        let (kib4, mib2) = (Bytes::from_kib(4), "2097152\n");
        assert_eq!(answer(kib4, Some(mib2)), Ok(()));
        assert_eq!(answer(kib4, None), Ok(()), "a kernel without transparent huge pages");
        for (base, text) in [
            (Bytes::from_kib(16), Some("33554432\n")),
            (Bytes::from_kib(64), Some("536870912\n")),
            (Bytes::from_kib(64), Some(mib2)),
            (Bytes::from_kib(64), None),
            (kib4, Some("4194304\n")),
            (kib4, Some("1048576\n")),
            (kib4, Some("0\n")),
        ] {
            let huge = text.map(|text| Bytes(text.trim().parse().expect("a number")));
            assert_eq!(answer(base, text), Err(Error::OtherPages { base, huge }));
        }
    }

    #[test]
    fn what_is_no_number_is_an_error() {
        for text in ["", "2M\n", "-1\n"] {
            let answer = answer(Bytes::from_kib(4), Some(text));
            assert!(matches!(answer, Err(Error::Malformed { .. })), "{text:?}: {answer:?}");
        }
    }

    #[test]
    fn the_sentence_has_the_sizes_and_what_to_do() {
        let other = answer(Bytes::from_kib(64), Some("536870912\n")).expect_err("no");
        assert_eq!(
            other.to_string(),
            "this kernel has base pages of 64 KiB and huge pages of 512 MiB, and superpage works with 4 KiB and 2 MiB only: \
             boot a kernel with pages of 4 KiB (on arm64 CONFIG_ARM64_4K_PAGES)"
        );
        let none = answer(Bytes::from_kib(16), None).expect_err("no").to_string();
        assert!(none.starts_with("this kernel has base pages of 16 KiB, and"), "{none}");
    }
}
