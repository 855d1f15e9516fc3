//! The whole gate: every stage in order, each timed, and one count at the end.
//!
//! A failing stage does not stop the ones after it, so that one run shows everything. The last
//! line is `N passed, N failed, N skipped`; a stage that fails without a failing test counts as
//! one failure, so that the line never says 0 for a gate that is shut.

mod again;
mod contiguous;
mod python;
pub(crate) mod tally;

use anyhow::{Context, Result};
use contiguous::Contiguous;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;
use superpage_kernel::probe;
use tally::Tally;
use xshell::Shell;

/// One stage's name and what it runs.
type Stage = (&'static str, fn(&Shell, &mut Tally) -> Result<bool>);

const STAGES: [Stage; 10] = [
    ("setup", |shell, _| Ok(crate::setup::run(shell)? == ExitCode::SUCCESS)),
    ("formatting", |_, _| cargo(&["fmt", "--all", "--check"], &[])),
    ("clippy", |_, _| {
        cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
    }),
    ("tidy", |shell, _| Ok(crate::tidy::run(shell)? == ExitCode::SUCCESS)),
    ("documentation", |_, _| {
        cargo(&["doc", "--no-deps", "--workspace"], &[("RUSTDOCFLAGS", "-D warnings")])
    }),
    ("build", |_, _| cargo(&["test", "--workspace", "--no-run"], &[])),
    ("leftovers", |_, _| leftovers()),
    (TESTS, |_, tally| tests(tally)),
    ("python", |_, tally| python::run(tally)),
    (PROGRAMS, |shell, tally| crate::programs::in_gate(shell, tally)),
];

/// The outcome of one stage.
struct Ran {
    name: &'static str,
    seconds: f64,
    /// `ok`, or `FAILED` with the error.
    verdict: String,
}

/// The stage that runs the tests of the workspace.
const TESTS: &str = "tests";

/// The stage that runs programs with and without Superpage.
const PROGRAMS: &str = "programs";

/// Runs every stage and says what came of it.
pub(crate) fn run(shell: &Shell) -> Result<ExitCode> {
    let mut tally = Tally::default();
    let mut stages = Vec::new();
    let mut contiguous = Contiguous::take()
        .inspect_err(|error| println!("no 1 GiB pages are taken for the tests: {error:#}"))
        .ok();
    for (name, stage) in STAGES {
        if name == TESTS {
            drop(contiguous.take());
        }
        println!("==> {name}");
        let begin = Instant::now();
        let verdict = match stage(shell, &mut tally) {
            Ok(true) => "ok".to_owned(),
            Ok(false) => "FAILED".to_owned(),
            Err(error) => format!("FAILED: {error:#}"),
        };
        println!("{name}: {verdict}");
        stages.push(Ran { name, seconds: begin.elapsed().as_secs_f64(), verdict });
    }
    Ok(summary(&tally, &stages))
}

/// Prints the end of the report.
fn summary(tally: &Tally, stages: &[Ran]) -> ExitCode {
    println!("\n==> summary");
    for Ran { name, seconds, verdict } in stages {
        println!("{name:<14}{seconds:>8.1} s  {verdict}");
    }
    for reason in tally.reasons() {
        println!("{reason}");
    }
    // The stages of tests have their own failures, where they could count them.
    let counts = |name: &str| matches!(name, TESTS | "python" | PROGRAMS) && tally.failed > 0;
    let failed = || stages.iter().filter(|stage| stage.verdict != "ok");
    let uncounted = failed().filter(|stage| !counts(stage.name)).count();
    // One that was to show what stands, and skipped it, has shown nothing.
    let is_hollow = tally.is_mostly_skips();
    let could_run = is_hollow && probe::missing_essentials() == probe::Missing::default();
    let hollow = match is_hollow {
        true => ": mostly skips, so that this says little about what runs on a kernel",
        false => "",
    };
    println!(
        "{} passed, {} failed, {} skipped{hollow}",
        tally.passed,
        tally.failed + uncounted + usize::from(could_run),
        tally.skipped
    );
    if failed().next().is_none() && !could_run { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs cargo, its output where ours goes.
fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<bool> {
    let status =
        command(arguments).envs(environment.iter().copied()).status().context("starting cargo")?;
    Ok(status.success())
}

/// Puts back what a run that was killed left changed, such as `enabled=never`, under which most live
/// tests could not run. Where that cannot be done, it says so, and the tests say what they lack. The program is the one that was
/// built for the tests: `cargo run` would build everything once more, with the features of one package.
fn leftovers() -> Result<bool> {
    let superpage = target().join("debug/superpage");
    Command::new(&superpage).arg("restore").status().context("starting what was built")?;
    Ok(true)
}

/// Runs every test of the workspace, shows what they print as it comes, and counts.
///
/// Test binaries run one after the other: the live ones use the machine's real memory.
fn tests(tally: &mut Tally) -> Result<bool> {
    let passed = watched(&["test", "--workspace", "--no-fail-fast"], tally)?;
    if tally.ran() == 0 {
        println!("no test ran: that is a failure");
    }
    let settled = tally.failed > 0 && again::run(tally)?;
    Ok((passed || settled) && tally.failed == 0 && tally.ran() > 0)
}

/// Runs cargo, shows what it prints as it comes, and counts what that says; whether cargo succeeded.
fn watched(arguments: &[&str], tally: &mut Tally) -> Result<bool> {
    let (reader, writer) = std::io::pipe()?;
    let mut command = command(arguments);
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("starting cargo")?;
    // The writing end that the command holds would keep the pipe open for ever.
    drop(command);
    follow(BufReader::new(reader), tally)?;
    Ok(child.wait()?.success())
}

/// Passes `output` on line by line, and counts what it says.
fn follow(mut output: impl BufRead, tally: &mut Tally) -> Result<()> {
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        tally.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

/// The directory of what is built.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()).into()
}

/// The cargo that runs us.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).stdin(std::process::Stdio::null());
    command
}
