//! The background thread: does what the policy wants done while nobody waits.

use super::Gigantic;
use super::bloat::Hand;
use super::machine::Stepped;
use super::survey::Survey;
use crate::sys;
use crate::thread;
use core::sync::atomic::Ordering::Relaxed;
use superpage_units::Nanos;

/// The thread rests so many times as long as it worked, so that it takes a tenth of a core at most. Chosen,
/// not measured.
const REST: u64 = 9;

/// Works as long as the service thread runs.
pub(super) fn run(gigantic: &Gigantic) {
    let mut survey = Survey::default();
    let mut hand = Hand::default();
    while !thread::service_has_ended() {
        let begun = sys::now();
        let news = gigantic.news.load(Relaxed);
        let Some(stepped) = gigantic.while_at_work(|| {
            hand.reclaim(gigantic);
            if gigantic.areas.decider.promotes() {
                survey.refresh(gigantic);
            }
            gigantic.step(&survey)
        }) else {
            sys::futex_wait_for(&gigantic.news, news, sys::LOOK);
            continue;
        };
        if stepped == Stepped::Acted {
            survey.forget();
        }
        rest(Nanos((sys::now().0 - begun.0).saturating_mul(REST)));
        if let Stepped::Rests(_) = stepped {
            sys::futex_wait_for(&gigantic.news, news, sys::LOOK);
        }
    }
}

/// Waits, whatever is told meanwhile.
fn rest(time: Nanos) {
    let nobody = core::sync::atomic::AtomicU32::new(0);
    sys::futex_wait_for(&nobody, 0, time);
}
