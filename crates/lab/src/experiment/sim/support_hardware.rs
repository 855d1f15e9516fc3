//! The papers' machines, by their profiles.

use super::{Error, Result};
use superpage_policy::page::PageSize;
use superpage_sim::profile::Profile;
use superpage_sim::run::Hardware;

/// The machine of a paper (see `crates/sim/src/profiles`).
pub(super) fn of(paper: &str) -> Result<Hardware> {
    let profile = Profile::named(paper).map_err(|error| Error::Simulation(error.to_string()))?;
    Ok(Hardware::native(profile))
}

/// The same, as a guest whose memory the host maps by pages of this size.
pub(super) fn guest_of(paper: &str, host: PageSize) -> Result<Hardware> {
    Ok(Hardware { host_pages: Some(host), ..of(paper)? })
}
