//! ppoll(2) and epoll(7): waiting for something to read.

#![expect(unsafe_code, reason = "system calls")]

use super::{Descriptor, Result, int};
use superpage_units::Nanos;
use syscalls::{Sysno, syscall};

/// Waits until there is something to read, at most for `time`.
pub(crate) fn wait_for_input(descriptor: &Descriptor, time: Nanos) -> Result<()> {
    let mut wanted = libc::pollfd { fd: descriptor.0, events: libc::POLLIN, revents: 0 };
    let time = [time.0 / 1_000_000_000, time.0 % 1_000_000_000];
    let wanted = core::ptr::from_mut(&mut wanted);
    // SAFETY: there is one descriptor to wait for; the time is a timespec of this architecture.
    unsafe { syscall!(Sysno::ppoll, wanted, 1, time.as_ptr(), 0, 0) }.map(|_| ())
}

/// An epoll that waits for one descriptor to have input. Of all that wait for the same descriptor by such, one is woken.
pub(crate) fn epoll_for_one(descriptor: &Descriptor) -> Result<Descriptor> {
    // SAFETY: it makes a descriptor.
    let epoll = unsafe { syscall!(Sysno::epoll_create1, libc::EPOLL_CLOEXEC) };
    let epoll = Descriptor(int(epoll?));
    let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE).cast_unsigned();
    let mut wanted = libc::epoll_event { events, u64: 0 };
    let wanted = core::ptr::from_mut(&mut wanted);
    // SAFETY: the kernel reads the event.
    unsafe { syscall!(Sysno::epoll_ctl, epoll.0, libc::EPOLL_CTL_ADD, descriptor.0, wanted) }
        .map(|_| epoll)
}

/// Waits until an epoll has something to tell, at most for `time`.
pub(crate) fn epoll_wait(epoll: &Descriptor, time: Nanos) -> Result<()> {
    const NANOS_PER_MS: u64 = 1_000_000;
    let mut told = libc::epoll_event { events: 0, u64: 0 };
    let told = core::ptr::from_mut(&mut told);
    // SAFETY: there is room for one event.
    unsafe { syscall!(Sysno::epoll_wait, epoll.0, told, 1, time.0 / NANOS_PER_MS) }.map(|_| ())
}
