//! The progress of long work.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The progress of long work, which another thread may show.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// Begins a piece of work of so many parts (bytes, edges).
    pub fn begin(&self, all: u64) {
        self.done.store(0, Relaxed);
        self.all.store(all, Relaxed);
    }

    /// Adds parts that are done.
    pub fn add(&self, parts: u64) {
        self.done.fetch_add(parts, Relaxed);
    }

    /// The parts that are done, and all of them.
    #[must_use]
    pub fn now(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.all.load(Relaxed))
    }
}
