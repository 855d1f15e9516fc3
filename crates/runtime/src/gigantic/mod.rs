//! Pages by policy: what stands behind the program's memory where it does not live in a file (Trident).
//!
//! The areas are cut into slots of 1 GiB, and what maps each of them is one word ([`slot`]). The policy says at the first touch
//! of a slot, and in the background, which page size it gets ([`machine`]).
//!
//! | file | what is in it |
//! |---|---|
//! | [`backing`] | what the program's calls do to slots |
//! | [`requests`] | what the service thread does to slots for them |
//! | [`page`], [`supply`] | gigantic pages that nobody uses yet, and where they come from |
//! | [`machine`], [`survey`], [`background`] | the policy's view and its work |
//! | [`promote`], [`full_stop`], [`demote`], [`cooldown`] | smaller pages become a gigantic one, and the other way round |
//! | [`bloat`] | gigantic pages that are given up when memory is short |

#![expect(unsafe_code, reason = "hands out a userfaultfd that lives for ever")]

mod background;
mod backing;
mod bloat;
mod cooldown;
mod demote;
mod full_stop;
mod machine;
mod page;
mod promote;
mod requests;
mod slot;
mod supply;
mod survey;

use crate::areas::{Areas, Threads};
use crate::sys;
use crate::thread;
use crate::uffd::Userfaultfd;
pub(crate) use cooldown::Cooldown;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
pub(crate) use machine::Gives;
use page::Ready;
use slot::{Slots, State};
use superpage_launch::Cause;

/// The slots, and who may change them.
#[derive(Debug)]
pub(crate) struct Gigantic {
    areas: &'static Areas,
    /// The state of each slot.
    slots: Slots,
    /// The cooldown of each slot after a promotion that was refused.
    cooldowns: &'static [Cooldown],
    /// Gigantic pages that nobody uses yet.
    ready: Ready,
    /// The cooldown of requests for more of them.
    supply: Cooldown,
    /// The pages that the policy gives at first touches.
    gives: Gives,
    /// The gigantic pages that map memory of the program now.
    count: AtomicU64,
    /// Whether the program has had memory for a gigantic page.
    is_large: AtomicBool,
    /// Set by the service thread, in whose table of descriptors it is; null without the right to it, and when it has failed.
    uffd: AtomicPtr<Userfaultfd>,
    /// The number of threads that are about to fork.
    forks: AtomicU32,
    /// The cooldown of first touches and promotions after a fork, or an attempt at one: a program that forks will fork again, and each
    /// gigantic page that it has then must be copied first.
    forked: Cooldown,
    /// Whether no first touch is to be told any more: the program has a userfaultfd of its own.
    is_left_alone: AtomicBool,
    /// Whether nothing is promoted any more: the program limits its address space, locks all its memory, or has
    /// mutexes that the kernel changes.
    has_stopped_promoting: AtomicBool,
    /// Whether the program has, or had, a second thread.
    had_second_thread: AtomicBool,
    /// Whether another process shares, or shared, the program's memory.
    shares_memory: AtomicBool,
    /// Whether the fault threads have given up.
    has_given_up_faults: AtomicBool,
    /// Changed when the background thread has something new to look at.
    news: AtomicU32,
    /// The word holds 1 while the background thread works, and 0 otherwise.
    at_work: AtomicU32,
}

impl Gigantic {
    /// The slots of these areas: their states and cooldowns are all zero.
    pub(crate) fn new(
        areas: &'static Areas,
        states: &'static [AtomicU32],
        cooldowns: &'static [Cooldown],
        gives: Gives,
        ready: u32,
    ) -> Self {
        Self {
            areas,
            slots: Slots::new(areas.span.start, states),
            cooldowns,
            ready: Ready::new(ready),
            supply: Cooldown::default(),
            gives,
            count: AtomicU64::new(0),
            is_large: AtomicBool::new(false),
            uffd: AtomicPtr::default(),
            forks: AtomicU32::new(0),
            forked: Cooldown::default(),
            is_left_alone: AtomicBool::new(false),
            has_stopped_promoting: AtomicBool::new(false),
            had_second_thread: AtomicBool::new(false),
            shares_memory: AtomicBool::new(false),
            has_given_up_faults: AtomicBool::new(false),
            news: AtomicU32::new(0),
            at_work: AtomicU32::new(0),
        }
    }

    /// Whether nobody but one thread of the program can write to its memory. The kernel's own writes without page tables
    /// are another matter ([`pins`](crate::pins)).
    fn program_has_one_thread(&self) -> bool {
        !self.shares_memory.load(SeqCst) && thread::program_has_one()
    }

    /// As [`Gigantic::program_has_one_thread`], of a program that has never had more.
    fn program_always_had_one_thread(&self) -> bool {
        !self.had_second_thread.load(SeqCst) && self.program_has_one_thread()
    }

    /// The userfaultfd, in the library's threads; nothing without the right to one, or when it has failed. Whoever holds
    /// accesses to a slot asks when it has taken the slot over: when faults are given up, nobody is at work in a slot.
    fn uffd(&self) -> Option<&'static Userfaultfd> {
        // SAFETY: it is null, or was leaked.
        unsafe { self.uffd.load(SeqCst).as_ref() }
    }

    /// The cause for which there is no userfaultfd.
    fn cause_of_no_uffd(&self) -> Cause {
        if self.has_given_up_faults.load(SeqCst) { Cause::Failed } else { Cause::NoRights }
    }

    /// The gigantic pages that map memory of the program now.
    fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Counts one more.
    fn add_gigantic(&self) {
        self.areas.counters.gigantic(self.count.fetch_add(1, Relaxed) + 1);
    }

    /// Counts one less.
    fn remove_gigantic(&self) {
        self.count.fetch_sub(1, Relaxed);
    }

    /// Whether a first touch may get a gigantic page: not while the program forks, and not soon after.
    fn may_use_gigantic(&self) -> bool {
        self.forks.load(SeqCst) == 0 && self.forked.is_over()
    }

    /// Whether first touches may still be told to the library.
    fn may_register(&self) -> bool {
        !self.is_left_alone.load(SeqCst)
    }

    /// The background thread's work, unless the memory is left alone; [`Gigantic::wait_for_background`] waits for its end.
    fn while_at_work<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.at_work.store(1, SeqCst);
        let done = self.may_register().then(work);
        self.at_work.store(0, SeqCst);
        sys::futex_wake(&self.at_work);
        done
    }

    /// Waits until the background thread works no more. The memory is left alone already, so that it begins no more either.
    fn wait_for_background(&self) {
        while self.at_work.load(SeqCst) == 1 && !thread::one_has_ended() {
            sys::futex_wait_for(&self.at_work, 1, sys::LOOK);
        }
    }

    /// Whether memory may be registered and copied for a promotion.
    fn may_promote(&self) -> bool {
        self.may_register() && !self.has_stopped_promoting.load(Relaxed)
    }

    /// The cooldown of a slot.
    fn cooldown(&self, slot: usize) -> Option<&Cooldown> {
        self.cooldowns.get(slot)
    }

    /// Tells the background thread that there is something to look at.
    fn tell_background(&self) {
        self.news.fetch_add(1, Relaxed);
        sys::futex_wake(&self.news);
    }

    /// Makes this the state of the child of a fork, none of whose memory is registered.
    pub(crate) fn in_child(&self) {
        self.ready.forget();
        self.at_work.store(0, SeqCst);
        for slot in 0..self.slots.count() {
            if !matches!(self.slots.state(slot), State::Ordinary | State::Gigantic) {
                self.slots.settle(slot, State::Ordinary);
            }
        }
        self.forks.store(0, SeqCst);
    }

    /// Whether a mapping may be placed in a slot beside others: nobody is changing it, and if a gigantic page maps it,
    /// that is what the mapping may be. Of a gigantic page no part can be protected otherwise, and in a child of a fork
    /// its parent has it too.
    fn may_hold(&self, slot: usize, protection: i32) -> bool {
        match self.slots.state(slot) {
            State::Gigantic => {
                protection == crate::backing::READ_WRITE && self.areas.threads() == Threads::Run
            }
            state => state.is_settled(),
        }
    }
}
