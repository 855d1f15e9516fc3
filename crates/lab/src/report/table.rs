//! Rows as tables of a document, and a value of a row as people read it.

use super::across;
use crate::experiment::Experiment;
use serde_json::Value;
use superpage_units::Bytes;

/// The tables of these rows: numbers of the simulated machine by case and policy, all others as the experiment's columns say.
#[must_use]
pub fn tables(experiment: &Experiment, rows: &[Value]) -> String {
    across::tables(rows).unwrap_or_else(|| by_columns(experiment, rows))
}

/// The rows as they are on the screen.
fn by_columns(experiment: &Experiment, rows: &[Value]) -> String {
    let line_of = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heads = experiment.columns.iter().map(|(_, head)| (*head).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(experiment.columns.len()));
    let line = |row: &Value| {
        line_of(experiment.columns.iter().map(|(key, _)| cell(key, &row[*key])).collect())
    };
    format!("{}{rule}{}", line_of(heads), rows.iter().map(line).collect::<String>())
}

/// A value as people read it; the key says what kind of number it is.
#[must_use]
pub fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().map(|item| cell(key, item)).collect::<Vec<_>>().join(" ")
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if key.ends_with("_bytes") || key.starts_with("bytes_") {
                let sign = if number < 0.0 { "-" } else { "" };
                format!("{sign}{}", Bytes(1).scaled(number.abs()))
            } else if is_share(key) {
                format!("{:.1} %", number * 100.0)
            } else {
                format!("{number}")
            }
        }
        other => other.to_string(),
    }
}

fn is_share(key: &str) -> bool {
    key == "fraction"
        || key.contains("bloat") && !key.ends_with("pages")
        || key.ends_with("retained")
        || key == "wrong_bucket"
}
