//! A page for each paper: its experiments in their order, with their tables, notes and pictures.

use super::kept::{Kept, PICTURES};
use super::{Result, Source, table, target};
use crate::experiment::{self, Experiment, On};
use std::path::PathBuf;

/// The first line of every page.
pub(super) const MADE: &str =
    "<!-- `superpage lab report` makes this page from results/; change nothing here. -->\n";
/// The page of what belongs to no paper.
const OWN: &str = "own";

/// A page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// The name of its file, and what the names of its experiments begin with.
    pub(super) name: &'static str,
    /// The paper.
    pub(super) title: &'static str,
}

impl Page {
    /// All pages, in the order of the papers.
    pub(super) const ALL: [Self; 6] = [
        Self { name: "emd", title: "EMD (Gangar, Panwar, Gopinath, ISMM 2025)" },
        Self { name: "quicksilver", title: "Quicksilver" },
        Self { name: "trident", title: "Trident" },
        Self { name: "xheap", title: "xHeap" },
        Self { name: "graph", title: "Selective huge pages for graphs" },
        Self { name: OWN, title: "Superpage itself" },
    ];

    /// The path from the documents' directory.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("results/{}.md", self.name))
    }

    /// The name of the page that has the experiment `name`.
    pub(super) fn of(name: &str) -> &'static str {
        let begins = |page: &&Self| name.split('-').next() == Some(page.name);
        Self::ALL.iter().find(begins).map_or(OWN, |page| page.name)
    }

    /// Whether the page has a section of the experiment `name`. Those that `all` leaves out have none.
    pub(super) fn has(&self, name: &str) -> bool {
        let is_of_all = |one: &Experiment| one.name == name && one.is_of_all();
        Self::of(name) == self.name && experiment::all().any(is_of_all)
    }

    /// The text of the page.
    ///
    /// # Errors
    /// As [`target::section`].
    pub(super) fn text(&self, source: &Source) -> Result<String> {
        let mut text = format!("{MADE}# {}\n", self.title);
        if let Some(words) = source.remarks.get(self.name) {
            text.push_str(&format!("\n{}\n", words.trim()));
        }
        if self.name == OWN {
            text.push_str(&target::section(source)?);
        }
        let mut names = Vec::new();
        for experiment in experiment::all().filter(|one| self.has(one.name)) {
            if !names.contains(&experiment.name) {
                names.push(experiment.name);
                text.push_str(&section(experiment.name, source));
            }
        }
        Ok(text)
    }
}

/// An experiment on both machines.
fn section(name: &str, source: &Source) -> String {
    let mut text = format!("\n## {name}\n");
    for on in [On::Live, On::Sim] {
        let Some(experiment) = experiment::find(name, Some(on)) else { continue };
        let runs = source
            .runs
            .iter()
            .filter(|run| run.head.experiment == name && run.head.machine == on.name());
        runs.for_each(|run| text.push_str(&of_run(experiment, run, source)));
    }
    if let Some(words) = source.remarks.get(name) {
        text.push_str(&format!("\n{}\n", words.trim()));
    }
    text
}

/// The tables, notes and pictures of a run.
fn of_run(experiment: &Experiment, run: &Kept, source: &Source) -> String {
    let head = &run.head;
    let place = match experiment.on {
        On::Live => format!("On the real machine** ({})", head.host),
        On::Sim => "On the simulated machine**".to_owned(),
    };
    let build = match &head.tree {
        Some(tree) => format!("tree {tree}"),
        None => "its tree was not noted".to_owned(),
    };
    let (command, place_in, summary) = (&head.command, experiment.source, experiment.summary);
    let tables = table::tables(experiment, &source.ranges.put(&run.rows));
    let notes: String = head.notes.iter().map(|note| format!("\n{note}\n")).collect();
    let picture = |file: &String| format!("\n![{file}](../../results/rows/{PICTURES}/{file})\n");
    let pictures: String = head.pictures.iter().map(picture).collect();
    format!(
        "\n**{place}: {summary} ({place_in}).\n`{command}`, {}, {build}.\n\n{tables}{notes}{pictures}",
        head.date
    )
}

#[cfg(test)]
mod tests {
    use super::Page;

    #[test]
    fn each_experiment_has_a_page() {
        assert_eq!(Page::of("emd-table1"), "emd");
        assert_eq!(Page::of("graph-fig1"), "graph");
        assert_eq!(Page::of("pareto"), "own");
    }
}
