//! Programs for `superpage run`: one that touches a GiB for the first time, and one that writes to a GiB while
//! it is promoted. Both change their memory by libc, whose functions the library takes the place of.

#![expect(
    unsafe_code,
    reason = "maps memory by libc, and shares it among threads that have parts of it"
)]

use super::{Answer, Order, Origin, Play, Promoted, refused};
use crate::width::to_usize;
use crate::workload::rng::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use superpage_units::{BASE_PAGE_BYTES, GIGANTIC_PAGE_BYTES, Nanos};

const GIB: usize = to_usize(GIGANTIC_PAGE_BYTES);
const PAGE: usize = to_usize(BASE_PAGE_BYTES);
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Maps so many bytes, at `hint` if that is free.
fn map(hint: usize, length: usize, flags: i32) -> Result<*mut u8, String> {
    // SAFETY: a new mapping touches nothing of ours.
    let place = unsafe {
        libc::mmap(hint as *mut libc::c_void, length, READ_WRITE, PRIVATE | flags, -1, 0)
    };
    let failed = || format!("map memory: {}", std::io::Error::last_os_error());
    if place == libc::MAP_FAILED { Err(failed()) } else { Ok(place.cast()) }
}

/// Gives so many bytes back.
///
/// # Safety
/// Nothing may use them any more.
unsafe fn unmap(place: *mut u8, length: usize) -> Result<(), String> {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::munmap(place.cast(), length) };
    done_or(done, "unmap memory")
}

fn done_or(done: i32, what: &str) -> Result<(), String> {
    if done == 0 { Ok(()) } else { Err(format!("{what}: {}", std::io::Error::last_os_error())) }
}

/// Times the first touch of a GiB.
pub(super) struct FirstTouch {
    flags: i32,
}

impl FirstTouch {
    pub(super) fn new(from: Origin) -> Result<Self, String> {
        const HUGE_1GB: i32 = 30 << 26;
        if from == Origin::Pool {
            return Ok(Self { flags: libc::MAP_HUGETLB | HUGE_1GB });
        }
        // The library prepares pages for a program that is large.
        map(0, GIB, libc::MAP_NORESERVE)?;
        Ok(Self { flags: 0 })
    }
}

impl Play for FirstTouch {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        if order != Order::Go {
            return refused(order);
        }
        let memory = map(0, GIB, self.flags)?;
        let start = Instant::now();
        // SAFETY: it was just mapped.
        unsafe { memory.add(GIB / 2).write_volatile(1) };
        let nanos = nanos(start.elapsed());
        // SAFETY: nobody uses it.
        unsafe { unmap(memory, GIB) }?;
        Ok(Answer::Done { nanos })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes to a GiB from threads, each to pages of its own, while the GiB is promoted and demoted again.
pub(super) struct Written {
    memory: *mut u8,
    threads: usize,
    /// The time from one write of a thread to its next; `None` for as fast as possible.
    pace: Option<Duration>,
    /// The number that the first word of each page should hold. Each page is one thread's.
    expected: Vec<AtomicU64>,
    seed: u64,
}

/// The time in which writes are counted before a promotion. Chosen.
const BEFORE: Duration = Duration::from_millis(200);
/// A thread makes so many accesses before it adds them to those of all. Chosen: at 100,000 a second this is less than a
/// millisecond, at full speed it keeps the threads apart.
const COUNTED: u64 = 64;

impl Written {
    /// A GiB on smaller pages, and threads that write to it `writes` times a second together; a number of
    /// 0 stands for reading as fast as possible, none for writing as fast as possible.
    pub(super) fn new(threads: usize, writes: Option<u64>) -> Result<Self, String> {
        // In two parts, so that no first touch is one of a whole GiB.
        let memory = map(0, GIB, 0)?;
        // SAFETY: it was just mapped.
        let half = unsafe { memory.add(GIB / 2) };
        // SAFETY: as above.
        unsafe { unmap(half, GIB / 2) }?;
        if map(half.addr(), GIB / 2, 0)? != half {
            return Err("the memory is not in one piece".to_owned());
        }
        for page in 0..GIB / PAGE {
            // SAFETY: inside of what was mapped.
            unsafe { memory.add(page * PAGE).cast::<u64>().write_volatile(0) };
        }
        let pace = writes.filter(|writes| *writes > 0);
        let pace = pace.map(|writes| Duration::from_secs_f64(threads as f64 / writes as f64));
        let expected = (0..GIB / PAGE).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { memory, threads, pace, expected, seed: u64::from(writes == Some(0)) })
    }
}

/// The state that the threads share while they run.
#[derive(Debug, Default)]
struct Run {
    is_over: AtomicBool,
    is_promoting: AtomicBool,
    accesses: AtomicU64,
    /// The longest access since the promotion began, in nanoseconds.
    longest: AtomicU64,
    wrong: AtomicU64,
}

/// The memory, for threads that have pages of their own.
#[derive(Clone, Copy)]
struct Place(*mut u8);

// SAFETY: each page is one thread's.
unsafe impl Send for Place {}

impl Play for Written {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        if order != Order::Go {
            return refused(order);
        }
        let run = Run::default();
        self.seed += 2;
        let (took, before, meanwhile) = std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let (place, run, this) = (Place(self.memory), &run, Parts::of(self));
                scope.spawn(move || this.access(place, thread, run));
            }
            let rate = |counted: u64, time: Duration| counted as f64 / time.as_secs_f64();
            let start = Instant::now();
            std::thread::sleep(BEFORE);
            let until = run.accesses.load(Relaxed);
            let before = rate(until, start.elapsed());
            run.is_promoting.store(true, Relaxed);
            let start = Instant::now();
            // SAFETY: the advice concerns page sizes only.
            unsafe { libc::madvise(self.memory.cast(), GIB, libc::MADV_COLLAPSE) };
            let took = start.elapsed();
            let meanwhile = rate(run.accesses.load(Relaxed) - until, took);
            // Who was held goes on now, and says for how long.
            std::thread::sleep(BEFORE);
            run.is_over.store(true, Relaxed);
            (took, before, meanwhile)
        });
        self.demote()?;
        Ok(Answer::Promoted(Promoted {
            pause: Nanos(run.longest.into_inner()),
            took: Nanos(nanos(took)),
            accesses_per_s: before,
            accesses_per_s_meanwhile: meanwhile,
            accesses: run.accesses.into_inner(),
            wrong: run.wrong.into_inner(),
        }))
    }
}

impl Written {
    fn demote(&self) -> Result<(), String> {
        for protection in [READ_WRITE | libc::PROT_EXEC, READ_WRITE] {
            // SAFETY: nothing runs there.
            let done = unsafe { libc::mprotect(self.memory.cast(), PAGE, protection) };
            done_or(done, "change a page")?;
        }
        Ok(())
    }
}

/// The parts of [`Written`] that a thread uses.
#[derive(Clone, Copy)]
struct Parts<'a> {
    threads: usize,
    pace: Option<Duration>,
    expected: &'a [AtomicU64],
    seed: u64,
}

impl<'a> Parts<'a> {
    fn of(written: &'a Written) -> Self {
        let Written { threads, pace, ref expected, seed, .. } = *written;
        Self { threads, pace, expected, seed }
    }

    /// Compares a word, writes the next one to it, and goes on to another.
    fn access(self, place: Place, thread: usize, run: &Run) {
        let only_reads = self.seed % 2 == 1;
        let mut rng = Rng::new(self.seed << 8 | thread as u64);
        let pages = (GIB / PAGE / self.threads) as u64;
        let (mut due, mut accesses, mut longest) = (Instant::now(), 0, Duration::ZERO);
        while !run.is_over.load(Relaxed) {
            let page = to_usize(rng.below(pages)) * self.threads + thread;
            if let Some(pace) = self.pace {
                while Instant::now() < due && !run.is_over.load(Relaxed) {
                    std::hint::spin_loop();
                }
                due = due.max(Instant::now()) + pace;
            }
            let expected = &self.expected[page];
            let start = Instant::now();
            // SAFETY: inside of the memory, which lives as long as we do; the page is this thread's.
            let word = unsafe { place.0.add(page * PAGE).cast::<u64>() };
            // SAFETY: as above.
            let found = unsafe { word.read_volatile() };
            if !only_reads {
                // SAFETY: as above.
                unsafe { word.write_volatile(found + 1) };
            }
            let took = start.elapsed();
            if run.is_promoting.load(Relaxed) {
                longest = longest.max(took);
            }
            let is_right = found == expected.load(Relaxed);
            run.wrong.fetch_add(u64::from(!is_right), Relaxed);
            expected.store(found + u64::from(!only_reads), Relaxed);
            accesses += 1;
            if accesses % COUNTED == 0 {
                run.accesses.fetch_add(COUNTED, Relaxed);
            }
        }
        run.accesses.fetch_add(accesses % COUNTED, Relaxed);
        run.longest.fetch_max(nanos(longest), Relaxed);
    }
}
