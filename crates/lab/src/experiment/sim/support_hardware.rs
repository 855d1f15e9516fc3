//! The papers' machines, by their profiles.

use super::{Error, Result};
use superpage_sim::profile::Profile;
use superpage_sim::run::Hardware;
use superpage_sim::units::BytesPerSecond;
use superpage_units::{Nanos, PageSize};

/// The machine of a paper (see `crates/sim/src/profiles`).
pub(super) fn of(paper: &str) -> Result<Hardware> {
    let profile = Profile::named(paper).map_err(|error| Error::Simulation(error.to_string()))?;
    Ok(Hardware::native(profile))
}

/// The same, as a guest whose memory the host maps by pages of this size.
pub(super) fn guest_of(paper: &str, host: PageSize) -> Result<Hardware> {
    Ok(Hardware { host_pages: Some(host), ..of(paper)? })
}

/// The same, with its files on another of its devices.
pub(super) fn with_device(paper: &str, device: &str) -> Result<Hardware> {
    let mut hardware = of(paper)?;
    hardware.profile.swap = device.to_owned();
    Ok(hardware)
}

/// The same, for programs whose own threads read files ahead: nobody waits for a device.
pub(super) fn reading_ahead(paper: &str) -> Result<Hardware> {
    let mut hardware = of(paper)?;
    for device in hardware.profile.device.values_mut() {
        device.read_latency.value = Nanos::ZERO;
        device.write_latency.value = Nanos::ZERO;
        device.read_bandwidth.value = BytesPerSecond(u64::MAX);
        device.write_bandwidth.value = BytesPerSecond(u64::MAX);
    }
    Ok(hardware)
}
