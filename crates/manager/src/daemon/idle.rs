//! Reclaiming bloat without a pass above the high watermark: huge pages that stay partly used are split
//! in the background, of processes whose promotion policy wants that ([`IdleReclaim`]).

use super::watch::{Level, Watch};
use super::{Daemon, LOOK_AGAIN, Signals, nanos};
use crate::config::Config;
use crate::pass::{Event, Flow, Pass, Permission};
use crate::promote::policy::Promotion;
use crate::promote::{self, Promoter};
use crate::select::Facts;
use crate::target::Target;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use superpage_kernel::Error;
use superpage_kernel::usage::CpuTime;
use superpage_policy::debloat::emd::{self, Emd, Observation};
use superpage_policy::system::capabilities::IdleReclaim;
use superpage_units::{BasePages, Nanos, Region};
use tracing::error;

/// While huge pages that may be partly used are looked for, the process is left alone for so many times
/// longer than each stride takes. Chosen, not measured.
const UNHURRIED: u32 = 3;
/// Looking for them may take at most one in so much of a core's time: which huge pages there are now, not
/// what is in them. Chosen, not measured.
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

    /// Whether something may be reclaimed from some process under this policy.
    fn allow_some_of(&self, policy: Promotion) -> bool {
        match policy.idle_reclaim() {
            IdleReclaim::Always => true,
            IdleReclaim::AboveLow => self.0.iter().any(|level| *level > Some(Level::Low)),
            IdleReclaim::Never => false,
        }
    }
}

/// Huge pages that are to be looked at, with whose they are.
type Due = Vec<(Target, Vec<Region>)>;

/// What may be done to a process where watched memory stands like this.
fn permission(
    facts: &Facts<'_>,
    config: &Config,
    watches: &[Watch],
    levels: &Levels,
) -> Permission {
    let is_short = || {
        let mut watches = watches.iter().zip(&levels.0);
        watches.any(|(watch, level)| *level > Some(Level::Low) && watch.covers(facts.cgroup()))
    };
    let policy = config.promotion.policy_of(facts).filter(|_| config.processes.admits(facts));
    match policy.map_or(IdleReclaim::Never, Promotion::idle_reclaim) {
        IdleReclaim::Always => Permission::All,
        IdleReclaim::AboveLow if is_short() => Permission::NotAskedFor,
        IdleReclaim::AboveLow | IdleReclaim::Never => Permission::Nothing,
    }
}

impl Daemon {
    /// Splits huge pages that stay partly used, of processes whose policy wants that now.
    pub(super) fn reclaim_idle(&mut self, signals: &Signals) {
        if Instant::now() < self.next_idle || signals.any() {
            return;
        }
        let levels = Levels::now(&self.watches);
        let may_any = {
            let mut policies = self.config.promotion.policies();
            policies.any(|policy| levels.allow_some_of(policy))
        };
        // Memory above a watermark comes first.
        if levels.is_any_high() || !may_any {
            return;
        }
        let (now, before) = (promote::now(), CpuTime::of_thread());
        let status = self.promoter.as_ref().map(Promoter::status).unwrap_or_default();
        let promoted = status.reclaim_from;
        let due = self.due(promoted.keys().copied(), &levels, now);
        let cost = Duration::from_nanos(CpuTime::of_thread().since(before).0);
        self.next_idle = Instant::now() + (cost * DEAREST).min(LATEST);
        let done = due.and_then(|due| match due.is_empty() {
            true => Ok(()),
            false => self.reclaim_from(due, &promoted, levels, now, signals),
        });
        if let Err(error) = done {
            error!("idle huge pages cannot be reclaimed: {error}");
        }
    }

    /// The huge pages that are to be looked at now, of those of these processes from which may be
    /// reclaimed now.
    fn due(
        &mut self,
        pids: impl Iterator<Item = u32>,
        levels: &Levels,
        now: Nanos,
    ) -> Result<Due, Error> {
        let (mut targets, mut others) = (Vec::new(), BTreeSet::new());
        for found in pids.filter_map(|pid| self.describer.describe(pid)) {
            let may = permission(&found.facts(), &self.config, &self.watches, levels);
            if may == Permission::Nothing {
                // What is known of it is kept until it may be reclaimed from again.
                others.insert(found.key);
                continue;
            }
            let target = Target::new(found.key, found.process, found.command);
            targets.extend(target.map(|mut target| {
                target.take_time(UNHURRIED);
                target
            }));
        }
        self.looks.see(targets, &others, nanos(self.config.promotion.idle), now)
    }

    fn reclaim_from(
        &mut self,
        due: Due,
        policies: &BTreeMap<u32, String>,
        levels: Levels,
        now: Nanos,
        signals: &Signals,
    ) -> Result<(), Error> {
        let (options, all) = (self.options(), BasePages(u64::MAX));
        let mut pass = Pass::over(due, all, options, &self.cooling, now);
        let cause = format!(
            "partly used and so for {}",
            humantime::format_duration(self.config.promotion.idle)
        );
        let levels = RefCell::new(levels);
        let mut guard = |target: &Target| {
            let may = |facts: &Facts<'_>| {
                permission(facts, &self.config, &self.watches, &levels.borrow())
            };
            self.describer.ask(target.process(), may).unwrap_or(Permission::Nothing)
        };
        let mut looked = Instant::now();
        let mut watch = |event: Event<'_>| {
            let policy = match &event {
                Event::Broke { process, .. } => policies.get(&process.pid).map(String::as_str),
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
            Emd::new(emd::Options { observation: Observation::Filtered, ..self.config.emd });
        pass.run_guarded(&mut emd, &mut self.cooling, now, &mut guard, &mut watch)?;
        self.teller.left_alone(pass.account());
        self.looks.looked(pass.maps(), nanos(self.config.promotion.idle), now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, PromotionConfig};
    use std::path::Path;
    use superpage_policy::system::list::Registry;

    #[test]
    fn by_default_nothing_is_reclaimed_where_memory_is_free() {
        let text = "[[cgroup]]\npath = \"/guarded\"\n";
        let config = config::parse(text, Path::new("test.toml")).expect("valid");
        let watches = super::super::watch::all(&config);
        let permission = |policy: &str, cgroup: &str, levels: [Option<Level>; 2]| {
            let policy = Promotion::named(policy, &Registry::published()).expect("a policy");
            let promotion = PromotionConfig { policy, ..config.promotion.clone() };
            let config = Config { promotion, ..config.clone() };
            let facts = Facts::in_cgroup(Path::new(cgroup));
            super::permission(&facts, &config, &watches, &Levels(levels.to_vec()))
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
