//! The daemon's configuration: a TOML file, every key optional, every unknown key an error.
//!
//! Errors name the file, the line and what was expected. `packaging/superpage.toml` is the
//! commented example; a test reads it.

use crate::budget::CpuBudget;
use crate::select::{Filter, Selection};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use superpage_kernel::status::{self, Uid};
use superpage_policy::bloat::BloatDensity;
use superpage_policy::debloat::{PolicyName, emd};
use superpage_policy::units::{BasePages, HugePages};
use superpage_policy::watermark::Watermarks;

/// What the daemon does, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// When to start and stop, by the memory of the whole machine; `None`: only cgroups matter.
    pub machine: Option<Watermarks>,
    /// When to start and stop for single cgroups.
    pub cgroups: Vec<CgroupMarks>,
    /// Which policy decides.
    pub policy: PolicyName,
    /// Its parameters.
    pub emd: emd::Options,
    /// What of one core the daemon may use.
    pub budget: CpuBudget,
    /// How often memory is looked at.
    pub interval: Duration,
    /// How long to wait after a pass that found nothing to free; doubles up to 16 times that.
    pub back_off: Duration,
    /// How long a huge page that a split left alone is not tried again.
    pub cool_down: Duration,
    /// Which processes.
    pub processes: Selection,
    /// What to hold khugepaged's `max_ptes_none` down to; `None`: leave it.
    pub max_ptes_none: Option<BasePages>,
}

/// Watermarks for one cgroup, as shares of its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupMarks {
    /// Its directory.
    pub path: PathBuf,
    /// When to start and stop.
    pub marks: Watermarks,
}

impl Default for Config {
    fn default() -> Self {
        // An empty file; it cannot fail, and a test says so.
        Self::from_file(File::default()).unwrap_or_else(|_| unreachable!("the defaults are valid"))
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    path: PathBuf,
    line: Option<usize>,
    what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for ConfigError {}

/// Reads the configuration at `path`.
///
/// # Errors
/// [`ConfigError`] with the file, the line where there is one, and what was expected.
pub fn read(path: &Path) -> Result<Config, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
        path: path.to_owned(),
        line: None,
        what: format!("cannot be read ({error}); packaging/superpage.toml is an example to copy"),
    })?;
    parse(&text, path)
}

/// Understands the text of a configuration; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let fail = |line, what| ConfigError { path: path.to_owned(), line, what };
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
        fail(line, error.message().to_owned())
    })?;
    Config::from_file(file).map_err(|what| fail(None, what))
}

impl Config {
    fn from_file(file: File) -> Result<Self, String> {
        let machine = match (file.watermarks.high, file.watermarks.low, file.watermarks.enabled) {
            (_, _, Some(false)) => None,
            (high, low, _) => Some(marks(high, low, "watermarks")?),
        };
        let cgroups = file
            .cgroup
            .into_iter()
            .map(|group| {
                let name = format!("cgroup {}", group.path.display());
                Ok(CgroupMarks { marks: marks(group.high, group.low, &name)?, path: group.path })
            })
            .collect::<Result<_, String>>()?;
        let floor = BloatDensity::from_share(file.policy.min_bloat.0).max(BloatDensity::new(1));
        let emd = emd::Options { quantum: file.policy.quantum.0, floor, ..emd::Options::default() };
        Ok(Self {
            machine,
            cgroups,
            policy: file.policy.name,
            emd,
            budget: file.budget.cpu.0,
            interval: file.timing.interval.0,
            back_off: file.timing.back_off.0,
            cool_down: file.timing.cool_down.0,
            processes: Selection {
                include: filter(file.processes.include)?,
                exclude: filter(file.processes.exclude)?,
                within: None,
            },
            max_ptes_none: file.khugepaged.max_ptes_none.resolve(file.policy.name, floor),
        })
    }
}

fn marks(high: Percent, low: Percent, name: &str) -> Result<Watermarks, String> {
    Watermarks::new(high.0, low.0).map_err(|bad| format!("{name}: {bad}"))
}

fn filter(file: FilterFile) -> Result<Filter, String> {
    let root = Path::new("/");
    let uid = |name: String| -> Result<Uid, String> {
        if let Ok(number) = name.parse() {
            return Ok(Uid(number));
        }
        match status::uid_of(root, &name) {
            Ok(Some(uid)) => Ok(uid),
            Ok(None) => {
                Err(format!("processes: there is no user {name:?}; give a name or a number"))
            }
            Err(error) => Err(format!("processes: user {name:?}: {error}")),
        }
    };
    if let Some(long) = file.commands.iter().find(|command| command.len() > LONGEST_COMMAND) {
        return Err(format!(
            "processes: {long:?} is longer than a command can be ({LONGEST_COMMAND} bytes); give it as \
             `ps -o comm` shows it"
        ));
    }
    if let Some(path) = file.cgroups.iter().find(|path| !path.is_absolute()) {
        let path = path.display();
        return Err(format!(
            "processes: {path} is not an absolute path; give the cgroup's directory"
        ));
    }
    Ok(Filter {
        pids: file.pids,
        commands: file.commands,
        users: file.users.into_iter().map(uid).collect::<Result<_, _>>()?,
        cgroups: file.cgroups,
    })
}

/// The kernel keeps this much of a command's name (TASK_COMM_LEN less its end).
const LONGEST_COMMAND: usize = 15;

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    watermarks: WatermarksFile,
    policy: PolicyFile,
    budget: BudgetFile,
    timing: TimingFile,
    processes: ProcessesFile,
    khugepaged: KhugepagedFile,
    cgroup: Vec<CgroupFile>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WatermarksFile {
    enabled: Option<bool>,
    high: Percent,
    low: Percent,
}

impl Default for WatermarksFile {
    fn default() -> Self {
        let marks = Watermarks::default();
        Self { enabled: None, high: Percent(marks.high()), low: Percent(marks.low()) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CgroupFile {
    path: PathBuf,
    #[serde(default = "default_high")]
    high: Percent,
    #[serde(default = "default_low")]
    low: Percent,
}

fn default_high() -> Percent {
    Percent(Watermarks::default().high())
}

fn default_low() -> Percent {
    Percent(Watermarks::default().low())
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicyFile {
    #[serde(deserialize_with = "policy_name")]
    name: PolicyName,
    quantum: Quantum,
    min_bloat: Percent,
}

impl Default for PolicyFile {
    fn default() -> Self {
        Self {
            name: PolicyName::Emd,
            quantum: Quantum(emd::Options::default().quantum),
            // The lowest bucket is not worth a huge page.
            min_bloat: Percent(0.10),
        }
    }
}

fn policy_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicyName, D::Error> {
    let name = String::deserialize(deserializer)?;
    PolicyName::from_name(&name).ok_or_else(|| {
        let names: Vec<&str> = PolicyName::ALL.iter().map(|policy| policy.name()).collect();
        D::Error::custom(format!("there is no policy {name:?}; expected {}", names.join(", ")))
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BudgetFile {
    cpu: Cpu,
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
    commands: Vec<String>,
    users: Vec<String>,
    cgroups: Vec<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KhugepagedFile {
    max_ptes_none: Hold,
}

/// `"80%"`.
#[derive(Clone, Copy, Debug)]
struct Percent(f64);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_percent(&text).map(Self).ok_or_else(|| {
            D::Error::custom(format!("{text:?} is not a percentage; expected one such as \"80%\""))
        })
    }
}

/// `80%` as 0.8, if it lies between 0 % and 100 %.
#[must_use]
pub fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number / 100.0)
}

#[derive(Clone, Copy, Debug)]
struct Cpu(CpuBudget);

impl Default for Cpu {
    fn default() -> Self {
        Self(CpuBudget::new(0.10).unwrap_or(CpuBudget::UNLIMITED))
    }
}

impl<'de> Deserialize<'de> for Cpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Percent(share) = Percent::deserialize(deserializer)?;
        /// Less would mean pauses of minutes.
        const LEAST: f64 = 0.001;
        CpuBudget::new(share)
            .filter(|_| share >= LEAST)
            .map(Self)
            .ok_or_else(|| D::Error::custom("a CPU budget must be at least 0.1% (of one core)"))
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
    /// So low that nothing is rebuilt that would be broken again.
    #[default]
    Auto,
    Keep,
    At(BasePages),
}

impl Hold {
    fn resolve(self, policy: PolicyName, floor: BloatDensity) -> Option<BasePages> {
        match self {
            // HawkEye breaks whatever has a zero page.
            Self::Auto if policy == PolicyName::HawkEye => Some(BasePages::ZERO),
            Self::Auto => Some(floor.base_pages().saturating_sub(BasePages(1))),
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
    fn an_empty_file_is_the_papers_defaults() {
        let config = parse_here("").expect("valid");
        assert_eq!(config, Config::default());
        assert_eq!(config.machine, Some(Watermarks::default()));
        assert_eq!(config.emd.quantum, HugePages(100));
        assert_eq!(config.max_ptes_none, Some(BasePages(50)));
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
        says("[watermarks]\nhigh = \"50%\"\n", &["watermarks", "below the high"]);
        says("[policy]\nname = \"linux\"\n", &["test.toml:2", "emd, emd-exact, hawkeye"]);
        says("[policy]\nquantum = 0\n", &["test.toml:2", "1 or more"]);
        says("[timing]\ninterval = \"soon\"\n", &["test.toml:2", "5s"]);
        says("[budget]\ncpu = \"0%\"\n", &["test.toml:2", "at least 0.1%"]);
        says("[timing]\ncool_down = \"1000years\"\n", &["test.toml:2", "30days"]);
        says("[processes.exclude]\ncommands = [\"a-very-long-command\"]\n", &["15 bytes"]);
        says("[processes.exclude]\ncgroups = [\"redis\"]\n", &["absolute"]);
        says("[khugepaged]\nmax_ptes_none = 512\n", &["test.toml:2", "0 to 511"]);
        says("[[cgroup]]\nhigh = \"50%\"\n", &["test.toml:1", "path"]);
        says("[processes.include]\nusers = [\"no such user\"]\n", &["no such user"]);
        says("high = \n", &["test.toml:1"]);
    }

    #[test]
    fn a_missing_file_points_to_the_example() {
        let error = read(Path::new("/nonexistent/superpage.toml")).expect_err("missing");
        assert!(error.to_string().contains("packaging/superpage.toml"), "{error}");
    }

    #[test]
    fn percentages_take_a_sign_and_a_range() {
        assert_eq!(parse_percent("80%"), Some(0.8));
        assert_eq!(parse_percent("12.5 %"), Some(0.125));
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
