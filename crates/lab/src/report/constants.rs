//! The constants that simulated numbers rest on: a page of all of them, and how far numbers go when one that no paper gives is
//! at half or at twice its value (the experiment `sensitivity`).

use super::Source;
use super::kept::{Head, Kept};
use super::page::MADE;
use crate::experiment::SENSITIVITY;
use crate::experiment::sim::Used;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The file, from the documents' directory.
pub(super) const FILE: &str = "results/constants.md";

/// The page of all constants.
pub(super) fn text(source: &Source) -> String {
    let mut known: BTreeMap<&Used, BTreeSet<&str>> = BTreeMap::new();
    for head in
        source.runs.iter().map(|run| &run.head).filter(|head| head.experiment != SENSITIVITY)
    {
        for used in &head.constants {
            known.entry(used).or_default().insert(&head.experiment);
        }
    }
    let (changes, changed) = (changes(&source.runs), changed_in(&source.runs));
    let mut text = format!(
        "{MADE}# Constants of the simulated experiments\n\nNumbers that a run takes in and that the profile of the machine \
         (`crates/sim/src/profiles`) does not have. *Changes by*: the most that a number with one of the paper's changes when the constant \
         is at half or at twice its value, of itself, and where (`superpage lab run sensitivity`), and in how many of the experiments it was changed; a dash where no rows say. \
         Numbers of the papers and choices that are no number are not changed, nor are the assumed numbers of profiles and the options of \
         policies (`crates/policy`), whose comments say what was chosen.\n\n\
         | constant | value | origin | why | experiments | changes by |\n|---|---|---|---|---|---|\n"
    );
    for (Used { name, value, origin, source }, experiments) in known {
        let experiments: Vec<&str> = experiments.into_iter().collect();
        let its = changed.get(name.as_str());
        let count =
            experiments.iter().filter(|name| its.is_some_and(|its| its.contains(*name))).count();
        let share = format!("{count} of {}", experiments.len());
        let change = match changes.get(name.as_str()) {
            Some((change, of)) => format!("{:.0} % ({of}; {share})", 100.0 * change),
            None if count == 0 => "–".to_owned(),
            None => format!("under 1 % ({share})"),
        };
        text.push_str(&format!(
            "| {name} | {value} | {origin} | {source} | {} | {change} |\n",
            experiments.join(", ")
        ));
    }
    text
}

/// The rows of the experiment `sensitivity`.
fn rows(runs: &[Kept]) -> impl Iterator<Item = &Value> {
    runs.iter().filter(|run| run.head.experiment == SENSITIVITY).flat_map(|run| &run.rows)
}

/// The experiments in which each constant was changed: those that `sensitivity` was asked for, of the constants that it notes, and those
/// of its rows.
fn changed_in(runs: &[Kept]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut changed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (constant, of) in
        rows(runs).filter_map(|row| row["constant"].as_str().zip(row["of"].as_str()))
    {
        changed.entry(constant).or_default().insert(of);
    }
    for Head { command, constants, .. } in
        runs.iter().map(|run| &run.head).filter(|head| head.experiment == SENSITIVITY)
    {
        let Some((_, names)) = command.split_once("--only ") else { continue };
        let asked_for = || names.split(' ').next().unwrap_or_default().split(',');
        for constant in constants {
            changed.entry(&constant.name).or_default().extend(asked_for());
        }
    }
    changed
}

/// The number of a row with its constant at half and at twice.
fn changed(row: &Value) -> impl Iterator<Item = f64> {
    ["half", "double"].into_iter().filter_map(|key| row[key].as_f64())
}

/// For each constant the largest change of a number with one of the paper's, as a part of itself, and the experiment.
fn changes(runs: &[Kept]) -> BTreeMap<&str, (f64, &str)> {
    let mut most: BTreeMap<&str, (f64, &str)> = BTreeMap::new();
    for row in rows(runs).filter(|row| row["paper"].is_number()) {
        let names = row["constant"].as_str().zip(row["of"].as_str());
        let Some(((constant, of), number)) = names.zip(row["measured"].as_f64()) else { continue };
        for change in changed(row).map(|other| ((other - number) / number).abs()) {
            let most = most.entry(constant).or_insert((0.0, of));
            if change.is_finite() && change > most.0 {
                *most = (change, of);
            }
        }
    }
    most
}

/// The names of a number.
type Names = [String; 5];

/// The least and the most that a number becomes when a constant is changed.
#[derive(Debug)]
struct Range {
    /// The number as the constants are.
    number: f64,
    least: f64,
    most: f64,
    /// Whether there is no such number with one of the changes.
    is_open: bool,
}

/// Numbers with their ranges.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<Names, Range>);

impl Ranges {
    pub(super) fn of(runs: &[Kept]) -> Self {
        let mut ranges = Self::default();
        for row in rows(runs) {
            let Some(number) = row["measured"].as_f64() else { continue };
            let range = ranges.0.entry(names(row, "of"));
            let range =
                range.or_insert(Range { number, least: number, most: number, is_open: false });
            range.is_open |= changed(row).count() < 2;
            for other in changed(row) {
                range.least = range.least.min(other);
                range.most = range.most.max(other);
            }
        }
        ranges
    }

    /// The rows of an experiment, with `least` and `most` in those that have a range and are what they were when it was found.
    pub(super) fn put(&self, rows: &[Value]) -> Vec<Value> {
        let with = |row: &Value| {
            let mut row = row.clone();
            let known = self.0.get(&names(&row, "experiment"));
            let current = known.filter(|range| row["measured"].as_f64() == Some(range.number));
            if let Some(Range { least, most, is_open, .. }) = current {
                row["least"] = (*least).into();
                row["most"] = (*most).into();
                row["open"] = (*is_open).into();
            }
            row
        };
        rows.iter().map(with).collect()
    }
}

fn names(row: &Value, experiment: &str) -> Names {
    [experiment, "case", "policy", "quantity", "unit"].map(|key| row[key].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sensitivity(half: f64, double: Value) -> Value {
        json!({"experiment": "sensitivity", "of": "e", "case": "c", "policy": "p", "quantity": "q", "unit": "u",
               "constant": "k", "paper": 2.0, "measured": 2.0, "half": half, "double": double})
    }

    fn kept(rows: Vec<Value>) -> Kept {
        let head = json!({"experiment": "sensitivity", "machine": "sim", "command": "", "tree": null, "date": "",
                          "host": "", "notes": [], "pictures": []});
        let head: Head = serde_json::from_value(head).unwrap();
        Kept { head, rows }
    }

    #[test]
    fn a_number_has_the_range_of_all_its_constants() {
        let runs = [kept(vec![sensitivity(1.0, json!(2.5)), sensitivity(1.5, Value::Null)])];
        let row = json!({"experiment": "e", "case": "c", "policy": "p", "quantity": "q", "unit": "u", "measured": 2.0});
        let other =
            json!({"experiment": "f", "case": "c", "policy": "p", "quantity": "q", "unit": "u"});
        let mut newer = row.clone();
        newer["measured"] = json!(2.2);
        let rows = Ranges::of(&runs).put(&[row, other, newer]);
        assert!(rows[2]["least"].is_null());
        assert_eq!((&rows[0]["least"], &rows[0]["most"]), (&json!(1.0), &json!(2.5)));
        assert_eq!(rows[0]["open"], true);
        let closed = [kept(vec![sensitivity(1.0, json!(2.5))])];
        assert_eq!(Ranges::of(&closed).put(&rows[..1])[0]["open"], false);
        assert!(rows[1]["least"].is_null());
    }

    #[test]
    fn a_constant_is_changed_in_the_experiments_that_were_asked_for() {
        let mut one = kept(Vec::new());
        one.head.command = "superpage lab run sensitivity --only a,b --seed 2".into();
        one.head.constants = vec![Used { name: "k".into(), ..Used::default() }];
        let runs = [one, kept(vec![sensitivity(1.0, json!(2.5))])];
        let changed = changed_in(&runs);
        assert_eq!((changed.len(), &changed["k"]), (1, &BTreeSet::from(["a", "b", "e"])));
    }

    #[test]
    fn a_constant_has_its_largest_change() {
        let runs = [kept(vec![sensitivity(1.0, json!(2.5)), sensitivity(1.9, json!(2.0))])];
        assert_eq!(changes(&runs).get("k"), Some(&(0.5, "e")));
    }
}
