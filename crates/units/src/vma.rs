//! VMAs of virtual memory (VMAs), and how a range in one is mapped: observations as plain values.

use crate::{Page, VirtAddr};

/// What a VMA of virtual memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmaKind {
    /// Anonymous memory: heaps, mappings without a file.
    Anonymous,
    /// A thread's stack.
    Stack,
    /// Pages of a file.
    File,
}

/// Whether a VMA is expected to become longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It stays as it is.
    Fixed,
    /// It grows at its end, as a heap does.
    Up,
}

/// What the program said about a VMA (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    None,
    /// Huge pages, please.
    Huge,
    /// No huge pages.
    NoHuge,
}

/// A range of a process's virtual memory with one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// Its first address.
    pub start: VirtAddr,
    /// The first address after it.
    pub end: VirtAddr,
    /// What it holds.
    pub kind: VmaKind,
    /// Whether it grows.
    pub growth: Growth,
    /// What the program asked for.
    pub advice: Advice,
}

impl Vma {
    /// Whether the whole page lies in it, so that it could be mapped by one entry of that size.
    #[must_use]
    pub fn holds(&self, page: Page) -> bool {
        self.start <= page.start() && page.end() <= self.end
    }
}

/// How a range is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// Not at all.
    #[default]
    Empty,
    /// By base pages, some of them perhaps missing.
    Base,
    /// By one huge page.
    Huge,
    /// As part of a gigantic page.
    Gigantic,
}
