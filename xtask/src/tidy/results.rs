//! Every experiment has rows that are kept.

use super::tree::{Tree, Violation};

const EXPERIMENTS: &str = "crates/lab/src/experiment/";
const ROWS: &str = "results/rows/";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let experiments = tree
        .texts(|path| machine(path).is_some())
        .flat_map(|(path, text)| names(text).map(move |name| (path, name, machine(path))));
    let without = experiments.filter_map(|(path, name, machine)| {
        let machine = machine?;
        let stem = format!("{name}-{machine}");
        let rows = tree.paths().find(|path| is_of(path, &stem));
        let message = format!(
            "no {ROWS}{stem}.jsonl, run `superpage lab run {name} --on {machine} --keep {ROWS}`"
        );
        rows.is_none().then(|| Violation::new(path, 1, message))
    });
    without.collect()
}

/// Whether the file has rows of the experiment and machine that `stem` names, or of a part of it.
fn is_of(path: &str, stem: &str) -> bool {
    let name = path.strip_prefix(ROWS).and_then(|name| name.strip_suffix(".jsonl"));
    name.and_then(|name| name.strip_prefix(stem))
        .is_some_and(|part| part.is_empty() || part.starts_with('-'))
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
        assert!(say(check, &[SIM, ("results/rows/emd-fig10-sim.jsonl", "")]).is_empty());
        // Parts of an experiment are rows too; those of another one whose name begins alike are not.
        assert!(say(check, &[LIVE, ("results/rows/emd-fig1-live-redis.jsonl", "")]).is_empty());
        assert_eq!(say(check, &[LIVE, ("results/rows/emd-fig10-live.jsonl", "")]).len(), 1);
    }
}
