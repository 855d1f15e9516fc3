//! How far simulated numbers are from the papers', by what they rest on, and how many rankings of policies are the papers'.

use super::kept::Kept;
use crate::experiment::SENSITIVITY;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Numbers that differ by less are taken as equal in rankings.
pub(super) const TIE: f64 = 0.02;

/// The words in a quantity's name where the paper's number is a bound: such a number has no error.
const BOUNDS: [&str; 4] = ["less than", "more than", "at least", "at most"];

/// The number in the middle of sorted ones, or the mean of both.
pub(super) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
    }
}

/// A table of both.
pub(super) fn table(runs: &[Kept]) -> String {
    let rows = simulated(runs);
    let mut lines = String::from(
        "| basis | median distance from the paper's number | numbers |\n|---|---:|---:|\n",
    );
    for (basis, mut errors) in by_basis(&rows) {
        errors.sort_by(f64::total_cmp);
        let (error, count) = (median(&errors) * 100.0, errors.len());
        lines.push_str(&format!("| {basis} | {error:.1} % | {count} |\n"));
    }
    let (mut same, mut tied, mut reversed) = (0, 0, 0);
    for ranking in rankings(&rows) {
        match ranking {
            Ordering::Greater => same += 1,
            Ordering::Equal => tied += 1,
            Ordering::Less => reversed += 1,
        }
    }
    format!(
        "{lines}\nOf two policies that the papers' numbers of one case put in an order (they differ by more than {} %), the \
         simulated numbers give {same} times the same order, {tied} times none, and {reversed} times the other; fitted numbers are left out.\n",
        TIE * 100.0
    )
}

/// The simulated numbers, each once: those of `sensitivity` are the same ones again.
fn simulated(runs: &[Kept]) -> Vec<&Value> {
    let its = |run: &&Kept| run.head.machine == "sim" && run.head.experiment != SENSITIVITY;
    runs.iter().filter(its).flat_map(|run| &run.rows).filter(|row| !is_bound(row)).collect()
}

fn is_bound(row: &Value) -> bool {
    let name = row["quantity"].as_str().unwrap_or_default();
    name.contains("(paper: ") && BOUNDS.iter().any(|bound| name.contains(bound))
}

/// Whether the number is the one that others of its case are over, which is 1 in every paper.
fn is_reference(row: &Value) -> bool {
    row["basis"] == "reference"
}

/// The errors of numbers with one of the paper's, as shares of that, by what they rest on.
fn by_basis<'a>(rows: &[&'a Value]) -> BTreeMap<&'a str, Vec<f64>> {
    let mut errors: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !is_reference(row)) {
        let found = row["basis"].as_str().zip(row["paper"].as_f64()).zip(row["measured"].as_f64());
        if let Some(((basis, paper), measured)) = found.filter(|((_, paper), _)| *paper != 0.0) {
            errors.entry(basis).or_default().push(((measured - paper) / paper).abs());
        }
    }
    errors
}

/// Of each two policies of a case that the paper puts in an order: whether ours is the same (greater), none, or the other. Fitted
/// numbers tell nothing of that.
fn rankings(rows: &[&Value]) -> Vec<Ordering> {
    let names =
        |row: &Value| ["experiment", "case", "quantity", "unit"].map(|key| row[key].to_string());
    let mut cases: BTreeMap<[String; 4], Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["basis"] != "fitted") {
        if let Some(pair) = row["paper"].as_f64().zip(row["measured"].as_f64()) {
            cases.entry(names(row)).or_default().push(pair);
        }
    }
    let of_case = |pairs: &Vec<(f64, f64)>| {
        let mut found = Vec::new();
        for (at, one) in pairs.iter().enumerate() {
            for other in &pairs[at + 1..] {
                let paper = order(one.0, other.0);
                let ours = order(one.1, other.1);
                if paper != Ordering::Equal {
                    found.push(if ours == paper {
                        Ordering::Greater
                    } else if ours == Ordering::Equal {
                        ours
                    } else {
                        Ordering::Less
                    });
                }
            }
        }
        found
    };
    cases.values().flat_map(of_case).collect()
}

/// The order of two numbers; none where they are close.
pub(super) fn order(one: f64, other: f64) -> Ordering {
    let is_tie = (one - other).abs() <= TIE * one.abs().max(other.abs());
    if is_tie { Ordering::Equal } else { one.total_cmp(&other) }
}

#[cfg(test)]
mod tests {
    use super::super::kept::{Head, Kept};
    use super::{by_basis, is_bound, median, rankings, simulated};
    use serde_json::{Value, json};
    use std::cmp::Ordering;

    fn row(policy: &str, paper: f64, measured: f64) -> Value {
        json!({"experiment": "a", "case": "b", "quantity": "c", "unit": "d", "policy": policy, "basis": "predicted",
               "paper": paper, "measured": measured})
    }

    #[test]
    fn a_bound_of_the_papers_and_a_number_over_itself_have_no_error() {
        assert!(is_bound(&json!({"quantity": "by superpages early (paper: more than)"})));
        assert!(!is_bound(&json!({"quantity": "compaction gains (paper: derived)"})));
        let mut reference = row("a", 1.0, 1.0);
        assert_eq!(by_basis(&[&reference]).len(), 1);
        reference["basis"] = "reference".into();
        assert!(by_basis(&[&reference]).is_empty());
    }

    #[test]
    fn numbers_of_sensitivity_are_not_counted_again() {
        let kept = |experiment: &str| {
            let head = json!({"experiment": experiment, "machine": "sim", "command": "", "tree": null, "date": "",
                              "host": "", "notes": [], "pictures": []});
            let head: Head = serde_json::from_value(head).unwrap();
            Kept { head, rows: vec![row("a", 1.0, 1.1)] }
        };
        assert_eq!(simulated(&[kept("a"), kept("sensitivity")]).len(), 1);
    }

    #[test]
    fn fitted_numbers_have_no_ranking() {
        let mut fitted = row("b", 2.0, 2.0);
        fitted["basis"] = "fitted".into();
        assert!(rankings(&[&row("a", 1.0, 1.1), &fitted]).is_empty());
    }

    #[test]
    fn errors_are_shares_of_the_papers_numbers_and_close_ones_tie() {
        let rows = [row("a", 1.0, 1.1), row("b", 2.0, 1.0), row("c", 2.01, 1.105)];
        let rows: Vec<&Value> = rows.iter().collect();
        let errors = &by_basis(&rows)["predicted"];
        assert!((median(errors) - 0.5).abs() < 1e-9 && (errors[0] - 0.1).abs() < 1e-9);
        // b before a is reversed, c and a tie, b and c are one in the paper.
        assert_eq!(rankings(&rows), [Ordering::Less, Ordering::Equal]);
        assert!((median(&[1.0, 2.0]) - 1.5).abs() < 1e-9);
    }
}
