//! The promotion policy that a configuration names: one of the registry's, the daemon's own default, or
//! none.

use std::fmt;
use superpage_policy::promotion::Policy;
use superpage_policy::promotion::capabilities::{Capabilities, Faults, FirstTouch, IdleReclaim};
use superpage_policy::promotion::list::{Chosen, FAMILIES, Registry};

/// Our own rule, and another name of it.
const SUPERPAGE: &str = "superpage";
const DEFAULT: &str = "default";
/// The balance that Quicksilver's authors found, and another name of it.
const SYNC_64: &str = "quicksilver-sync-64";
const QUICKSILVER: &str = "quicksilver";

/// A promotion policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Nothing is promoted.
    Off,
    /// By this policy.
    By(Chosen),
}

/// There is no promotion policy of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPromotion {
    name: String,
    expected: String,
}

impl fmt::Display for UnknownPromotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, expected } = self;
        write!(f, "there is no promotion policy {name:?}; expected one of {expected}")
    }
}

impl std::error::Error for UnknownPromotion {}

impl fmt::Display for Promotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::By(chosen) => chosen.fmt(f),
        }
    }
}

/// The names that a configuration can say, for messages.
#[must_use]
pub fn names(registry: &Registry) -> String {
    let families = FAMILIES.iter().map(|family| format!("{}T (T from 1 to 512)", family.prefix));
    let is_in_family = |name: &str| FAMILIES.iter().any(|family| name.starts_with(family.prefix));
    let single = registry.live().map(|entry| entry.name).filter(|name| !is_in_family(name));
    let all = [QUICKSILVER.to_owned()].into_iter().chain(families).chain(single.map(str::to_owned));
    all.chain(["off".to_owned()]).collect::<Vec<_>>().join(", ")
}

impl Promotion {
    /// The policy with this name.
    ///
    /// # Errors
    /// [`UnknownPromotion`], also for one that cannot be run from outside of a process.
    pub fn named(name: &str, registry: &Registry) -> Result<Self, UnknownPromotion> {
        let live = |name| {
            let chosen = registry.find(name)?;
            chosen.capabilities().need.is_none().then_some(chosen)
        };
        let found = match name {
            "off" => Some(Self::Off),
            DEFAULT => live(SUPERPAGE).map(Self::By),
            QUICKSILVER => live(SYNC_64).map(Self::By),
            other => live(other).map(Self::By),
        };
        found.ok_or_else(|| UnknownPromotion { name: name.to_owned(), expected: names(registry) })
    }

    fn chosen(&self) -> Option<&Chosen> {
        match self {
            Self::Off => None,
            Self::By(chosen) => Some(chosen),
        }
    }

    /// The policy itself, as the simulated machine runs it; `None` if nothing is to be promoted.
    #[must_use]
    pub fn build(self) -> Option<Box<dyn Policy>> {
        self.chosen().map(Chosen::build)
    }

    fn capabilities(self) -> Option<Capabilities> {
        self.chosen().map(Chosen::capabilities)
    }

    /// Whether it is told of page faults; else it scans.
    #[must_use]
    pub fn is_told_of_faults(self) -> bool {
        self.capabilities().is_some_and(|able| able.faults == Faults::Told)
    }

    /// Whether it wants first touches to give base pages.
    #[must_use]
    pub fn wants_base_pages(self) -> bool {
        self.capabilities().is_some_and(|able| able.first_touch == FirstTouch::BasePage)
    }

    /// When huge pages that stay partly used are split in the background.
    #[must_use]
    pub fn idle_reclaim(self) -> IdleReclaim {
        self.capabilities().map_or(IdleReclaim::Never, |able| able.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Promotion {
        Promotion::named(name, &Registry::published()).expect(name)
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "superpage",
            "off",
            "quicksilver-sync-1",
            "quicksilver-async-512",
            "ingens",
            "linux",
            "freebsd",
            "hawkeye-star",
        ] {
            assert_eq!(named(name).to_string(), name);
        }
        assert_eq!(named("quicksilver").to_string(), "quicksilver-sync-64");
        assert_eq!(named("default").to_string(), "superpage");
        for name in ["", "quicksilver-sync-0", "quicksilver-sync", "thp", "trident", "xheap"] {
            let error = Promotion::named(name, &Registry::published());
            let error = error.expect_err(name).to_string();
            assert!(error.contains("quicksilver-sync-T (T from 1 to 512)"), "{error}");
            assert!(error.contains("ingens, ingens-star, hawkeye"), "{error}");
        }
    }

    #[test]
    fn only_what_is_chosen_by_its_published_name_reclaims_while_memory_is_free() {
        assert_eq!(named("default").idle_reclaim(), IdleReclaim::AboveLow);
        assert_eq!(named("quicksilver").idle_reclaim(), IdleReclaim::Always);
        assert_eq!(named("ingens").idle_reclaim(), IdleReclaim::Never);
    }

    #[test]
    fn what_a_policy_wants_follows_from_its_capabilities() {
        assert!(named("default").is_told_of_faults() && !named("default").wants_base_pages());
        assert!(named("ingens").wants_base_pages() && named("quicksilver").wants_base_pages());
        assert!(!named("linux").is_told_of_faults() && !named("linux").wants_base_pages());
        assert!(!named("hawkeye").is_told_of_faults() && named("hawkeye").wants_base_pages());
        assert!(named("off").build().is_none() && !named("off").wants_base_pages());
    }
}
