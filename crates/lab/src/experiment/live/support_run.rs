//! Programs under `superpage run`, for experiments: how they are started, and the report at their end.

use super::support_bench::Bench;
use super::{Error, Result, Setting};
use crate::helper::{Helper, Part};
use serde_json::Value;
use std::path::Path;
use superpage_kernel::hugetlb;
use superpage_units::{PageSize, Pid};
use tempfile::TempDir;

/// A helper under `superpage run`.
#[derive(Debug)]
pub(super) struct Managed {
    /// The helper.
    pub(super) helper: Helper,
    directory: TempDir,
}

const REPORT: &str = "report.json";

impl Managed {
    /// Starts a helper under `superpage run` with these options.
    pub(super) fn start(setting: &Setting, options: &[&str], part: Part) -> Result<Self> {
        let explain = |error: std::io::Error| Error::Child(format!("a directory: {error}"));
        let directory = TempDir::new().map_err(explain)?;
        let report = directory.path().join(REPORT);
        let mut launcher = setting.launcher.clone();
        let program = launcher.program.to_string_lossy().into_owned();
        let mut leading: Vec<String> = ["run", "--quiet", "--report"].map(str::to_owned).into();
        leading.push(report.to_string_lossy().into_owned());
        leading.extend(options.iter().map(|option| (*option).to_owned()));
        leading.extend(["--".to_owned(), program]);
        leading.append(&mut launcher.leading_args);
        launcher.leading_args = leading;
        let helper = Helper::start_under(&launcher, part)?;
        Ok(Self { helper, directory })
    }

    /// Ends it; the report.
    pub(super) fn end(self) -> Result<Value> {
        self.helper.end()?;
        read_report(&self.directory.path().join(REPORT))
    }
}

/// The process of the program that `superpage run` has started.
pub(super) fn program_of(run: Pid) -> std::io::Result<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children"))?;
    let first = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
    first.map(Pid).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// The report that `superpage run` has written at the end of a program.
pub(super) fn read_report(path: &Path) -> Result<Value> {
    let explain = |error: &dyn std::fmt::Display| Error::Child(format!("the report: {error}"));
    let text = std::fs::read_to_string(path).map_err(|error| explain(&error))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| explain(&error))?;
    match report["managed"] == true {
        true => Ok(report),
        false => Err(Error::NotPossible("the program ran unmanaged: build the library too".into())),
    }
}

/// Takes so many gigantic pages from the kernel's memory into its pool, until the bench goes.
pub(super) fn take_gigantic(bench: &mut Bench, count: u64) -> Result<()> {
    let sys = Path::new("/sys");
    bench.settings().change(&hugetlb::setting(sys, PageSize::Gigantic), &count.to_string())?;
    let pool = hugetlb::read(sys, PageSize::Gigantic)?;
    if pool.free >= count {
        return Ok(());
    }
    Err(Error::NotPossible(format!(
        "the kernel found contiguous memory for {} of {count} pages of 1 GiB; try after a boot",
        pool.free
    )))
}
