//! `superpage daemon`: starts the manager's daemon with its log on standard error.

use crate::args::{Daemon, LogFormat, LogLevel};
use crate::exit::Outcome;
use crate::show;
use superpage_manager::{config, daemon};
use tracing::level_filters::LevelFilter;

/// Runs the daemon, or only checks its configuration.
pub(super) fn run(arguments: &Daemon) -> Outcome {
    if arguments.check {
        let Some(path) = &arguments.config else {
            return show::print("No --config was given: the defaults hold.\n");
        };
        config::read(path).map_err(daemon::DaemonError::from)?;
        return show::print(&format!("{} is valid.\n", path.display()));
    }
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(filter(arguments.level))
        .with_target(false)
        // They would go to standard error too, by a macro that panics when that is closed.
        .log_internal_errors(false);
    match arguments.log {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(daemon::run(arguments.config.as_deref(), &arguments.state)?)
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}
