//! `test-programs`: programs that nobody here wrote, and small ones of the kinds that have gone wrong, each run by itself and with
//! Superpage in every way that it is declared for. What they print and how they end has to be the same.
//!
//! The programs are data: `programs/*.toml`, and what is compiled for them in `programs/src`. This says nothing about speed.

mod compared;
mod declared;
mod had;
mod page;
mod ran;
mod rows;

use crate::test::tally::{Failure, Tally};
use anyhow::{Context, Result, anyhow, ensure};
use compared::Outcome;
pub(crate) use declared::{DIRECTORY, Program, parse};
use declared::{Known, Way, all};
use had::{Had, NotHad};
pub(crate) use page::{PAGE, markdown};
use ran::Ran;
pub(crate) use rows::{ROWS, Row};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use xshell::Shell;

/// Where programs are set up and run, below the directory of what is built.
const WORK: &str = "programs";

/// The most time that the gate gives them all, a program that is under way not counted.
const IN_GATE: Duration = Duration::from_secs(270);

/// The work that `test-programs` is asked to do beside running programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// The rows replace those that are kept, and the page is made from them.
    Rows,
    Nothing,
}

/// Runs the programs that are named, or all of them, and prints the table.
pub(crate) fn run(shell: &Shell, arguments: &[String]) -> Result<ExitCode> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    let mut keep = Keep::Nothing;
    let mut chosen = all()?;
    let mut profile = ["build", "--release"].as_slice();
    for option in options {
        match option {
            "--keep" => keep = Keep::Rows,
            "--short" => chosen.retain(|program| program.short),
            "--debug" => profile = &["build"],
            "--page" => return rows::write_page().map(|()| ExitCode::SUCCESS),
            "--list" => {
                chosen.iter().for_each(|program| println!("{:<24}{}", program.name, program.about));
                return Ok(ExitCode::SUCCESS);
            }
            other => anyhow::bail!(
                "no option {other}: there are --keep, --short, --debug, --page and --list"
            ),
        }
    }
    let unknown = names.iter().find(|name| chosen.iter().all(|program| program.name != **name));
    ensure!(unknown.is_none(), "no program {unknown:?} is declared in {DIRECTORY}");
    chosen.retain(|program| names.is_empty() || names.contains(&program.name.as_str()));
    let superpage = build(profile)?;
    let how = How { native: Native::Twice, keep, limit: Duration::MAX };
    let rows = try_all(shell, &chosen, &superpage, how)?;
    print!("{}", page::terminal(&rows));
    let has_failed = rows.iter().any(|row| row.outcome.is_failure());
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The short part, as a stage of the gate.
pub(crate) fn in_gate(shell: &Shell, tally: &mut Tally) -> Result<bool> {
    let mut chosen = all()?;
    chosen.retain(|program| program.short);
    let superpage = build(&["build"])?;
    let begin = Instant::now();
    let how = How { native: Native::OnceIfSame, keep: Keep::Nothing, limit: IN_GATE };
    let rows = try_all(shell, &chosen, &superpage, how)?;
    print!("{}", page::terminal(&rows));
    println!("{} programs in {:.0} s", chosen.len(), begin.elapsed().as_secs_f64());
    rows.iter().for_each(|row| count(row, tally));
    Ok(rows.iter().all(|row| !row.outcome.is_failure()))
}

/// Counts a row as one test.
fn count(row: &Row, tally: &mut Tally) {
    let name = format!("programs::{}::{}", row.program, row.way);
    match row.outcome {
        Outcome::Same | Outcome::Explained => tally.passed += 1,
        Outcome::Skipped => {
            tally.skipped += 1;
            tally.skips.push(format!("skipped {name}: {}", row.why));
        }
        Outcome::Differs | Outcome::Stale | Outcome::Unstable | Outcome::Broken => {
            tally.failed += 1;
            let said = row.why.lines().map(str::to_owned).collect();
            let program = "programs".to_owned();
            tally.failures.push(Failure { program, name, said, ..Failure::default() });
        }
    }
}

/// The Debian packages that the short part needs, and what of each is looked for.
pub(crate) fn packages() -> Result<Vec<(String, Vec<String>)>> {
    let mut programs = all()?;
    programs.retain(|program| program.short);
    let wanted = programs.into_iter().flat_map(|program| {
        let needs = program.needs.clone();
        program.packages.into_iter().map(move |package| (package, needs.clone()))
    });
    Ok(wanted.collect())
}

/// Builds Superpage as this says, and gives the program's path.
fn build(arguments: &[&str]) -> Result<PathBuf> {
    if let Some(other) = std::env::var_os("SUPERPAGE") {
        return std::path::absolute(other).context("the path in SUPERPAGE");
    }
    let built = crate::test::command(arguments).status().context("starting cargo")?;
    ensure!(built.success(), "superpage cannot be built");
    let directory = if arguments.contains(&"--release") { "release" } else { "debug" };
    Ok(std::path::absolute(crate::test::target().join(directory).join("superpage"))?)
}

/// How often a program runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Native {
    /// Twice, so that it is known whether its own output is always the same.
    Twice,
    /// Once, and a second time only where something differs.
    OnceIfSame,
}

/// How programs are tried.
#[derive(Clone, Copy, Debug)]
struct How {
    native: Native,
    keep: Keep,
    /// The programs that have not begun by then are skipped.
    limit: Duration,
}

/// Sets up and runs these programs, one after the other; one line each as they end.
fn try_all(shell: &Shell, programs: &[Program], superpage: &Path, how: How) -> Result<Vec<Row>> {
    let work = std::path::absolute(crate::test::target().join(WORK))?;
    std::fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let origin = rows::Origin::here();
    let mut rows = Vec::new();
    let first = Instant::now();
    for program in programs {
        let begin = Instant::now();
        let is_late = begin - first > how.limit;
        let had = match is_late {
            true => Err(NotHad::Here(anyhow!(
                "the {} s for all programs were over",
                how.limit.as_secs()
            ))),
            false => had::get(shell, program, &work),
        };
        let (version, tried) = match had {
            Ok(had) => (had.version(program), try_one(program, &had, superpage, how.native)?),
            Err(why) => (String::new(), vec![Tried::not_had(&why)]),
        };
        let of_this: Vec<Row> =
            tried.into_iter().map(|tried| origin.row(program, &version, tried)).collect();
        let said: Vec<String> = of_this.iter().map(Row::in_short).collect();
        let seconds = begin.elapsed().as_secs_f64();
        println!("{:<24}{seconds:>7.1} s  {}", program.name, said.join(", "));
        for row in of_this.iter().filter(|row| row.outcome.is_failure()) {
            println!("    {}: {}", row.way, row.why);
        }
        // After each, so that a run that is interrupted has kept what it saw.
        if how.keep == Keep::Rows {
            rows::keep(&of_this, &work.join("lock"))?;
        }
        rows.extend(of_this);
    }
    Ok(rows)
}

/// What came of a program in one way, or of all its ways where there is none.
#[derive(Debug)]
struct Tried {
    way: Option<Way>,
    outcome: Outcome,
    why: String,
    native_seconds: f64,
    seconds: f64,
}

impl Tried {
    fn not_had(why: &NotHad) -> Self {
        let (outcome, why) = match why {
            NotHad::Here(why) => (Outcome::Skipped, why),
            NotHad::Anywhere(why) => (Outcome::Broken, why),
        };
        Self { way: None, outcome, why: format!("{why:#}"), native_seconds: 0.0, seconds: 0.0 }
    }
}

/// Runs one program by itself, and in each of its ways.
fn try_one(program: &Program, had: &Had, superpage: &Path, runs: Native) -> Result<Vec<Tried>> {
    let native = ran::run(program, had, None, superpage)?;
    if runs == Native::Twice
        && let Some(unstable) = unstable(program, had, superpage, &native)?
    {
        return Ok(vec![unstable]);
    }
    let mut all = Vec::new();
    for way in &program.ways {
        let with = ran::run(program, had, Some(*way), superpage)?;
        let (outcome, why) = judge(program, *way, &native, &with);
        let (native_seconds, seconds) = (native.seconds, with.seconds);
        all.push(Tried { way: Some(*way), outcome, why, native_seconds, seconds });
    }
    if runs == Native::OnceIfSame
        && all.iter().any(|tried| tried.outcome.is_failure())
        && let Some(unstable) = unstable(program, had, superpage, &native)?
    {
        return Ok(vec![unstable]);
    }
    Ok(all)
}

/// Runs the program by itself again: in what it differs from itself, so that nothing can be said of it.
fn unstable(program: &Program, had: &Had, superpage: &Path, native: &Ran) -> Result<Option<Tried>> {
    let again = ran::run(program, had, None, superpage)?;
    let difference = compared::compare(native, &again).whole();
    let reason = difference.or_else(|| native.timed_out.then(|| native.end.clone()));
    Ok(reason.map(|reason| Tried {
        way: None,
        outcome: Outcome::Unstable,
        why: format!("two runs without Superpage differ: {reason}"),
        native_seconds: native.seconds,
        seconds: again.seconds,
    }))
}

/// What is declared for a way: by its name, or for each.
fn declared<T>(all: &BTreeMap<Way, T>, way: Way) -> Option<&T> {
    all.get(&way).or_else(|| all.get(&Way::Each))
}

/// Whether a run differs from the native one, and whether it is known why.
fn judge(program: &Program, way: Way, native: &Ran, with: &Ran) -> (Outcome, String) {
    let difference = compared::compare(native, with);
    let known = declared(&program.differs, way);
    let of_notes = declared(&program.notes, way).filter(|_| difference.program.is_none());
    let has_notes = difference.notes.is_some();
    match (difference.whole(), known, of_notes) {
        (None, None, None) => (Outcome::Same, String::new()),
        (None, Some(Known { why, .. }), _) | (None, None, Some(why)) => {
            (Outcome::Stale, format!("it is the same, though it is declared to differ: {why}"))
        }
        (Some(whole), Some(known), _) if whole.contains(&known.seen) => {
            (Outcome::Explained, known.why.clone())
        }
        (Some(_), None, Some(why)) if has_notes => (Outcome::Explained, why.clone()),
        (Some(whole), _, _) => (Outcome::Differs, whole),
    }
}
