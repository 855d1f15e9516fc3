//! The supply of gigantic pages: keeps some free in the kernel's pool while memory is free, and gives them back
//! when it gets short.
//!
//! The pool's size is a setting with a gate and a record of its own (`settings::RUN`). This daemon or a
//! `superpage run` holds that, so that one of them at a time changes the pool. The kernel needs from 20 ms to
//! seconds to make a page, so each change is made by a thread that ends with it, and the daemon's thread goes on.
//! [`wanted`] decides the size by its arguments alone. Who gets the pages is not decided here: any process may
//! map what is free.

use super::leave::PATIENCE;
use super::report::Reporter;
use crate::config::GiganticConfig;
use crate::history::What;
use crate::hugetlb_pool::HugetlbPool;
use crate::ledger::entry;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_kernel::hugetlb::Pool;
use superpage_kernel::settings::{Change, Mode, Outcome, Repairs, Settings};
use superpage_kernel::{Error, Result};
use superpage_policy::watermark::{Hysteresis, Order, Usage, Watermarks};
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, PageSize};
use tracing::{info, warn};

/// No page is asked for within this time after the kernel found none; twice as long after each further failure
/// in a row. As in `superpage run`; chosen, not measured: the kernel looks through all of memory.
const COOLDOWN: Duration = Duration::from_secs(10);
/// The cooldown is doubled so often at the most, to some ten minutes.
const DOUBLED: u32 = 6;

/// No pass begins for this long while pages are given back, which may free what the pass is to free. Chosen:
/// the kernel takes some milliseconds for each.
const GIVING: Duration = Duration::from_secs(1);

/// The size that the pool is to have, which was `least` without us.
///
/// Above the high watermark of `usage`, until the low one is reached, free pages are given back. Otherwise there
/// are to be so many free pages as `config` says, as long as memory is below the low watermark with them.
fn wanted(
    config: GiganticConfig,
    pool: Pool,
    least: u64,
    marks: Watermarks,
    usage: Usage,
    state: &mut Hysteresis,
) -> u64 {
    match state.step(marks, usage) {
        Order::Free { need, .. } => {
            let ours = pool.size.saturating_sub(least);
            pool.size - need.bytes().0.div_ceil(GIGANTIC_PAGE_BYTES).min(pool.free).min(ours)
        }
        Order::Rest { .. } => {
            let pages = |bytes: Bytes| bytes.0 / GIGANTIC_PAGE_BYTES;
            let part = |share: superpage_units::Share| usage.total.scaled(share.get());
            let lacking = config.free.saturating_sub(pool.free);
            let allowed = pages(part(config.most)).saturating_sub(pool.size);
            let room = pages(part(marks.low()).saturating_sub(usage.used));
            pool.size + lacking.min(allowed).min(room)
        }
    }
}

/// Puts back what an earlier holder of the pool left, if that was killed; the record is in the directory `state`. Whoever holds the
/// pool now puts it back at its end.
pub(super) fn put_back(state: &Path) -> Repairs {
    let is_left = Settings::left_behind(state).is_ok_and(|left| !left.is_empty());
    if !is_left {
        return Repairs::new();
    }
    match Settings::open(state, Mode::Apply) {
        Ok((_settings, repairs)) => repairs,
        Err(Error::Busy { .. }) => Repairs::new(),
        Err(error) => {
            warn!("the pool of gigantic pages is left as it is: {error}");
            Repairs::new()
        }
    }
}

/// A change under way.
#[derive(Debug)]
struct Changing {
    result: Receiver<(HugetlbPool, Result<Change>)>,
    begun: Instant,
    direction: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Grow,
    GiveBack,
}

/// Keeps gigantic pages free.
#[derive(Debug)]
pub(super) struct Supply {
    reporter: Reporter,
    /// The directory of the record of the pool.
    state: PathBuf,
    gate: Option<HugetlbPool>,
    changing: Option<Changing>,
    hysteresis: Hysteresis,
    /// Nothing is asked of the kernel before this time, after so many failures in a row.
    not_before: Option<Instant>,
    failures: u32,
    /// The last reason why the pool cannot be kept, which is told once.
    hindrance: Option<String>,
    /// Becomes readable when a change has ended.
    wakeup: Arc<OwnedFd>,
}

impl Supply {
    /// A supply that does nothing yet, with its record in `state`.
    ///
    /// # Errors
    /// If the kernel gives no descriptor.
    pub(super) fn new(reporter: Reporter, state: PathBuf) -> std::io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            reporter,
            state,
            gate: None,
            changing: None,
            hysteresis: Hysteresis::default(),
            not_before: None,
            failures: 0,
            hindrance: None,
            wakeup: Arc::new(wakeup),
        })
    }

    /// Becomes readable when a change has ended.
    pub(super) fn wakeup(&self) -> &OwnedFd {
        &self.wakeup
    }

    /// Whether the pool is being changed.
    pub(super) fn is_changing(&self) -> bool {
        self.changing.is_some()
    }

    /// Whether memory is being freed, for which a pass should wait.
    pub(super) fn is_giving_back(&self) -> bool {
        let is_giving = |changing: &Changing| {
            changing.direction == Direction::GiveBack && changing.begun.elapsed() < GIVING
        };
        self.changing.as_ref().is_some_and(is_giving)
    }

    /// The right to change the pool, if it can be had.
    fn open(&mut self) -> Option<HugetlbPool> {
        match HugetlbPool::open(&self.state, PageSize::Gigantic) {
            Ok((gate, repairs)) => {
                self.hindrance = None;
                self.tell_repairs(&repairs);
                Some(gate)
            }
            Err(error) => {
                let words = match error {
                    Error::Busy { .. } => {
                        "a `superpage run` keeps the pool of gigantic pages until it ends"
                            .to_owned()
                    }
                    other => format!("no gigantic pages are kept free: {other}"),
                };
                if self.hindrance.as_ref() != Some(&words) {
                    warn!("{words}");
                }
                self.hindrance = Some(words);
                None
            }
        }
    }

    /// Has one change of the pool begun, if one is wanted.
    pub(super) fn look(&mut self, config: GiganticConfig, marks: Watermarks, usage: Usage) {
        if config.free == 0 || self.is_changing() {
            return;
        }
        let Some(mut gate) = self.gate.take().or_else(|| self.open()) else { return };
        match self.next(&mut gate, config, marks, usage) {
            Ok(Some((size, direction))) => self.begin(gate, size, direction),
            Ok(None) => self.gate = Some(gate),
            Err(error) => {
                warn!("the pool of gigantic pages cannot be kept: {error}");
                self.gate = Some(gate);
            }
        }
    }

    /// The next size of the pool; `None` if it is to stay.
    fn next(
        &mut self,
        gate: &mut HugetlbPool,
        config: GiganticConfig,
        marks: Watermarks,
        usage: Usage,
    ) -> Result<Option<(u64, Direction)>> {
        let pool = gate.look()?;
        let size = wanted(config, pool, gate.least(), marks, usage, &mut self.hysteresis);
        let has_cooled_down = self.not_before.is_none_or(|time| Instant::now() >= time);
        Ok(match size {
            less if less < pool.size => Some((less, Direction::GiveBack)),
            // The pool grows by one page at a time: memory is looked at again after each.
            more if more > pool.size && has_cooled_down => Some((pool.size + 1, Direction::Grow)),
            _ => None,
        })
    }

    fn begin(&mut self, mut gate: HugetlbPool, size: u64, direction: Direction) {
        let wakeup = Arc::clone(&self.wakeup);
        let (send, result) = bounded(1);
        let run = move || {
            let done = gate.set(size);
            // Nobody may wait any more: then the gate is dropped, which puts the pool back.
            let _ = send.send((gate, done));
            let _ = rustix::io::write(&*wakeup, &1_u64.to_ne_bytes());
        };
        match std::thread::Builder::new().name("gigantic".to_owned()).spawn(run) {
            Ok(_) => self.changing = Some(Changing { result, begun: Instant::now(), direction }),
            Err(error) => warn!("the pool of gigantic pages cannot be changed: {error}"),
        }
    }

    /// Takes note of a change that has ended, and says whether one has.
    pub(super) fn has_ended(&mut self) -> bool {
        let _ = rustix::io::read(&*self.wakeup, &mut [0_u8; 8]);
        let Some(changing) = &self.changing else { return false };
        let Ok((gate, done)) = changing.result.try_recv() else { return false };
        self.take_in(gate, &done);
        true
    }

    fn take_in(&mut self, gate: HugetlbPool, done: &Result<Change>) {
        let Some(changing) = self.changing.take() else { return };
        let took_ms = changing.begun.elapsed().as_millis();
        self.gate = Some(gate);
        match done {
            Ok(change) => {
                (self.failures, self.not_before) = (0, None);
                info!(took_ms, "{change}");
                self.reporter.ledger.record(entry(What::Setting, "pool", &change.to_string()));
            }
            Err(error) => {
                let wait = COOLDOWN * (1 << self.failures.min(DOUBLED));
                self.failures += 1;
                self.not_before = Some(Instant::now() + wait);
                let wait = humantime::format_duration(wait).to_string();
                match error {
                    Error::NotTaken { .. } if changing.direction == Direction::Grow => {
                        info!(took_ms, wait, "the kernel finds no gigantic page");
                    }
                    error => warn!(wait, "the pool of gigantic pages was not changed: {error}"),
                }
            }
        }
    }

    /// Puts the pool back; pages in use go when they are freed. A change that does not end in time is left to
    /// its thread.
    ///
    /// # Errors
    /// If it could not be put back. The record stays for the next attempt.
    pub(super) fn end(&mut self) -> Result<()> {
        if let Some(changing) = &self.changing {
            match changing.result.recv_timeout(PATIENCE) {
                Ok((gate, done)) => self.take_in(gate, &done),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    warn!("a change of the pool of gigantic pages does not end; it is left behind");
                    self.changing = None;
                }
            }
        }
        (self.failures, self.not_before) = (0, None);
        let Some(gate) = self.gate.take() else { return Ok(()) };
        let repairs = gate.restore()?;
        self.tell_repairs(&repairs);
        let failed = repairs.into_iter().find_map(|repair| match repair.outcome {
            Outcome::Failed(error) => Some(error),
            _ => None,
        });
        failed.map_or(Ok(()), Err)
    }

    fn tell_repairs(&self, repairs: &Repairs) {
        for repair in repairs {
            info!("{repair}");
            self.reporter.ledger.record(entry(What::Setting, "put-back", &repair.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use superpage_units::Share;

    const CONFIG: GiganticConfig = GiganticConfig { free: 4, most: Share::percent(25) };

    /// The pool of a machine of 40 GiB with so many GiB in use: the low watermark is at 26, the high one at 32,
    /// and the pool may have 10.
    fn size(size: u64, free: u64, least: u64, used: u64, state: &mut Hysteresis) -> u64 {
        let usage = Usage { used: Bytes::from_gib(used), total: Bytes::from_gib(40) };
        wanted(
            CONFIG,
            Pool { size, free, used: size - free.min(size) },
            least,
            Watermarks::default(),
            usage,
            state,
        )
    }

    fn at_rest(of: u64, free: u64, least: u64, used: u64) -> u64 {
        size(of, free, least, used, &mut Hysteresis::Resting)
    }

    #[test]
    fn it_grows_until_enough_is_free() {
        assert_eq!(at_rest(0, 0, 0, 4), 4);
        assert_eq!(at_rest(4, 4, 0, 8), 4);
        assert_eq!(at_rest(4, 1, 0, 8), 7, "three are in use");
        assert_eq!(at_rest(7, 7, 0, 8), 7, "what programs gave back stays while memory is free");
    }

    #[test]
    fn it_grows_no_further_than_its_share_and_the_low_watermark() {
        assert_eq!(at_rest(9, 0, 0, 12), 10);
        assert_eq!(at_rest(12, 0, 12, 14), 12, "more than that was there before");
        assert_eq!(at_rest(0, 0, 0, 24), 2);
        assert_eq!(at_rest(0, 0, 0, 26), 0);
        assert_eq!(at_rest(2, 0, 0, 30), 2, "between the watermarks it stays");
    }

    #[test]
    fn it_gives_back_what_is_free_and_not_of_others_down_to_the_low_watermark() {
        assert_eq!(at_rest(9, 9, 0, 33), 2, "seven of them reach the low watermark");
        assert_eq!(at_rest(9, 2, 0, 33), 7);
        assert_eq!(at_rest(9, 9, 6, 33), 6);
        assert_eq!(at_rest(5, 5, 6, 33), 5, "somebody else took one");
        let mut state = Hysteresis::Debloating;
        assert_eq!(size(9, 9, 0, 28, &mut state), 7);
        assert_eq!(size(7, 7, 0, 26, &mut state), 7);
        assert_eq!(state, Hysteresis::Resting);
    }

    proptest! {
        #[test]
        fn pages_in_use_and_of_others_stay_and_no_decision_is_undone_by_the_next(
            of in 0_u64..=12, free in 0_u64..=12, least in 0_u64..=12, used in 0_u64..=40,
        ) {
            let free = free.min(of);
            let mut state = Hysteresis::Resting;
            let next = size(of, free, least, used, &mut state);
            prop_assert!(next >= least.min(of).max(of - free));
            let (free, used) = (free + next - of, (used + next).saturating_sub(of));
            prop_assert!(next <= of || next <= 10 && used <= 26 && free <= CONFIG.free);
            prop_assert_eq!(size(next, free, least, used, &mut state), next);
        }
    }
}
