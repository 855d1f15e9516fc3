//! The fault threads: each reads one fault at a time and has it served.
//!
//! Many threads may touch one slot at once, and each is told. The first is served; the others only have to
//! be woken, and a second page moved over the slot would destroy what the first thread has written. So the
//! state of the slot decides, by one compare-and-exchange.

use crate::areas::Areas;
use crate::slot::State;
use crate::sys::{self, PAGE, Span};
use crate::uffd::{Fault, Kind, Userfaultfd};
use superpage_launch::Counters;
use superpage_units::{Nanos, PageSize};

/// Serves faults until the userfaultfd fails.
pub(crate) fn run(areas: &Areas, uffd: &Userfaultfd) {
    loop {
        match uffd.next() {
            Ok(Some(fault)) => serve(areas, uffd, fault),
            Ok(None) | Err(sys::Errno::EINTR | sys::Errno::EAGAIN) => {}
            Err(_) => return,
        }
    }
}

fn serve(areas: &Areas, uffd: &Userfaultfd, fault: Fault) {
    if !areas.span.contains(fault.address) {
        return; // memory that the library moves pages to, which nobody else touches
    }
    let slot = areas.slots.containing(fault.address);
    let span = areas.slots.span(slot);
    let page = Span { start: fault.address & !(PAGE - 1), length: PAGE };
    if fault.kind == Kind::WriteProtected
        && areas.pre_copy.note(uffd, slot, page.start - span.start, page)
    {
        return;
    }
    if fault.kind == Kind::Missing && areas.slots.begin(slot, State::Fresh, State::Serving) {
        let begun = sys::now();
        let state = match areas.decider.serve(areas, span, fault.address) {
            PageSize::Gigantic => State::Gigantic,
            PageSize::Huge | PageSize::Base => State::Ordinary,
        };
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
