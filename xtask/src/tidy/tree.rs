//! What the checks look at: the tracked files and their text. And what they give: violations.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt;
use xshell::{Shell, cmd};

/// The tracked files, by path from the repository's root; `None` for one that is not text.
#[derive(Debug)]
pub(crate) struct Tree(BTreeMap<String, Option<String>>);

impl Tree {
    /// The files that git tracks, as they are on disk now.
    pub(crate) fn tracked(shell: &Shell) -> Result<Self> {
        // A build may run as another user than the one who checked out; listing is harmless.
        let listed = cmd!(shell, "git -c safe.directory=* ls-files -z")
            .quiet()
            .read()
            .context("tidy looks at the files git tracks: run it in a git checkout")?;
        let mut files = BTreeMap::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            // Removed, but not yet from the index; or a link to a directory.
            if let Ok(bytes) = std::fs::read(shell.current_dir().join(path)) {
                files.insert(path.to_owned(), String::from_utf8(bytes).ok());
            }
        }
        Ok(Self(files))
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Paths and texts of the files whose path `wanted` accepts.
    pub(crate) fn texts<'a>(
        &'a self,
        wanted: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
            .filter(move |(path, _)| wanted(path))
    }

    /// The text of the file at `path`.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path)?.as_deref()
    }

    /// Is `path` a file, or a directory with files in it? The root is `""`.
    pub(crate) fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        path.is_empty()
            || self.0.contains_key(path)
            || self.paths().any(|known| known.starts_with(&below))
    }
}

#[cfg(test)]
impl From<&[(&str, &str)]> for Tree {
    fn from(files: &[(&str, &str)]) -> Self {
        let own = |(path, text): &(&str, &str)| (path.to_string(), Some(text.to_string()));
        Self(files.iter().map(own).collect())
    }
}

/// A broken rule: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    message: String,
}

impl Violation {
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// What `check` says about these files, for the tests of the checks.
#[cfg(test)]
pub(crate) fn say(check: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::from(files)).iter().map(Violation::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::{Tree, Violation};

    #[test]
    fn a_violation_says_where_first() {
        let violation = Violation::new("a/b.rs", 7, "a tab, use spaces");
        assert_eq!(violation.to_string(), "a/b.rs:7: a tab, use spaces");
    }

    #[test]
    fn directories_exist_where_files_lie_in_them() {
        let tree = Tree::from([("docs/a.md", "")].as_slice());
        assert!(tree.has("docs/a.md") && tree.has("docs") && tree.has(""));
        assert!(!tree.has("doc") && !tree.has("docs/b.md"));
    }
}
