//! `sensitivity`: what simulated numbers would be if one constant that no paper gives were half or twice what it
//! is. Not for what everybody runs: each experiment runs once more for each such constant and factor.

use super::super::SENSITIVITY;
use super::{
    Error, Experiment, Factor, On, Progress, Report, Result, Scaled, Setting, Used,
    support_parallel,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: SENSITIVITY,
    source: "no paper",
    summary: "Simulated numbers with one constant that no paper gives at half and at twice its value",
    on: On::Sim,
    columns: &[
        ("of", "experiment"),
        ("case", "case"),
        ("policy", "policy"),
        ("quantity", "quantity"),
        ("unit", "unit"),
        ("constant", "constant"),
        ("paper", "in the paper"),
        ("measured", "simulated"),
        ("half", "at half"),
        ("double", "at twice"),
    ],
    run: &run,
};

/// A number that changes by less than this part of itself has no row, but where the experiment does not have it with one of the values.
const LEAST_CHANGE: f64 = 0.01; // not a Constant: what rows are left out

/// A constant by its place in a list, and how it is changed.
type Changed = (usize, Factor);
/// The report of an experiment with a changed constant, or why it does not run so.
type Outcome = std::result::Result<Report, String>;

/// A number of an experiment, and the same number with one constant changed. `half` and `double` are `None` where the experiment does
/// not run with the changed constant, or has no such row then.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    of: &'static str,
    case: &'a Value,
    policy: &'a Value,
    quantity: &'a Value,
    unit: &'a Value,
    constant: &'a str,
    paper: &'a Value,
    measured: f64,
    half: Option<f64>,
    double: Option<f64>,
}

/// The experiments that can be asked for by themselves.
pub(in super::super) fn parts() -> Vec<&'static str> {
    experiments().map(|experiment| experiment.name).collect()
}

fn experiments() -> impl Iterator<Item = &'static Experiment> {
    super::ALL.iter().copied().filter(|experiment| experiment.name != EXPERIMENT.name)
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut report = Report::default();
    let is_asked_for =
        |name: &str| setting.only.is_empty() || setting.only.iter().any(|only| only == name);
    for experiment in experiments().filter(|experiment| is_asked_for(experiment.name)) {
        look_at(experiment, setting, progress, &mut report)?;
    }
    report.notes.push(format!(
        "Constants of profiles and those of the papers stay as they are. Numbers that are there with both values and change by less than {:.0} % have no row.",
        100.0 * LEAST_CHANGE
    ));
    Ok(report)
}

/// Runs one experiment with each of its constants changed.
fn look_at(
    of: &'static Experiment,
    setting: &Setting,
    progress: Progress<'_>,
    report: &mut Report,
) -> Result<()> {
    let plain = of.run.run(of.name, setting, progress)?;
    let constants: Vec<&Used> = plain.constants.iter().filter(|one| is_open(one)).collect();
    for &constant in &constants {
        report.rest_on(constant.clone());
    }
    let changed = changed(of, &constants, setting, progress)?;
    for (at, constant) in constants.into_iter().enumerate() {
        let outcomes = [Factor::Half, Factor::Double].map(|factor| changed.get(&(at, factor)));
        let [half, double] = outcomes.map(|outcome| outcome.and_then(|found| found.as_ref().ok()));
        for (row, numbers) in of_rows(&plain.rows, half, double) {
            add(report, of, constant, row, numbers)?;
        }
        for (outcome, factor) in outcomes.into_iter().zip(["half", "twice"]) {
            if let Some(Err(why)) = outcome {
                report.notes.push(format!(
                    "{} does not run with {} at {factor} its value: {why}.",
                    of.name, constant.name
                ));
            }
        }
    }
    Ok(())
}

/// The outcomes of an experiment with each constant at half and at twice its value.
///
/// # Errors
/// Any other than that the simulated machine cannot do it with such a value, or that its rows are the same then.
fn changed(
    of: &'static Experiment,
    constants: &[&Used],
    setting: &Setting,
    progress: Progress<'_>,
) -> Result<BTreeMap<Changed, Outcome>> {
    let found = Mutex::new(BTreeMap::new());
    let name = |(at, factor): Changed| {
        let constant = constants.get(at).map_or("", |constant| constant.name.as_str());
        format!("{}: {constant} {factor:?}", of.name)
    };
    let run = |(at, factor): Changed| {
        let Some(constant) = constants.get(at) else { return Ok(()) };
        let scaled = Some(Scaled { name: constant.name.clone(), factor });
        let setting = Setting { scaled, ..setting.clone() };
        let outcome = match of.run.run(of.name, &setting, &mut |_| Ok(())) {
            Ok(report) => Ok(report),
            // The name of a case may have a number in it, so that two cases become one.
            Err(Error::Simulation(why) | Error::Row(why)) => Err(why),
            Err(error) => return Err(error),
        };
        found.lock().unwrap_or_else(PoisonError::into_inner).insert((at, factor), outcome);
        Ok(())
    };
    let cases: Vec<Changed> = (0..constants.len())
        .flat_map(|at| [Factor::Half, Factor::Double].map(|factor| (at, factor)))
        .collect();
    support_parallel::each(&cases, &run, &name, progress)?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Whether the constant is a number that no paper gives.
fn is_open(constant: &Used) -> bool {
    constant.origin != "paper" && !constant.value.is_empty()
}

/// Each row, and its number with the constant at half and at twice.
fn of_rows<'a>(
    plain: &'a [Value],
    half: Option<&'a Report>,
    double: Option<&'a Report>,
) -> impl Iterator<Item = (&'a Value, [Option<f64>; 2])> {
    let number = |report: Option<&Report>, row: &Value| {
        let is_same = |other: &&Value| {
            ["case", "policy", "quantity", "unit"].iter().all(|key| other[*key] == row[*key])
        };
        report?.rows.iter().find(is_same)?["measured"].as_f64()
    };
    plain.iter().map(move |row| (row, [number(half, row), number(double, row)]))
}

fn add(
    report: &mut Report,
    of: &'static Experiment,
    constant: &Used,
    row: &Value,
    [half, double]: [Option<f64>; 2],
) -> Result<()> {
    let Some(measured) = row["measured"].as_f64() else { return Ok(()) };
    let changes = |other: f64| (other - measured).abs() > LEAST_CHANGE * measured.abs();
    if ![half, double].into_iter().any(|other| other.is_none_or(changes)) {
        return Ok(());
    }
    report.push(&Row {
        of: of.name,
        case: &row["case"],
        policy: &row["policy"],
        quantity: &row["quantity"],
        unit: &row["unit"],
        constant: &constant.name,
        paper: &row["paper"],
        measured,
        half,
        double,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_that_matters_has_rows_and_one_that_does_not_has_none() {
        let only = vec!["emd-table1".to_owned()];
        let setting = Setting { only, seed: 1, ..Setting::of_test() };
        let report = run(&setting, &mut |_| Ok(())).expect("emd-table1 runs");
        let of = |name: &str| report.rows.iter().filter(|row| row["constant"] == name).count();
        assert!(of("emd.table1-target") > 0, "{:?}", report.rows);
        assert_eq!(of("emd.accesses"), 0);
        let is_changed = |name: &str| report.constants.iter().any(|used| used.name == name);
        assert!(is_changed("emd.accesses") && !is_changed("emd.memory"));
    }

    #[test]
    fn what_changes_little_has_no_row() {
        let constant = Used {
            name: "a".into(),
            value: "1".into(),
            origin: "assumed".into(),
            source: String::new(),
        };
        let row = serde_json::json!({"case": "c", "measured": 2.0});
        let count = |numbers: [Option<f64>; 2]| {
            let mut report = Report::default();
            add(&mut report, &EXPERIMENT, &constant, &row, numbers).unwrap();
            report.rows.len()
        };
        assert_eq!(count([Some(2.01), Some(1.99)]), 0);
        assert_eq!(count([Some(2.0), Some(2.1)]), 1);
        assert_eq!(count([None, Some(2.0)]), 1);
    }
}
