//! Signals that ask for an end: what runs is told, and ends by itself.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use superpage_kernel::own_beginning;

/// A flag that SIGINT, SIGTERM and SIGHUP raise. SIGHUP comes when a terminal is closed; who started us by `nohup` wants us to go
/// on then.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && own_beginning::ignored(signal) {
            continue;
        }
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("signals cannot be set up")?;
    }
    Ok(stop)
}
