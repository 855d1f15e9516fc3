//! `superpage-table1`: every promotion policy and every de-bloater by the five events of a superpage's
//! life, as in Quicksilver's Table 1. It is made from their code; nothing is simulated for it. A
//! promotion policy's row says what the policy does by itself; one that has a de-bloater of its own has
//! another row with that plugged in.

use super::{Experiment, On, Progress, Report, Result, Setting};
use serde_json::{Map, Value};
use superpage_policy::debloat;
use superpage_policy::promotion::list::{self, FIVE_EVENTS};
use superpage_policy::registry::Policies;

/// Each of the table's heads is also the key of its column.
const COLUMNS: [(&str, &str); FIVE_EVENTS.len()] = {
    let mut columns = [("", ""); FIVE_EVENTS.len()];
    let mut at = 0;
    while at < columns.len() {
        columns[at] = (FIVE_EVENTS[at], FIVE_EVENTS[at]);
        at += 1;
    }
    columns
};

/// Promotion policies whose own system also reclaims bloat, and the de-bloater that does: HawkEye's
/// (Quicksilver, the text of Table 1; EMD, section 2.2.3), and the shrinker of Linux 6.12 and later,
/// which the papers' Linux does not have.
const OWN: [(&str, &str); 4] = [
    ("linux", "underused"),
    ("hawkeye", "hawkeye"),
    ("hawkeye-star", "hawkeye"),
    ("hawkeye-first-touch", "hawkeye"),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "superpage-table1",
    source: "Quicksilver, Table 1, for all policies",
    summary: "When each policy does each of the five events in a superpage's life",
    on: On::Sim,
    columns: &COLUMNS,
    run: &run,
};

fn run(_: &Setting, _: Progress<'_>) -> Result<Report> {
    let mut report = Report::default();
    let policies = Policies::published();
    for events in list::five_events(&policies.promotion) {
        let own = OWN.iter().find(|(policy, _)| *policy == events[0]);
        let debloater = own.and_then(|(_, name)| policies.debloat.entry(name));
        push(&mut report, &events)?;
        if let Some(debloater) = debloater {
            push(&mut report, &debloater.plugged_into(&events))?;
        }
    }
    for events in debloat::list::five_events(&policies.debloat) {
        push(&mut report, &events)?;
    }
    report.notes.push(NOTE.to_owned());
    Ok(report)
}

const NOTE: &str = "A promotion policy's row is what it does by itself. NAME+NAME is a promotion policy with the \
     de-bloater that its own system has plugged in; +NAME is what any de-bloater adds to any of them.";

fn push(report: &mut Report, events: &[String; FIVE_EVENTS.len()]) -> Result<()> {
    let mut row = Map::new();
    for ((key, _), value) in EXPERIMENT.columns.iter().zip(events) {
        row.insert((*key).to_owned(), Value::String(value.clone()));
    }
    report.push(&row)
}
