//! The registry of experiments: each table or figure of a paper that is reproduced, on this machine ([`live`]), on the simulated
//! one ([`sim`]), or on both. Those of a paper that differ only in what they compare stand in one file.
//!
//! An experiment measures; it prints nothing. It returns rows (JSON objects, the paper's numbers
//! beside the measured ones), notes in plain words, and pictures to draw.

pub mod batch;
mod described;
mod emd_paper;
pub mod live;
pub mod sim;

use crate::picture;
use crate::worker::{self, Launcher};
use crate::workload;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use superpage_kernel::Error as KernelError;
use superpage_sim::machine::OutOfMemory;
use superpage_sim::translation::GeometryError;
use superpage_units::{Bytes, Share};

/// A table or figure that can be reproduced.
pub struct Experiment {
    /// Its name on the command line: paper and table or figure.
    pub name: &'static str,
    /// Where it is in the paper.
    pub source: &'static str,
    /// What it shows, in one sentence.
    pub summary: &'static str,
    /// Where it runs.
    pub on: On,
    /// What to take from each row for the table on the screen: key, column head.
    pub columns: &'static [(&'static str, &'static str)],
    run: &'static dyn Run,
}

/// How an experiment is run: by a function of its own, or as others that differ from it in what they compare.
trait Run: Sync {
    /// Runs the experiment with this name.
    fn run(
        &self,
        experiment: &'static str,
        setting: &Setting,
        progress: Progress<'_>,
    ) -> Result<Report>;
}

impl<F: Fn(&Setting, Progress<'_>) -> Result<Report> + Sync> Run for F {
    fn run(&self, _: &'static str, setting: &Setting, progress: Progress<'_>) -> Result<Report> {
        self(setting, progress)
    }
}

/// The experiment that runs all others many times.
pub const SENSITIVITY: &str = "sensitivity";

/// Where an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// On this machine's kernel.
    Live,
    /// On the simulated machine.
    Sim,
}

impl On {
    /// As it is written in rows and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Sim => "sim",
        }
    }
}

/// All experiments: those of this machine, then those of the simulated one.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    live::ALL.iter().chain(sim::ALL).copied()
}

/// The experiment with this name; without a choice of machine, this machine's if there is one.
#[must_use]
pub fn find(name: &str, on: Option<On>) -> Option<&'static Experiment> {
    all().find(|experiment| experiment.name == name && on.is_none_or(|on| experiment.on == on))
}

impl Experiment {
    /// Runs it; `progress` hears what is being done.
    ///
    /// # Errors
    /// [`Error`].
    pub fn run(&self, setting: &Setting, progress: Progress<'_>) -> Result<Report> {
        let mut report = self.run.run(self.name, setting, progress)?;
        for row in report.rows.iter_mut().filter_map(Value::as_object_mut) {
            row.insert("experiment".to_owned(), self.name.into());
            row.insert("machine".to_owned(), self.on.name().into());
        }
        report.notes.extend(described::notes(self.source, &report.rows));
        if self.on == On::Sim && self.is_of_all() && report.pictures.is_empty() {
            report.pictures = sim::pictures(self, &report.rows);
        }
        Ok(report)
    }

    /// The parts that can be run by themselves; empty where there are none.
    #[must_use]
    pub fn parts(&self) -> Vec<&'static str> {
        match self.on {
            On::Live => live::parts(self.name),
            On::Sim if self.name == SENSITIVITY => sim::parts_of_sensitivity(),
            On::Sim => Vec::new(),
        }
    }

    /// Whether the experiment runs when all are asked for.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        self.name != SENSITIVITY
    }
}

/// How an experiment is to be run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How to start workloads.
    pub launcher: Launcher,
    /// Memory of each workload; `None`: what the paper used or what fits.
    pub size: Option<Bytes>,
    /// How often each variant is timed.
    pub rounds: u32,
    /// Where the record of changed settings is kept.
    pub state: PathBuf,
    /// The seed of the simulated machine.
    pub seed: u64,
    /// A directory on the disk that live experiments swap to, or keep a heap on.
    pub directory: PathBuf,
    /// The memory of a program whose data is larger, as shares of the data.
    pub memory: Vec<Share>,
    /// A constant of simulated experiments that is changed, to see what depends on it.
    pub scaled: Option<sim::Scaled>,
    /// The only parts to run, of an experiment that has some ([`Experiment::parts`]); all of them where it is empty.
    pub only: Vec<String>,
}

#[cfg(test)]
impl Setting {
    /// A setting for tests, of which nothing is started.
    fn of_test() -> Self {
        Self {
            launcher: Launcher { program: "none".into(), leading_args: Vec::new() },
            size: None,
            rounds: 1,
            state: "none".into(),
            seed: 7,
            directory: "none".into(),
            memory: Vec::new(),
            scaled: None,
            only: Vec::new(),
        }
    }
}

/// Hears what is being done, in a few words, and says whether to go on.
pub type Progress<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// What an experiment found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One object per row, without the names of the experiment and of its machine, which [`Experiment::run`] adds.
    pub rows: Vec<Value>,
    /// What else a reader must know, each in a sentence.
    pub notes: Vec<String>,
    /// What to draw.
    pub pictures: Vec<Picture>,
    /// The constants that simulated rows rest on, by name.
    pub constants: Vec<sim::Used>,
}

impl Report {
    fn push<T: Serialize>(&mut self, row: &T) -> Result<()> {
        let value = serde_json::to_value(row).map_err(|error| Error::Row(error.to_string()))?;
        self.rows.push(value);
        Ok(())
    }

    /// Notes a constant, once.
    fn rest_on(&mut self, used: sim::Used) {
        if let Err(at) = self.constants.binary_search(&used) {
            self.constants.insert(at, used);
        }
    }
}

/// A picture, not yet drawn.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The file's name, with `.svg`.
    pub file: String,
    /// Its title.
    pub title: String,
    /// What it shows.
    pub content: Content,
}

/// A line's name, and its points from left to right.
pub type Line = (String, Vec<(f64, f64)>);

/// What a picture shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// Bloat by huge page in address order.
    BloatByAddress(Vec<Option<Share>>),
    /// Groups of bars.
    Bars {
        /// The y axis, with its unit.
        y_label: String,
        /// The groups.
        categories: Vec<String>,
        /// Name and a value for each group.
        series: Vec<(String, Vec<f64>)>,
        /// A line across, such as "no slowdown".
        reference: Option<f64>,
    },
    /// Lines, over time mostly.
    Lines {
        /// The x axis, with its unit.
        x_label: String,
        /// The y axis, with its unit.
        y_label: String,
        /// Name, and points from left to right.
        series: Vec<Line>,
    },
    /// Numbers, a row each, with the paper's marked.
    Rows {
        /// How they were found.
        found: &'static str,
        /// The axis, with its unit.
        label: String,
        /// Name and rows of each group.
        groups: Vec<(String, Vec<picture::Row>)>,
        /// Whether the axis may be logarithmic.
        scaling: picture::Scaling,
    },
}

impl Picture {
    /// Draws it into `directory`.
    ///
    /// # Errors
    /// [`Error::Picture`].
    pub fn draw(&self, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(&self.file);
        let drawn = match &self.content {
            Content::BloatByAddress(shares) => {
                picture::bloat_by_address(&path, &self.title, shares)
            }
            Content::Bars { y_label, categories, series, reference } => {
                let chart = picture::Bars { y_label, categories, series, reference: *reference };
                picture::bars(&path, &self.title, &chart)
            }
            Content::Lines { x_label, y_label, series } => {
                picture::lines(&path, &self.title, &picture::Lines { x_label, y_label, series })
            }
            Content::Rows { found, label, groups, scaling } => {
                let legend = [*found, "in the paper"];
                let chart = picture::Rows { label, groups, legend, scaling: *scaling };
                picture::rows(&path, &self.title, &chart)
            }
        };
        drawn.map_err(|error| Error::Picture(format!("{}: {error}", path.display())))?;
        Ok(path)
    }
}

/// This module's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an experiment did not come to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A workload did not start or failed.
    #[error(transparent)]
    Worker(worker::Error),
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The machine lacks something; what and what to do.
    #[error("{0}")]
    NotPossible(String),
    /// A picture could not be drawn.
    #[error("{0}")]
    Picture(String),
    /// A row could not be written down.
    #[error("{0}")]
    Row(String),
    /// A child of the experiment did not do its part.
    #[error("{0}")]
    Child(String),
    /// The simulated machine could not do it; why and what to do.
    #[error("{0}")]
    Simulation(String),
    /// Somebody asked us to stop. Everything was put back.
    #[error("interrupted; every setting was put back")]
    Interrupted,
}

impl From<worker::Error> for Error {
    fn from(error: worker::Error) -> Self {
        match error {
            worker::Error::Unavailable { message } => Self::NotPossible(message),
            other => Self::Worker(other),
        }
    }
}

impl From<workload::Error> for Error {
    fn from(error: workload::Error) -> Self {
        match error {
            workload::Error::MissingProgram { .. } => Self::NotPossible(error.to_string()),
            workload::Error::Corrupt { .. } => {
                Self::Worker(worker::Error::Failed { message: error.to_string() })
            }
            other => Self::Child(other.to_string()),
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Self {
        Self::Simulation(error.to_string())
    }
}

impl From<GeometryError> for Error {
    fn from(error: GeometryError) -> Self {
        Self::Simulation(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_names_of_experiment_and_machine() {
        let experiment = find("superpage-table1", Some(On::Sim)).expect("it is in the list");
        let report = experiment.run(&Setting::of_test(), &mut |_| Ok(())).expect("it runs");
        assert!(!report.rows.is_empty());
        for row in report.rows {
            assert_eq!(
                (&row["experiment"], &row["machine"]),
                (&"superpage-table1".into(), &"sim".into())
            );
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        let mut names: Vec<(&str, &str)> = all().map(|e| (e.name, e.on.name())).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for experiment in all() {
            let found = find(experiment.name, Some(experiment.on)).expect("it is in the list");
            assert_eq!(found.source, experiment.source);
            assert!(!experiment.columns.is_empty() && !experiment.summary.is_empty());
        }
        assert!(find("emd-table9", None).is_none());
    }
}
