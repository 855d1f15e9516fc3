//! What may be reclaimed from which process, where watched memory stands like this.

use crate::config::Config;
use crate::daemon::watch::{Level, Watch};
use crate::free_memory::Nodes;
use crate::pass::Permission;
use crate::promote::policy::Promotion;
use crate::select::Identity;
use superpage_kernel::node::NodeSet;
use superpage_policy::promotion::capabilities::IdleReclaim;

/// Where the memory of each watch stands; `None` where that cannot be told.
pub(in crate::daemon) struct Levels(Vec<Option<Level>>);

impl Levels {
    pub(in crate::daemon) fn now(watches: &[Watch]) -> Self {
        let mut nodes = Nodes::now();
        Self(watches.iter().map(|watch| watch.level(&mut nodes)).collect())
    }

    pub(in crate::daemon) fn is_any_high(&self) -> bool {
        self.0.contains(&Some(Level::High))
    }

    /// Whether something may be reclaimed from some process under this policy.
    pub(in crate::daemon) fn allow_some_of(&self, policy: Promotion) -> bool {
        match policy.idle_reclaim() {
            IdleReclaim::Always => true,
            IdleReclaim::AboveLow => self.0.iter().any(|level| *level > Some(Level::Low)),
            IdleReclaim::Never => false,
        }
    }
}

/// What may be done, without a pass above the high watermark, to a process, bound to these nodes if to any, where watched memory
/// stands like this.
pub(super) fn idle(
    identity: &Identity,
    nodes: Option<&NodeSet>,
    config: &Config,
    watches: &[Watch],
    levels: &Levels,
) -> Permission {
    let is_short = || {
        let covers = |watch: &Watch| watch.covers(identity.cgroup(), nodes);
        watches
            .iter()
            .zip(&levels.0)
            .any(|(watch, level)| *level > Some(Level::Low) && covers(watch))
    };
    let is_selected = config.processes.admits(identity);
    let policy = config.promotion.policy_of(identity).filter(|_| is_selected);
    match policy.map_or(IdleReclaim::Never, Promotion::idle_reclaim) {
        IdleReclaim::Always => Permission::All,
        IdleReclaim::AboveLow if is_short() => Permission::NotAskedFor,
        IdleReclaim::AboveLow | IdleReclaim::Never => Permission::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, PromotionConfig};
    use crate::daemon::watch;
    use crate::select::Membership;
    use std::path::Path;
    use superpage_policy::promotion::list::Registry;

    #[test]
    fn by_default_nothing_is_reclaimed_where_memory_is_free() {
        let text = "[[cgroup]]\npath = \"/guarded\"\n";
        let config = config::parse(text, Path::new("test.toml")).expect("valid");
        let watches = watch::all(&config);
        let permission = |policy: &str, cgroup: &str, levels: [Option<Level>; 2]| {
            let policy = Promotion::named(policy, &Registry::published()).expect("a policy");
            let promotion = PromotionConfig { policy, ..config.promotion.clone() };
            let config = Config { promotion, ..config.clone() };
            let cgroup = Membership::Known(Path::new(cgroup).into());
            let identity = Identity { cgroup, ..Identity::for_tests() };
            idle(&identity, None, &config, &watches, &Levels(levels.to_vec()))
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
