//! The parts of the configuration that are about promotion: `[promotion]`, its rules, `[thp]`.

use super::{Cpu, FilterFile, Percent, Period};
use crate::budget::CpuBudget;
use crate::promote::policy::Promotion;
use crate::select::Filter;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::time::Duration;

/// What is promoted, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct PromotionConfig {
    /// The policy for processes that no rule is about.
    pub policy: Promotion,
    /// The first rule that matches a process decides.
    pub rules: Vec<Rule>,
    /// Promotions carried out at the same time.
    pub at_once: usize,
    /// Nothing is promoted while a larger share of free memory, 0 to 1, lies in pieces smaller than
    /// a huge page.
    pub max_fragmentation: f64,
    /// A partly used huge page that stays so for this long is broken.
    pub idle: Duration,
    /// What of one core promoting may use.
    pub budget: CpuBudget,
}

/// Which processes have which policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The policy.
    pub policy: Promotion,
    /// The processes; one that matches any entry matches.
    pub who: Filter,
}

impl PromotionConfig {
    /// Every policy that some process may have.
    pub fn policies(&self) -> impl Iterator<Item = Promotion> {
        self.rules.iter().map(|rule| rule.policy).chain([self.policy])
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PromotionFile {
    policy: Named,
    at_once: AtOnce,
    max_fragmentation: Percent,
    idle: Period,
    rule: Vec<RuleFile>,
}

impl Default for PromotionFile {
    fn default() -> Self {
        Self {
            policy: Named(Promotion::default()),
            at_once: AtOnce(2),
            max_fragmentation: Percent(0.95),
            idle: Period(Duration::from_secs(5)),
            rule: Vec::new(),
        }
    }
}

impl PromotionFile {
    pub(super) fn resolve(self, budget: Cpu) -> PromotionConfig {
        PromotionConfig {
            policy: self.policy.0,
            rules: self.rule.into_iter().map(RuleFile::resolve).collect(),
            at_once: self.at_once.0,
            max_fragmentation: self.max_fragmentation.0,
            idle: self.idle.0,
            budget: budget.0,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    policy: Named,
    #[serde(flatten)]
    who: FilterFile,
}

impl RuleFile {
    fn resolve(self) -> Rule {
        Rule { policy: self.policy.0, who: self.who.into() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Named(Promotion);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

#[derive(Clone, Copy, Debug)]
struct AtOnce(usize);

impl<'de> Deserialize<'de> for AtOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// More threads than that would only wait for each other.
        const MOST: usize = 16;
        match usize::deserialize(deserializer)? {
            number @ 1..=MOST => Ok(Self(number)),
            _ => Err(D::Error::custom(format!("expected a number from 1 to {MOST}"))),
        }
    }
}

/// What the daemon does about `transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldEnabled {
    /// The setting stays as it is.
    #[default]
    Keep,
    /// The setting is held at `madvise` while it is `always` and a policy wants base pages at first
    /// touches.
    Madvise,
}

impl<'de> Deserialize<'de> for HoldEnabled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "keep" => Ok(Self::Keep),
            "madvise" => Ok(Self::Madvise),
            "auto" => Err(D::Error::custom(
                "\"auto\" is called \"madvise\" now; write enabled = \"madvise\" to go on holding \
                 the setting, or \"keep\", the default, to leave it alone",
            )),
            other => Err(D::Error::custom(format!(
                "{other:?} is not something to do; expected \"keep\" or \"madvise\""
            ))),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ThpFile {
    pub(super) enabled: HoldEnabled,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MetricsFile {
    pub(super) listen: Option<std::net::SocketAddr>,
}
