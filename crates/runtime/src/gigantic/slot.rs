//! The state of each slot: what maps it, and who is changing that.
//!
//! ```text
//!              mmap                first touch
//!   Ordinary ────────▶ Fresh ─────▶ Serving ─────▶ Gigantic
//!      ▲  ▲              │             │               │
//!      │  └── released ──┘             │               │ a part is changed, a fork
//!      ├──── no gigantic page was free ┘               ▼
//!      ├────────────────────────────────────────── Changing ──▶ Gigantic
//!      └───────────── promotion ──────────────────────▲
//! ```
//!
//! Threads change a state by one compare-and-exchange, and hold no lock meanwhile: a thread of the
//! program may stop anywhere, waiting for a fault that another thread must serve. While somebody changes a slot, its word holds the
//! number of that thread too.

use crate::numbered::numbered;
use crate::sys::{self, GIGANTIC, Span};
use crate::{end, thread};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;

numbered! {
    /// The mapping of a slot, and who is changing it.
    pub(super) enum State {
        /// Whatever the kernel has mapped: nothing, base pages, huge pages. All zero bytes are this.
        Ordinary,
        /// Nothing; the first touch is told to the library.
        Fresh,
        /// A fault thread serves its first touch.
        Serving,
        /// One gigantic page maps the slot.
        Gigantic,
        /// Somebody unmaps its gigantic page, copies it to smaller pages, or copies smaller pages to a gigantic one.
        Changing,
    }
}

impl State {
    /// Whether the state lasts until somebody changes it, so that there is nobody to wait for.
    pub(super) const fn is_settled(self) -> bool {
        matches!(self, Self::Ordinary | Self::Fresh | Self::Gigantic)
    }
}

/// The states of all slots.
#[derive(Debug)]
pub(super) struct Slots {
    base: usize,
    states: &'static [AtomicU32],
}

impl Slots {
    /// Slots from `base` on, all ordinary: the words are all zero.
    pub(super) const fn new(base: usize, states: &'static [AtomicU32]) -> Self {
        Self { base, states }
    }

    /// Asserts that each word is a state.
    #[cfg(test)]
    fn check(&self) {
        for word in self.states {
            let (state, changer) = read(word.load(SeqCst));
            assert_eq!(state.is_settled(), changer == 0, "a state that lasts is nobody's");
        }
    }

    /// The number of slots.
    pub(super) const fn count(&self) -> usize {
        self.states.len()
    }

    /// The slot that holds this address.
    pub(super) const fn containing(&self, address: usize) -> usize {
        (address - self.base) / GIGANTIC
    }

    /// Where a slot is.
    pub(super) const fn span(&self, slot: usize) -> Span {
        Span::gigantic(self.base + slot * GIGANTIC)
    }

    /// Its state; that of a slot that does not exist is ordinary.
    pub(super) fn state(&self, slot: usize) -> State {
        self.states.get(slot).map_or(State::Ordinary, |word| read(word.load(SeqCst)).0)
    }

    /// Changes the state, if it is `from`, which lasts.
    pub(super) fn begin(&self, slot: usize, from: State, to: State) -> bool {
        self.states.get(slot).is_some_and(|word| {
            word.compare_exchange(written(from), written(to), SeqCst, SeqCst).is_ok()
        })
    }

    /// Ends a change: those who wait for it go on.
    pub(super) fn settle(&self, slot: usize, state: State) {
        if let Some(word) = self.states.get(slot) {
            word.store(written(state), SeqCst);
            sys::futex_wake(word);
        }
    }

    /// The state, once nobody is changing it. The kernel may end one thread alone (seccomp), which may have been at work in the slot.
    pub(super) fn wait(&self, slot: usize) -> State {
        let Some(word) = self.states.get(slot) else { return State::Ordinary };
        loop {
            let found = word.load(SeqCst);
            let (state, changer) = read(found);
            if state.is_settled() {
                return state;
            }
            sys::futex_wait_for(word, found, sys::LOOK);
            if word.load(SeqCst) == found
                && thread::has_ended(changer)
                && word.load(SeqCst) == found
            {
                end::for_lack_of_a_thread();
            }
        }
    }
}

/// The bits of a word that hold the state; the number of the thread that changes the slot lies above them.
const BITS: u32 = 3;

/// The word for a state: one that does not last is the calling thread's.
fn written(state: State) -> u32 {
    let changer = if state.is_settled() { 0 } else { sys::thread() };
    changer << BITS | state as u32
}

/// The state in a word, and the thread that changes the slot; zero where nobody does.
fn read(word: u32) -> (State, u32) {
    let number = word & ((1 << BITS) - 1);
    (State::of(number).unwrap_or(State::Ordinary), word >> BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::Relaxed;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    fn slots(count: usize) -> Slots {
        let states: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
        Slots::new(3 * GIGANTIC, states.leak())
    }

    #[test]
    fn one_of_two_changes_a_state() {
        let slots = slots(2);
        assert_eq!(slots.state(1), State::Ordinary);
        assert!(slots.begin(1, State::Ordinary, State::Fresh));
        assert!(slots.begin(1, State::Fresh, State::Serving));
        assert!(!slots.begin(1, State::Fresh, State::Serving));
        assert_eq!((slots.state(0), slots.state(1)), (State::Ordinary, State::Serving));
        assert_eq!(slots.state(7), State::Ordinary);
    }

    #[test]
    fn who_waits_goes_on_when_the_state_is_settled() {
        let slots = slots(1);
        assert!(slots.begin(0, State::Ordinary, State::Changing));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| slots.wait(0));
            slots.settle(0, State::Gigantic);
            assert_eq!(waiting.join().expect("it does not panic"), State::Gigantic);
        });
    }

    #[test]
    fn an_address_is_in_the_slot_whose_span_holds_it() {
        let slots = slots(4);
        let address = 5 * GIGANTIC + 17;
        assert!(slots.span(slots.containing(address)).contains(address));
    }

    #[test]
    fn who_waits_is_woken_and_does_not_look_again_first() {
        let slots = slots(1);
        let woken_after = || {
            slots.settle(0, State::Changing);
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    slots.wait(0);
                    Instant::now()
                });
                std::thread::sleep(Duration::from_millis(20));
                let settled = Instant::now();
                slots.settle(0, State::Ordinary);
                waiting.join().expect("it does not panic") - settled
            })
        };
        let fastest = (0..3).map(|_| woken_after()).min().expect("there were some");
        assert!(fastest < Duration::from_nanos(sys::LOOK.0 / 2), "{fastest:?}");
    }

    #[test]
    fn one_thread_at_a_time_changes_a_slot() {
        const TIMES: u64 = 500;
        let slots = slots(2);
        // Adding in two steps loses some where two threads do it at once.
        let counts = [const { AtomicU64::new(0) }; 2];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (slots, count) = (&slots, &counts[thread % 2]);
                scope.spawn(move || {
                    for _ in 0..TIMES {
                        while !slots.begin(thread % 2, State::Ordinary, State::Changing) {
                            assert!(slots.wait(thread % 2).is_settled());
                        }
                        let before = count.load(Relaxed);
                        std::thread::yield_now();
                        count.store(before + 1, Relaxed);
                        slots.settle(thread % 2, State::Ordinary);
                    }
                });
            }
        });
        assert_eq!(counts.map(AtomicU64::into_inner), [2 * TIMES; 2]);
    }

    /// A step of a random program.
    #[derive(Clone, Debug)]
    enum Step {
        Begin(usize, State, State),
        Settle(usize, State),
        Wait(usize),
        Locate(usize),
    }

    fn step(count: usize) -> impl Strategy<Value = Step> {
        let state = || (0_u32..5).prop_filter_map("no such state", State::of);
        // One more than there are.
        let slot = move || 0..=count;
        prop_oneof![
            4 => (slot(), state(), state()).prop_map(|(slot, from, to)| Step::Begin(slot, from, to)),
            1 => (slot(), state()).prop_map(|(slot, state)| Step::Settle(slot, state)),
            1 => slot().prop_map(Step::Wait),
            1 => (0..count * GIGANTIC).prop_map(Step::Locate),
        ]
    }

    proptest! {
        #[test]
        fn the_states_are_those_of_a_list(steps in prop::collection::vec(step(3), 1..80)) {
            let slots = slots(3);
            let mut model = [State::Ordinary; 3];
            for step in steps {
                match step {
                    Step::Begin(slot, from, to) => {
                        let is_so = model.get(slot) == Some(&from);
                        assert_eq!(slots.begin(slot, from, to), is_so);
                        model.get_mut(slot).filter(|_| is_so).into_iter().for_each(|state| *state = to);
                    }
                    Step::Settle(slot, to) => {
                        slots.settle(slot, to);
                        model.get_mut(slot).into_iter().for_each(|state| *state = to);
                    }
                    Step::Wait(slot) => {
                        let state = model.get(slot).copied().unwrap_or(State::Ordinary);
                        let is_settled = ![State::Serving, State::Changing].contains(&state);
                        assert_eq!(state.is_settled(), is_settled);
                        if is_settled {
                            assert_eq!(slots.wait(slot), state);
                        }
                    }
                    Step::Locate(offset) => {
                        let address = 3 * GIGANTIC + offset;
                        let holds = |slot: &usize| slots.span(*slot).contains(address);
                        assert_eq!((0..3).filter(holds).collect::<Vec<_>>(), [slots.containing(address)]);
                    }
                }
                slots.check();
                assert_eq!(slots.count(), model.len());
                let states: Vec<State> = (0..3).map(|slot| slots.state(slot)).collect();
                assert_eq!(states, model);
            }
        }
    }
}
