//! The end of a program whose threads leave one by one.
//!
//! A process lives while any thread does, and the library's own would keep it alive for ever.

use crate::areas;
use crate::sys::{self, Descriptor, Result};
use crate::thread;
use core::sync::atomic::Ordering::Relaxed;

/// The file `/proc/self/stat`, in which the kernel describes the process.
#[derive(Debug)]
pub(crate) struct Stat(Descriptor);

/// The bytes of the file that are read.
const ROOM: usize = 1024;

impl Stat {
    /// Opens the file.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn open() -> Result<Self> {
        sys::open(c"/proc/self/stat", libc::O_RDONLY).map(Self)
    }

    /// The result of `find` in the text as it is now.
    fn read<T>(&self, find: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let mut text = [0; ROOM];
        let length = sys::read_at(&self.0, 0, &mut text).ok()?;
        find(text.get(..length)?)
    }

    /// The threads of the process.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.read(threads_in)
    }

    /// Ends the process, as the kernel would have, if all threads of the program have ended. The file is open already: the program may
    /// have had the kernel refuse to open one (seccomp).
    pub(crate) fn end_with_the_program(&self) {
        if thread::is_with_one_of_the_programs(self)
            && let Some(code) = self.read(exit_code_in)
        {
            sys::end_process(code);
        }
    }
}

/// The number of threads, of the text of a file `stat`.
fn threads_in(stat: &[u8]) -> Option<usize> {
    const THREADS: usize = 17; // behind the name
    fields(stat)?.nth(THREADS)?.parse().ok()
}

/// Ends the program, which waits for a thread that the kernel has ended alone (seccomp): what that has begun, nobody ends.
pub(crate) fn for_lack_of_a_thread() -> ! {
    // The library's threads have no standard error; `superpage run` says it.
    if let Some(process) = areas::shared() {
        process.areas.counters.lost_thread.store(1, Relaxed);
    }
    sys::end_process(1);
}

/// Whether the program's first thread has ended.
pub(crate) fn first_has_ended() -> bool {
    Stat::open().is_ok_and(|stat| stat.read(exit_code_in).is_some())
}

fn exit_code_in(stat: &[u8]) -> Option<i32> {
    let mut fields = fields(stat)?;
    if fields.next()? != "Z" {
        return None;
    }
    let status: i32 = fields.next_back()?.parse().ok()?;
    Some(status >> 8 & 0xff)
}

/// The fields of a file `stat` behind the name, which may hold anything, also spaces and brackets.
fn fields(stat: &[u8]) -> Option<core::str::SplitWhitespace<'_>> {
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    Some(core::str::from_utf8(stat.get(after..)?).ok()?.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn threads_are_counted_by_the_kernel() {
        let stat = b"7 (a) b) S 1 7 7 0 -1 4194560 87 0 0 0 0 0 0 0 20 0 5 0 9 0 0\n";
        assert_eq!(threads_in(stat), Some(5));
        assert_eq!(threads_in(b"7 (a) S 1"), None);
    }

    #[test]
    fn only_a_first_thread_that_has_ended_has_an_exit_code() {
        assert_eq!(exit_code_in(b"7 (a) b) Z 1 7 0 0 1792\n"), Some(7));
        assert_eq!(exit_code_in(b"7 (Z 1) S 1 7 0 0 0\n"), None);
        assert_eq!(exit_code_in(b"7"), None);
    }

    proptest! {
        #[test]
        fn threads_are_counted_whatever_the_program_is_called(
            name in prop::collection::vec(prop_oneof![Just(b')'), Just(b' '), any::<u8>()], 0..16),
            fields in prop::collection::vec(any::<i32>(), 49),
        ) {
            let text: Vec<_> = fields.iter().map(|field| std::format!(" {field}")).collect();
            let stat = [b"7 (", &name[..], b") S", text.concat().as_bytes(), b"\n"].concat();
            // Behind the state, which is the third field of all, it is the twentieth.
            assert_eq!(threads_in(&stat), usize::try_from(fields[20 - 4]).ok());
            assert_eq!(super::fields(&stat).map(Iterator::count), Some(1 + fields.len()));
        }

        #[test]
        fn any_text_has_a_number_of_threads_or_none(
            text in prop::collection::vec(prop_oneof![Just(b')'), Just(b' '), any::<u8>()], 0..80),
        ) {
            let _ = threads_in(&text);
        }
    }
}
