//! Which process is meant: its number, and its name towards policies.

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;

/// A process's number. For showing and for taking hold of a process: numbers are given again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// Names a process towards a policy. Keys sort in the order of the processes' creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey(pub u64);

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_number_is_read_as_it_is_shown() {
        assert_eq!(Pid(1234).to_string().parse(), Ok(Pid(1234)));
        assert!("-1".parse::<Pid>().is_err() && "init".parse::<Pid>().is_err());
    }
}
