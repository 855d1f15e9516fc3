//! The supply of gigantic pages while a program runs: enlarges the kernel's pool when the library asks.

use rustix::thread::futex;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use superpage_kernel::settings::{Mode, RUN, STATE_DIRECTORY, Settings};
use superpage_kernel::{hugetlb, meminfo};
use superpage_launch::Counters;
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES};

/// The part of memory that stays available: nothing is taken for gigantic pages below it. Chosen, not
/// measured.
const KEPT: u64 = 8; // an eighth

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
}

impl Supply {
    /// The right to enlarge the pool; the reason, as a sentence, if there is none.
    /// Before the program starts: the library asks nobody unless the counters say that there is a supply.
    pub(super) fn open(counters: &Counters) -> Result<Self, String> {
        hugetlb::read(Path::new("/sys")).map_err(|error| format!("there is no pool: {error}"))?;
        let (settings, _) = Settings::open(&Path::new(STATE_DIRECTORY).join(RUN), Mode::Apply)
            .map_err(|error| format!("the pool cannot be enlarged: {error}"))?;
        counters.supply.store(1, Relaxed);
        Ok(Self { settings })
    }

    /// Answers the library's requests until `ended` is set and [`wake`] is called.
    pub(super) fn serve(&mut self, counters: &Counters, ended: &AtomicBool) {
        loop {
            let asked = counters.asked.load(Acquire);
            if ended.load(Acquire) {
                return;
            }
            if counters.answered.load(Relaxed) == asked {
                let _ = futex::wait(&counters.asked, futex::Flags::empty(), asked, None);
                continue;
            }
            self.enlarge();
            counters.answered.store(asked, Release);
            let _ = futex::wake(&counters.answered, futex::Flags::empty(), ALL);
        }
    }

    /// Adds a page to the pool, unless memory is short. The library sees that this failed when it finds none.
    fn enlarge(&mut self) {
        let Ok(pool) = hugetlb::read(Path::new("/sys")) else { return };
        let Ok(memory) = meminfo::read(Path::new("/proc")) else { return };
        let left = memory.available.0.saturating_sub(GIGANTIC_PAGE_BYTES);
        if Bytes(left) < Bytes(memory.total.0 / KEPT) {
            return;
        }
        let wanted = (pool.size + 1).to_string();
        let _ = self.settings.change(&hugetlb::setting(Path::new("/sys")), &wanted);
    }
}
