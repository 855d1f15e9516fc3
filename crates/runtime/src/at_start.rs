//! The library's threads have the CPUs, the scheduling and the memory policy that the process had when it began, not those of the
//! thread of the program that maps memory first. They have a name, too.
//!
//! sched_setaffinity(2), sched_setattr(2), set_mempolicy(2), PR_SET_NAME of prctl(2).

#![expect(unsafe_code, reason = "asks the kernel about the calling thread, and changes it")]

use crate::sys::Result;
use core::ffi::CStr;
use std::sync::OnceLock;
use syscalls::{Sysno, syscall};

/// Words for 8,192 CPUs, the most of this architecture, and for 1,024 nodes.
const CPUS: usize = 128;
const NODES: usize = 16;

/// The kernel's `struct sched_attr`, in its first version, which is the longest that every kernel takes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    deadline: [u64; 3],
}

/// The attributes of a thread that one which it starts inherits.
#[derive(Clone, Copy, Debug)]
struct Attributes {
    /// A bit for each CPU, and the bytes of these that the kernel has filled.
    cpus: ([u64; CPUS], usize),
    scheduling: Scheduling,
    /// The mode, and a bit for each node.
    policy: (i32, [u64; NODES]),
}

static AT_START: OnceLock<Attributes> = OnceLock::new();

/// Notes the attributes of the calling thread, which is the program's first. What the kernel does not say is left as it is later.
pub(crate) fn note() {
    if let Ok(attributes) = of_this_thread() {
        let _ = AT_START.set(attributes);
    }
}

/// Gives the calling thread, one of the library's, the attributes that were noted, and a name. What the kernel refuses stays as it was
/// inherited.
pub(crate) fn take_on(name: &CStr) {
    if let Some(Attributes { cpus, scheduling, policy }) = AT_START.get() {
        // SAFETY: the kernel reads what is there.
        let _ = unsafe { syscall!(Sysno::sched_setaffinity, 0, cpus.1, cpus.0.as_ptr()) };
        // SAFETY: as above.
        let _ = unsafe { syscall!(Sysno::sched_setattr, 0, core::ptr::from_ref(scheduling), 0) };
        let (mode, nodes) = policy;
        // SAFETY: as above. Nodes count for the modes that have some.
        let _ = unsafe { syscall!(Sysno::set_mempolicy, *mode, nodes.as_ptr(), NODES * 64) };
    }
    // SAFETY: the name ends with a zero.
    let _ = unsafe { syscall!(Sysno::prctl, libc::PR_SET_NAME, name.as_ptr()) };
}

fn of_this_thread() -> Result<Attributes> {
    let (mut cpus, mut nodes, mut mode) = ([0_u64; CPUS], [0_u64; NODES], 0_i32);
    let mut scheduling = Scheduling::default();
    let size = size_of::<Scheduling>();
    // SAFETY: the kernel writes no more than there is room for.
    let length = unsafe {
        syscall!(Sysno::sched_getattr, 0, &raw mut scheduling, size, 0)?;
        syscall!(Sysno::get_mempolicy, &raw mut mode, nodes.as_mut_ptr(), NODES * 64, 0, 0)?;
        syscall!(Sysno::sched_getaffinity, 0, size_of_val(&cpus), cpus.as_mut_ptr())?
    };
    Ok(Attributes { cpus: (cpus, length), scheduling, policy: (mode, nodes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_on_what_another_had() {
        note();
        std::thread::spawn(|| {
            let before = of_this_thread().expect("the kernel says");
            let one = [1_u64 << before.cpus.0[0].trailing_zeros()];
            // SAFETY: the kernel reads a word.
            unsafe { syscall!(Sysno::sched_setaffinity, 0, 8, one.as_ptr()) }.expect("allowed");
            let idle = Scheduling { size: 48, policy: 3, ..Scheduling::default() }; // SCHED_BATCH
            // SAFETY: the kernel reads the structure.
            unsafe { syscall!(Sysno::sched_setattr, 0, &raw const idle, 0) }.expect("allowed");
            let changed = of_this_thread().expect("the kernel says");
            assert_eq!((changed.cpus.0[0], changed.scheduling.policy), (one[0], 3));
            take_on(c"a name");
            let after = of_this_thread().expect("the kernel says");
            assert_eq!(after.cpus.0, before.cpus.0);
            assert_eq!(after.scheduling.policy, before.scheduling.policy);
            assert_eq!(after.policy, before.policy);
            let name = std::fs::read_to_string("/proc/thread-self/comm").expect("it has a name");
            assert_eq!(name, "a name\n");
        })
        .join()
        .expect("no assertion fails");
    }
}
