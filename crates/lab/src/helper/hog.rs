//! Memory that is only held, locked, so that nothing of it can be swapped out.

use super::{Answer, Order, Play, refused};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::HugePages;

/// The memory.
pub(super) struct Hog {
    _memory: Vec<OwnMemory>,
}

impl Hog {
    pub(super) fn new(huge: HugePages, base: HugePages) -> Result<Self, String> {
        // Should memory become short after all, we are the ones to go.
        std::fs::write("/proc/self/oom_score_adj", "1000").map_err(|error| error.to_string())?;
        let lock = |(size, wish): (HugePages, Wish)| {
            let memory = OwnMemory::map(size, wish)?;
            memory.lock()?;
            Ok(memory)
        };
        let parts = [(huge, Wish::HugePages), (base, Wish::BasePages)];
        let parts = parts.into_iter().filter(|(size, _)| !size.is_zero());
        let memory: Result<_, superpage_kernel::Error> = parts.map(lock).collect();
        Ok(Self { _memory: memory.map_err(|error| error.to_string())? })
    }
}

impl Play for Hog {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        refused(order)
    }
}
