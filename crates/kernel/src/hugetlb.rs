//! The kernel's pools of gigantic and of huge pages (hugetlb), `/sys/kernel/mm/hugepages/hugepages-1048576kB` and
//! `hugepages-2048kB`.
//!
//! The number of pages is a setting. The kernel moves what lies in the way when it is raised, and may find
//! fewer than it was told.
//! [hugetlbpage](https://docs.kernel.org/admin-guide/mm/hugetlbpage.html).

use crate::error::Result;
use crate::text;
use std::path::{Path, PathBuf};
use superpage_units::PageSize;

const POOLS: &str = "kernel/mm/hugepages";
const SETTING: &str = "nr_hugepages";
/// The pages that are in use beyond the setting.
const SURPLUS: &str = "surplus_hugepages";

/// A pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The pages that the setting asks for and the kernel has found.
    pub size: u64,
    /// The pages in it that nobody uses or has reserved.
    pub free: u64,
    /// The pages that programs use, also beyond the setting.
    pub used: u64,
}

/// The file that sets how many pages of this size there are, below `sys_root` (normally `/sys`).
#[must_use]
pub fn setting(sys_root: &Path, size: PageSize) -> PathBuf {
    pool(sys_root, size).join(SETTING)
}

fn pool(sys_root: &Path, size: PageSize) -> PathBuf {
    sys_root.join(POOLS).join(format!("hugepages-{}kB", size.bytes().0 >> 10))
}

/// The pool of pages of this size now.
///
/// # Errors
/// [`Error::Missing`](crate::Error::Missing) on a machine without such pages, as base pages are,
/// [`Error::Denied`](crate::Error::Denied) or [`Error::Malformed`](crate::Error::Malformed).
pub fn read(sys_root: &Path, size: PageSize) -> Result<Pool> {
    let number = |name: &str| text::read_decimal(&pool(sys_root, size).join(name));
    let all = number(SETTING)?;
    Ok(Pool {
        size: all.saturating_sub(number(SURPLUS)?),
        used: all.saturating_sub(number("free_hugepages")?),
        free: number("free_hugepages")?.saturating_sub(number("resv_hugepages")?),
    })
}

/// The pages that the setting at `path` asks for, of the `all` that the file shows; `None` if it is another file.
///
/// Pages that are in use when the setting is lowered stay until they are freed, and the file counts them.
pub(crate) fn asked_for(path: &Path, all: &str) -> Option<u64> {
    if path.file_name()? != SETTING {
        return None;
    }
    let surplus = text::read_decimal(&path.with_file_name(SURPLUS)).ok()?;
    all.parse::<u64>().ok()?.checked_sub(surplus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    const GIGANTIC: PageSize = PageSize::Gigantic;

    #[test]
    fn the_pool_is_read_and_a_machine_without_says_so() {
        let root = tempfile::tempdir().expect("there is room");
        assert!(matches!(read(root.path(), GIGANTIC), Err(Error::Missing { .. })));
        let pool = pool(root.path(), GIGANTIC);
        std::fs::create_dir_all(&pool).expect("there is room");
        let write = |name: &str, text: &str| {
            std::fs::write(pool.join(name), text).expect("there is room");
        };
        let numbers = [(SETTING, "5\n"), (SURPLUS, "2\n"), ("resv_hugepages", "1\n")];
        numbers.into_iter().for_each(|(name, text)| write(name, text));
        write("free_hugepages", "2\n");
        assert_eq!(read(root.path(), GIGANTIC), Ok(Pool { size: 3, free: 1, used: 3 }));
        assert_eq!(asked_for(&pool.join(SETTING), "5"), Some(3));
        assert_eq!(asked_for(&pool.join("free_hugepages"), "2"), None);
        assert_eq!(setting(root.path(), GIGANTIC), pool.join("nr_hugepages"));
        assert!(pool.ends_with("kernel/mm/hugepages/hugepages-1048576kB"));
        write("free_hugepages", "x\n");
        assert!(matches!(read(root.path(), GIGANTIC), Err(Error::Malformed { .. })));
    }
}
