//! Whether our own process gets huge pages that it did not ask for: `prctl(PR_SET_THP_DISABLE)`.
//!
//! For tests whose programs must start on base pages whatever the machine's setting is, without
//! touching it. Children inherit it, also through an `execve`.
//! [PR_SET_THP_DISABLE(2const)](https://man7.org/linux/man-pages/man2/PR_SET_THP_DISABLE.2const.html),
//! [Transparent Hugepage Support](https://docs.kernel.org/admin-guide/mm/transhuge.html).
//!
//! What can go wrong: the kernel knows only how to forbid huge pages altogether (before Linux
//! 6.18), which would keep MADV_COLLAPSE from making any.

#![expect(unsafe_code, reason = "a system call that no crate wraps in this form")]

use crate::error::{Error, Result};
use rustix::io::Errno;

/// From the kernel's `linux/prctl.h`; `libc` does not have it yet.
const PR_THP_DISABLE_EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// From now on this process gets huge pages only where somebody asks for them: by MADV_HUGEPAGE,
/// or by MADV_COLLAPSE, be it from outside. Neither page faults nor khugepaged make any by
/// themselves.
///
/// # Errors
/// [`Error::Unsupported`] before Linux 6.18.
pub fn only_where_advised() -> Result<()> {
    let (on, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: takes numbers only, and changes which pages later faults get, not what they hold.
    let result = unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, on, PR_THP_DISABLE_EXCEPT_ADVISED, none, none)
    };
    if result == 0 {
        return Ok(());
    }
    let what = "keep huge pages from a process that did not ask for them".to_owned();
    Err(match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
        errno @ Errno::INVAL => Error::Unsupported { what, errno },
        errno => Error::from_errno(errno, what),
    })
}
