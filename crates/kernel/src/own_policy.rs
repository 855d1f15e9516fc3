//! The memory policy of our own thread: `set_mempolicy(2)`.
//!
//! For tests whose programs are to have their memory on some nodes only. Threads and children inherit it, also through an
//! `execve`.
//! [set_mempolicy(2)](https://man7.org/linux/man-pages/man2/set_mempolicy.2.html).
//!
//! The kernel refuses a node that the machine does not have.

#![expect(unsafe_code, reason = "a system call that no crate wraps")]

use crate::error::{Error, Result};
use crate::node::Node;
use rustix::io::Errno;

/// From now on the memory of this thread comes from that node alone; where the node has none left, somebody is killed.
///
/// # Errors
/// [`Error::Unsupported`] if there is no such node, or the kernel knows of none.
pub fn bind(node: Node) -> Result<()> {
    let what = || format!("bind our memory to node {}", node.0);
    let unsupported = |errno| Error::Unsupported { what: what(), errno };
    let mask: libc::c_ulong = 1_u64.checked_shl(node.0).ok_or_else(|| unsupported(Errno::INVAL))?;
    // The kernel takes one bit less than it is told of.
    let bits = libc::c_ulong::BITS + 1;
    // SAFETY: reads one word at an address that is ours, and changes where later pages lie, not what they hold.
    let result =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, &raw const mask, bits) };
    if result == 0 {
        return Ok(());
    }
    Err(match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
        errno @ (Errno::INVAL | Errno::NOSYS) => unsupported(errno),
        errno => Error::from_errno(errno, what()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{self, NodeSet};
    use crate::numa_maps;
    use crate::process::Process;
    use std::path::Path;

    /// The policy is the test's own thread's, and the file shows that of the process's first thread.
    #[test]
    fn a_node_that_is_not_there_is_refused() {
        assert!(matches!(bind(Node(63)), Err(Error::Unsupported { .. })));
        assert!(matches!(bind(Node(64)), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn who_is_bound_says_so() {
        let Some(last) =
            node::with_memory(Path::new("/sys")).ok().and_then(|all| all.iter().last())
        else {
            assert!(matches!(bind(Node(0)), Err(Error::Unsupported { .. })), "there are no nodes");
            return;
        };
        let bound = std::thread::spawn(move || {
            bind(last).expect("it has memory");
            let mut child =
                std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
            let process = Process::open(superpage_units::Pid(child.id())).expect("it runs");
            let bound = numa_maps::bound(&process);
            child.kill().expect("killed");
            child.wait().expect("reaped");
            bound
        });
        let bound = bound.join().expect("the thread ends");
        assert_eq!(bound, Ok(NodeSet::parse(last.0.to_string().as_bytes())));
    }
}
