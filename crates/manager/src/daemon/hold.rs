//! What the daemon holds while it runs: settings of the kernel.

use crate::config::{Config, FirstTouch};
use crate::promote::policy::Promotion;
use superpage_kernel::settings::{Change, Settings};
use superpage_kernel::thp::{self, Defrag, Enabled, Thp};
use superpage_kernel::{Error, Result, balloon};
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::{Bytes, Share};
use tracing::{info, warn};

/// First touches are generous again when so much less than the low watermark is in use. Chosen, not measured: enough that
/// the switch is not turned with every program that ends.
const AGAIN: Share = Share::percent(2);

/// Holds what `config` wants held all the time; returns what was changed. What cannot be held is logged.
pub(super) fn settings(settings: &mut Settings, config: &Config) -> Vec<Change> {
    let knobs = Thp::under(&settings.root().join("sys"));
    let khugepaged = max_ptes_none(&knobs, settings, config);
    let first_touch = match config.first_touch {
        FirstTouch::BasePages => base_pages(&knobs, settings, config),
        FirstTouch::Keep | FirstTouch::Generous => Ok(None),
    };
    if config.first_touch == FirstTouch::Generous
        && let Some(least) = unreported_below(settings)
    {
        warn!(
            "first touches give what they gave: this machine tells its host of free memory from {least} on, which splits do not \
             leave, so that memory once given to a huge page would stay with it"
        );
    }
    let told = |held: Result<Option<Change>>, otherwise: &str| {
        held.inspect_err(|error: &Error| warn!("{otherwise}: {error}")).ok().flatten()
    };
    [
        told(khugepaged, "khugepaged may rebuild what is freed"),
        told(first_touch, "first touches give huge pages, whatever the policy wants"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// As [`balloon::unreported_below`]; a machine that does not say is taken for one without a balloon.
fn unreported_below(settings: &Settings) -> Option<Bytes> {
    balloon::unreported_below(&settings.root().join("sys")).ok().flatten()
}

/// What of a configuration decides what is held.
pub(super) fn wanted(config: &Config) -> impl PartialEq + use<> {
    (config.max_ptes_none, promotes(config), config.first_touch)
}

/// Whether huge pages are wanted at all: by the administrator, or by the configuration all the same. A machine that does not say
/// is taken for one where they are.
pub(super) fn wants_huge(settings: &Settings, config: &Config) -> bool {
    let knobs = Thp::under(&settings.root().join("sys"));
    config.promotion.under_never || knobs.get(thp::ENABLED) != Ok(Enabled::Never)
}

fn promotes(config: &Config) -> bool {
    config.promotion.policies().any(|policy| policy != Promotion::Off)
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

/// Holds `enabled` at `madvise` where it is `always` and something is promoted.
fn base_pages(knobs: &Thp, settings: &mut Settings, config: &Config) -> Result<Option<Change>> {
    if !promotes(config) || knobs.get(thp::ENABLED)? != Enabled::Always {
        return Ok(None);
    }
    knobs.set(settings, thp::ENABLED, Enabled::Madvise).map(Some)
}

/// Has first touches give huge pages while so much of the machine's memory is in use, or no more. Returns what was changed.
///
/// `enabled` is `always` below the low watermark and `madvise` above it. `defrag` is held at `defer` where a fault might
/// compact memory. Where the administrator has set `enabled` to `never`, now or before, it stays so. In a guest whose host would
/// not get back what splits free, neither is changed.
pub(super) fn first_touch(
    settings: &mut Settings,
    config: &Config,
    usage: Usage,
) -> Result<Vec<Change>> {
    let knobs = Thp::under(&settings.root().join("sys"));
    let now = knobs.get(thp::ENABLED)?;
    let is_left = config.first_touch != FirstTouch::Generous || now == Enabled::Never;
    if is_left || unreported_below(settings).is_some() {
        return Ok(Vec::new());
    }
    let wanted = enabled(config.machine.unwrap_or_default(), usage, now);
    let mut changes = Vec::new();
    if wanted != now {
        changes.push(knobs.set(settings, thp::ENABLED, wanted)?);
    }
    if may_compact(knobs.get(thp::DEFRAG)?) {
        changes.push(knobs.set(settings, thp::DEFRAG, Defrag::Defer)?);
    }
    Ok(changes)
}

/// Whether a page fault may compact memory, and keep its program waiting for that.
fn may_compact(defrag: Defrag) -> bool {
    !matches!(defrag, Defrag::Defer | Defrag::Never)
}

/// The value that `enabled` is to have where it is `now` and so much memory is in use.
fn enabled(marks: Watermarks, usage: Usage, now: Enabled) -> Enabled {
    let share = usage.share();
    let is_generous = now == Enabled::Always;
    let most = if is_generous { marks.low().get() } else { marks.low().get() - AGAIN.get() };
    if share.get() < most { Enabled::Always } else { Enabled::Madvise }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use superpage_kernel::settings::Mode;
    use superpage_units::Bytes;

    fn usage(percent: u64) -> Usage {
        Usage { used: Bytes(percent), total: Bytes(100) }
    }

    /// Settings of a machine where `enabled` and `defrag` are so.
    fn machine(enabled: &str, defrag: &str) -> (tempfile::TempDir, Settings) {
        let root = tempfile::tempdir().expect("a directory");
        let thp = root.path().join("sys/kernel/mm/transparent_hugepage");
        std::fs::create_dir_all(&thp).expect("made");
        std::fs::create_dir_all(root.path().join("proc/sys/kernel/random")).expect("made");
        let write = |path: &Path, text: &str| std::fs::write(path, text).expect("written");
        write(&root.path().join("proc/sys/kernel/random/boot_id"), "one\n");
        write(&thp.join("enabled"), enabled);
        write(&thp.join("defrag"), defrag);
        let state = root.path().join("state");
        let settings = Settings::open_under(root.path(), &state, Mode::Apply).expect("ours").0;
        (root, settings)
    }

    fn generous() -> Config {
        Config { first_touch: FirstTouch::Generous, ..Config::default() }
    }

    #[test]
    fn first_touches_are_generous_while_memory_is_free() {
        let marks = Watermarks::default();
        for (percent, before, expected) in [
            (64, Enabled::Always, Enabled::Always),
            (65, Enabled::Always, Enabled::Madvise),
            (64, Enabled::Madvise, Enabled::Madvise),
            (62, Enabled::Madvise, Enabled::Always),
        ] {
            assert_eq!(enabled(marks, usage(percent), before), expected, "{percent} %");
        }
    }

    #[test]
    fn never_is_not_raised_and_nothing_is_held_that_nobody_asked_for() {
        let (_root, mut settings) =
            machine("always madvise [never]", "always defer [madvise] never");
        let changed = first_touch(&mut settings, &generous(), usage(10)).expect("readable");
        assert!(changed.is_empty(), "{changed:?}");
        let (_root, mut settings) =
            machine("always [madvise] never", "always defer [madvise] never");
        let changed = first_touch(&mut settings, &Config::default(), usage(10)).expect("readable");
        assert!(changed.is_empty(), "{changed:?}");
    }

    #[test]
    fn where_a_host_would_not_get_it_back_no_more_is_given() {
        let given = |order: &str| {
            let (root, mut settings) =
                machine("always [madvise] never", "always defer [madvise] never");
            let sys = root.path().join("sys");
            let (device, parameters) = (
                sys.join("bus/virtio/drivers/virtio_balloon/virtio0"),
                sys.join("module/page_reporting/parameters"),
            );
            for directory in [&device, &parameters] {
                std::fs::create_dir_all(directory).expect("made");
            }
            std::fs::write(device.join("features"), "000001").expect("written");
            std::fs::write(parameters.join("page_reporting_order"), order).expect("written");
            first_touch(&mut settings, &generous(), usage(10))
                .is_ok_and(|changed| changed.is_empty())
        };
        assert!(given("9"));
        // The fixtures take no setting back in the kernel's form.
        assert!(!given("0") && !given("11"));
    }

    #[test]
    fn no_fault_compacts() {
        for (defrag, compacts) in [
            (Defrag::Always, true),
            (Defrag::Madvise, true),
            (Defrag::DeferMadvise, true),
            (Defrag::Defer, false),
            (Defrag::Never, false),
        ] {
            assert_eq!(may_compact(defrag), compacts, "{defrag:?}");
        }
    }
}
