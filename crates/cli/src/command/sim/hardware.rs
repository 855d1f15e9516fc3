//! Which processor is simulated, and what work costs on it: the one place that knows.

use crate::exit::Failure;
use superpage_sim::run::{Hardware, plain};

/// The hardware of this name.
pub(super) fn find(name: &str) -> Result<Hardware, Failure> {
    if name != plain::NAME {
        return Err(Failure::Usage(format!(
            "there is no profile {name:?}; choose {}",
            plain::NAME
        )));
    }
    plain::hardware().map_err(|error| Failure::Usage(error.to_string()))
}
