//! Refuses to build where a constant of a simulated experiment is a bare number, whose type would not say where it comes from. Numbers
//! within functions, and several at once, are not seen.

#[path = "build/bare_numbers.rs"]
mod bare_numbers;

use std::path::Path;

/// The sources of the simulated experiments, all in one directory.
const SOURCES: &str = "src/experiment/sim";

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={SOURCES}");
    for entry in Path::new(SOURCES).read_dir()? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        for (line, name) in bare_numbers::find(&text) {
            println!(
                "cargo::error=crates/lab/{}:{line}: `{name}` does not say where it comes from, make it a `Constant`, or end the \
                 line with `{}REASON`",
                path.display(),
                bare_numbers::LET_OFF
            );
        }
    }
    Ok(())
}
