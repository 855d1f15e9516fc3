//! The parts of the configuration that are about promotion: `[promotion]`, its rules, `[thp]`.

use super::{CgroupPath, Command, Cpu, FilterFile, Mistake, Percent, Period, User, line_of};
use crate::budget::CpuBudget;
use crate::promote::policy::{Promotion, UnknownPromotion};
use crate::select::{Filter, Identity};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::time::Duration;
use superpage_policy::promotion::list::Registry;
use superpage_units::Share;
use toml::Spanned;

/// What is promoted, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct PromotionConfig {
    /// The policy for processes that no rule is about.
    pub policy: Promotion,
    /// The first rule that matches a process decides.
    pub rules: Vec<Rule>,
    /// Promotions carried out at the same time.
    pub at_once: usize,
    /// Nothing is promoted while a larger share of free memory lies in pieces smaller than
    /// a huge page.
    pub max_fragmentation: Share,
    /// A partly used huge page that stays so for this long is split.
    pub idle: Duration,
    /// What of one core promoting may use.
    pub budget: CpuBudget,
    /// Whether memory is promoted that its program has locked.
    pub locked: bool,
    /// Whether processes are promoted in that have a thread in real time.
    pub real_time: bool,
    /// Whether anything is promoted while `transparent_hugepage/enabled` is `never`.
    pub under_never: bool,
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

    /// The policy of this process; `None` if a rule names cgroups and nobody can tell which one it is in.
    #[must_use]
    pub fn policy_of(&self, process: &Identity) -> Option<Promotion> {
        let rule = process.first_of(&self.rules, |rule| &rule.who).ok()?;
        Some(rule.map_or(self.policy, |rule| rule.policy))
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PromotionFile {
    policy: Option<Spanned<String>>,
    at_once: AtOnce,
    max_fragmentation: Percent,
    idle: Period,
    locked: Undisturbed,
    real_time: Undisturbed,
    under_never: Undisturbed,
    rule: Vec<RuleFile>,
}

impl Default for PromotionFile {
    fn default() -> Self {
        Self {
            policy: None,
            at_once: AtOnce(2),
            max_fragmentation: Percent(Share::percent(95)),
            idle: Period(Duration::from_secs(5)),
            locked: Undisturbed::Skip,
            real_time: Undisturbed::Skip,
            under_never: Undisturbed::Skip,
            rule: Vec::new(),
        }
    }
}

impl PromotionFile {
    /// `text` is what it was read from, for the line of a mistake.
    pub(super) fn resolve(
        self,
        budget: Cpu,
        registry: &Registry,
        text: &str,
    ) -> Result<PromotionConfig, Mistake> {
        let policy = match &self.policy {
            Some(name) => named(name, registry, text)?,
            None => {
                Promotion::named(DEFAULT, registry).map_err(|unknown| Mistake::from(&unknown))?
            }
        };
        let rules = self.rule.into_iter().map(|rule| rule.resolve(registry, text));
        Ok(PromotionConfig {
            policy,
            rules: rules.collect::<Result<_, _>>()?,
            at_once: self.at_once.0,
            max_fragmentation: self.max_fragmentation.0,
            idle: self.idle.0,
            budget: budget.0,
            locked: self.locked == Undisturbed::Include,
            real_time: self.real_time == Undisturbed::Include,
            under_never: self.under_never == Undisturbed::Include,
        })
    }
}

/// What is done about memory, a process or a machine that asked not to be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Undisturbed {
    Skip,
    Include,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    policy: Spanned<String>,
    #[serde(default)]
    pids: Vec<u32>,
    #[serde(default)]
    commands: Vec<Command>,
    #[serde(default)]
    users: Vec<User>,
    #[serde(default)]
    cgroups: Vec<CgroupPath>,
}

impl RuleFile {
    fn resolve(self, registry: &Registry, text: &str) -> Result<Rule, Mistake> {
        let policy = named(&self.policy, registry, text)?;
        let Self { pids, commands, users, cgroups, .. } = self;
        Ok(Rule { policy, who: FilterFile { pids, commands, users, cgroups }.into() })
    }
}

/// The policy that holds where none is named.
const DEFAULT: &str = "superpage";

fn named(name: &Spanned<String>, registry: &Registry, text: &str) -> Result<Promotion, Mistake> {
    Promotion::named(name.get_ref(), registry).map_err(|unknown| {
        let line = Some(line_of(name.span().start, text));
        Mistake { line, ..Mistake::from(&unknown) }
    })
}

impl From<&UnknownPromotion> for Mistake {
    fn from(unknown: &UnknownPromotion) -> Self {
        Self { line: None, what: unknown.to_string() }
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

/// Which pages first touches of memory give, where the daemon has a say in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirstTouch {
    /// Those that the machine's settings (`transparent_hugepage/enabled` and `defrag`) ask for; the settings stay as they are.
    #[default]
    Keep,
    /// Huge pages while the machine's memory is free, and none that memory is compacted for.
    Generous,
    /// Base pages, so that the policy alone decides: `enabled` is held at `madvise` while it is `always`.
    BasePages,
}

/// The key that says what first touches give had another name.
#[derive(Debug)]
struct Renamed;

impl<'de> Deserialize<'de> for Renamed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer)?;
        Err(D::Error::custom(
            "[thp] enabled is called first_touch now; write first_touch = \"base-pages\" for what was enabled = \
             \"madvise\", or \"keep\", the default, to leave the setting alone",
        ))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ThpFile {
    pub(super) first_touch: FirstTouch,
    #[serde(rename = "enabled")]
    _enabled: Option<Renamed>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MetricsFile {
    pub(super) listen: Option<std::net::SocketAddr>,
}
