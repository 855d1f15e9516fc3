//! Gigantic pages that nobody uses yet: taken from the kernel's pool and zeroed, ready to be moved over a
//! slot.
//!
//! A policy may have pages of 2 MiB set aside instead. 512 of those side by side serve as one gigantic page then: a slot
//! is mapped, demoted and given back as a whole all the same.

#![expect(unsafe_code, reason = "maps memory")]

use crate::sys::{self, Errno, GIGANTIC, Mmap, Result, Span};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use superpage_launch::MOST_READY;
use superpage_units::PageSize;

/// The pool of the kernel's from which slots are mapped, by the size of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    /// The pool of gigantic pages.
    Gigantic,
    /// The pool of huge pages.
    Huge,
}

impl Pool {
    /// The pool of pages of this size; there is none of base pages.
    pub(super) const fn of(size: PageSize) -> Self {
        match size {
            PageSize::Gigantic => Self::Gigantic,
            PageSize::Huge | PageSize::Base => Self::Huge,
        }
    }

    /// The size of its pages.
    pub(super) const fn size(self) -> PageSize {
        match self {
            Self::Gigantic => PageSize::Gigantic,
            Self::Huge => PageSize::Huge,
        }
    }

    /// The slots that pages in it could map that nobody has or was promised.
    pub(super) fn slots(self) -> u64 {
        let [free, reserved] = match self {
            Self::Gigantic => [
                c"/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
                c"/sys/kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages",
            ],
            Self::Huge => [
                c"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                c"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
            ],
        };
        let count = |path| sys::number(path).unwrap_or_default();
        count(free).saturating_sub(count(reserved)) * self.size().bytes().0 / GIGANTIC as u64
    }

    /// Pages that are used beyond the number that the pool is to have: this number of those that are given back become
    /// ordinary memory.
    pub(super) fn surplus(self) -> u64 {
        let path = match self {
            Self::Gigantic => c"/sys/kernel/mm/hugepages/hugepages-1048576kB/surplus_hugepages",
            Self::Huge => c"/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages",
        };
        sys::number(path).unwrap_or_default()
    }

    /// The flags of mmap for its pages.
    const fn flags(self) -> i32 {
        const SHIFT: i32 = 26;
        let log = match self {
            Self::Gigantic => 30,
            Self::Huge => 21,
        };
        libc::MAP_HUGETLB | log << SHIFT
    }
}

/// A gigantic page of zeroes that is mapped somewhere, and nobody's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GiganticPage(usize);

impl GiganticPage {
    /// Takes one from a pool of the kernel's and zeroes it, which takes 50 to 130 ms.
    ///
    /// # Errors
    /// ENOMEM if there is none, or a limit stands against it.
    pub(super) fn prepare(pool: Pool) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let asked = Mmap::anywhere(GIGANTIC, protection, pool.flags());
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { sys::mmap(asked) }?;
        let page = Self(start);
        let span = Span::gigantic(start);
        // A child that had it mapped would take another page from the pool when it is written to.
        // SAFETY: it was just mapped, and holds nothing.
        unsafe { sys::madvise(span, libc::MADV_DONTFORK) }?;
        // SAFETY: as above. An error, where a touch would be a signal.
        match unsafe { sys::madvise(span, libc::MADV_POPULATE_WRITE) } {
            Ok(_) => Ok(page),
            Err(errno) => {
                page.free();
                Err(if errno == Errno::EFAULT { Errno::ENOMEM } else { errno })
            }
        }
    }

    /// Moves it over a slot. Whatever was there is gone, at once for all threads.
    ///
    /// # Errors
    /// The error of the kernel; the page is free again then.
    ///
    /// # Safety
    /// The slot must hold nothing, or nothing that is still needed.
    pub(super) unsafe fn move_over(self, slot: Span) -> Result<()> {
        // SAFETY: the caller's promise.
        if let Err(errno) = unsafe { sys::move_over(self.0, slot.start) } {
            self.free();
            return Err(errno);
        }
        // SAFETY: advice that keeps what is there.
        let _ = unsafe { sys::madvise(slot, libc::MADV_DOFORK) };
        Ok(())
    }

    /// The address at which the page is mapped.
    pub(super) const fn start(&self) -> usize {
        self.0
    }

    /// Gives it back to the pool.
    pub(super) fn free(self) {
        // SAFETY: nobody uses it.
        let _ = unsafe { sys::munmap(self.0, GIGANTIC) };
    }
}

/// Gigantic pages that are ready.
#[derive(Debug)]
pub(super) struct Ready {
    wanted: AtomicUsize,
    pages: [AtomicUsize; MOST_READY],
}

impl Ready {
    /// None yet, and `wanted` of them wanted.
    pub(super) fn new(wanted: u32) -> Self {
        let wanted = usize::try_from(wanted).unwrap_or(MOST_READY).min(MOST_READY);
        Self {
            wanted: AtomicUsize::new(wanted),
            pages: [const { AtomicUsize::new(0) }; MOST_READY],
        }
    }

    /// The number of pages that are wanted.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.load(Acquire) as u64
    }

    /// The number of pages that are ready.
    pub(super) fn count(&self) -> u64 {
        self.pages.iter().filter(|page| page.load(Acquire) != 0).count() as u64
    }

    /// Asserts that no page is there twice, and none in a place that is not wanted. Nobody adds or closes meanwhile.
    #[cfg(test)]
    fn check(&self) {
        let pages = self.pages.each_ref().map(|page| page.load(Acquire));
        for (at, page) in pages.iter().enumerate().filter(|(_, page)| **page != 0) {
            assert!((at as u64) < self.wanted(), "no page lies behind those that are wanted");
            assert!(page.is_multiple_of(GIGANTIC), "a gigantic page is aligned");
            assert_eq!(pages.iter().filter(|other| *other == page).count(), 1, "one owner");
        }
    }

    /// Takes one.
    pub(super) fn take(&self) -> Option<GiganticPage> {
        let taken = self.pages.iter().map(|page| page.swap(0, AcqRel)).find(|start| *start != 0);
        taken.map(GiganticPage)
    }

    /// Forgets all: this is the child of a fork, in which they are not mapped.
    pub(super) fn forget(&self) {
        for page in &self.pages {
            page.store(0, Release);
        }
    }

    /// Adds one; it is free again if there is no room for it.
    pub(super) fn add(&self, page: GiganticPage) {
        let swap =
            |place: &&AtomicUsize| place.compare_exchange(0, page.0, AcqRel, Acquire).is_ok();
        let wanted = self.wanted.load(Acquire);
        if self.pages.iter().take(wanted).find(swap).is_none() {
            page.free();
        } else if self.wanted() == 0 {
            self.close(); // none is wanted any more since
        }
    }

    /// Frees all, and wants none any more.
    pub(super) fn close(&self) {
        self.wanted.store(0, Release);
        while let Some(page) = self.take() {
            page.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use core::sync::atomic::Ordering::SeqCst;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;
    use syscalls::{Sysno, syscall};

    /// Places for pages that the kernel does not choose for anything else: low, as it maps from above.
    const PLACES: usize = 1 << 44;
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    /// The first base page of what stands for a gigantic page.
    fn page() -> GiganticPage {
        let start = PLACES + NEXT.fetch_add(1, SeqCst) * GIGANTIC;
        let place = Span { start, length: sys::PAGE };
        // SAFETY: nobody else maps anything there.
        assert_eq!(unsafe { sys::mmap(Mmap::fixed(place, libc::PROT_NONE)) }, Ok(start));
        GiganticPage(start)
    }

    fn is_mapped(start: usize) -> bool {
        // SAFETY: nothing of the memory is touched.
        unsafe { syscall!(Sysno::msync, start, sys::PAGE, libc::MS_ASYNC) }.is_ok()
    }

    /// A step of a random program.
    #[derive(Clone, Debug)]
    enum Step {
        Add,
        TakeAndFree,
        Forget,
        Close,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => Just(Step::Add),
            12 => Just(Step::TakeAndFree),
            1 => Just(Step::Forget),
            1 => Just(Step::Close),
        ]
    }

    /// The pages that are ready, and those that the parent of a fork has.
    #[derive(Debug)]
    struct Model {
        wanted: usize,
        ready: BTreeSet<usize>,
        forgotten: Vec<usize>,
    }

    fn run(ready: &Ready, model: &mut Model, step: &Step) {
        match step {
            Step::Add => {
                let page = page();
                let start = page.start();
                let has_room = model.ready.len() < model.wanted;
                ready.add(page);
                assert_eq!(is_mapped(start), has_room, "a page without room is given back");
                if has_room {
                    model.ready.insert(start);
                }
            }
            Step::TakeAndFree => match ready.take() {
                Some(page) => {
                    assert!(model.ready.remove(&page.start()), "the page was ready");
                    page.free();
                }
                None => assert!(model.ready.is_empty()),
            },
            Step::Forget => {
                ready.forget();
                model.forgotten.extend(core::mem::take(&mut model.ready));
            }
            Step::Close => {
                ready.close();
                model.wanted = 0;
                assert!(!core::mem::take(&mut model.ready).into_iter().any(is_mapped));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_pages_that_are_ready_are_those_of_a_set(
            wanted in 0_u32..20,
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let ready = Ready::new(wanted);
            let most = MOST_READY.min(wanted as usize);
            let mut model = Model { wanted: most, ready: BTreeSet::new(), forgotten: Vec::new() };
            for step in steps {
                run(&ready, &mut model, &step);
                ready.check();
                let counts = (model.wanted as u64, model.ready.len() as u64);
                assert_eq!((ready.wanted(), ready.count()), counts);
                assert!(model.ready.iter().chain(&model.forgotten).all(|start| is_mapped(*start)));
            }
            ready.close();
            model.forgotten.into_iter().for_each(|start| GiganticPage(start).free());
        }
    }

    #[test]
    fn no_page_is_lost_or_given_twice_where_threads_add_and_take_while_all_is_closed() {
        const EACH: usize = 4;
        for _ in 0..150 {
            let ready = Ready::new(3);
            let pages: Vec<(usize, AtomicBool)> =
                (0..2 * EACH).map(|_| (page().0, AtomicBool::new(false))).collect();
            let taken = |page: GiganticPage| {
                let known = pages.iter().find(|(start, _)| *start == page.0);
                assert!(known.is_some_and(|(_, taken)| !taken.swap(true, SeqCst)));
                page.free();
            };
            // The threads begin as much at once as they can.
            let waiting = AtomicUsize::new(4);
            let begin = || {
                waiting.fetch_sub(1, SeqCst);
                while waiting.load(SeqCst) > 0 {
                    std::thread::yield_now();
                }
            };
            std::thread::scope(|scope| {
                for mine in pages.chunks(EACH) {
                    scope.spawn(|| {
                        begin();
                        mine.iter().for_each(|(start, _)| ready.add(GiganticPage(*start)));
                    });
                }
                scope.spawn(|| {
                    begin();
                    (0..EACH).for_each(|_| ready.take().into_iter().for_each(taken));
                });
                scope.spawn(|| {
                    begin();
                    ready.close();
                });
            });
            ready.check();
            assert!(!pages.iter().any(|(start, _)| is_mapped(*start)));
        }
    }
}
