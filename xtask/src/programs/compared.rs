//! Two runs of a program, compared.

use super::ran::Ran;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most characters of a line that a difference repeats.
const REPEATED: usize = 160;
/// The most characters of all that differs.
const MOST: usize = 400;

/// The outcome of a program in one way.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Same,
    /// The program differs, and the declaration says why.
    Explained,
    Differs,
    /// The program does not differ, though it is declared to.
    Stale,
    /// The program differs from itself without Superpage, so that nothing can be said.
    Unstable,
    /// The program cannot be had or run here.
    Skipped,
    /// The program cannot be set up as it is declared, though all that it needs is there.
    Broken,
}

impl Outcome {
    /// Whether somebody has to look at it.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::Differs | Self::Stale | Self::Unstable | Self::Broken)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Same => "same",
            Self::Explained => "explained",
            Self::Differs => "DIFFERS",
            Self::Stale => "STALE",
            Self::Unstable => "UNSTABLE",
            Self::Skipped => "skipped",
            Self::Broken => "BROKEN",
        })
    }
}

/// In what two runs differ.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// In what the program prints and how it ends.
    pub(crate) program: Option<String>,
    /// Superpage's own words.
    pub(crate) notes: Option<String>,
}

impl Difference {
    /// All of it; nothing where the runs are the same.
    pub(crate) fn whole(self) -> Option<String> {
        let all: Vec<String> = [self.program, self.notes].into_iter().flatten().collect();
        let all = all.join("; ");
        (!all.is_empty()).then(|| all.chars().take(MOST).collect())
    }
}

/// In what the second run differs from the first.
pub(crate) fn compare(native: &Ran, with: &Ran) -> Difference {
    let end = (native.end != with.end).then(|| format!("{} instead of {}", with.end, native.end));
    let stdout = line("stdout", &native.stdout, &with.stdout);
    let stderr = line("stderr", &native.stderr, &with.stderr);
    let all: Vec<String> = [end, stdout, stderr].into_iter().flatten().collect();
    Difference {
        program: (!all.is_empty()).then(|| all.join("; ")),
        notes: (!with.notes.is_empty()).then(|| with.notes.join("; ")),
    }
}

/// The first line in which two texts differ.
fn line(what: &str, native: &str, with: &str) -> Option<String> {
    if native == with {
        return None;
    }
    let (mut left, mut right) = (native.lines(), with.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (old, new) if old == new => {}
            (old, new) => {
                let [old, new] = [old, new].map(shown);
                return Some(format!("{what} line {number}: {new} instead of {old}"));
            }
        }
    }
    Some(format!("{what}: the ends of the lines"))
}

fn shown(line: Option<&str>) -> String {
    line.map_or("nothing".to_owned(), |line| {
        format!("`{}`", line.chars().take(REPEATED).collect::<String>())
    })
}

#[cfg(test)]
mod tests {
    use super::{Ran, compare};

    fn ran(end: &str, stdout: &str) -> Ran {
        Ran { end: end.to_owned(), stdout: stdout.to_owned(), ..Ran::default() }
    }

    #[test]
    fn runs_that_are_the_same_do_not_differ() {
        let difference = compare(&ran("exit code 0", "a\n"), &ran("exit code 0", "a\n"));
        assert_eq!(difference.whole(), None);
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(
            compare(&ran("exit code 0", "a\nb\n"), &ran("signal 11", "a\n")).program.unwrap(),
            "signal 11 instead of exit code 0; stdout line 2: nothing instead of `b`"
        );
    }

    #[test]
    fn what_superpage_says_is_a_difference() {
        let mut with = ran("exit code 0", "");
        with.notes = vec!["superpage: it runs unmanaged".to_owned()];
        let difference = compare(&ran("exit code 0", ""), &with);
        assert_eq!(difference.program, None);
        assert!(difference.whole().unwrap().contains("unmanaged"));
    }
}
