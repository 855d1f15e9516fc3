//! Whose page faults are heard: no more than have to be.
//!
//! Where the configuration names processes by number, only those; where it names cgroups, only
//! those; else the whole machine, because a process that is to be promoted may start at any time.
//! Where the whole machine is out of reach, the processes that are found one by one.

use super::Setup;
use crate::select::Filter;
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use superpage_kernel::Result;
use superpage_kernel::fault_events::{Counts, Event, FaultEvents, Scope, Watched};
use superpage_kernel::process::Process;
use superpage_policy::debloat::ProcessKey;
use tracing::{info, warn};

/// Processes that are heard one by one, at the most: each takes a descriptor for each of its
/// threads and each CPU.
const MOST: usize = 256; // tidy: allow(processes)

/// What hears.
#[derive(Debug)]
pub(super) struct Ears {
    period: NonZeroU64,
    // Before the rings that they write to.
    wide: Vec<Watched>,
    single: BTreeMap<ProcessKey, Watched>,
    rings: Option<FaultEvents>,
}

impl Ears {
    /// Hears whom the configuration is about; nobody, if the kernel does not let us.
    pub(super) fn open(setup: &Setup) -> Self {
        let Setup { processes, promotion, ring, .. } = setup;
        let period = promotion.period;
        let none = Self { period, wide: Vec::new(), single: BTreeMap::new(), rings: None };
        if !promotion.policies().any(super::policy::Promotion::hears_faults) {
            return none;
        }
        let rings = match FaultEvents::new(*ring) {
            Ok(rings) => rings,
            Err(error) => {
                warn!("page faults cannot be seen, memory is looked over instead: {error}");
                return none;
            }
        };
        let wide = match wide(&processes.include) {
            Wide::Nobody => Vec::new(),
            Wide::Cgroups => cgroups(&rings, &processes.include, period)
                .or_else(|_| machine(&rings, period))
                .unwrap_or_default(),
            Wide::Machine => machine(&rings, period).unwrap_or_else(|error| {
                warn!("only single processes are watched for page faults: {error}");
                Vec::new()
            }),
        };
        Self { wide, rings: Some(rings), ..none }
    }

    /// Hears this process too, unless it is heard already.
    pub(super) fn hear(&mut self, key: ProcessKey, process: &Process) {
        let Some(rings) = self.rings.as_ref().filter(|_| self.wide.is_empty()) else { return };
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

enum Wide {
    Nobody,
    Cgroups,
    Machine,
}

fn wide(include: &Filter) -> Wide {
    let has_names = !include.commands.is_empty() || !include.users.is_empty();
    match (include.pids.is_empty(), include.cgroups.is_empty()) {
        (false, true) if !has_names => Wide::Nobody,
        (true, false) if !has_names => Wide::Cgroups,
        _ => Wide::Machine,
    }
}

fn cgroups(rings: &FaultEvents, include: &Filter, period: NonZeroU64) -> Result<Vec<Watched>> {
    include.cgroups.iter().map(|path| rings.watch(Scope::Cgroup(path), period)).collect()
}

fn machine(rings: &FaultEvents, period: NonZeroU64) -> Result<Vec<Watched>> {
    rings.watch(Scope::Machine, period).map(|watched| vec![watched])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_heard_than_has_to_be() {
        let pids = Filter { pids: vec![7], ..Filter::default() };
        let groups = Filter { cgroups: vec!["/g".into()], ..Filter::default() };
        let both = Filter { cgroups: vec!["/g".into()], ..pids.clone() };
        let names = Filter { commands: vec!["a".into()], ..pids.clone() };
        assert!(matches!(wide(&pids), Wide::Nobody));
        assert!(matches!(wide(&groups), Wide::Cgroups));
        for filter in [both, names, Filter::default()] {
            assert!(matches!(wide(&filter), Wide::Machine));
        }
    }
}
