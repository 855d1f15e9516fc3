//! What this kernel and these rights allow: each ability tried once, on memory of our own.
//!
//! Every answer is yes, no, or could not tell, with the reason and what to do about it. Never by
//! version number: distributions move features both ways. Changes nothing on the system.

#![expect(unsafe_code, reason = "makes a userfaultfd")]

use crate::cgroup;
use crate::error::{Error, Result};
use crate::hugetlb::{self, Pool};
use crate::kpageflags::{self, Contiguous, ENOUGH};
use crate::maps;
use crate::meminfo;
use crate::own_child::OwnChild;
use crate::own_memory::{OwnMemory, Wish};
use crate::pagemap::{Mapping, Pagemap};
use crate::pressure::Trigger;
use crate::process::Process;
use crate::process_madvise;
use crate::rights::Rights;
use crate::sample::{Content, Sampler};
use crate::thp::{self, Enabled, Thp};
use crate::tracked_writes;
use crate::width::to_usize;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::path::Path;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, GIGANTIC_PAGE_BYTES, HugePages,
    Nanos, PageSize, PmdRange, VirtAddr,
};

/// Something that the rest of the program builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ability {
    /// Pinning a process by pidfd.
    HoldProcesses,
    /// Finding huge pages by PAGEMAP_SCAN.
    FindHugePages,
    /// Reading pages by process_vm_readv.
    ReadMemory,
    /// Getting a huge page at all.
    MakeHugePages,
    /// Splitting a huge page frees its zero-filled base pages.
    SplitAndFree,
    /// Splitting a huge page without forgetting which of its pages were written to.
    KeepTracking,
    /// Turning a range back into a huge page by MADV_COLLAPSE.
    Collapse,
    /// Doing all that to processes of other users.
    ReachOthers,
    /// Holding khugepaged back by its `max_ptes_none`.
    HoldKhugepaged,
    /// Being woken by memory pressure.
    Pressure,
    /// Reading memory use by cgroup.
    Cgroups,
    /// The kernel's own de-bloater, to compare with.
    UnderusedShrinker,
    /// Hearing of first touches, for `superpage run`.
    HearFirstTouches,
    /// Gigantic pages, for `superpage run`.
    GiganticPages,
}

impl Ability {
    /// All of them, in the order to show them.
    pub const ALL: [Self; 14] = [
        Self::HoldProcesses,
        Self::FindHugePages,
        Self::ReadMemory,
        Self::MakeHugePages,
        Self::SplitAndFree,
        Self::KeepTracking,
        Self::Collapse,
        Self::ReachOthers,
        Self::HoldKhugepaged,
        Self::Pressure,
        Self::Cgroups,
        Self::UnderusedShrinker,
        Self::HearFirstTouches,
        Self::GiganticPages,
    ];

    /// What de-bloating cannot do without.
    pub const ESSENTIAL: [Self; 4] =
        [Self::HoldProcesses, Self::FindHugePages, Self::ReadMemory, Self::SplitAndFree];

    /// A short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HoldProcesses => "hold-processes",
            Self::FindHugePages => "find-huge-pages",
            Self::ReadMemory => "read-memory",
            Self::MakeHugePages => "make-huge-pages",
            Self::SplitAndFree => "split-and-free",
            Self::KeepTracking => "keep-tracking",
            Self::Collapse => "collapse",
            Self::ReachOthers => "reach-others",
            Self::HoldKhugepaged => "hold-khugepaged",
            Self::Pressure => "pressure",
            Self::Cgroups => "cgroups",
            Self::UnderusedShrinker => "underused-shrinker",
            Self::HearFirstTouches => "hear-first-touches",
            Self::GiganticPages => "gigantic-pages",
        }
    }

    /// What it is for, in a few words.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::HoldProcesses => "act on exactly the process that was meant (pidfd)",
            Self::FindHugePages => "find the huge pages of a process (PAGEMAP_SCAN)",
            Self::ReadMemory => "see which base pages are zero-filled (process_vm_readv)",
            Self::MakeHugePages => "get huge pages at first touch (transparent huge pages)",
            Self::SplitAndFree => "split a huge page and free its zero-filled base pages",
            Self::KeepTracking => {
                "split and still know which pages were written to (soft-dirty, userfaultfd)"
            }
            Self::Collapse => "turn memory back into huge pages (MADV_COLLAPSE)",
            Self::ReachOthers => "do this to processes of other users",
            Self::HoldKhugepaged => "keep khugepaged from rebuilding bloat (max_ptes_none)",
            Self::Pressure => "be woken by memory pressure (PSI)",
            Self::Cgroups => "watch memory by cgroup",
            Self::UnderusedShrinker => "compare with the kernel's own de-bloater",
            Self::HearFirstTouches => {
                "serve a program's faults (userfaultfd, `superpage run`, also with --heap)"
            }
            Self::GiganticPages => "have 1 GiB pages for programs (hugetlb, `superpage run`)",
        }
    }
}

/// Whether an ability is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was tried and worked.
    Yes,
    /// It was tried and did not work.
    No,
    /// It could not be tried.
    CouldNotTell,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which ability.
    pub ability: Ability,
    /// Whether it is there.
    pub answer: Answer,
    /// What was seen.
    pub why: String,
    /// What to do about it; `None` where there is nothing to do.
    pub advice: Option<&'static str>,
}

/// An answer, what was seen, and what to do.
type Verdict = (Answer, String, Option<&'static str>);

const NOT_FREED: &str =
    "Linux 6.12 or later is needed, with transparent_hugepage/shrink_underused at 1.";
const OLDER_KERNEL: &str = "Linux 6.12 or later is needed; upgrade the kernel.";
const BE_ROOT: &str = "Run as root, or give CAP_SYS_NICE, CAP_SYS_PTRACE and \
                       CAP_DAC_READ_SEARCH (the systemd unit does).";
const NONE_FREE: &str = "Memory may be short or in pieces, on the machine or in our cgroup; try again later. Writing 1 to \
                         /proc/sys/vm/compact_memory compacts it.";
const FIRST_TOUCH: &str = "Superpage can make them later all the same; programs that want them at first \
                           touch need transparent_hugepage/enabled at 'madvise' or 'always'.";

/// Tries every ability. Takes a few milliseconds, and as root up to two seconds to look through
/// physical memory.
#[must_use]
pub fn all() -> Vec<Finding> {
    Ability::ALL.into_iter().map(probe).collect()
}

/// Tries one ability.
#[must_use]
pub fn probe(ability: Ability) -> Finding {
    let (answer, why, advice) = match ability {
        Ability::HoldProcesses => hold_processes(),
        Ability::FindHugePages => on_a_huge_page(find_huge_pages),
        Ability::ReadMemory => read_memory(),
        Ability::MakeHugePages => make_huge_pages(),
        Ability::SplitAndFree => split_and_free(),
        Ability::KeepTracking => keep_tracking(),
        Ability::Collapse => collapse(),
        Ability::ReachOthers => reach_others(Path::new("/proc")),
        Ability::HoldKhugepaged => hold_khugepaged(),
        Ability::Pressure => pressure_stall(Path::new("/proc")),
        Ability::Cgroups => cgroups(),
        Ability::UnderusedShrinker => underused_shrinker(),
        Ability::HearFirstTouches => hear_first_touches(),
        Ability::GiganticPages => gigantic_pages(Path::new("/sys"), Path::new("/proc")),
    };
    Finding { ability, answer, why, advice }
}

/// The essential abilities of which nobody can say that they are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The abilities that the kernel does not have.
    pub no: Vec<Finding>,
    /// The abilities that could not be tried now, as without a free huge page to try them on: they may be there.
    pub unclear: Vec<Finding>,
}

/// The essential abilities that are not there, and those that could not be tried.
#[must_use]
pub fn missing_essentials() -> Missing {
    let mut missing = Missing::default();
    for finding in Ability::ESSENTIAL.into_iter().map(probe) {
        match finding.answer {
            Answer::Yes => {}
            Answer::No => missing.no.push(finding),
            Answer::CouldNotTell => missing.unclear.push(finding),
        }
    }
    missing
}

fn refused(error: &Error) -> Verdict {
    let (answer, advice) = match error {
        Error::Unsupported { .. } | Error::Missing { .. } => (Answer::No, OLDER_KERNEL),
        Error::Denied { .. } => (Answer::No, BE_ROOT),
        _ => (Answer::CouldNotTell, "Run `superpage doctor` again; report it if it stays."),
    };
    (answer, error.to_string(), Some(advice))
}

fn hold_processes() -> Verdict {
    match Process::current() {
        Ok(_) => (Answer::Yes, "opened a pidfd of our own process".to_owned(), None),
        Err(error) => refused(&error),
    }
}

fn read_memory() -> Verdict {
    let page = vec![1u8; 2 * to_usize(BASE_PAGE_BYTES)];
    let address = (page.as_ptr().addr() as u64).next_multiple_of(BASE_PAGE_BYTES);
    let read = Process::current()
        .and_then(|me| Sampler::new().contents(&me, &[VirtAddr(address)], Bytes(BASE_PAGE_BYTES)));
    match read.as_deref() {
        Ok([Content::Used]) => (Answer::Yes, "read a page of our own".to_owned(), None),
        Ok(other) => (Answer::No, format!("a page read as {other:?}"), Some(OLDER_KERNEL)),
        Err(error) => refused(error),
    }
}

/// A range of our own with one used base page, and our own process to look at it through.
struct Subject {
    me: Process,
    memory: OwnMemory,
    range: PmdRange,
}

impl Subject {
    fn new() -> Result<Self> {
        let mut memory = OwnMemory::map(HugePages(1), Wish::HugePages)?;
        memory.bytes_mut()[0] = 1;
        let range = memory.ranges().next().unwrap_or(PmdRange::containing(Default::default()));
        Ok(Self { me: Process::current()?, memory, range })
    }

    fn mapping(&self) -> Result<Mapping> {
        let pagemap = Pagemap::open(&self.me)?;
        let mapping = pagemap.mappings(&[self.range])?.pop();
        Ok(mapping.unwrap_or(Mapping::Split { zero_pages: BasePages::ZERO }))
    }

    /// Makes sure that it is a huge page, by first touch or by collapsing.
    fn ensure_huge(&self) -> Result<Got> {
        let mut refused = None;
        if self.mapping()? != Mapping::Huge {
            let refusals = process_madvise::collapse(&self.me, &[self.range])?;
            refused = refusals.first().map(|refusal| refusal.errno);
        }
        Ok(if self.mapping()? == Mapping::Huge { Got::HugePage } else { Got::Nothing(refused) })
    }
}

/// The outcome of an attempt to have a huge page.
enum Got {
    HugePage,
    /// There is none, and the kernel refused the collapse with this.
    Nothing(Option<Errno>),
}

/// Runs `attempt` on a huge page of our own, if one can be had.
fn on_a_huge_page(attempt: fn(&Subject) -> Result<Verdict>) -> Verdict {
    let tried = Subject::new().and_then(|subject| match subject.ensure_huge()? {
        Got::HugePage => attempt(&subject),
        Got::Nothing(_) => {
            let why = "no huge page could be had to try it on".to_owned();
            Ok((Answer::CouldNotTell, why, Some(NONE_FREE)))
        }
    });
    tried.unwrap_or_else(|error| refused(&error))
}

fn make_huge_pages() -> Verdict {
    let seen = Subject::new().and_then(|subject| subject.mapping());
    let is_never = || Thp::under(Path::new("/sys")).get(thp::ENABLED) == Ok(Enabled::Never);
    match seen {
        Ok(Mapping::Huge) => {
            (Answer::Yes, "first touch of advised memory gave a huge page".to_owned(), None)
        }
        Ok(Mapping::Split { .. }) if is_never() => {
            (Answer::No, "first touch gave base pages".to_owned(), Some(FIRST_TOUCH))
        }
        Ok(Mapping::Split { .. }) => {
            let why = "first touch gave base pages, and may have found no free huge page";
            (Answer::CouldNotTell, why.to_owned(), Some(NONE_FREE))
        }
        Err(error) => refused(&error),
    }
}

fn find_huge_pages(subject: &Subject) -> Result<Verdict> {
    let vmas = maps::of(&subject.me)?;
    let found = Pagemap::open(&subject.me)?.huge_pages(&vmas)?;
    Ok(if found.contains(&subject.range) {
        (Answer::Yes, "found a huge page of our own".to_owned(), None)
    } else {
        (Answer::No, "a huge page of our own was not found".to_owned(), Some(OLDER_KERNEL))
    })
}

/// The answer is No only if several huge pages in turn gave it: whoever else holds one for a moment, as compaction does, keeps the
/// kernel from splitting it, or from splitting more than its mapping.
fn split_and_free() -> Verdict {
    const TRIES: usize = 4;
    let mut verdict = on_a_huge_page(split_one_and_free);
    for _ in 1..TRIES {
        if !matches!(verdict.2, Some(NOT_FREED | OLDER_KERNEL)) {
            break;
        }
        verdict = on_a_huge_page(split_one_and_free);
    }
    verdict
}

fn split_one_and_free(subject: &Subject) -> Result<Verdict> {
    // We may advise ourselves in any case; a child of our own shows whether we may advise others.
    process_madvise::check_rights(OwnChild::fork()?.process())?;
    let unused = subject.range.base_page(1);
    let refusals = process_madvise::split(&subject.me, &[unused])?;
    if let Some(refusal) = refusals.first() {
        let why = format!("the kernel refused to split a huge page of our own ({})", refusal.errno);
        return Ok((Answer::No, why, Some(OLDER_KERNEL)));
    }
    let untouched = subject.memory.bytes()[0] == 1;
    let expected = BasePages(BASE_PAGES_PER_HUGE_PAGE - 1);
    Ok(match subject.mapping()? {
        Mapping::Split { zero_pages } if zero_pages == expected && untouched => {
            (Answer::Yes, format!("a split freed {zero_pages} zero-filled base pages"), None)
        }
        Mapping::Split { zero_pages } => {
            let why = format!("a split freed {zero_pages} of {expected} zero-filled base pages");
            (Answer::No, why, Some(NOT_FREED))
        }
        Mapping::Huge => {
            let why = "the huge page of our own was left whole".to_owned();
            (Answer::No, why, Some(OLDER_KERNEL))
        }
    })
}

fn keep_tracking() -> Verdict {
    const LEFT_ALONE: &str = "Nothing need be done: memory whose writes are tracked is left alone.";
    let seen = match tracked_writes::after_a_split() {
        Ok(seen) => seen,
        Err(error) => return refused(&error),
    };
    let in_words = |survived| match survived {
        Some(true) => "kept",
        Some(false) => "forgotten",
        None => "not tried",
    };
    let why = format!(
        "soft-dirty bit {}, a userfaultfd's write protection {}",
        in_words(seen.soft_dirty),
        in_words(seen.write_protected)
    );
    match [seen.soft_dirty, seen.write_protected] {
        bits if bits.contains(&Some(false)) => (Answer::No, why, Some(LEFT_ALONE)),
        [None, None] => (Answer::CouldNotTell, why, Some(LEFT_ALONE)),
        _ => (Answer::Yes, why, None),
    }
}

fn collapse() -> Verdict {
    let tried = Subject::new().and_then(|subject| {
        process_madvise::split(&subject.me, &[subject.range.base_page(1)])?;
        subject.ensure_huge()
    });
    match tried {
        Ok(Got::HugePage) => (Answer::Yes, "collapsed a PMD range of our own".to_owned(), None),
        // All that may be otherwise the next time has another number: no memory, a cgroup at its limit, a page in use.
        Ok(Got::Nothing(Some(errno @ Errno::INVAL))) => {
            let why = format!("the kernel refused to collapse a PMD range of our own ({errno})");
            (Answer::No, why, Some(OLDER_KERNEL))
        }
        Ok(Got::Nothing(errno)) => {
            let errno = errno.map(|errno| format!(" ({errno})")).unwrap_or_default();
            let why = format!("no huge page could be had for a PMD range of our own{errno}");
            (Answer::CouldNotTell, why, Some(NONE_FREE))
        }
        Err(error) => refused(&error),
    }
}

fn reach_others(proc_root: &Path) -> Verdict {
    let missing = match Rights::read(proc_root) {
        Ok(rights) => rights.missing_capabilities(),
        Err(error) => return refused(&error),
    };
    if missing.is_empty() {
        (Answer::Yes, "the three capabilities for it are held".to_owned(), None)
    } else {
        (Answer::No, format!("missing: {}", missing.join(", ")), Some(BE_ROOT))
    }
}

fn hold_khugepaged() -> Verdict {
    let path = Thp::under(Path::new("/sys")).path(thp::MAX_PTES_NONE);
    match access(&path, Access::WRITE_OK) {
        Ok(()) => (Answer::Yes, format!("{} can be written", path.display()), None),
        Err(errno) => {
            let error = Error::from_errno(errno, format!("write {}", path.display()));
            (
                Answer::No,
                error.to_string(),
                Some("Run as root; without it khugepaged may rebuild what was freed."),
            )
        }
    }
}

fn pressure_stall(proc_root: &Path) -> Verdict {
    let path = proc_root.join("pressure/memory");
    let stall = Nanos(100_000_000);
    // A window that is a multiple of two seconds needs no rights.
    let window = Nanos(2_000_000_000);
    match Trigger::arm(&path, stall, window) {
        Ok(_) => (Answer::Yes, format!("armed a trigger on {}", path.display()), None),
        Err(error) => {
            let advice = "Boot with psi=1. Without it the daemon looks at memory on a timer only.";
            (Answer::No, error.to_string(), Some(advice))
        }
    }
}

fn cgroups() -> Verdict {
    const ADVICE: &str = "Watermarks for the whole machine work without it.";
    match cgroup::Hierarchy::find(Path::new("/")) {
        Ok(Some(hierarchy)) => match hierarchy.hidden(Path::new("/proc")).as_deref() {
            Ok([]) => {
                let why = format!("{} at {}", hierarchy.version(), hierarchy.mount().display());
                (Answer::Yes, why, None)
            }
            Ok([one, others @ ..]) => {
                let others = match others.len() {
                    0 => String::new(),
                    count => format!(" and {count} more"),
                };
                let why = format!(
                    "the cgroup of process {one}{others} cannot be told: it lies outside our cgroup namespace, or outside \
                     what is mounted at {}; no list that names cgroups lets such a process through",
                    hierarchy.mount().display()
                );
                (Answer::No, why, Some(cgroup::SHARE_NAMESPACE))
            }
            Err(error) => (Answer::CouldNotTell, error.to_string(), Some(ADVICE)),
        },
        Ok(None) => {
            let why = "no memory controller is mounted".to_owned();
            (Answer::No, why, Some(ADVICE))
        }
        Err(error) => (Answer::CouldNotTell, error.to_string(), Some(ADVICE)),
    }
}

fn underused_shrinker() -> Verdict {
    match Thp::under(Path::new("/sys")).get(thp::SHRINK_UNDERUSED) {
        Ok(_) => (Answer::Yes, "transparent_hugepage/shrink_underused is there".to_owned(), None),
        Err(error) => (
            Answer::No,
            error.to_string(),
            Some("Only the comparison with the kernel's own de-bloater needs it."),
        ),
    }
}

/// The kind of userfaultfd that hears of faults in the kernel as well comes from the system call, with `CAP_SYS_PTRACE`, and from
/// the device, for whoever may open it. A container may have only one of the two.
fn hear_first_touches() -> Verdict {
    const DEVICE: &str = "/dev/userfaultfd";
    const ADVICE: &str = "Run as root (in a container with CAP_SYS_PTRACE, or with --device /dev/userfaultfd), or let a group open it by a udev rule such as \
                          KERNEL==\"userfaultfd\", GROUP=\"superpage\", MODE=\"0660\".";
    // SAFETY: nothing is registered with it, and it is closed.
    let made = unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC) };
    match access(Path::new(DEVICE), Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => (Answer::Yes, format!("{DEVICE} can be opened"), None),
        Err(_) if made.is_ok() => (Answer::Yes, "userfaultfd(2) is permitted".to_owned(), None),
        Err(errno) => {
            let error = Error::from_errno(errno, format!("open {DEVICE}"));
            (Answer::No, error.to_string(), Some(ADVICE))
        }
    }
}

/// Below this part of what free memory would hold, gigantic pages are said to be few. Chosen.
const FEW: u64 = 2; // a half

const BOOT_WITH_CMA: &str = "Boot with hugetlb_cma=SIZE (such as 8G): the kernel then keeps so much memory contiguous, and \
     lets only pages that it can move use it, until it is asked for 1 GiB pages. hugepagesz=1G \
     hugepages=NUMBER keeps pages that nothing else can use.";

/// The pages in the pool, and those that the kernel could add to it now.
fn gigantic_pages(sys_root: &Path, proc_root: &Path) -> Verdict {
    let pool = match hugetlb::read(sys_root, PageSize::Gigantic) {
        Ok(pool) => pool,
        Err(error) => {
            let advice = "This processor or kernel has no 1 GiB pages; all else works without.";
            return (Answer::No, error.to_string(), Some(advice));
        }
    };
    let held = format!("{} of {} in the kernel's pool are free", pool.free, pool.size);
    let room = meminfo::read(proc_root).map(|memory| memory.available.0 / GIGANTIC_PAGE_BYTES);
    let more = room.and_then(|room| Ok((room, kpageflags::contiguous(proc_root)?)));
    match more {
        Ok((room, found)) => with_more(pool, &held, room, found),
        Err(error) => {
            let advice = "Run as root to be told how many 1 GiB pages the kernel could make now.";
            let answer = if pool.free > 0 { Answer::Yes } else { Answer::CouldNotTell };
            (answer, format!("{held}; {error}"), Some(advice))
        }
    }
}

/// The verdict on a pool where memory has room for so many more pages, of which so many were found.
fn with_more(pool: Pool, held: &str, room: u64, found: Contiguous) -> Verdict {
    let [least, most] = [found.movable, found.at_most].map(|count| count.min(room));
    let number = match (least, most) {
        (_, ENOUGH..) => format!("{least} or more"),
        _ if least == most => least.to_string(),
        _ => format!("{least} to {most}"),
    };
    let why =
        format!("{held}; {number} more could be made now, of {room} that memory has room for");
    let answer = match (pool.free + least, most) {
        (1.., _) => Answer::Yes,
        (0, 1..) => Answer::CouldNotTell,
        (0, 0) => Answer::No,
    };
    let is_few = answer != Answer::Yes || least < room.min(ENOUGH) / FEW;
    (answer, why, is_few.then_some(BOOT_WITH_CMA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ability_gets_an_answer_and_what_is_missing_comes_with_advice() {
        let findings = all();
        assert_eq!(findings.len(), Ability::ALL.len());
        for finding in findings {
            assert!(!finding.why.is_empty(), "{finding:?}");
            let is_there = finding.answer == Answer::Yes;
            assert!(is_there || finding.advice.is_some(), "{finding:?}");
            // There may be few of them.
            let may_advise = finding.ability == Ability::GiganticPages;
            assert!(!is_there || may_advise || finding.advice.is_none(), "{finding:?}");
        }
    }

    #[test]
    fn gigantic_pages_are_counted_and_few_come_with_advice() {
        let verdict = |free, movable, at_most| {
            let found = Contiguous { movable, at_most };
            let (answer, why, advice) = with_more(Pool { size: 3, free, used: 0 }, "", 8, found);
            (answer, why.split(' ').nth(1).map(str::to_owned), advice.is_some())
        };
        let said = |answer, number: &str, advises| (answer, Some(number.to_owned()), advises);
        assert_eq!(verdict(0, 0, 0), said(Answer::No, "0", true));
        assert_eq!(verdict(0, 0, 2), said(Answer::CouldNotTell, "0", true));
        assert_eq!(verdict(1, 0, 0), said(Answer::Yes, "0", true));
        assert_eq!(verdict(0, 3, 5), said(Answer::Yes, "3", true));
        assert_eq!(verdict(0, 4, 4), said(Answer::Yes, "4", false));
        assert_eq!(
            verdict(0, 20, 20),
            said(Answer::Yes, "8", false),
            "memory has no room for more"
        );
    }

    #[test]
    fn our_own_process_can_always_be_held() {
        assert_eq!(probe(Ability::HoldProcesses).answer, Answer::Yes);
        assert_eq!(probe(Ability::ReadMemory).answer, Answer::Yes);
    }
}
