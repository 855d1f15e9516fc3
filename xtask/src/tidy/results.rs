//! Every experiment has the command that makes its table in the results.

use super::tree::{Tree, Violation};
use std::collections::BTreeSet;

const RESULTS: &str = "docs/results.md";
const EXPERIMENTS: &str = "crates/lab/src/experiment/";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    // Results come with the first experiment that has run.
    let Some(results) = tree.text(RESULTS) else {
        return Vec::new();
    };
    let commands: BTreeSet<&str> = results.split("lab run ").skip(1).map(first_word).collect();
    tree.paths()
        .filter_map(|path| Some((path, experiment(path)?)))
        .filter(|(_, name)| !commands.contains(name.as_str()))
        .map(|(path, name)| {
            let message = format!(
                "no `lab run {name}` in {RESULTS}, add that command and the table it makes"
            );
            Violation::new(path, 1, message)
        })
        .collect()
}

/// The beginning of a text, up to the first character that is in no name of an experiment.
fn first_word(text: &str) -> &str {
    let in_a_name = |c: char| c.is_alphanumeric() || c == '-';
    text.split(|c| !in_a_name(c)).next().unwrap_or_default()
}

/// The name of the experiment in the file at `path`: of `live/emd_table1.rs`, `emd-table1`.
fn experiment(path: &str) -> Option<String> {
    let name = path.strip_prefix(EXPERIMENTS)?.strip_suffix(".rs")?;
    let (_, name) = name.split_once('/')?;
    let is_one = name != "mod" && !name.starts_with("support");
    is_one.then(|| name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    const FILES: [(&str, &str); 4] = [
        ("crates/lab/src/experiment/mod.rs", ""),
        ("crates/lab/src/experiment/live/support_table.rs", ""),
        ("crates/lab/src/experiment/live/emd_fig1.rs", ""),
        ("crates/lab/src/experiment/sim/emd_fig10.rs", ""),
    ];

    fn say_with(results: &str) -> Vec<String> {
        let mut files = FILES.to_vec();
        files.push(("docs/results.md", results));
        say(check, &files)
    }

    #[test]
    fn nothing_is_asked_before_there_are_results() {
        assert!(say(check, &FILES).is_empty());
    }

    #[test]
    fn a_missing_experiment_is_named() {
        let both = "`superpage lab run emd-fig1`, and `superpage lab run emd-fig10 --rounds 3`\n";
        assert!(say_with(both).is_empty());
        // A heading, or a word about it, is no command.
        assert_eq!(
            say_with("## emd-fig1: as emd-fig1\n`superpage lab run emd-fig10`\n"),
            ["crates/lab/src/experiment/live/emd_fig1.rs:1: no `lab run emd-fig1` in \
              docs/results.md, add that command and the table it makes"]
        );
    }
}
