//! The daemon's configuration: a TOML file, every key optional, every unknown key an error.
//!
//! Errors name the file, the line and what was expected. `packaging/superpage.toml` is the
//! commented example; a test reads it.

mod gigantic;
mod promotion;

pub use gigantic::GiganticConfig;
pub use promotion::{FirstTouch, PromotionConfig, Rule};

use crate::budget::CpuBudget;
use crate::select::{Filter, Selection};
use gigantic::GiganticFile;
use promotion::{MetricsFile, PromotionFile, ThpFile};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use superpage_kernel::status::{self, Uid};
use superpage_policy::bloat::BloatDensity;
use superpage_policy::debloat::emd::{self, EMD};
use superpage_policy::debloat::list::{Entry, Registry};
use superpage_policy::registry::Policies;
use superpage_policy::watermark::Watermarks;
use superpage_units::{BasePages, HugePages, Pid, Share};
use toml::Spanned;

/// What the daemon does, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// When to start and stop, by the memory of the whole machine; `None`: only cgroups matter.
    pub machine: Option<Watermarks>,
    /// When to start and stop for single cgroups.
    pub cgroups: Vec<CgroupMarks>,
    /// Which other cgroups are watched.
    pub limited: CgroupsConfig,
    /// Which policy decides.
    pub policy: Entry,
    /// Its parameters.
    pub emd: emd::Options,
    /// What of one core de-bloating may use.
    pub budget: CpuBudget,
    /// The share of one core that the kernel's threads may use to compact free memory; `None`: the setting is left alone.
    pub compaction: Option<CpuBudget>,
    /// How often memory is looked at.
    pub interval: Duration,
    /// How long to wait after a pass that found nothing to free; doubles up to 16 times that.
    pub back_off: Duration,
    /// How long a huge page that a split left alone, or that was not worth it, is not tried again; doubles
    /// up to 64 times that where it is pinned, in use or locked.
    pub cool_down: Duration,
    /// Which processes.
    pub processes: Selection,
    /// What to hold khugepaged's `max_ptes_none` down to; `None`: leave it.
    pub max_ptes_none: Option<BasePages>,
    /// What is promoted, and how.
    pub promotion: PromotionConfig,
    /// Which pages first touches give.
    pub first_touch: FirstTouch,
    /// Which gigantic pages are kept free.
    pub gigantic: GiganticConfig,
    /// Where metrics can be fetched, if anywhere.
    pub metrics: Option<SocketAddr>,
}

/// Watermarks for one cgroup, as shares of its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupMarks {
    /// Its directory.
    pub path: PathBuf,
    /// When to start and stop.
    pub marks: Watermarks,
}

/// Cgroups with a limit that nobody named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgroupsConfig {
    /// Whether they are watched while a managed process is in them.
    pub is_watched: bool,
    /// The watermarks of such a cgroup, as shares of its limit.
    pub marks: Watermarks,
}

impl Default for Config {
    fn default() -> Self {
        // An empty file; it cannot fail, and a test says so.
        Self::from_file(File::default(), "", &Policies::published())
            .unwrap_or_else(|_| unreachable!("the defaults are valid"))
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}: {what}", number(*.line))]
pub struct ConfigError {
    path: PathBuf,
    line: Option<usize>,
    what: String,
}

fn number(line: Option<usize>) -> String {
    line.map(|line| format!(":{line}")).unwrap_or_default()
}

/// Reads the configuration at `path`.
///
/// # Errors
/// [`ConfigError`] with the file, the line where there is one, and what was expected.
pub fn read(path: &Path) -> Result<Config, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
        path: path.to_owned(),
        line: None,
        what: format!(
            "cannot be read ({error}); packaging/superpage.toml, \
                       installed in share/superpage, is an example to copy"
        ),
    })?;
    parse(&text, path)
}

/// Understands the text of a configuration; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
    parse_with(text, path, &Policies::published())
}

/// As [`parse`], with these policies.
///
/// # Errors
/// As [`read`].
pub fn parse_with(text: &str, path: &Path, policies: &Policies) -> Result<Config, ConfigError> {
    let fail = |mistake: Mistake| ConfigError {
        path: path.to_owned(),
        line: mistake.line,
        what: mistake.what,
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| line_of(span.start, text));
        fail(Mistake { line, what: error.message().to_owned() })
    })?;
    Config::from_file(file, text, policies).map_err(fail)
}

/// The base pages that splitting a huge page has to free: the policy's own floor, or that of huge pages
/// that stay partly used ([`emd::Options::floor`]) where that is lower.
fn worth(policy: &Entry, emd: emd::Options) -> BasePages {
    policy.floor(emd).min(emd.floor).base_pages()
}

/// What is wrong with a file, and in which line.
struct Mistake {
    line: Option<usize>,
    what: String,
}

/// The line of `text`, counted from 1, that the byte at `offset` is in.
fn line_of(offset: usize, text: &str) -> usize {
    1 + text[..offset].matches('\n').count()
}

impl Config {
    /// The base pages that splitting a huge page has to free to be worth it.
    #[must_use]
    pub fn worth(&self) -> BasePages {
        worth(&self.policy, self.emd)
    }

    /// `text` is what `file` was read from: what several keys together make of it is only seen
    /// here, and the mistake is to name their lines.
    fn from_file(file: File, text: &str, policies: &Policies) -> Result<Self, Mistake> {
        let WatermarksFile { enabled, high, low } = file.watermarks;
        let machine = match enabled {
            Some(false) => None,
            Some(true) | None => Some(marks(high, low, text)?),
        };
        let cgroups = file
            .cgroup
            .into_iter()
            .map(|group| {
                let marks = marks(group.high, group.low, text)?;
                Ok(CgroupMarks { path: group.path.0, marks })
            })
            .collect::<Result<_, Mistake>>()?;
        let CgroupsFile { watch, high, low } = file.cgroups;
        let limited = marks_or(high, low, LIMITED, text)?;
        let limited = CgroupsConfig { is_watched: watch.unwrap_or(true), marks: limited };
        let floor = BloatDensity::from_share(file.debloat.min_bloat.0).max(BloatDensity::new(1));
        let emd =
            emd::Options { quantum: file.debloat.quantum.0, floor, ..emd::Options::default() };
        let policy = debloater(file.debloat.name.as_ref(), &policies.debloat, text)?;
        Ok(Self {
            machine,
            cgroups,
            limited,
            policy,
            emd,
            budget: file.budget.debloat.0,
            compaction: file.budget.compaction.0,
            interval: file.timing.interval.0,
            back_off: file.timing.back_off.0,
            cool_down: file.timing.cool_down.0,
            processes: Selection {
                include: file.processes.include.into(),
                exclude: file.processes.exclude.into(),
                within: None,
            },
            max_ptes_none: file.khugepaged.max_ptes_none.resolve(worth(&policy, emd)),
            promotion: file.promotion.resolve(file.budget.promotion, &policies.promotion, text)?,
            first_touch: file.thp.first_touch,
            gigantic: file.gigantic.into(),
            metrics: file.metrics.listen,
        })
    }
}

/// A program with a limit may use most of it: that is what the limit is for. Chosen, not measured.
const LIMITED: (Share, Share) = (Share::percent(90), Share::percent(80));

/// Watermarks from two keys, each with its place in `text`.
fn marks(high: Mark, low: Mark, text: &str) -> Result<Watermarks, Mistake> {
    let default = Watermarks::default();
    marks_or(high, low, (default.high(), default.low()), text)
}

/// As [`marks`], with these defaults.
fn marks_or(
    high: Mark,
    low: Mark,
    (default_high, default_low): (Share, Share),
    text: &str,
) -> Result<Watermarks, Mistake> {
    let share = |mark: &Mark, default| mark.as_ref().map_or(default, |mark| mark.get_ref().0);
    let [high_share, low_share] = [share(&high, default_high), share(&low, default_low)];
    Watermarks::new(high_share, low_share).map_err(|bad| {
        let line = |mark: &Mark| mark.as_ref().map(|mark| line_of(mark.span().start, text));
        let place =
            |mark| line(mark).map_or("the default".to_owned(), |line| format!("line {line}"));
        let percent = |share: Share| (share.get() * 1e4).round() / 1e2;
        let what = format!(
            "{bad}: high is {}% ({}), low is {}% ({})",
            percent(high_share),
            place(&high),
            percent(low_share),
            place(&low)
        );
        Mistake { line: line(&high).max(line(&low)), what }
    })
}

/// The kernel keeps this much of a command's name (TASK_COMM_LEN less its end).
const LONGEST_COMMAND: usize = 15;

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    watermarks: WatermarksFile,
    debloat: DebloatFile,
    promotion: PromotionFile,
    budget: BudgetFile,
    timing: TimingFile,
    processes: ProcessesFile,
    khugepaged: KhugepagedFile,
    thp: ThpFile,
    gigantic: GiganticFile,
    metrics: MetricsFile,
    cgroups: CgroupsFile,
    cgroup: Vec<CgroupFile>,
}

/// A watermark with its place in the file; `None` where the default holds.
type Mark = Option<Spanned<Percent>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WatermarksFile {
    enabled: Option<bool>,
    high: Mark,
    low: Mark,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CgroupsFile {
    watch: Option<bool>,
    high: Mark,
    low: Mark,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CgroupFile {
    path: CgroupPath,
    high: Mark,
    low: Mark,
}

/// Less than what is worth a split under pressure ([`emd::Options::WORTHWHILE`], 10 %), because huge
/// pages that stay partly used are split without pressure too: with 10 % a Redis with values of up to
/// 1 MB took 5 to 6.4 % more than on base pages.
const MIN_BLOAT: Share = Share::percent(6);

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DebloatFile {
    name: Option<Spanned<String>>,
    quantum: Quantum,
    min_bloat: Percent,
}

impl Default for DebloatFile {
    fn default() -> Self {
        Self {
            name: None,
            quantum: Quantum(emd::Options::WORTHWHILE.quantum),
            min_bloat: Percent(MIN_BLOAT),
        }
    }
}

/// The policy with this name; where none is said, EMD.
fn debloater(
    name: Option<&Spanned<String>>,
    registry: &Registry,
    text: &str,
) -> Result<Entry, Mistake> {
    let Some(name) = name else { return Ok(EMD) };
    registry.entry(name.get_ref()).ok_or_else(|| {
        let names = registry.names().join(", ");
        let what = format!("there is no policy {:?}; expected {names}", name.get_ref());
        Mistake { line: Some(line_of(name.span().start, text)), what }
    })
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BudgetFile {
    debloat: Cpu,
    promotion: Cpu,
    compaction: CpuOrNone,
}

impl Default for BudgetFile {
    fn default() -> Self {
        let share = |share| Cpu(CpuBudget::new(share).unwrap_or(CpuBudget::UNLIMITED));
        Self {
            debloat: share(Share::percent(10)),
            promotion: share(Share::percent(25)),
            compaction: CpuOrNone(CpuBudget::new(Share::percent(5))),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TimingFile {
    interval: Period,
    back_off: Period,
    cool_down: Period,
}

impl Default for TimingFile {
    fn default() -> Self {
        Self {
            interval: Period(Duration::from_secs(5)),
            back_off: Period(Duration::from_secs(30)),
            cool_down: Period(Duration::from_secs(600)),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProcessesFile {
    include: FilterFile,
    exclude: FilterFile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FilterFile {
    pids: Vec<u32>,
    commands: Vec<Command>,
    users: Vec<User>,
    cgroups: Vec<CgroupPath>,
}

impl From<FilterFile> for Filter {
    fn from(file: FilterFile) -> Self {
        Self {
            pids: file.pids.into_iter().map(Pid).collect(),
            commands: file.commands.into_iter().map(|Command(name)| name).collect(),
            users: file.users.into_iter().map(|User(uid)| uid).collect(),
            cgroups: file.cgroups.into_iter().map(|CgroupPath(path)| path).collect(),
        }
    }
}

/// A command as `ps -o comm` shows it.
#[derive(Debug)]
struct Command(String);

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.len() <= LONGEST_COMMAND {
            return Ok(Self(name));
        }
        Err(D::Error::custom(format!(
            "{name:?} is longer than a command can be ({LONGEST_COMMAND} bytes); expected it as \
             `ps -o comm` shows it"
        )))
    }
}

/// A user, by name or number.
#[derive(Debug)]
struct User(Uid);

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Ok(number) = name.parse() {
            return Ok(Self(Uid(number)));
        }
        let uid = status::uid_of(Path::new("/"), &name)
            .map_err(|error| D::Error::custom(format!("user {name:?}: {error}")))?;
        uid.map(Self).ok_or_else(|| {
            let what = format!("there is no user {name:?}; expected a name or a number");
            D::Error::custom(what)
        })
    }
}

/// The directory of a cgroup.
#[derive(Debug)]
struct CgroupPath(PathBuf);

impl<'de> Deserialize<'de> for CgroupPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        if path.is_absolute() {
            return Ok(Self(path));
        }
        let path = path.display();
        Err(D::Error::custom(format!(
            "{path} is not an absolute path; expected the cgroup's directory"
        )))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KhugepagedFile {
    max_ptes_none: Hold,
}

/// `"80%"`.
#[derive(Clone, Copy, Debug)]
struct Percent(Share);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_percent(&text).map(Self).ok_or_else(|| {
            D::Error::custom(format!("{text:?} is not a percentage; expected one such as \"80%\""))
        })
    }
}

/// `80%`, if it lies between 0 % and 100 %.
#[must_use]
pub fn parse_percent(text: &str) -> Option<Share> {
    let number: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    Share::new(number / 100.0)
}

#[derive(Clone, Copy, Debug)]
struct Cpu(CpuBudget);

impl Cpu {
    fn checked(share: Share) -> Result<Self, &'static str> {
        /// Less would mean pauses of minutes.
        const LEAST: Share = Share::clamped(0.001);
        let budget = CpuBudget::new(share).filter(|_| share >= LEAST).map(Self);
        budget.ok_or("a CPU budget must be at least 0.1% (of one core)")
    }
}

impl<'de> Deserialize<'de> for Cpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Percent(share) = Percent::deserialize(deserializer)?;
        Self::checked(share).map_err(D::Error::custom)
    }
}

/// As [`Cpu`], or 0% for nothing at all.
#[derive(Clone, Copy, Debug)]
struct CpuOrNone(Option<CpuBudget>);

impl<'de> Deserialize<'de> for CpuOrNone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Percent(share) = Percent::deserialize(deserializer)?;
        let cpu = (share > Share::NONE).then(|| Cpu::checked(share)).transpose();
        cpu.map(|cpu| Self(cpu.map(|Cpu(budget)| budget))).map_err(D::Error::custom)
    }
}

#[derive(Clone, Copy, Debug)]
struct Period(Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const SHORTEST: Duration = Duration::from_millis(10);
        const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
        let text = String::deserialize(deserializer)?;
        match humantime::parse_duration(&text) {
            Ok(period) if (SHORTEST..=LONGEST).contains(&period) => Ok(Self(period)),
            Ok(period) if period > LONGEST => {
                Err(D::Error::custom(format!("{text:?} is too long; expected 30days or less")))
            }
            Ok(_) => Err(D::Error::custom(format!("{text:?} is too short; expected 10ms or more"))),
            Err(error) => Err(D::Error::custom(format!(
                "{text:?} is not a time ({error}); expected one such as \"5s\" or \"10min\""
            ))),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Quantum(HugePages);

impl<'de> Deserialize<'de> for Quantum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            0 => Err(D::Error::custom("a quantum of 0 frees nothing; expected 1 or more")),
            pages => Ok(Self(HugePages(pages))),
        }
    }
}

/// What to do with khugepaged's `max_ptes_none`.
#[derive(Clone, Copy, Debug, Default)]
enum Hold {
    /// So low that nothing is rebuilt that would be split again.
    #[default]
    Auto,
    Keep,
    At(BasePages),
}

impl Hold {
    fn resolve(self, worth: BasePages) -> Option<BasePages> {
        match self {
            Self::Auto => Some(worth.saturating_sub(BasePages(1))),
            Self::Keep => None,
            Self::At(pages) => Some(pages),
        }
    }
}

impl<'de> Deserialize<'de> for Hold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Word(String),
        }
        let highest = BloatDensity::FULL.base_pages() - BasePages(1);
        match Written::deserialize(deserializer) {
            Ok(Written::Number(pages)) if BasePages(pages) <= highest => {
                Ok(Self::At(BasePages(pages)))
            }
            Ok(Written::Word(word)) if word == "auto" => Ok(Self::Auto),
            Ok(Written::Word(word)) if word == "keep" => Ok(Self::Keep),
            _ => Err(D::Error::custom(format!("expected \"auto\", \"keep\" or 0 to {highest}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_here(text: &str) -> Result<Config, ConfigError> {
        parse(text, Path::new("test.toml"))
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = parse_here("").expect("valid");
        assert_eq!(config, Config::default());
        assert_eq!(config.machine, Some(Watermarks::default()));
        assert_eq!(config.emd.quantum, HugePages(100));
        assert_eq!(config.max_ptes_none, Some(BasePages(30)));
        assert_eq!(config.first_touch, FirstTouch::Keep);
        assert_eq!(config.gigantic, GiganticConfig { free: 0, most: Share::percent(25) });
    }

    /// The commented example says what the defaults are, so it must give them.
    #[test]
    fn the_example_in_the_repository_is_the_defaults() {
        let example = include_str!("../../../packaging/superpage.toml");
        assert_eq!(parse_here(example).expect("valid"), Config::default());
        let uncommented: String = example
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        parse_here(&uncommented).expect("every commented key is valid");
        for name in Registry::published().names() {
            assert!(example.contains(&format!("\n# {name} ")), "it says nothing about {name}");
        }
    }

    #[test]
    fn every_de_bloater_can_be_chosen_and_holds_max_ptes_none_below_what_is_split() {
        for entry in Registry::published().entries() {
            let config = parse_here(&format!("[debloat]\nname = \"{entry}\"\n")).expect("valid");
            assert_eq!(config.policy, *entry);
            let held = config.max_ptes_none.expect("auto");
            assert_eq!(held + BasePages(1), config.worth(), "{entry}");
            // Huge pages that stay partly used are split from `min_bloat` on, under these two at any bloat.
            let splits_any = matches!(entry.name, "hawkeye" | "emd-literal");
            assert_eq!(held, BasePages(if splits_any { 0 } else { 30 }), "{entry}");
        }
    }

    #[test]
    fn mistakes_name_the_line_and_what_was_expected() {
        let says = |text: &str, parts: &[&str]| {
            let message = parse_here(text).expect_err(text).to_string();
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        };
        says("\n[watermark]\n", &["test.toml:2", "watermark", "watermarks"]);
        says("[watermarks]\nhigh = 80\n", &["test.toml:2", "string"]);
        says("[watermarks]\nhigh = \"80\"\n", &["test.toml:2", "80%"]);
        says(
            "[watermarks]\nhigh = \"50%\"\n",
            &[
                "test.toml:2: the low watermark must lie below",
                "50% (line 2), low is 65% (the default)",
            ],
        );
        says(
            "[watermarks]\nlow = \"70%\"\n\nhigh = \"62.5%\"\n",
            &["test.toml:4: the low", "high is 62.5% (line 4), low is 70% (line 2)"],
        );
        says(
            "[[cgroup]]\npath = \"/a\"\n[[cgroup]]\npath = \"/b\"\nlow = \"90%\"\n",
            &["test.toml:5: the low", "80% (the default), low is 90% (line 5)"],
        );
        says("[[cgroup]]\npath = \"a\"\n", &["test.toml:2", "absolute"]);
        says("[debloat]\nname = \"linux\"\n", &["test.toml:2", "emd, emd-exact, hawkeye"]);
        says("[debloat]\nquantum = 0\n", &["test.toml:2", "1 or more"]);
        says("[timing]\ninterval = \"soon\"\n", &["test.toml:2", "5s"]);
        says("[budget]\ndebloat = \"0%\"\n", &["test.toml:2", "at least 0.1%"]);
        says("[budget]\ncompaction = \"0.01%\"\n", &["test.toml:2", "at least 0.1%"]);
        says("[promotion]\npolicy = \"thp\"\n", &["test.toml:2", "thp", "quicksilver-sync-T"]);
        says("[promotion]\nperiod = 16\n", &["test.toml:2", "unknown field `period`"]);
        says("[promotion]\nat_once = 17\n", &["test.toml:2", "1 to 16"]);
        says("[[promotion.rule]]\ncommands = [\"redis\"]\n", &["test.toml:1", "policy"]);
        says(
            "[[promotion.rule]]\npolicy = \"off\"\ncommand = [\"redis\"]\n",
            &["test.toml:", "command"],
        );
        says(
            "[thp]\nfirst_touch = \"never\"\n",
            &["test.toml:2", "`keep`, `generous`, `base-pages`"],
        );
        says(
            "[thp]\nenabled = \"madvise\"\n",
            &["test.toml:2", "write first_touch = \"base-pages\""],
        );
        says("[gigantic]\nfree = \"2\"\n", &["test.toml:2", "u64"]);
        says("[gigantic]\nmost = 25\n", &["test.toml:2", "string"]);
        says("[metrics]\nlisten = \"9466\"\n", &["test.toml:2", "socket address"]);
        says("[timing]\ncool_down = \"1000years\"\n", &["test.toml:2", "30days"]);
        says(
            "[processes.exclude]\ncommands = [\"a-very-long-command\"]\n",
            &["test.toml:2", "15 bytes"],
        );
        says("[processes.exclude]\ncgroups = [\"redis\"]\n", &["test.toml:2", "absolute"]);
        says("[khugepaged]\nmax_ptes_none = 512\n", &["test.toml:2", "0 to 511"]);
        says("[[cgroup]]\nhigh = \"50%\"\n", &["test.toml:1", "path"]);
        says("[processes.include]\nusers = [\"no such user\"]\n", &["test.toml:2", "no such user"]);
        says("high = \n", &["test.toml:1"]);
    }

    #[test]
    fn a_missing_file_points_to_the_example() {
        let error = read(Path::new("/nonexistent/superpage.toml")).expect_err("missing");
        assert!(error.to_string().contains("packaging/superpage.toml"), "{error}");
    }

    #[test]
    fn percentages_take_a_sign_and_a_range() {
        assert_eq!(parse_percent("80%"), Some(Share::percent(80)));
        assert_eq!(parse_percent("12.5 %"), Share::new(0.125));
        for bad in ["80", "-1%", "101%", "%", "x%", "nan%", ""] {
            assert_eq!(parse_percent(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\PC|\n){0,200}") {
            let _ = parse_here(&text);
        }
    }
}
