//! What the daemon holds while it runs: settings of the kernel.

use crate::config::{Config, HoldEnabled};
use crate::promote::policy::Promotion;
use superpage_kernel::settings::{Change, Settings};
use superpage_kernel::thp::{self, Enabled, Thp};
use superpage_kernel::{Error, Result};
use tracing::{info, warn};

/// Holds what `config` wants held; returns what was changed. What cannot be held is logged.
pub(super) fn settings(settings: &mut Settings, config: &Config) -> Vec<Change> {
    let knobs = Thp::under(&settings.root().join("sys"));
    let khugepaged = max_ptes_none(&knobs, settings, config);
    let enabled = enabled(&knobs, settings, config);
    let told = |held: Result<Option<Change>>, otherwise: &str| {
        held.inspect_err(|error: &Error| warn!("{otherwise}: {error}")).ok().flatten()
    };
    [
        told(khugepaged, "khugepaged may rebuild what is freed"),
        told(enabled, "first touches give huge pages, whatever the policy wants"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What of a configuration decides what is held.
pub(super) fn wanted(config: &Config) -> impl PartialEq + use<> {
    (config.max_ptes_none, wants_base_pages(config), config.hold_enabled)
}

fn wants_base_pages(config: &Config) -> bool {
    config.promotion.policies().any(Promotion::wants_base_pages)
}

/// Holds `max_ptes_none` down, unless it is lower already or is to be left alone.
fn max_ptes_none(knobs: &Thp, settings: &mut Settings, config: &Config) -> Result<Option<Change>> {
    let Some(wanted) = config.max_ptes_none else { return Ok(None) };
    if knobs.get(thp::MAX_PTES_NONE)? <= wanted {
        info!("max_ptes_none is low enough already");
        return Ok(None);
    }
    knobs.set(settings, thp::MAX_PTES_NONE, wanted).map(Some)
}

/// Holds `enabled` at `madvise` where it is `always`, a policy wants base pages first, and the
/// configuration says so.
fn enabled(knobs: &Thp, settings: &mut Settings, config: &Config) -> Result<Option<Change>> {
    if !wants_base_pages(config) || knobs.get(thp::ENABLED)? != Enabled::Always {
        return Ok(None);
    }
    if config.hold_enabled == HoldEnabled::Keep {
        info!(
            "the kernel gives huge pages at first touches (enabled is always); policies see the rest"
        );
        return Ok(None);
    }
    knobs.set(settings, thp::ENABLED, Enabled::Madvise).map(Some)
}
