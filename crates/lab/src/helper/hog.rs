//! Memory that is only held, locked, so that nothing of it can be swapped out.

use super::{Answer, Order, Play, refused};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::HugePages;

/// The memory.
pub(super) struct Hog {
    _memory: OwnMemory,
}

impl Hog {
    pub(super) fn new(size: HugePages) -> Result<Self, String> {
        // Should memory become short after all, we are the ones to go.
        std::fs::write("/proc/self/oom_score_adj", "1000").map_err(|error| error.to_string())?;
        let memory = OwnMemory::map(size, Wish::HugePages).map_err(|error| error.to_string())?;
        memory.lock().map_err(|error| error.to_string())?;
        Ok(Self { _memory: memory })
    }
}

impl Play for Hog {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        refused(order)
    }
}
