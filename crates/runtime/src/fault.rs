//! The fault threads: each reads one fault at a time and has it served.
//!
//! Many threads may touch one slot at once, and each is told. The first is served; the others only have to
//! be woken, and a second page moved over the slot would destroy what the first thread has written. So the
//! state of the slot decides, by one compare-and-exchange.

use crate::areas::Areas;
use crate::slot::State;
use crate::sys;
use crate::thread;
use crate::uffd::{Fault, FaultReader, Kind, Userfaultfd};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::Counters;
use superpage_units::Nanos;

/// Serves faults for ever, or until the userfaultfd fails or one of the library's threads has ended; the kernel does from then
/// on.
pub(crate) fn run(areas: &Areas, uffd: &Userfaultfd) {
    let reader = FaultReader::new(uffd);
    while !uffd.has_failed() && !thread::one_has_ended() {
        if let Some(fault) = reader.next() {
            serve(areas, uffd, fault);
        }
    }
    if areas.pager().is_some() {
        areas.counters.heap.failed.store(1, Relaxed);
        // Nobody else could bring back what is in the file.
        sys::end_process(1);
    }
    areas.give_up_faults();
    uffd.leave();
    // The end of the program is known by the number of threads that are left (`end`).
    // Without the service thread nobody looks, and the kernel ends the process once the others are gone.
    let nobody = AtomicU32::new(0);
    while !thread::service_has_ended() {
        sys::futex_wait_for(&nobody, 0, sys::LOOK);
    }
}

fn serve(areas: &Areas, uffd: &Userfaultfd, fault: Fault) {
    if !areas.span.contains(fault.address) {
        return; // memory that the library moves pages to, which nobody else touches
    }
    if let Some(pager) = areas.pager() {
        return pager.serve_always(areas, fault);
    }
    let slot = areas.slots.containing(fault.address);
    let span = areas.slots.span(slot);
    if fault.kind == Kind::Missing && areas.slots.begin(slot, State::Fresh, State::Serving) {
        let begun = sys::now();
        let state = areas.decider.serve(areas, span, fault.address);
        // The program may end as soon as its thread goes on.
        let time = Nanos(sys::now().0 - begun.0);
        if state == State::Gigantic {
            Counters::waited(&areas.counters.longest_first_touch, time);
        }
        areas.slots.settle(slot, state);
        uffd.wake(span);
        areas.tell_background();
        return;
    }
    // The thread at work in the slot wakes all waiters at its end; in a settled slot the work was done before
    // this fault was read.
    if areas.slots.state(slot).is_settled() {
        uffd.wake(span);
    }
}
