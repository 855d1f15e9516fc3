//! The changelog has a section for what is being made: Unreleased, or the current version.

use super::manifest;
use super::tree::{Tree, Violation};

const PATH: &str = "CHANGELOG.md";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(PATH) else {
        return vec![Violation::new(PATH, 1, "there is none, write one")];
    };
    let cargo = tree.text("Cargo.toml").unwrap_or_default();
    let version = manifest::value(cargo, "workspace.package", "version").unwrap_or_default();
    let sections = ["## [Unreleased]".to_owned(), format!("## [{version}]")];
    let has = text.lines().any(|line| sections.iter().any(|section| line.starts_with(section)));
    if has {
        return Vec::new();
    }
    let message = format!("no section for [Unreleased] or [{version}], add what has changed");
    vec![Violation::new(PATH, 1, message)]
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    const CARGO: (&str, &str) = ("Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\n");

    #[test]
    fn either_section_will_do() {
        for text in ["# C\n## [Unreleased]\n", "## [1.2.3] - 2030-01-01\n"] {
            assert!(say(check, &[CARGO, ("CHANGELOG.md", text)]).is_empty(), "{text}");
        }
    }

    #[test]
    fn an_older_section_will_not() {
        let said = say(check, &[CARGO, ("CHANGELOG.md", "## [1.2.2]\n")]);
        assert_eq!(
            said,
            ["CHANGELOG.md:1: no section for [Unreleased] or [1.2.3], add what has changed"]
        );
        assert_eq!(say(check, &[CARGO]).len(), 1);
    }
}
