//! The state that all threads share: the areas, their slots, the gigantic pages that are ready, the counters.
//!
//! | thread | what it does | what it waits for |
//! |---|---|---|
//! | a thread of the program, in an interposed function | places mappings ([`memory`](crate::memory)), one at a time, with the lock of the space | the service thread |
//! | `service` | registers, releases, promotes and demotes slots for them ([`service`](crate::service)) | nobody |
//! | two fault threads, eight where memory is paged | serve first touches as the policy decides ([`fault`](crate::fault)) | each other, for the policy |
//! | `background` | has gigantic pages ready, promotes slots as the policy decides ([`background`](crate::background)), and gives bloat back when memory is short ([`bloat`](crate::bloat)) | nobody |
//!
//! Where the program's memory lives in a file, four workers take the place of `background`: they read ahead, promote and
//! reclaim ([`pager`](crate::pager)), and the fault threads wait for the file as well.
//!
//! A thread of the program may stop at any instruction, because its own stack may lie in a slot whose
//! writes are held. So the library's threads never wait for one.

#![expect(unsafe_code, reason = "hands out the one value that all threads share")]

use crate::child::Child;
use crate::gigantic::Ready;
use crate::limited::Limited;
use crate::lock::Lock;
use crate::machine::Decider;
use crate::pager::Pager;
use crate::room;
use crate::service::Mailbox;
use crate::slot::{Slots, State};
use crate::space::Space;
use crate::sys::{self, Span};
use crate::thread;
use crate::uffd::Userfaultfd;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use superpage_launch::{Cause, Counters, Heap};
use superpage_units::{Nanos, Pid};

/// The state that all threads share.
#[derive(Debug)]
pub(crate) struct Areas {
    /// The place of the areas.
    pub(crate) span: Span,
    /// The pages that are the program's.
    pub(crate) space: Lock<Space>,
    /// The machine's memory in bytes.
    total: usize,
    /// The state of each slot.
    pub(crate) slots: Slots,
    /// The request of a thread of the program to the service thread.
    pub(crate) mailbox: Mailbox,
    /// Gigantic pages that nobody uses yet.
    pub(crate) ready: Ready,
    /// The policy.
    pub(crate) decider: Decider,
    /// The slot that is copied while the program writes to it.
    /// The gigantic pages that map memory of the program now.
    gigantic: AtomicU64,
    /// The limits that the program has set for itself.
    pub(crate) limited: Limited,
    /// The counters that `superpage run` reports.
    pub(crate) counters: &'static Counters,
    /// Set by the service thread, in whose table of descriptors it is; null without the right to it, and when it has failed.
    uffd: AtomicPtr<Userfaultfd>,
    /// Whether the library's threads run, a [`Threads`].
    threads: AtomicU32,
    /// The number of threads that are about to fork.
    forks: AtomicU32,
    /// When the program forked last, on the monotonic clock; zero if it never did.
    forked: AtomicU64,
    /// Zero in a child of a fork that the child has not noticed: the kernel wipes its page there.
    parent: &'static AtomicU32,
    /// Whether no first touch is to be told any more: the program has a userfaultfd of its own.
    is_left_alone: AtomicBool,
    /// Whether nothing is promoted any more: the program limits its address space, locks all its memory, or has
    /// mutexes that the kernel changes.
    has_stopped_promoting: AtomicBool,
    /// The cooldown of each slot after a promotion that was refused.
    cooldowns: &'static [Cooldown],
    /// Whether the program has, or had, a second thread.
    had_second_thread: AtomicBool,
    /// Whether another process shares, or shared, the program's memory.
    shares_memory: AtomicBool,
    /// Whether the fault threads have given up.
    has_given_up_faults: AtomicBool,
    /// The heap in which the program's memory is to live, and the process that has its file open.
    heap: Option<(Heap, Pid)>,
    /// Set by the service thread; null where there is no heap.
    pager: AtomicPtr<Pager>,
    /// The file and the claim that a fork prepares for the pager of its child.
    pub(crate) child: Child,
    /// Changed when the background thread has something new to look at.
    pub(crate) news: AtomicU32,
}

/// The time for which a slot is not promoted after a promotion was refused, or after a demotion: twice as long each
/// time. Zero bytes are the cooldown of a slot that never had one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cooldown {
    /// The end of the last one on the monotonic clock, in nanoseconds.
    until: AtomicU64,
    /// The length of the last one, in nanoseconds.
    length: AtomicU64,
}

impl Cooldown {
    // Chosen, not measured: a refusal may have held the program for some 100 ms.
    const FIRST: Nanos = Nanos(20_000_000_000);
    const LONGEST: Nanos = Nanos(1_280_000_000_000);

    /// Asserts that the length is one of those that doubling gives.
    #[cfg(test)]
    fn check(&self) {
        let length = self.length.load(Relaxed);
        let times = length / Self::FIRST.0;
        assert!(length == times * Self::FIRST.0 && length <= Self::LONGEST.0);
        assert!(times == 0 || times.is_power_of_two(), "the first one was doubled");
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        sys::now() >= Nanos(self.until.load(Relaxed))
    }

    /// A promotion was refused, or what was promoted was demoted.
    pub(crate) fn begin(&self) {
        let length = (2 * self.length.load(Relaxed)).clamp(Self::FIRST.0, Self::LONGEST.0);
        self.length.store(length, Relaxed);
        self.until.store(sys::now().0 + length, Relaxed);
    }

    /// A promotion was made.
    pub(crate) fn forget(&self) {
        self.length.store(0, Relaxed);
    }
}

/// Whether the library's threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Threads {
    /// The threads have not been needed: no slot is full of the program's memory. A program with one thread may do what
    /// one with several may not, such as entering a user namespace.
    NotYet = 0,
    /// The threads run.
    Run = 1,
    /// Not all threads could be started, so none runs.
    Failed = 2,
    /// This is a child of a fork, which has none of its parent's threads.
    InParent = 3,
}

static AREAS: AtomicPtr<Areas> = AtomicPtr::new(core::ptr::null_mut());

/// The program's areas; nothing in a process that is not managed.
pub(crate) fn areas() -> Option<&'static Areas> {
    let areas = shared()?;
    if areas.parent.load(Relaxed) == 0 {
        // A fork that nobody heard of. What was held by a thread of the parent is held by nobody.
        areas.in_child();
        areas.space.forget_holder();
    }
    Some(areas)
}

/// As [`areas`], in the middle of a fork.
pub(crate) fn shared() -> Option<&'static Areas> {
    // SAFETY: it is null, or was made by `publish` and lives for ever.
    unsafe { AREAS.load(Acquire).as_ref() }
}

/// Makes these the areas of the process, from now on and for ever.
pub(crate) fn publish(areas: &'static Areas) {
    AREAS.store(core::ptr::from_ref(areas).cast_mut(), Release);
}

/// The time after a fork in which first touches are left to smaller pages: a program that forks will fork again, and
/// each gigantic page that it has then must be copied first. Chosen, not measured.
const AFTER_FORK: Nanos = Nanos(60_000_000_000);

impl Areas {
    pub(crate) fn new(
        space: Space,
        slots: Slots,
        ready: Ready,
        decider: Decider,
        counters: &'static Counters,
        parent: &'static AtomicU32,
        cooldowns: &'static [Cooldown],
    ) -> Self {
        parent.store(1, Relaxed);
        Self {
            span: space.span(),
            space: Lock::new(space),
            slots,
            mailbox: Mailbox::default(),
            ready,
            decider,
            total: sys::to_usize(room::total().0),
            gigantic: AtomicU64::new(0),
            limited: Limited::new(),
            counters,
            uffd: AtomicPtr::default(),
            threads: AtomicU32::new(Threads::NotYet as u32),
            forks: AtomicU32::new(0),
            forked: AtomicU64::new(0),
            parent,
            is_left_alone: AtomicBool::new(false),
            has_stopped_promoting: AtomicBool::new(false),
            cooldowns,
            had_second_thread: AtomicBool::new(false),
            shares_memory: AtomicBool::new(false),
            has_given_up_faults: AtomicBool::new(false),
            heap: None,
            pager: AtomicPtr::default(),
            child: Child::new(),
            news: AtomicU32::new(0),
        }
    }

    /// Makes the areas a heap that lives in the file of a process.
    pub(crate) fn in_file(self, heap: Option<(Heap, Pid)>) -> Self {
        Self { heap, ..self }
    }

    /// The longest mapping that is placed, in bytes: one of more than all memory is for the kernel to judge, unless it may live in
    /// a heap.
    pub(crate) fn most_at_once(&self) -> usize {
        self.heap.map_or(self.total, |(heap, _)| self.total.max(sys::to_usize(heap.size.0)))
    }

    /// The heap in which the program's memory is to live.
    pub(crate) fn heap(&self) -> Option<&(Heap, Pid)> {
        self.heap.as_ref()
    }

    /// The pager, once the library's threads run; nothing in a child of a fork, all of whose memory is there.
    pub(crate) fn pager(&self) -> Option<&'static Pager> {
        if self.threads() == Threads::InParent { None } else { self.parents_pager() }
    }

    /// The pager as of [`Areas::pager`]; in a child of a fork the copy of its parent's.
    pub(crate) fn parents_pager(&self) -> Option<&'static Pager> {
        // SAFETY: it is null, or was leaked by `set_pager`.
        unsafe { self.pager.load(Acquire).as_ref() }
    }

    /// Sets the pager, once in a process.
    pub(crate) fn set_pager(&self, pager: &'static Pager) {
        self.pager.store(core::ptr::from_ref(pager).cast_mut(), Release);
    }

    /// Whether nobody but one thread of the program can write to its memory. The kernel's own writes without page tables
    /// are another matter ([`pins`](crate::pins)).
    pub(crate) fn program_has_one_thread(&self) -> bool {
        !self.shares_memory.load(SeqCst) && thread::program_has_one()
    }

    /// As [`Areas::program_has_one_thread`], of a program that has never had more.
    pub(crate) fn program_always_had_one_thread(&self) -> bool {
        !self.had_second_thread.load(SeqCst) && self.program_has_one_thread()
    }

    /// The program is about to have a process that shares its memory, of which the kernel tells nothing.
    pub(crate) fn before_second_process(&self) {
        self.before_second_thread();
        self.shares_memory.store(true, SeqCst);
    }

    /// The program is about to have a second thread. Without the right to hold writes no gigantic page could be demoted
    /// then.
    pub(crate) fn before_second_thread(&self) {
        let has_none = self.gigantic() == 0 || self.uffd().is_some();
        if has_none && self.had_second_thread.load(SeqCst) {
            return;
        }
        let space = self.space.take();
        if self.threads() == Threads::Run && self.uffd().is_none() {
            for slot in 0..self.slots.count() {
                if self.slots.state(slot) == State::Gigantic {
                    let _ = self.make_ordinary(&space, slot);
                }
            }
        }
        self.had_second_thread.store(true, SeqCst);
    }

    /// The userfaultfd, in the library's threads; nothing without the right to one, or when it has failed. Whoever holds
    /// accesses to a slot asks when he has taken the slot over ([`Areas::give_up_faults`]).
    pub(crate) fn uffd(&self) -> Option<&'static Userfaultfd> {
        // SAFETY: it is null, or was leaked by `set_uffd`.
        unsafe { self.uffd.load(SeqCst).as_ref() }
    }

    /// Sets the userfaultfd, once in a process.
    pub(crate) fn set_uffd(&self, uffd: &'static Userfaultfd) {
        self.uffd.store(core::ptr::from_ref(uffd).cast_mut(), SeqCst);
    }

    /// The cause for which there is no userfaultfd.
    pub(crate) fn cause_of_no_uffd(&self) -> Cause {
        if self.has_given_up_faults.load(SeqCst) { Cause::Failed } else { Cause::NoRights }
    }

    /// Leaves all faults to the kernel from now on, because the fault threads cannot serve them; each of them says so, and leaves
    /// the userfaultfd then.
    /// Gigantic pages stay, and cannot be demoted while the program has more than one thread.
    pub(crate) fn give_up_faults(&self) {
        if !self.has_given_up_faults.swap(true, SeqCst) {
            self.counters.refused.add(Cause::Failed);
        }
        self.uffd.store(core::ptr::null_mut(), SeqCst);
        for slot in 0..self.slots.count() {
            self.slots.begin(slot, State::Fresh, State::Ordinary);
        }
        // When it is closed, accesses that are held go on: nobody may be at work in a slot then, or begin to be.
        for slot in 0..self.slots.count() {
            while self.slots.wait(slot) == State::Fresh {
                self.slots.begin(slot, State::Fresh, State::Ordinary);
            }
        }
    }

    /// Whether the library's threads run.
    pub(crate) fn threads(&self) -> Threads {
        let word = self.threads.load(Acquire);
        let all = [Threads::NotYet, Threads::Run, Threads::Failed];
        all.into_iter().find(|threads| *threads as u32 == word).unwrap_or(Threads::InParent)
    }

    /// Notes whether the library's threads run.
    pub(crate) fn set_threads(&self, threads: Threads) {
        self.threads.store(threads as u32, Release);
    }

    /// The gigantic pages that map memory of the program now.
    pub(crate) fn gigantic(&self) -> u64 {
        self.gigantic.load(Relaxed)
    }

    /// Counts one more.
    pub(crate) fn add_gigantic(&self) {
        self.counters.gigantic(self.gigantic.fetch_add(1, Relaxed) + 1);
    }

    /// Counts one less.
    pub(crate) fn remove_gigantic(&self) {
        self.gigantic.fetch_sub(1, Relaxed);
    }

    /// Whether a first touch may get a gigantic page: not while the program forks, and not soon after.
    pub(crate) fn may_use_gigantic(&self) -> bool {
        let forked = Nanos(self.forked.load(Relaxed));
        let is_long_ago = forked == Nanos(0) || sys::now() > Nanos(forked.0 + AFTER_FORK.0);
        self.forks.load(SeqCst) == 0 && is_long_ago
    }

    /// A thread is about to fork: no slot gets a gigantic page until [`Areas::forked`], and none is getting
    /// one any more.
    pub(crate) fn about_to_fork(&self) {
        self.forks.fetch_add(1, SeqCst);
        for slot in 0..self.slots.count() {
            self.slots.wait(slot);
        }
    }

    /// The thread has forked, or has not; this is the parent.
    pub(crate) fn forked(&self) {
        self.forked.store(sys::now().0, Relaxed);
        self.forks.fetch_sub(1, SeqCst);
    }

    /// Makes this the state of the child of a fork, which has none of the library's threads, and none of its memory is
    /// registered.
    pub(crate) fn in_child(&self) {
        self.parent.store(1, Relaxed);
        self.limited.in_child();
        self.set_threads(Threads::InParent);
        self.ready.forget();
        for slot in 0..self.slots.count() {
            if !matches!(self.slots.state(slot), State::Ordinary | State::Gigantic) {
                self.slots.settle(slot, State::Ordinary);
            }
        }
        self.forks.store(0, SeqCst);
    }

    /// Whether first touches may still be told to the library.
    pub(crate) fn may_register(&self) -> bool {
        !self.is_left_alone.load(Relaxed)
    }

    /// Nothing is promoted any more.
    pub(crate) fn stop_promoting(&self) {
        self.has_stopped_promoting.store(true, Relaxed);
    }

    /// Whether memory may be registered and copied for a promotion.
    pub(crate) fn may_promote(&self) -> bool {
        self.may_register() && !self.has_stopped_promoting.load(Relaxed)
    }

    /// The cooldown of a slot.
    pub(crate) fn cooldown(&self, slot: usize) -> Option<&Cooldown> {
        self.cooldowns.get(slot)
    }

    /// Leaves all memory to the kernel from now on: what is fresh is released, what is gigantic demoted if it
    /// can be.
    pub(crate) fn leave_alone(&self) {
        let space = self.space.take();
        self.is_left_alone.store(true, Relaxed);
        for slot in 0..self.slots.count() {
            if self.slots.state(slot) != State::Ordinary {
                let _ = self.make_ordinary(&space, slot);
            }
        }
    }

    /// Tells the background thread that there is something to look at.
    pub(crate) fn tell_background(&self) {
        self.news.fetch_add(1, Relaxed);
        sys::futex_wake(&self.news);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A step of a random program.
    #[derive(Clone, Debug)]
    enum Step {
        Begin,
        Forget,
        /// So many times ten seconds pass.
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Begin),
            1 => Just(Step::Forget),
            4 => (1_u64..70).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn each_cooldown_in_a_row_is_twice_as_long_as_the_last(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            const SECOND: u64 = 1_000_000_000;
            const LENGTHS: [u64; 7] = [20, 40, 80, 160, 320, 640, 1280];
            let cooldown = Cooldown { until: AtomicU64::new(0), length: AtomicU64::new(0) };
            let (mut in_a_row, mut rest) = (0, 0);
            for step in steps {
                match step {
                    Step::Begin => {
                        let before = sys::now().0;
                        cooldown.begin();
                        rest = LENGTHS[in_a_row];
                        in_a_row = (in_a_row + 1).min(LENGTHS.len() - 1);
                        let begun = cooldown.until.load(Relaxed) - rest * SECOND;
                        assert!((before..=sys::now().0).contains(&begun));
                    }
                    Step::Forget => {
                        cooldown.forget();
                        in_a_row = 0;
                    }
                    Step::Pass(times) => {
                        rest = rest.saturating_sub(10 * times);
                        let passed = 10 * times * SECOND;
                        let until = cooldown.until.load(Relaxed).saturating_sub(passed);
                        cooldown.until.store(until, Relaxed);
                    }
                }
                cooldown.check();
                assert_eq!(cooldown.is_over(), rest == 0);
            }
        }
    }
}
