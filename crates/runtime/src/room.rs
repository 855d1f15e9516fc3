//! The ordinary memory that the program can still have: the machine's, and its cgroups'. `kernel` reads the
//! same files with allocations, which threads of a guest may not make.

use crate::sys;
use core::ffi::CStr;
use superpage_launch::KEPT;
use superpage_units::Bytes;

const MEMINFO: &CStr = c"/proc/meminfo";
const CGROUP: &CStr = c"/proc/self/cgroup";
/// The bytes of a file that are read.
const ROOM: usize = 600;
const CGROUPS: &[u8] = b"/sys/fs/cgroup";

/// Memory that can be had without taking it from anybody. None where that cannot be found out.
pub(crate) fn available() -> Bytes {
    machine().unwrap_or_default().min(cgroups().unwrap_or(Bytes(u64::MAX)))
}

/// Whether memory is short on the machine: less than its [`KEPT`] part is available. Gigantic pages are no charge to the
/// process's cgroup, whose limit does not count here.
pub(crate) fn is_short() -> bool {
    let both = |text: &[u8]| Some((available_in(text)?, total_in(text)?));
    meminfo(both).is_some_and(|(available, total)| available.0 < total.0 / KEPT)
}

/// The memory that the kernel says is available.
fn machine() -> Option<Bytes> {
    meminfo(available_in)
}

/// The memory of the machine; zero where it cannot be found out.
pub(crate) fn total() -> Bytes {
    meminfo(total_in).unwrap_or_default()
}

/// Reads `/proc/meminfo`, as far as its third line.
fn meminfo<T>(read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let mut text = [0; ROOM];
    let file = sys::open(MEMINFO, libc::O_RDONLY).ok()?;
    let length = sys::read(&file, &mut text).ok()?;
    read(text.get(..length)?)
}

fn available_in(text: &[u8]) -> Option<Bytes> {
    field(text, "MemAvailable:")
}

fn total_in(text: &[u8]) -> Option<Bytes> {
    field(text, "MemTotal:")
}

fn field(text: &[u8], name: &str) -> Option<Bytes> {
    let text = core::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kilobytes * 1024))
}

/// The memory that the cgroups of the process leave, each of them and those around it; nothing without cgroup v2.
fn cgroups() -> Option<Bytes> {
    let mut text = [0; ROOM];
    let file = sys::open(CGROUP, libc::O_RDONLY).ok()?;
    let length = sys::read(&file, &mut text).ok()?;
    let line = text
        .get(..length)?
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    let mut group = line;
    let mut least = Bytes(u64::MAX);
    loop {
        if let (Some(limit), Some(used)) =
            (value(group, b"/memory.max"), value(group, b"/memory.current"))
        {
            least = least.min(Bytes(limit.saturating_sub(used)));
        }
        let Some(parent) = group.iter().rposition(|byte| *byte == b'/').filter(|at| *at > 0) else {
            return Some(least);
        };
        group = group.get(..parent)?;
    }
}

/// The number in a file of a cgroup; nothing if there is none, such as `max`.
fn value(group: &[u8], file: &[u8]) -> Option<u64> {
    let mut path = [0; ROOM + 40];
    let mut end = 0;
    for part in [CGROUPS, group, file] {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    sys::number(CStr::from_bytes_until_nul(&path).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    #[test]
    fn available_memory_is_read() {
        let text = b"MemTotal:       24683956 kB\nMemFree: 1 kB\nMemAvailable:   23533000 kB\nBuffers: 2 kB\n";
        assert_eq!(available_in(text), Some(Bytes(23_533_000 * 1024)));
        assert_eq!(available_in(b"MemTotal: 1 kB\n"), None);
        assert!(machine().is_some_and(|bytes| bytes > Bytes(1 << 20)));
    }

    #[test]
    fn a_file_of_a_cgroup_that_is_not_there_has_no_number() {
        assert_eq!(value(b"/no such cgroup", b"/memory.max"), None);
        assert_eq!(
            value(&[b'x'; ROOM + 40], b"/memory.max"),
            None,
            "there is no room for its path"
        );
    }

    proptest! {
        #[test]
        fn the_first_line_of_a_name_is_read(
            lines in prop::collection::vec(
                (prop::sample::select(std::vec!["MemTotal", "MemAvailable", "MemFree", "HugePages_Total"]),
                 0_u64..1 << 50, 0_usize..9, prop::sample::select(std::vec![" kB", "", " MB"])),
                0..12,
            ),
        ) {
            let text: String = lines
                .iter()
                .map(|(name, value, width, unit)| std::format!("{name}: {value:>width$}{unit}\n"))
                .collect();
            let first = |wanted: &str| {
                let (_, value, _, unit) = lines.iter().find(|(name, ..)| *name == wanted)?;
                (*unit == " kB").then_some(Bytes(value * 1024))
            };
            assert_eq!(available_in(text.as_bytes()), first("MemAvailable"));
            assert_eq!(total_in(text.as_bytes()), first("MemTotal"));
        }

        #[test]
        fn any_bytes_have_an_amount_or_none(
            rest in prop::collection::vec(prop_oneof![0x30_u8..0x3a, any::<u8>()], 0..60),
        ) {
            let text = [b"MemTotal: ", &rest[..], b" kB\n"].concat();
            let _ = total_in(&text);
        }
    }
}
