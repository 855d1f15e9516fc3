//! Numbers that Superpage itself is to reach, each with what was measured: of the real machine, from rows.

use super::finding::Number;
use super::{Result, Source, front};
use serde::Deserialize;

/// A number to reach.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    /// The quantity.
    what: String,
    /// The bound, in words.
    wanted: String,
    /// The numbers that are to be within their bounds.
    numbers: Vec<Number>,
}

/// The targets in the text of a file.
pub(super) fn parse(text: &str) -> std::result::Result<Vec<Target>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        target: Vec<Target>,
    }
    toml::from_str(text).map(|file: File| file.target).map_err(|error| error.to_string())
}

/// A section with all targets.
///
/// # Errors
/// [`super::Error::Finding`]: rows that a target rests on are not there.
pub(super) fn section(source: &Source) -> Result<String> {
    let head = "\n## The numbers to reach\n\n| what | to reach | measured | |\n|---|---|---|---|\n";
    let lines: Vec<String> =
        source.targets.iter().map(|target| line(target, source)).collect::<Result<_>>()?;
    Ok(format!("{head}{}", lines.concat()))
}

fn line(target: &Target, source: &Source) -> Result<String> {
    let Target { what, wanted, numbers } = target;
    let name = format!("targets.toml, {what}");
    let (found, said) = front::measured(numbers, &name, ("live", ""), source)?;
    let is_within = found.iter().all(|(number, pair)| number.is_within(*pair));
    let reached = if is_within { "reached" } else { "not reached" };
    Ok(format!("| {what} | {wanted} | {said} | {reached} |\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::kept::{Head, Kept};
    use serde_json::json;
    use std::collections::BTreeMap;

    fn said(measured: f64) -> String {
        let head = json!({"experiment": "pause", "machine": "live", "command": "", "tree": null, "date": "",
                          "host": "", "notes": [], "pictures": []});
        let head: Head = serde_json::from_value(head).unwrap();
        let rows = vec![json!({"policy": "default", "longest_ms": measured})];
        let text = "[[target]]\nwhat = \"pause\"\nwanted = \"under 5 ms\"\nnumbers = [{ rows = \"pause\", of = \
                    { policy = \"default\" }, key = \"longest_ms\", bound = { most = 5 }, unit = \"ms\" }]\n";
        let source = Source {
            runs: vec![Kept { head, rows }],
            targets: parse(text).unwrap(),
            ranges: crate::report::constants::Ranges::default(),
            findings: Vec::new(),
            front: String::new(),
            remarks: BTreeMap::new(),
        };
        section(&source).unwrap()
    }

    #[test]
    fn a_target_is_reached_within_its_bound() {
        assert!(said(4.0).ends_with("| pause | under 5 ms | [4 ms](own.md#pause) | reached |\n"));
        assert!(said(6.0).ends_with("| [6 ms](own.md#pause) | not reached |\n"));
    }
}
