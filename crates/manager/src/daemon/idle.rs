//! Reclaiming bloat without a pass above the high watermark: huge pages that stay partly used are split
//! in the background, of processes whose promotion policy wants that ([`IdleReclaim`]).

use super::watch::{Level, Watch};
use super::{Daemon, LOOK_AGAIN, Signals, nanos};
use crate::pass::{End, Event, Flow, Pass, Permission};
use crate::promote::policy::Promotion;
use crate::promote::{self, Promoter};
use crate::target::Target;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use superpage_kernel::Error;
use superpage_kernel::usage::CpuTime;
use superpage_policy::debloat::emd::{self, Emd, Observation};
use superpage_policy::system::capabilities::IdleReclaim;
use superpage_policy::system::list::Registry;
use superpage_units::BasePages;
use tracing::error;

/// While huge pages that may be partly used are looked for, the process is left alone for so many times
/// longer than each stride takes. Chosen, not measured.
const UNHURRIED: u32 = 3;
/// Looking for them may take at most one in so much of a core's time. Chosen, not measured.
const DEAREST: u32 = 1000; // tidy: allow(times longer)
/// They are looked for again after this at the latest, however long it takes. Chosen, not measured.
const LATEST: Duration = Duration::from_secs(120);

/// Where the memory of each watch stands; `None` where that cannot be told.
struct Levels(Vec<Option<Level>>);

impl Levels {
    fn now(watches: &[Watch]) -> Self {
        Self(watches.iter().map(Watch::level).collect())
    }

    fn is_any_high(&self) -> bool {
        self.0.contains(&Some(Level::High))
    }
}

/// A process of which idle huge pages may be reclaimed.
struct Managed {
    /// The name of its promotion policy.
    policy: String,
    cgroup: Option<PathBuf>,
}

impl Managed {
    /// What may be done to it where watched memory stands like this.
    fn permission(&self, watches: &[Watch], levels: &Levels) -> Permission {
        let is_short = || {
            let mut watches = watches.iter().zip(&levels.0);
            watches.any(|(watch, level)| {
                *level > Some(Level::Low) && watch.covers(self.cgroup.as_deref())
            })
        };
        let registry = Registry::published();
        let policy = Promotion::named(&self.policy, &registry);
        match policy.map_or(IdleReclaim::Never, Promotion::idle_reclaim) {
            IdleReclaim::Always => Permission::All,
            IdleReclaim::AboveLow if is_short() => Permission::NotAskedFor,
            IdleReclaim::AboveLow | IdleReclaim::Never => Permission::Nothing,
        }
    }
}

impl Daemon {
    /// Splits huge pages that stay partly used, of processes whose policy wants that now.
    pub(super) fn reclaim_idle(&mut self, signals: &Signals) {
        if Instant::now() < self.next_idle || signals.any() {
            return;
        }
        let levels = Levels::now(&self.watches);
        // Memory above a watermark comes first.
        if levels.is_any_high() {
            return;
        }
        let (targets, managed) = self.with_idle_memory(&levels);
        if let Err(error) = self.reclaim_from(targets, &managed, levels, signals) {
            error!("idle huge pages cannot be reclaimed: {error}");
        }
    }

    /// The processes of which idle huge pages may be reclaimed now.
    fn with_idle_memory(&self, levels: &Levels) -> (Vec<Target>, BTreeMap<u32, Managed>) {
        let status = self.promoter.as_ref().map(Promoter::status).unwrap_or_default();
        let (mut targets, mut managed) = (Vec::new(), BTreeMap::new());
        for (pid, policy) in status.reclaim_from {
            let Some(found) = self.describer.describe(pid) else { continue };
            let one = Managed { policy, cgroup: found.cgroup.clone() };
            let may = one.permission(&self.watches, levels);
            if may == Permission::Nothing || !found.is_admitted(&self.config.processes) {
                continue;
            }
            let Ok(mut target) = Target::new(found.key, found.process, found.command) else {
                continue;
            };
            target.take_time(UNHURRIED);
            managed.insert(pid, one);
            targets.push(target);
        }
        (targets, managed)
    }

    fn reclaim_from(
        &mut self,
        targets: Vec<Target>,
        managed: &BTreeMap<u32, Managed>,
        levels: Levels,
        signals: &Signals,
    ) -> Result<(), Error> {
        let (now, idle) = (promote::now(), nanos(self.config.promotion.idle));
        let before = CpuTime::of_thread();
        let due = self.looks.see(targets, idle, now);
        let cost = Duration::from_nanos(CpuTime::of_thread().since(before).0);
        self.next_idle = Instant::now() + (cost * DEAREST).min(LATEST);
        let due = due?;
        if due.is_empty() {
            return Ok(());
        }
        let (options, all) = (self.options(), BasePages(u64::MAX));
        let mut pass = Pass::over(due, all, options, &self.cooling, now);
        let cause = format!(
            "partly used and so for {}",
            humantime::format_duration(self.config.promotion.idle)
        );
        let levels = RefCell::new(levels);
        let mut guard = |target: &Target| {
            let one = managed.get(&target.process().pid());
            one.map_or(Permission::Nothing, |one| one.permission(&self.watches, &levels.borrow()))
        };
        let mut looked = Instant::now();
        let mut watch = |event: Event<'_>| {
            let policy = match &event {
                Event::Broke { process, .. } => managed.get(&process.pid).map(|one| &*one.policy),
                _ => None,
            };
            self.teller.event(&event, policy.unwrap_or_default(), Some(&cause));
            let is_short = looked.elapsed() >= LOOK_AGAIN && {
                looked = Instant::now();
                self.teller.tell(&self.watches, self.promoter.as_ref());
                levels.replace(Levels::now(&self.watches));
                // Memory above a watermark comes first.
                levels.borrow().is_any_high()
            };
            if is_short || signals.any() { Flow::Stop } else { Flow::Continue }
        };
        // Most of them are in use. What is taken for that is not looked at again soon, so that
        // little may be missed.
        let mut emd =
            Emd::new(emd::Options { observation: Observation::Sifted, ..self.config.emd });
        let end = pass.run_guarded(&mut emd, &mut self.cooling, now, &mut guard, &mut watch)?;
        self.teller.left_alone(pass.account());
        if end != End::Stopped {
            self.looks.looked(idle, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::path::Path;

    #[test]
    fn by_default_nothing_is_reclaimed_where_memory_is_free() {
        let text = "[[cgroup]]\npath = \"/guarded\"\n";
        let config = config::parse(text, Path::new("test.toml")).expect("valid");
        let watches = super::super::watch::all(&config);
        let permission = |policy: &str, cgroup: &str, levels: [Option<Level>; 2]| {
            let cgroup = Some(PathBuf::from(cgroup));
            let one = Managed { policy: policy.to_owned(), cgroup };
            one.permission(&watches, &Levels(levels.to_vec()))
        };
        let (low, between) = (Some(Level::Low), Some(Level::Between));
        for (levels, inside, outside) in [
            ([low, low], Permission::Nothing, Permission::Nothing),
            ([low, None], Permission::Nothing, Permission::Nothing),
            ([low, between], Permission::NotAskedFor, Permission::Nothing),
            ([between, low], Permission::NotAskedFor, Permission::NotAskedFor),
        ] {
            assert_eq!(permission("default", "/guarded/service", levels), inside, "{levels:?}");
            assert_eq!(permission("default", "/other", levels), outside, "{levels:?}");
            assert_eq!(permission("quicksilver-sync-64", "/other", levels), Permission::All);
            assert_eq!(permission("ingens", "/guarded", levels), Permission::Nothing);
        }
    }
}
