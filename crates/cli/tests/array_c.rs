//! The library for C, as a program in C meets it: its example, and what it refuses. Where there is no compiler, it says so.

#![expect(clippy::print_stdout, reason = "says why a test is skipped")]

mod common;

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A test by name.
type Named = (&'static str, fn() -> common::Ended);

const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../array_c");

fn main() {
    let missing = common::without(&["cc", "--version"]);
    let tests: [Named; 2] = [
        ("the_example_compiles_and_runs", the_example_runs),
        ("what_cannot_be_is_refused_in_c", what_cannot_be_is_refused),
    ];
    let trial = |(name, test): Named| {
        if let Some(why) = &missing {
            println!("skipped {name}: {why}");
        }
        Trial::test(name, test).with_ignored_flag(missing.is_some())
    };
    libtest_mimic::run(&Arguments::from_args(), tests.into_iter().map(trial).collect()).exit();
}

/// Compiles a program as its users do, and runs it; what it prints.
fn run(source: &Path) -> Result<String, Failed> {
    common::build_libraries()?;
    let libraries = Path::new(common::PROGRAM).parent().ok_or("no directory")?;
    let name = source.file_stem().ok_or("no name")?;
    let program: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(Path::new(CRATE).join("include"))
        .arg(source)
        .arg("-L")
        .arg(libraries)
        .args(["-lsuperpage_c", "-o"])
        .arg(&program)
        .output()?;
    if !compiled.status.success() {
        return Err(String::from_utf8_lossy(&compiled.stderr).into_owned().into());
    }
    // The program asks for the library by its SONAME, which `make install` and ldconfig make a link of.
    let installed = TempDir::new()?;
    std::os::unix::fs::symlink(
        libraries.join("libsuperpage_c.so"),
        installed.path().join("libsuperpage_c.so.1"),
    )?;
    let said = Command::new(&program).env("LD_LIBRARY_PATH", installed.path()).output()?;
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    if said.status.success() { Ok(words) } else { Err(format!("{said:?}").into()) }
}

fn the_example_runs() -> common::Ended {
    let said = run(&Path::new(CRATE).join("examples/hot_part.c"))?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.len() == 2 && lines[0].starts_with("base: "), "{said}");
    ensure!(lines[1].starts_with("huge:20%: "), "{said}");
    // Both sum the same words.
    let sums: Vec<&str> = lines.iter().filter_map(|line| line.split("sum ").nth(1)).collect();
    ensure!(sums.len() == 2 && sums[0] == sums[1], "{said}");
    Ok(())
}

fn what_cannot_be_is_refused() -> common::Ended {
    let said = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/array.c"))?;
    ensure!(said == "all was refused as it should be\n", "{said}");
    Ok(())
}
