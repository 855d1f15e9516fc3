//! The policy, which one of the library's threads asks at a time.

#![expect(unsafe_code, reason = "keeps the policy behind a lock")]

use crate::lock::RawLock;
use crate::sys::Span;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::panic::{AssertUnwindSafe, catch_unwind};
use superpage_launch::{Cause, Config, Counters};
use superpage_policy::promotion::Policy;
use superpage_policy::promotion::life::Allocation;
use superpage_units::{Advice, BasePages, Growth, VirtAddr, Vma, VmaKind};

/// The policy.
#[derive(Debug)]
pub(crate) struct Decider {
    /// Whether it promotes what first touches left to smaller pages.
    promotes: bool,
    /// The base pages of a range from which on it is promoted, if there is such a number.
    threshold: Option<BasePages>,
    lock: RawLock,
    policy: UnsafeCell<Box<dyn Policy>>,
    /// Whether the policy has panicked, which is a bug. It is not asked any more.
    has_failed: AtomicBool,
}

// SAFETY: the policy is reached with the lock held only, and can be sent between threads.
unsafe impl Sync for Decider {}

impl Decider {
    /// Decides by this policy, and by the configuration's word whether to promote.
    pub(crate) fn new(policy: Box<dyn Policy>, config: &Config<'_>) -> Self {
        let allocation = policy.life().allocation;
        Self {
            promotes: config.promote
                && matches!(allocation, Allocation::FirstTouch { later: Some(_), .. }),
            threshold: policy.capabilities().threshold,
            lock: RawLock::new(),
            policy: UnsafeCell::new(policy),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Whether it promotes what first touches left to smaller pages, and has not failed.
    pub(crate) fn promotes(&self) -> bool {
        self.promotes && !self.has_failed.load(Relaxed)
    }

    /// The base pages of a range from which on it is promoted, if there is such a number.
    pub(crate) fn threshold(&self) -> Option<BasePages> {
        self.threshold
    }

    /// The policy's answer; nothing once it has failed, which does not end the program.
    pub(crate) fn ask<T>(
        &self,
        counters: &Counters,
        question: impl FnOnce(&mut dyn Policy) -> T,
    ) -> Option<T> {
        self.lock.take();
        let has_failed = self.has_failed.load(Relaxed);
        let answer = (!has_failed).then(|| {
            // SAFETY: the lock is held.
            let policy = unsafe { &mut **self.policy.get() };
            catch_unwind(AssertUnwindSafe(|| question(policy))).ok()
        });
        let answer = answer.flatten();
        if answer.is_none() && !has_failed {
            counters.refused.add(Cause::Failed);
            self.has_failed.store(true, Relaxed);
        }
        self.lock.give_back();
        answer
    }
}

/// A part of the areas as the policy sees it.
pub(crate) fn vma(part: Span) -> Vma {
    Vma {
        start: VirtAddr(part.start as u64),
        end: VirtAddr(part.end() as u64),
        kind: VmaKind::Anonymous,
        growth: Growth::Fixed,
        advice: Advice::Huge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_policy::promotion::list;

    #[test]
    fn a_policy_that_panics_is_asked_no_more() {
        let policy = list::find("trident").expect("it is listed");
        let config = Config::parse("9,1,alone,trident,off,0,off,3:1:2").expect("it is well-formed");
        let decider = Decider::new((policy.build)(), &config);
        let counters = Counters::default();
        assert!(decider.ask(&counters, |policy| policy.life()).is_some());
        assert_eq!(decider.ask::<()>(&counters, |_| panic!("a bug")), None);
        // The lock is free again, and the failure is counted once.
        assert!(decider.ask(&counters, |policy| policy.life()).is_none());
        let failed = counters.refused.counts().find(|(cause, _)| *cause == Cause::Failed);
        assert_eq!(failed, Some((Cause::Failed, 1)));
    }
}
