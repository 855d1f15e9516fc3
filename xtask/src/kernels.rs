//! The live tests on other kernels: Debian's, each booted in a guest of QEMU in software.
//!
//! A guest has nothing but an initramfs of busybox, the test programs and what they read. Its processors are emulated,
//! so that a test which takes seconds here may take minutes there. What the tests
//! print comes over the second serial port, what the kernel prints over the first.

mod debian;
mod guest;
mod initramfs;
mod table;

use anyhow::{Context, Result, bail, ensure};
use debian::Kernel;
use guest::{Ran, Variant};
use initramfs::{Program, Work};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use xshell::Shell;

/// Debian's suites whose newest kernel is tried, and what that kernel is for us: the oldest that is supported, and the newest.
const SUITES: [&str; 2] = ["trixie", "sid"];
/// The most time for all tests on one kernel.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs all tests in all guests, or some programs of them on one suite's kernel, and prints the table.
pub(crate) fn run(shell: &Shell, arguments: &[String]) -> Result<ExitCode> {
    let (suites, named): (Vec<&str>, &[String]) = match arguments {
        [] => (SUITES.to_vec(), &[]),
        [suite, named @ ..] if SUITES.contains(&suite.as_str()) => (vec![suite.as_str()], named),
        _ => bail!("say no suite for all, or one of {}", SUITES.join(" and ")),
    };
    guest::provide(shell)?;
    let directory = directory()?;
    let mut programs = initramfs::programs()?;
    if !named.is_empty() {
        programs.retain(|program| named.contains(&program.name));
        let is_there = |name: &&String| programs.iter().any(|program| program.name == **name);
        let missing = named.iter().find(|name| !is_there(name));
        ensure!(missing.is_none(), "there are no tests {missing:?} for guests");
    }
    let mut columns = Vec::new();
    for suite in suites {
        let kernel = debian::fetch(suite, &directory)?;
        for variant in Variant::OF_TESTS {
            let is_meant = |program: &&Program| is_meant(program, variant, named);
            let chosen: Vec<Program> = programs.iter().filter(is_meant).cloned().collect();
            if chosen.is_empty() {
                continue;
            }
            let ran = boot(&kernel, &chosen, variant, LIMIT, &directory)?;
            columns.push((format!("{}{}", kernel.version, variant.suffix()), ran));
        }
    }
    print!("{}", table::markdown(&columns));
    let failed = columns.iter().any(|(_, ran)| ran.has_failed() || !ran.is_whole());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether a program runs in this variant of the guest, where these were named or, if none were, all are to run.
fn is_meant(program: &Program, variant: Variant, named: &[String]) -> bool {
    // What differs in the other guests is the memory, which these are about.
    let is_about_memory = named.is_empty() && program.is_about_memory();
    match variant {
        Variant::Plain | Variant::Large => !program.is_about_nodes(),
        Variant::Nodes => program.is_about_nodes() || is_about_memory,
        Variant::Reporting => is_about_memory,
    }
}

/// Runs superpage in a guest, prints what it says, and ends with its exit code.
pub(crate) fn superpage(shell: &Shell, arguments: &[String]) -> Result<ExitCode> {
    let Some((suite, words)) = arguments
        .split_first()
        .filter(|(suite, words)| SUITES.contains(&suite.as_str()) && !words.is_empty())
    else {
        bail!("say one of {}, and what superpage is to be given", SUITES.join(" and "));
    };
    guest::provide(shell)?;
    let directory = directory()?;
    let built = crate::test::command(&["build", "-p", "superpage-cli"]).status();
    ensure!(built.context("starting cargo")?.success(), "superpage cannot be built");
    let kernel = debian::fetch(suite, &directory)?;
    let image = directory.join("initramfs.cpio");
    initramfs::build(&kernel, &Work::Superpage(words), &image)?;
    let ran = guest::run(&kernel, &image, Variant::Large, LIMIT, &directory)?;
    let results = std::fs::read(directory.join(guest::RESULTS))?;
    print!("{}", table::said(&String::from_utf8_lossy(&results)));
    Ok(ran.exit_code().map_or(ExitCode::FAILURE, ExitCode::from))
}

fn boot(
    kernel: &Kernel,
    programs: &[Program],
    variant: Variant,
    limit: Duration,
    directory: &Path,
) -> Result<Ran> {
    println!("{}{}: {} programs of tests", kernel.version, variant.suffix(), programs.len());
    let image = directory.join("initramfs.cpio");
    initramfs::build(kernel, &Work::Tests(programs), &image)?;
    guest::run(kernel, &image, variant, limit, directory)
}

/// Where kernels and guests have their files, below the directory of what is built.
fn directory() -> Result<PathBuf> {
    let directory = std::path::absolute(crate::test::target().join("kernels"))?;
    std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    Ok(directory)
}
