//! Developer automation: what `make` calls. Not part of the product, and installs nothing of it.
//!
//! `cargo xtask COMMAND`, from anywhere in the repository.
#![expect(clippy::print_stdout, reason = "a developer's tool: printing is its only output")]

mod kernels;
mod programs;
mod setup;
mod test;
mod tidy;

use anyhow::{Context, Result};
use std::process::ExitCode;
use xshell::Shell;

const HELP: &str = "\
cargo xtask COMMAND

  setup   see that this machine can build and test; install what is missing, where that is possible
  tidy    check the house rules that no compiler checks
  test    the whole gate: setup, formatting, clippy, tidy, documentation, every test
  test-kernels [SUITE [PROGRAM...]]
          the live tests on the newest kernels of Debian's suites, in guests; or programs of them, such as cli/live_daemon
  test-programs [--short] [--keep] [--list] [--page] [--debug] [PROGRAM...]
          programs with and without Superpage, or the ones that are named, or the gate's; --keep replaces the rows that are kept and
          the page, --page makes the page from these rows, --list names the programs, --debug builds them for debugging.
          SUPERPAGE=FILE in the environment tries that one
  guest SUITE ARGUMENT...
          superpage with these arguments on the newest kernel of a suite, in a guest with cgroup v2; its exit code
";

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    std::env::set_current_dir(root()?)?;
    let shell = Shell::new()?;
    match command.as_str() {
        "setup" => setup::run(&shell),
        "tidy" => tidy::run(&shell),
        "test" => test::run(&shell),
        "test-kernels" => kernels::run(&shell, &arguments.collect::<Vec<_>>()),
        "test-programs" => programs::run(&shell, &arguments.collect::<Vec<_>>()),
        "guest" => kernels::superpage(&shell, &arguments.collect::<Vec<_>>()),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => {
            print!("unknown command {other:?}\n\n{HELP}");
            Ok(ExitCode::from(2))
        }
    }
}

/// The repository's root: the directory above this crate.
fn root() -> Result<std::path::PathBuf> {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let root = std::path::Path::new(&manifest).parent();
    Ok(root.context("this crate lies in the repository")?.to_path_buf())
}
