//! The pager while the program forks: it stands still, so that a child finds its state whole.
//!
//! A child gets a pager of its own ([`child`](super::child)), which goes on with a copy of this one's state. So at the moment
//! of the fork no range may be changing, no lock of the library's may be held, and what a page holds that is not mapped must be in
//! the file. Who works in the pager passes a [`Gate`]. For a fork it is closed and everybody waits who wants to begin,
//! until all have ended; pages that wait outside the heap are brought back; and the child's references to the file are
//! made ([`family`](super::family)). Nothing of that touches the disk, but for the file, which may have to grow.
//!
//! Faults must be served all the same: a thread of the program that waits for one may hold a lock that libc's fork takes, such
//! as that of the list of open files. While the gate is shut faults are served in a way that changes nothing of the
//! state: a base page is put in place and noted, before, in a bitmap. After the fork the pager takes it into its state, and the
//! child's pager what of it has come to its memory.

use super::end_without_threads;
use super::family::Claim;
use super::serve::Buffer;
use super::table::{Hash, Range, State};
use super::{PER_RANGE, Pager, WORKERS};
use crate::areas::Areas;
use crate::sys::{self, PAGE, Result};
use crate::uffd::{Fault, Kind, Writes};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The pages that a word of the bitmap is about.
const PER_NOTE: usize = 32;

/// Everybody passes.
const OPEN: u32 = 0;
/// Nobody passes: the state is about to be whole, or to change again.
const CLOSED: u32 = 1;
/// Nobody passes but faults, which change nothing of the state.
const STILL: u32 = 2;

/// A gate that each thread passes which works in the pager.
#[derive(Debug)]
pub(super) struct Gate {
    state: AtomicU32,
    /// Those who have passed.
    inside: AtomicU32,
    /// The pages of the heap that are being put in place at the fork.
    pub(super) coming: Notes,
    /// The pages among `coming` that are in place. The kernel puts no page into a VMA that it has copied, until the fork is over: so a
    /// page that the child finds noted here was in place before.
    pub(super) put: Notes,
}

/// A bit for each page of the heap.
#[derive(Debug)]
pub(super) struct Notes(&'static [AtomicU32]);

impl Notes {
    fn new(pages: usize) -> Result<Self> {
        Ok(Self(super::integers(pages.div_ceil(PER_NOTE))?))
    }

    /// Notes a page of the heap.
    fn add(&self, page: usize) {
        if let Some(notes) = self.0.get(page / PER_NOTE) {
            notes.fetch_or(1 << (page % PER_NOTE), SeqCst);
        }
    }

    /// Takes the note of a page back.
    fn remove(&self, page: usize) {
        if let Some(notes) = self.0.get(page / PER_NOTE) {
            notes.fetch_and(!(1 << (page % PER_NOTE)), SeqCst);
        }
    }

    /// Whether a page was noted.
    pub(super) fn has(&self, page: usize) -> bool {
        let notes = self.0.get(page / PER_NOTE);
        notes.is_some_and(|notes| notes.load(SeqCst) & 1 << (page % PER_NOTE) != 0)
    }

    /// Takes all notes; the pages.
    fn take(&self) -> impl Iterator<Item = usize> + use<'_> {
        let taken = self.0.iter().enumerate().map(|(word, notes)| (word, notes.swap(0, SeqCst)));
        taken.filter(|(_, notes)| *notes != 0).flat_map(|(word, notes)| {
            let bits = (0..PER_NOTE).filter(move |bit| notes & 1 << bit != 0);
            bits.map(move |bit| word * PER_NOTE + bit)
        })
    }
}

impl Gate {
    /// An open one, of a heap of so many pages.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(pages: usize) -> Result<Self> {
        Ok(Self {
            state: AtomicU32::new(OPEN),
            inside: AtomicU32::new(0),
            coming: Notes::new(pages)?,
            put: Notes::new(pages)?,
        })
    }

    /// Asserts that nobody is inside who may not be. Nobody passes or turns the gate meanwhile.
    #[cfg(test)]
    fn check(&self) {
        let (state, inside) = (self.state.load(SeqCst), self.inside.load(SeqCst));
        assert!([OPEN, CLOSED, STILL].contains(&state), "{state} is no state");
        assert!(state != CLOSED || inside == 0, "{inside} are inside a closed gate");
    }

    /// Passes while the gate is open, or in this state, in which the caller is inside then.
    fn enter(&self, also: u32) -> u32 {
        loop {
            let state = self.state.load(SeqCst);
            if state == OPEN || state == also {
                self.inside.fetch_add(1, SeqCst);
                if self.state.load(SeqCst) == state {
                    return state;
                }
                self.leave();
            } else {
                sys::futex_wait_for(&self.state, state, sys::LOOK);
                end_without_threads();
            }
        }
    }

    fn leave(&self) {
        if self.inside.fetch_sub(1, SeqCst) == 1 && self.state.load(SeqCst) == CLOSED {
            sys::futex_wake(&self.inside);
        }
    }

    /// Works once the gate is open.
    pub(super) fn pass<T>(&self, work: impl FnOnce() -> T) -> T {
        self.enter(OPEN);
        let done = work();
        self.leave();
        done
    }

    fn turn(&self, state: u32) {
        self.state.store(state, SeqCst);
        sys::futex_wake(&self.state);
    }

    /// Waits until nobody is inside any more.
    fn close(&self) {
        self.turn(CLOSED);
        loop {
            match self.inside.load(SeqCst) {
                0 => return,
                inside => {
                    sys::futex_wait_for(&self.inside, inside, sys::LOOK);
                    end_without_threads();
                }
            }
        }
    }
}

impl Pager {
    /// Stands still for a fork, until [`Pager::go_on`]; the reference to the file that the child begins with.
    ///
    /// # Errors
    /// EBUSY where other mappings of the program's lie in the heap, and what [`Family::expect`](super::family::Family::expect)
    /// says.
    pub(crate) fn stand_still(&self) -> Result<Claim> {
        self.table.with(|table| table.is_held = true);
        self.gate.close();
        // A page that could not be read is marked in the page tables, which the child's pager could not tell from others.
        let has_marks = self.has_marks.load(Relaxed);
        let whole = if has_marks { Err(sys::Errno::EIO) } else { self.bring_all_back() };
        let stood = whole
            .and_then(|()| self.space.with(|space| space.family().expect(self.file.descriptor())));
        match stood {
            Ok(_) => self.gate.turn(STILL),
            Err(_) => self.go_on(),
        }
        stood
    }

    /// The fork is over, or there was none.
    pub(crate) fn go_on(&self) {
        if self.gate.state.load(SeqCst) == OPEN {
            return;
        }
        self.gate.close();
        self.gate.put.take().for_each(drop);
        self.gate.coming.take().for_each(|page| self.take_in(page));
        self.table.with(|table| table.is_held = false);
        self.gate.turn(OPEN);
        self.tell(WORKERS);
    }

    /// The child will not come.
    pub(crate) fn forget_child(&self, claim: Claim) {
        self.space.with(|space| space.family().retract(claim));
    }

    /// The number of the heap's file in the table of the library's threads.
    pub(crate) fn descriptor(&self) -> i32 {
        self.file.descriptor().0
    }

    fn bring_all_back(&self) -> Result<()> {
        for range in 0..self.table.with(|table| table.count()) {
            let Some(entry) = self.entry(range) else { continue };
            if entry.is_mixed {
                return Err(sys::Errno::EBUSY);
            }
            if entry.state == State::Waiting
                && let Some(before) = self.take_over(range)
            {
                let after = self.bring_back(range, before);
                self.settle(range, &before, after);
            }
        }
        Ok(())
    }

    pub(super) fn entry(&self, range: usize) -> Option<Range> {
        self.table.with(|table| table.range(range).copied())
    }

    /// A base page is in its place that was noted. Writes to it were not told.
    pub(super) fn take_in(&self, page: usize) {
        let (range, index) = (page / PER_RANGE, page % PER_RANGE);
        let Some(before) = self.take_over(range) else { return };
        let mut after = before;
        if matches!(before.state, State::Out | State::Base) {
            after = Range { state: State::Base, hash: Hash::UNKNOWN, has_tables: true, ..before };
            after.resident.add(index);
            after.dirty.add(index);
        }
        self.settle(range, &before, after);
    }

    /// Serves a fault, also while the program forks.
    pub(crate) fn serve_always(&self, areas: &Areas, fault: Fault) {
        if self.gate.enter(STILL) == OPEN {
            self.serve(areas, fault);
        } else {
            self.serve_at_fork(fault);
        }
        self.gate.leave();
    }

    /// Serves a fault without changing anything of the state.
    fn serve_at_fork(&self, fault: Fault) {
        let number = (fault.address - self.heap.start) / PAGE;
        let (range, index) = (number / PER_RANGE, number % PER_RANGE);
        let Some(entry) = self.entry(range) else { return };
        let page = self.page(range, index);
        let is_there = entry.state == State::Base && entry.resident.has(index);
        if entry.state == State::Huge || fault.kind == Kind::WriteProtected && !is_there {
            // Nothing is to be done, unless the program had the kernel drop the page without the library's knowledge.
            if fault.kind == Kind::Missing {
                let _ = self.uffd.copy(Buffer::zeroes().address(), page.start, Writes::Free);
            }
        } else {
            self.gate.coming.add(number);
            match fault.kind {
                Kind::WriteProtected => self.uffd.allow_writes(page),
                Kind::Missing => {
                    // The program had the kernel drop a page that is there.
                    let is_put = match is_there {
                        true => self.put_copy(Buffer::zeroes().address(), page.start),
                        false => self.put_stored(range, index),
                    };
                    if is_put {
                        self.gate.put.add(number);
                    } else {
                        self.gate.coming.remove(number);
                        // This mark changes the state, but it does no harm in a copy that has it too soon.
                        self.table.with(|table| table.note_mark(range));
                    }
                }
            }
        }
        self.uffd.wake(page);
    }

    /// Puts a base page in its place, with what the file holds for it; whether one is there.
    fn put_stored(&self, range: usize, index: usize) -> bool {
        let mut buffer = Buffer::zeroes();
        if self.read_base(range, index, &mut buffer).is_err() {
            return false;
        }
        self.counters.heap.base_faults.fetch_add(1, Relaxed);
        self.put_copy(buffer.address(), self.page(range, index).start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicU64;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    /// The pages of the heap that random programs note, some more than the last word of the notes has.
    const PAGES: usize = 3 * PER_NOTE + 5;

    /// A step of a random program.
    #[derive(Clone, Debug)]
    enum Step {
        Add(usize),
        Remove(usize),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..PAGES).prop_map(Step::Add),
            4 => (0..PAGES).prop_map(Step::Remove),
            1 => Just(Step::Take),
        ]
    }

    proptest! {
        #[test]
        fn notes_are_a_set_of_pages(steps in prop::collection::vec(step(), 1..100)) {
            let notes = Notes::new(PAGES).expect("there is memory");
            let mut model = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Add(page) => {
                        notes.add(page);
                        model.insert(page);
                    }
                    Step::Remove(page) => {
                        notes.remove(page);
                        model.remove(&page);
                    }
                    Step::Take => {
                        let taken = core::mem::take(&mut model).into_iter().collect::<Vec<_>>();
                        assert_eq!(notes.take().collect::<Vec<_>>(), taken);
                    }
                }
                let noted = (0..PAGES).filter(|page| notes.has(*page));
                assert_eq!(noted.collect::<BTreeSet<_>>(), model);
            }
        }
    }

    #[test]
    fn pages_that_no_heap_has_are_not_noted() {
        let notes = Notes::new(1).expect("there is memory");
        notes.add(10 * PAGES);
        notes.remove(10 * PAGES);
        assert!(!notes.has(10 * PAGES) && notes.take().next().is_none());
    }

    #[test]
    fn nobody_works_behind_a_closed_gate() {
        const TIMES: u64 = 300;
        let gate = Gate::new(1).expect("there is memory");
        let (passed, faults) = (AtomicU64::new(0), AtomicU64::new(0));
        let count = || (passed.load(SeqCst), faults.load(SeqCst));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        gate.pass(|| passed.fetch_add(1, SeqCst));
                        std::thread::yield_now();
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..TIMES {
                    let state = gate.enter(STILL);
                    assert!(state == OPEN || state == STILL);
                    faults.fetch_add(1, SeqCst);
                    gate.leave();
                }
            });
            for _ in 0..50 {
                gate.close();
                let closed = count();
                std::thread::yield_now();
                assert_eq!(count(), closed, "somebody worked behind the closed gate");
                gate.turn(STILL);
                std::thread::yield_now();
                gate.close();
                assert_eq!(count().0, closed.0, "none but faults passed");
                gate.turn(OPEN);
                std::thread::yield_now();
            }
        });
        gate.close();
        gate.check();
        assert_eq!(count(), (2 * TIMES, TIMES));
    }

    #[test]
    fn who_waits_at_a_gate_is_woken_and_does_not_look_again_first() {
        let gate = Gate::new(1).expect("there is memory");
        let fastest = |wait: fn(&Gate), begin: fn(&Gate), end: fn(&Gate)| {
            let woken_after = || {
                begin(&gate);
                std::thread::scope(|scope| {
                    let waiting = scope.spawn(|| {
                        wait(&gate);
                        Instant::now()
                    });
                    std::thread::sleep(Duration::from_millis(20));
                    let ended = Instant::now();
                    end(&gate);
                    waiting.join().expect("it does not panic") - ended
                })
            };
            (0..3).map(|_| woken_after()).min().expect("there were some")
        };
        let soon = Duration::from_nanos(sys::LOOK.0 / 2);
        let open = |gate: &Gate| gate.turn(OPEN);
        assert!(fastest(|gate| gate.pass(|| ()), Gate::close, open) < soon, "a closed gate opens");
        let enter = |gate: &Gate| {
            gate.turn(OPEN);
            gate.enter(OPEN);
        };
        assert!(fastest(Gate::close, enter, Gate::leave) < soon, "the last one leaves");
    }
}
