//! The part of the configuration that is about gigantic pages: `[gigantic]`.

use super::Percent;
use serde::Deserialize;
use superpage_units::Share;

/// Which gigantic pages are kept free in the kernel's pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GiganticConfig {
    /// The pages that are kept free for any program that maps them; 0: the pool is left alone.
    pub free: u64,
    /// The share of memory that the pool may have, used and free pages together.
    pub most: Share,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GiganticFile {
    free: u64,
    most: Percent,
}

impl Default for GiganticFile {
    fn default() -> Self {
        // Chosen, not measured: most of memory stays for pages that can be smaller.
        Self { free: 0, most: Percent(Share::percent(25)) }
    }
}

impl From<GiganticFile> for GiganticConfig {
    fn from(file: GiganticFile) -> Self {
        Self { free: file.free, most: file.most.0 }
    }
}
