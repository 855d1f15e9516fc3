//! `superpage debloat`: split the huge pages that waste most, now.

use crate::args::Debloat;
use crate::exit::{Failure, Outcome};
use crate::{show, signals};
use anyhow::anyhow;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use superpage_kernel::probe;
use superpage_kernel::settings::{self, Lock, STATE_DIRECTORY, Settings};
use superpage_kernel::thp::{self, Thp};
use superpage_manager::account::{Account, ProcessAccount};
use superpage_manager::config::Config;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::daemon::DaemonError;
use superpage_manager::find;
use superpage_manager::pass::{End, Event, Flow, Mode, Options, Pass};
use superpage_policy::bloat::BloatDensity;
use superpage_policy::debloat::{Debloat as Decider, DoneCause, emd};
use superpage_units::{BasePages, HugePages, Time};

/// The time between two looks whether to end. Chosen: nobody waits longer for it.
const LOOK: Duration = Duration::from_millis(100);

/// De-bloats the processes and says what that did.
pub(super) fn run(arguments: &Debloat) -> Outcome {
    let mut pids = arguments.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    // All of them are checked before any is touched.
    let processes = pids.into_iter().map(find::hold).collect::<Result<Vec<_>, _>>()?;
    if !arguments.dry_run {
        check_essentials()?;
    }
    let held = arguments.hold.map(|_| hold()).transpose()?;
    let mode = if arguments.dry_run { Mode::DryRun } else { Mode::Act };
    let options = Options { mode, seed: u64::from(std::process::id()) << 32, ..Options::default() };
    let mut cooling = CoolDown::new();
    let mut pass = Pass::new(processes, BasePages::ZERO, options, &cooling, Time::ZERO)?;
    if pass.account().processes.is_empty() {
        return Err(anyhow!("none of these processes is there any more").into());
    }
    let huge_pages = pass.account().total().huge_pages;
    pass.set_need(need(arguments, huge_pages));
    let emd = emd::Options { quantum: arguments.quantum, ..emd::Options::default() };
    let mut policy = (arguments.policy.build)(emd);
    let stop = held.as_ref().map(|held| Arc::clone(&held.stop)).unwrap_or_default();
    let end = run_with_progress(&mut pass, policy.as_mut(), &mut cooling, &stop)?;
    if arguments.json {
        let rows = pass.account().processes.values();
        show::print(&rows.map(|row| as_json(row, mode)).collect::<String>())?;
    } else {
        show::print(&summary(pass.account(), arguments, policy.floor(), end))?;
    }
    if let (Some(held), Some(time)) = (held, arguments.hold) {
        held.wait(time)?;
    }
    let exited = pass.account().processes.values().filter(|process| process.exited);
    let exited: Vec<String> = exited.map(|process| process.pid.to_string()).collect();
    if exited.is_empty() {
        return Ok(());
    }
    let pids = exited.join(", ");
    Err(anyhow!(
        "exited before the work was done: process {pids}; what was freed until then is above"
    )
    .into())
}

/// Only a plain no is final: what could not be tried, because no huge page was free to try it on, may work, and what is freed is
/// verified.
fn check_essentials() -> Outcome {
    let probe::Missing { no, unclear } = probe::missing_essentials();
    for finding in unclear {
        let purpose = finding.ability.purpose();
        show::note(&format!(
            "could not tell whether we can {purpose} ({}); going on, and what is freed is verified",
            finding.why
        ));
    }
    if no.is_empty() { Ok(()) } else { Err(DaemonError::NotPossible(no).into()) }
}

fn need(arguments: &Debloat, huge_pages: HugePages) -> BasePages {
    match (arguments.free, arguments.fraction) {
        (Some(size), _) => size.to_base_pages(),
        (None, Some(share)) => share.of(huge_pages.bytes()).to_base_pages(),
        (None, None) => huge_pages.base_pages(),
    }
}

/// Runs the policy; the bar first counts huge pages looked at, then base pages freed.
fn run_with_progress(
    pass: &mut Pass,
    decider: &mut dyn Decider,
    cooling: &mut CoolDown,
    stop: &AtomicBool,
) -> Result<End, superpage_kernel::Error> {
    const FREEING: &str = "freeing {bar:30} {msg}";
    let huge_pages = pass.account().total().huge_pages;
    let bar = show::progress(huge_pages.0, "looking {bar:30} {pos}/{len} huge pages");
    let goal = pass.need().0.min(huge_pages.base_pages().0);
    let mut freed_so_far = BasePages::ZERO;
    let mut watch = |event: Event<'_>| {
        match event {
            Event::Looked { ranges, .. } if freed_so_far.is_zero() => bar.inc(ranges.0),
            Event::Looked { .. } | Event::Excluded { .. } | Event::Pausing => {}
            Event::Split { freed, .. } => {
                if freed_so_far.is_zero() {
                    bar.set_style(show::bar_style(FREEING));
                    bar.set_length(goal);
                }
                freed_so_far += freed;
                bar.set_position(freed_so_far.0.min(goal));
                bar.set_message(format!("{} freed", freed_so_far.bytes()));
            }
            Event::Lost { error, .. } => bar.suspend(|| {
                // Seen also where there is no bar; whether somebody reads it does not matter.
                let _ = writeln!(std::io::stderr(), "superpage: {error}; going on without it");
            }),
        }
        if stop.load(Relaxed) { Flow::Stop } else { Flow::Continue }
    };
    let end = pass.run(decider, cooling, Time::ZERO, &mut watch);
    bar.finish_and_clear();
    end
}

fn as_json(process: &ProcessAccount, mode: Mode) -> String {
    let row = json!({
        "pid": process.pid.0,
        "command": process.command,
        "dry_run": mode == Mode::DryRun,
        "huge_pages": process.huge_pages.0,
        "split": process.split.0,
        "expected_base_pages": process.expected.0,
        "freed_base_pages": process.freed.0,
        "freed_bytes": process.freed.bytes().0,
        "left_alone_shared": process.left_alone.shared.0,
        "left_alone_busy": process.left_alone.busy.0,
        "left_alone_refused": process.left_alone.refused.0,
        "left_alone_followed": process.left_alone.followed.0,
        "vanished": process.vanished.0,
        "exited": process.exited,
    });
    format!("{row}\n")
}

fn summary(account: &Account, arguments: &Debloat, floor: BloatDensity, end: End) -> String {
    let verb = if arguments.dry_run { "would split" } else { "split" };
    let freed = if arguments.dry_run { "would free (estimated)" } else { "freed (verified)" };
    let mut table = show::table(&["pid", "command", "huge pages", verb, freed, "left alone"]);
    for process in account.processes.values() {
        let exited = if process.exited { " (exited)" } else { "" };
        table.add_row([
            process.pid.to_string(),
            format!("{}{exited}", show::printable(&process.command)),
            process.huge_pages.to_string(),
            process.split.to_string(),
            process.freed.bytes().to_string(),
            left_alone(process),
        ]);
    }
    let total = account.total();
    let mut text = format!(
        "{table}\n{} {} of {} huge pages, {} {}; read {}, {:.3} s of CPU time, {:.3} s in all.\n",
        if arguments.dry_run { "Would split" } else { "Split" },
        total.split,
        total.huge_pages,
        if arguments.dry_run { "would free about" } else { "freed and verified" },
        total.freed.bytes(),
        account.read,
        account.cpu.as_secs_f64(),
        account.wall.as_secs_f64(),
    );
    if end == End::Done(DoneCause::NothingLeft) && !arguments.all && !total.exited {
        text.push_str(&if !total.left_alone.total().is_zero() {
            "That is all that could be had: the rest is in huge pages that had to be left alone.\n"
                .to_owned()
        } else if floor > BloatDensity::new(1) {
            format!(
                "That is all that {} takes: it leaves huge pages with less than {} of bloat.\n",
                arguments.policy,
                floor.base_pages().bytes()
            )
        } else {
            "That is all the bloat there was: less than you asked for.\n".to_owned()
        });
    }
    if !arguments.dry_run && arguments.hold.is_none() && !total.split.is_zero() {
        text.push_str(&warning_about_khugepaged());
    }
    text
}

fn left_alone(process: &ProcessAccount) -> String {
    let counts = process.left_alone;
    let parts: Vec<String> = [
        (counts.shared, "shared"),
        (counts.busy, "pinned or busy"),
        (counts.refused, "refused"),
        (counts.followed, "with writes that somebody follows"),
        (process.vanished, "gone"),
    ]
    .into_iter()
    .filter(|(count, _)| !count.is_zero())
    .map(|(count, why)| format!("{count} {why}"))
    .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// khugepaged's `max_ptes_none`, held down until this is dropped or we are killed: then the next `superpage` that holds
/// settings puts it back, or `superpage restore`.
struct Held {
    settings: Settings,
    _machine: Lock,
    stop: Arc<AtomicBool>,
}

/// Holds khugepaged back.
fn hold() -> Result<Held, Failure> {
    // Before anything is held, so that an interrupt gives it back.
    let stop = signals::stop_flag()?;
    // A daemon holds it for as long as it runs.
    let machine = Lock::of_machine()??;
    let (mut settings, repairs) =
        Settings::open(Path::new(STATE_DIRECTORY), settings::Mode::Apply)?;
    for repair in repairs {
        show::note(&format!("an earlier run did not end well: {repair}"));
    }
    let knobs = Thp::under(Path::new("/sys"));
    let wanted = Config::default().max_ptes_none.unwrap_or_default();
    if knobs.get(thp::MAX_PTES_NONE)? > wanted {
        knobs.set(&mut settings, thp::MAX_PTES_NONE, wanted)?;
    }
    Ok(Held { settings, _machine: machine, stop })
}

impl Held {
    /// Holds it for so long, then puts it back.
    fn wait(mut self, time: Duration) -> Outcome {
        for change in self.settings.held() {
            show::note(&format!("{change}, for {}", humantime::format_duration(time)));
        }
        if self.settings.held().is_empty() {
            show::note("khugepaged rebuilds nothing of that as it is set, so nothing is held");
            return Ok(());
        }
        let begun = Instant::now();
        while begun.elapsed() < time && !self.stop.load(Relaxed) {
            std::thread::sleep(LOOK.min(time.saturating_sub(begun.elapsed())));
        }
        let mut failed = None;
        for repair in self.settings.restore()? {
            show::note(&repair.to_string());
            if let settings::Outcome::Failed(error) = repair.outcome {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// What was freed stays freed only as long as khugepaged does not rebuild it.
fn warning_about_khugepaged() -> String {
    match Thp::under(Path::new("/sys")).get(thp::MAX_PTES_NONE) {
        Ok(limit) if limit >= Config::default().worth() => format!(
            "khugepaged may rebuild these huge pages (khugepaged/max_ptes_none is {limit}); \
             `--hold 1h` holds it back for an hour, `superpage daemon` while it runs.\n"
        ),
        _ => String::new(),
    }
}
