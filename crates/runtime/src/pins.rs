//! Whether somebody may write to the program's memory without its page tables: direct I/O, io_uring, AIO,
//! VFIO, RDMA, KVM, a graphics card. What they write while memory is copied is lost, and no check
//! afterwards shows it.
//!
//! Such writes need a descriptor, or a mapping that outlives it, so a program is refused that has one which is not
//! known to be harmless. One that has it open and reads nothing by it is refused as well.

use crate::sys::{self, Descriptor, Errno};
use core::ffi::CStr;

const TASKS: &CStr = c"/proc/self/task";
/// The library's threads share the program's memory, and live while the program's first thread may not.
const MAPS: &CStr = c"/proc/thread-self/maps";
/// The beginnings of the links of harmless descriptors, beside those of files.
const HARMLESS: [&[u8]; 18] = [
    b"pipe:[",
    b"socket:[",
    b"anon_inode:[eventfd]",
    b"anon_inode:[eventpoll]",
    b"anon_inode:[signalfd]",
    b"anon_inode:[timerfd]",
    b"anon_inode:[pidfd]",
    b"anon_inode:[userfaultfd]",
    b"anon_inode:inotify",
    b"/dev/null",
    b"/dev/zero",
    b"/dev/full",
    b"/dev/random",
    b"/dev/urandom",
    b"/dev/tty",
    b"/dev/pts/",
    b"/dev/shm/",
    b"/dev/console",
];
/// Mappings that such writes need: the ring of an AIO context, those of a socket that shares memory with a
/// network card, and those of an io_uring, whose descriptor may be closed.
const MAPPED: [&[u8]; 3] = [b"[aio]", b"socket:[", b"anon_inode:[io_uring]"];
/// The length of the longest of their names.
const LONGEST: usize = b"anon_inode:[io_uring]".len();
/// The bytes of a file or a directory that are read at a time.
const ROOM: usize = sys::PAGE;

/// Whether somebody may; `asking` is a thread of the program. Where it cannot be found out, somebody may.
pub(crate) fn may_be(asking: u32) -> bool {
    any_task(asking).unwrap_or(true) || is_mapped().unwrap_or(true)
}

/// Whether any table of descriptors of the process has one that is not harmless. Most threads share one, and
/// it is read once. That of the calling thread does not count if it is the library's.
fn any_task(asking: u32) -> sys::Result<bool> {
    if any_descriptor(asking)? {
        return Ok(true);
    }
    let own = sys::thread();
    let tasks = sys::open(TASKS, libc::O_RDONLY | libc::O_DIRECTORY)?;
    any_entry(&tasks, |name| {
        let Some(task) = number(name) else { return false };
        task != asking
            && ![asking, own].iter().any(|known| sys::share_descriptors(*known, task))
            // A thread that has ended meanwhile has none.
            && !matches!(any_descriptor(task), Ok(false) | Err(Errno::ENOENT | Errno::ESRCH))
    })
}

fn any_descriptor(task: u32) -> sys::Result<bool> {
    let mut path = Path::new();
    path.add(b"/proc/self/task/").ok_or(Errno::ENAMETOOLONG)?;
    path.add_number(task).ok_or(Errno::ENAMETOOLONG)?;
    let base = path;
    path.add(b"/fd").ok_or(Errno::ENAMETOOLONG)?;
    let directory = sys::open(path.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY)?;
    any_entry(&directory, |name| !is_harmless(&directory, base, name))
}

/// Whether any entry of a directory that begins with a digit is such.
fn any_entry(directory: &Descriptor, is_such: impl Fn(&[u8]) -> bool) -> sys::Result<bool> {
    let mut entries = [0; ROOM];
    loop {
        let length = sys::entries(directory, &mut entries)?;
        let mut rest = entries.get(..length).unwrap_or_default();
        if rest.is_empty() {
            return Ok(false);
        }
        while let Some((name, next)) = entry(rest) {
            if name.first().is_some_and(u8::is_ascii_digit) && is_such(name) {
                return Ok(true);
            }
            rest = next;
        }
    }
}

/// The number that a name with its zero is.
fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name.split_last()?.1).ok()?.parse().ok()
}

/// A path of bounded length.
#[derive(Clone, Copy, Debug)]
struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Path {
    const fn new() -> Self {
        Self { bytes: [0; 64], length: 0 }
    }

    /// Adds a part, and keeps a zero behind it.
    fn add(&mut self, part: &[u8]) -> Option<()> {
        let end = self.length + part.len();
        if end >= self.bytes.len() {
            return None;
        }
        self.bytes.get_mut(self.length..end)?.copy_from_slice(part);
        self.length = end;
        Some(())
    }

    fn add_number(&mut self, number: u32) -> Option<()> {
        let mut digits = [0; 10];
        let mut rest = number;
        let mut first = digits.len();
        while rest > 0 || first == digits.len() {
            first -= 1;
            *digits.get_mut(first)? = b'0' + u8::try_from(rest % 10).ok()?;
            rest /= 10;
        }
        self.add(digits.get(first..)?)
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// The name of the first entry of a directory as getdents64 tells them, with its zero, and the rest.
fn entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = entries.get(16..18)?;
    let length = usize::from(u16::from_ne_bytes([*length.first()?, *length.get(1)?]));
    let name = entries.get(19..length)?;
    let end = name.iter().position(|byte| *byte == 0)? + 1;
    Some((name.get(..end)?, entries.get(length..)?))
}

fn is_harmless(directory: &Descriptor, task: Path, name: &[u8]) -> bool {
    let mut link = [0; 64];
    let length = match sys::read_link(directory, name, &mut link) {
        // Closed meanwhile.
        Err(Errno::ENOENT) => return true,
        Err(_) => return false,
        Ok(length) => length,
    };
    let link = link.get(..length).unwrap_or_default();
    if HARMLESS.iter().any(|begin| link.starts_with(begin)) {
        return true;
    }
    let is_file = link.starts_with(b"/") && !link.starts_with(b"/dev/");
    is_file && flags(task, name).is_some_and(|flags| flags & DIRECT == 0)
}

const DIRECT: u64 = libc::O_DIRECT.unsigned_abs() as u64;

/// The flags that a descriptor of a task was opened with; those of one that was closed meanwhile are none.
fn flags(task: Path, name: &[u8]) -> Option<u64> {
    let mut path = task;
    path.add(b"/fdinfo/")?;
    path.add(name.split_last()?.1)?;
    let mut text = [0; 256];
    let length = match sys::open(path.as_c_str(), libc::O_RDONLY) {
        Err(Errno::ENOENT) => return Some(0),
        Err(_) => return None,
        Ok(file) => match sys::read(&file, &mut text) {
            Err(Errno::ENOENT) => return Some(0),
            read => read.ok()?,
        },
    };
    flags_in(text.get(..length)?)
}

/// The flags in the text of a file in fdinfo.
fn flags_in(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u64::from_str_radix(line.trim(), 8).ok()
}

/// Whether the memory map shows a mapping that such writes need.
fn is_mapped() -> sys::Result<bool> {
    let maps = sys::open(MAPS, libc::O_RDONLY)?;
    has_such(|room| sys::read(&maps, room))
}

/// Whether a memory map that is `read` piece by piece has such a mapping.
fn has_such(mut read: impl FnMut(&mut [u8]) -> sys::Result<usize>) -> sys::Result<bool> {
    let mut text = [0; ROOM];
    let mut kept = 0;
    loop {
        let room = text.get_mut(kept..).unwrap_or_default();
        let length = read(room)?;
        let seen = text.get(..kept + length).unwrap_or_default();
        if MAPPED.iter().any(|name| seen.windows(name.len()).any(|window| window == *name)) {
            return Ok(true);
        }
        if length == 0 {
            return Ok(false);
        }
        // The name may begin in one piece and end in the next.
        let tail = seen.len().min(LONGEST - 1);
        let start = seen.len() - tail;
        text.copy_within(start..start + tail, 0);
        kept = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn flags_are_read_in_octal() {
        assert_eq!(flags_in(b"pos:\t0\nflags:\t0140002\nmnt_id:\t21\n"), Some(0o140_002));
        assert_eq!(flags_in(b"pos:\t0\n"), None);
        assert_eq!(flags_in(b"flags:\t9\n"), None);
    }

    #[test]
    fn a_file_that_is_open_for_direct_io_is_seen() {
        // Other tests of this binary open files too, but none of them for direct I/O.
        let may_be = || may_be(sys::thread());
        assert!(!may_be());
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = directory.join("Cargo.toml");
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        let Ok(direct) = direct else { return }; // a file system without direct I/O
        assert!(may_be());
        drop(direct);
        assert!(!may_be());
    }

    #[test]
    fn a_path_ends_with_a_zero_and_has_an_end() {
        let mut path = Path::new();
        assert!(path.add(b"/proc/").is_some() && path.add_number(1_203).is_some());
        assert_eq!(path.as_c_str(), c"/proc/1203");
        assert!(path.add_number(0).is_some() && path.add(&[b'x'; 60]).is_none());
        assert_eq!(path.as_c_str(), c"/proc/12030");
    }

    /// An entry as getdents64 tells it.
    fn entry_of(name: &[u8]) -> Vec<u8> {
        let length = (19 + name.len() + 1).next_multiple_of(8);
        let mut entry = [7; 16].to_vec();
        entry.extend(u16::try_from(length).expect("it is short").to_ne_bytes());
        entry.push(4);
        entry.extend(name);
        entry.resize(length, 0);
        entry
    }

    proptest! {
        #[test]
        fn entries_of_a_directory_are_told_one_after_the_other(
            names in prop::collection::vec(prop::collection::vec(1_u8.., 0..40), 0..10),
        ) {
            let entries: Vec<u8> = names.iter().flat_map(|name| entry_of(name)).collect();
            let mut rest = &entries[..];
            for name in &names {
                let (told, next) = entry(rest).expect("there is one more");
                assert_eq!(told.split_last(), Some((&0, &name[..])));
                rest = next;
            }
            assert!(entry(rest).is_none());
        }

        #[test]
        fn any_bytes_have_an_end(bytes in prop::collection::vec(prop_oneof![0_u8..40, any::<u8>()], 0..300)) {
            let mut rest = &bytes[..];
            while let Some((_, next)) = entry(rest) {
                assert!(next.len() < rest.len());
                rest = next;
            }
            let _ = (flags_in(&bytes), number(&bytes));
        }

        #[test]
        fn numbers_are_written_and_read_as_text(number in prop_oneof![any::<u32>(), 0_u32..200]) {
            let mut path = Path::new();
            path.add_number(number).expect("there is room");
            assert_eq!(path.as_c_str().to_str(), Ok(&*std::format!("{number}")));
            assert_eq!(super::number(path.as_c_str().to_bytes_with_nul()), Some(number));
            let text = std::format!("pos:\t{number}\nflags:\t0{number:o}\nmnt_id:\t{number}\n");
            assert_eq!(flags_in(text.as_bytes()), Some(number.into()));
        }

        #[test]
        fn a_mapping_is_seen_wherever_the_pieces_of_the_map_end(
            before in 0..3 * ROOM,
            name in prop::sample::select(std::vec![
                "[aio]", "socket:[", "anon_inode:[io_uring]", "anon_inode:[io_urinG]", "[heap]",
            ]),
            behind in 0_usize..30,
            lengths in prop::collection::vec(prop_oneof![1_usize..30, 1..2 * ROOM], 1..6),
        ) {
            let text = [&std::vec![b'x'; before][..], name.as_bytes(), &std::vec![b'y'; behind]].concat();
            let mut rest = &text[..];
            let mut lengths = lengths.iter().cycle();
            let found = has_such(|room| {
                let most = rest.len().min(room.len());
                let length = lengths.next().map_or(most, |length| most.min(*length));
                let (piece, next) = rest.split_at(length);
                room[..length].copy_from_slice(piece);
                rest = next;
                Ok(length)
            });
            let expected = ["[aio]", "socket:[", "anon_inode:[io_uring]"].contains(&name);
            assert_eq!(found, Ok(expected));
        }
    }
}
