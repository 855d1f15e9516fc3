//! The device that pages go to: a queue that all share who read from it and write to it.
//!
//! It is a fluid model of one server. Each request keeps it busy for the longer of two times: what its
//! bytes take at the device's rate, and the latency of a small request over the requests that are
//! served at once. What it is behind by goes down as time passes. So many threads together get what
//! the device can do and no more, and each then waits as long as that takes, as in a closed queue.
//!
//! A reader waits for what is queued, the latency and its own bytes. A writer does not wait for its
//! write, only while the device is behind by more than a full queue of base pages: kernels write
//! behind. Assumed: reads and writes share the device's time, and neither goes first.

use super::Machine;
use super::work::{Transfers, Work};
use crate::profile::{Device, Profile};
use crate::units::BytesPerSecond;
use superpage_units::{Bytes, Nanos, PageSize, Time};

/// What a device is behind by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    behind: Nanos,
    /// As of this time.
    seen: Time,
    /// Of that, for requests that whoever asks made one after the other, and has waited for.
    own: Option<Nanos>,
}

impl Machine {
    /// How long who asks for the transfers of some work now waits for them.
    pub(crate) fn wait_for_device(&mut self, profile: &Profile, work: &Work) -> Nanos {
        if work.reads.requests == 0 && work.writes.requests == 0 {
            return Nanos::ZERO;
        }
        self.device.serve(profile.swap_device(), self.now, work)
    }

    /// From now on one thread asks, for one thing after the other, until
    /// [`Machine::end_of_requests_in_turn`]. All are asked for at one time of the machine's clock, which
    /// is all threads' together, so it must not wait for those of its own that it has waited for.
    pub(crate) fn begin_requests_in_turn(&mut self) {
        self.device.own = Some(Nanos::ZERO);
    }

    /// From now on each request is somebody else's.
    pub(crate) fn end_of_requests_in_turn(&mut self) {
        self.device.own = None;
    }
}

impl Queue {
    fn serve(&mut self, device: &Device, now: Time, work: &Work) -> Nanos {
        // Programs and the background have clocks of their own: a request may come from the past.
        let passed = now.since(self.seen);
        self.behind = self.behind.saturating_sub(passed);
        self.seen = self.seen.max(now);
        self.write(device, work.writes) + self.read(device, work.reads)
    }

    fn write(&mut self, device: &Device, writes: Transfers) -> Nanos {
        let (latency, rate) = (device.write_latency.value, device.write_bandwidth.value);
        let Some(bytes) = size(writes) else { return Nanos::ZERO };
        self.behind += busy(device, latency, rate, bytes) * writes.requests;
        let queue = busy(device, latency, rate, PageSize::Base.bytes());
        self.behind.saturating_sub(queue * device.queue_depth.value.0)
    }

    fn read(&mut self, device: &Device, reads: Transfers) -> Nanos {
        let (latency, rate) = (device.read_latency.value, device.read_bandwidth.value);
        let Some(bytes) = size(reads) else { return Nanos::ZERO };
        let others = self.behind.saturating_sub(self.own.unwrap_or_default());
        let busy = busy(device, latency, rate, bytes) * reads.requests;
        self.behind += busy;
        self.own = self.own.map(|own| own + busy);
        others + (latency + rate.time(bytes)) * reads.requests
    }
}

/// The bytes of each of some transfers of equal size, if there are any.
fn size(transfers: Transfers) -> Option<Bytes> {
    transfers.pages.bytes().0.checked_div(transfers.requests).map(Bytes)
}

/// How long a request keeps a device from serving others.
fn busy(device: &Device, latency: Nanos, rate: BytesPerSecond, bytes: Bytes) -> Nanos {
    rate.time(bytes).max(Nanos(latency.0 / device.queue_depth.value.0.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::BasePages;

    fn device() -> Device {
        Profile::named("xheap").unwrap().swap_device().clone()
    }

    fn reading(pages: u64) -> Work {
        Work { reads: Transfers::one(BasePages(pages)), ..Work::default() }
    }

    fn writing(pages: u64) -> Work {
        Work { writes: Transfers::one(BasePages(pages)), ..Work::default() }
    }

    /// Requests served in a second to so many threads, each asking again when it was served.
    fn rate(threads: usize, work: Work) -> f64 {
        let (mut queue, mut free) = (Queue::default(), vec![Time::ZERO; threads]);
        let span = Nanos(20_000_000);
        let end = Time::ZERO + span;
        let mut served = 0;
        loop {
            let next = free.iter_mut().min().unwrap();
            if *next > end {
                return f64::from(served) / span.as_secs_f64();
            }
            *next += queue.serve(&device(), *next, &work);
            served += u32::from(*next <= end);
        }
    }

    #[test]
    fn few_threads_are_bound_by_latency_and_many_by_the_device() {
        let latency = 52.9e-6;
        for threads in [1, 32] {
            let share = rate(threads, reading(1)) * latency / threads as f64;
            assert!((0.9..1.01).contains(&share), "{threads}: {share}");
        }
        // 128 at once in 52.6 us, and 14 GB/s.
        let small = rate(300, reading(1)) / (128.0 / 52.6e-6);
        assert!((0.97..1.03).contains(&small), "{small}");
        let huge = rate(32, reading(512)) * (2 << 20) as f64 / 14e9;
        assert!((0.97..1.05).contains(&huge), "{huge}");
    }

    #[test]
    fn writers_wait_only_when_the_queue_is_full() {
        let mut queue = Queue::default();
        let mut write = |now| queue.serve(&device(), Time(now), &writing(1));
        assert!((0..128).all(|_| write(0) == Nanos::ZERO));
        assert!((0..128).map(|_| write(0)).sum::<Nanos>() > Nanos::ZERO);
        assert_eq!(write(1_000_000), Nanos::ZERO, "time has passed");
    }

    #[test]
    fn nobody_waits_for_what_it_has_waited_for() {
        let (mut queue, alone) = (Queue::default(), reading(512));
        let read = |queue: &mut Queue| queue.serve(&device(), Time::ZERO, &alone);
        queue.own = Some(Nanos::ZERO);
        let first = read(&mut queue);
        assert_eq!([read(&mut queue), read(&mut queue)], [first; 2]);
        queue.own = None;
        let other = read(&mut queue);
        let three = device().read_bandwidth.value.time(PageSize::Huge.bytes()) * 3;
        assert_eq!(other, first + three, "another waits for all of them");
    }

    #[test]
    fn writes_make_readers_wait() {
        let mut queue = Queue::default();
        let alone = Queue::default().serve(&device(), Time::ZERO, &reading(1));
        for _ in 0..10 {
            queue.serve(&device(), Time::ZERO, &writing(512));
        }
        let behind = queue.serve(&device(), Time::ZERO, &reading(1));
        assert!(behind > alone + Nanos(1_500_000), "{behind:?} against {alone:?}");
    }
}
