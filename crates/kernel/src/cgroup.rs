//! Memory cgroups, version 1 and 2 behind one type: who is in a group, what it uses, its limit.
//!
//! A machine carries the memory controller in exactly one hierarchy: the v1 hierarchy of that
//! name, or the v2 hierarchy. [`Hierarchy::find`] says which; a v2 mount beside it without the
//! controller is of no use here. Nothing here changes anybody's group; [`Scratch`] is one of our own.
//! [cgroups(7)](https://man7.org/linux/man-pages/man7/cgroups.7.html),
//! [Control Group v2](https://docs.kernel.org/admin-guide/cgroup-v2.html),
//! [Memory Resource Controller](https://docs.kernel.org/admin-guide/cgroup-v1/memory.html).

mod scratch;

pub use scratch::Scratch;
pub use superpage_uapi::cgroup::Version;

use crate::error::{Error, Result};
use crate::process::{self, Process};
use crate::text;
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use superpage_uapi::cgroup as uapi;
use superpage_uapi::file::File;
use superpage_units::{Bytes, Pid};

/// The remedy where the cgroups of processes cannot be told from here.
pub const SHARE_NAMESPACE: &str = "Run superpage in the cgroup namespace of the host, with all of its cgroups mounted: a \
     container with `--cgroupns=host` and `-v /sys/fs/cgroup:/sys/fs/cgroup:ro`.";

/// The hierarchy that carries the memory controller, as it is mounted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    mount: PathBuf,
    /// Which of its groups is mounted there: `/`, except in containers.
    base: PathBuf,
}

impl Hierarchy {
    /// The memory hierarchy according to `proc/self/mountinfo` under `root` (normally `/`), or
    /// `None` if none is mounted or the controller is switched off.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
    pub fn find(root: &Path) -> Result<Option<Self>> {
        let path = root.join("proc/self/mountinfo");
        let candidates = mounts(&text::read(&path)?, &path)?;
        let found =
            candidates.into_iter().map(|found| Self { mount: below(root, &found.mount), ..found });
        let (v1, v2): (Vec<_>, Vec<_>) = found.partition(|found| found.version == Version::V1);
        let v2 = v2.into_iter().filter(Self::has_memory_controller);
        Ok(v1.into_iter().chain(v2).next())
    }

    /// Which version it is.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The group that `process` is in, or `None` if it cannot be told from here ([`Hierarchy::directory`]).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`]; [`Error::Missing`] if the group
    /// was removed.
    pub fn group_of(&self, process: &Process) -> Result<Option<Group>> {
        let text = process.read_file("cgroup")?;
        self.directory(&text, &process.path("cgroup"))?
            .map(|directory| Group::open(&directory))
            .transpose()
    }

    /// The directory of the group that the text of a `/proc/PID/cgroup` file names, or `None` if that cannot be told from
    /// here: the group lies outside what is mounted, or outside our cgroup namespace. `path` is for the message if the text
    /// cannot be understood.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn directory(&self, text: &[u8], path: &Path) -> Result<Option<PathBuf>> {
        for (number, line) in text::lines(text) {
            let membership = uapi::Membership::of(line).ok_or_else(|| {
                Error::malformed(path, number, "'number:controllers:/path'", line)
            })?;
            if membership.is_in(self.version) {
                let within = uapi::within(membership.group, self.base.as_os_str().as_bytes());
                return Ok(within.map(|within| self.mount.join(OsStr::from_bytes(within))));
            }
        }
        Ok(None)
    }

    /// The processes whose group cannot be told from here ([`Hierarchy::directory`]), of those that `proc` shows.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Denied`] if `proc` cannot be listed.
    pub fn hidden(&self, proc: &Path) -> Result<Vec<Pid>> {
        let is_hidden = |pid: &Pid| {
            let path = proc.join(pid.to_string()).join("cgroup");
            // A process that has exited hides nothing.
            let text = text::read(&path);
            text.is_ok_and(|text| self.directory(&text, &path) == Ok(None))
        };
        Ok(process::list(proc)?.into_iter().filter(is_hidden).collect())
    }

    fn has_memory_controller(&self) -> bool {
        lists_memory(&self.mount.join("cgroup.controllers"))
    }
}

/// Whether the file at `path`, a list of controllers, has `memory` in it.
fn lists_memory(path: &Path) -> bool {
    text::read(path).is_ok_and(|list| text::words(list.trim_ascii()).any(|word| word == b"memory"))
}

/// `path`, which is absolute, as it appears under `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The mounts of a v1 memory hierarchy or of the v2 hierarchy in the text of a `mountinfo` file.
fn mounts(text: &[u8], path: &Path) -> Result<Vec<Hierarchy>> {
    text::lines(text)
        .map(|(number, line)| {
            mount(line).ok_or_else(|| Error::malformed(path, number, "a mount", line))
        })
        .filter_map(Result::transpose)
        .collect()
}

/// The hierarchy that a line of a `mountinfo` file is about; as [`uapi::mount`].
fn mount(line: &[u8]) -> Option<Option<Hierarchy>> {
    let hierarchy = |found: uapi::Mount<'_>| Hierarchy {
        version: found.version,
        mount: unescaped(found.point),
        base: unescaped(found.base),
    };
    uapi::mount(line).map(|found| found.map(hierarchy))
}

/// The path that `word` means; as [`uapi::unescaped`].
pub(crate) fn unescaped(word: &[u8]) -> PathBuf {
    let bytes: Vec<u8> = uapi::unescaped(word).collect();
    PathBuf::from(OsStr::from_bytes(&bytes))
}

/// What a group uses and may use, with all groups below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// All memory charged to it, file cache included.
    pub current: Bytes,
    /// What of it reclaim would not get back without cost: all but the file cache.
    pub working: Bytes,
    /// What it may use; `None` if it has no limit of its own. A group above it may have one.
    pub limit: Option<Bytes>,
    /// Where the kernel begins to slow it down and to reclaim from it (v2 only).
    pub high: Option<Bytes>,
}

/// A memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    version: Version,
    path: PathBuf,
}

impl Group {
    /// The group whose directory is at the absolute path `path`.
    ///
    /// # Errors
    /// [`Error::Missing`] if there is no such directory, [`Error::Refused`] if it is not a memory
    /// cgroup.
    pub fn open(path: &Path) -> Result<Self> {
        let refuse = |reason| Error::Refused { path: path.to_owned(), reason };
        if !path.is_absolute() {
            return Err(refuse("a cgroup is named by its absolute path"));
        }
        if !path.is_dir() {
            return Err(Error::Missing { path: path.to_owned() });
        }
        let group = |version| Self { version, path: path.to_owned() };
        if path.join("memory.usage_in_bytes").exists() {
            Ok(group(Version::V1))
        } else if lists_memory(&path.join("cgroup.controllers")) {
            Ok(group(Version::V2))
        } else if path.join("cgroup.controllers").exists() {
            Err(refuse("the memory controller is not enabled for this cgroup"))
        } else {
            Err(refuse("it is not a memory cgroup"))
        }
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which interface it speaks.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The memory at which the kernel begins to reclaim from it, by a limit of its own; `None` without.
    /// This reads one or two short files, where [`Group::usage`] has the kernel sum its accounts up.
    ///
    /// # Errors
    /// As [`Group::usage`].
    pub fn least_limit(&self) -> Result<Option<Bytes>> {
        match self.version {
            Version::V1 => self.limit_v1("memory.limit_in_bytes"),
            Version::V2 => {
                let limits = [self.limit_v2("memory.max")?, self.limit_v2("memory.high")?];
                Ok(limits.into_iter().flatten().min())
            }
        }
    }

    /// The memory charged to the group now, file cache included. One short file is read for it.
    ///
    /// # Errors
    /// As [`Group::usage`].
    pub fn current(&self) -> Result<Bytes> {
        let file = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        text::read_decimal(&self.path.join(file)).map(Bytes)
    }

    /// What it uses and may use now.
    ///
    /// # Errors
    /// [`Error::Missing`] if it was removed, or is the root of the v2 hierarchy, which has no
    /// accounts; [`Error::Malformed`].
    pub fn usage(&self) -> Result<Usage> {
        let (current, limit) = match self.version {
            Version::V1 => ("memory.usage_in_bytes", self.limit_v1("memory.limit_in_bytes")?),
            Version::V2 => ("memory.current", self.limit_v2("memory.max")?),
        };
        let current = Bytes(text::read_decimal(&self.path.join(current))?);
        let [inactive, active] = self.version.file_cache();
        let file_cache = self.statistic(inactive)? + self.statistic(active)?;
        let high = match self.version {
            Version::V1 => None,
            Version::V2 => self.limit_v2("memory.high")?,
        };
        Ok(Usage { current, working: current.saturating_sub(file_cache), limit, high })
    }

    /// The most memory that was ever charged to it at once.
    ///
    /// # Errors
    /// [`Error::Missing`] if it was removed, or on a v2 kernel without `memory.peak` (5.19);
    /// [`Error::Malformed`].
    pub fn peak(&self) -> Result<Bytes> {
        let file = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        text::read_decimal(&self.path.join(file)).map(Bytes)
    }

    /// The numbers of the processes in it and in all groups below it, in ascending order. Only
    /// those that our pid namespace shows.
    ///
    /// # Errors
    /// [`Error::Missing`] if it was removed, [`Error::Denied`], [`Error::Malformed`].
    pub fn processes(&self) -> Result<Vec<Pid>> {
        let mut pids = Vec::new();
        let mut directories = vec![self.path.clone()];
        while let Some(directory) = directories.pop() {
            match members(&directory, &mut pids).and_then(|()| children(&directory)) {
                Ok(found) => directories.extend(found),
                // Groups below come and go while we look.
                Err(error) if directory != self.path && is_removed(&error) => {}
                Err(error) => return Err(error),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn limit_v1(&self, file: &str) -> Result<Option<Bytes>> {
        text::read_decimal(&self.path.join(file)).map(uapi::limit_v1)
    }

    fn limit_v2(&self, file: &str) -> Result<Option<Bytes>> {
        let path = self.path.join(file);
        match text::read(&path)?.trim_ascii() {
            b"max" => Ok(None),
            digits => text::decimal(digits)
                .map(|limit| Some(Bytes(limit)))
                .ok_or_else(|| Error::malformed(&path, 1, "a number of bytes or 'max'", digits)),
        }
    }

    /// How many processes of it, and of the groups below it, the kernel has killed because it was at its limit.
    ///
    /// # Errors
    /// [`Error::Missing`] if it was removed, or is the root of the v2 hierarchy; [`Error::Malformed`].
    pub fn kills(&self) -> Result<u64> {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        self.number(file, "oom_kill")
    }

    /// The line `name` of `memory.stat`.
    fn statistic(&self, name: &'static str) -> Result<Bytes> {
        self.number("memory.stat", name).map(Bytes)
    }

    /// The line `name` of a file of such lines.
    fn number(&self, file: &str, name: &'static str) -> Result<u64> {
        let path = self.path.join(file);
        let text = text::read(&path)?;
        let malformed = |number, found: &[u8]| {
            Error::malformed(&path, number, "a line 'name number' for each statistic", found)
        };
        for (number, line) in text::lines(&text) {
            let mut words = text::words(line);
            if words.next() == Some(name.as_bytes()) {
                let value = words.next().and_then(text::decimal);
                return value.ok_or_else(|| malformed(number, line));
            }
        }
        Err(malformed(0, name.as_bytes()))
    }
}

/// The groups with a limit that this process is in, the outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The directory of the group.
    pub path: PathBuf,
    /// The limit.
    pub limit: Bytes,
    /// The memory that the limit leaves, by [the rule](uapi#the-rule).
    pub left: Bytes,
}

/// The groups with a limit that this process is in, as [`uapi::own_limits`] finds them below `root` (normally `/`) with so much
/// swap space.
///
/// # Errors
/// As it; [`Error::Missing`] without `root`.
pub fn own_limits(root: &Path, swap: Bytes) -> Result<Vec<Limited>> {
    let failed = |errno: Errno| Error::from_io(&errno.into(), "find the cgroups of", root);
    let path = CString::new(root.as_os_str().as_bytes()).map_err(|_| failed(Errno::INVAL))?;
    let mut found = Vec::new();
    let each = |one: uapi::Limited<'_>| {
        let path = root.join(OsStr::from_bytes(one.path));
        found.push(Limited { path, limit: one.limit, left: one.left });
    };
    File::directory(&path).and_then(|root| uapi::own_limits(&root, swap, each)).map_err(failed)?;
    Ok(found)
}

/// Adds the processes that are in the group at `directory` itself.
fn members(directory: &Path, pids: &mut Vec<Pid>) -> Result<()> {
    let path = directory.join("cgroup.procs");
    let text = match text::read(&path) {
        // A threaded group; its processes are listed by the group above that holds them.
        Err(Error::Unsupported { .. }) => return Ok(()),
        other => other?,
    };
    for (number, line) in text::lines(&text) {
        let pid = text::decimal(line).and_then(|pid| u32::try_from(pid).ok());
        match pid {
            // Somebody in a pid namespace that we do not see.
            Some(0) => {}
            Some(pid) => pids.push(Pid(pid)),
            None => return Err(Error::malformed(&path, number, "a pid", line)),
        }
    }
    Ok(())
}

/// The groups right below the one at `directory`.
fn children(directory: &Path) -> Result<Vec<PathBuf>> {
    let fail = |error: std::io::Error| Error::from_io(&error, "list", directory);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn is_removed(error: &Error) -> bool {
    let nodev = |errno: &Errno| *errno == Errno::NODEV;
    matches!(error, Error::Missing { .. })
        || matches!(error, Error::Failed { errno, .. } if nodev(errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
    }

    fn v1() -> Hierarchy {
        Hierarchy::find(&fixture("cgroup_v1")).expect("reads").expect("has one")
    }

    fn v2() -> Hierarchy {
        Hierarchy::find(&fixture("cgroup_v2")).expect("reads").expect("has one")
    }

    fn group(hierarchy: &Hierarchy, name: &str) -> Group {
        Group::open(&hierarchy.mount().join(name)).expect("the fixture is good")
    }

    #[test]
    fn the_controller_is_found_in_either_version() {
        assert_eq!(v1().version(), Version::V1);
        assert_eq!(v1().mount(), fixture("cgroup_v1/sys/fs/cgroup/memory"));
        assert_eq!(v2().version(), Version::V2);
        assert_eq!(v2().mount(), fixture("cgroup_v2/sys/fs/cgroup"));
        let missing = Hierarchy::find(Path::new("/nonexistent"));
        assert!(matches!(missing, Err(Error::Missing { .. })));
    }

    #[test]
    fn a_machine_may_do_without() {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(root.path().join("proc/self")).expect("created");
        let mounts =
            "41 31 0:38 / /unified rw - cgroup2 cgroup2 rw\n1 0 8:1 / / rw - ext4 /dev/sda rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), mounts).expect("written");
        assert_eq!(Hierarchy::find(root.path()), Ok(None));
        fs::write(root.path().join("proc/self/mountinfo"), "1 0 8:1 /\n").expect("written");
        let bad = Hierarchy::find(root.path());
        assert!(matches!(bad, Err(Error::Malformed { line: 1, .. })), "{bad:?}");
    }

    #[test]
    fn a_process_names_its_group_in_every_hierarchy() {
        let path = Path::new("cgroup");
        let text = b"5:cpu:/a\n4:devices,memory:/system.slice/redis.service\n0::/b:c\n";
        let one = v1().directory(text, path).expect("good").expect("inside");
        assert_eq!(one, v1().mount().join("system.slice/redis.service"));
        let two = v2().directory(text, path).expect("good").expect("inside");
        assert_eq!(two, v2().mount().join("b:c"));
        assert_eq!(v1().directory(b"0::/x\n", path), Ok(None));
        let bad = v1().directory(b"4:memory:relative\n", path);
        assert!(matches!(bad, Err(Error::Malformed { line: 1, .. })));
    }

    #[test]
    fn a_container_sees_only_its_own_branch() {
        let line = b"30 25 0:26 /box/one /sys/fs/cgroup/my\\040memory ro - cgroup cgroup rw,memory";
        let found = mount(line).expect("a mount").expect("of the memory controller");
        assert_eq!(found.mount(), Path::new("/sys/fs/cgroup/my memory"));
        let at = |text: &str| found.directory(text.as_bytes(), Path::new("cgroup"));
        let inside = PathBuf::from("/sys/fs/cgroup/my memory/deep");
        assert_eq!(at("4:memory:/box/one/deep\n"), Ok(Some(inside)));
        assert_eq!(at("4:memory:/box/two\n"), Ok(None));
    }

    #[test]
    fn what_lies_outside_our_namespace_cannot_be_told() {
        let mounted = |version: &str, base: &str| {
            let kind =
                if version == "1" { "cgroup cgroup rw,memory" } else { "cgroup2 cgroup2 rw" };
            let line = format!("30 25 0:26 {base} /sys/fs/cgroup rw - {kind}");
            mount(line.as_bytes()).expect("a mount").expect("of cgroups")
        };
        let root = Some(PathBuf::from("/sys/fs/cgroup"));
        for (base, group, expected) in [
            ("/", "/", root.clone()),
            ("/", "/a..b/..c", root.map(|root| root.join("a..b/..c"))),
            ("/", "/..", None),
            ("/", "/../..", None),
            ("/", "/../kubepods/pod", None),
            // Mounted before the namespace was left: the root of the mount is outside, and what is inside looks like all.
            ("/..", "/", None),
            ("/../..", "/../../kubepods/pod", None),
        ] {
            for (version, head) in [("1", "4:memory:"), ("2", "0::")] {
                let text = format!("{head}{group}\n");
                let found = mounted(version, base).directory(text.as_bytes(), Path::new("cgroup"));
                assert_eq!(found, Ok(expected.clone()), "version {version}: {group} below {base}");
            }
        }
    }

    #[test]
    fn processes_of_other_namespaces_are_counted() {
        let proc = tempfile::tempdir().expect("a temporary directory");
        for (pid, group) in [("1", "0::/..\n"), ("2", "0::/a\n"), ("3", "bad\n"), ("4", "")] {
            fs::create_dir(proc.path().join(pid)).expect("created");
            fs::write(proc.path().join(pid).join("cgroup"), group).expect("written");
        }
        let hidden = v2().hidden(proc.path());
        assert_eq!(hidden, Ok([1, 4].map(Pid).to_vec()));
    }

    #[test]
    fn usage_reads_in_version_1() {
        let redis = group(&v1(), "system.slice/redis.service").usage().expect("good");
        assert_eq!(redis.current, Bytes::from_mib(150));
        assert_eq!(redis.working, Bytes::from_mib(130));
        assert_eq!((redis.limit, redis.high), (None, None));
        let slice = group(&v1(), "system.slice").usage().expect("good");
        assert_eq!(slice.limit, Some(Bytes::from_mib(256)));
        let least = |name| group(&v1(), name).least_limit();
        assert_eq!(least("system.slice"), Ok(slice.limit));
        assert_eq!(least("system.slice/redis.service"), Ok(None));
        assert_eq!(group(&v1(), "system.slice").processes(), Ok(vec![Pid(4201)]));
    }

    #[test]
    fn usage_reads_in_version_2() {
        let app = group(&v2(), "app.slice").usage().expect("good");
        assert_eq!(app.current, Bytes::from_gib(5));
        assert_eq!(app.working, Bytes::from_mib(4096));
        assert_eq!((app.limit, app.high), (Some(Bytes::from_gib(8)), None));
        let redis = group(&v2(), "app.slice/redis.service").usage().expect("good");
        assert_eq!((redis.limit, redis.high), (None, Some(Bytes::from_mib(4608))));
        let least = |name| group(&v2(), name).least_limit();
        assert_eq!(least("app.slice"), Ok(app.limit));
        assert_eq!(least("app.slice/redis.service"), Ok(redis.high));
        // Descendants too; no number twice, none of another pid namespace.
        let pids = group(&v2(), "app.slice").processes();
        assert_eq!(pids, Ok([811, 812, 900, 901].map(Pid).to_vec()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cache = group(&v2(), "app.slice/cache.service").usage().expect_err("bad limit");
        assert!(cache.to_string().contains("memory.max:1: expected"), "{cache}");
        let root = group(&v2(), "").usage().expect_err("the root has no accounts");
        assert!(matches!(root, Error::Missing { .. }), "{root}");
        let refused = |path: &Path| matches!(Group::open(path), Err(Error::Refused { .. }));
        assert!(refused(&v2().mount().join("plain.slice")));
        assert!(refused(&fixture("proc")));
        assert!(refused(Path::new("relative")));
        let missing = Group::open(&v2().mount().join("nobody"));
        assert!(matches!(missing, Err(Error::Missing { .. })));
    }

    /// As the kernel escapes a path in `mountinfo`.
    fn escaped(path: &str) -> String {
        path.bytes()
            .map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}"),
                byte => char::from(byte).to_string(),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(text: Vec<u8>) {
            let path = Path::new("x");
            let _ = mounts(&text, path);
            let _ = v1().directory(&text, path);
            let _ = v2().directory(&text, path);
            let _ = unescaped(&text);
        }

        #[test]
        fn what_is_written_is_read(base in "/[a-z \t\n\\\\]{0,9}", at in "/[a-z \t\n\\\\]{0,9}") {
            let (root, point) = (escaped(&base), escaped(&at));
            let line = format!("30 25 0:26 {root} {point} rw shared:9 - cgroup c rw,cpu,memory");
            let expected = Hierarchy { version: Version::V1, mount: at.into(), base: base.into() };
            prop_assert_eq!(mount(line.as_bytes()), Some(Some(expected)));
        }
    }
}
