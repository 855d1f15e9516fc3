//! Whether a process does something that needs care before its memory is changed from outside:
//! merging equal pages (KSM), filling memory itself (userfaultfd), refusing huge pages altogether.
//!
//! All of it is cheap to ask; only for those that say yes is it worth finding out which VMAs
//! ([`crate::smaps_flags`]).
//! [ksm_stat](https://docs.kernel.org/admin-guide/mm/ksm.html),
//! [userfaultfd(2)](https://man7.org/linux/man-pages/man2/userfaultfd.2.html),
//! `PR_SET_THP_DISABLE` in [prctl(2)](https://man7.org/linux/man-pages/man2/prctl.2.html).

use crate::error::Result;
use crate::process::Process;
use crate::text;
use rustix::fs::{Dir, readlinkat};

/// What a process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// It has memory that may be merged with equal pages of others.
    pub merges: bool,
    /// The process holds a userfaultfd that can be seen: the library of `superpage run` hides the one that it
    /// holds.
    pub fills_itself: bool,
    /// It forbade itself huge pages (`PR_SET_THP_DISABLE`); nobody can give it any.
    pub refuses_huge_pages: bool,
}

impl Habits {
    /// Whether some of its VMAs may be in other hands.
    #[must_use]
    pub fn need_care(self) -> bool {
        self.merges || self.fills_itself
    }
}

/// The habits of `process`. What cannot be found out counts as no.
///
/// # Errors
/// [`crate::Error::Gone`].
pub fn of(process: &Process) -> Result<Habits> {
    let status = process.read_file("status")?;
    // Since Linux 6.1; "ksm_mergeable" since 6.16.
    let ksm = process.read_file("ksm_stat").unwrap_or_default();
    let merging = field(&ksm, b"ksm_merging_pages").is_some_and(|pages| pages != b"0");
    Ok(Habits {
        merges: merging
            || field(&ksm, b"ksm_mergeable:") == Some(b"yes")
            || field(&ksm, b"ksm_merge_any:") == Some(b"yes"),
        fills_itself: holds_userfaultfd(process).unwrap_or(false),
        refuses_huge_pages: field(&status, b"THP_enabled:") == Some(b"0"),
    })
}

/// The word after `name`, at the beginning of a line.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text::lines(text).find_map(|(_, line)| {
        let mut words = text::words(line);
        (words.next() == Some(name)).then(|| words.next()).flatten()
    })
}

fn holds_userfaultfd(process: &Process) -> Result<bool> {
    let directory = process.open_file("fd")?;
    let Ok(entries) = Dir::read_from(&directory) else { return Ok(false) };
    let is_one = |name: &std::ffi::CStr| {
        readlinkat(&directory, name, Vec::new())
            .is_ok_and(|target| target.as_bytes() == b"anon_inode:[userfaultfd]")
    };
    Ok(entries.filter_map(std::result::Result::ok).any(|entry| is_one(entry.file_name())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_have_no_such_habits() {
        let me = Process::current().expect("we run");
        assert_eq!(of(&me), Ok(Habits::default()));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = b"ksm_rmap_items 0\nksm_merging_pages 12\nksm_mergeable: yes\nTHP_enabled:\t0\n";
        assert_eq!(field(text, b"ksm_merging_pages"), Some(b"12".as_slice()));
        assert_eq!(field(text, b"ksm_mergeable:"), Some(b"yes".as_slice()));
        assert_eq!(field(text, b"THP_enabled:"), Some(b"0".as_slice()));
        assert_eq!(field(text, b"ksm_merging"), None);
    }
}
