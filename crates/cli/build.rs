//! Tells the program which tree of the repository it is built from, and whether that tree is all of it.

use std::path::Path;
use std::process::Command;

/// The sources of the program, from the root of the repository.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    let root = Path::new("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    // Where there is no repository, as in a package of the sources, nothing is known of the tree.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let tree = git(&["rev-parse", "--short=12", "HEAD^{tree}"]).unwrap_or_default();
    let status = git(&["status", "--porcelain", "--", ":/crates", ":/Cargo.toml", ":/Cargo.lock"]);
    let is_clean = status.is_some_and(|changes| changes.is_empty());
    println!("cargo::rustc-env=SUPERPAGE_TREE={tree}");
    println!("cargo::rustc-env=SUPERPAGE_TREE_IS_CLEAN={is_clean}");
}

/// The output of git about the repository of these sources; `None` if git fails or is not there.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| printed.trim().to_owned())
}
