//! The parts of the configuration that are about promotion: `[promotion]`, its rules, `[thp]`.

use super::{Cpu, FilterFile, Percent, Period};
use crate::budget::CpuBudget;
use crate::promote::policy::Promotion;
use crate::select::Filter;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::num::NonZeroU64;
use std::time::Duration;

/// What is promoted, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct PromotionConfig {
    /// The policy for processes that no rule is about.
    pub policy: Promotion,
    /// The first rule that matches a process decides.
    pub rules: Vec<Rule>,
    /// One of so many page faults is looked at.
    pub period: NonZeroU64,
    /// The share of the time, above 0 and up to 1, that page faults are heard.
    pub listen: f64,
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
    period: Sampled,
    listen: Listen,
    at_once: AtOnce,
    max_fragmentation: Percent,
    idle: Period,
    rule: Vec<RuleFile>,
}

impl Default for PromotionFile {
    fn default() -> Self {
        Self {
            policy: Named(Promotion::default()),
            period: Sampled::default(),
            listen: Listen(0.05),
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
            period: self.period.0,
            listen: self.listen.0,
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

/// The kernel's counting costs most, whatever the period; below this the records begin to
/// (`superpage lab run fault-overhead`).
const DEFAULT_PERIOD: NonZeroU64 = NonZeroU64::new(16).unwrap();

#[derive(Clone, Copy, Debug)]
struct Sampled(NonZeroU64);

impl Default for Sampled {
    fn default() -> Self {
        Self(DEFAULT_PERIOD)
    }
}

impl<'de> Deserialize<'de> for Sampled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Fewer would say too little of a region to be worth hearing.
        const MOST: u64 = 1 << 20;
        NonZeroU64::new(u64::deserialize(deserializer)?)
            .filter(|period| period.get() <= MOST)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("expected a number from 1 to {MOST}")))
    }
}

#[derive(Clone, Copy, Debug)]
struct Listen(f64);

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Less would hear next to nothing.
        const LEAST: f64 = 0.01;
        let Percent(share) = Percent::deserialize(deserializer)?;
        if share >= LEAST {
            return Ok(Self(share));
        }
        Err(D::Error::custom("less than 1% of the time is next to never; expected 1% to 100%"))
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

/// Whether `transparent_hugepage/enabled` is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldEnabled {
    /// At `madvise`, while a policy wants base pages at first touches and it is `always`.
    #[default]
    Auto,
    /// It is left alone.
    Keep,
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
