//! The form of a text file: opening, whitespace, length, and no marks of unfinished work.

use super::source;
use super::tree::{Tree, Violation};

/// More lines than this is more than one subject.
const MOST_LINES: usize = 900;

// Put together here, so that this file is not found by its own check.
const MARKS: [&str; 3] = [concat!("FIX", "ME"), concat!("X", "XX"), concat!("TO", "DO")];
const CALLS: [&str; 2] = ["todo", "unimplemented"];
const IGNORED: &str = concat!("#[", "ignore");

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts(is_ours) {
        found.extend(whitespace(path, text));
        found.extend(marks(path, text));
        if path.ends_with(".rs") {
            found.extend(rust(path, text));
        }
    }
    found
}

/// Is it text that we write? Fixtures and snapshots are what others say, byte for byte.
fn is_ours(path: &str) -> bool {
    let endings = [".rs", ".toml", ".md", ".sh", ".yml", ".service", ".c", "Makefile", ".ci/run"];
    endings.iter().any(|ending| path.ends_with(ending)) && !path.contains("/fixtures/")
}

fn whitespace(path: &str, text: &str) -> Vec<Violation> {
    let mut found: Vec<_> = (1..)
        .zip(text.split('\n'))
        .filter(|(_, line)| line.ends_with(|last: char| last.is_whitespace()))
        .map(|(number, _)| {
            Violation::new(path, number, "whitespace at the end of the line, remove it")
        })
        .collect();
    if !text.is_empty() && !text.ends_with('\n') {
        let last = text.lines().count();
        found.push(Violation::new(path, last, "no newline at the end of the file, add one"));
    }
    found
}

fn marks(path: &str, text: &str) -> Vec<Violation> {
    let is_mark = |word: &str| MARKS.contains(&word);
    (1..)
        .zip(text.lines())
        .flat_map(|(number, line)| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| is_mark(word))
                .map(move |word| unfinished(path, number, word))
        })
        .collect()
}

fn unfinished(path: &str, line: usize, what: &str) -> Violation {
    Violation::new(path, line, format!("`{what}`, finish it or open an issue"))
}

/// What only Rust files must keep to.
fn rust(path: &str, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        let message = "no `//!` at the top, say what the file is and what it is not";
        found.push(Violation::new(path, 1, message));
    }
    let length = text.lines().count();
    if length > MOST_LINES {
        let message = format!("{length} lines, split the file: {MOST_LINES} is the most");
        found.push(Violation::new(path, length, message));
    }
    for line in source::lines(text) {
        if line.text.contains('\t') {
            found.push(Violation::new(path, line.number, "a tab, use spaces"));
        }
        for (word, after) in line.words() {
            if CALLS.contains(&word) && after.starts_with('!') {
                found.push(unfinished(path, line.number, &format!("{word}!")));
            }
        }
        if line.code.contains(IGNORED) {
            let message = "an ignored test, make it run or skip at run time with a reason";
            found.push(Violation::new(path, line.number, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::{IGNORED, MARKS, MOST_LINES, check};

    #[test]
    fn a_good_file_passes() {
        assert!(say(check, &[("a.rs", "//! A.\n\nfn f() {}\n"), ("b.md", "# B\n")]).is_empty());
    }

    #[test]
    fn a_rust_file_says_what_it_is() {
        let said = say(check, &[("build.rs", "fn main() {}\n")]);
        assert_eq!(
            said,
            ["build.rs:1: no `//!` at the top, say what the file is and what it is not"]
        );
    }

    #[test]
    fn whitespace_is_found_where_it_is() {
        let said = say(check, &[("a.md", "a\nb \nc\n\td")]);
        assert_eq!(
            said,
            [
                "a.md:2: whitespace at the end of the line, remove it",
                "a.md:4: no newline at the end of the file, add one",
            ]
        );
        assert_eq!(say(check, &[("a.rs", "//! A.\n\tf();\n")]), ["a.rs:2: a tab, use spaces"]);
    }

    #[test]
    fn fixtures_are_left_alone() {
        assert!(say(check, &[("crates/kernel/tests/fixtures/bad.toml", "a \t")]).is_empty());
    }

    #[test]
    fn long_files_are_split() {
        let long = format!("//! A.\n{}", "//\n".repeat(MOST_LINES));
        assert_eq!(say(check, &[("a.rs", &long)]).len(), 1);
    }

    #[test]
    fn unfinished_work_is_found_and_other_words_are_not() {
        for mark in MARKS {
            let text = format!("//! A.\n// {mark}: b\n// {mark}S\n");
            let said = say(check, &[("a.rs", &text)]);
            assert_eq!(said, [format!("a.rs:2: `{mark}`, finish it or open an issue")]);
        }
        let text = "//! A.\nfn f() { todo!(\"x\") }\n// todo!\nfn todo() {}\n";
        assert_eq!(say(check, &[("a.rs", text)]), ["a.rs:2: `todo!`, finish it or open an issue"]);
        let text = format!("//! A.\n{IGNORED}]\nfn f() {{}}\n");
        assert_eq!(say(check, &[("a.rs", &text)]).len(), 1);
    }
}
