//! The fault threads: each reads one fault at a time and has it served.

use crate::areas::Process;
use crate::sys;
use crate::thread;
use crate::uffd::{FaultReader, Userfaultfd};
use core::sync::atomic::AtomicU32;

/// Serves faults for ever, or until the userfaultfd fails or one of the library's threads has ended; the kernel does from then
/// on.
pub(crate) fn run(process: &Process, uffd: &Userfaultfd) {
    let backing = process.backing();
    let reader = FaultReader::new(uffd);
    while !uffd.has_failed() && !thread::one_has_ended() {
        // Memory outside is that which the library moves pages to, and which nobody else touches.
        if let Some(fault) =
            reader.next().filter(|fault| process.areas.span.contains(fault.address))
        {
            backing.serve(uffd, fault);
        }
    }
    backing.give_up_faults();
    uffd.leave();
    // The end of the program is known by the number of threads that are left (`end`).
    // Without the service thread nobody looks, and the kernel ends the process once the others are gone.
    let nobody = AtomicU32::new(0);
    while !thread::service_has_ended() {
        sys::futex_wait_for(&nobody, 0, sys::LOOK);
    }
}
