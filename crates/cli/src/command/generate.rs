//! `superpage completions` and `superpage man`: both from the table in `args`.

use crate::args::{Arguments, Completions, Man};
use crate::exit::Outcome;
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;
use std::path::Path;

/// Prints completions.
pub(super) fn completions(arguments: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "superpage", &mut text);
    crate::show::print_bytes(&text)
}

/// Writes `superpage.1`, `superpage-scan.1`, and so on.
pub(super) fn man(arguments: &Man) -> Outcome {
    let directory = &arguments.directory;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(directory)
        .and_then(|()| write_pages(&command, directory))
        .with_context(|| {
            format!("the man pages could not be written to {}", directory.display())
        })?;
    Ok(())
}

/// The page of `command` and those of the commands below it.
fn write_pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, directory)?;
    }
    let source = concat!("superpage ", env!("CARGO_PKG_VERSION"));
    let page = Page::new(command.clone()).source(source).manual("Superpage");
    let mut text = Vec::new();
    page.render(&mut text)?;
    // What stands below the help has no better name there; man-pages(7) knows this one.
    let text = String::from_utf8_lossy(&text).replace(".SH EXTRA", ".SH NOTES");
    std::fs::write(directory.join(page.get_filename()), text)
}
