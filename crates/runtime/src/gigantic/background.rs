//! The background thread: does what the policy wants done while nobody waits.

use super::Gigantic;
use super::bloat::Hand;
use super::machine::Stepped;
use super::survey::Survey;
use crate::sys;
use crate::thread;
use core::sync::atomic::Ordering::Relaxed;
use superpage_units::{Nanos, Time};

/// The time for which the thread rests, in times of its work, so that it takes a tenth of a core at most. While 2 GiB were promoted, a program
/// that changed words at random did 24 to 35 million a second in its worst half second with this, 21 to 26 million where the thread rested
/// as long as it worked, and 19 to 25 million without rests (five interleaved rounds; 37 to 46 million on the whole, each way).
const REST: u64 = 9;

/// Works as long as the service thread runs.
pub(super) fn run(gigantic: &Gigantic) {
    let mut survey = Survey::default();
    let mut hand = Hand::default();
    // The time at which the policy wants to look at memory again.
    let mut again = Time(0);
    while !thread::service_has_ended() {
        let begun = sys::now();
        let news = gigantic.news.load(Relaxed);
        let stepped = gigantic.while_at_work(|| {
            hand.reclaim(gigantic);
            // Promotions would be refused soon after a fork.
            if !gigantic.may_use_gigantic() {
                return Stepped::Rests(None);
            }
            if gigantic.prepare() == Stepped::Acted {
                return Stepped::Acted;
            }
            if !gigantic.areas.decider.promotes() || sys::now().0 < again.0 {
                return Stepped::Rests(Some(again));
            }
            match survey.make(gigantic) {
                true => gigantic.scan(&survey),
                false => Stepped::Rests(None),
            }
        });
        if stepped.is_some() {
            rest(Nanos((sys::now().0 - begun.0).saturating_mul(REST)));
        }
        match stepped {
            Some(Stepped::Acted) => continue,
            Some(Stepped::Rests(until)) => again = until.unwrap_or_default(),
            None => {}
        }
        sys::futex_wait_for(&gigantic.news, news, sys::LOOK);
    }
}

/// Waits, whatever is told meanwhile.
fn rest(time: Nanos) {
    let nobody = core::sync::atomic::AtomicU32::new(0);
    sys::futex_wait_for(&nobody, 0, time);
}
