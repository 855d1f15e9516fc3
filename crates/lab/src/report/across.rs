//! Numbers of the simulated machine as tables for a document: one for each quantity, cases against
//! policies, the paper's number in brackets behind each.

use super::finding::{basis, mark};
use serde_json::Value;
use std::collections::BTreeMap;

/// Numbers by case and policy.
struct Table<'a> {
    quantity: &'a str,
    unit: &'a str,
    /// In the order in which they come.
    cases: Vec<&'a str>,
    policies: Vec<&'a str>,
    numbers: BTreeMap<(&'a str, &'a str), &'a Value>,
}

/// Tables of all quantities, if each row is one number.
pub(super) fn tables(rows: &[Value]) -> Option<String> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    for row in rows {
        let text = |key: &str| row[key].as_str();
        let (case, policy) = (text("case")?, text("policy")?);
        let (quantity, unit) = (text("quantity")?, text("unit")?);
        let found = tables.iter().position(|t| t.quantity == quantity && t.unit == unit);
        let at = found.unwrap_or_else(|| {
            let (cases, policies, numbers) = (Vec::new(), Vec::new(), BTreeMap::new());
            tables.push(Table { quantity, unit, cases, policies, numbers });
            tables.len() - 1
        });
        tables.get_mut(at)?.add(case, policy, row);
    }
    Some(tables.iter().map(Table::markdown).collect::<Vec<_>>().join("\n"))
}

impl<'a> Table<'a> {
    fn add(&mut self, case: &'a str, policy: &'a str, row: &'a Value) {
        for (names, name) in [(&mut self.cases, case), (&mut self.policies, policy)] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        self.numbers.insert((case, policy), row);
    }

    /// What all numbers rest on, if that is the same.
    fn basis(&self) -> Option<&str> {
        let mut bases = self.numbers.values().map(|row| row["basis"].as_str());
        let first = bases.next()??;
        bases.all(|basis| basis == Some(first)).then_some(first)
    }

    /// The longer of cases and policies goes down.
    fn markdown(&self) -> String {
        let basis = self.basis();
        let cell = |case, policy| {
            let row = self.numbers.get(&(case, policy));
            let mark = |row| if basis.is_none() { mark_of(row) } else { "" };
            row.map_or(String::new(), |row| number(row, mark(row)))
        };
        let line = |head: &str, cells: Vec<String>| format!("| {head} | {} |\n", cells.join(" | "));
        let (corner, down, across) = if self.policies.len() > self.cases.len() {
            ("policy", &self.policies, &self.cases)
        } else {
            ("case", &self.cases, &self.policies)
        };
        let rows = down.iter().map(|name| {
            let cells = across.iter().map(|other| {
                if corner == "policy" { cell(*other, *name) } else { cell(*name, *other) }
            });
            line(name, cells.collect())
        });
        let basis = basis.map_or(String::new(), |basis| format!(" ({basis})"));
        let heads = line(corner, across.iter().map(|name| (*name).to_owned()).collect());
        let rule = format!("|---|{}\n", "---:|".repeat(across.len()));
        let (quantity, unit) = (self.quantity, self.unit);
        format!("**{quantity}**, {unit}{basis}\n\n{heads}{rule}{}", rows.collect::<String>())
    }
}

/// A letter for what a number rests on; none if it is predicted.
fn mark_of(row: &Value) -> &'static str {
    basis(row).map_or("", mark)
}

/// The simulated number, its mark, its range with other constants (open where there is no such number with one of them), and the
/// paper's number.
fn number(row: &Value, mark: &str) -> String {
    let paper = match &row["paper"] {
        Value::Null => String::new(),
        paper => format!(" ({paper})"),
    };
    let range = match (&row["least"], &row["most"]) {
        (Value::Null, _) => String::new(),
        (least, most) => {
            let open = if row["open"] == true { " …" } else { "" };
            format!(" [{least} to {most}{open}]")
        }
    };
    format!("{}{mark}{range}{paper}", row["measured"])
}

#[cfg(test)]
mod tests {
    use super::tables;
    use serde_json::{Value, json};

    fn row(case: &str, policy: &str, paper: Value, measured: f64, basis: &str) -> Value {
        json!({
            "case": case, "policy": policy, "quantity": "memory", "unit": "GB",
            "paper": paper, "measured": measured, "basis": basis,
        })
    }

    #[test]
    fn a_number_has_its_range_and_says_where_that_is_open() {
        let mut row = row("Del-70", "linux", json!(19.8), 21.25, "chosen");
        (row["least"], row["most"], row["open"]) = (json!(10.5), json!(21.25), json!(true));
        assert_eq!(super::number(&row, " c"), "21.25 c [10.5 to 21.25 …] (19.8)");
        row["open"] = json!(false);
        assert_eq!(super::number(&row, ""), "21.25 [10.5 to 21.25] (19.8)");
    }

    #[test]
    fn the_longer_side_goes_down_and_the_paper_stands_in_brackets() {
        let rows = [
            row("Del-70", "linux", json!(19.8), 21.25, "predicted"),
            row("Del-70", "ingens", Value::Null, 12.5, "predicted"),
            row("Range-XL", "linux", json!(30.7), 25.5, "fitted"),
            row("Cold", "linux", Value::Null, 16.0, "assumed"),
        ];
        assert_eq!(
            tables(&rows).unwrap(),
            "**memory**, GB\n\n\
             | case | linux | ingens |\n|---|---:|---:|\n\
             | Del-70 | 21.25 (19.8) | 12.5 |\n\
             | Range-XL | 25.5 f (30.7) |  |\n\
             | Cold | 16.0 a |  |\n"
        );
        assert_eq!(
            tables(&rows[..2]).unwrap(),
            "**memory**, GB (predicted)\n\n\
             | policy | Del-70 |\n|---|---:|\n| linux | 21.25 (19.8) |\n| ingens | 12.5 |\n"
        );
        assert!(tables(&[json!({"policy": "linux", "allocation": "at once"})]).is_none());
    }
}
