//! `superpage lab report`: pages made from rows that are kept.

use crate::args::LabReport;
use crate::exit::{Failure, Outcome};
use crate::show;
use anyhow::Context;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use superpage_lab::report::{self, Files, Places};

/// Makes the report, or says where it is not as its rows say.
pub(super) fn run(arguments: &LabReport) -> Outcome {
    let LabReport { results, docs, check } = arguments;
    if !results.is_dir() {
        return Err(Failure::Usage(format!(
            "{} is not a directory; run this in the repository, or name its directory of results with --results",
            results.display()
        )));
    }
    let files = report::make(&Places { results, docs }).map_err(anyhow::Error::from)?;
    if *check { compare(&files, docs) } else { write(&files, docs) }
}

fn write(files: &Files, docs: &Path) -> Outcome {
    for (path, text) in files {
        let path = docs.join(path);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("{} could not be made", directory.display()))?;
        }
        std::fs::write(&path, text)
            .with_context(|| format!("{} could not be written", path.display()))?;
    }
    show::print(&format!("Wrote {} pages to {}.\n", files.len(), docs.display()))
}

/// A file in a directory of the report's pages that is none of them; `docs` itself has other documents too.
fn left_over(files: &Files, docs: &Path) -> anyhow::Result<Option<PathBuf>> {
    let directories = files.keys().filter_map(|path| path.parent());
    for directory in directories.filter(|path| *path != Path::new("")).collect::<BTreeSet<_>>() {
        let read = || format!("{} could not be read", docs.join(directory).display());
        for entry in std::fs::read_dir(docs.join(directory)).with_context(read)? {
            let path = directory.join(entry.with_context(read)?.file_name());
            if !files.contains_key(&path) {
                return Ok(Some(docs.join(path)));
            }
        }
    }
    Ok(None)
}

fn compare(files: &Files, docs: &Path) -> Outcome {
    for (path, text) in files {
        let path = docs.join(path);
        let found = std::fs::read_to_string(&path).with_context(|| {
            format!("{} could not be read; run `superpage lab report`", path.display())
        })?;
        if found != *text {
            let line =
                found.lines().zip(text.lines()).take_while(|(one, other)| one == other).count();
            return Err(Failure::Failed(anyhow::anyhow!(
                "{}:{}: not as the rows say; run `superpage lab report`",
                path.display(),
                line + 1
            )));
        }
    }
    if let Some(path) = left_over(files, docs)? {
        return Err(Failure::Failed(anyhow::anyhow!(
            "{}: the report has no such page; remove it",
            path.display()
        )));
    }
    show::print(&format!("{} pages are as their rows say.\n", files.len()))
}
