//! How far a long piece of work is.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How far work is, for whoever wants to show it while others do it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// Begins a piece of work of so many parts (bytes, edges).
    pub(crate) fn begin(&self, all: u64) {
        self.done.store(0, Relaxed);
        self.all.store(all, Relaxed);
    }

    /// So many more parts are done.
    pub(crate) fn add(&self, parts: u64) {
        self.done.fetch_add(parts, Relaxed);
    }

    /// The parts that are done, and all of them.
    #[must_use]
    pub fn now(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.all.load(Relaxed))
    }
}
