//! The kernel's pool of gigantic pages (hugetlb), `/sys/kernel/mm/hugepages/hugepages-1048576kB`.
//!
//! The number of pages is a setting. The kernel moves what lies in the way when it is raised, and may find
//! fewer than it was told.
//! [hugetlbpage](https://docs.kernel.org/admin-guide/mm/hugetlbpage.html).

use crate::error::Result;
use crate::text;
use std::path::{Path, PathBuf};

const GIGANTIC: &str = "kernel/mm/hugepages/hugepages-1048576kB";

/// The pool of gigantic pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// All pages in it.
    pub size: u64,
    /// The pages in it that nobody uses.
    pub free: u64,
}

/// The file that sets how many gigantic pages there are, below `sys_root` (normally `/sys`).
#[must_use]
pub fn setting(sys_root: &Path) -> PathBuf {
    sys_root.join(GIGANTIC).join("nr_hugepages")
}

/// The pool now.
///
/// # Errors
/// [`Error::Missing`](crate::Error::Missing) on a machine without gigantic pages,
/// [`Error::Denied`](crate::Error::Denied) or [`Error::Malformed`](crate::Error::Malformed).
pub fn read(sys_root: &Path) -> Result<Pool> {
    let number = |name: &str| text::read_decimal(&sys_root.join(GIGANTIC).join(name));
    Ok(Pool { size: number("nr_hugepages")?, free: number("free_hugepages")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn the_pool_is_read_and_a_machine_without_says_so() {
        let root = tempfile::tempdir().expect("there is room");
        assert!(matches!(read(root.path()), Err(Error::Missing { .. })));
        let pool = root.path().join(GIGANTIC);
        std::fs::create_dir_all(&pool).expect("there is room");
        std::fs::write(pool.join("nr_hugepages"), "3\n").expect("there is room");
        std::fs::write(pool.join("free_hugepages"), "1\n").expect("there is room");
        assert_eq!(read(root.path()), Ok(Pool { size: 3, free: 1 }));
        assert_eq!(setting(root.path()), pool.join("nr_hugepages"));
        std::fs::write(pool.join("free_hugepages"), "x\n").expect("there is room");
        assert!(matches!(read(root.path()), Err(Error::Malformed { .. })));
    }
}
