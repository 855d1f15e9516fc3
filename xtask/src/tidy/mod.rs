//! The house rules that no compiler checks, over the files git tracks.
//!
//! A check looks at a [`Tree`] and gives [`Violation`]s: where, what, and what to do about it.
//! A line of source can be let off with `// tidy: allow(REASON)` at its end, where a check says so.

mod changelog;
mod constants;
mod dependencies;
mod layers;
mod links;
pub(crate) mod manifest;
mod printing;
mod programs;
mod results;
mod source;
mod text;
mod tree;
mod unsafe_code;

use anyhow::Result;
use std::process::ExitCode;
use tree::{Tree, Violation};
use xshell::Shell;

const CHECKS: [fn(&Tree) -> Vec<Violation>; 10] = [
    text::check,
    unsafe_code::check,
    layers::check,
    printing::check,
    constants::check,
    links::check,
    changelog::check,
    results::check,
    programs::check,
    dependencies::unused,
];

/// Runs every check and prints what they find.
pub(crate) fn run(shell: &Shell) -> Result<ExitCode> {
    let tree = Tree::tracked(shell)?;
    let mut found: Vec<_> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    found.extend(dependencies::licences(&tree, &dependencies::metadata(shell)?));
    found.sort();
    for violation in &found {
        println!("{violation}");
    }
    let files = tree.paths().count();
    Ok(if found.is_empty() {
        println!("tidy: {files} files, nothing to say");
        ExitCode::SUCCESS
    } else {
        println!("tidy: {files} files, violations: {}", found.len());
        ExitCode::FAILURE
    })
}
