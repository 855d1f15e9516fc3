//! A picture for each quantity of a simulated table or figure, made from its rows: a group of bars
//! for each case, a bar for each policy, the paper's number marked where it has one.

use super::Experiment;
use crate::experiment::{Content, Picture};
use crate::picture::{Row, Scaling};
use serde_json::Value;

/// Units that are shares of a whole, or nearly so: a logarithm would make them look alike.
const SHARES: [&str; 8] =
    ["share", "percent", "%", "score", "ratio", "of accesses", "of memory", "of property array"];

/// The pictures of an experiment with these rows; none if its rows hold no numbers. Quantities of the
/// same name are told apart by their units.
pub(in crate::experiment) fn pictures(experiment: &Experiment, rows: &[Value]) -> Vec<Picture> {
    let mut quantities: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let quantity = (text(row, "quantity"), text(row, "unit"));
        if !quantity.0.is_empty() && !quantities.contains(&quantity) {
            quantities.push(quantity);
        }
    }
    let of = |(name, unit): &(&str, &str)| {
        let is_alike = quantities.iter().filter(|other| other.0 == *name).count() > 1;
        let long = if is_alike { format!("{name} {unit}") } else { (*name).to_owned() };
        let is_its = |row: &&Value| text(row, "quantity") == *name && text(row, "unit") == *unit;
        let rows: Vec<&Value> = rows.iter().filter(is_its).collect();
        let suffix =
            if quantities.len() == 1 { String::new() } else { format!("-{}", slug(&long)) };
        Picture {
            file: format!("{}-sim{suffix}.svg", experiment.name),
            title: title(experiment, &long, &rows),
            content: Content::Rows {
                found: "simulated",
                label: format!("{name} ({})", if *unit == "us" { "µs" } else { unit }),
                groups: groups(&rows),
                scaling: if SHARES.contains(unit) { Scaling::Linear } else { Scaling::ByRange },
            },
        }
    };
    quantities.iter().map(of).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// The policy of all rows, if there is only one.
fn only_policy<'a>(rows: &[&'a Value]) -> Option<&'a str> {
    let first = rows.first().map(|row| text(row, "policy"))?;
    rows.iter().all(|row| text(row, "policy") == first).then_some(first)
}

fn title(experiment: &Experiment, quantity: &str, rows: &[&Value]) -> String {
    match only_policy(rows) {
        Some(policy) => format!("{}: {quantity}, {policy}", experiment.source),
        None => format!("{}: {quantity}", experiment.source),
    }
}

/// A group for each case, named after it; with only one policy, one group of all cases.
fn groups(rows: &[&Value]) -> Vec<(String, Vec<Row>)> {
    let bar = |row: &Value, name: &str| Row {
        name: name.to_owned(),
        value: row["measured"].as_f64().unwrap_or(f64::NAN),
        mark: row["paper"].as_f64(),
    };
    if only_policy(rows).is_some() {
        let bars = rows.iter().map(|row| bar(row, text(row, "case"))).collect();
        return vec![(String::new(), bars)];
    }
    let mut groups: Vec<(String, Vec<Row>)> = Vec::new();
    for row in rows {
        let (case, bar) = (text(row, "case"), bar(row, text(row, "policy")));
        match groups.iter_mut().find(|(name, _)| name == case) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((case.to_owned(), vec![bar])),
        }
    }
    groups
}

/// A name as part of a file's.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let parts: String = name.chars().map(plain).collect();
    parts.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::super::quicksilver_table4::EXPERIMENT;
    use super::*;
    use serde_json::json;

    fn row(case: &str, policy: &str, quantity: &str, paper: Option<f64>) -> Value {
        json!({"case": case, "policy": policy, "quantity": quantity, "unit": "us",
               "paper": paper, "measured": 2.5})
    }

    #[test]
    fn a_picture_for_each_quantity_and_a_group_for_each_case() {
        let rows = [
            row("Redis", "linux", "fault, 99 %", Some(3.0)),
            row("Redis", "trident", "fault, 99 %", None),
            row("GUPS", "linux", "fault, 99 %", None),
            row("GUPS", "trident", "fault, longest", None),
            row("Redis", "trident", "fault, longest", None),
        ];
        let drawn = pictures(&EXPERIMENT, &rows);
        let files: Vec<&str> = drawn.iter().map(|picture| &*picture.file).collect();
        let name = EXPERIMENT.name;
        let expected = ["99", "longest"].map(|what| format!("{name}-sim-fault-{what}.svg"));
        assert_eq!(files, expected);
        let Content::Rows { label, groups, scaling, .. } = &drawn[0].content else { panic!() };
        assert_eq!((&**label, *scaling), ("fault, 99 % (µs)", Scaling::ByRange));
        let cases: Vec<(&str, usize)> =
            groups.iter().map(|(case, bars)| (&**case, bars.len())).collect();
        assert_eq!(cases, [("Redis", 2), ("GUPS", 1)]);
        assert_eq!(groups[0].1[0].mark, Some(3.0));
        // One policy: its cases are the rows.
        let Content::Rows { groups, .. } = &drawn[1].content else { panic!() };
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].1.iter().map(|bar| &*bar.name).collect::<Vec<_>>(), ["GUPS", "Redis"]);
        assert!(drawn[1].title.ends_with("fault, longest, trident"), "{}", drawn[1].title);
    }

    #[test]
    fn quantities_of_one_name_are_told_apart_by_their_units() {
        let row = |name: &str, unit: &str| {
            json!({"case": "mean", "policy": "linux", "quantity": name, "unit": unit,
                   "paper": null, "measured": 0.5})
        };
        let rows = [
            row("huge pages", "of memory"),
            row("speedup", "ratio"),
            row("huge pages", "of property array"),
        ];
        let drawn = pictures(&EXPERIMENT, &rows);
        let files: std::collections::BTreeSet<&str> =
            drawn.iter().map(|picture| &*picture.file).collect();
        let whats = ["huge-pages-of-memory", "huge-pages-of-property-array", "speedup"];
        let expected = whats.map(|what| format!("{}-sim-{what}.svg", EXPERIMENT.name));
        assert_eq!(files.len(), drawn.len());
        assert!(files.into_iter().eq(expected.iter()), "{expected:?}");
        assert!(drawn[0].title.contains(": huge pages of memory"), "{}", drawn[0].title);
        assert!(drawn[1].title.contains(": speedup, linux"), "{}", drawn[1].title);
        let is_linear = |picture: &Picture| {
            matches!(&picture.content, Content::Rows { scaling: Scaling::Linear, .. })
        };
        assert!(drawn.iter().all(is_linear), "shares are drawn in proportion");
    }

    #[test]
    fn what_has_no_numbers_has_no_picture() {
        assert!(pictures(&EXPERIMENT, &[json!({"policy": "linux"})]).is_empty());
        let one = pictures(&EXPERIMENT, &[row("a", "b", "c", None)]);
        assert_eq!(one[0].file, format!("{}-sim.svg", EXPERIMENT.name));
    }
}
