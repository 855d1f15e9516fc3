//! The system call that makes an event, and the few calls on its descriptor.
//!
//! Written by hand: neither `libc`, `rustix` nor `linux-raw-sys` has its structures.

#![expect(unsafe_code, reason = "a system call that no crate wraps")]

use super::{KernelFaults, Totals};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::num::NonZeroU64;

/// What an event is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// A thread, and what it starts.
    Thread(u32),
    /// The members of the group whose directory this is.
    Cgroup(BorrowedFd<'a>),
    /// Everybody.
    Machine,
}

impl Target<'_> {
    /// Which right to watch it may be missing.
    pub(super) fn missing_right(self) -> &'static str {
        match self {
            Self::Thread(_) => {
                "CAP_PERFMON, or kernel.perf_event_paranoid of at most 2 and a process that we \
                 may trace"
            }
            Self::Cgroup(_) | Self::Machine => {
                "CAP_PERFMON, or kernel.perf_event_paranoid of at most 0"
            }
        }
    }
}

/// Whom the event that a ring belongs to is about. It never comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// Everybody on the CPU.
    Cpu,
    /// The calling thread.
    Thread,
}

/// `struct perf_event_attr`, as far as version 3 of it goes; the rest is zero.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
}

/// PERF_ATTR_SIZE_VER3.
const ATTRIBUTES_SIZE: u32 = 96;
const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_SIZE as usize, "as in the kernel");

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_PAGE_FAULTS: u64 = 2;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_ADDR: u64 = 1 << 3;
const PERF_FORMAT_LOST: u64 = 1 << 4;
const PERF_FLAG_PID_CGROUP: u64 = 1 << 2;
const PERF_FLAG_FD_CLOEXEC: u64 = 1 << 3;

const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCK: u64 = 1 << 25;

/// `PERF_EVENT_IOC_SET_OUTPUT`: `_IO('$', 5)`.
const SET_OUTPUT: libc::Ioctl = 0x2405;

impl Attributes {
    /// What all of our events have in common: what shares a ring must have one clock, and the
    /// ring takes its watermark, one byte, from its owner: every record wakes who waits.
    fn of(config: u64, flags: u64) -> Self {
        Self {
            kind: PERF_TYPE_SOFTWARE,
            size: ATTRIBUTES_SIZE,
            config,
            flags: flags | EXCLUDE_HYPERVISOR | WATERMARK | USE_CLOCK,
            wakeup: 1,
            clock: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }
}

/// The event that owns the ring of `cpu`.
pub(super) fn owner(cpu: u32, owner: Owner) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::of(PERF_COUNT_SW_DUMMY, EXCLUDE_KERNEL);
    let pid = match owner {
        Owner::Cpu => -1,
        Owner::Thread => 0,
    };
    open(&attributes, pid, cpu, PERF_FLAG_FD_CLOEXEC)
}

/// The faults of `target` on `cpu`, each `period`th written into the ring of `ring`.
pub(super) fn faults(
    target: Target<'_>,
    cpu: u32,
    period: NonZeroU64,
    ring: BorrowedFd<'_>,
) -> Result<(OwnedFd, KernelFaults), Errno> {
    let mut attributes = Attributes {
        sample_period: period.get(),
        sample_type: PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR,
        read_format: PERF_FORMAT_LOST,
        ..Attributes::of(PERF_COUNT_SW_PAGE_FAULTS, TASK | COMM | COMM_EXEC)
    };
    let (pid, call_flags) = match target {
        Target::Thread(thread) => {
            attributes.flags |= INHERIT;
            (i32::try_from(thread).map_err(|_| Errno::SRCH)?, PERF_FLAG_FD_CLOEXEC)
        }
        Target::Cgroup(group) => (group.as_raw_fd(), PERF_FLAG_FD_CLOEXEC | PERF_FLAG_PID_CGROUP),
        Target::Machine => (-1, PERF_FLAG_FD_CLOEXEC),
    };
    let (event, kernel_faults) = match open(&attributes, pid, cpu, call_flags) {
        Err(Errno::ACCESS | Errno::PERM) => {
            attributes.flags |= EXCLUDE_KERNEL;
            (open(&attributes, pid, cpu, call_flags)?, KernelFaults::NotSeen)
        }
        opened => (opened?, KernelFaults::Seen),
    };
    // SAFETY: both are descriptors of ours, and the call keeps no pointer.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, ring.as_raw_fd()) };
    if answer < 0 { Err(last_errno()) } else { Ok((event, kernel_faults)) }
}

/// What an event of [`faults`] counted.
pub(super) fn read_totals(event: BorrowedFd<'_>) -> Result<Totals, Errno> {
    let mut bytes = [0; 16];
    if rustix::io::read(event, &mut bytes)? < bytes.len() {
        return Ok(Totals::default()); // Its thread is gone and it was never on a CPU.
    }
    let [faults, lost] = [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    });
    Ok(Totals { faults, lost })
}

fn open(attributes: &Attributes, pid: i32, cpu: u32, flags: u64) -> Result<OwnedFd, Errno> {
    let attributes: *const Attributes = attributes;
    let no_group = -1;
    // SAFETY: the kernel reads a `perf_event_attr` of the size it states from `attributes`, which
    // lives across the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes,
            pid,
            cpu.cast_signed(),
            no_group,
            flags,
        )
    };
    match i32::try_from(answer) {
        // SAFETY: a descriptor that the kernel just made for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
