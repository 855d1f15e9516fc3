//! The registries: every policy by name. Whoever has a policy of his own adds its line, and whatever
//! is given the registry knows it: simulations, configurations, help, and the tables of documents.

use crate::{debloat, promotion};
use alloc::vec::Vec;

/// The line of a registry.
pub trait Line: Copy + 'static {
    /// The lines that are here, in the order to show them.
    const ALL: &'static [Self];

    /// The name on the command line, in configurations and in results.
    fn name(&self) -> &'static str;
}

/// The policies of one kind that can be asked for by name.
#[derive(Clone, Debug)]
pub struct Registry<L> {
    lines: Vec<L>,
}

impl<L: Line> Registry<L> {
    /// All that are here.
    #[must_use]
    pub fn published() -> Self {
        Self { lines: L::ALL.to_vec() }
    }

    /// With one more, which comes before others of its name.
    #[must_use]
    pub fn with(mut self, line: L) -> Self {
        self.lines.insert(0, line);
        self
    }

    /// The line with this name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<L> {
        self.lines.iter().find(|line| line.name() == name).copied()
    }

    /// All lines, in the order to show them.
    #[must_use]
    pub fn entries(&self) -> &[L] {
        &self.lines
    }

    /// Their names, in the order to show them.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.lines.iter().map(Line::name).collect()
    }
}

/// The policies of every kind.
#[derive(Clone, Debug)]
pub struct Policies {
    /// The policies that decide when superpages are made.
    pub promotion: promotion::list::Registry,
    /// The policies that reclaim bloat.
    pub debloat: debloat::list::Registry,
}

impl Policies {
    /// All that are here.
    #[must_use]
    pub fn published() -> Self {
        Self { promotion: Registry::published(), debloat: Registry::published() }
    }
}
