//! Whose page faults are heard, and when.
//!
//! While an event counts page faults, each fault costs its program 1 to 8 % more, by machine, and
//! hardly less with a longer period: most of that is the kernel's counting. So faults are heard for a
//! share of the time only, in windows of some milliseconds; in between there is no event at all.
//! What a program does between two windows is seen in its page tables ([`super::front`]), and a window
//! that misses a program finds it the next time.
//!
//! Where the configuration names cgroups, only these are heard, else the whole machine, because a
//! process that is to be promoted may start at any time. Where the whole machine is out of reach,
//! the processes that are found one by one, all the time.

use super::Setup;
use crate::select::Filter;
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use superpage_kernel::Result;
use superpage_kernel::fault_events::{Counts, Event, FaultEvents, Scope, Watched};
use superpage_kernel::process::Process;
use superpage_kernel::usage::CpuTime;
use superpage_units::ProcessKey;
use tracing::{debug, info, warn};

/// Processes that are heard one by one, at the most: each takes a descriptor for each of its
/// threads and each CPU.
const MOST: usize = 256; // tidy: allow(processes)
/// How long a window is open: long enough for a program that fills memory in earnest, 22 MB a
/// second, to be heard once at the default period. (Each window counts from the beginning.)
const WINDOW: Duration = Duration::from_millis(3);
/// How long it is open now and then: for programs that fill 4 MB a second.
const LONG_WINDOW: Duration = Duration::from_millis(16);
/// One window of so many is a long one. Chosen, not measured: about one a second.
const LONG_EVERY: u32 = 16;
/// Opening and closing a window may take at most one in so much time: on a machine with many CPUs
/// windows are longer and fewer.
const DEAREST: u32 = 50;

/// How often the rings are looked into while events are written to them. Being woken for each would
/// cost the program that faults more than watching does; a full ring wakes us in any case.
const LISTEN: Duration = Duration::from_millis(2);
/// How often after a quiet while: looking into empty rings takes no system call.
const LISTEN_QUIET: Duration = Duration::from_millis(10);

/// Whom to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whom {
    Machine,
    Cgroups(Vec<PathBuf>),
    /// Those that are found, one by one.
    Single,
}

/// What hears.
#[derive(Debug)]
pub(super) struct Ears {
    period: NonZeroU64,
    /// The share of the time, 0 to 1, that windows are open.
    share: f64,
    whom: Whom,
    // Before the rings that they write to.
    open: Vec<Watched>,
    single: BTreeMap<ProcessKey, Watched>,
    rings: Option<FaultEvents>,
    /// When the window opens or closes next.
    turns: Instant,
    /// What opening and closing took last.
    cost: Duration,
    windows: u32,
}

impl Ears {
    /// Hears whom the configuration is about; nobody, if the kernel does not let us.
    pub(super) fn open(setup: &Setup) -> Self {
        let Setup { processes, promotion, ring, .. } = setup;
        let mut ears = Self {
            period: promotion.period,
            share: promotion.listen,
            whom: whom(&processes.include),
            open: Vec::new(),
            single: BTreeMap::new(),
            rings: None,
            turns: Instant::now(),
            cost: Duration::ZERO,
            windows: 0,
        };
        if !promotion.policies().any(super::policy::Promotion::hears_faults) {
            return ears;
        }
        match FaultEvents::new(*ring) {
            Ok(rings) => ears.rings = Some(rings),
            Err(error) => {
                warn!("page faults cannot be seen, memory is looked over instead: {error}");
                return ears;
            }
        }
        if let Err(error) = ears.open_window() {
            info!("not everybody's page faults can be seen: {error}");
            // Where cgroups cannot be heard, everybody is, if that is allowed.
            ears.whom = Whom::Machine;
            if let Err(error) = ears.open_window() {
                warn!("only single processes are watched for page faults: {error}");
                ears.whom = Whom::Single;
            }
        }
        ears
    }

    fn open_window(&mut self) -> Result<()> {
        let Some(rings) = &self.rings else { return Ok(()) };
        self.open = match &self.whom {
            Whom::Machine => vec![rings.watch(Scope::Machine, self.period)?],
            Whom::Cgroups(paths) => {
                // One that is not there now may come back; the others are heard meanwhile.
                let watch = |path: &PathBuf| rings.watch(Scope::Cgroup(path), self.period);
                let (open, failed): (Vec<_>, Vec<_>) =
                    paths.iter().map(watch).partition(Result::is_ok);
                if let (true, Some(Err(error))) = (open.is_empty(), failed.into_iter().next()) {
                    return Err(error);
                }
                open.into_iter().flatten().collect()
            }
            Whom::Single => Vec::new(),
        };
        Ok(())
    }

    /// Opens or closes the window, if it is time to; returns after how long this is to be asked
    /// again, and the rings looked into before that. `busy` says whether anything was heard lately: if
    /// not, windows are fewer.
    pub(super) fn turn(&mut self, now: Instant, busy: Busy) -> Duration {
        const LONG: Duration = Duration::from_secs(1);
        let listen = if busy == Busy::Yes { LISTEN } else { LISTEN_QUIET };
        if self.rings.is_none() {
            return LONG;
        }
        if self.whom == Whom::Single || self.share >= 1.0 {
            return listen;
        }
        if let Some(left) = self.turns.checked_duration_since(now).filter(|left| !left.is_zero()) {
            return if self.open.is_empty() { left } else { left.min(listen) };
        }
        let was_open = !self.open.is_empty();
        let before = CpuTime::of_thread();
        if was_open {
            self.open.clear();
        } else if let Err(error) = self.open_window() {
            // Groups that are gone, descriptors that are short: later it may open.
            debug!("page faults are not seen for a while: {error}");
            self.turns = now + LONG;
            return LONG;
        }
        // Time in which the kernel waits costs nobody anything.
        let cost = Duration::from_nanos(CpuTime::of_thread().since(before).0);
        // The first times take much longer than later ones.
        self.cost = (self.cost * 7 + cost) / 8;
        if !was_open {
            self.windows = self.windows.wrapping_add(1);
        }
        let is_long = self.windows.is_multiple_of(LONG_EVERY);
        let window = if is_long { LONG_WINDOW } else { WINDOW.max(self.cost * DEAREST / 4) };
        let cycle = window.div_f64(self.share).max(self.cost * 2 * DEAREST);
        let length = match (was_open, busy) {
            (false, _) => window,
            (true, Busy::Yes) => cycle.saturating_sub(window),
            (true, Busy::No) => cycle * QUIETER,
        };
        self.turns = now + length;
        // What was heard to the end is there now.
        if was_open { Duration::ZERO } else { length.min(listen) }
    }

    /// Hears this process too, where they are heard one by one.
    pub(super) fn hear(&mut self, key: ProcessKey, process: &Process) {
        let Some(rings) = self.rings.as_ref().filter(|_| self.whom == Whom::Single) else { return };
        if self.single.contains_key(&key) || self.single.len() >= MOST {
            return;
        }
        match rings.watch(Scope::Process(process), self.period) {
            Ok(watched) => {
                self.single.insert(key, watched);
            }
            Err(error) => info!(pid = process.pid(), "its page faults are not seen: {error}"),
        }
    }

    /// It has gone.
    pub(super) fn forget(&mut self, key: ProcessKey) {
        self.single.remove(&key);
    }

    /// What to wait for.
    pub(super) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.as_ref().map(|rings| rings.fds().collect()).unwrap_or_default()
    }

    /// Hands on what was heard.
    pub(super) fn drain(&mut self, each: impl FnMut(Event)) {
        if let Some(rings) = &mut self.rings {
            rings.drain(each);
        }
    }

    /// What was heard so far, and what was missed.
    pub(super) fn counts(&self) -> Counts {
        self.rings.as_ref().map(FaultEvents::counts).unwrap_or_default()
    }
}

/// Whether anything was heard lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// It was.
    Yes,
    /// It was not.
    No,
}

/// While nobody faults, windows are this many times further apart.
const QUIETER: u32 = 2;

fn whom(include: &Filter) -> Whom {
    let others = !include.pids.is_empty() || !include.commands.is_empty();
    match include.cgroups.is_empty() || others || !include.users.is_empty() {
        true => Whom::Machine,
        false => Whom::Cgroups(include.cgroups.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_heard_where_only_cgroups_are_named() {
        let groups = Filter { cgroups: vec!["/g".into()], ..Filter::default() };
        let both = Filter { pids: vec![7], ..groups.clone() };
        assert_eq!(whom(&groups), Whom::Cgroups(vec!["/g".into()]));
        assert_eq!([whom(&both), whom(&Filter::default())], [Whom::Machine, Whom::Machine]);
    }

    #[test]
    fn windows_are_open_for_their_share_of_the_time() {
        let config = crate::config::Config::default();
        let mut ears = Ears::open(&Setup {
            promotion: crate::config::PromotionConfig { listen: 0.2, ..config.promotion },
            processes: config.processes,
            marks: superpage_policy::watermark::Watermarks::default(),
            worth: superpage_units::BasePages(51),
            cgroups: Vec::new(),
            ring: superpage_kernel::fault_events::DEFAULT_RING,
        });
        if ears.rings.is_none() || ears.whom != Whom::Machine {
            return println!("skipped windows: not everybody's page faults can be heard here");
        }
        let (begin, mut now, mut heard) = (Instant::now(), Instant::now(), Duration::ZERO);
        let mut longest = Duration::ZERO;
        for _ in 0..400 {
            let was_open = !ears.open.is_empty();
            let length = ears.turn(now, Busy::Yes);
            let has_closed = was_open && ears.open.is_empty();
            assert!(
                !has_closed || length.is_zero(),
                "what was heard to the end waits for {length:?}"
            );
            longest = longest.max(length);
            if !ears.open.is_empty() {
                heard += length;
            }
            now += length;
        }
        assert!(longest > LISTEN, "nothing comes while no window is open");
        let share = heard.as_secs_f64() / (now - begin).as_secs_f64();
        assert!((0.05..0.21).contains(&share), "{share}");
    }
}
