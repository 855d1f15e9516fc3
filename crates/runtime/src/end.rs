//! The end of a program whose threads leave one by one.
//!
//! A process lives while any thread does, and the library's own would keep it alive for ever.

use crate::areas;
use crate::sys;
use crate::thread;
use core::sync::atomic::Ordering::Relaxed;

pub(crate) const STAT: &core::ffi::CStr = c"/proc/self/stat";

/// Ends the process, as the kernel would have, if all threads of the program have ended.
pub(crate) fn with_the_program() {
    if thread::program_has_one()
        && let Some(code) = exit_code()
    {
        sys::end_process(code);
    }
}

/// Ends the program, which waits for a thread that the kernel has ended alone (seccomp): what that has begun, nobody ends.
pub(crate) fn for_lack_of_a_thread() -> ! {
    // The library's threads have no standard error; `superpage run` says it.
    if let Some(process) = areas::shared() {
        process.areas.counters.lost_thread.store(1, Relaxed);
    }
    sys::end_process(1);
}

/// The exit code of the program's first thread; nothing if that has not ended.
pub(crate) fn exit_code() -> Option<i32> {
    let mut text = [0; 1024];
    let file = sys::open(STAT, libc::O_RDONLY).ok()?;
    let length = sys::read(&file, &mut text).ok()?;
    exit_code_in(text.get(..length)?)
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
pub(crate) fn fields(stat: &[u8]) -> Option<core::str::SplitWhitespace<'_>> {
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    Some(core::str::from_utf8(stat.get(after..)?).ok()?.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_thread_that_has_ended_has_an_exit_code() {
        assert_eq!(exit_code_in(b"7 (a) b) Z 1 7 0 0 1792\n"), Some(7));
        assert_eq!(exit_code_in(b"7 (Z 1) S 1 7 0 0 0\n"), None);
        assert_eq!(exit_code_in(b"7"), None);
    }
}
