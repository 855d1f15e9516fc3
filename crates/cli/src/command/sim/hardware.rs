//! Which processor is simulated, and what work costs on it: a paper's machine, or a file.

use crate::exit::Failure;
use std::path::Path;
use superpage_sim::profile::{Profile, ProfileError};

/// The profile of this name, or in the file of this name.
pub(super) fn find(name: &str) -> Result<Profile, Failure> {
    let unknown = match Profile::named(name) {
        Ok(profile) => return Ok(profile),
        Err(error) => error,
    };
    if matches!(unknown, ProfileError::Unknown(_)) && Path::new(name).exists() {
        let text = std::fs::read_to_string(name)
            .map_err(|error| Failure::Usage(format!("{name} could not be read: {error}")))?;
        return Profile::from_toml(&text)
            .map_err(|error| Failure::Usage(format!("{name}: {error}")));
    }
    Err(Failure::Usage(format!("{unknown}, or give a file that `superpage lab calibrate` wrote")))
}
