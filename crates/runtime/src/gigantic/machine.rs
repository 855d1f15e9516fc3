//! The process as a machine of the policy crate: what a policy sees of it, and how its answers are carried
//! out.

#![expect(unsafe_code, reason = "moves memory over slots")]

use super::Gigantic;
use super::page::Pool;
use super::promote::{self, Failure};
use super::slot::State;
use super::supply;
use super::survey::Survey;
use crate::areas::Threads;
use crate::decider::vma;
use crate::pins;
use crate::room;
use crate::sys::{self, Errno, GIGANTIC, HUGE, Mmap, Span};
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Cause, Counters};
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::capabilities::set_aside;
use superpage_policy::promotion::life::Allocation;
use superpage_policy::promotion::{
    Act, Action, Attempt, Carried, Fault, Footprint, Machine, Outcome, Policy, RangeView, Step,
    View, Zeroed, drive,
};
use superpage_units::{Page, PageSize, PmdRange, ProcessKey, Time, VirtAddr, Vma};

/// The process itself, which is the only one there is.
const OURSELVES: ProcessKey = ProcessKey(0);

/// The pages that a policy gives at first touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gives {
    /// The pool for gigantic pages.
    pub(super) pool: Pool,
    /// Whether all memory is to be on pages of the pool from the start.
    at_once: bool,
    /// Whether first touches may get such pages.
    at_touches: bool,
}

impl Gives {
    /// The pages that this policy gives.
    pub(crate) fn of(policy: &dyn Policy) -> Self {
        let set_aside = set_aside(policy);
        let pool = Pool::of(set_aside.unwrap_or(PageSize::Gigantic));
        let allocation = policy.life().allocation;
        let at_touches =
            matches!(allocation, Allocation::FirstTouch { largest, .. } if largest == pool.size());
        Self { pool, at_once: set_aside.is_some(), at_touches }
    }
}

impl Gigantic {
    /// Maps a gigantic page over a slot in which nobody has anything, and of which the program maps this part: if the
    /// policy has all memory on such pages from the start (pages set aside before), or if it gives them to first
    /// touches, the part is the whole, and without the right to a userfaultfd no first touch will be told. Whether it
    /// did. The caller holds the lock of the space.
    pub(super) fn map_at_once(&self, part: Span) -> bool {
        let is_left_to_touches = part.length < GIGANTIC || !self.gives.at_touches;
        if is_left_to_touches && !self.gives.at_once || !self.may_register() {
            return false;
        }
        // Only the library's threads can demote the page.
        self.areas.start_threads();
        let is_able = self.areas.threads() == Threads::Run
            && match self.uffd() {
                Some(_) => self.gives.at_once,
                None => self.program_always_had_one_thread(),
            };
        if !is_able {
            return false;
        }
        let slot = self.slots.containing(part.start);
        if !self.slots.begin(slot, State::Ordinary, State::Serving) {
            return false;
        }
        let address = VirtAddr(self.slots.span(slot).start as u64);
        let none = Survey::default();
        let mapped = Inside::new(self, &none).map_gigantic(address, Zeroed::Preferred).is_some();
        self.slots.settle(slot, if mapped { State::Gigantic } else { State::Ordinary });
        mapped
    }

    /// Has the first touch of a slot served as the policy decides; the state that the slot is in then.
    pub(super) fn serve_first_touch(&self, slot: Span, address: usize) -> State {
        let fault = Fault {
            process: OURSELVES,
            address: VirtAddr(address as u64),
            vma: vma(slot),
            range: RangeView::default(),
            gigantic_is_empty: Some(true),
        };
        let none = Survey::default();
        let mut machine = Inside::new(self, &none);
        let served = self.ask(|policy| drive::serve(policy, &mut machine, &fault));
        if served.is_none() && machine.served.is_none() {
            machine.leave(fault.address, PageSize::Huge);
        }
        machine.served.unwrap_or(State::Ordinary)
    }

    /// Lets the policy prepare one thing ahead of time.
    pub(super) fn prepare(&self) -> Stepped {
        let none = Survey::default();
        let mut machine = Inside::in_background(self, &none);
        let step = self.ask(|policy| policy.prepare(&machine));
        self.take(step, &mut machine)
    }

    /// Lets the policy do one thing with what it finds in a survey.
    pub(super) fn scan(&self, survey: &Survey) -> Stepped {
        let mut machine = Inside::in_background(self, survey);
        loop {
            let step = self.ask(|policy| policy.background(&mut machine));
            // A fault may ask the policy between two ranges.
            if !matches!(step, Some(Step::Scanned(_))) {
                return self.take(step, &mut machine);
            }
        }
    }

    /// Does what the policy wants.
    fn take(&self, step: Option<Step>, machine: &mut Inside<'_>) -> Stepped {
        match step {
            Some(Step::Act(action)) => {
                // The policy can be asked meanwhile: faults do not wait for a page to be zeroed.
                if let Carried::Now(outcome) = machine.carry_out(&action) {
                    self.ask(|policy| policy.learn(&action, outcome));
                }
                Stepped::Acted
            }
            Some(Step::Rest(until)) => Stepped::Rests(until),
            Some(Step::Scanned(_)) | None => Stepped::Rests(None),
        }
    }

    /// The policy's answer.
    fn ask<T>(&self, question: impl FnOnce(&mut dyn Policy) -> T) -> Option<T> {
        self.areas.decider.ask(self.areas.counters, question)
    }
}

/// The outcome of a step in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// Something was done.
    Acted,
    /// Nothing is to be done until this time, or until there is news.
    Rests(Option<Time>),
}

/// The process, at one moment.
#[derive(Debug)]
struct Inside<'a> {
    gigantic: &'a Gigantic,
    survey: &'a Survey,
    free: FreeMemory,
    /// The state of the slot after the fault, once it was served.
    served: Option<State>,
}

impl<'a> Inside<'a> {
    /// In the background, where it is asked how much memory there is; a first touch takes what is ready, or asks for a
    /// page that nobody has to give.
    fn in_background(gigantic: &'a Gigantic, survey: &'a Survey) -> Self {
        let mut machine = Self::new(gigantic, survey);
        if room::is_short() {
            let chunks = &mut machine.free.chunks[usize::from(PageSize::Gigantic.order())];
            *chunks = machine.free.zeroed_gigantic;
        }
        machine
    }

    fn new(gigantic: &'a Gigantic, survey: &'a Survey) -> Self {
        let mut free = FreeMemory::NONE;
        free.zeroed_gigantic = gigantic.ready.count();
        let chunks = &mut free.chunks[usize::from(PageSize::Gigantic.order())];
        *chunks = free.zeroed_gigantic;
        // A small program needs none: what is to be had is shown once it is large.
        if gigantic.areas.counters.most_mapped.load(Relaxed) >= GIGANTIC as u64
            && gigantic.may_use_gigantic()
        {
            let more = gigantic.gives.pool.slots() + u64::from(supply::can_ask(gigantic));
            *chunks = gigantic.ready.wanted().min(*chunks + more);
        }
        Self { gigantic, survey, free, served: None }
    }

    /// Maps a gigantic page over the slot that holds this address.
    fn map_gigantic(&mut self, address: VirtAddr, zeroed: Zeroed) -> Option<PageSize> {
        let counters = self.gigantic.areas.counters;
        if !self.gigantic.may_use_gigantic() {
            counters.refused.add(Cause::Forked);
            return None;
        }
        // The page could not be demoted again.
        if pins::may_be(sys::process()) {
            counters.refused.add(Cause::MayPin);
            return None;
        }
        let (page, is_prepared) = match (self.gigantic.ready.take(), zeroed) {
            (Some(page), _) => (page, true),
            (None, Zeroed::Required) => return None,
            (None, Zeroed::Preferred) => (refuse(counters, supply::prepare(self.gigantic))?, false),
        };
        let slots = &self.gigantic.slots;
        let slot = slots.span(slots.containing(usize::try_from(address.0).ok()?));
        // SAFETY: the slot is being served: nothing was ever touched in it.
        refuse(counters, unsafe { page.move_over(slot) })?;
        self.gigantic.add_gigantic();
        counters.first_touches.fetch_add(1, Relaxed);
        counters.prepared.fetch_add(is_prepared.into(), Relaxed);
        self.served = Some(State::Gigantic);
        Some(self.gigantic.gives.pool.size())
    }

    /// Leaves the slot that holds this address to the kernel.
    fn leave(&mut self, address: VirtAddr, size: PageSize) -> Option<PageSize> {
        let slots = &self.gigantic.slots;
        let slot = slots.span(slots.containing(usize::try_from(address.0).ok()?));
        if size == PageSize::Base {
            // SAFETY: the advice concerns page sizes only.
            let _ = unsafe { sys::madvise(slot, libc::MADV_NOHUGEPAGE) };
        }
        if self.gigantic.uffd().and_then(|uffd| uffd.unregister(slot).ok()).is_none() {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the slot is being served: nothing was ever touched in it.
            unsafe { sys::mmap(Mmap::fixed(slot, protection)) }.ok()?;
        }
        self.gigantic.areas.counters.left_to_smaller.fetch_add(1, Relaxed);
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
        if self.gigantic.areas.counters.added.load(Relaxed) > 0 && room::is_short() {
            return Outcome::NoFrame;
        }
        match promote::promote(self.gigantic, self.gigantic.slots.containing(start)) {
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
        let gigantic = self.gigantic.count();
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
        let in_pool = self.gigantic.gives.pool.size();
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
            Act::Zero(PageSize::Gigantic) => match supply::prepare(self.gigantic) {
                Ok(page) => {
                    self.gigantic.ready.add(page);
                    Outcome::Done
                }
                Err(_) => Outcome::NoFrame,
            },
            Act::Promote { page, .. } => self.promote(page),
            _ => Outcome::Stale,
        })
    }
}
