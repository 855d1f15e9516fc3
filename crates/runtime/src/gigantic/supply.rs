//! Where gigantic pages come from: the kernel's pool, which `superpage run` enlarges when it is asked.

use super::Gigantic;
use super::page::GiganticPage;
use crate::sys::{self, Errno, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};
use superpage_launch::Counters;
use superpage_units::Nanos;

/// The time that a request may take. The kernel needs 20 to 260 ms to make a gigantic page.
const LIMIT: Nanos = Nanos(1_000_000_000);
/// The time in which nothing is asked after a request was of no use; twice as long after each further one in a
/// row. Chosen, not measured: the kernel looks through all of memory for contiguous pages.
const COOLDOWN: Nanos = Nanos(10_000_000_000);
/// The cooldown is doubled so often at the most, to some ten minutes.
const DOUBLED: u32 = 6;

/// When a request was of no use, on the monotonic clock; zero if none was.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// The number of requests in a row that were of no use.
static IN_A_ROW: AtomicU32 = AtomicU32::new(0);

/// Whether there is somebody to ask.
pub(super) fn can_ask(counters: &Counters) -> bool {
    let refused = REFUSED.load(Relaxed);
    let times = IN_A_ROW.load(Relaxed).saturating_sub(1).min(DOUBLED);
    let has_cooled_down = refused == 0 || sys::now().0 > refused + (COOLDOWN.0 << times);
    counters.supply.load(Relaxed) != 0 && has_cooled_down
}

/// Prepares a gigantic page, after asking for one more in the pool if there is none.
///
/// # Errors
/// As of [`GiganticPage::prepare`].
pub(super) fn prepare(gigantic: &Gigantic) -> Result<GiganticPage> {
    let (counters, pool) = (gigantic.areas.counters, gigantic.gives.pool);
    match GiganticPage::prepare(pool) {
        Err(Errno::ENOMEM) if can_ask(counters) => {
            ask(counters);
            GiganticPage::prepare(pool).inspect_err(|_| {
                REFUSED.store(sys::now().0, Relaxed);
                IN_A_ROW.fetch_add(1, Relaxed);
            })
        }
        done => done,
    }
    .inspect(|_| IN_A_ROW.store(0, Relaxed))
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
