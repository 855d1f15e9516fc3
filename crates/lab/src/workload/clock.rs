//! Measures one run: the clock on the wall and the CPU time of a process. Not a benchmark harness.
//! [clock_getcpuclockid(3)](https://man7.org/linux/man-pages/man3/clock_getcpuclockid.3.html)

#![expect(unsafe_code, reason = "the CPU clock of another process is only to be had from libc")]

use super::{Error, Result, Timing};
use rustix::io::Errno;
use std::time::Instant;
use superpage_units::{Nanos, Pid};

/// Runs from `start` to `stop`.
#[derive(Debug)]
pub(super) struct Stopwatch {
    wall: Instant,
    cpu: Nanos,
    pid: Pid,
}

impl Stopwatch {
    /// Starts; CPU time will be that of process `pid`.
    pub(super) fn start(pid: Pid) -> Result<Self> {
        Ok(Self { cpu: cpu_time(pid)?, wall: Instant::now(), pid })
    }

    /// What has passed since the start.
    pub(super) fn stop(&self, operations: u64, checksum: u64) -> Result<Timing> {
        let wall = Nanos(u64::try_from(self.wall.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let cpu = cpu_time(self.pid)?.saturating_sub(self.cpu);
        Ok(Timing { wall, cpu, operations, checksum })
    }
}

/// CPU time that all threads of a process have used so far, those that have ended too. `stat` in
/// `/proc` would have it in ticks of 10 ms, too coarse for a run of a second.
pub(crate) fn cpu_time(pid: Pid) -> Result<Nanos> {
    let explain = |errno| Error::Memory { what: "read the workload's CPU time", errno };
    let number = i32::try_from(pid.0).map_err(|_| explain(Errno::SRCH))?;
    let mut clock = 0;
    // SAFETY: `clock` is a place for one clock number.
    let errno = unsafe { libc::clock_getcpuclockid(number, &raw mut clock) };
    if errno != 0 {
        return Err(explain(Errno::from_raw_os_error(errno)));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for one time.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(explain(Errno::SRCH));
    }
    Ok(Nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;

    #[test]
    fn time_passes_and_both_clocks_see_it() {
        let watch = Stopwatch::start(superpage_kernel::process::own_pid()).expect("starts");
        let mut rng = Rng::new(1);
        while watch.stop(0, 0).expect("stops").cpu < Nanos(5_000_000) {
            std::hint::black_box((0..1000).fold(0, |sum, _| sum ^ rng.next()));
        }
        let seen = watch.stop(3, 4).expect("stops");
        assert!(seen.wall > Nanos(1_000_000), "{seen:?}");
        assert_eq!((seen.operations, seen.checksum), (3, 4));
    }

    #[test]
    fn another_process_has_its_own_time_and_none_is_an_error() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let time = cpu_time(Pid(child.id())).expect("it has a clock");
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(time < Nanos::from_secs_f64(1.0), "{time:?}");
        assert!(cpu_time(Pid(child.id())).is_err());
        assert!(cpu_time(Pid(u32::MAX)).is_err());
    }
}
