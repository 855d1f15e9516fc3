//! The configuration that `superpage run` gives the library, as the text of one environment variable.

use core::fmt;
use superpage_units::{Bytes, Pid};

/// The environment variable that holds a [`Config`].
pub const VARIABLE: &str = "SUPERPAGE_RUN";

/// The environment variable that keeps the library out of a program, if it is there and not empty.
pub const OUT: &str = "SUPERPAGE_OFF";

/// The value that an entry of an environment (`NAME=VALUE`, with its zero or without) gives the variable `name`; `None` if
/// it is about another variable.
#[must_use]
pub fn value_of<'a>(name: &str, entry: &'a [u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// The part of the machine's memory that stays available, one in so many: nothing is taken for gigantic pages below
/// it, and what they hold for nothing is given back. Chosen, not measured.
pub const KEPT: u64 = 8;

/// The most gigantic pages that are kept ready ahead of first touches: what `--ready` may say.
pub const MOST_READY: usize = 16;

const VERSION: &str = "9";

/// The name of no policy, with which the library leaves all memory to the kernel, of no promotion, and of no heap.
pub const OFF: &str = "off";
const PROMOTE: &str = "safe";

/// The part of a heap's file that lets pages be written to fresh places while all of the heap is in the file.
pub const SPARE: Bytes = Bytes(64 << 20);

/// The most that the program may have in a heap: the library keeps no more addresses.
pub const MOST_SIZE: Bytes = Bytes::from_gib(1024);

/// The least memory that a heap may have. 20,000 words of 128 MiB at random take 0.93 s with it, 0.92 s with 8 MiB, 1.06 s with 4 MiB, and
/// 2.9 s with 2 MiB, which is one huge page (medians of three rounds).
pub const LEAST_MEMORY: Bytes = Bytes(16 << 20);

/// A file that the process of `superpage run` has open. The library opens it once more, and takes it only if it is this one:
/// another process may have the number of that process, in another namespace or after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Its number among the descriptors of the process.
    pub descriptor: u32,
    /// The device that it lies on, and its number there, as fstat(2) tells them.
    pub identity: (u64, u64),
}

impl OpenFile {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let descriptor = parts.next()?.parse().ok()?;
        let identity = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(Self { descriptor, identity })
    }
}

impl fmt::Display for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptor, identity: (device, inode) } = self;
        write!(f, "{descriptor}:{device}:{inode}")
    }
}

/// A heap that may be larger than memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Its file.
    pub file: OpenFile,
    /// The most that the program may map in it. For each process the file has what that has mapped, and [`SPARE`].
    pub size: Bytes,
    /// The memory that the heap may take.
    pub memory: Bytes,
    /// The memory that others are to find available: while it is less, the heap takes less. Zero if the heap does not care.
    pub keep_available: Bytes,
}

impl Heap {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let file = OpenFile::parse(parts.next()?)?;
        let mut bytes = || parts.next()?.parse().ok().map(Bytes);
        Some(Self { file, size: bytes()?, memory: bytes()?, keep_available: bytes()? })
    }
}

impl fmt::Display for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, size, memory, keep_available } = self;
        write!(f, "{file}/{}/{}/{}", size.0, memory.0, keep_available.0)
    }
}

/// The configuration that `superpage run` gives the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config<'a> {
    /// The process of `superpage run`. The program is its child; a process with another parent is a
    /// child of the program.
    pub parent: Pid,
    /// Whether children of the program are managed as well.
    pub children: bool,
    /// The policy of page sizes, by its name in the policy crate, or [`OFF`].
    pub policy: &'a str,
    /// Whether smaller pages are copied to gigantic ones, after the first touch.
    pub promote: bool,
    /// Gigantic pages that are zeroed ahead of the first touch.
    pub ready: u32,
    /// The heap in which the program's memory lives; `None` if that is memory.
    pub heap: Option<Heap>,
    /// The file of the [`Counters`](crate::Counters).
    pub counters: OpenFile,
}

impl<'a> Config<'a> {
    /// Reads the text that [`Config`]'s `Display` wrote; `None` for any other text.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut fields = text.split(',');
        let mut field = || fields.next();
        if field()? != VERSION {
            return None;
        }
        let parent = Pid(field()?.parse().ok()?);
        let children = match field()? {
            "alone" => false,
            "children" => true,
            _ => return None,
        };
        let policy = field()?;
        let promote = match field()? {
            OFF => false,
            PROMOTE => true,
            _ => return None,
        };
        let ready = field()?.parse().ok()?;
        let heap = match field()? {
            OFF => None,
            heap => Some(Heap::parse(heap)?),
        };
        let counters = OpenFile::parse(field()?)?;
        if field().is_some() {
            return None;
        }
        Some(Self { parent, children, policy, promote, ready, heap, counters })
    }
}

impl Config<'_> {
    /// Whether a process with this parent is to be managed.
    #[must_use]
    pub fn manages(&self, parent: Pid) -> bool {
        self.children || self.parent == parent
    }
}

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parent, children, policy, promote, ready, heap, counters } = self;
        let whom = if *children { "children" } else { "alone" };
        write!(
            f,
            "{VERSION},{parent},{whom},{policy},{},{ready},",
            if *promote { PROMOTE } else { OFF }
        )?;
        match heap {
            Some(heap) => write!(f, "{heap},{counters}"),
            None => write!(f, "{OFF},{counters}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn what_is_written_is_read() {
        for children in [false, true] {
            let counters = OpenFile { descriptor: 6, identity: (1, u64::MAX) };
            let (parent, policy) = (Pid(7), "trident");
            let heap = Heap {
                file: OpenFile { descriptor: 5, identity: (2, 3) },
                size: Bytes(1 << 33),
                memory: Bytes(1 << 31),
                keep_available: Bytes(1 << 30),
            };
            let config = |promote, heap| Config {
                parent,
                children,
                policy,
                promote,
                ready: 2,
                heap,
                counters,
            };
            for promote in [false, true] {
                for heap in [None, Some(heap)] {
                    let config = config(promote, heap);
                    assert_eq!(Config::parse(&config.to_string()), Some(config));
                }
            }
            let config = config(false, None);
            assert!(config.manages(Pid(7)) && config.manages(Pid(8)) == children);
        }
    }

    #[test]
    fn a_value_is_that_of_the_whole_name() {
        assert_eq!(value_of(OUT, b"SUPERPAGE_OFF=1"), Some(b"1".as_slice()));
        assert_eq!(value_of(OUT, b"SUPERPAGE_OFFER=1"), None);
        assert_eq!(value_of(VARIABLE, b"SUPERPAGE_OFF=1"), None);
    }

    #[test]
    fn anything_else_is_nothing() {
        for text in [
            "",
            "1,7,alone,trident,safe,2,off,4",
            "9,7",
            "9,x,alone,trident,safe,2,off,4:1:2",
            "9,7,some,trident,safe,2,off,4:1:2",
            "9,7,alone,trident,x,2,off,4:1:2",
            "9,7,alone,trident,safe,-1,off,4:1:2",
            "9,7,alone,trident,safe,2,1/2,4:1:2",
            "9,7,alone,trident,safe,2,off,4",
            "9,7,alone,trident,safe,2,off,4:1:2:3",
            "9,7,alone,trident,safe,2,off,4:1:2,5",
        ] {
            assert_eq!(Config::parse(text), None, "{text}");
        }
    }
}
