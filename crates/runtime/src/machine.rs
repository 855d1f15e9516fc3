//! The process as a machine of the policy crate: what a policy sees of it, and how its answers are carried
//! out.

#![expect(unsafe_code, reason = "keeps the policy behind a lock, and moves memory over slots")]

use crate::areas::{Areas, Threads};
use crate::gigantic::Pool;
use crate::lock::RawLock;
use crate::pins;
use crate::promote::{self, Failure};
use crate::room;
use crate::slot::State;
use crate::supply;
use crate::survey::{Survey, vma};
use crate::sys::{self, Errno, GIGANTIC, HUGE, Mmap, Span};
use crate::thread;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::panic::{AssertUnwindSafe, catch_unwind};
use superpage_launch::{Cause, Config, Counters};
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::capabilities::set_aside;
use superpage_policy::promotion::life::Allocation;
use superpage_policy::promotion::{
    Act, Action, Attempt, Carried, Fault, Footprint, Machine, Outcome, Policy, RangeView, Step,
    View, Zeroed, drive,
};
use superpage_units::{
    BasePages, Bytes, Page, PageSize, PmdRange, ProcessKey, Time, VirtAddr, Vma,
};

/// PMD ranges that the policy looks at before faults have their turn. Chosen: some 10 us.
const AT_ONCE: usize = 64;

/// The process itself, which is the only one there is.
const OURSELVES: ProcessKey = ProcessKey(0);

/// The policy, which one of the library's threads asks at a time.
#[derive(Debug)]
pub(crate) struct Decider {
    /// Whether it promotes what first touches left to smaller pages.
    promotes: bool,
    /// Whether all memory is to be on pages of the pool from the start.
    maps_at_once: bool,
    /// The pool for gigantic pages.
    pool: Pool,
    /// Whether first touches may get such pages.
    gives_gigantic: bool,
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
        let promotes =
            config.promote && matches!(allocation, Allocation::FirstTouch { later: Some(_), .. });
        let set_aside = set_aside(&*policy);
        let pool = Pool::of(set_aside.unwrap_or(PageSize::Gigantic));
        let gives =
            |size| matches!(allocation, Allocation::FirstTouch { largest, .. } if largest == size);
        Self {
            promotes,
            maps_at_once: set_aside.is_some(),
            pool,
            gives_gigantic: gives(pool.size()),
            threshold: policy.capabilities().threshold,
            lock: RawLock::new(),
            policy: UnsafeCell::new(policy),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Whether it promotes what first touches left to smaller pages.
    pub(crate) fn promotes(&self) -> bool {
        self.promotes
    }

    /// The base pages of a range from which on it is promoted, if there is such a number.
    pub(crate) fn threshold(&self) -> Option<BasePages> {
        self.threshold
    }

    /// The pool of the kernel's that gigantic pages are taken from.
    pub(crate) fn pool(&self) -> Pool {
        self.pool
    }

    /// Maps a gigantic page over a slot in which nobody has anything, and of which the program maps this part: if the
    /// policy has all memory on such pages from the start (pages set aside before), or if it gives them to first
    /// touches, the part is the whole, and without the right to a userfaultfd no first touch will be told. Whether it
    /// did. The caller holds the lock of the space.
    pub(crate) fn map_at_once(&self, areas: &Areas, part: Span) -> bool {
        let is_left_to_touches = part.length < GIGANTIC || !self.gives_gigantic;
        if is_left_to_touches && !self.maps_at_once {
            return false;
        }
        // Only the library's threads can demote the page.
        areas.start_threads();
        let is_able = areas.threads() == Threads::Run
            && match areas.uffd() {
                Some(_) => self.maps_at_once,
                None => areas.program_always_had_one_thread(),
            };
        if !is_able || !areas.may_register() {
            return false;
        }
        let slot = areas.slots.containing(part.start);
        if !areas.slots.begin(slot, State::Ordinary, State::Serving) {
            return false;
        }
        let address = VirtAddr(areas.slots.span(slot).start as u64);
        let none = Survey::default();
        let mapped = Inside::new(areas, &none).map_gigantic(address, Zeroed::Preferred).is_some();
        areas.slots.settle(slot, if mapped { State::Gigantic } else { State::Ordinary });
        mapped
    }

    /// The policy's answer; nothing once it has failed, which does not end the program.
    pub(crate) fn ask<T>(
        &self,
        counters: &Counters,
        question: impl FnOnce(&mut dyn Policy) -> T,
    ) -> Option<T> {
        self.lock.take(thread::lost_one());
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

    /// Has the first touch of a slot served as the policy decides; the state that the slot is in then.
    pub(crate) fn serve(&self, areas: &Areas, slot: Span, address: usize) -> State {
        let fault = Fault {
            process: OURSELVES,
            address: VirtAddr(address as u64),
            vma: vma(slot),
            range: RangeView::default(),
            gigantic_is_empty: Some(true),
        };
        let none = Survey::default();
        let mut machine = Inside::new(areas, &none);
        let served = self.ask(areas.counters, |policy| drive::serve(policy, &mut machine, &fault));
        if served.is_none() && machine.served.is_none() {
            machine.leave(fault.address, PageSize::Huge);
        }
        machine.served.unwrap_or(State::Ordinary)
    }

    /// Lets the policy do one thing in the background.
    pub(crate) fn step(&self, areas: &Areas, survey: &Survey) -> Stepped {
        let mut machine = Inside::in_background(areas, survey);
        let step = self.ask(areas.counters, |policy| {
            // The thread of the background is also the one that prepares pages ahead of time.
            let prepared = policy.prepare(&machine);
            if matches!(prepared, Step::Act(_)) {
                return Some(prepared);
            }
            // A look that finds nothing to do is cheap, and a fault waits for the policy meanwhile.
            let mut steps = (0..AT_ONCE).map(|_| policy.background(&mut machine));
            steps.find(|step| !matches!(step, Step::Scanned(_)))
        });
        match step.unwrap_or(Some(Step::Rest(None))) {
            Some(Step::Act(action)) => {
                // The policy can be asked meanwhile: faults do not wait for a page to be zeroed.
                if let Carried::Now(outcome) = machine.carry_out(&action) {
                    self.ask(areas.counters, |policy| policy.learn(&action, outcome));
                }
                Stepped::Acted
            }
            Some(Step::Rest(until)) => Stepped::Rests(until),
            Some(Step::Scanned(_)) | None => Stepped::Scanned,
        }
    }
}

/// The outcome of a step in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// Something was done.
    Acted,
    /// Memory was looked at, and nothing was to be done.
    Scanned,
    /// Nothing is to be done until this time, or until there is news.
    Rests(Option<Time>),
}

/// The process, at one moment.
#[derive(Debug)]
struct Inside<'a> {
    areas: &'a Areas,
    survey: &'a Survey,
    free: FreeMemory,
    /// The state of the slot after the fault, once it was served.
    served: Option<State>,
}

impl<'a> Inside<'a> {
    /// In the background, where it is asked how much memory there is; a first touch takes what is ready, or asks for a
    /// page that nobody has to give.
    fn in_background(areas: &'a Areas, survey: &'a Survey) -> Self {
        let mut machine = Self::new(areas, survey);
        if room::is_short() {
            let chunks = &mut machine.free.chunks[usize::from(PageSize::Gigantic.order())];
            *chunks = machine.free.zeroed_gigantic;
        }
        machine
    }

    fn new(areas: &'a Areas, survey: &'a Survey) -> Self {
        let mut free = FreeMemory::NONE;
        free.zeroed_gigantic = areas.ready.count();
        let chunks = &mut free.chunks[usize::from(PageSize::Gigantic.order())];
        *chunks = free.zeroed_gigantic;
        // A small program needs none: what is to be had is shown once it is large.
        if areas.counters.most_mapped.load(Relaxed) >= GIGANTIC as u64 && areas.may_use_gigantic() {
            let more = areas.decider.pool.slots() + u64::from(supply::can_ask(areas.counters));
            *chunks = areas.ready.wanted().min(*chunks + more);
        }
        Self { areas, survey, free, served: None }
    }

    /// Maps a gigantic page over the slot that holds this address.
    fn map_gigantic(&mut self, address: VirtAddr, zeroed: Zeroed) -> Option<PageSize> {
        let counters = self.areas.counters;
        if !self.areas.may_use_gigantic() {
            counters.refused.add(Cause::Forked);
            return None;
        }
        // The page could not be demoted again.
        if pins::may_be(sys::process()) {
            counters.refused.add(Cause::MayPin);
            return None;
        }
        let (page, is_prepared) = match (self.areas.ready.take(), zeroed) {
            (Some(page), _) => (page, true),
            (None, Zeroed::Required) => return None,
            (None, Zeroed::Preferred) => (refuse(counters, supply::prepare(self.areas))?, false),
        };
        let slots = &self.areas.slots;
        let slot = slots.span(slots.containing(usize::try_from(address.0).ok()?));
        // SAFETY: the slot is being served: nothing was ever touched in it.
        refuse(counters, unsafe { page.move_over(slot) })?;
        self.areas.add_gigantic();
        counters.first_touches.fetch_add(1, Relaxed);
        counters.prepared.fetch_add(is_prepared.into(), Relaxed);
        self.served = Some(State::Gigantic);
        Some(self.areas.decider.pool.size())
    }

    /// Leaves the slot that holds this address to the kernel.
    fn leave(&mut self, address: VirtAddr, size: PageSize) -> Option<PageSize> {
        let slots = &self.areas.slots;
        let slot = slots.span(slots.containing(usize::try_from(address.0).ok()?));
        if size == PageSize::Base {
            // SAFETY: the advice concerns page sizes only.
            let _ = unsafe { sys::madvise(slot, libc::MADV_NOHUGEPAGE) };
        }
        if self.areas.uffd().and_then(|uffd| uffd.unregister(slot).ok()).is_none() {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the slot is being served: nothing was ever touched in it.
            unsafe { sys::mmap(Mmap::fixed(slot, protection)) }.ok()?;
        }
        self.areas.counters.left_to_smaller.fetch_add(1, Relaxed);
        self.served = Some(State::Ordinary);
        Some(size)
    }
}

impl Inside<'_> {
    fn promote(&self, page: Page) -> Outcome {
        let Ok(start) = usize::try_from(page.start().0) else { return Outcome::Stale };
        if page.size() != PageSize::Gigantic {
            let range = Span { start, length: HUGE };
            // SAFETY: the advice concerns page sizes only.
            let done = unsafe { sys::madvise(range, libc::MADV_COLLAPSE) };
            return match done {
                Ok(_) => Outcome::Done,
                Err(Errno::ENOMEM) => Outcome::NoFrame,
                Err(_) => Outcome::Stale,
            };
        }
        // A page that is free in the pool is memory for everybody then, once `superpage run` takes it out.
        if self.areas.counters.added.load(Relaxed) > 0 && room::is_short() {
            return Outcome::NoFrame;
        }
        match promote::promote(self.areas, self.areas.slots.containing(start)) {
            Ok(()) => Outcome::Done,
            Err(Failure::NoPage) => Outcome::NoFrame,
            Err(Failure::Changed | Failure::Refused(_)) => Outcome::Stale,
        }
    }
}

/// Counts a refusal by its cause.
fn refuse<T>(counters: &Counters, done: sys::Result<T>) -> Option<T> {
    done.inspect_err(|errno| {
        let is_short = *errno == Errno::ENOMEM;
        counters.refused.add(if is_short { Cause::PoolEmpty } else { Cause::Kernel });
    })
    .ok()
}

impl View for Inside<'_> {
    fn now(&self) -> Time {
        Time(sys::now().0)
    }

    fn free_memory(&self) -> &FreeMemory {
        &self.free
    }

    fn processes(&self) -> &[ProcessKey] {
        &[OURSELVES]
    }

    fn footprint(&self, _: ProcessKey) -> Footprint {
        let gigantic = self.areas.gigantic();
        Footprint { gigantic: Some(gigantic), ..Footprint::default() }
    }

    fn vmas(&self, _: ProcessKey) -> &[Vma] {
        self.survey.vmas()
    }

    fn range(&self, _: ProcessKey, range: PmdRange) -> RangeView {
        self.survey.range(range)
    }

    fn next_mapped(&self, _: ProcessKey, from: VirtAddr) -> Option<PmdRange> {
        self.survey.next_mapped(from)
    }
}

impl Machine for Inside<'_> {
    fn attempt(&mut self, fault: &Fault, attempt: Attempt, _: &mut dyn Policy) -> Option<PageSize> {
        let in_pool = self.areas.decider.pool.size();
        match attempt {
            Attempt::Map { size, zeroed, .. } if size == in_pool => {
                self.map_gigantic(fault.address, zeroed)
            }
            Attempt::Map { size, .. } => self.leave(fault.address, size),
            Attempt::Base => self.leave(fault.address, PageSize::Base),
            Attempt::Reserve | Attempt::InPlace | Attempt::Complete => None,
        }
    }

    fn carry_out(&mut self, action: &Action) -> Carried {
        Carried::Now(match action.act {
            Act::Zero(PageSize::Gigantic) => match supply::prepare(self.areas) {
                Ok(page) => {
                    self.areas.ready.add(page);
                    Outcome::Done
                }
                Err(_) => Outcome::NoFrame,
            },
            Act::Promote { page, .. } => self.promote(page),
            _ => Outcome::Stale,
        })
    }
}

/// Notes how much memory the program has in the areas now.
pub(crate) fn note_mapped(areas: &Areas, bytes: usize) {
    if areas.threads() == Threads::InParent {
        return; // a child of the program has the counters mapped too
    }
    let before = areas.counters.most_mapped.load(Relaxed);
    areas.counters.mapped(Bytes(bytes as u64));
    if before < GIGANTIC as u64 && bytes >= GIGANTIC {
        areas.tell_background();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_policy::promotion::list;

    #[test]
    fn a_policy_that_panics_is_asked_no_more() {
        let policy = list::find("trident").expect("it is listed");
        let config = Config::parse("8,1,alone,trident,off,0,off,3:1:2").expect("it is well-formed");
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
