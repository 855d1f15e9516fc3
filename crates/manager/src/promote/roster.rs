//! Who is watched: which processes are promoted under which policy, and whose faults are heard.

use super::group::Group;
use super::hear::Ears;
use super::tenant::Tenant;
use super::{Remembered, Setup};
use crate::config::CgroupMarks;
use crate::select::{Described, Describer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_kernel::{process, status};
use superpage_units::{Bytes, HugePages, ProcessKey};
use tracing::debug;

/// Processes with less are found by their faults, if ever.
const WORTH_A_LOOK: Bytes = Bytes::from_mib(16);
/// How often the memory of a process that faults is looked over for what no fault told of.
const LOOK_OVER: Duration = Duration::from_secs(5);

/// How often it is looked over in any case: not all faults can be heard (a guest's, for one).
const LOOK_OVER_UNHEARD: Duration = Duration::from_secs(60);

/// A process's place: its key, and the number of its group.
pub(super) type Place = (ProcessKey, usize);

/// What is known of a process by its number.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It is in a group.
    Tenant(Place),
    /// It is not to be promoted.
    NotWanted,
    /// So many of its faults were heard.
    Stranger(u64),
}

/// When a process was looked over, and whether it has faulted since; and when it was heard last.
#[derive(Clone, Copy, Debug)]
struct Looked {
    at: Instant,
    has_faulted: bool,
    heard: Option<Instant>,
}

/// Who is watched.
#[derive(Debug)]
pub(super) struct Roster {
    /// What it goes by.
    pub(super) setup: Setup,
    /// Whose faults are heard.
    pub(super) ears: Ears,
    /// The policies, each with its processes.
    pub(super) groups: Vec<Group>,
    known: HashMap<u32, Known>,
    looked: BTreeMap<ProcessKey, Looked>,
    describer: Describer,
    remembered: Remembered,
}

impl Roster {
    /// Nobody yet; `remembered` is what an earlier one knew of processes.
    pub(super) fn new(setup: Setup, remembered: Remembered) -> Self {
        Self {
            ears: Ears::open(&setup),
            groups: groups(&setup),
            known: HashMap::new(),
            looked: BTreeMap::new(),
            describer: Describer::new(),
            remembered,
            setup,
        }
    }

    /// Goes by another setup; what is known of processes that stay under their policy stays.
    pub(super) fn configure(&mut self, setup: Setup) {
        let mut earlier = std::mem::take(&mut self.groups);
        self.groups = groups(&setup);
        for group in &mut self.groups {
            if let Some(same) = earlier.iter_mut().find(|one| one.name == group.name) {
                std::mem::swap(group, same);
            }
        }
        for tenant in earlier.iter_mut().flat_map(|group| group.view.tenants_mut()) {
            self.remembered.insert(tenant.key(), tenant.remembered().collect());
        }
        if heard(&self.setup) != heard(&setup) {
            self.ears = Ears::open(&setup);
            for tenant in self.groups.iter_mut().flat_map(|group| group.view.tenants_mut()) {
                self.ears.hear(tenant.key(), &tenant.held.process);
            }
        }
        self.setup = setup;
        self.sort_again();
    }

    /// Puts every process under the policy that it has now; who comes to another is held anew.
    fn sort_again(&mut self) {
        self.known.clear();
        for (index, key, pid) in self.places() {
            let is_right = self.place(pid).is_some_and(|(_, place)| place == index);
            if is_right {
                self.known.insert(pid, Known::Tenant((key, index)));
            } else if let Some(tenant) = self.groups.get_mut(index).and_then(|g| g.remove(key)) {
                self.remembered.insert(key, tenant.remembered().collect());
                self.ears.forget(key);
            }
        }
        self.sweep();
    }

    fn places(&mut self) -> Vec<(usize, ProcessKey, u32)> {
        let groups = self.groups.iter_mut().enumerate();
        let of = |(index, group): (usize, &mut Group)| {
            let of = |tenant: &mut Tenant| (index, tenant.key(), tenant.held.process.pid());
            group.view.tenants_mut().map(of).collect::<Vec<_>>()
        };
        groups.flat_map(of).collect()
    }

    /// The group that process `pid` belongs to, if it is to be promoted.
    fn place(&self, pid: u32) -> Option<(Described, usize)> {
        let described = self.describer.describe(pid)?;
        if !described.is_admitted(&self.setup.processes) {
            return None;
        }
        let promotion = &self.setup.promotion;
        let rule = promotion.rules.iter().find(|rule| described.matches(&rule.who));
        let policy = rule.map_or(promotion.policy, |rule| rule.policy);
        let index = self.groups.iter().position(|group| group.policy() == policy)?;
        Some((described, index))
    }

    /// Takes hold of a process, if it is to be promoted.
    fn hold(&mut self, pid: u32) -> Option<Place> {
        let (described, index) = self.place(pid)?;
        let Described { key, process, command, cgroup, .. } = described;
        let holds =
            |group: &&CgroupMarks| cgroup.as_ref().is_some_and(|c| c.starts_with(&group.path));
        let guarding = self.setup.cgroups.iter().filter(holds);
        let guarding = guarding.max_by_key(|group| group.path.as_os_str().len());
        let guarding = guarding.map(|group| (group.path.clone(), group.marks));
        let tenant = Tenant::new(key, process, command, cgroup)
            .inspect_err(|error| debug!(pid, "not watched: {error}"));
        let mut tenant = tenant.ok()?;
        if tenant.refuses_huge_pages() {
            debug!(pid, "it forbade itself huge pages (PR_SET_THP_DISABLE)");
            return None;
        }
        if let Some((path, marks)) = guarding {
            tenant.guard(path, marks);
        }
        tenant.remember(self.remembered.remove(&key).unwrap_or_default());
        self.ears.hear(key, &tenant.held.process);
        self.groups.get_mut(index)?.add(tenant);
        self.looked.insert(key, Looked { at: Instant::now(), has_faulted: true, heard: None });
        Some((key, index))
    }

    /// Goes through all processes: those that have gone are let go, large ones are taken hold of.
    pub(super) fn sweep(&mut self) {
        let Ok(pids) = process::list(Path::new("/proc")) else { return };
        let alive: BTreeSet<u32> = pids.iter().copied().collect();
        let is_gone = |(pid, known): &(&u32, &Known)| {
            !alive.contains(pid)
                || matches!(known, Known::Tenant(place) if !self.is_current(*place))
        };
        let gone: Vec<u32> = self.known.iter().filter(is_gone).map(|(pid, _)| *pid).collect();
        for pid in gone {
            self.let_go(pid);
        }
        // Somebody may have changed user or group.
        self.known.retain(|_, known| matches!(known, Known::Tenant(_)));
        let named: BTreeSet<u32> = self.setup.processes.include.pids.iter().copied().collect();
        for pid in pids {
            let is_worth = named.contains(&pid) || is_large(pid);
            if is_worth && !self.known.contains_key(&pid) {
                let known = self.hold(pid).map_or(Known::NotWanted, Known::Tenant);
                self.known.insert(pid, known);
            }
        }
    }

    /// Lets a process go that has gone, or is another program now.
    pub(super) fn let_go(&mut self, pid: u32) -> Option<ProcessKey> {
        let Some(Known::Tenant((key, index))) = self.known.remove(&pid) else { return None };
        if let Some(group) = self.groups.get_mut(index) {
            group.remove(key);
        }
        self.ears.forget(key);
        self.looked.remove(&key);
        Some(key)
    }

    /// Takes hold of a process that the configuration names by its number; it is another program
    /// now, and its faults are not heard any more.
    pub(super) fn hold_if_named(&mut self, pid: u32) {
        if self.setup.processes.include.pids.contains(&pid) {
            let known = self.hold(pid).map_or(Known::NotWanted, Known::Tenant);
            self.known.insert(pid, known);
        }
    }

    /// The place of a process of which a fault was heard. One that is not known yet is taken hold
    /// of once it may have touched the base pages of one huge page.
    pub(super) fn whose(&mut self, pid: u32) -> Option<Place> {
        let heard = match self.known.get(&pid) {
            Some(Known::Tenant(place)) if self.is_current(*place) => return Some(*place),
            Some(Known::Tenant(_)) => {
                self.let_go(pid);
                u64::MAX
            }
            Some(Known::NotWanted) => return None,
            Some(Known::Stranger(heard)) => heard + 1,
            None => 1,
        };
        // One of so many is heard, and for a share of the time.
        let promotion = &self.setup.promotion;
        let heard_of = promotion.period.get() as f64 / promotion.listen;
        let known = match heard as f64 * heard_of >= HugePages(1).base_pages().0 as f64 {
            true => self.hold(pid).map_or(Known::NotWanted, Known::Tenant),
            false => Known::Stranger(heard),
        };
        self.known.insert(pid, known);
        if let Known::Tenant(place) = known { Some(place) } else { None }
    }

    /// Whether the process still runs the program that it was taken hold of with.
    fn is_current(&self, (key, index): Place) -> bool {
        let tenant = self.groups.get(index).and_then(|group| group.view.tenant(key));
        tenant.is_some_and(|tenant| tenant.held.pagemap.is_current())
    }

    /// The place of a process that is watched.
    pub(super) fn place_of(&self, pid: u32) -> Option<Place> {
        match self.known.get(&pid) {
            Some(Known::Tenant(place)) => Some(*place),
            _ => None,
        }
    }

    /// It has faulted since it was looked over.
    pub(super) fn has_faulted(&mut self, key: ProcessKey) {
        if let Some(looked) = self.looked.get_mut(&key) {
            looked.has_faulted = true;
        }
    }

    /// It was heard now; whether it had not been for so long.
    pub(super) fn was_quiet(&mut self, key: ProcessKey, time: Instant, quiet: Duration) -> bool {
        let Some(looked) = self.looked.get_mut(&key) else { return false };
        let before = looked.heard.replace(time);
        before.is_none_or(|before| time.saturating_duration_since(before) >= quiet)
    }

    /// Has those looked over that have faulted and were not looked over lately.
    pub(super) fn look_again(&mut self, time: Instant) {
        for group in &mut self.groups {
            let keys: Vec<_> = group.view.tenants_mut().map(|tenant| tenant.key()).collect();
            for key in keys {
                let Some(looked) = self.looked.get_mut(&key) else { continue };
                let age = time.saturating_duration_since(looked.at);
                if looked.has_faulted && age >= LOOK_OVER || age >= LOOK_OVER_UNHEARD {
                    *looked = Looked { at: time, has_faulted: false, ..*looked };
                    group.look_again(key);
                }
            }
        }
    }

    /// Has everybody looked over.
    pub(super) fn look_at_all(&mut self) {
        for group in &mut self.groups {
            let keys: Vec<_> = group.view.tenants_mut().map(|tenant| tenant.key()).collect();
            keys.into_iter().for_each(|key| group.look_again(key));
        }
    }

    /// Regions that were huge, of all that are watched.
    pub(super) fn remembered(&mut self) -> Remembered {
        let tenants = self.groups.iter_mut().flat_map(|group| group.view.tenants_mut());
        tenants.map(|tenant| (tenant.key(), tenant.remembered().collect())).collect()
    }
}

fn is_large(pid: u32) -> bool {
    status::resident(Path::new("/proc"), pid).is_ok_and(|resident| resident >= WORTH_A_LOOK)
}

/// What decides whose faults are heard.
fn heard(setup: &Setup) -> impl PartialEq {
    let hears = setup.promotion.policies().any(super::policy::Promotion::hears_faults);
    (
        setup.processes.include.clone(),
        setup.promotion.period,
        setup.promotion.listen,
        setup.ring,
        hears,
    )
}

/// A group for each policy that some process may have.
fn groups(setup: &Setup) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for policy in setup.promotion.policies() {
        if groups.iter().all(|group| group.policy() != policy) {
            groups.extend(Group::new(policy, setup.promotion.budget));
        }
    }
    groups
}
