//! userfaultfd(2): faults of the program's threads, told to the library's.
//!
//! Always the full kind: one that hears of faults in user mode only lets `read(2)` into such memory fail.
//! [userfaultfd](https://docs.kernel.org/admin-guide/mm/userfaultfd.html).

#![expect(unsafe_code, reason = "system calls, and one union that the kernel fills")]

use crate::sys::{self, Descriptor, Errno, PAGE, Result, Span};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use linux_raw_sys::{general as raw, ioctl};
use syscalls::{Sysno, syscall};

/// Where a process that may not call userfaultfd(2) can still get one.
const DEVICE: &core::ffi::CStr = c"/dev/userfaultfd";
const UFFDIO_POISON: u32 = 0xC020_AA08; // _IOWR(0xAA, 0x08, struct uffdio_poison)
const UFFDIO_MOVE: u32 = 0xC028_AA05; // _IOWR(0xAA, 0x05, struct uffdio_move)
const USERFAULTFD_IOC_NEW: u32 = 0xAA00; // _IO(0xAA, 0x00)

/// The reason of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing is mapped there.
    Missing,
    /// Writes are held there.
    WriteProtected,
}

/// A fault of a thread of the program, which waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The base page.
    pub(crate) address: usize,
    pub(crate) kind: Kind,
    /// The access that the thread wants.
    pub(crate) access: Access,
}

/// The access to memory that a thread wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Whether the first write to a page that is put in place is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Told,
    Free,
}

const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NONBLOCK;

/// A userfaultfd. It lives in the table of descriptors of the library's threads, where the program cannot
/// close it.
#[derive(Debug)]
pub(crate) struct Userfaultfd {
    descriptor: Descriptor,
    /// Whether the kernel has refused to tell faults, or to let those go on that wait for one.
    has_failed: AtomicBool,
    /// The threads that read faults, and those of them that have not left.
    fault_threads: usize,
    left: AtomicUsize,
    is_closed: AtomicBool,
}

impl Userfaultfd {
    /// A new one, that tells of missing pages and of held writes to all kinds of memory, to so many threads.
    pub(crate) fn open(fault_threads: usize) -> Result<Self> {
        // SAFETY: it makes a descriptor.
        let made = unsafe { syscall!(Sysno::userfaultfd, FLAGS) };
        // Filters of containers answer EPERM or ENOSYS.
        let descriptor = match made {
            Ok(descriptor) => Descriptor(sys::int(descriptor)),
            Err(errno) => Self::from_device().map_err(|_| errno)?,
        };
        let features = raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP
            | raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM
            | raw::UFFD_FEATURE_WP_UNPOPULATED
            | raw::UFFD_FEATURE_POISON
            | raw::UFFD_FEATURE_MOVE;
        let mut api =
            raw::uffdio_api { api: raw::UFFD_API.into(), features: features.into(), ioctls: 0 };
        let uffd = Self {
            descriptor,
            has_failed: AtomicBool::new(false),
            fault_threads,
            left: AtomicUsize::new(fault_threads),
            is_closed: AtomicBool::new(false),
        };
        uffd.call(ioctl::UFFDIO_API, &mut api)?;
        Ok(uffd)
    }

    fn from_device() -> Result<Descriptor> {
        let device = sys::open(DEVICE, libc::O_RDWR)?;
        // SAFETY: it makes a descriptor.
        let made = unsafe { syscall!(Sysno::ioctl, device.0, USERFAULTFD_IOC_NEW, FLAGS) }?;
        Ok(Descriptor(sys::int(made)))
    }

    /// The threads that read faults.
    pub(crate) const fn fault_threads(&self) -> usize {
        self.fault_threads
    }

    /// Its descriptor.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Whether faults cannot be served any more: the program may have had the kernel refuse calls to all of its threads.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Acquire)
    }

    /// A fault thread leaves. The last one closes it: until then the others may be reading, or serving a fault. The kernel
    /// serves faults from then on, also those that threads wait for.
    pub(crate) fn leave(&self) {
        self.left.fetch_sub(1, AcqRel);
        self.close_without(0);
    }

    /// Closes it if `ended` fault threads have ended without leaving, and all others have left.
    pub(crate) fn close_without(&self, ended: usize) {
        if self.left.load(Acquire) <= ended && !self.is_closed.swap(true, AcqRel) {
            sys::close(&self.descriptor);
        }
    }

    fn call<T>(&self, request: u32, argument: &mut T) -> Result<()> {
        // SAFETY: each caller passes the structure that belongs to the request.
        unsafe { syscall!(Sysno::ioctl, self.descriptor.0, request, core::ptr::from_mut(argument)) }
            .map(|_| ())
    }

    /// Has the first touch of each page in a span told.
    pub(crate) fn register(&self, span: Span) -> Result<()> {
        self.register_for(span, raw::UFFDIO_REGISTER_MODE_MISSING)
    }

    /// Has the first touch of each page in a span told, and writes to those pages that are put there so.
    pub(crate) fn register_all(&self, span: Span) -> Result<()> {
        self.register_for(span, raw::UFFDIO_REGISTER_MODE_MISSING | raw::UFFDIO_REGISTER_MODE_WP)
    }

    /// Lets pages be moved to a span, of which nothing is told.
    pub(crate) fn register_target(&self, span: Span) -> Result<()> {
        self.register_for(span, raw::UFFDIO_REGISTER_MODE_WP)
    }

    /// Puts a copy of a base page in a place where none is. Threads that wait for it go on waiting.
    ///
    /// # Errors
    /// EEXIST where there is one, and what else the kernel says.
    pub(crate) fn copy(&self, from: usize, to: usize, writes: Writes) -> Result<()> {
        const DONT_WAKE: u64 = 1; // UFFDIO_COPY_MODE_DONTWAKE
        self.copy_in_mode(from, to, writes, DONT_WAKE)
    }

    /// As [`Userfaultfd::copy`], but threads that wait for the page go on.
    ///
    /// # Errors
    /// As there. Nobody goes on then.
    pub(crate) fn copy_and_wake(&self, from: usize, to: usize, writes: Writes) -> Result<()> {
        self.copy_in_mode(from, to, writes, 0)
    }

    fn copy_in_mode(&self, from: usize, to: usize, writes: Writes, mode: u64) -> Result<()> {
        const PROTECTED: u64 = 2; // UFFDIO_COPY_MODE_WP
        let mode = mode | if writes == Writes::Told { PROTECTED } else { 0 };
        let (dst, src, len) = (to as u64, from as u64, PAGE as u64);
        self.call(ioctl::UFFDIO_COPY, &mut raw::uffdio_copy { dst, src, len, mode, copy: 0 })
    }

    /// Has every access to a base page, which is not there, end in SIGBUS.
    pub(crate) fn poison(&self, page: usize) {
        let range = range(Span { start: page, length: PAGE });
        let mut argument = raw::uffdio_poison { range, mode: 0, updated: 0 };
        let _ = self.call(UFFDIO_POISON, &mut argument);
    }

    fn register_for(&self, span: Span, mode: u32) -> Result<()> {
        let mut argument =
            raw::uffdio_register { range: range(span), mode: mode.into(), ioctls: 0 };
        self.call(ioctl::UFFDIO_REGISTER, &mut argument)
    }

    /// Leaves a span to the kernel again. Threads that wait for a fault there go on.
    pub(crate) fn unregister(&self, span: Span) -> Result<()> {
        self.call(ioctl::UFFDIO_UNREGISTER, &mut range(span))
    }

    /// Holds all writes to a span, of which a gigantic page is whole, from threads of the program and from elsewhere,
    /// until its memory is replaced or [released](Self::release_writes).
    pub(crate) fn hold_writes(&self, span: Span) -> Result<()> {
        self.register_for(span, raw::UFFDIO_REGISTER_MODE_WP)?;
        self.protect(span)
    }

    /// Holds writes to a part of a span of which [all were held](Self::hold_writes).
    pub(crate) fn protect(&self, part: Span) -> Result<()> {
        let mode = 1; // UFFDIO_WRITEPROTECT_MODE_WP
        self.call(
            ioctl::UFFDIO_WRITEPROTECT,
            &mut raw::uffdio_writeprotect { range: range(part), mode },
        )
    }

    /// Lets writes to a part of such a span go on.
    pub(crate) fn allow_writes(&self, part: Span) {
        let mut argument = raw::uffdio_writeprotect { range: range(part), mode: 0 };
        let _ = self.call(ioctl::UFFDIO_WRITEPROTECT, &mut argument);
    }

    /// Lets writes that [were held](Self::hold_writes) go on, and leaves the span to the kernel.
    pub(crate) fn release_writes(&self, span: Span) {
        self.allow_writes(span);
        let _ = self.unregister(span);
    }

    /// Moves the pages of a span to another place, which is registered and has none there. What is missing stays
    /// so; threads that wait for it go on waiting.
    ///
    /// # Errors
    /// EINVAL where either side is more than one VMA; otherwise the error of the first page that could not be
    /// moved. What lies before has moved.
    pub(crate) fn move_pages(&self, from: Span, to: usize) -> Result<()> {
        const DONT_WAKE: u64 = 1; // UFFDIO_MOVE_MODE_DONTWAKE
        const ALLOW_HOLES: u64 = 2; // UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES
        let mut done = 0;
        while done < from.length {
            let mut argument = raw::uffdio_move {
                dst: (to + done) as u64,
                src: (from.start + done) as u64,
                len: (from.length - done) as u64,
                mode: DONT_WAKE | ALLOW_HOLES,
                move_: 0,
            };
            let answer = self.call(UFFDIO_MOVE, &mut argument);
            match (answer, usize::try_from(argument.move_)) {
                (Ok(()), _) => return Ok(()),
                // The kernel says how far it came, and the next call says why not further.
                (Err(_), Ok(moved)) if moved > 0 => done += moved,
                (Err(errno), _) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Threads that wait for a fault in a span go on, and fault again if nothing is there.
    pub(crate) fn wake(&self, span: Span) {
        if self.call(ioctl::UFFDIO_WAKE, &mut range(span)).is_err() {
            self.has_failed.store(true, Release);
        }
    }

    /// The next fault; nothing for anything else the kernel tells.
    fn read(&self) -> Result<Option<Fault>> {
        // SAFETY: zero bytes are a message of no kind.
        let mut message: raw::uffd_msg = unsafe { core::mem::zeroed() };
        let room = size_of::<raw::uffd_msg>();
        let into = core::ptr::from_mut(&mut message);
        // SAFETY: the kernel writes one message.
        let got = unsafe { syscall!(Sysno::read, self.descriptor.0, into, room) }?;
        if got != room || u32::from(message.event) != raw::UFFD_EVENT_PAGEFAULT {
            return Ok(None);
        }
        // SAFETY: the event says which part of the union the kernel filled.
        let fault = unsafe { message.arg.pagefault };
        let is_held = fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WP) != 0;
        let kind = if is_held { Kind::WriteProtected } else { Kind::Missing };
        let is_write = fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0;
        let access = if is_write { Access::Write } else { Access::Read };
        Ok(usize::try_from(fault.address).ok().map(|address| Fault { address, kind, access }))
    }
}

/// A fault thread's way to read faults.
///
/// A fault that nobody reads yet wakes one fault thread: the first that is not serving another. With a plain wait all of them
/// would be woken for each fault, and the one that finds nothing to read takes the processor on which the program is to go
/// on (docs/results/own.md, heap-random).
#[derive(Debug)]
pub(crate) struct FaultReader<'a> {
    uffd: &'a Userfaultfd,
    /// `None` if the kernel refuses an epoll: then all threads are woken.
    epoll: Option<Descriptor>,
}

impl<'a> FaultReader<'a> {
    /// A reader for the calling thread, in whose table of descriptors the userfaultfd is.
    pub(crate) fn new(uffd: &'a Userfaultfd) -> Self {
        Self { uffd, epoll: sys::epoll_for_one(&uffd.descriptor).ok() }
    }

    /// The next fault, after waiting for it for a while.
    pub(crate) fn next(&self) -> Option<Fault> {
        let read = match self.uffd.read() {
            Err(Errno::EAGAIN) => self.wait().map(|()| None),
            read => read,
        };
        match read {
            Ok(fault) => fault,
            Err(Errno::EINTR | Errno::EAGAIN) => None,
            Err(_) => {
                self.uffd.has_failed.store(true, Release);
                None
            }
        }
    }

    fn wait(&self) -> Result<()> {
        match &self.epoll {
            Some(epoll) => sys::epoll_wait(epoll, sys::LOOK),
            None => sys::wait_for_input(&self.uffd.descriptor, sys::LOOK),
        }
    }
}

fn range(span: Span) -> raw::uffdio_range {
    raw::uffdio_range { start: span.start as u64, len: span.length as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::boxed::Box;
    use std::io::Error;
    use std::vec::Vec;

    /// A pipe in the place of a userfaultfd, and the descriptor by which messages come to it.
    fn piped(fault_threads: usize) -> (&'static Userfaultfd, Descriptor) {
        let mut ends = [0; 2];
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the kernel writes two descriptors.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), flags) };
        assert_eq!(made, 0);
        (of(Descriptor(ends[0]), fault_threads), Descriptor(ends[1]))
    }

    /// A userfaultfd is never dropped, because its last thread closes it.
    fn of(descriptor: Descriptor, fault_threads: usize) -> &'static Userfaultfd {
        Box::leak(Box::new(Userfaultfd {
            descriptor,
            has_failed: AtomicBool::new(false),
            fault_threads,
            left: AtomicUsize::new(fault_threads),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Whether somebody still reads what is written there.
    fn is_read(writer: &Descriptor, bytes: &[u8]) -> bool {
        // SAFETY: the bytes live.
        let written = unsafe { libc::write(writer.0, bytes.as_ptr().cast(), bytes.len()) };
        if written < 0 {
            assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EPIPE));
        }
        written >= 0
    }

    /// A message as the kernel writes it, of eight bytes at a time: the event, and of a fault its flags and its address.
    fn message(event: u8, flags: u64, address: u64) -> Vec<u8> {
        [event.into(), flags, address, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_fault_is_read_as_the_kernel_wrote_it(
            faults in prop::collection::vec(
                (prop_oneof![3 => Just(0x12_u8), 1 => 0x10_u8..0x18], 0_u64..8, any::<usize>()),
                1..20,
            ),
        ) {
            let (uffd, writer) = piped(1);
            let reader = FaultReader::new(uffd);
            for (event, flags, address) in faults {
                assert!(is_read(&writer, &message(event, flags, address as u64)));
                let kind = if flags & 2 != 0 { Kind::WriteProtected } else { Kind::Missing };
                let access = if flags & 1 != 0 { Access::Write } else { Access::Read };
                let expected = (event == 0x12).then_some(Fault { address, kind, access });
                assert_eq!(reader.next(), expected);
            }
            assert!(!uffd.has_failed());
            drop(writer);
            assert_eq!(reader.next(), None, "nothing more is told");
            uffd.leave();
        }

        #[test]
        fn the_descriptor_is_closed_when_each_thread_has_left_or_ended(
            threads in 1_usize..9,
            steps in prop::collection::vec(prop_oneof![Just(None), (0_usize..4).prop_map(Some)], 0..20),
        ) {
            let (uffd, writer) = piped(threads);
            let (mut has_left, mut is_closed) = (0, false);
            for step in steps {
                match step {
                    None if has_left == threads => continue,
                    None => {
                        uffd.leave();
                        has_left += 1;
                        is_closed |= has_left == threads;
                    }
                    Some(ended) => {
                        uffd.close_without(ended);
                        is_closed |= has_left + ended >= threads;
                    }
                }
                assert_eq!(is_read(&writer, b"x"), !is_closed);
            }
            assert_eq!(uffd.fault_threads(), threads);
            uffd.close_without(threads);
        }
    }

    #[test]
    fn a_descriptor_that_cannot_be_read_has_failed() {
        let (uffd, writer) = piped(1);
        let broken = of(writer, 1);
        assert_eq!(FaultReader { uffd: broken, epoll: None }.next(), None);
        assert!(broken.has_failed() && !uffd.has_failed());
        uffd.wake(Span { start: 0, length: PAGE });
        assert!(uffd.has_failed(), "a pipe lets nobody go on");
        uffd.leave();
        broken.leave();
    }
}
