//! The supply of gigantic pages, or of huge pages of the kernel's pool, while a program runs: enlarges the kernel's pool when the library asks, and gives free
//! pages back when memory gets short.

use rustix::thread::futex::{self, Timespec};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use superpage_kernel::meminfo;
use superpage_kernel::settings::{RUN, STATE_DIRECTORY};
use superpage_launch::{Counters, KEPT};
use superpage_manager::hugetlb_pool::HugetlbPool;
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, PageSize};

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

/// The kernel's pool, while it may be enlarged. Put back when dropped.
#[derive(Debug)]
pub(super) struct Supply {
    pool: HugetlbPool,
    /// The pages that map one slot of the library's.
    at_once: u64,
}

impl Supply {
    /// The right to enlarge the pool; the reason, as a sentence, if there is none.
    /// Before the program starts: the library asks nobody unless the counters say that there is a supply.
    pub(super) fn open(counters: &Counters, size: PageSize) -> Result<Self, String> {
        let (pool, _) = HugetlbPool::open(&Path::new(STATE_DIRECTORY).join(RUN), size)
            .map_err(|error| format!("the pool cannot be enlarged: {error}"))?;
        counters.supply.store(1, Relaxed);
        Ok(Self { pool, at_once: GIGANTIC_PAGE_BYTES / size.bytes().0 })
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
            let requests = asked.wrapping_sub(counters.answered.load(Relaxed));
            if requests == 0 {
                let limit = (self.pool.added() > 0).then_some(&LOOK);
                let _ = futex::wait(&counters.asked, futex::Flags::empty(), asked, limit);
                let _ = self.give_back();
            }
            for _ in 0..requests.min(MOST) {
                // The library sees that this failed when it finds no page.
                let _ = self.enlarge();
            }
            // The library is to know how many pages it can have made into memory before it goes on.
            let added = u32::try_from(self.pool.added()).unwrap_or(u32::MAX);
            counters.added.store(added, Relaxed);
            if requests > 0 {
                counters.answered.store(asked, Release);
                let _ = futex::wake(&counters.answered, futex::Flags::empty(), ALL);
            }
        }
    }

    /// Adds a slot's worth of pages to the pool, unless memory is short.
    fn enlarge(&mut self) -> superpage_kernel::Result<()> {
        let pool = self.pool.look()?;
        if !is_short(Bytes(GIGANTIC_PAGE_BYTES)) {
            self.pool.set(pool.size + self.at_once)?;
        }
        Ok(())
    }

    /// Takes as many free pages out of the pool that were added to it, if memory is short. The library demotes what holds
    /// little and lets go of what is ready then.
    fn give_back(&mut self) -> superpage_kernel::Result<()> {
        if self.pool.added() > 0 && is_short(Bytes::ZERO) {
            let pool = self.pool.look()?;
            let less = self.at_once.min(pool.free).min(self.pool.added());
            if less > 0 {
                self.pool.set(pool.size - less)?;
            }
        }
        Ok(())
    }
}

/// Whether too little memory would be available if so much more were taken; also where that cannot be found out.
fn is_short(more: Bytes) -> bool {
    meminfo::read(Path::new("/proc"))
        .map_or(true, |memory| memory.available.0.saturating_sub(more.0) < memory.total.0 / KEPT)
}
