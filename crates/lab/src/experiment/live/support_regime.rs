//! The regimes that experiments compare: nobody makes huge pages, the kernel makes them in one of four ways, or superpage does. An
//! experiment sets the machine for a regime here, and reads what the regime's work in the background costs.
//!
//! The kernel's settings pass the bench's gate and are put back with it.

use super::support_bench::Bench;
use super::support_daemon::Daemon;
use super::{Error, Result, Setting};
use crate::workload::clock::cpu_time;
use std::path::Path;
use superpage_kernel::cgroup::Scratch;
use superpage_kernel::process::{self, Process};
use superpage_kernel::thp::{self, Defrag, Enabled, Switch, Thp};
use superpage_kernel::{balloon, status};
use superpage_manager::config::Config;
use superpage_units::{BasePages, Nanos, Pid};

/// The policy that superpage promotes by in these experiments.
pub(super) const SUPERPAGE_POLICY: &str = "quicksilver-sync-64";

/// Who makes huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regime {
    /// Nobody.
    BasePages,
    /// Page faults: `enabled=always`, khugepaged asleep.
    FirstTouch,
    /// Page faults and khugepaged: `enabled=always`.
    Always,
    /// Page faults and khugepaged, where a page fault that finds no huge page has memory compacted and waits for it: `enabled=always` and
    /// `defrag=always`, which was Linux's default up to 4.5.
    Compacting,
    /// The daemon, by [`SUPERPAGE_POLICY`], in the processes that it is shown.
    Superpage,
}

impl Regime {
    /// As in rows. On the simulated machine, `linux` compacts as `linux-defrag-always` does here, and what is `linux` here is
    /// `linux-defrag-madvise`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BasePages => "linux-4k",
            Self::FirstTouch => "linux-nokhugepaged",
            Self::Always => "linux",
            Self::Compacting => "linux-defrag-always",
            Self::Superpage => "superpage",
        }
    }

    /// Whether khugepaged works by its defaults once the program runs.
    pub(super) const fn has_khugepaged(self) -> bool {
        matches!(self, Self::Always | Self::Compacting)
    }

    /// Sets the machine for a program that is going to start. khugepaged sleeps; see
    /// [`Regime::begin`].
    pub(super) fn prepare(self, bench: &mut Bench) -> Result<()> {
        let enabled = match self {
            Self::BasePages => Enabled::Never,
            // Superpage finds the machine as most distributions have it.
            Self::FirstTouch | Self::Always | Self::Compacting | Self::Superpage => Enabled::Always,
        };
        let defrag = match self {
            Self::Compacting => Defrag::Always,
            // The kernel's default.
            Self::BasePages | Self::FirstTouch | Self::Always | Self::Superpage => Defrag::Madvise,
        };
        set_enabled(bench, enabled)?;
        Thp::under(Path::new("/sys")).set(bench.settings(), thp::DEFRAG, defrag)?;
        Khugepaged::Asleep.set(bench)
    }

    /// Starts what this regime has in the background for the process `pid`.
    pub(super) fn begin(self, setting: &Setting, pid: Pid) -> Result<Background> {
        let daemon = match self {
            Self::Superpage => Some(promoter(setting, pid)?),
            _ => None,
        };
        let khugepaged = self.has_khugepaged().then(khugepaged_pid).transpose()?;
        let mut background = Background { daemon, khugepaged, before: Nanos::ZERO };
        background.before = background.total()?;
        Ok(background)
    }
}

/// Makes a trial of each of `variants` in each round: in the first one in the order in which they
/// are, so that what the others need of it can be taken from the first; then each time another goes
/// first.
pub(super) fn in_turn<V: Copy, T, const N: usize>(
    variants: [V; N],
    rounds: u32,
    mut trial: impl FnMut(V, u32) -> Result<T>,
) -> Result<[Vec<T>; N]> {
    let mut samples = [const { Vec::new() }; N];
    for round in 0..rounds {
        for turn in 0..N {
            let at = (turn + usize::try_from(round).unwrap_or(0)) % N;
            samples[at].push(trial(variants[at], round)?);
        }
    }
    Ok(samples)
}

/// The kernel's settings for huge pages, but for khugepaged's pace, which is the kernel's default.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// `enabled`: which programs get huge pages at first touches.
    pub(super) enabled: Enabled,
    /// khugepaged leaves a range alone where more base pages are missing. Below the kernel's own 511, the shrinker of underused huge
    /// pages splits those with more zero-filled ones.
    pub(super) max_ptes_none: BasePages,
    /// `shrink_underused`: whether that shrinker splits anything.
    pub(super) shrinks: Switch,
}

impl Kernel {
    /// The kernel's defaults, with huge pages for everybody.
    pub(super) const ALWAYS: Self =
        Self { enabled: Enabled::Always, max_ptes_none: BasePages(511), shrinks: Switch::On };
    /// Nobody gets huge pages.
    pub(super) const NEVER: Self = Self { enabled: Enabled::Never, ..Self::ALWAYS };

    /// The kernel's defaults, with the shrinker armed as the daemon arms it by its defaults.
    pub(super) fn armed() -> Self {
        let max_ptes_none = Config::default().max_ptes_none.unwrap_or_default();
        Self { max_ptes_none, ..Self::ALWAYS }
    }

    /// Sets it so, until the bench is dropped.
    pub(super) fn set(self, bench: &mut Bench) -> Result<()> {
        set_enabled(bench, self.enabled)?;
        Khugepaged::Default.set(bench)?;
        let knobs = Thp::under(Path::new("/sys"));
        knobs.set(bench.settings(), thp::MAX_PTES_NONE, self.max_ptes_none)?;
        knobs.set(bench.settings(), thp::SHRINK_UNDERUSED, self.shrinks)?;
        Ok(())
    }
}

/// Who makes and splits huge pages of programs in cgroups. An experiment compares some of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Nobody makes any.
    BasePages,
    /// The kernel, by its defaults.
    Always,
    /// The kernel, with its shrinker armed as the daemon arms it, and no daemon.
    Armed,
    /// The daemon, by [`SUPERPAGE_POLICY`] after first touches on base pages.
    Quicksilver,
    /// The daemon, with `first_touch = "generous"`.
    Generous,
    /// The daemon, by its defaults.
    Default,
    /// The same, with the kernel's shrinker off.
    Disarmed,
}

impl Peer {
    /// The name in rows. No experiment compares the two that are `superpage`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BasePages => "linux-4k",
            Self::Always => "linux",
            Self::Armed => "linux, max_ptes_none as the daemon's",
            Self::Quicksilver => SUPERPAGE_POLICY,
            Self::Generous | Self::Default => "superpage",
            Self::Disarmed => "superpage, shrink_underused=0",
        }
    }

    /// The kernel's settings that a program, or the daemon, finds.
    pub(super) fn kernel(self) -> Kernel {
        match self {
            Self::BasePages => Kernel::NEVER,
            Self::Armed => Kernel::armed(),
            Self::Disarmed => Kernel { shrinks: Switch::Off, ..Kernel::ALWAYS },
            Self::Always | Self::Quicksilver | Self::Generous | Self::Default => Kernel::ALWAYS,
        }
    }

    /// The daemon's configuration, but for whom it sees; `None` without a daemon.
    fn configuration(self) -> Option<String> {
        match self {
            Self::BasePages | Self::Always | Self::Armed => None,
            Self::Quicksilver => Some(format!(
                "[thp]\nfirst_touch = \"base-pages\"\n[promotion]\npolicy = \"{SUPERPAGE_POLICY}\"\n"
            )),
            Self::Generous => Some("[thp]\nfirst_touch = \"generous\"\n".to_owned()),
            Self::Default | Self::Disarmed => Some(String::new()),
        }
    }

    /// The peer's daemon, if it has one, which sees these cgroups only.
    pub(super) fn daemon(self, setting: &Setting, groups: &[&Scratch]) -> Result<Option<Daemon>> {
        let paths: Vec<&Path> = groups.iter().map(|group| group.group().path()).collect();
        let include = format!("[processes.include]\ncgroups = {paths:?}\n");
        let start = |text| Daemon::start(setting, &format!("{text}{include}"));
        self.configuration().map(start).transpose()
    }
}

/// Sets `transparent_hugepage/enabled`, until the bench is dropped.
pub(super) fn set_enabled(bench: &mut Bench, enabled: Enabled) -> Result<()> {
    Thp::under(Path::new("/sys")).set(bench.settings(), thp::ENABLED, enabled)?;
    Ok(())
}

/// What a reader of rows with `first_touch = "generous"` must know, if this machine is such a guest.
pub(super) fn note_on_generous() -> Option<String> {
    let least = balloon::unreported_below(Path::new("/sys")).ok()?;
    least.map(|_| {
        "This machine tells its host of free memory, so that first_touch = \"generous\" changes nothing here.".to_owned()
    })
}

/// A daemon that promotes in the process `pid` and sees no other.
pub(super) fn promoter(setting: &Setting, pid: Pid) -> Result<Daemon> {
    let configuration = format!(
        "[promotion]\npolicy = \"off\"\n\
         [[promotion.rule]]\npolicy = \"{SUPERPAGE_POLICY}\"\npids = [{pid}]\n\
         [processes.include]\npids = [{pid}]\n[thp]\nfirst_touch = \"base-pages\"\n"
    );
    let mut daemon = Daemon::start(setting, &configuration)?;
    let enabled = Thp::under(Path::new("/sys")).get(thp::ENABLED)?;
    daemon.check()?;
    if enabled == Enabled::Always {
        let what = "the daemon left transparent_hugepage/enabled at always: it would not be it that \
                    makes the huge pages";
        return Err(Error::Child(what.to_owned()));
    }
    Ok(daemon)
}

/// How khugepaged goes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Khugepaged {
    /// Not at all.
    Asleep,
    /// By the kernel's defaults: 16 MiB, then ten seconds of sleep.
    Default,
    /// 256 MiB, then a tenth of a second: comes by some gigabytes in the seconds that an experiment
    /// can wait, as it would at its defaults in an hour. Chosen.
    Brisk,
    /// Without sleep.
    Fastest,
}

impl Khugepaged {
    /// Sets it so, until the bench is dropped.
    pub(super) fn set(self, bench: &mut Bench) -> Result<()> {
        const SECOND: Nanos = Nanos(1_000_000_000);
        let (pages, sleep) = match self {
            Self::Asleep => (DEFAULT_PACE.0, Nanos(24 * 3600 * SECOND.0)),
            Self::Default => DEFAULT_PACE,
            Self::Brisk => (BasePages(65_536), Nanos(SECOND.0 / 10)),
            Self::Fastest => (BasePages(u32::MAX.into()), Nanos::ZERO),
        };
        let knobs = Thp::under(Path::new("/sys"));
        knobs.set(bench.settings(), thp::PAGES_TO_SCAN, pages)?;
        // Writing to this file also wakes khugepaged.
        knobs.set(bench.settings(), thp::SCAN_SLEEP, sleep)?;
        Ok(())
    }
}

/// What khugepaged scans at the kernel's defaults, and how long it then sleeps.
pub(super) const DEFAULT_PACE: (BasePages, Nanos) = (BasePages(4096), Nanos(10_000_000_000)); // tidy: allow(the kernel's default)

/// khugepaged's process.
pub(super) fn khugepaged_pid() -> Result<Pid> {
    called(&["khugepaged"])?.first().copied().ok_or_else(|| {
        Error::NotPossible("khugepaged is not running, or not to be seen from here".to_owned())
    })
}

/// The processes that run one of these commands now.
pub(super) fn called(commands: &[&str]) -> Result<Vec<Pid>> {
    let mut pids = process::list(Path::new("/proc"))?;
    pids.retain(|pid| {
        // The process may have ended.
        let command = Process::open(*pid).and_then(|process| status::comm(&process));
        command.is_ok_and(|command| commands.iter().any(|name| name.as_bytes() == command))
    });
    Ok(pids)
}

/// The work in the background. Dropping it ends the daemon.
#[derive(Debug)]
pub(super) struct Background {
    daemon: Option<Daemon>,
    khugepaged: Option<Pid>,
    before: Nanos,
}

impl Background {
    /// The CPU time that it took since it was begun. All of the daemon's, its promotions included;
    /// huge pages made by the program's own page faults are the program's.
    pub(super) fn cpu(&self) -> Result<Nanos> {
        Ok(self.total()?.saturating_sub(self.before))
    }

    fn total(&self) -> Result<Nanos> {
        match (&self.daemon, self.khugepaged) {
            (Some(daemon), _) => daemon.cpu(),
            (None, Some(pid)) => Ok(cpu_time(pid)?),
            (None, None) => Ok(Nanos::ZERO),
        }
    }

    /// Ends it, which must go well.
    pub(super) fn end(mut self) -> Result<()> {
        self.daemon.take().map_or(Ok(()), Daemon::stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_manager::config::{self, FirstTouch};

    #[test]
    fn each_variant_goes_first_in_turn() {
        let mut order = Vec::new();
        let samples = in_turn([0, 1], 3, |variant, round| {
            order.push(variant);
            Ok((variant, round))
        });
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        let [first, second] = samples.expect("no trial fails");
        assert_eq!((first, second), (vec![(0, 0), (0, 1), (0, 2)], vec![(1, 0), (1, 1), (1, 2)]));
    }

    #[test]
    fn each_peers_daemon_is_configured_as_the_peer_is_named() {
        let read = |peer: Peer| {
            let text = peer.configuration().expect("it has a daemon");
            config::parse(&text, Path::new("superpage.toml")).expect("valid")
        };
        let usual = Config::default();
        let quicksilver = read(Peer::Quicksilver);
        assert_eq!(quicksilver.promotion.policy.to_string(), Peer::Quicksilver.name());
        assert_eq!(quicksilver.first_touch, FirstTouch::BasePages);
        let generous = read(Peer::Generous);
        assert_eq!(generous.promotion.policy.to_string(), Peer::Generous.name());
        assert_eq!(Config { first_touch: usual.first_touch, ..generous }, usual);
        assert_eq!((read(Peer::Default), read(Peer::Disarmed)), (usual.clone(), usual));
        assert!(
            [Peer::BasePages, Peer::Always, Peer::Armed]
                .map(Peer::configuration)
                .iter()
                .all(Option::is_none)
        );
    }
}
