//! Programs as they are declared in `programs/*.toml`: data only.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Where programs are declared, in files of TOML.
pub(crate) const DIRECTORY: &str = "programs";
/// The heap where a program says nothing of it: small memory, so that pages leave it and come back.
const HEAP: &str = "--memory 128M --heap-size 2G";
/// A program that runs for a second has not ended after this many only if it hangs.
const TIMEOUT: u64 = 60;

/// A file of declarations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    program: Vec<Program>,
}

/// A program, how it is had, how it is run, and what of it is compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// What it is and does, for the page: a phrase without a full stop.
    pub(crate) about: String,
    /// The Debian packages that have it.
    #[serde(default)]
    pub(crate) packages: Vec<String>,
    /// Programs in `PATH`, or files. Where one is missing, the packages are installed; the program is skipped if that fails.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    /// Packages from PyPI, for a virtual environment that is in `PATH` then. An empty list is an environment without any.
    pub(crate) python: Option<Vec<String>>,
    /// Packages from npm, in `$BUILT/node_modules`.
    #[serde(default)]
    pub(crate) npm: Vec<String>,
    /// A source package of Debian, unpacked in `$BUILT/source`.
    pub(crate) source: Option<String>,
    /// A command without which the program cannot run here; what it prints on standard error last is the reason.
    pub(crate) check: Option<String>,
    /// A command that prints the version.
    pub(crate) version: Option<String>,
    /// Commands that build it, in `$BUILT`; `$SRC` is `programs/src`.
    pub(crate) setup: Option<String>,
    /// The commands that are compared, for bash. `$SP` is nothing, or Superpage and its options; `$SUPERPAGE` is nothing or the
    /// program alone, `$OPTIONS` the rest.
    pub(crate) command: String,
    /// Expressions of `sed -E` over what is printed.
    #[serde(default)]
    pub(crate) filter: Vec<String>,
    #[serde(default)]
    pub(crate) compares: Compares,
    #[serde(default = "ways")]
    pub(crate) ways: Vec<Way>,
    /// The options of the heap.
    #[serde(default = "heap")]
    pub(crate) heap: String,
    /// Whether the gate runs it.
    #[serde(default)]
    pub(crate) short: bool,
    /// The most seconds for one run.
    #[serde(default = "timeout")]
    pub(crate) timeout: u64,
    /// Known differences. A run that is the same all the same, or that differs otherwise, is a failure.
    #[serde(default)]
    pub(crate) differs: BTreeMap<Way, Known>,
    /// Ways in which Superpage has something to say, such as that the program runs unmanaged, and why. What the program prints
    /// and how it ends is the same then.
    #[serde(default)]
    pub(crate) notes: BTreeMap<Way, String>,
}

/// A difference that is known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    /// A part of the difference, as a run prints that.
    pub(crate) seen: String,
    /// Why it is so.
    pub(crate) why: String,
}

fn ways() -> Vec<Way> {
    vec![Way::Run, Way::Keep, Way::Children, Way::Heap]
}

fn heap() -> String {
    HEAP.to_owned()
}

fn timeout() -> u64 {
    TIMEOUT
}

/// The part of a run that is compared, beside the exit code or signal.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compares {
    #[default]
    Both,
    Stdout,
}

/// A way to run a program with Superpage.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    Run,
    Keep,
    Children,
    Heap,
    /// Only in `differs`: every way that it does not name.
    Each,
}

impl Way {
    /// The ways, in the order of the page's columns.
    pub(crate) const ALL: [Self; 4] = [Self::Run, Self::Keep, Self::Children, Self::Heap];

    /// The options of `superpage` in this way, with a heap in `directory`.
    pub(crate) fn options(self, program: &Program, directory: &str) -> String {
        match self {
            Self::Run | Self::Each => "run --".to_owned(),
            Self::Keep => "run --malloc keep --".to_owned(),
            Self::Children => "run --children --".to_owned(),
            Self::Heap => format!("run --heap {directory} {} --", program.heap),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Run => "run",
            Self::Keep => "keep",
            Self::Children => "children",
            Self::Heap => "heap",
            Self::Each => "each",
        })
    }
}

/// All programs, in the order of their files' names.
pub(crate) fn all() -> Result<Vec<Program>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crate::root()?.join(DIRECTORY)).context("list programs")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let mut programs = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path)?;
        programs.extend(parse(&text).with_context(|| path.display().to_string())?);
    }
    for (at, program) in programs.iter().enumerate() {
        let earlier = programs[..at].iter().any(|other: &Program| other.name == program.name);
        ensure!(!earlier, "two programs are called {}", program.name);
    }
    Ok(programs)
}

/// The programs of one file.
pub(crate) fn parse(text: &str) -> Result<Vec<Program>> {
    let file: File = toml::from_str(text)?;
    Ok(file.program)
}

#[cfg(test)]
mod tests {
    use super::{Way, all, parse};

    #[test]
    fn what_is_declared_can_be_read() {
        let programs = all().unwrap();
        assert!(programs.iter().any(|program| program.short));
        let runs_it = |command: &str| {
            ["$SP", "$SUPERPAGE", "debugged.sh"].iter().any(|word| command.contains(word))
        };
        assert!(programs.iter().all(|program| runs_it(&program.command)));
    }

    #[test]
    fn a_heap_is_a_way_with_options_of_the_program() {
        let text = "[[program]]\nname = \"a\"\nabout = \"b\"\ncommand = \"$SP c\"\nheap = \"--memory 1G\"\n";
        let program = parse(text).unwrap().remove(0);
        assert_eq!(Way::Heap.options(&program, "/d"), "run --heap /d --memory 1G --");
        assert_eq!(Way::Keep.options(&program, "/d"), "run --malloc keep --");
    }

    #[test]
    fn a_word_that_is_not_known_is_refused() {
        assert!(
            parse("[[program]]\nname = \"a\"\nabout = \"b\"\ncommand = \"c\"\nway = 1\n").is_err()
        );
    }
}
