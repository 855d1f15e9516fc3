//! Where gigantic pages come from: the kernel's pool, which `superpage run` enlarges when it is asked.

use super::Gigantic;
use super::page::GiganticPage;
use crate::sys::{self, Errno, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use superpage_launch::Counters;
use superpage_units::Nanos;

/// The time that a request may take. The kernel needs 20 to 260 ms to make a gigantic page.
const LIMIT: Nanos = Nanos(1_000_000_000);
/// Whether there is somebody to ask, and the last request was of use or has cooled down: the kernel looks through all of memory for
/// contiguous pages.
pub(super) fn can_ask(gigantic: &Gigantic) -> bool {
    gigantic.areas.counters.supply.load(Relaxed) != 0 && gigantic.supply.is_over()
}

/// Prepares a gigantic page, after asking for one more in the pool if there is none.
///
/// # Errors
/// As of [`GiganticPage::prepare`].
pub(super) fn prepare(gigantic: &Gigantic) -> Result<GiganticPage> {
    let (counters, pool) = (gigantic.areas.counters, gigantic.gives.pool);
    match GiganticPage::prepare(pool) {
        Err(Errno::ENOMEM) if can_ask(gigantic) => {
            ask(counters);
            GiganticPage::prepare(pool).inspect_err(|_| gigantic.supply.begin())
        }
        done => done,
    }
    .inspect(|_| gigantic.supply.forget())
}

/// Asks for one more, and waits until the request was dealt with.
fn ask(counters: &Counters) {
    let ticket = counters.asked.fetch_add(1, SeqCst).wrapping_add(1);
    sys::shared_futex_wake(&counters.asked);
    let begun = sys::now();
    loop {
        let answered = counters.answered.load(Acquire);
        let waited = Nanos(sys::now().0 - begun.0);
        if answered.wrapping_sub(ticket) < u32::MAX / 2 || waited >= LIMIT {
            return;
        }
        let rest = Nanos(LIMIT.0 - waited.0);
        sys::shared_futex_wait_for(&counters.answered, answered, rest);
    }
}
