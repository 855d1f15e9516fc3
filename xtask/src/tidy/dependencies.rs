//! The dependencies: every one that is declared is used, and every licence is one we may ship.

use super::manifest;
use super::tree::{Tree, Violation};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeSet;
use xshell::{Shell, cmd};

/// Licences that ask for no more than to be named, and so fit MIT OR Apache-2.0.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The workspace's dependencies that no crate takes.
pub(crate) fn unused(tree: &Tree) -> Vec<Violation> {
    let is_member = |path: &str| path.ends_with("/Cargo.toml");
    let used: BTreeSet<_> = tree
        .texts(is_member)
        .flat_map(|(_, text)| manifest::entries(text))
        .filter(manifest::Entry::is_dependency)
        .map(|entry| entry.key)
        .collect();
    let root = tree.text("Cargo.toml").unwrap_or_default();
    manifest::entries(root)
        .filter(|entry| entry.section == "workspace.dependencies" && !used.contains(entry.key))
        .map(|entry| {
            let message = format!("no crate uses {}, remove it", entry.key);
            Violation::new("Cargo.toml", entry.line, message)
        })
        .collect()
}

/// What cargo knows about the packages this machine builds from; without the network if it can.
pub(crate) fn metadata(shell: &Shell) -> Result<Value> {
    let host = cmd!(shell, "rustc --print host-tuple").quiet().read()?;
    let read = |more: &[&str]| {
        cmd!(shell, "cargo metadata --format-version 1 --filter-platform {host} {more...}")
            .quiet()
            .ignore_stderr()
            .read()
    };
    let text = read(&["--offline"]).or_else(|_| read(&[]))?;
    Ok(serde_json::from_str(&text)?)
}

/// The packages whose licence is not one we may ship.
pub(crate) fn licences(tree: &Tree, metadata: &Value) -> Vec<Violation> {
    let packages = metadata["packages"].as_array();
    packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let name = package["name"].as_str()?;
            let licence = package["license"].as_str().unwrap_or("no licence");
            let message = format!(
                "{name} has {licence}, do without it or allow it in xtask/src/tidy/dependencies.rs"
            );
            (!is_allowed(licence))
                .then(|| Violation::new("Cargo.lock", line_of(tree, name), message))
        })
        .collect()
}

/// Where the lock file first speaks of the package `name`.
fn line_of(tree: &Tree, name: &str) -> usize {
    let lock = tree.text("Cargo.lock").unwrap_or_default();
    let entry = format!("name = \"{name}\"");
    lock.lines().position(|line| line == entry).map_or(1, |index| index + 1)
}

/// May we ship under the SPDX expression `licence`? `AND` binds closer than `OR`; a slash is an
/// old way to write `OR`.
fn is_allowed(licence: &str) -> bool {
    let spaced = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = either(&mut words);
    allowed && words.peek().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>) -> bool {
    let mut allowed = both(words);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= both(words);
    }
    allowed
}

fn both(words: &mut Words<'_>) -> bool {
    let mut allowed = one(words);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words);
    }
    allowed
}

fn one(words: &mut Words<'_>) -> bool {
    match words.next() {
        Some("(") => {
            let allowed = either(words);
            words.next_if_eq(&")").is_some() && allowed
        }
        Some(name) => {
            let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
            let full =
                exception.map_or(name.to_owned(), |exception| format!("{name} WITH {exception}"));
            LICENCES.contains(&full.as_str())
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Tree, Violation, say};
    use super::{is_allowed, licences, unused};

    #[test]
    fn a_dependency_nobody_takes_is_named() {
        let root = "[workspace.dependencies]\na = \"1\"\nb = \"1\"\nc = { path = \"c\" }\n";
        let one = "[dependencies]\na.workspace = true\n";
        let two = "[dev-dependencies]\nc = { workspace = true }\n";
        let files = [("Cargo.toml", root), ("crates/x/Cargo.toml", one), ("xtask/Cargo.toml", two)];
        assert_eq!(say(unused, &files), ["Cargo.toml:3: no crate uses b, remove it"]);
    }

    #[test]
    fn expressions_are_read_as_they_are_meant() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_allowed(licence), "{licence}");
        }
        for licence in
            ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH x", "(MIT", "MIT )", "", "no licence"]
        {
            assert!(!is_allowed(licence), "{licence}");
        }
    }

    #[test]
    fn a_package_under_another_licence_is_named_with_its_line() {
        let tree = Tree::from([("Cargo.lock", "[[package]]\nname = \"bad\"\n")].as_slice());
        let metadata = serde_json::json!({ "packages": [
            { "name": "good", "license": "MIT" },
            { "name": "bad", "license": "GPL-3.0" },
        ] });
        let said: Vec<_> = licences(&tree, &metadata).iter().map(Violation::to_string).collect();
        assert_eq!(
            said,
            [
                "Cargo.lock:2: bad has GPL-3.0, do without it or allow it in xtask/src/tidy/dependencies.rs"
            ]
        );
    }
}
