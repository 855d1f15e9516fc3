//! What we ourselves cost: CPU time of the calling thread or the whole process, resident memory.
//!
//! Not what other processes cost. The clocks count user and system time together, in
//! nanoseconds where getrusage(2) gives microseconds, and need no `unsafe`.
//! [clock_gettime(2)](https://man7.org/linux/man-pages/man2/clock_gettime.2.html).

use crate::error::Result;
use crate::process::Process;
use crate::status;
use rustix::time::{ClockId, clock_gettime};
use superpage_units::{Bytes, Nanos};

/// CPU time used so far, in user space and in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuTime(Nanos);

impl CpuTime {
    /// Of the calling thread, since it started.
    #[must_use]
    pub fn of_thread() -> Self {
        Self::read(ClockId::ThreadCPUTime)
    }

    /// Of all threads of the calling process, also those that have ended, since it started. Its
    /// children are not counted.
    #[must_use]
    pub fn of_process() -> Self {
        Self::read(ClockId::ProcessCPUTime)
    }

    /// What was used since `earlier`, a reading of the same kind; zero if that is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Nanos {
        self.0.saturating_sub(earlier.0)
    }

    /// What was used altogether.
    #[must_use]
    pub fn total(self) -> Nanos {
        self.0
    }

    fn read(clock: ClockId) -> Self {
        let now = clock_gettime(clock);
        let part = |part: i64| u64::try_from(part).unwrap_or(0);
        let seconds = part(now.tv_sec).saturating_mul(1_000_000_000);
        Self(Nanos(seconds.saturating_add(part(now.tv_nsec))))
    }
}

/// Our own resident memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Now.
    pub current: Bytes,
    /// The most it ever was, give or take some pages for each thread and CPU.
    pub peak: Bytes,
}

/// Our own resident memory now.
///
/// # Errors
/// What reading `/proc/PID/status` fails with.
pub fn resident() -> Result<Resident> {
    let status = status::of(&Process::current()?)?;
    let current = status.rss.unwrap_or_default();
    Ok(Resident {
        current,
        // The kernel notes the peak now and then, so that it can lag behind.
        peak: status.peak_rss.unwrap_or_default().max(current),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    fn work() {
        for number in 0..20_000_000_u64 {
            black_box(number);
        }
    }

    #[test]
    fn work_takes_time_of_the_thread_that_does_it() {
        let (thread, process) = (CpuTime::of_thread(), CpuTime::of_process());
        std::thread::spawn(work).join().expect("the thread ends");
        let theirs = CpuTime::of_process().since(process);
        let ours = CpuTime::of_thread().since(thread);
        assert!(theirs > ours, "{theirs:?} {ours:?}");
        assert_eq!(thread.since(CpuTime::of_thread()), Nanos::ZERO);
        assert!(CpuTime::of_process().total() >= theirs);
    }

    #[test]
    fn the_peak_remembers_what_was_given_back() {
        let before = resident().expect("our own status reads");
        let memory = vec![1_u8; 64 << 20];
        let with = resident().expect("our own status reads");
        drop(black_box(memory));
        let after = resident().expect("our own status reads");
        assert!(with.current >= before.current + Bytes::from_mib(60), "{before:?} {with:?}");
        assert!(after.current < with.current);
        assert!(after.peak + Bytes::from_mib(8) >= with.current);
    }
}
