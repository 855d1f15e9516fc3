//! `sensitivity`: what simulated numbers would be if one constant that no paper gives were half or twice what it
//! is. Not for what everybody runs: each experiment runs once more for each such constant and factor.

use super::super::SENSITIVITY;
use super::{Error, Experiment, Factor, On, Progress, Report, Result, Scaled, Setting, Used};
use serde::Serialize;
use serde_json::Value;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: SENSITIVITY,
    source: "no paper",
    summary: "Simulated numbers with one assumed constant at half and at twice its value",
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
    run,
};

/// A number that changes by less than this part of itself has no row.
const LEAST_CHANGE: f64 = 0.01; // tidy: allow(what rows are left out)

/// One number and one constant. `half` and `double` are `None` where the experiment cannot run so, or has no such row then.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    experiment: &'static str,
    machine: &'static str,
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
        "Constants of profiles and those of the papers stay as they are. Numbers that change by less than {:.0} % have no row.",
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
    let plain = (of.run)(setting, progress)?;
    for constant in plain.constants.iter().filter(|constant| is_open(constant)) {
        let mut changed = |factor| {
            let scaled = Some(Scaled { name: constant.name.clone(), factor });
            progress(&format!("{}: {} {factor:?}", of.name, constant.name))?;
            match (of.run)(&Setting { scaled, ..setting.clone() }, progress) {
                Ok(report) => Ok(Some(report)),
                Err(Error::Interrupted) => Err(Error::Interrupted),
                Err(_) => Ok(None),
            }
        };
        let (half, double) = (changed(Factor::Half)?, changed(Factor::Double)?);
        for (at, [half, double]) in of_rows(&plain.rows, half.as_ref(), double.as_ref()) {
            add(report, of, constant, at, [half, double])?;
        }
        let failed = [(&half, "half"), (&double, "twice")];
        for (_, factor) in failed.into_iter().filter(|(report, _)| report.is_none()) {
            report.notes.push(format!(
                "{} does not run with {} at {factor} its value.",
                of.name, constant.name
            ));
        }
    }
    Ok(())
}

/// Whether no paper gives it and it is a number.
fn is_open(constant: &Used) -> bool {
    constant.origin != "paper" && !constant.value.is_empty()
}

/// Each row, and what it is with the constant at half and at twice.
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
    if ![half, double].into_iter().flatten().any(changes) {
        return Ok(());
    }
    report.push(&Row {
        experiment: EXPERIMENT.name,
        machine: On::Sim.name(),
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
        assert_eq!(count([None, Some(2.0)]), 0);
    }
}
