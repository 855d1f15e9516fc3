//! `superpage-table1`: every promotion policy and every de-bloater by the five events of a superpage's
//! life, as in Quicksilver's Table 1. It is made from their code; nothing is simulated for it.

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

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "superpage-table1",
    source: "Quicksilver, Table 1, for all policies",
    summary: "When each policy does each of the five events in a superpage's life",
    on: On::Sim,
    columns: &COLUMNS,
    run,
};

fn run(_: &Setting, _: Progress<'_>) -> Result<Report> {
    let mut report = Report::default();
    let policies = Policies::published();
    let promotion = list::five_events(&policies.promotion);
    for events in promotion.into_iter().chain(debloat::list::five_events(&policies.debloat)) {
        let mut row = Map::new();
        row.insert("experiment".to_owned(), EXPERIMENT.name.into());
        row.insert("machine".to_owned(), EXPERIMENT.on.name().into());
        for ((key, _), value) in EXPERIMENT.columns.iter().zip(events) {
            row.insert((*key).to_owned(), Value::String(value));
        }
        report.push(&row)?;
    }
    Ok(report)
}
