//! `/proc/PID/status`, `/proc/PID/stat` and `/proc/PID/comm`: who a process is, its size, and its cpuset's nodes.
//!
//! Also the names of users, from `/etc/passwd`; other name services are not asked.
//! [proc_pid_status(5)](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html),
//! [proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html),
//! [passwd(5)](https://man7.org/linux/man-pages/man5/passwd.5.html).

use crate::error::{Error, Result};
use crate::meminfo::Fields;
use crate::node::NodeSet;
use crate::process::Process;
use crate::text;
use bitflags::bitflags;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, Nanos, Pid};

/// A user's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub u32);

/// A time in clock ticks (normally 10 ms). As the point since the machine started at which a
/// process was started, it tells one process from another, together with the pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

/// What `status` says. The sizes are `None` for a kernel thread and for a process that is ending,
/// which have no memory of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its command, up to 15 bytes; the name of the kernel thread.
    pub name: Vec<u8>,
    /// The process that the thread belongs to; equals the pid unless the pid is a thread's.
    pub tgid: Pid,
    /// Who started it.
    pub real_uid: Uid,
    /// Whose rights it has.
    pub effective_uid: Uid,
    /// Resident memory.
    pub rss: Option<Bytes>,
    /// The most that was ever resident.
    pub peak_rss: Option<Bytes>,
    /// Resident anonymous memory (Linux 4.5).
    pub rss_anon: Option<Bytes>,
    /// Swapped-out memory.
    pub swap: Option<Bytes>,
    /// Memory locked by mlock(2), which is not to be touched.
    pub locked: Option<Bytes>,
    /// Hugetlb pages of all sizes, which are not in `rss` (Linux 4.4).
    pub hugetlb: Option<Bytes>,
    /// The nodes on which its cpuset lets it have memory; `None` on a kernel without.
    pub allowed_nodes: Option<NodeSet>,
}

/// What `status` says about `process`.
///
/// # Errors
/// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
pub fn of(process: &Process) -> Result<Status> {
    parse(&process.read_file("status")?, &process.path("status"))
}

/// The number of `process` as it knows itself: another one than ours where it is in a PID namespace below.
///
/// # Errors
/// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
pub fn own_number(process: &Process) -> Result<Pid> {
    // Kernels without such namespaces have no such line.
    Ok(last_number(process, "NSpid")?.unwrap_or(process.pid()))
}

/// The number of the process whose child `process` is; 0 if that is out of sight.
///
/// # Errors
/// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
pub fn parent(process: &Process) -> Result<Pid> {
    Ok(last_number(process, "PPid")?.unwrap_or(Pid(0)))
}

fn last_number(process: &Process, key: &str) -> Result<Option<Pid>> {
    let (text, path) = (process.read_file("status")?, process.path("status"));
    let Some((line, numbers)) = Fields::of(&text, &path).find(key) else { return Ok(None) };
    let number = text::words(numbers).last().and_then(small).map(Pid);
    number.map(Some).ok_or_else(|| Error::malformed(&path, line, "pids", numbers))
}

/// The resident memory of process `pid`, from its `statm` under `proc_root` (normally `/proc`): the
/// cheapest thing there is to ask of a process.
///
/// # Errors
/// [`Error::Missing`] if there is none, [`Error::Denied`], [`Error::Malformed`].
pub fn resident(proc_root: &Path, pid: Pid) -> Result<Bytes> {
    let path = proc_root.join(pid.to_string()).join("statm");
    let text = text::read(&path)?;
    let pages = text::words(&text).nth(1).and_then(text::decimal);
    let pages = pages.ok_or_else(|| Error::malformed(&path, 1, "sizes in pages", &text))?;
    Ok(BasePages(pages).bytes())
}

/// The hugetlb memory of process `pid`, from its `status` under `proc_root` (normally `/proc`); none for a
/// thread of the kernel.
///
/// # Errors
/// [`Error::Missing`] if there is no such process, [`Error::Denied`], [`Error::Malformed`].
pub fn hugetlb(proc_root: &Path, pid: Pid) -> Result<Bytes> {
    let path = proc_root.join(pid.to_string()).join("status");
    let text = text::read(&path)?;
    Ok(Fields::of(&text, &path).optional_size("HugetlbPages")?.unwrap_or_default())
}

/// Understands the text of a `status` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`].
pub fn parse(text: &[u8], path: &Path) -> Result<Status> {
    let fields = Fields::of(text, path);
    let (_, name) = fields.require("Name", "a line with the name")?;
    let (tgid_line, tgid) = fields.require("Tgid", "a line with the process")?;
    let (uid_line, uids) = fields.require("Uid", "a line with the users")?;
    let mut uids = text::words(uids).map(small);
    let (Some(Some(real)), Some(Some(effective))) = (uids.next(), uids.next()) else {
        return Err(Error::malformed(path, uid_line, "real and effective uid", b""));
    };
    let nodes = |(line, list): (usize, &[u8])| {
        NodeSet::parse(list).ok_or_else(|| Error::malformed(path, line, "a list of nodes", list))
    };
    Ok(Status {
        name: unescaped(name),
        tgid: small(tgid)
            .map(Pid)
            .ok_or_else(|| Error::malformed(path, tgid_line, "a pid", tgid))?,
        real_uid: Uid(real),
        effective_uid: Uid(effective),
        rss: fields.optional_size("VmRSS")?,
        peak_rss: fields.optional_size("VmHWM")?,
        rss_anon: fields.optional_size("RssAnon")?,
        swap: fields.optional_size("VmSwap")?,
        locked: fields.optional_size("VmLck")?,
        hugetlb: fields.optional_size("HugetlbPages")?,
        allowed_nodes: fields.find("Mems_allowed_list").map(nodes).transpose()?,
    })
}

fn small(word: &[u8]) -> Option<u32> {
    text::decimal(word)?.try_into().ok()
}

/// The name that `status` shows with newline and backslash as `\n` and `\\`.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = match (byte, bytes.peek()) {
            (b'\\', Some(b'n')) => Some(b'\n'),
            (b'\\', Some(b'\\')) => Some(b'\\'),
            _ => None,
        };
        if escaped.is_some() {
            bytes.next();
        }
        plain.push(escaped.unwrap_or(byte));
    }
    plain
}

bitflags! {
    /// The kernel's `PF_` flags of a process, from linux/sched.h. Those not known here are kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ProcessFlags: u32 {
        /// The process is a thread of the kernel; proc_pid_stat(5) documents the flag.
        const KTHREAD = 0x0020_0000;
    }
}

/// What `stat` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its command, up to 15 bytes (a kernel thread's may be longer).
    pub comm: Vec<u8>,
    /// The letter of its state, such as `R`, `S`, `D`, `Z`.
    pub state: u8,
    /// What it is and does.
    pub flags: ProcessFlags,
    /// Page faults served from memory, of all its threads.
    pub minor_faults: u64,
    /// Page faults that had to read.
    pub major_faults: u64,
    /// CPU time of all its threads, in user space and in the kernel.
    pub cpu: Ticks,
    /// When it was started.
    pub start: Ticks,
    /// Resident memory, to within some pages for each of its threads and CPUs.
    pub resident: Bytes,
}

impl Ticks {
    /// The time as a length.
    #[must_use]
    pub fn time(self) -> Nanos {
        const SECOND: u64 = 1_000_000_000;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Nanos(self.0.saturating_mul(SECOND / per_second))
    }
}

impl Stat {
    /// Whether it is a thread of the kernel, which has no memory of its own.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.flags.contains(ProcessFlags::KTHREAD)
    }
}

/// What `stat` says about `process`.
///
/// # Errors
/// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
pub fn stat_of(process: &Process) -> Result<Stat> {
    parse_stat(&process.read_file("stat")?, &process.path("stat"))
}

/// Understands the text of a `stat` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`].
pub fn parse_stat(text: &[u8], path: &Path) -> Result<Stat> {
    stat(text).ok_or_else(|| Error::malformed(path, 1, "'pid (comm) state …', 24 fields", text))
}

/// `pid (comm) state …`. There may be spaces and parentheses in `comm`, none after it.
fn stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let comm = text.get(open + 1..close)?.to_vec();
    let rest = text[close + 1..].trim_ascii_end();
    // Counted as in the manual page, where the state is field 3.
    let field = |number: usize| text::words(rest).nth(number - 3);
    let &[state] = field(3)? else { return None };
    let number = |at: usize| text::decimal(field(at)?);
    Some(Stat {
        comm,
        state,
        flags: ProcessFlags::from_bits_retain(small(field(9)?)?),
        minor_faults: number(10)?,
        major_faults: number(12)?, // tidy: allow(a field)
        cpu: Ticks(number(14)?.saturating_add(number(15)?)),
        start: Ticks(number(22)?),
        resident: Bytes(number(24)?.saturating_mul(BASE_PAGE_BYTES)),
    })
}

/// Whether a thread with this text in its `stat` file is scheduled before all ordinary ones (`SCHED_FIFO`, `SCHED_RR`,
/// `SCHED_DEADLINE`; [sched(7)](https://man7.org/linux/man-pages/man7/sched.7.html)); not where the text says nothing about it.
pub(crate) fn is_real_time(text: &[u8]) -> bool {
    // In the manual page `policy` is field 41, and the state, the first behind the command, is field 3.
    let rest = text.iter().rposition(|byte| *byte == b')').map(|close| &text[close + 1..]);
    let policy =
        rest.and_then(|rest| text::decimal(text::words(rest.trim_ascii_end()).nth(41 - 3)?));
    matches!(policy, Some(1 | 2 | 6)) // tidy: allow(SCHED_FIFO, SCHED_RR, SCHED_DEADLINE)
}

/// The command of `process`, up to 15 bytes. The process itself can change it at any time.
///
/// # Errors
/// [`Error::Gone`], [`Error::Denied`].
pub fn comm(process: &Process) -> Result<Vec<u8>> {
    let mut text = process.read_file("comm")?;
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    Ok(text)
}

/// The name of user `uid` in `etc/passwd` under `root` (normally `/`), if it has one there.
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`].
pub fn user_name(root: &Path, uid: Uid) -> Result<Option<String>> {
    let text = text::read(&root.join("etc/passwd"))?;
    let found = users(&text).find(|(_, number)| *number == uid);
    Ok(found.map(|(name, _)| String::from_utf8_lossy(name).into_owned()))
}

/// The number of the user called `name` in `etc/passwd` under `root` (normally `/`).
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`].
pub fn uid_of(root: &Path, name: &str) -> Result<Option<Uid>> {
    let text = text::read(&root.join("etc/passwd"))?;
    let found = users(&text).find(|(found, _)| *found == name.as_bytes());
    Ok(found.map(|(_, uid)| uid))
}

/// The lines `name:password:uid:…`; others (comments, references to name services) are left out.
fn users(text: &[u8]) -> impl Iterator<Item = (&[u8], Uid)> {
    text::lines(text).filter_map(|(_, line)| {
        let mut parts = line.split(|byte| *byte == b':');
        let name = parts.next().filter(|name| !name.is_empty())?;
        Some((name, Uid(small(parts.nth(1)?)?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATUS: &[u8] = include_bytes!("../tests/fixtures/proc/status");
    const KERNEL_STATUS: &[u8] = include_bytes!("../tests/fixtures/proc/status.kernel_thread");
    const STAT: &[u8] = include_bytes!("../tests/fixtures/proc/stat");
    const KERNEL_STAT: &[u8] = include_bytes!("../tests/fixtures/proc/stat.kernel_thread");

    fn fixtures() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures"))
    }

    fn parsed(text: &[u8]) -> Result<Status> {
        parse(text, Path::new("status"))
    }

    fn parsed_stat(text: &[u8]) -> Result<Stat> {
        parse_stat(text, Path::new("stat"))
    }

    #[test]
    fn a_process_has_a_number_and_a_parent() {
        let us = Process::current().expect("our own process opens");
        assert_eq!(own_number(&us), Ok(us.pid()));
        assert_eq!(parent(&us), Ok(Pid(std::os::unix::process::parent_id())));
    }

    #[test]
    fn a_real_status_reads() {
        let status = parsed(STATUS).expect("the fixture is good");
        assert_eq!(status.name, b"two\nlines");
        assert_eq!((status.real_uid, status.effective_uid), (Uid(104), Uid(0)));
        assert_eq!(status.rss, Some(Bytes::from_kib(2128)));
        assert_eq!(status.rss_anon, Some(Bytes::from_kib(156)));
        assert_eq!(status.locked, Some(Bytes::from_kib(64)));
        assert_eq!(status.hugetlb, Some(Bytes::ZERO));
        assert_eq!(status.allowed_nodes, NodeSet::parse(b"0"));
    }

    #[test]
    fn a_kernel_thread_has_no_memory() {
        let status = parsed(KERNEL_STATUS).expect("the fixture is good");
        assert_eq!((status.tgid, status.rss, status.locked), (Pid(2), None, None));
        let stat = parsed_stat(KERNEL_STAT).expect("the fixture is good");
        assert_eq!(stat.comm, b"kthreadd");
        assert!(stat.is_kernel_thread());
    }

    #[test]
    fn a_command_may_look_like_the_fields_after_it() {
        let stat = parsed_stat(STAT).expect("the fixture is good");
        assert_eq!(stat.comm, b"tricky) R (x");
        assert_eq!((stat.state, stat.flags.bits()), (b'R', 4_194_304));
        assert_eq!(stat.start, Ticks(214_848));
        assert_eq!((stat.minor_faults, stat.major_faults, stat.cpu), (263, 0, Ticks(0)));
        assert!(!stat.is_kernel_thread());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let missing = parsed(b"Name:\tx\nTgid:\t1\n").expect_err("no Uid");
        assert!(missing.to_string().contains("Uid"), "{missing}");
        let half = parsed(b"Name:\tx\nTgid:\t1\nUid:\t0\n");
        assert!(matches!(half, Err(Error::Malformed { line: 3, .. })), "{half:?}");
        let nodes = parsed(b"Name:\tx\nTgid:\t1\nUid:\t0\t0\nMems_allowed_list:\t1-0\n");
        assert!(matches!(nodes, Err(Error::Malformed { line: 4, .. })), "{nodes:?}");
        for bad in [&b""[..], b"1 x R", b"1 )x( R", b"1 (x) R 1 2 3", b"1 (x)"] {
            assert!(matches!(parsed_stat(bad), Err(Error::Malformed { .. })), "{bad:?}");
        }
    }

    #[test]
    fn we_know_ourselves() {
        let me = Process::current().expect("we are alive");
        let (status, stat) = (of(&me).expect("reads"), stat_of(&me).expect("reads"));
        assert_eq!(status.tgid, me.pid());
        assert_eq!(status.effective_uid, Uid(rustix::process::geteuid().as_raw()));
        assert_eq!(comm(&me), Ok(stat.comm.clone()));
        assert_eq!(hugetlb(Path::new("/proc"), me.pid()), Ok(Bytes::ZERO));
        assert!(!stat.is_kernel_thread());
        let theirs = procfs::process::Process::myself().and_then(|me| me.stat());
        let theirs = theirs.expect("procfs reads it too");
        assert_eq!((stat.start.0, stat.flags.bits()), (theirs.starttime, theirs.flags));
    }

    #[test]
    fn users_have_names_and_numbers() {
        let root = fixtures();
        assert_eq!(user_name(root, Uid(104)), Ok(Some("redis".to_owned())));
        assert_eq!(user_name(root, Uid(7)), Ok(None));
        assert_eq!(uid_of(root, "daemon"), Ok(Some(Uid(1))));
        assert_eq!(uid_of(root, "huge"), Ok(None));
        assert_eq!(uid_of(root, "+"), Ok(None));
        assert!(matches!(uid_of(Path::new("/nonexistent"), "x"), Err(Error::Missing { .. })));
    }

    #[test]
    fn the_scheduling_policy_is_field_41() {
        let text = |policy| {
            let fields: Vec<String> =
                (4..=52).map(|at| if at == 41 { policy } else { at }.to_string()).collect();
            format!("7 (a) b) S {}\n", fields.join(" "))
        };
        for (policy, is_it) in [(0, false), (1, true), (2, true), (3, false), (5, false), (6, true)]
        {
            assert_eq!(is_real_time(text(policy).as_bytes()), is_it, "{policy}");
        }
        assert!(!is_real_time(b"7 (a) S 1 2 3\n") && !is_real_time(b""));
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(STATUS, parsed);
        text::fuzz::never_panics(STAT, is_real_time);
        text::fuzz::never_panics(STAT, parsed_stat);
        text::fuzz::never_panics(b"redis:x:104:104::/:/bin/false\n", |text| users(text).count());
    }

    proptest! {
        #[test]
        fn a_written_stat_is_read(comm: Vec<u8>, state in b'A'..=b'Z', flags: u32, counts: [u32; 6]) {
            let mut text = b"42 (".to_vec();
            text.extend_from_slice(&comm);
            let letter = char::from(state);
            text.extend_from_slice(format!(") {letter} 1 1 1 0 -1 {flags}").as_bytes());
            let [minor, major, user, system, start, pages] = counts.map(u64::from);
            text.extend_from_slice(format!(" {minor} 0 {major} 0 {user} {system}").as_bytes());
            text.extend_from_slice(&b" 0".repeat(6));
            text.extend_from_slice(format!(" {start} 0 {pages} 0\n").as_bytes());
            let (cpu, start) = (Ticks(user + system), Ticks(start));
            let (minor_faults, major_faults) = (minor, major);
            let flags = ProcessFlags::from_bits_retain(flags);
            let resident = BasePages(pages).bytes();
            let stat =
                Stat { comm, state, flags, minor_faults, major_faults, cpu, start, resident };
            prop_assert_eq!(parsed_stat(&text), Ok(stat));
        }

        #[test]
        fn a_written_status_is_read(name in "[a-z\n\\\\]{1,15}", ids: [u32; 3], rss: u32) {
            let [tgid, real, effective] = ids;
            let shown = name.replace('\\', "\\\\").replace('\n', "\\n");
            let text = format!(
                "Name:\t{shown}\nTgid:\t{tgid}\nUid:\t{real}\t{effective}\t0\t0\nVmRSS:\t{rss:8} kB\n"
            );
            let status = parsed(text.as_bytes()).expect("good");
            prop_assert_eq!(status.name, name.into_bytes());
            prop_assert_eq!(status.tgid, Pid(tgid));
            prop_assert_eq!((status.real_uid, status.effective_uid), (Uid(real), Uid(effective)));
            prop_assert_eq!(status.rss, Some(Bytes::from_kib(rss.into())));
            prop_assert_eq!(status.locked, None);
        }
    }
}
