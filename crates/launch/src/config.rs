//! The configuration that `superpage run` gives the library, as the text of one environment variable.

use core::fmt;
use superpage_units::Pid;

/// The environment variable that holds a [`Config`].
pub const VARIABLE: &str = "SUPERPAGE_RUN";

/// The longest path of the counters' file, in bytes.
pub const MAX_PATH: usize = 200; // /run, /tmp and a name of ours are far shorter

const VERSION: &str = "1";

/// What decides on page sizes in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A policy of the policy crate, by its name there.
    Named(Name),
    /// Nothing: the library is loaded and leaves all memory to the kernel.
    Off,
}

/// The name of a policy: a few dozen bytes, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; Self::LONGEST],
    length: usize,
}

impl Name {
    const LONGEST: usize = 32; // the longest of the policy crate's has 22

    /// This name; nothing if it is longer than all of the policy crate's.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::LONGEST];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { bytes, length: text.len() })
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|b| core::str::from_utf8(b).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl Policy {
    /// What `superpage run --policy off` says.
    pub const OFF: &str = "off";

    fn parse(text: &str) -> Option<Self> {
        if text == Self::OFF { Some(Self::Off) } else { Name::new(text).map(Self::Named) }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named(name) => name.as_str(),
            Self::Off => Self::OFF,
        })
    }
}

/// The configuration that `superpage run` gives the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config<'a> {
    /// The process of `superpage run`. The program is its child; a process with another parent is a
    /// child of the program.
    pub parent: Pid,
    /// What decides on page sizes.
    pub policy: Policy,
    /// Gigantic pages that are zeroed ahead of the first touch.
    pub ready: u32,
    /// The file of the [`Counters`](crate::Counters).
    pub counters: &'a str,
}

impl<'a> Config<'a> {
    /// Reads the text that [`Config`]'s `Display` wrote; `None` for any other text.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut fields = text.splitn(5, ',');
        let mut field = || fields.next();
        if field()? != VERSION {
            return None;
        }
        let parent = Pid(field()?.parse().ok()?);
        let policy = Policy::parse(field()?)?;
        let ready = field()?.parse().ok()?;
        let counters = field().filter(|path| path.len() <= MAX_PATH)?;
        Some(Self { parent, policy, ready, counters })
    }
}

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parent, policy, ready, counters } = self;
        write!(f, "{VERSION},{parent},{policy},{ready},{counters}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn what_is_written_is_read() {
        let trident = Policy::Named(Name::new("trident").expect("it is short"));
        for policy in [trident, Policy::Off] {
            let config = Config { parent: Pid(7), policy, ready: 2, counters: "/run/a,b c" };
            assert_eq!(Config::parse(&config.to_string()), Some(config));
        }
    }

    #[test]
    fn anything_else_is_nothing() {
        let long = std::format!("1,7,trident,2,/{}", "x".repeat(MAX_PATH));
        for text in ["", "2,7,trident,2,/a", "1,7", "1,x,trident,2,/a", "1,7,trident,-1,/a", &long]
        {
            assert_eq!(Config::parse(text), None, "{text}");
        }
        assert_eq!(Name::new(&"x".repeat(33)), None);
    }
}
