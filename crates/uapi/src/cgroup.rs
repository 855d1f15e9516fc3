//! Memory cgroups, version 1 and 2: which group a process is in, and what the limits of our own groups leave.
//!
//! A machine carries the memory controller in exactly one hierarchy: the v1 hierarchy of that name, or the v2 hierarchy.
//! [cgroups(7)](https://man7.org/linux/man-pages/man7/cgroups.7.html),
//! [cgroup_namespaces(7)](https://man7.org/linux/man-pages/man7/cgroup_namespaces.7.html),
//! [Control Group v2](https://docs.kernel.org/admin-guide/cgroup-v2.html),
//! [Memory Resource Controller](https://docs.kernel.org/admin-guide/cgroup-v1/memory.html).
//!
//! # The rule
//!
//! A group with a limit leaves
//!
//! > limit − (usage − inactive_file − active_file) + swap
//!
//! and a process has the least that its own group and the groups above it leave.
//!
//! - File cache counts as free, because the kernel drops it before it kills or refuses: a full page cache is the usual state
//!   of a group at its limit. Both lists count; the active one is dropped later, but is dropped.
//! - Memory of tmpfs and shared memory is charged as cache and cannot be dropped. The kernel keeps it on the anonymous
//!   lists, so it does not count as free here, as it would by `cache` (v1) or `file` (v2).
//! - Reclaimable slab does not count as free: v1 does not tell it, and what is in use of it cannot be dropped.
//! - The limit is the lower of `memory.max` and `memory.high` in v2, because the kernel slows down what is over the second.
//!   In v1 `hierarchical_memory_limit` is, which knows limits of groups above that are not mounted here, too.
//! - Swap is what the caller counts as such, as far as the group may have it (`memory.swap.max`, `memory.memsw.limit_in_bytes`).
//!   The library in the program counts none: what it copies is there to stay in memory.

use crate::Result;
use crate::file::{File, Path};
use crate::text;
use core::ffi::CStr;
use core::fmt;
use superpage_units::Bytes;

/// Which interface a group speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.usage_in_bytes` and friends.
    V1,
    /// `memory.current` and friends.
    V2,
}

impl Version {
    /// The lines of `memory.stat` about file cache on the kernel's lists, with all groups below.
    #[must_use]
    pub const fn file_cache(self) -> [&'static str; 2] {
        match self {
            Self::V1 => ["total_inactive_file", "total_active_file"],
            Self::V2 => ["inactive_file", "active_file"],
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "version 1",
            Self::V2 => "version 2",
        })
    }
}

/// From here on a v1 limit means none: it is the largest signed number, rounded down to a page
/// of up to 64 KiB.
const NO_LIMIT_V1: u64 = (i64::MAX as u64) & !0xffff;

/// A limit as v1 has it; `None` for none.
#[must_use]
pub const fn limit_v1(limit: u64) -> Option<Bytes> {
    if limit < NO_LIMIT_V1 { Some(Bytes(limit)) } else { None }
}

/// A hierarchy that is mounted, by a line of a `mountinfo` file. The kernel writes some bytes of paths escaped ([`unescaped`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The version of the hierarchy: the v1 hierarchy of the memory controller, or the v2 hierarchy.
    pub version: Version,
    /// Which of its groups is mounted there: `/`, except in containers.
    pub base: &'a [u8],
    /// The place of the mount.
    pub point: &'a [u8],
}

/// `id parent device root mount options [tags…] - type source super-options`. The outer `None` is
/// for a line that is not that, the inner one for a mount that does not matter here.
#[must_use]
pub fn mount(line: &[u8]) -> Option<Option<Mount<'_>>> {
    let mut words = text::words(line).skip(3);
    let base = words.next()?;
    let point = words.next()?;
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = words.next()?;
    let mut options = words.last()?.split(|byte| *byte == b',');
    let version = match kind {
        b"cgroup" if options.any(|option| option == b"memory") => Version::V1,
        b"cgroup2" => Version::V2,
        _ => return Some(None),
    };
    Some(Some(Mount { version, base, point }))
}

/// The bytes that `word` means: the kernel writes space, tab, newline and backslash as `\ooo`.
pub fn unescaped(word: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = word;
    core::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        let code = if first == b'\\' { octal(after) } else { None };
        rest = if code.is_some() { &after[3..] } else { after };
        Some(code.unwrap_or(first))
    })
}

/// The byte that the first three digits of `digits` mean.
fn octal(digits: &[u8]) -> Option<u8> {
    let digits = core::str::from_utf8(digits.get(..3)?).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

/// A line of `/proc/PID/cgroup`: the path of a process's group in a hierarchy, as our cgroup namespace shows it. The path of a
/// process outside that namespace begins with `/..`, and is no path below any mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    hierarchy: u64,
    controllers: &'a [u8],
    /// The path of the group.
    pub group: &'a [u8],
}

impl<'a> Membership<'a> {
    /// `number:controllers:/path`; there may be colons in the path.
    #[must_use]
    pub fn of(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let hierarchy = text::decimal(parts.next()?)?;
        let controllers = parts.next()?;
        let group = parts.next()?;
        group.starts_with(b"/").then_some(Self { hierarchy, controllers, group })
    }

    /// Whether this is the line about the memory hierarchy, if that has `version`.
    #[must_use]
    pub fn is_in(&self, version: Version) -> bool {
        match version {
            Version::V1 => self.controllers.split(|byte| *byte == b',').any(|c| c == b"memory"),
            Version::V2 => self.hierarchy == 0 && self.controllers.is_empty(),
        }
    }
}

/// The path of `group` below the group `base` that is mounted, without a slash before it; `None` if it cannot be told: it lies
/// outside, or one of both lies outside our cgroup namespace. What is mounted may lie outside, too: then the paths of
/// processes are no paths below the mount.
#[must_use]
pub fn within<'a>(group: &'a [u8], base: &[u8]) -> Option<&'a [u8]> {
    let leaves_namespace = |path: &[u8]| components(path).any(|part| part == b"..");
    if leaves_namespace(group) || leaves_namespace(base) {
        return None;
    }
    let rest = group.strip_prefix(base.strip_suffix(b"/").unwrap_or(base))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// A group with a limit that this process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited<'a> {
    /// The path of its directory below the root.
    pub path: &'a [u8],
    /// The limit.
    pub limit: Bytes,
    /// The memory that the limit leaves, by [the rule](self#the-rule).
    pub left: Bytes,
}

/// Tells of each group with a limit that this process is in, the outermost first: of the group that `proc/self/cgroup` below
/// `root` (normally `/`) names, and of all groups above it that are mounted. A process that is outside of what is mounted, as
/// in some containers, has the mounted group as the nearest. A group whose limit cannot be read counts as one without. So much
/// `swap` counts as free.
///
/// # Errors
/// What the kernel says where it does not tell the mounts or the group; ENAMETOOLONG from [`crate::file::PATH`] on.
pub fn own_limits(root: &File, swap: Bytes, mut each: impl FnMut(Limited<'_>)) -> Result<()> {
    let Some(Mounted { version, base, point: mut path }) = mounted(root)? else { return Ok(()) };
    let own = own_group(root, version, base.as_bytes())?;
    let mut below = own.iter().flat_map(|own| components(own.as_bytes()));
    while let Ok(group) = root.directory_below(path.as_c_str()) {
        if let Some((limit, left)) = room(&group, version, swap) {
            each(Limited { path: path.as_bytes(), limit, left });
        }
        let Some(next) = below.next() else { break };
        path.push(*b"/")?;
        path.push(next.iter().copied())?;
    }
    Ok(())
}

/// A [`Mount`] of its own.
struct Mounted {
    version: Version,
    base: Path,
    point: Path,
}

impl Mounted {
    fn of(mount: Mount<'_>) -> Result<Self> {
        let point = mount.point.strip_prefix(b"/").unwrap_or(mount.point);
        let base = Path::of(unescaped(mount.base))?;
        Ok(Self { version: mount.version, base, point: Path::of(unescaped(point))? })
    }
}

/// The memory hierarchy. A v2 hierarchy beside that of v1 is without the memory controller.
fn mounted(root: &File) -> Result<Option<Mounted>> {
    let mut v2 = None;
    let v1 = root.open_below(c"proc/self/mountinfo")?.find_line(|line| {
        let found = mount(line)??;
        match found.version {
            Version::V1 => return Some(Mounted::of(found)),
            Version::V2 if v2.is_none() => v2 = Some(Mounted::of(found)),
            Version::V2 => {}
        }
        None
    })?;
    v1.or(v2).transpose()
}

/// The path of our own group below the group that is mounted.
fn own_group(root: &File, version: Version, base: &[u8]) -> Result<Option<Path>> {
    let found = root.open_below(c"proc/self/cgroup")?.find_line(|line| {
        let membership = Membership::of(line).filter(|membership| membership.is_in(version))?;
        Some(within(membership.group, base).map(|within| Path::of(within.iter().copied())))
    })?;
    found.flatten().transpose()
}

/// The limit of a group and what it leaves, if there is one.
fn room(group: &File, version: Version, swap: Bytes) -> Option<(Bytes, Bytes)> {
    match version {
        Version::V1 => room_v1(group, swap),
        Version::V2 => room_v2(group, swap),
    }
}

fn room_v1(group: &File, swap: Bytes) -> Option<(Bytes, Bytes)> {
    let [inactive, active] = Version::V1.file_cache();
    // The second limit is that of memory and swap together; a kernel that does not count swap has none.
    let names = ["hierarchical_memory_limit", "hierarchical_memsw_limit", inactive, active];
    let stat = group.open_below(c"memory.stat").ok()?;
    let [limit, both, inactive, active] = stat.numbers(names, text::statistic).ok()?;
    let limit = limit_v1(limit?)?;
    let cache = Bytes(inactive?) + Bytes(active?);
    let left = |limit: Bytes, used: Bytes| limit.saturating_sub(used.saturating_sub(cache));
    let memory = left(limit, number(group, c"memory.usage_in_bytes")?) + swap;
    let both = both
        .and_then(limit_v1)
        .and_then(|both| Some(left(both, number(group, c"memory.memsw.usage_in_bytes")?)));
    Some((limit, memory.min(both.unwrap_or(memory))))
}

fn room_v2(group: &File, swap: Bytes) -> Option<(Bytes, Bytes)> {
    let limits = [number(group, c"memory.max"), number(group, c"memory.high")];
    let limit = limits.into_iter().flatten().min()?;
    let stat = group.open_below(c"memory.stat").ok()?;
    let [inactive, active] = stat.numbers(Version::V2.file_cache(), text::statistic).ok()?;
    let used = number(group, c"memory.current")?;
    let left = limit.saturating_sub(used.saturating_sub(Bytes(inactive?) + Bytes(active?)));
    let swap_left = || {
        let most = number(group, c"memory.swap.max")?;
        Some(most.saturating_sub(number(group, c"memory.swap.current")?))
    };
    let swap = if swap > Bytes::ZERO { swap.min(swap_left().unwrap_or(swap)) } else { swap };
    Some((limit, left + swap))
}

/// The number in a file of a group; nothing if there is none, such as `max`.
fn number(group: &File, file: &CStr) -> Option<Bytes> {
    let file = group.open_below(file).ok()?;
    file.find_line(|line| text::decimal(line.trim_ascii())).ok()?.map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::CString;
    use std::format;
    use std::fs;
    use std::string::String;
    use std::vec::Vec;

    const MIB: u64 = 1 << 20;
    const V1: &str = "/ /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    const V2: &str = "/ /sys/fs/cgroup rw - cgroup2 cgroup2 rw";

    /// A root in which a process is in the group `own` of what is mounted.
    fn root(mounts: &[&str], own: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        let process = root.path().join("proc/self");
        fs::create_dir_all(&process).expect("created");
        // A line of another mount may be longer than what is read of one.
        let mut text = format!("1 0 8:1 / / rw - overlay o {}\n", "x".repeat(5000));
        text.extend(mounts.iter().map(|mount| format!("35 31 0:32 {mount}\n")));
        fs::write(process.join("mountinfo"), text).expect("written");
        fs::write(process.join("cgroup"), format!("5:cpu:/other\n{own}\n")).expect("written");
        root
    }

    fn group(root: &tempfile::TempDir, path: &str, files: &[(&str, String)]) {
        let path = root.path().join(path);
        fs::create_dir_all(&path).expect("created");
        for (name, content) in files {
            fs::write(path.join(name), content).expect("written");
        }
    }

    fn v1(root: &tempfile::TempDir, path: &str, limit: u64, [used, inactive, active]: [u64; 3]) {
        let stat = format!(
            "cache 9\nactive_file 7\nhierarchical_memory_limit {limit}\ntotal_inactive_file {}\ntotal_active_file {}\n",
            inactive * MIB,
            active * MIB
        );
        let used = format!("{}\n", used * MIB);
        group(root, path, &[("memory.stat", stat), ("memory.usage_in_bytes", used)]);
    }

    fn v2(root: &tempfile::TempDir, path: &str, limits: [&str; 2], all: [u64; 3]) {
        let [used, inactive, active] = all.map(|size| size * MIB);
        let stat = format!(
            "anon 1\nfile {used}\nshmem 5\ninactive_anon 3\ninactive_file {inactive}\nactive_file {active}\nslab_reclaimable 999999999\n"
        );
        let [max, high] = limits.map(String::from);
        let used = format!("{used}\n");
        let files = [("memory.max", max), ("memory.high", high), ("memory.current", used)];
        group(root, path, &files);
        group(root, path, &[("memory.stat", stat)]);
    }

    /// The groups with a limit: their path, and the limit and what it leaves in MiB.
    fn limits(root: &tempfile::TempDir) -> Vec<(String, u64, u64)> {
        let path = CString::new(root.path().as_os_str().as_encoded_bytes()).expect("no zero");
        let mut found = Vec::new();
        let root = File::directory(&path).expect("it is there");
        own_limits(&root, Bytes::ZERO, |group| {
            let path = String::from_utf8_lossy(group.path).into_owned();
            found.push((path, group.limit.0 / MIB, group.left.0 / MIB));
        })
        .expect("it reads");
        found
    }

    #[test]
    fn a_full_page_cache_is_free_in_version_2() {
        let root = root(&[V2], "0::/a/b");
        v2(&root, "sys/fs/cgroup/a", ["1073741824\n", "max\n"], [1024, 800, 100]);
        v2(&root, "sys/fs/cgroup/a/b", ["max\n", "536870912\n"], [512, 12, 300]);
        let expected =
            [("sys/fs/cgroup/a".into(), 1024, 900), ("sys/fs/cgroup/a/b".into(), 512, 312)];
        assert_eq!(limits(&root), expected);
        v2(&root, "sys/fs/cgroup/a", ["max\n", "max\n"], [1024, 800, 100]);
        assert_eq!(limits(&root), expected[1..]);
    }

    #[test]
    fn a_full_page_cache_is_free_in_version_1() {
        let unified = "/ /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let root = root(&[unified, V1], "4:devices,memory:/a/b\n0::/");
        let none = 0x7fff_ffff_ffff_f000;
        v1(&root, "sys/fs/cgroup/memory", none, [2048, 0, 0]);
        v1(&root, "sys/fs/cgroup/memory/a", 1 << 30, [1024, 800, 100]);
        // A group without a limit of its own states that of the group above.
        v1(&root, "sys/fs/cgroup/memory/a/b", 1 << 30, [1000, 800, 100]);
        let found = |path: &str, left| (format!("sys/fs/cgroup/memory/{path}"), 1024, left);
        assert_eq!(limits(&root), [found("a", 900), found("a/b", 924)]);
    }

    #[test]
    fn a_container_has_the_mounted_group_at_least() {
        let mount = "/box/one /sys/fs/my\\040cgroup ro - cgroup2 cgroup2 rw";
        for (own, expected) in [
            ("0::/box/one/deep", &[1000, 100][..]),
            ("0::/box/one", &[1000]),
            ("0::/box/one/gone", &[1000]),
            ("0::/box/oneself", &[1000]),
            ("0::/../two", &[1000]),
        ] {
            let root = root(&[mount], own);
            v2(&root, "sys/fs/my cgroup", ["1048576000", "max"], [0; 3]);
            v2(&root, "sys/fs/my cgroup/deep", ["104857600", "max"], [0; 3]);
            let left: Vec<u64> = limits(&root).iter().map(|(_, _, left)| *left).collect();
            assert_eq!(left, expected, "{own}");
        }
        assert_eq!(limits(&root(&[], "0::/a")), []);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(text: Vec<u8>, base: Vec<u8>) {
            let _ = mount(&text);
            let _ = Membership::of(&text);
            let _ = unescaped(&text).count();
            let _ = within(&text, &base);
        }
    }
}
