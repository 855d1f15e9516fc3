//! A virtual environment of Python's, for experiments on Python packages. It lies in a directory of its own on the experiments'
//! disk and is removed when the experiment ends; what is installed on the machine is neither used nor changed, but for
//! `python3` and its module `venv`.

use super::{Error, Result, Setting};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The environment, until it is dropped.
#[derive(Debug)]
pub(super) struct Python {
    directory: TempDir,
}

impl Python {
    /// An environment with NumPy, which all programs of the experiments use. `Error::NotPossible` where there can be none.
    pub(super) fn new(setting: &Setting) -> Result<Self> {
        let place = setting.directory.display();
        let directory = TempDir::with_prefix_in("superpage-python", &setting.directory)
            .map_err(|error| Error::NotPossible(format!("no directory in {place}: {error}")))?;
        let mut command = Command::new("python3");
        let made = command.args(["-m", "venv"]).arg(directory.path()).stdin(Stdio::null()).output();
        let made = made.map_err(|error| {
            Error::NotPossible(format!("there is no Python (python3 did not start: {error})"))
        })?;
        if !made.status.success() {
            // `venv` says on its standard output what it lacks.
            return Err(Error::NotPossible(format!(
                "python3 cannot make a virtual environment in {place} (on Debian, install python3-venv): {}",
                last_line(&made)
            )));
        }
        let python = Self { directory };
        python.install(["numpy"]).map_err(|why| {
            Error::NotPossible(format!(
                "NumPy cannot be installed; the package registry may be out of reach: {why}"
            ))
        })?;
        Ok(python)
    }

    /// Installs packages, never by compiling them; why not, where that fails.
    pub(super) fn install<P: AsRef<OsStr>>(
        &self,
        packages: impl IntoIterator<Item = P>,
    ) -> std::result::Result<(), String> {
        let mut command = self.command();
        command.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
        ]);
        command.args(["--only-binary", ":all:"]).args(packages);
        let done = command.output().map_err(|error| error.to_string())?;
        if done.status.success() { Ok(()) } else { Err(last_line(&done)) }
    }

    /// Writes a program or data into the environment's directory.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, text).map_err(|error| {
            Error::NotPossible(format!("{} cannot be written: {error}", path.display()))
        })?;
        Ok(path)
    }

    /// The path of a file in the environment's directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The environment's Python, whatever the variables of Python's say.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(self.directory.path().join("bin").join("python"));
        command.arg("-I").stdin(Stdio::null());
        command
    }
}

/// The JSON object that a Python program prints.
pub(super) fn object(command: &mut Command) -> Result<Value> {
    let done = command.output();
    let done = done.map_err(|error| Error::Child(format!("Python did not start: {error}")))?;
    if !done.status.success() {
        return Err(Error::Child(format!(
            "Python ended with {}: {}",
            done.status,
            last_line(&done)
        )));
    }
    serde_json::from_slice(&done.stdout)
        .map_err(|error| Error::Child(format!("a Python program has printed no JSON: {error}")))
}

/// The last line that a command has printed, where Python says what an exception is.
fn last_line(done: &Output) -> String {
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    };
    last(&done.stderr).or_else(|| last(&done.stdout)).unwrap_or_else(|| done.status.to_string())
}
