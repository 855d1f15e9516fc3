//! What came of the programs, as rows that are kept: one for each program and way, in lines of JSON.

use super::compared::Outcome;
use super::declared::Program;
use super::{Tried, page};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use superpage_kernel::meminfo;

/// The rows that are kept.
pub(crate) const ROWS: &str = "results/programs/rows.jsonl";

/// The outcome of one program in one way.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) program: String,
    pub(crate) about: String,
    pub(crate) version: String,
    /// `all` where no way was tried.
    pub(crate) way: String,
    pub(crate) outcome: Outcome,
    /// The difference, or the reason for it, or the reason why the program was not run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
    /// How long it took in this way, and natively.
    pub(crate) seconds: f64,
    pub(crate) native_seconds: f64,
    #[serde(flatten)]
    pub(crate) origin: Origin,
}

/// When, where and of what a row is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Origin {
    pub(crate) date: String,
    pub(crate) machine: String,
    /// The commit that was built.
    pub(crate) tree: String,
}

impl Row {
    /// `run same`.
    pub(crate) fn in_short(&self) -> String {
        match self.outcome {
            Outcome::Skipped => format!("skipped: {}", self.why),
            outcome => format!("{} {outcome}", self.way),
        }
    }
}

impl Origin {
    pub(crate) fn here() -> Self {
        let said = |program: &str, arguments: &[&str]| {
            let said = crate::setup::done(std::process::Command::new(program).args(arguments));
            said.map_or("unknown".to_owned(), |text| text.trim().to_owned())
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = meminfo::read(Path::new("/proc")).map_or(0, |info| info.total.0 >> 30);
        let git =
            |arguments: &[&str]| said("git", &[&["-c", "safe.directory=*"], arguments].concat());
        // The last commit that changed what is tried, not what tries it.
        let commit =
            git(&["log", "-1", "--format=%h", "--abbrev=12", "--", "crates", "Cargo.lock"]);
        let is_clean = git(&["status", "--porcelain", "--", "crates"]).is_empty();
        Self {
            date: said("date", &["-u", "+%Y-%m-%d"]),
            machine: format!("{processors} CPUs, {memory} GiB, Linux {}", said("uname", &["-r"])),
            tree: if is_clean { commit } else { format!("{commit}+") },
        }
    }

    pub(super) fn row(&self, program: &Program, version: &str, tried: Tried) -> Row {
        let tenths = |seconds: f64| (seconds * 10.0).round() / 10.0;
        Row {
            program: program.name.clone(),
            about: program.about.clone(),
            version: version.to_owned(),
            way: tried.way.map_or("all".to_owned(), |way| way.to_string()),
            outcome: tried.outcome,
            why: tried.why,
            seconds: tenths(tried.seconds),
            native_seconds: tenths(tried.native_seconds),
            origin: self.clone(),
        }
    }
}

/// The rows in a text of lines of JSON.
pub(crate) fn parse(text: &str) -> Result<Vec<Row>> {
    let row = |line| serde_json::from_str(line).with_context(|| format!("no row: {line}"));
    text.lines().map(row).collect()
}

/// Replaces the kept rows of the programs that these are of, and makes the page. A program that was skipped keeps what rows it
/// has. Two runs at a time wait for each other.
pub(crate) fn keep(rows: &[Row], lock: &Path) -> Result<()> {
    let lock = std::fs::File::create(lock).context("make a file to lock")?;
    lock.lock().context("lock the rows")?;
    let kept = std::fs::read_to_string(ROWS).unwrap_or_default();
    let mut all: Vec<Row> = parse(&kept)?;
    let declared: Vec<String> = super::all()?.into_iter().map(|program| program.name).collect();
    let is_known = |row: &Row| all.iter().any(|old| old.program == row.program);
    let is_new = |row: &&Row| row.outcome != Outcome::Skipped || !is_known(row);
    let new: Vec<Row> = rows.iter().filter(is_new).cloned().collect();
    all.retain(|old| new.iter().all(|row| row.program != old.program));
    all.extend(new);
    let place = |row: &Row| declared.iter().position(|name| *name == row.program);
    all.retain(|row| place(row).is_some());
    all.sort_by_key(place);
    let lines: Result<Vec<String>> =
        all.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect();
    if let Some(directory) = Path::new(ROWS).parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(ROWS, lines?.concat()).with_context(|| format!("write {ROWS}"))?;
    write_page()
}

/// Makes the page from the rows that are kept.
pub(crate) fn write_page() -> Result<()> {
    let rows = std::fs::read_to_string(ROWS).with_context(|| format!("read {ROWS}"))?;
    std::fs::write(page::PAGE, page::markdown(&rows)?)
        .with_context(|| format!("write {}", page::PAGE))
}
