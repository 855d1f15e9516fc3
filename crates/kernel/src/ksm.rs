//! Merging of equal pages (KSM): whether the kernel does it, and how many pages of a process are merged now.
//!
//! A program only allows it (`MADV_MERGEABLE`, `PR_SET_MEMORY_MERGE`); nothing is merged before somebody sets `run` to 1. QEMU
//! allows it by default.
//! [Kernel Samepage Merging](https://docs.kernel.org/admin-guide/mm/ksm.html).

use crate::error::{Error, Result};
use crate::process::Process;
use crate::text;
use std::path::Path;
use superpage_units::BasePages;

/// Whether the kernel merges pages now, by `kernel/mm/ksm/run` in `sys_root` (normally `/sys`): 0 stops it and 2 undoes it. A kernel
/// without KSM merges none.
///
/// # Errors
/// [`Error::Denied`], [`Error::Malformed`].
pub fn is_running(sys_root: &Path) -> Result<bool> {
    match text::read_decimal(&sys_root.join("kernel/mm/ksm/run")) {
        Ok(run) => Ok(run == 1),
        Err(Error::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The pages of `process` that are merged now, those that were merged with the zero page included.
///
/// # Errors
/// [`Error::Gone`]; [`Error::Denied`]; [`Error::Missing`] on kernels before 6.1 and without KSM.
pub fn merged(process: &Process) -> Result<BasePages> {
    Ok(sum(&process.read_file("ksm_stat")?))
}

/// `name number` in each line that matters, by the text of a `ksm_stat` file.
fn sum(text: &[u8]) -> BasePages {
    let pages = |(_, line)| {
        let mut words = text::words(line);
        let is_count = matches!(words.next(), Some(b"ksm_merging_pages" | b"ksm_zero_pages"));
        is_count.then(|| words.next().and_then(text::decimal)).flatten()
    };
    BasePages(text::lines(text).filter_map(pages).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_1_means_that_pages_are_merged() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(is_running(root.path()), Ok(false), "a kernel without");
        let directory = root.path().join("kernel/mm/ksm");
        fs::create_dir_all(&directory).expect("made");
        for (text, expected) in [("0\n", false), ("1\n", true), ("2\n", false)] {
            fs::write(directory.join("run"), text).expect("written");
            assert_eq!(is_running(root.path()), Ok(expected), "{text:?}");
        }
        fs::write(directory.join("run"), "on\n").expect("written");
        assert!(matches!(is_running(root.path()), Err(Error::Malformed { .. })));
    }

    #[test]
    fn what_may_be_merged_is_not_merged_yet() {
        let text =
            b"ksm_rmap_items 7\nksm_zero_pages 0\nksm_merging_pages 0\nksm_process_profit -448\n\
            ksm_merge_any: no\nksm_mergeable: yes\n";
        assert_eq!(sum(text), BasePages::ZERO);
        let text =
            b"ksm_rmap_items 7\nksm_zero_pages 3\nksm_merging_pages 12\nksm_mergeable: yes\n";
        assert_eq!(sum(text), BasePages(15));
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(b"ksm_zero_pages 3\nksm_merging_pages 12\n", sum);
    }
}
