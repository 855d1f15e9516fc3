//! The supply of gigantic pages while a program runs: enlarges the kernel's pool when the library asks, and gives free
//! pages back when memory gets short.

use rustix::thread::futex::{self, Timespec};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use superpage_kernel::hugetlb::{self, Pool};
use superpage_kernel::meminfo;
use superpage_kernel::settings::{Mode, RUN, STATE_DIRECTORY, Settings};
use superpage_launch::Counters;
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES};

/// The part of memory that stays available: nothing is taken for gigantic pages below it. Chosen, not
/// measured.
const KEPT: u64 = 8; // an eighth

/// The time between two looks at memory, while the pool is larger than it was. Chosen, not measured.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The most requests that are answered at once, each by a page. Chosen: they come from as many processes.
const MOST: u32 = 16;

/// So many waiting threads are woken.
const ALL: u32 = u32::MAX >> 1;

/// Has [`Supply::serve`] look whether the program has ended, by what looks like one more request.
pub(super) fn wake(counters: &Counters) {
    counters.asked.fetch_add(1, Release);
    let _ = futex::wake(&counters.asked, futex::Flags::empty(), ALL);
}

/// The gate to the kernel's settings, while the pool may be enlarged through it. Put back when dropped.
#[derive(Debug)]
pub(super) struct Supply {
    settings: Settings,
    /// The pages that were added to the pool and not given back.
    added: u64,
    /// The pool's size as we left it.
    left: Option<u64>,
}

impl Supply {
    /// The right to enlarge the pool; the reason, as a sentence, if there is none.
    /// Before the program starts: the library asks nobody unless the counters say that there is a supply.
    pub(super) fn open(counters: &Counters) -> Result<Self, String> {
        hugetlb::read(Path::new("/sys")).map_err(|error| format!("there is no pool: {error}"))?;
        let (settings, _) = Settings::open(&Path::new(STATE_DIRECTORY).join(RUN), Mode::Apply)
            .map_err(|error| format!("the pool cannot be enlarged: {error}"))?;
        counters.supply.store(1, Relaxed);
        Ok(Self { settings, added: 0, left: None })
    }

    /// Answers the library's requests until `ended` is set and [`wake`] is called.
    pub(super) fn serve(&mut self, counters: &Counters, ended: &AtomicBool) {
        loop {
            let asked = counters.asked.load(Acquire);
            if ended.load(Acquire) {
                // A child may live on, and ask.
                counters.supply.store(0, Relaxed);
                return;
            }
            if counters.answered.load(Relaxed) == asked {
                let limit = (self.added > 0).then_some(&LOOK);
                let _ = futex::wait(&counters.asked, futex::Flags::empty(), asked, limit);
                self.give_back();
                self.tell(counters);
                continue;
            }
            for _ in 0..asked.wrapping_sub(counters.answered.load(Relaxed)).min(MOST) {
                self.enlarge(counters);
            }
            counters.answered.store(asked, Release);
            let _ = futex::wake(&counters.answered, futex::Flags::empty(), ALL);
        }
    }

    /// Adds a page to the pool, unless memory is short. The library sees that this failed when it finds none.
    fn enlarge(&mut self, counters: &Counters) {
        let Some(pool) = self.pool() else { return };
        if !is_short(Bytes(GIGANTIC_PAGE_BYTES)) {
            let grew = self.set(pool.size + 1).is_some_and(|size| size > pool.size);
            self.added += u64::from(grew);
            self.tell(counters);
        }
    }

    /// Tells the library how many pages it can have made into memory.
    fn tell(&self, counters: &Counters) {
        counters.added.store(u32::try_from(self.added).unwrap_or(u32::MAX), Relaxed);
    }

    /// The pool now. If somebody else has set it meanwhile, that is where we go on from: our pages are theirs.
    fn pool(&mut self) -> Option<Pool> {
        let pool = hugetlb::read(Path::new("/sys")).ok()?;
        if self.left.is_some_and(|left| left != pool.size) {
            // The record holds values of ours only, so that theirs stays.
            self.settings.restore().ok()?;
            (self.added, self.left) = (0, None);
        }
        Some(pool)
    }

    /// Takes a free page out of the pool that was added to it, if memory is short. The library demotes what holds
    /// little and lets go of what is ready then.
    fn give_back(&mut self) {
        if self.added == 0 || !is_short(Bytes(0)) {
            return;
        }
        let Some(pool) = self.pool() else { return };
        if self.added > 0 && pool.free > 0 {
            let shrank = self.set(pool.size - 1).is_some_and(|size| size < pool.size);
            self.added -= u64::from(shrank);
        }
    }

    /// Sets the pool's size; what it is then.
    fn set(&mut self, pages: u64) -> Option<u64> {
        let setting = hugetlb::setting(Path::new("/sys"));
        let change = self.settings.change(&setting, &pages.to_string()).ok()?;
        self.left = change.to.parse().ok();
        self.left
    }
}

/// Whether too little memory would be available if so much more were taken; also where that cannot be found out.
fn is_short(more: Bytes) -> bool {
    meminfo::read(Path::new("/proc"))
        .map_or(true, |memory| memory.available.0.saturating_sub(more.0) < memory.total.0 / KEPT)
}
