//! Every experiment has rows that are kept, or a section of before rows were; and no experiment has both.

use super::tree::{Tree, Violation};

const EXPERIMENTS: &str = "crates/lab/src/experiment/";
const ROWS: &str = "results/rows/";
const BEFORE: &str = "results/before-rows/";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let experiments = tree
        .texts(|path| machine(path).is_some())
        .flat_map(|(path, text)| names(text).map(move |name| (path, name, machine(path))));
    let without = experiments.filter_map(
        |(path, name, machine)| {
            let machine = machine?;
            let stem = format!("{name}-{machine}");
            let rows = tree.paths().find(|path| is_of(path, &stem));
            let before = tree.paths().find(|path| machine == "live" && is_before(path, name));
            let (at, message) = match (rows, before) {
                (None, None) => (
                    path,
                    format!("no {ROWS}{stem}.jsonl, run `superpage lab run {name} --on {machine} --keep {ROWS}`"),
                ),
                (Some(rows), Some(before)) if is_all(rows, &stem) => {
                    (before, format!("{rows} has its rows now, remove this file"))
                }
                _ => return None,
            };
            Some(Violation::new(at, 1, message))
        },
    );
    without.collect()
}

/// Whether the file has rows of the experiment and machine that `stem` names, or of a part of it.
fn is_of(path: &str, stem: &str) -> bool {
    let name = path.strip_prefix(ROWS).and_then(|name| name.strip_suffix(".jsonl"));
    name.and_then(|name| name.strip_prefix(stem))
        .is_some_and(|part| part.is_empty() || part.starts_with('-'))
}

/// Whether the file has all rows of the experiment.
fn is_all(path: &str, stem: &str) -> bool {
    path == format!("{ROWS}{stem}.jsonl")
}

fn is_before(path: &str, name: &str) -> bool {
    let file = path.strip_prefix(BEFORE).and_then(|rest| rest.split_once('/'));
    file.is_some_and(|(_, file)| file.strip_suffix(".md") == Some(name))
}

/// The machine of the experiments that the file at `path` declares, if it is one of theirs.
fn machine(path: &str) -> Option<&str> {
    let (machine, file) = path.strip_prefix(EXPERIMENTS)?.split_once('/')?;
    file.ends_with(".rs").then_some(machine)
}

/// The names of the experiments that a file declares.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(": Experiment = Experiment {").skip(1).filter_map(|declared| {
        let name = declared.trim_start().strip_prefix("name: \"")?;
        name.split_once('"').map(|(name, _)| name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    const LIVE: (&str, &str) = (
        "crates/lab/src/experiment/live/emd.rs",
        "const FIG1: Experiment = Experiment {\n    name: \"emd-fig1\",\n};\n",
    );
    const SIM: (&str, &str) = (
        "crates/lab/src/experiment/sim/emd.rs",
        "const FIG10: Experiment = Experiment {\n    name: \"emd-fig10\",\n};\n",
    );
    const SUPPORT: (&str, &str) = ("crates/lab/src/experiment/live/support_table.rs", "");

    #[test]
    fn an_experiment_without_rows_is_named() {
        let said = say(check, &[LIVE, SUPPORT, SIM, ("results/rows/emd-fig10-live.jsonl", "")]);
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with(
            "crates/lab/src/experiment/live/emd.rs:1: no results/rows/emd-fig1-live.jsonl"
        ));
        let rows = ("results/rows/emd-fig10-sim.jsonl", "");
        assert!(
            say(check, &[LIVE, SIM, rows, ("results/before-rows/emd/emd-fig1.md", "")]).is_empty()
        );
        // Parts of an experiment are rows too; those of another one whose name begins alike are not.
        assert!(say(check, &[LIVE, ("results/rows/emd-fig1-live-redis.jsonl", "")]).is_empty());
        assert_eq!(say(check, &[LIVE, ("results/rows/emd-fig10-live.jsonl", "")]).len(), 1);
    }

    #[test]
    fn what_has_all_its_rows_has_no_section_of_before() {
        let before = ("results/before-rows/emd/emd-fig1.md", "");
        assert_eq!(
            say(check, &[LIVE, before, ("results/rows/emd-fig1-live.jsonl", "")]),
            [
                "results/before-rows/emd/emd-fig1.md:1: results/rows/emd-fig1-live.jsonl has its rows now, remove this file"
            ]
        );
        assert!(
            say(check, &[LIVE, before, ("results/rows/emd-fig1-live-redis.jsonl", "")]).is_empty()
        );
    }
}
