//! The report of what was found: pages of a document, made from rows that are kept.
//!
//! A run of an experiment is [`kept`] as rows. From these come a page for each paper (`page`), and the front page (`front`):
//! a line for each finding of each paper ([`finding`]) with a verdict that follows from its numbers, how far the numbers are
//! from the papers' (`errors`), the constants that simulated ones rest on (`constants`), and the numbers that Superpage itself is to
//! reach (`target`). Words that no row has are in files of their own, which are put between the tables.
//!
//! What is deliberately absent: any number of a run. Whoever changes a number runs the experiment again.

mod across;
mod constants;
mod errors;
pub mod finding;
mod front;
pub mod kept;
mod page;
pub mod table;
mod target;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The directories that a report is made from and goes to.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Where rows, findings and words are.
    pub results: &'a Path,
    /// The directory of the documents: the front page is `results.md` in it, the others are in `results/`.
    pub docs: &'a Path,
}

/// The files of the report, by their paths from [`Places::docs`], with their text.
pub type Files = BTreeMap<PathBuf, String>;

/// Makes the report.
///
/// # Errors
/// [`Error`]: a file cannot be read, is malformed, or names rows that are not there.
pub fn make(places: &Places<'_>) -> Result<Files> {
    let source = Source::read(places.results)?;
    let mut files = Files::new();
    for page in page::Page::ALL {
        files.insert(page.path(), page.text(&source)?);
    }
    files.insert(PathBuf::from(constants::FILE), constants::text(&source));
    files.insert(PathBuf::from(front::FILE), front::text(&source)?);
    Ok(files)
}

/// All that the report is made from.
#[derive(Debug)]
struct Source {
    runs: Vec<kept::Kept>,
    /// The ranges of simulated numbers with other constants.
    ranges: constants::Ranges,
    findings: Vec<finding::Finding>,
    /// The words of the front page.
    front: String,
    /// The numbers that Superpage itself is to reach.
    targets: Vec<target::Target>,
    /// Words for a section, by its name.
    remarks: BTreeMap<String, String>,
}

impl Source {
    fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("findings.toml");
        let findings =
            finding::parse(&text_of(&path)?).map_err(|detail| Error::malformed(&path, detail))?;
        let path = directory.join("targets.toml");
        let targets =
            target::parse(&text_of(&path)?).map_err(|detail| Error::malformed(&path, detail))?;
        let runs = kept::read_all(&directory.join("rows"))?;
        let path = directory.join("front.md");
        let front = text_of(&path)?;
        front::check(&front).map_err(|detail| Error::malformed(&path, detail))?;
        Ok(Self {
            ranges: constants::Ranges::of(&runs),
            runs,
            findings,
            front,
            targets,
            remarks: remarks(&directory.join("remarks"))?,
        })
    }
}

/// The words for sections and pages, by their names.
fn remarks(directory: &Path) -> Result<BTreeMap<String, String>> {
    let texts = texts(directory)?;
    let is_known =
        |name: &str| page::Page::ALL.iter().any(|page| page.name == name || page.has(name));
    match texts.iter().find(|(name, _)| !is_known(name)) {
        Some((name, _)) => {
            let path = directory.join(format!("{name}.md"));
            Err(Error::malformed(&path, "no page and no experiment has this name".to_owned()))
        }
        None => Ok(texts.into_iter().collect()),
    }
}

fn text_of(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| Error::read(path, &error))
}

/// The Markdown files of a directory: names without their ending, and texts.
fn texts(directory: &Path) -> Result<Vec<(String, String)>> {
    let name_of = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    files(directory, "md")?.iter().map(|path| Ok((name_of(path), text_of(path)?))).collect()
}

/// The files of a directory, which all have this ending, by name; none where there is no such directory.
fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| Error::read(directory, &error))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Error::read(directory, &error))?.path();
        if path.extension().is_some_and(|its| its == ending) {
            found.push(path);
        } else if path.is_file() {
            let detail = format!("not a file of this directory, which has *.{ending}");
            return Err(Error::malformed(&path, detail));
        }
    }
    found.sort();
    Ok(found)
}

/// This module's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("{path} could not be read: {detail}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        detail: String,
    },
    /// A file could not be written.
    #[error("{path} could not be written: {detail}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        detail: String,
    },
    /// A file is not as it should be.
    #[error("{path}: {detail}")]
    Malformed {
        /// The file.
        path: String,
        /// Where, and why.
        detail: String,
    },
    /// A finding or a target names rows that are not there, or are not one.
    #[error("{finding}: {detail}")]
    Finding {
        /// The file, and the finding or target in it.
        finding: String,
        /// The mistake in it.
        detail: String,
    },
    /// A row could not be written down.
    #[error("{0}")]
    Row(String),
    /// A picture could not be drawn.
    #[error("{0}")]
    Picture(String),
}

impl Error {
    fn read(path: &Path, error: &std::io::Error) -> Self {
        Self::Read { path: path.display().to_string(), detail: error.to_string() }
    }

    fn write(path: &Path, error: &std::io::Error) -> Self {
        Self::Write { path: path.display().to_string(), detail: error.to_string() }
    }

    fn malformed(path: &Path, detail: String) -> Self {
        Self::Malformed { path: path.display().to_string(), detail }
    }
}
