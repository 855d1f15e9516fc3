//! `superpage doctor`: what this kernel and these rights allow.

mod first_touches;

use super::scan;
use crate::args::Doctor;
use crate::exit::{Failure, Outcome};
use crate::show;
use serde_json::json;
use std::path::Path;
use superpage_kernel::Error;
use superpage_kernel::made::{self, MADE};
use superpage_kernel::probe::{self, Ability, Answer, Finding};
use superpage_kernel::settings::{STATE_DIRECTORY, Settings};
use superpage_kernel::thp::{Thp, Value};
use superpage_kernel::zram::{self, ZRAM};
use superpage_manager::clock;
use superpage_manager::registry::{Registry, WORTH_MANAGING};
use superpage_manager::select::Selection;

/// Probes everything and says what was found.
pub(super) fn run(arguments: &Doctor) -> Outcome {
    let findings = probe::all();
    if arguments.json {
        show::print(&findings.iter().map(|f| format!("{}\n", as_json(f))).collect::<String>())?;
    } else {
        show::print(&report(&findings))?;
    }
    let essential = |f: &&Finding| Ability::ESSENTIAL.contains(&f.ability);
    let missing = findings.iter().filter(essential).find(|f| f.answer != Answer::Yes);
    match missing {
        None => Ok(()),
        Some(finding) => Err(Failure::NotPossible(format!(
            "{} {}: {}. {}",
            match finding.answer {
                Answer::CouldNotTell => "could not tell whether we can",
                Answer::Yes | Answer::No => "cannot",
            },
            finding.ability.purpose(),
            finding.why,
            finding.advice.unwrap_or_default()
        ))),
    }
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Yes => "yes",
        Answer::No => "no",
        Answer::CouldNotTell => "could not tell",
    }
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "ability": finding.ability.name(),
        "purpose": finding.ability.purpose(),
        "answer": word(finding.answer),
        "why": finding.why,
        "advice": finding.advice,
    })
}

fn report(findings: &[Finding]) -> String {
    let mut table = show::table(&["", "can we ...", "seen"]);
    for finding in findings {
        let advice = finding.advice.map(|advice| format!("\n→ {advice}")).unwrap_or_default();
        table.add_row([
            word(finding.answer),
            finding.ability.purpose(),
            &format!("{}{advice}", finding.why),
        ]);
    }
    let release = rustix::system::uname();
    let kernel = release.release().to_string_lossy().into_owned();
    let knobs = match Thp::under(Path::new("/sys")).state() {
        Ok(state) => format!(
            "Transparent huge pages: enabled={}, defrag={}, khugepaged/max_ptes_none={}.\n",
            state.enabled.to_text(),
            state.defrag.to_text(),
            state.max_ptes_none
        ),
        Err(error) => format!("Transparent huge pages: {error}.\n"),
    };
    let first_touches = first_touches::report().unwrap_or_default();
    format!("Linux {kernel}. {knobs}{table}\n{first_touches}{}{}", left_behind(), left_alone())
}

/// The processes that are left alone because of what they asked the kernel for.
fn left_alone() -> String {
    let registry = Registry::new(Selection::default(), WORTH_MANAGING);
    // Without the right to look, none can be told.
    registry.refresh(clock::now()).map_or_else(|_| String::new(), |()| scan::merging(&registry))
}

/// What a run that was killed left changed; empty where nothing was, or where we may not look.
fn left_behind() -> String {
    let state = Path::new(STATE_DIRECTORY);
    let devices = zram::left_behind(&state.join(ZRAM));
    let made = made::left_behind(&state.join(MADE));
    let left = Settings::left_behind(state).and_then(|changes| Ok((changes, devices?, made?)));
    match left {
        Ok((changes, devices, made))
            if !changes.is_empty() || !devices.is_empty() || !made.is_empty() =>
        {
            let devices = devices
                .iter()
                .map(|device| format!("  {}: compressed memory of a heap\n", device.display()))
                .chain(made.iter().map(|thing| format!("  {thing}\n")));
            let lines: String =
                changes.iter().map(|change| format!("  {change}\n")).chain(devices).collect();
            format!(
                "A run that was killed left this changed; `superpage restore` puts it back:\n{lines}"
            )
        }
        Ok(_) | Err(Error::Denied { .. }) => String::new(),
        Err(error) => format!("Whether a run that was killed left something changed: {error}.\n"),
    }
}
