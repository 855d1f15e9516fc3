//! The counters and requests of the library, in a file that `superpage run` has mapped as well, and `superpage heap` for a
//! moment.

#![expect(unsafe_code, reason = "looks at the words of the file as counters")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use superpage_units::{BASE_PAGE_BYTES, Bytes, Nanos, Pid};

/// The layout of [`Counters`], which both sides compare before they read a number.
pub const FORMAT: u64 = 13;

/// The reason why the library refused something or gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// No gigantic page was free in the kernel's pool.
    PoolEmpty,
    /// The program forks, and its gigantic pages would have to be copied for each child.
    Forked,
    /// There was no ordinary memory to copy a gigantic page to.
    NoMemory,
    /// A device or the kernel may write to memory of the program without its page tables, so a copy
    /// could miss what it writes.
    MayPin,
    /// A device or another process was writing to a page without the page tables, or a child shares it, so
    /// the page could not be moved.
    Pinned,
    /// A limit stands against the library's address space or data (RLIMIT_AS, RLIMIT_DATA), so the program runs unmanaged.
    Limited,
    /// The program is linked with a sanitizer, or runs under Valgrind, so it runs unmanaged.
    Instrumented,
    /// The process may not have a userfaultfd, so no first touch is told to the library, and writes can only be held
    /// while the program has one thread.
    NoRights,
    /// The program has a userfaultfd of its own, limits or locks its memory, or has mutexes that the kernel changes
    /// (robust ones, priority inheritance).
    NotWanted,
    /// The kernel refused a step.
    Kernel,
    /// A policy panicked, or the program had the kernel refuse the library's calls (seccomp). First touches are left to
    /// the kernel from then on.
    Failed,
}

impl Cause {
    /// All causes, in the order of their counters.
    pub const ALL: [Self; 11] = [
        Self::PoolEmpty,
        Self::Forked,
        Self::NoMemory,
        Self::MayPin,
        Self::Pinned,
        Self::Limited,
        Self::Instrumented,
        Self::NoRights,
        Self::NotWanted,
        Self::Kernel,
        Self::Failed,
    ];

    /// The cause as part of a sentence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PoolEmpty => "no gigantic page was free in the kernel's pool",
            Self::Forked => "the program had forked, and the time after that was not over",
            Self::MayPin => {
                "the program has a descriptor for direct I/O (O_DIRECT, io_uring, AIO, VFIO, RDMA, KVM)"
            }
            Self::Pinned => "a page was pinned, merged, or shared with a child",
            Self::NoMemory => "there was no memory to copy a gigantic page to",
            Self::Limited => {
                "the address space or data is limited (RLIMIT_AS, RLIMIT_DATA), so the program ran unmanaged"
            }
            Self::Instrumented => {
                "the program is linked with a sanitizer, or runs under Valgrind, so it ran unmanaged"
            }
            Self::NoRights => {
                "the program may not have a userfaultfd, so it has 1 GiB pages only while it has one thread"
            }
            Self::NotWanted => {
                "the program has a userfaultfd or robust mutexes, or limits or locks its memory"
            }
            Self::Kernel => "the kernel refused a step",
            Self::Failed => {
                "the library failed (the kernel refuses its calls, or a bug), and gave up first touches"
            }
        }
    }

    /// The cause as a JSON key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::PoolEmpty => "pool_empty",
            Self::Forked => "forked",
            Self::NoMemory => "no_memory",
            Self::MayPin => "may_pin",
            Self::Pinned => "pinned",
            Self::Limited => "limited",
            Self::Instrumented => "instrumented",
            Self::NoRights => "no_rights",
            Self::NotWanted => "not_wanted",
            Self::Kernel => "kernel",
            Self::Failed => "failed",
        }
    }
}

/// The number of refusals, by cause.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Refused([AtomicU64; Cause::ALL.len()]);

impl Refused {
    /// Counts one more.
    pub fn add(&self, cause: Cause) {
        if let Some(counter) = self.0.get(cause as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// The counts, with their causes.
    pub fn counts(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.into_iter().zip(self.0.iter().map(|counter| counter.load(Relaxed)))
    }
}

/// The number of classes of [`Waits`].
const CLASSES: usize = 4 * 40;

/// Waits by their length: four classes for each doubling, from 1 ns on.
#[derive(Debug)]
#[repr(C)]
pub struct Waits([AtomicU32; CLASSES]);

impl Default for Waits {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; CLASSES])
    }
}

impl Waits {
    /// Counts one.
    pub fn add(&self, time: Nanos) {
        let time = time.0.max(4);
        let log = time.ilog2();
        // The two bits behind the first.
        let quarter = time >> (log - 2) & 3;
        let class = (log as usize * 4 + quarter as usize).min(CLASSES - 1);
        self.0[class].fetch_add(1, Relaxed);
    }

    /// The time that this share of the waits does not exceed, to a quarter of it; nothing of none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let all: u64 = self.0.iter().map(|class| u64::from(class.load(Relaxed))).sum();
        let mut left = (all as f64 * share).max(1.0);
        let found = self.0.iter().position(|class| {
            left -= f64::from(class.load(Relaxed));
            left <= 0.0
        })?;
        let (log, quarter) = (found / 4, (found % 4) as u64);
        Some(Nanos(((5 + quarter) << log) / 4))
    }
}

/// The counters of a heap that may be larger than memory.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HeapCounters {
    /// Faults that a huge page served, from the file or of zeroes.
    pub huge_faults: AtomicU64,
    /// Faults that a base page served.
    pub base_faults: AtomicU64,
    /// Faults that found their page still in memory.
    pub soft_faults: AtomicU64,
    /// Faults of a first write to a base page that was clean.
    pub write_faults: AtomicU64,
    /// Ranges whose base pages became a huge page.
    pub promotions: AtomicU64,
    /// Ranges that were read before they were touched.
    pub read_ahead: AtomicU64,
    /// Bytes read from the file for huge pages.
    pub read_huge: AtomicU64,
    /// Bytes read from the file for base pages.
    pub read_base: AtomicU64,
    /// Bytes of huge pages written to the file.
    pub written_huge: AtomicU64,
    /// Bytes of base pages written to the file.
    pub written_base: AtomicU64,
    /// Huge pages that were reclaimed without being written.
    pub clean: AtomicU64,
    /// Pages that could not be moved when they were to be reclaimed.
    pub stuck: AtomicU64,
    /// Reads and writes of the file that failed.
    pub errors: AtomicU64,
    /// Not zero once the library could not go on, so that the program was ended.
    pub failed: AtomicU64,
    /// Huge pages that are in memory now.
    pub huge: AtomicU64,
    /// Base pages that are in memory now.
    pub base: AtomicU64,
    /// Ranges that were read before they were touched, and touched before they left memory.
    pub ahead_used: AtomicU64,
    /// The most that the program may have in the heap, in bytes.
    pub size: AtomicU64,
    /// The memory that the heap may take, in bytes, which the pager keeps to; zero before the heap holds anything.
    pub memory: AtomicU64,
    /// The memory that the heap may take while enough is available to others, in bytes; zero before it holds anything.
    pub most: AtomicU64,
    /// Bytes of mappings that had no room in the heap, so that they became ordinary memory.
    pub outside: AtomicU64,
    /// Bytes of anonymous mappings that are shared, which are never in the heap.
    pub shared: AtomicU64,
    /// The memory that the heap is to take, in bytes, as `superpage heap` wants it; zero if it has said nothing.
    pub wanted: AtomicU64,
    /// The nanoseconds that faults waited for which a huge page was brought in.
    pub waited_huge: AtomicU64,
    /// The nanoseconds that faults waited for a base page.
    pub waited_base: AtomicU64,
    /// The nanoseconds that faults waited whose page was still in memory.
    pub waited_soft: AtomicU64,
    /// The waits for faults that were served.
    pub waits: Waits,
}

/// The counters of the library. All are zero where it was never loaded.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// [`FORMAT`], written by the library.
    pub format: AtomicU64,
    /// The number of the process that is managed, as the process itself knows it; zero before there is one. With children
    /// that are managed too, the first of them.
    pub process: AtomicU64,
    /// Not zero once the program was ended because it waited for a thread that the kernel had ended alone (seccomp).
    pub lost_thread: AtomicU64,
    /// The most gigantic pages that ever mapped memory of one process.
    pub most_gigantic: AtomicU64,
    /// First touches that a gigantic page served.
    pub first_touches: AtomicU64,
    /// First touches that found a gigantic page zeroed ahead of time.
    pub prepared: AtomicU64,
    /// First touches of room for a gigantic page that were left to smaller pages.
    pub left_to_smaller: AtomicU64,
    /// Slots whose smaller pages were copied to a gigantic page later.
    pub promotions: AtomicU64,
    /// Gigantic pages that were copied to smaller ones, because the program changed a part of one or
    /// forked, or because memory was short.
    pub demotions: AtomicU64,
    /// The longest time that a first touch waited for a gigantic page, in nanoseconds.
    pub longest_first_touch: AtomicU64,
    /// The longest time that accesses, or only writes, were held while a slot was promoted, in nanoseconds.
    pub longest_promotion: AtomicU64,
    /// The longest time that writes were held while a gigantic page was demoted, in nanoseconds.
    pub longest_demotion: AtomicU64,
    /// The most memory of one process that the library had in its areas, in bytes.
    pub most_mapped: AtomicU64,
    /// Where no gigantic page could be used or demoted, by cause.
    pub refused: Refused,
    /// Whether `superpage run` can enlarge the kernel's pool of gigantic pages: 0 or 1.
    pub supply: AtomicU32,
    /// The pages that `superpage run` has added to the pool and not taken back: what the program gives up of those
    /// becomes memory.
    pub added: AtomicU32,
    /// The number of requests for one more gigantic page in the pool: a futex.
    pub asked: AtomicU32,
    /// The number of those requests that `superpage run` has dealt with: a futex.
    pub answered: AtomicU32,
    /// The counters of a heap that may be larger than memory.
    pub heap: HeapCounters,
}

#[expect(clippy::cast_possible_truncation, reason = "a page's size fits any integer")]
const PAGE: usize = BASE_PAGE_BYTES as usize;

/// The page that both sides have mapped, as words.
pub type Words = [AtomicU64; PAGE / size_of::<u64>()];

impl Counters {
    /// The counters at the beginning of a page.
    #[must_use]
    pub fn of(words: &Words) -> &Self {
        // SAFETY: counters are atomic integers, of which any bytes are a value, in no more than a page,
        // aligned as words are.
        unsafe { &*core::ptr::from_ref(words).cast() }
    }

    /// Has this process be the one that is managed; whether it is. The programs that a process executes one after the other
    /// are one process. A child of the program whose parent has ended may become a child of `superpage run`, and is not it.
    #[must_use]
    pub fn claim(&self, process: Pid) -> bool {
        let own = u64::from(process.0);
        self.process.compare_exchange(0, own, Relaxed, Relaxed).is_ok()
            || self.process.load(Relaxed) == own
    }

    /// Notes how many gigantic pages map memory of a process now.
    pub fn gigantic(&self, now: u64) {
        self.most_gigantic.fetch_max(now, Relaxed);
    }

    /// Notes how much memory a process has mapped now.
    pub fn mapped(&self, now: Bytes) {
        self.most_mapped.fetch_max(now.0, Relaxed);
    }

    /// Notes a wait, in one of the counters of the longest.
    pub fn waited(counter: &AtomicU64, time: Nanos) {
        counter.fetch_max(time.0, Relaxed);
    }
}

// `Counters::of` rests on these.
const _: () = assert!(size_of::<Counters>() <= size_of::<Words>());
const _: () = assert!(align_of::<Counters>() <= align_of::<Words>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_kept() {
        let counters = Counters::default();
        counters.gigantic(2);
        counters.gigantic(1);
        assert_eq!(counters.most_gigantic.load(Relaxed), 2);
    }

    #[test]
    fn quantiles_of_waits_are_right_to_a_quarter() {
        let waits = Waits::default();
        assert_eq!(waits.quantile(0.5), None);
        for time in 1..=1000 {
            waits.add(Nanos(time * 1000));
        }
        for (share, expected) in [(0.5, 500_000.0), (0.99, 990_000.0)] {
            let found = waits.quantile(share).expect("there are some").0 as f64;
            assert!((0.75..1.34).contains(&(found / expected)), "{share}: {found}");
        }
    }

    #[test]
    fn one_process_is_managed() {
        let counters = Counters::default();
        assert!(counters.claim(Pid(7)) && counters.claim(Pid(7)) && !counters.claim(Pid(8)));
    }

    #[test]
    fn each_cause_has_a_counter_of_its_own() {
        let refused = Refused::default();
        for (times, cause) in Cause::ALL.into_iter().enumerate() {
            for _ in 0..times {
                refused.add(cause);
            }
        }
        for (times, (cause, count)) in refused.counts().enumerate() {
            assert_eq!(count, times as u64, "{cause:?}");
        }
    }
}
