//! The pager: memory of the program that lives in a file, of which a part is in memory at a time (xHeap).
//!
//! The areas are the heap. Nothing in it is mapped but by the pager, which is told of every touch of a missing page
//! ([`serve`]). Huge pages come from a pool of their own and go back to it: they are moved between the pool and the heap as a
//! whole, by UFFDIO_MOVE. Which page size serves a fault, and when base pages become a huge page, the policy says
//! ([`choose`]); what leaves memory, [`reclaim`] does. [`table`] has the states of a range.
//!
//! Different from the paper (sections 2.1 to 2.3):
//!
//! - There is no kernel module, so a page in the heap has no accessed and no dirty bit. A huge page has its second chance
//!   when it is moved out of the heap: if it is touched before it is reclaimed, it comes back. It was written if its hash has
//!   changed, and so was a base page ([`hashes`]), which is spared by how soon it was touched again after it had left memory
//!   ([`rounds`]).
//! - Base pages come from the kernel and not from a pool that is set aside; so many of them may be there at a time.
//!   UFFDIO_MOVE cannot put a page in place whose writes are told.
//! - One clock for each pool, not one for each core: its lock is held for microseconds.
//! - Reads and writes are pread and pwrite of eight fault threads and four workers, not io_uring, which buys nothing here
//!   (docs/results/own.md, heap-redis). So eight faults wait for the disk at a time, and the others behind them.
//! - A fault that finds no free page reclaims the oldest, also where that has to be written first.
//! - Ranges that come in order are read ahead ([`streams`]).

#![expect(unsafe_code, reason = "maps and moves memory")]

mod advice;
mod child;
mod choose;
mod discard;
mod family;
mod file;
mod fork;
pub(crate) mod handover;
mod hashes;
mod heap;
mod promotions;
mod protected;
mod reclaim;
mod resize;
mod rounds;
mod serve;
mod streams;
mod table;

use crate::areas::Areas;
use crate::end;
use crate::lock::OwnLock;
use crate::start::zeroed;
use crate::sys::{self, Descriptor, Errno, HUGE, Mmap, PAGE, Result, Span};
use crate::thread;
use crate::uffd::Userfaultfd;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use family::Claim;
use family::Family;
use file::{File, FilePage, FileSpace};
use fork::Gate;
use hashes::Hashes;
pub(crate) use heap::Heap;
use reclaim::Worked;
use resize::Size;
use rounds::Rounds;
use superpage_launch::{Counters, Heap as Config, SPARE};
use superpage_units::{Bytes, Nanos};
use table::{Range, Table};

/// The base pages of a range.
const PER_RANGE: usize = HUGE / PAGE;
const WORDS: usize = PER_RANGE / 64;

/// The threads that serve faults: so many may wait for the device at a time (docs/results/own.md, heap-random).
pub(crate) const FAULT_THREADS: usize = 8;

/// The threads that work ahead of the program. 512 MiB in 256 MiB of memory are read in 0.22 s with 4 of them, 0.51 s with one,
/// 0.24 s with 2 and with 8, and written in 0.90, 1.19, 1.09 and 1.00 s (medians of three rounds).
pub(crate) const WORKERS: usize = 4;

/// The rest of a worker after it found all pages pinned, or shared with a child: twice as long each time, so that after seven
/// looks it looks once a second.
const SHORTEST_REST: Nanos = Nanos(10_000_000);

/// The process whose pager it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The program's, which `superpage heap` is about.
    Programs,
    /// A child's of a fork.
    Childs,
}

/// The pager.
#[derive(Debug)]
pub(crate) struct Pager {
    heap: Span,
    uffd: &'static Userfaultfd,
    file: File,
    /// Which file it is.
    identity: (u64, u64),
    space: OwnLock<FileSpace>,
    /// Places for huge pages that are not in the heap.
    places: usize,
    /// Ranges of base pages' places, for those who move such.
    staging: OwnLock<Vec<usize>>,
    table: OwnLock<Table>,
    /// The page of the file that holds each page of the heap; zero if none does.
    stored: &'static [AtomicU32],
    /// The clock of base pages.
    rounds: Rounds,
    hashes: Hashes,
    /// The bytes that may be in memory.
    memory: Size,
    whose: Whose,
    /// Changed when there may be work.
    news: AtomicU32,
    /// Changed when a range is settled, and the threads that wait for one.
    settled: AtomicU32,
    waiters: AtomicU32,
    /// The hash of a huge page of zeroes.
    zeroes: u128,
    counters: &'static Counters,
    /// Each thread that works in the pager passes this gate.
    gate: Gate,
    /// Until when somebody may write to memory without its page tables, on the monotonic clock, as far as is known.
    unseen_writes: AtomicU64,
    /// Until when no fault thread looks for a base page that leaves, on the monotonic clock.
    base_stuck_until: AtomicU64,
    /// Whether a page could not be read, and is marked in the page tables.
    has_marks: AtomicBool,
}

impl Pager {
    /// A pager of the areas, all of which it has told. Children of forks share memory with it in the file `shared`.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(
        span: Span,
        uffd: &'static Userfaultfd,
        file: Descriptor,
        shared: &Descriptor,
        config: &Config,
        counters: &'static Counters,
    ) -> Result<Self> {
        let count = span.length / HUGE;
        let memory = Size::new(config);
        let pools = memory.pools();
        counters.heap.memory.store(config.memory.0, Relaxed);
        counters.heap.most.store(config.memory.0, Relaxed);
        // While the program forks, all of the heap may have to be in memory.
        let places = u32::try_from(count + 64).map_err(|_| Errno::EINVAL)?;
        let (pool, staging) = places_of_own(uffd, places)?;
        // SAFETY: the advice concerns page sizes only. khugepaged is not to look at the heap.
        unsafe { sys::madvise(span, libc::MADV_NOHUGEPAGE) }?;
        uffd.register_all(span)?;
        let blank = Span { start: *staging.first().ok_or(Errno::ENOMEM)?, length: HUGE };
        // SAFETY: a range's worth of memory that was just mapped, and holds zeroes.
        let zeroes = unsafe { core::slice::from_raw_parts(blank.start as *const u8, HUGE) };
        // SAFETY: zero bytes are atomic integers.
        let hashes = Hashes::new(unsafe { zeroed(count * PER_RANGE) }?)?;
        let zeroes = hashes.of(zeroes);
        // SAFETY: what was read there were pages of zeroes, and nothing may be there.
        unsafe { sys::madvise(blank, libc::MADV_DONTNEED) }?;
        // SAFETY: zero bytes are ranges that never held anything.
        let ranges = unsafe { zeroed::<Range>(count) }?;
        let family = Family::new(shared, Bytes(config.size.0 + SPARE.0))?.begin(&file)?;
        let rounds = Rounds::new(integers(count * PER_RANGE)?);
        Ok(Self {
            heap: span,
            uffd,
            identity: sys::file_identity(&file)?,
            file: File::new(file, family.length()),
            space: OwnLock::new(FileSpace::new(family)),
            places: pool.start,
            staging: OwnLock::new(staging),
            table: OwnLock::new(Table::new(ranges, pools, places)),
            stored: integers(count * PER_RANGE)?,
            rounds,
            hashes,
            memory,
            whose: Whose::Programs,
            news: AtomicU32::new(0),
            settled: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            zeroes,
            counters,
            gate: Gate::new(count * PER_RANGE)?,
            unseen_writes: AtomicU64::new(0),
            base_stuck_until: AtomicU64::new(0),
            has_marks: AtomicBool::new(false),
        })
    }

    /// Makes room in the file for `length` bytes of the program's memory.
    ///
    /// # Errors
    /// As of [`Family::make_room`].
    pub(crate) fn make_room(&self, length: usize) -> Result<()> {
        let family = self.space.with(|space| *space.family());
        family.make_room(length.div_ceil(PAGE), self.file.descriptor())
    }

    /// Makes a part of the areas heap again that was mapped anew and holds nothing.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn renew(&self, part: Span) -> Result<()> {
        // SAFETY: the advice concerns page sizes only.
        unsafe { sys::madvise(part, libc::MADV_NOHUGEPAGE) }?;
        self.uffd.register_all(part)
    }

    /// Works ahead of the program for ever.
    pub(crate) fn run(&self, areas: &Areas) {
        let mut rest = SHORTEST_REST;
        loop {
            let news = self.news.load(Acquire);
            let work = || {
                self.take_size();
                self.note_sizes();
                self.work(areas)
            };
            match self.gate.pass(work) {
                Worked::Done => rest = SHORTEST_REST,
                Worked::Nothing => {
                    sys::futex_wait_for(&self.news, news, sys::LOOK);
                    self.end_without_threads();
                }
                Worked::Stuck => {
                    sys::futex_wait_for(&AtomicU32::new(0), 0, rest);
                    rest = Nanos((2 * rest.0).min(sys::LOOK.0));
                }
            }
        }
    }

    /// Ends the program if one of the library's threads has ended: a range that it has taken over is settled by nobody, and
    /// who needs it would wait for ever.
    pub(crate) fn end_without_threads(&self) {
        if thread::one_has_ended() {
            self.counters.heap.failed.store(1, Relaxed);
            end_without_threads();
        }
    }

    /// Wakes so many workers, if they sleep.
    fn tell(&self, workers: usize) {
        self.news.fetch_add(1, Release);
        sys::futex_wake_some(&self.news, workers);
    }

    /// Where a range is.
    fn span(&self, range: usize) -> Span {
        Span { start: self.heap.start + range * HUGE, length: HUGE }
    }

    /// Where a place is.
    fn place(&self, place: u32) -> Span {
        Span { start: self.places + place as usize * HUGE, length: HUGE }
    }

    fn page(&self, range: usize, index: usize) -> Span {
        Span { start: self.span(range).start + index * PAGE, length: PAGE }
    }

    /// Takes a range over, after waiting for whoever is changing it.
    fn take_over(&self, range: usize) -> Option<Range> {
        loop {
            let settled = self.settled.load(Acquire);
            let taken =
                self.table.with(|table| (range < table.count()).then(|| table.take_over(range)))?;
            if taken.is_some() {
                return taken;
            }
            self.waiters.fetch_add(1, SeqCst);
            sys::futex_wait_for(&self.settled, settled, sys::LOOK);
            self.waiters.fetch_sub(1, SeqCst);
            self.end_without_threads();
        }
    }

    /// Lets go of a range, and wakes those who have met it meanwhile; whether there were any.
    fn settle(&self, range: usize, before: &Range, after: Range) -> bool {
        let was_touched = self.table.with(|table| table.settle(range, before, after));
        self.settled.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            sys::futex_wake(&self.settled);
        }
        if was_touched {
            self.uffd.wake(self.span(range));
        }
        was_touched
    }

    /// The hash of a huge page in the pool.
    fn hash(&self, place: u32) -> u128 {
        let Span { start, length } = self.place(place);
        // SAFETY: the page is in the pool, where nobody but who has taken it over touches it.
        self.hashes.of(unsafe { core::slice::from_raw_parts(start as *const u8, length) })
    }

    /// The page of the file that holds a page of the heap.
    fn stored(&self, range: usize, index: usize) -> Option<&AtomicU32> {
        self.stored.get(range * PER_RANGE + index)
    }

    /// Notes that a page of the file holds a page of the heap, or that none does (zero); the page that did is free.
    fn store(&self, range: usize, index: usize, page: FilePage, entry: &mut Range) {
        let before = self.stored(range, index).map_or(0, |stored| stored.swap(page, Relaxed));
        entry.stored = entry.stored + u16::from(page != 0) - u16::from(before != 0);
        if before != 0 {
            self.space.with(|space| space.free(before));
        }
    }

    /// Works with a range's worth of places for base pages, which is empty before and after.
    fn with_staging<T>(&self, work: impl FnOnce(Span) -> T) -> Option<T> {
        let start = self.staging.with(Vec::pop)?;
        let span = Span { start, length: HUGE };
        let done = work(span);
        // SAFETY: nobody needs what is left there.
        let _ = unsafe { sys::madvise(span, libc::MADV_DONTNEED) };
        self.staging.with(|staging| staging.push(start));
        Some(done)
    }

    fn note_sizes(&self) {
        // The report is about the program, not about its children.
        if self.whose == Whose::Childs {
            return;
        }
        let (huge, base) = self.table.with(|table| (table.huge().0, table.base));
        self.counters.heap.huge.store(huge as u64, Relaxed);
        self.counters.heap.base.store(base as u64, Relaxed);
    }
}

/// As [`Pager::end_without_threads`].
fn end_without_threads() {
    if thread::one_has_ended() {
        end::for_lack_of_a_thread();
    }
}

/// Memory of the pager's own, aligned for huge pages, of which a child of a fork has nothing.
fn mapped(length: usize, advice: i32) -> Result<Span> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let asked = Mmap::anywhere(length + HUGE, protection, libc::MAP_NORESERVE);
    // SAFETY: the kernel chooses an unused place.
    let start = unsafe { sys::mmap(asked) }?.next_multiple_of(HUGE);
    let span = Span { start, length };
    for advice in [advice, libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        // SAFETY: it was just mapped, and holds nothing.
        unsafe { sys::madvise(span, advice) }?;
    }
    Ok(span)
}

/// Memory of the pager's own: places for huge pages, and ranges of places for base pages.
fn places_of_own(uffd: &Userfaultfd, count: u32) -> Result<(Span, Vec<usize>)> {
    let pool = mapped(count as usize * HUGE, libc::MADV_HUGEPAGE)?;
    let staging = mapped((uffd.fault_threads() + WORKERS + 1) * HUGE, libc::MADV_NOHUGEPAGE)?;
    for target in [pool, staging] {
        uffd.register_target(target)?;
    }
    Ok((pool, (0..staging.length / HUGE).map(|at| staging.start + at * HUGE).collect()))
}

/// So many zeroes that live for ever.
fn integers(count: usize) -> Result<&'static [AtomicU32]> {
    // SAFETY: zero bytes are atomic integers.
    Ok(unsafe { zeroed::<AtomicU32>(count) }?)
}

/// The bytes of so many pages.
const fn bytes(pages: usize) -> Bytes {
    Bytes((pages * PAGE) as u64)
}
