//! Whether a process does something that needs care before its memory is changed from outside:
//! merging equal pages (KSM), filling memory itself (userfaultfd), locking it, running in real time, refusing huge pages
//! altogether.
//!
//! All of it is cheap to ask; only for those that say yes is it worth finding out which VMAs
//! ([`crate::smaps_flags`]).
//! [userfaultfd(2)](https://man7.org/linux/man-pages/man2/userfaultfd.2.html),
//! `PR_SET_THP_DISABLE` in [prctl(2)](https://man7.org/linux/man-pages/man2/prctl.2.html).

use crate::error::Result;
use crate::process::Process;
use crate::{ksm, status, text};
use rustix::fs::{Dir, readlinkat};
use std::path::Path;

/// A process's descriptors are read up to this number. Chosen, not measured: a process may have a million.
pub(crate) const MOST_DESCRIPTORS: usize = 1 << 16;
/// A process's threads are read up to this number. Chosen, not measured.
const MOST_THREADS: usize = 4000;

/// What a process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// Pages of it are merged with equal ones, and the kernel goes on merging (KSM). That it allows that says nothing: QEMU does by
    /// default.
    pub merges: bool,
    /// The process holds a userfaultfd that can be seen: the library of `superpage run` hides the one that it
    /// holds. Or the process has more descriptors than are read.
    pub fills_itself: bool,
    /// The process has locked memory (`mlock`, `mlockall`).
    pub locks_memory: bool,
    /// A thread of the process has a real-time scheduling policy, or the process has more threads than are read.
    pub is_real_time: bool,
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
    // Where the switch cannot be read, what is merged counts as being merged still.
    let is_merging = ksm::is_running(Path::new("/sys")).unwrap_or(true);
    Ok(Habits {
        merges: is_merging && ksm::merged(process).is_ok_and(|pages| !pages.is_zero()),
        fills_itself: may_hold_userfaultfd(process).unwrap_or(false),
        locks_memory: field(&status, b"VmLck:").is_some_and(|size| size != b"0"),
        is_real_time: is_real_time(process).unwrap_or(false),
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

fn may_hold_userfaultfd(process: &Process) -> Result<bool> {
    let directory = process.open_file("fd")?;
    let Ok(entries) = Dir::read_from(&directory) else { return Ok(false) };
    let is_one = |name: &std::ffi::CStr| {
        readlinkat(&directory, name, Vec::new())
            .is_ok_and(|target| target.as_bytes() == b"anon_inode:[userfaultfd]")
    };
    let mut entries = entries.filter_map(std::result::Result::ok);
    let is_seen = entries.by_ref().take(MOST_DESCRIPTORS).any(|entry| is_one(entry.file_name()));
    Ok(is_seen || entries.next().is_some())
}

/// Whether a thread has a real-time scheduling policy, or the process has more threads than are read.
fn is_real_time(process: &Process) -> Result<bool> {
    let Ok(entries) = Dir::read_from(process.open_file("task")?) else { return Ok(false) };
    let names =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
    let mut threads = names.filter(|name| !name.starts_with('.'));
    let is_one = |thread: String| {
        // A thread may end meanwhile.
        let stat = process.read_file(&format!("task/{thread}/stat"));
        stat.is_ok_and(|text| status::is_real_time(&text))
    };
    let is_seen = threads.by_ref().take(MOST_THREADS).any(is_one);
    Ok(is_seen || threads.next().is_some())
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
        let text = b"VmLck:\t       0 kB\nTHP_enabled:\t0\n";
        assert_eq!(field(text, b"VmLck:"), Some(b"0".as_slice()));
        assert_eq!(field(text, b"THP_enabled:"), Some(b"0".as_slice()));
        assert_eq!(field(text, b"THP"), None);
    }
}
