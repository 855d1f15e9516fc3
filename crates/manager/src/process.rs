//! A managed process: held by a pidfd and its page tables, shared by all who look at it or act on it.
//!
//! Looking at a process changes nothing in it. [`crate::promote`] and [`crate::split`] change what is
//! mapped in one; which processes are managed is [`crate::registry`]'s to say.

use crate::exclude::{self, Excluded, Why};
use crate::nodes;
use crate::select::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use superpage_kernel::habits::{self, Habits};
use superpage_kernel::maps::{self, Device, Sharing};
use superpage_kernel::node::NodeSet;
use superpage_kernel::pagemap::{Found, Pagemap};
use superpage_kernel::process::Process;
use superpage_kernel::process_madvise;
use superpage_kernel::smaps_flags::{Flagged, Flags};
use superpage_kernel::status::{self, Stat};
use superpage_kernel::{Error, Result, mounts, smaps, smaps_flags, smaps_hugetlb, vmstat};
use superpage_units::{Bytes, PageSize, Pid, PmdRange, ProcessKey, Share, VirtAddr};
use tracing::warn;

/// How long an answer about KSM, userfaultfd and tmpfs mounts is believed. Chosen, not measured: a
/// process with 100,000 descriptors takes some 100 ms to answer.
const HABITS_HOLD: Duration = Duration::from_secs(30);
/// VMAs directly above a guard, and no larger than this, are taken for stacks of threads. glibc's
/// are 8 MiB, Java's 1; nobody's default is larger.
const LARGEST_STACK: Bytes = Bytes::from_mib(64);
/// The heaps of glibc's arenas for threads begin on multiples of their size (`HEAP_MAX_SIZE` in `malloc/arena.c`). A stack begins above
/// its guard.
const ARENA_HEAP: Bytes = Bytes::from_mib(64);
/// Holes between VMAs up to this size are scanned with them: one call for many small VMAs.
const LARGEST_HOLE: Bytes = Bytes::from_mib(128);

/// What kind of memory a VMA holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The process's own.
    Private,
    /// Shared on purpose and without a file on a disk: memfd, System V and the like.
    Shared,
}

/// A VMA in which huge pages can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotableVma {
    /// Its first address.
    pub start: VirtAddr,
    /// The first address after it.
    pub end: VirtAddr,
    /// What it holds.
    pub memory: Memory,
    /// Whether it is the heap that `brk` moves the end of.
    pub is_heap: bool,
}

/// What is mapped in a process, where huge pages can be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Its VMAs, in address order.
    pub vmas: Vec<PromotableVma>,
    /// What is mapped in them and in the holes between them, in address order.
    pub found: Vec<Found>,
    /// The part of the address space that was looked at, where that was not all of it: from where on, and its end.
    pub part: Option<(VirtAddr, VirtAddr)>,
    /// The survey ended there because its time was over.
    pub is_late: bool,
}

impl Survey {
    /// Whether a range was looked at.
    #[must_use]
    pub fn covers(&self, range: PmdRange) -> bool {
        self.part.is_none_or(|(from, end)| from <= range.start() && range.start() < end)
    }

    /// The address at which the next survey begins.
    #[must_use]
    pub fn next(&self) -> VirtAddr {
        self.part.map(|(_, end)| end).filter(|end| *end < TOP).unwrap_or_default()
    }
}

/// The end of every address space.
const TOP: VirtAddr = VirtAddr(u64::MAX);

/// The part of an address space that a survey is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The survey begins at this address.
    pub from: VirtAddr,
    /// The survey ends with so many VMAs and parts of what is found in them, a half of each at most.
    pub most: usize,
    /// The survey walks page tables for so long, but one stride at least; without a time it walks them all.
    pub longest: Option<Duration>,
}

impl Extent {
    /// All of an address space.
    pub const ALL: Self = Self { from: VirtAddr(0), most: usize::MAX, longest: None };
}

/// The memory of a process by the size of the pages that map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BySize {
    /// Resident: all but hugetlb, so without `gigantic`.
    pub resident: Bytes,
    /// Resident and mapped by base pages.
    pub base: Bytes,
    /// Anonymous, mapped by huge pages. Those of files and shared memory are only in `resident`; hugetlb's are
    /// in `pool_huge`.
    pub huge: Bytes,
    /// Mapped by huge pages of the kernel's pool (hugetlb), which are not resident.
    pub pool_huge: Bytes,
    /// Mapped by gigantic pages.
    pub gigantic: Bytes,
}

impl BySize {
    /// The memory in larger pages than base pages, without files and shared memory.
    #[must_use]
    pub fn in_larger_pages(&self) -> Bytes {
        self.huge + self.pool_huge + self.gigantic
    }
}

/// Whether `error` only concerns the process at hand, so that the work can go on with others.
#[must_use]
pub fn is_about_one_process(error: &Error) -> bool {
    matches!(
        error,
        Error::Gone { .. } | Error::Denied { .. } | Error::Missing { .. } | Error::TooLong { .. }
    )
}

/// A process that is managed.
#[derive(Debug)]
pub struct ManagedProcess {
    /// Its name towards policies.
    pub key: ProcessKey,
    /// The process.
    pub process: Process,
    /// Its page tables.
    pub pagemap: Pagemap,
    /// The process's identity when it was taken hold of.
    pub identity: Identity,
    pub(crate) policy: nodes::Policy,
    habits: Mutex<Option<Known>>,
    /// When its program last had memory that it had freed lazily, as far as that is known.
    lazy: Mutex<Option<Lazy>>,
    /// The files of the `/proc` directory that were too long to be read whole at the last reading.
    too_long: Mutex<BTreeSet<&'static str>>,
}

/// The purpose of a look at memory; which memory is left alone depends on that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Purpose {
    /// Its contents are read.
    Read,
    /// Huge pages are split and their bloat is freed.
    Split,
    /// Base pages become huge pages.
    Collapse(Terms),
}

/// Which memory may be promoted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Whether memory is promoted that its program has locked (`mlock`, `mlockall`).
    pub locked: bool,
    /// Whether a process is promoted in that has a thread with a real-time scheduling policy.
    pub real_time: bool,
    /// VMAs of which a larger share has been freed lazily (`MADV_FREE`) are left alone: promoting would take that from the
    /// kernel, which may have it back at any time.
    pub most_lazily_freed: Share,
}

impl Terms {
    /// Those where somebody asks for this very process: the default share of bloat for which a huge page is split may be
    /// memory that was freed lazily.
    pub const ASKED_FOR: Self =
        Self { locked: true, real_time: true, most_lazily_freed: Share::percent(6) };
}

/// What is known of memory that a program has freed lazily.
#[derive(Clone, Copy, Debug)]
struct Lazy {
    since: Instant,
    /// The machine's count of pages freed lazily, then.
    counted: u64,
    /// Whether the process had any.
    is_any: bool,
}

/// What a process does besides mapping memory, as of a time.
#[derive(Clone, Debug)]
struct Known {
    since: Instant,
    habits: Habits,
    /// The file systems of files that it maps which keep their files in memory; read once it maps a file
    /// shared.
    tmpfs: Option<BTreeSet<Device>>,
}

impl ManagedProcess {
    /// Takes hold of a process that was found.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`].
    pub fn new(key: ProcessKey, process: Process, identity: Identity) -> Result<Self> {
        let pagemap = Pagemap::open(&process)?;
        Ok(Self {
            key,
            process,
            pagemap,
            identity,
            policy: nodes::Policy::default(),
            habits: Mutex::default(),
            lazy: Mutex::default(),
            too_long: Mutex::default(),
        })
    }

    /// Takes over what is known of its memory policy, if `before` is an earlier hold of it.
    #[must_use]
    pub(crate) fn after(mut self, before: &Self) -> Self {
        if self.key == before.key {
            self.policy = before.policy.same();
        }
        self
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Its command, as `ps -o comm` shows it.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.identity.command
    }

    /// The directory of its memory cgroup, if that is known.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Path> {
        self.identity.cgroup()
    }

    /// The nodes to which it is bound, as far as that is known; `None` if it may use all.
    #[must_use]
    pub fn nodes(&self) -> Option<NodeSet> {
        self.identity.nodes.as_ref()?.bound(self.policy.bound().as_ref())
    }

    /// The file of its `/proc` directory for which it is passed over, because that is longer than what is read of one process.
    #[must_use]
    pub fn too_long(&self) -> Option<&'static str> {
        self.too_long.lock().unwrap_or_else(PoisonError::into_inner).first().copied()
    }

    /// Fails if its list of VMAs is longer than what is read of one process, or cannot be read.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
    pub fn check_length(&self) -> Result<()> {
        self.all_vmas().map(|_| ())
    }

    /// All VMAs of the process. On a machine with several nodes its policy is asked with them.
    fn all_vmas(&self) -> Result<Vec<maps::Vma>> {
        let vmas = self.heed_length("maps", maps::of(&self.process))?;
        if self.identity.nodes.is_some() {
            self.policy.see(&self.process, &vmas);
        }
        Ok(vmas)
    }

    /// What is said of each of its VMAs. The kernel walks all of the process's page tables for it ([`smaps_flags`]).
    fn flagged(&self) -> Result<Vec<Flagged>> {
        self.heed_length("smaps", smaps_flags::of(&self.process))
    }

    /// Takes note where there was too much to read, and says so the first time.
    fn heed_length<T>(&self, file: &'static str, read: Result<T>) -> Result<T> {
        let mut too_long = self.too_long.lock().unwrap_or_else(PoisonError::into_inner);
        match &read {
            Err(error @ Error::TooLong { .. }) if too_long.insert(file) => {
                warn!(pid = self.pid().0, command = self.command(), "passed over: {error}");
            }
            Ok(_) => drop(too_long.remove(file)),
            Err(_) => {}
        }
        read
    }

    /// Its counters: page faults, resident memory, CPU time.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn stat(&self) -> Result<Stat> {
        status::stat_of(&self.process)
    }

    /// Whether it forbade itself huge pages (`PR_SET_THP_DISABLE`), so that nobody can give it any.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn refuses_huge_pages(&self) -> Result<bool> {
        Ok(self.known()?.habits.refuses_huge_pages)
    }

    /// Its memory by the size of pages.
    ///
    /// The kernel walks all of its page tables for it ([`smaps`]), and once more if it has a GiB of hugetlb memory.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
    pub fn by_size(&self) -> Result<BySize> {
        let rollup = smaps::of(&self.process)?;
        let hugetlb = rollup.hugetlb.unwrap_or_default();
        let gigantic = match hugetlb >= PageSize::Gigantic.bytes() {
            true => smaps_hugetlb::gigantic(&self.process)?,
            false => Bytes::ZERO,
        };
        Ok(BySize {
            resident: rollup.rss,
            base: rollup.on_base_pages(),
            huge: rollup.anon_huge_pages.unwrap_or_default(),
            pool_huge: hugetlb.saturating_sub(gigantic),
            gigantic,
        })
    }

    /// Whether some of its memory is neither read nor changed: what KSM merges, what is registered with a
    /// userfaultfd, and what the library of `superpage run` manages.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::TooLong`], [`Error::Malformed`].
    pub fn excludes_memory(&self) -> Result<bool> {
        Ok(!self.excluded(&self.all_vmas()?, Purpose::Read)?.is_empty())
    }

    /// Whether equal pages of it are merged (KSM), so that no huge page is made or split of the memory for which it allows that.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn merges(&self) -> Result<bool> {
        Ok(self.known()?.habits.merges)
    }

    /// Whether nothing may be promoted in it on these terms.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn is_left_alone(&self, terms: Terms) -> Result<bool> {
        let habits = self.known()?.habits;
        Ok(habits.refuses_huge_pages || habits.is_real_time && !terms.real_time)
    }

    fn known(&self) -> Result<Known> {
        let mut known = self.habits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.since.elapsed() < HABITS_HOLD) {
            return Ok(known.clone());
        }
        let habits = habits::of(&self.process)?;
        Ok(known.insert(Known { since: Instant::now(), habits, tmpfs: None }).clone())
    }

    /// Of the file systems whose files these VMAs map, those that keep files in memory. A program may see any number of others.
    fn tmpfs(&self, vmas: &[maps::Vma]) -> BTreeSet<Device> {
        let mut known = self.habits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = known.as_mut() else { return BTreeSet::new() };
        let read = || {
            let mut tmpfs = mounts::tmpfs_of(&self.process).unwrap_or_default();
            let mapped: BTreeSet<Device> = vmas.iter().map(|vma| vma.device).collect();
            tmpfs.retain(|device| mapped.contains(device));
            tmpfs
        };
        known.tmpfs.get_or_insert_with(read).clone()
    }

    /// Its VMAs in which huge pages can be made. Left out: files, stacks of threads, memory that
    /// cannot be accessed, memory that KSM merges, memory registered with a userfaultfd, the areas of a program
    /// under `superpage run`, and what the terms leave out.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::TooLong`].
    pub fn vmas(&self, terms: Terms) -> Result<Vec<PromotableVma>> {
        let found = self.all_vmas()?;
        let excluded = self.excluded(&found, Purpose::Collapse(terms))?;
        let maps_files = |vma: &maps::Vma| vma.sharing == Sharing::Shared && !is_known_shared(vma);
        let tmpfs = if found.iter().any(maps_files) { self.tmpfs(&found) } else { BTreeSet::new() };
        let mut vmas = Vec::new();
        let mut below: Option<&maps::Vma> = None;
        for vma in &found {
            if !excluded.overlaps(vma.start, vma.end) && !is_stack(vma, below) {
                vmas.extend(promotable(vma, &tmpfs));
            }
            below = Some(vma);
        }
        Ok(vmas)
    }

    /// The memory of the process that is left alone for this purpose, by all its VMAs.
    pub(crate) fn excluded(&self, vmas: &[maps::Vma], purpose: Purpose) -> Result<Excluded> {
        let mut parts = exclude::areas(vmas);
        let habits = self.known()?.habits;
        let needs_care = match purpose {
            Purpose::Read => false,
            // A split frees pages without the trace that whoever follows writes looks for, and who does so need not be the
            // process itself.
            Purpose::Split => true,
            Purpose::Collapse(terms) => {
                habits.locks_memory && !terms.locked || self.may_have_lazily_freed()
            }
        };
        // The library of `superpage run` registers some memory outside the areas too.
        if !parts.is_empty() || habits.need_care() || needs_care {
            // Pages that are freed lazily during the reading have to count as new at the next.
            let counted = lazily_freed_so_far();
            let flagged = self.flagged()?;
            self.take_in_lazily_freed(&flagged, counted);
            let excluded = |vma: &&Flagged| exclude::why(vma, habits, purpose).is_some();
            parts.extend(flagged.iter().filter(excluded).map(|vma| (vma.start, vma.end)));
        }
        Ok(Excluded::new(parts))
    }

    /// The resident memory in which huge pages could be made, and that these terms leave alone, by the reason.
    ///
    /// The kernel walks all of the process's page tables for it ([`smaps_flags`]).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::TooLong`].
    pub fn left_alone(&self, terms: Terms) -> Result<BTreeMap<Why, Bytes>> {
        let (vmas, flagged, habits) = (self.all_vmas()?, self.flagged()?, self.known()?.habits);
        let areas = Excluded::new(exclude::areas(&vmas));
        let tmpfs = self.tmpfs(&vmas);
        let starts: BTreeSet<VirtAddr> =
            vmas.iter().filter_map(|vma| Some(promotable(vma, &tmpfs)?.start)).collect();
        let mut left = BTreeMap::new();
        for vma in flagged.iter().filter(|vma| starts.contains(&vma.start)) {
            let why = match areas.overlaps(vma.start, vma.end) {
                true => Some(Why::Managed),
                false => exclude::why(vma, habits, Purpose::Collapse(terms)),
            };
            if let Some(why) = why.filter(|_| !vma.resident.is_zero()) {
                *left.entry(why).or_insert(Bytes::ZERO) += vma.resident;
            }
        }
        Ok(left)
    }

    /// Whether the program may have memory now that it has freed lazily. Only the VMAs say so for certain, and to read
    /// them takes long.
    fn may_have_lazily_freed(&self) -> bool {
        let counted = lazily_freed_so_far();
        let lazy = *self.lazy.lock().unwrap_or_else(PoisonError::into_inner);
        match lazy {
            None => counted > 0,
            Some(lazy) => {
                lazy.is_any || lazy.counted != counted && lazy.since.elapsed() >= HABITS_HOLD
            }
        }
    }

    fn take_in_lazily_freed(&self, vmas: &[Flagged], counted: u64) {
        let is_any = vmas.iter().any(|vma| !vma.lazily_freed.is_zero());
        let lazy = Lazy { since: Instant::now(), counted, is_any };
        *self.lazy.lock().unwrap_or_else(PoisonError::into_inner) = Some(lazy);
    }

    /// Its VMAs but those that are left alone.
    fn own_vmas(&self) -> Result<Vec<maps::Vma>> {
        let mut vmas = self.all_vmas()?;
        let excluded = self.excluded(&vmas, Purpose::Read)?;
        vmas.retain(|vma| !excluded.overlaps(vma.start, vma.end));
        Ok(vmas)
    }

    /// Its anonymous huge pages now, but for memory that KSM merges, that is registered with a userfaultfd, or that
    /// the library of `superpage run` manages, as far as the process itself shows that.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn huge_pages(&self) -> Result<Vec<PmdRange>> {
        self.pagemap.huge_pages(&self.own_vmas()?)
    }

    /// As [`ManagedProcess::huge_pages`]; `after_stride` is called after each part of the walk, about a
    /// millisecond long, with the time that the part took, and may end the walk.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn huge_pages_in_strides(
        &self,
        after_stride: &mut dyn FnMut(Duration) -> ControlFlow<()>,
    ) -> Result<Vec<PmdRange>> {
        self.pagemap.huge_pages_in_strides(&self.own_vmas()?, after_stride)
    }

    /// Those of `ranges` (in address order) for which the program asked for huge pages.
    ///
    /// The kernel walks all of the process's page tables for it ([`smaps_flags`]).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`].
    pub fn asked_for(&self, ranges: impl Iterator<Item = PmdRange>) -> Result<Vec<PmdRange>> {
        let vmas = self.flagged()?;
        let asking = |vma: &&Flagged| vma.flags.contains(Flags::HUGE);
        let mut asked = vmas.iter().filter(asking).peekable();
        let is_asked_for = |range: &PmdRange| {
            while asked.next_if(|vma| vma.end <= range.start()).is_some() {}
            asked.peek().is_some_and(|vma| vma.start <= range.start())
        };
        Ok(ranges.filter(is_asked_for).collect())
    }

    /// Those of `ranges` that may not be split: what is left alone anyway, and memory whose writes somebody follows, who need
    /// not be the process itself.
    ///
    /// The kernel walks all of the process's page tables for it ([`smaps_flags`]).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::TooLong`].
    pub fn not_to_be_split(&self, ranges: impl Iterator<Item = PmdRange>) -> Result<Vec<PmdRange>> {
        let excluded = self.excluded(&self.all_vmas()?, Purpose::Split)?;
        Ok(ranges.filter(|range| excluded.overlaps(range.start(), range.end())).collect())
    }

    /// Turns `ranges` into huge pages; returns how many the kernel refused.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`].
    pub fn collapse(&self, ranges: &[PmdRange]) -> Result<usize> {
        Ok(process_madvise::collapse(&self.process, ranges)?.len())
    }

    /// The pages that are mapped where huge pages can be made, in an extent.
    ///
    /// # Errors
    /// [`Error::Gone`], also when the process runs another program by now; [`Error::Denied`], [`Error::TooLong`].
    pub fn survey(&self, terms: Terms, extent: Extent) -> Result<Survey> {
        let Extent { from, most, longest } = extent;
        let mut vmas = self.vmas(terms)?;
        vmas.retain(|vma| vma.end > from);
        let mut end = TOP;
        // Both have a half of the room.
        if vmas.len() > most / 2 {
            vmas.truncate(most / 2);
            end = vmas.last().map_or(from, |vma| vma.end);
        }
        let by = longest.map(|longest| Instant::now() + longest);
        let is_over = || by.is_some_and(|by| by <= Instant::now());
        let (mut found, mut is_late) = (Vec::new(), false);
        let mut spans = spans(&vmas).into_iter().peekable();
        while let Some((start, until)) = spans.next() {
            let start = start.max(from);
            let walked = self.pagemap.survey_span(start, until, most - most / 2, by, &mut found)?;
            let at = match walked {
                ControlFlow::Break(at) => at,
                ControlFlow::Continue(()) if spans.peek().is_some() && is_over() => until,
                ControlFlow::Continue(()) => continue,
            };
            (end, is_late) = (at, is_over());
            break;
        }
        let part = (from, end);
        let part = (part != (VirtAddr(0), TOP)).then_some(part);
        // After an `execve` the page tables read as empty, and the VMAs are those of another program.
        if !self.pagemap.is_current() {
            return Err(Error::Gone { pid: self.pid() });
        }
        Ok(Survey { vmas, found, part, is_late })
    }
}

/// Pages that programs of this machine have freed lazily since it started.
fn lazily_freed_so_far() -> u64 {
    let counters = vmstat::read(Path::new("/proc")).unwrap_or_default();
    counters.get("pglazyfree").unwrap_or(0)
}

/// The VMA, if huge pages can be made in it.
fn promotable(vma: &maps::Vma, tmpfs: &BTreeSet<Device>) -> Option<PromotableVma> {
    let can_be_used = vma.permissions.read || vma.permissions.write;
    let memory = match vma {
        _ if vma.is_private_anonymous() => Memory::Private,
        _ if is_shared_memory(vma, tmpfs) => Memory::Shared,
        _ => return None,
    };
    let is_heap = vma.name == b"[heap]";
    let holds_any = PmdRange::within(vma.start, vma.end).next().is_some();
    let is_one = can_be_used && (is_heap || holds_any);
    is_one.then_some(PromotableVma { start: vma.start, end: vma.end, memory, is_heap })
}

/// The memory that VMAs (in address order) lie in, without its larger holes.
fn spans(vmas: &[PromotableVma]) -> Vec<(VirtAddr, VirtAddr)> {
    let mut spans: Vec<(VirtAddr, VirtAddr)> = Vec::new();
    for vma in vmas {
        match spans.last_mut() {
            Some((_, end)) if vma.start <= end.offset(LARGEST_HOLE) => *end = vma.end,
            _ => spans.push((vma.start, vma.end)),
        }
    }
    spans
}

/// Whether programs share it and no file on a disk is behind it. Not hugetlb.
fn is_shared_memory(vma: &maps::Vma, tmpfs: &BTreeSet<Device>) -> bool {
    vma.sharing == Sharing::Shared && (is_known_shared(vma) || tmpfs.contains(&vma.device))
}

/// Whether its name says that no disk is behind it: memfd, System V, POSIX shared memory,
/// `mmap(MAP_SHARED | MAP_ANONYMOUS)`.
fn is_known_shared(vma: &maps::Vma) -> bool {
    const NAMES: [&[u8]; 5] =
        [b"/memfd:", b"/dev/shm/", b"/SYSV", b"/dev/zero (deleted)", b"[anon_shmem:"];
    NAMES.iter().any(|name| vma.name.starts_with(name))
}

/// Whether it is a stack: the kernel names the first thread's; those of other threads lie directly
/// above a guard.
fn is_stack(vma: &maps::Vma, below: Option<&maps::Vma>) -> bool {
    let is_guard = |below: &maps::Vma| {
        let access = below.permissions;
        below.end == vma.start && !(access.read || access.write || access.execute)
    };
    vma.name.starts_with(b"[stack")
        || vma.name.starts_with(b"[anon:stack")
        || vma.size() <= LARGEST_STACK
            && vma.name.is_empty()
            && !vma.start.0.is_multiple_of(ARENA_HEAP.0)
            && below.is_some_and(|below| is_guard(below) && below.size() < Bytes::from_mib(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use superpage_kernel::own_memory::{OwnMemory, Wish};
    use superpage_units::{BASE_PAGE_BYTES, BasePages, HugePages};

    fn parse(text: &str) -> Vec<maps::Vma> {
        maps::parse(text.as_bytes(), Path::new("maps")).expect("VMAs")
    }

    fn ourselves() -> ManagedProcess {
        let me = Process::current().expect("we run");
        ManagedProcess::new(ProcessKey(1), me, Identity::for_tests()).expect("readable")
    }

    #[test]
    fn stacks_of_threads_are_known_by_their_guard() {
        let vmas = parse(
            "7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
             7f0000001000-7f0000801000 rw-p 00000000 00:00 0 \n\
             7f0000900000-7f0010900000 rw-p 00000000 00:00 0 \n\
             7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                [stack]\n",
        );
        assert!(is_stack(&vmas[1], Some(&vmas[0])));
        assert!(!is_stack(&vmas[2], Some(&vmas[1])), "not above a guard");
        assert!(is_stack(&vmas[3], None));
        // A heap of glibc's other arenas has its unused rest above it.
        let arena = parse(
            "7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
             7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n\
             7f0004000000-7f0004800000 rw-p 00000000 00:00 0 \n",
        );
        assert!(!is_stack(&arena[2], Some(&arena[1])), "the hole below is too large for a guard");
        // A full heap leaves next to nothing below the next one: memcached's heaps are full, because it takes a MiB at a time.
        let full = parse(
            "7f0000000000-7f0003f40000 rw-p 00000000 00:00 0 \n\
             7f0003f40000-7f0004000000 ---p 00000000 00:00 0 \n\
             7f0004000000-7f0007f40000 rw-p 00000000 00:00 0 \n",
        );
        assert!(!is_stack(&full[2], Some(&full[1])), "no stack begins on a multiple of 64 MiB");
    }

    #[test]
    fn shared_memory_without_a_file_may_be_promoted() {
        let vmas = parse(
            "7f0000000000-7f0000400000 rw-s 00000000 00:01 5 /memfd:guest (deleted)\n\
             7f0000400000-7f0000800000 rw-p 00000000 00:01 5 /memfd:guest (deleted)\n\
             7f0000800000-7f0000c00000 rw-s 00000000 00:01 6 /dev/zero (deleted)\n\
             7f0000c00000-7f0001000000 rw-s 00000000 08:01 7 /var/lib/db\n\
             7f0001000000-7f0001400000 rw-s 00000000 00:0f 8 /anon_hugepage (deleted)\n\
             7f0001400000-7f0001800000 rw-s 00000000 00:2a 9 /run/db/buffers\n\
             7f0001800000-7f0001c00000 rw-p 00000000 00:2a 9 /run/db/buffers\n",
        );
        let tmpfs = BTreeSet::from([Device { major: 0, minor: 42 }]);
        let shared: Vec<bool> = vmas.iter().map(|vma| is_shared_memory(vma, &tmpfs)).collect();
        assert_eq!(shared, [true, false, true, false, false, true, false]);
    }

    #[test]
    fn vmas_far_apart_are_scanned_apart() {
        let vma = |start, end| PromotableVma {
            start: VirtAddr(start),
            end: VirtAddr(end),
            memory: Memory::Private,
            is_heap: false,
        };
        let far = 1 << 40;
        let spans = spans(&[vma(0, 4096), vma(1 << 21, 1 << 22), vma(far, far + 4096)]);
        let span = |start, end| (VirtAddr(start), VirtAddr(end));
        assert_eq!(spans, [span(0, 1 << 22), span(far, far + 4096)]);
    }

    #[test]
    fn our_own_memory_is_surveyed() {
        let mut memory = OwnMemory::map(HugePages(3), Wish::BasePages).expect("6 MiB");
        let page = usize::try_from(BASE_PAGE_BYTES).expect("small");
        memory.bytes_mut()[..9 * page].fill(1);
        let ranges: Vec<PmdRange> = memory.ranges().collect();
        let seen = ourselves().survey(Terms::ASKED_FOR, Extent::ALL).expect("readable");
        let of = |range| {
            seen.found.iter().find_map(|found| match found {
                Found::Base(at, survey) if *at == range => Some(survey.present),
                _ => None,
            })
        };
        assert_eq!([of(ranges[0]), of(ranges[1])], [Some(BasePages(9)), None]);
        let holds =
            |vma: &&PromotableVma| vma.start <= ranges[0].start() && ranges[2].end() <= vma.end;
        assert!(seen.vmas.iter().find(holds).is_some_and(|vma| vma.memory == Memory::Private));
    }
}
