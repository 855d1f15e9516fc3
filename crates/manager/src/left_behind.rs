//! Threads that are left behind because a process keeps them waiting, counted by the owner of that process: its user in its
//! cgroup.
//!
//! Who keeps threads waiting uses up a share of his own, and the processes of others are served. Root's processes are told apart
//! by their cgroups, because those of many containers run as root.

use crate::select::Identity;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use superpage_kernel::status::Uid;

/// With two threads left behind for one owner, nothing more is begun in that owner's processes: the next would wait too.
/// Chosen, not measured.
const MOST_OF_OWNER: usize = 2;
/// With eight for one user in whatever cgroups, likewise, but for root: a user may make cgroups. Chosen, not measured.
const MOST_OF_USER: usize = 8;
/// With 32 in all, nothing is begun anywhere until one comes back. Chosen, not measured: sixteen owners' share. The unit's
/// `TasksMax` leaves room for as many of passes and of promotions.
pub(crate) const MOST: usize = 32;

/// Whose a process is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The effective user.
    pub user: Uid,
    /// The directory of the memory cgroup, if that is known.
    pub cgroup: Option<Arc<Path>>,
}

impl Owner {
    /// The owner of the process with this identity.
    #[must_use]
    pub fn of(identity: &Identity) -> Self {
        Self { user: identity.user, cgroup: identity.cgroup.path().cloned() }
    }

    fn is_root(&self) -> bool {
        self.user == Uid(0)
    }
}

/// How many threads are left behind, and for whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind {
    owners: BTreeMap<Owner, usize>,
    users: BTreeMap<Uid, usize>,
    all: usize,
}

impl LeftBehind {
    /// A thread is left behind for each of these; `None` stands for one that waits for nobody in particular.
    pub(crate) fn of<'a>(waited_for: impl Iterator<Item = Option<&'a Owner>>) -> Self {
        let mut counts = Self::default();
        for owner in waited_for {
            counts.all += 1;
            if let Some(owner) = owner {
                *counts.owners.entry(owner.clone()).or_default() += 1;
                *counts.users.entry(owner.user).or_default() += 1;
            }
        }
        counts
    }

    /// Whether nothing more is to be begun in this owner's processes.
    pub(crate) fn is_used_up_by(&self, owner: &Owner) -> bool {
        let of_owner = self.owners.get(owner).copied().unwrap_or_default();
        let of_user = self.users.get(&owner.user).copied().unwrap_or_default();
        of_owner >= MOST_OF_OWNER || !owner.is_root() && of_user >= MOST_OF_USER
    }

    /// Whether nothing more is to be begun anywhere.
    pub(crate) fn is_full(&self) -> bool {
        self.all >= MOST
    }

    /// The number of threads.
    pub(crate) fn count(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(user: u32, cgroup: &str) -> Owner {
        Owner { user: Uid(user), cgroup: Some(Path::new(cgroup).into()) }
    }

    fn left(owners: &[Owner]) -> LeftBehind {
        LeftBehind::of(owners.iter().map(Some))
    }

    #[test]
    fn an_owner_uses_up_only_what_is_his() {
        let pod = owner(0, "/pod");
        let eight = left(&vec![owner(1000, "/"); 8]);
        assert!(eight.is_used_up_by(&owner(1000, "/")) && !eight.is_full());
        for other in [owner(0, "/"), owner(1001, "/"), pod.clone()] {
            assert!(!eight.is_used_up_by(&other), "{other:?}");
        }
        let one = left(std::slice::from_ref(&pod));
        assert!(!one.is_used_up_by(&pod));
        let two = left(&[pod.clone(), pod.clone()]);
        assert!(two.is_used_up_by(&pod) && two.count() == 2);
        for other in [owner(0, "/"), owner(0, "/pod/deeper"), owner(1000, "/pod")] {
            assert!(!two.is_used_up_by(&other), "{other:?}");
        }
        let unknown = Owner { user: Uid(0), cgroup: None };
        assert!(!two.is_used_up_by(&unknown), "an unknown cgroup is no other's");
    }

    #[test]
    fn a_user_gets_no_more_by_making_cgroups_and_root_is_not_one_user() {
        let of = |user| -> Vec<Owner> { (0..8).map(|n| owner(user, &format!("/{n}"))).collect() };
        assert!(left(&of(1000)).is_used_up_by(&owner(1000, "/new")));
        assert!(!left(&of(1000)[..7]).is_used_up_by(&owner(1000, "/new")));
        assert!(!left(&of(0)).is_used_up_by(&owner(0, "/new")));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let all = LeftBehind::of(std::iter::repeat_n(None, MOST));
        assert!(all.is_full() && !all.is_used_up_by(&owner(1, "/")));
        assert!(!LeftBehind::of(std::iter::repeat_n(None, MOST - 1)).is_full());
    }
}
