//! Rows that are kept: one file for each run of an experiment. Its first line says by which command and which build, when and
//! where it was run; each other line is a row.

use super::{Error, Result};
use crate::experiment::sim::Used;
use crate::experiment::{self, Experiment, Report};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The ending of a file of rows.
pub const ENDING: &str = "jsonl";
/// The directory of the pictures, beside the rows.
pub const PICTURES: &str = "pictures";

/// The first line of a file of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The experiment.
    pub experiment: String,
    /// Where it ran: `live` or `sim`.
    pub machine: String,
    /// The command that gives such rows.
    pub command: String,
    /// The tree of the repository that the program was built from; `None` for rows of before it was noted.
    pub tree: Option<String>,
    /// The day, as in 2026-11-27.
    pub date: String,
    /// The machine, in words.
    pub host: String,
    /// The notes for a reader, each in a sentence.
    pub notes: Vec<String>,
    /// The files of the pictures, in [`PICTURES`].
    pub pictures: Vec<String>,
    /// The constants that simulated rows rest on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<Used>,
}

/// A run of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// How it was run.
    pub head: Head,
    /// Its rows.
    pub rows: Vec<Value>,
}

/// The circumstances of a run: all that is kept with it but what the experiment itself gives.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The command.
    pub command: String,
    /// The tree of the repository that the program was built from.
    pub tree: String,
    /// The day.
    pub date: String,
    /// The machine, in words.
    pub host: String,
}

/// Keeps a run in `directory`, in the file `stem`, and draws its pictures. What was kept under that name goes.
///
/// # Errors
/// [`Error::Write`] or [`Error::Picture`].
pub fn keep(
    directory: &Path,
    stem: &str,
    experiment: &Experiment,
    report: &Report,
    circumstances: Circumstances,
) -> Result<PathBuf> {
    let pictures = directory.join(PICTURES);
    std::fs::create_dir_all(&pictures).map_err(|error| Error::write(&pictures, &error))?;
    for picture in &report.pictures {
        picture.draw(&pictures).map_err(|error| Error::Picture(error.to_string()))?;
    }
    let Circumstances { command, tree, date, host } = circumstances;
    let head = Head {
        experiment: experiment.name.to_owned(),
        machine: experiment.on.name().to_owned(),
        command,
        tree: Some(tree),
        date,
        host,
        notes: report.notes.clone(),
        pictures: report.pictures.iter().map(|picture| picture.file.clone()).collect(),
        constants: report.constants.clone(),
    };
    let path = directory.join(format!("{stem}.{ENDING}"));
    let text = Kept { head, rows: report.rows.clone() }.to_text()?;
    std::fs::write(&path, text).map_err(|error| Error::write(&path, &error))?;
    Ok(path)
}

/// All runs that are kept in `directory`, in the order of the names of their files.
///
/// # Errors
/// [`Error::Read`] or [`Error::Malformed`], with the file: also for rows of an experiment that is not known, and for pictures that
/// are not there.
pub fn read_all(directory: &Path) -> Result<Vec<Kept>> {
    super::files(directory, ENDING)?.iter().map(|path| read(directory, path)).collect()
}

fn read(directory: &Path, path: &Path) -> Result<Kept> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::read(path, &error))?;
    let malformed = |detail| Error::malformed(path, detail);
    let kept = Kept::parse(&text).map_err(malformed)?;
    let Head { experiment, machine, pictures, .. } = &kept.head;
    let is_its = |one: &Experiment| one.name == experiment && one.on.name() == machine;
    if !experiment::all().any(is_its) {
        return Err(malformed(format!(
            "no experiment {experiment} on {machine}; `superpage lab list` has those that there are"
        )));
    }
    let is_missing = |picture: &&String| !directory.join(PICTURES).join(picture).is_file();
    match pictures.iter().find(is_missing) {
        Some(picture) => Err(malformed(format!(
            "{PICTURES}/{picture} is not there; run its command with --keep again"
        ))),
        None => Ok(kept),
    }
}

impl Kept {
    fn to_text(&self) -> Result<String> {
        let explain = |error: serde_json::Error| Error::Row(error.to_string());
        let head = serde_json::to_string(&self.head).map_err(explain)?;
        let rows: String = self.rows.iter().map(|row| format!("{row}\n")).collect();
        Ok(format!("{head}\n{rows}"))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let at = |line: usize, error: serde_json::Error| format!("line {line}: {error}");
        let (first, others) = text.split_once('\n').unwrap_or((text, ""));
        let head = serde_json::from_str(first).map_err(|error| at(1, error))?;
        let row = |(line, row)| match serde_json::from_str(row) {
            Ok(row @ Value::Object(_)) => Ok(row),
            Ok(_) => Err(format!("line {line}: not an object of names and values")),
            Err(error) => Err(at(line, error)),
        };
        let rows = (2..).zip(others.lines()).map(row);
        Ok(Self { head, rows: rows.collect::<std::result::Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::{Circumstances, keep, read_all};
    use crate::experiment::{Report, all};
    use serde_json::json;

    #[test]
    fn a_run_is_read_as_it_was_kept_and_a_line_that_is_no_row_is_named() {
        let directory = tempfile::TempDir::new().unwrap();
        let experiment = all().next().unwrap();
        let rows = vec![json!({"policy": "linux", "splits": 611})];
        let report =
            Report { rows: rows.clone(), notes: vec!["A note.".into()], ..Report::default() };
        let circumstances = Circumstances {
            command: "superpage lab run emd-table1".into(),
            tree: "0123456789ab".into(),
            date: "2026-11-27".into(),
            host: "two CPUs".into(),
        };
        let path = keep(directory.path(), "a", experiment, &report, circumstances).unwrap();
        let kept = read_all(directory.path()).unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!((&kept[0].rows, kept[0].head.notes.len()), (&rows, 1));
        assert_eq!(kept[0].head.tree.as_deref(), Some("0123456789ab"));
        let text = std::fs::read_to_string(&path).unwrap();
        let refused = |text: String| {
            std::fs::write(&path, text).unwrap();
            read_all(directory.path()).unwrap_err().to_string()
        };
        for row in ["no row", "3"] {
            let said = refused(format!("{text}{row}\n"));
            assert!(said.contains("a.jsonl: line 3"), "{said}");
        }
        let name = format!("\"experiment\":\"{}\"", experiment.name);
        let said = refused(text.replacen(&name, "\"experiment\":\"emd-tabel1\"", 1));
        assert!(said.contains("no experiment emd-tabel1 on"), "{said}");
        let said = refused(text.replacen("\"pictures\":[]", "\"pictures\":[\"a.svg\"]", 1));
        assert!(said.contains("pictures/a.svg is not there"), "{said}");
        std::fs::write(&path, text).unwrap();
        std::fs::write(directory.path().join("b.json"), "").unwrap();
        let said = read_all(directory.path()).unwrap_err().to_string();
        assert!(said.contains("b.json: not a file of this directory, which has *.jsonl"), "{said}");
    }
}
