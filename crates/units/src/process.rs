//! A process's name. Not its number: numbers are given again.

/// Names a process towards a policy. Keys sort in the order of the processes' creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey(pub u64);
