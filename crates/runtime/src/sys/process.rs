//! The process and its threads.

#![expect(unsafe_code, reason = "system calls")]

use super::int;
use syscalls::{Sysno, syscall};

/// This process, which is also the number of its first thread.
pub(crate) fn process() -> u32 {
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::getpid) }.map_or(0, |pid| int(pid).unsigned_abs())
}

/// The process that started this one.
pub(crate) fn parent() -> u32 {
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::getppid) }.map_or(0, |pid| int(pid).unsigned_abs())
}

/// Gives up the calling thread's rights, if it has root's: it becomes nobody. The other threads keep theirs.
pub(crate) fn drop_rights() {
    const NOBODY: u32 = 65_534;
    let none = core::ptr::null::<u32>();
    // SAFETY: these calls concern the calling thread alone, but for the last: a change of the user makes the
    // kernel forbid core dumps of the whole process, which is undone.
    unsafe {
        if syscall!(Sysno::geteuid) != Ok(0) {
            return;
        }
        let dumpable = syscall!(Sysno::prctl, libc::PR_GET_DUMPABLE);
        let _ = syscall!(Sysno::setgroups, 0, none);
        let _ = syscall!(Sysno::setresgid, NOBODY, NOBODY, NOBODY);
        let _ = syscall!(Sysno::setresuid, NOBODY, NOBODY, NOBODY);
        if dumpable == Ok(1) {
            let _ = syscall!(Sysno::prctl, libc::PR_SET_DUMPABLE, 1);
        }
    }
}

/// The calling thread. Where a filter of calls refuses to say, it is 1, which is a thread that runs in every PID namespace.
pub(crate) fn thread() -> u32 {
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::gettid) }.map_or(1, |thread| int(thread).unsigned_abs())
}

/// Ends the process.
pub(crate) fn end_process(code: i32) -> ! {
    loop {
        // SAFETY: nothing runs after it.
        let _ = unsafe { syscall!(Sysno::exit_group, code) };
    }
}
