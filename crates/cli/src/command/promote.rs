//! `superpage promote`: make huge pages of processes' memory, once, now.

use crate::args::Promote;
use crate::exit::Outcome;
use crate::show;
use anyhow::anyhow;
use serde_json::json;
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_manager::daemon::DaemonError;
use superpage_manager::pass::Mode;
use superpage_manager::promote::once::{self, Account, Candidate, Options};
use superpage_units::HugePages;

/// Promotes the processes and says what that did.
pub(super) fn run(arguments: &Promote) -> Outcome {
    let mut pids = arguments.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    // All of them are checked before any is touched.
    let found = pids.into_iter().map(once::hold).collect::<Result<Vec<Candidate>, _>>()?;
    if !arguments.dry_run {
        let finding = probe::probe(Ability::Collapse);
        if finding.answer == Answer::No {
            return Err(DaemonError::NotPossible(vec![finding]).into());
        }
    }
    let mode = if arguments.dry_run { Mode::DryRun } else { Mode::Act };
    let options = Options { mode, least: arguments.least, max_used: arguments.max_used };
    let ranges = found.iter().map(Candidate::ranges).sum();
    let bar = show::progress(ranges, "promoting {bar:30} {pos}/{len} PMD ranges of 2 MiB");
    let mut accounts = Vec::new();
    for candidate in found {
        accounts.push(candidate.promote(options, &mut |count| bar.inc(count))?);
    }
    bar.finish_and_clear();
    if arguments.json {
        show::print(&accounts.iter().map(|one| as_json(one, mode)).collect::<String>())?;
    } else {
        show::print(&summary(&accounts, mode))?;
    }
    answer(&accounts)
}

/// What did not go as asked is an error, after the table.
fn answer(accounts: &[Account]) -> Outcome {
    let named = |wanted: fn(&Account) -> bool| {
        let pids = accounts.iter().filter(|one| wanted(one)).map(|one| one.pid.to_string());
        pids.collect::<Vec<_>>().join(", ")
    };
    let exited = named(|one| one.exited);
    if !exited.is_empty() {
        let what = "exited before the work was done: process";
        return Err(anyhow!("{what} {exited}; what was promoted until then is above").into());
    }
    let refusing = named(|one| one.refuses_huge_pages);
    if !refusing.is_empty() {
        return Err(anyhow!(
            "process {refusing} forbade itself huge pages (PR_SET_THP_DISABLE), and nobody can give \
             it any; start it without that, Redis with `disable-thp no`"
        )
        .into());
    }
    Ok(())
}

fn as_json(one: &Account, mode: Mode) -> String {
    let refused: serde_json::Map<String, serde_json::Value> =
        one.refused.iter().map(|(why, count)| (why.kind().to_owned(), json!(count))).collect();
    let left_alone: serde_json::Map<String, serde_json::Value> =
        one.left_alone.iter().map(|(why, size)| (why.kind().to_owned(), json!(size.0))).collect();
    let row = json!({
        "pid": one.pid.0,
        "command": one.command,
        "dry_run": mode == Mode::DryRun,
        "were_huge": one.were_huge.0,
        "promoted": one.promoted.0,
        "filled_base_pages": one.filled.0,
        "filled_bytes": one.filled.bytes().0,
        "too_empty": one.too_empty.0,
        "refused": refused,
        "left_alone_bytes": left_alone,
        "refuses_huge_pages": one.refuses_huge_pages,
        "exited": one.exited,
        "cpu_s": one.cpu.as_secs_f64(),
        "wall_s": one.wall.as_secs_f64(),
    });
    format!("{row}\n")
}

fn summary(accounts: &[Account], mode: Mode) -> String {
    let (verb, filled) = match mode {
        Mode::Act => ("promoted", "filled with zeroes"),
        Mode::DryRun => ("would promote", "would fill with zeroes"),
    };
    let heads = ["pid", "command", "huge before", verb, filled, "left alone"];
    let mut table = show::table(&heads);
    for one in accounts {
        let exited = if one.exited { " (exited)" } else { "" };
        table.add_row([
            one.pid.to_string(),
            format!("{}{exited}", show::printable(&one.command)),
            one.were_huge.to_string(),
            one.promoted.to_string(),
            one.filled.bytes().to_string(),
            left_alone(one),
        ]);
    }
    let promoted: HugePages = accounts.iter().map(|one| one.promoted).sum();
    let cpu: f64 = accounts.iter().map(|one| one.cpu.as_secs_f64()).sum();
    let wall: f64 = accounts.iter().map(|one| one.wall.as_secs_f64()).sum();
    let verb = if mode == Mode::Act { "Promoted" } else { "Would promote" };
    format!(
        "{table}\n{verb} {promoted} PMD ranges of 2 MiB ({}); {cpu:.3} s of CPU time, {wall:.3} s in all.\n",
        promoted.bytes()
    )
}

fn left_alone(one: &Account) -> String {
    let empty = (!one.too_empty.is_zero()).then(|| format!("{} too empty", one.too_empty));
    let refused = one.refused.iter().map(|(why, count)| format!("{count}: {}", why.reason()));
    let whole = one.left_alone.iter().map(|(why, size)| format!("{size}: {}", why.reason()));
    let parts: Vec<String> = empty.into_iter().chain(refused).chain(whole).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join("; ") }
}
