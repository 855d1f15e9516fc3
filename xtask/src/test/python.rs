//! The Python package: its wheel is built and installed in a virtual environment of its own, and pytest tests it there. So are the
//! kernels on graphs, against NetworkX.

use super::tally::Tally;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// The virtual environment, below the directory of what is built.
const ENVIRONMENT: &str = "python";
/// The packages that the build and the tests use. PyTorch is not among them, because it takes gigabytes: its test runs where it is
/// installed.
const PACKAGES: [&str; 6] = ["maturin>=1.9,<2", "networkx", "numpy", "pandas", "pytest", "scipy"];
/// The least version of Python, as `python/pyproject.toml` has it.
const LEAST: &str = "import sys; sys.exit(sys.version_info < (3, 11))";

/// Builds and tests the package; what there is no Python for is skipped, with the reason.
pub(crate) fn run(tally: &mut Tally) -> Result<bool> {
    let environment = std::path::absolute(super::target().join(ENVIRONMENT))?;
    if let Err(why) = prepare(&environment) {
        return Ok(skip(tally, &format!("{why:#}")));
    }
    let wheels = environment.join("wheels");
    // A wheel of an earlier version would be installed too.
    let _ = std::fs::remove_dir_all(&wheels);
    let built = command(&environment, "maturin")
        .args([
            "build",
            "--release",
            "--compatibility",
            "off",
            "--manifest-path",
            "python/Cargo.toml",
            "--out",
        ])
        .arg(&wheels)
        .env("CARGO_TARGET_DIR", environment.join("build"))
        .status()
        .context("starting maturin")?;
    ensure!(built.success(), "the wheel was not built");
    let wheel = std::fs::read_dir(&wheels)?.next().context("maturin has built no wheel")??.path();
    let installed = command(&environment, "pip")
        .args(["install", "--quiet", "--force-reinstall", "--no-deps"])
        .arg(wheel)
        .status()?;
    ensure!(installed.success(), "the wheel was not installed");
    tests(&environment, tally)
}

/// Makes the environment where it is not there yet.
fn prepare(environment: &Path) -> Result<()> {
    let python = Command::new("python3").args(["-c", LEAST]).stderr(Stdio::null()).status();
    ensure!(
        python.is_ok_and(|status| status.success()),
        "there is no Python 3.11 or later (python3)"
    );
    let made = Command::new("python3").args(["-m", "venv"]).arg(environment).output()?;
    ensure!(made.status.success(), "`python3 -m venv` fails: on Debian, install python3-venv");
    let installed =
        command(environment, "pip").args(["install", "--quiet"]).args(PACKAGES).output()?;
    let words = String::from_utf8_lossy(&installed.stderr).into_owned();
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    ensure!(installed.status.success(), "its packages cannot be installed: {last}");
    Ok(())
}

fn tests(environment: &Path, tally: &mut Tally) -> Result<bool> {
    let tests = std::path::absolute("python/tests")?;
    // The stage before has built it.
    let program = std::path::absolute(super::target().join("debug/superpage"))?;
    // The tests run outside the sources, so that they import the package that was installed.
    let ended = command(environment, "python")
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"])
        .arg(tests)
        .env("SUPERPAGE_PROGRAM", program)
        .current_dir(environment)
        .stderr(Stdio::inherit())
        .output()?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    print!("{said}");
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    tally.add_pytest(last);
    let reasons = said.lines().filter_map(|line| line.strip_prefix("SKIPPED "));
    tally.skips.extend(reasons.map(|reason| format!("skipped of the Python package: {reason}")));
    Ok(ended.status.success())
}

fn skip(tally: &mut Tally, why: &str) -> bool {
    tally.skipped += 1;
    tally.skips.push(format!("skipped the Python package: {why}"));
    println!("skipped the Python package: {why}");
    true
}

/// A program of the environment.
fn command(environment: &Path, name: &str) -> Command {
    let mut command = Command::new(environment.join("bin").join(name));
    command.env("VIRTUAL_ENV", environment).stdin(Stdio::null());
    command
}
