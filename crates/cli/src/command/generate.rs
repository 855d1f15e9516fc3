//! `superpage completions` and `superpage man`: both from the table in `args`.

use crate::args::{Arguments, Completions, Man};
use crate::exit::Outcome;
use anyhow::Context;
use clap::CommandFactory;

/// Prints completions.
pub(super) fn completions(arguments: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "superpage", &mut text);
    crate::show::print_bytes(&text)
}

/// Writes `superpage.1`, `superpage-scan.1`, and so on.
pub(super) fn man(arguments: &Man) -> Outcome {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .with_context(|| {
            format!("the man pages could not be written to {}", directory.display())
        })?;
    Ok(())
}
