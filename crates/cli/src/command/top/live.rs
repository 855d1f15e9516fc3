//! The live machine: its processes, its free memory, and what a daemon tells.
//!
//! Looking must cost little, so little is read at each look: what changed or is on the screen, and
//! of the contents of huge pages only a few, in turns, within a time.

use super::snapshot::{
    Ask, FreeHuge, Map, Moved, Origin, Row, RowHeap, SeenRange, Size, Snapshot, Source,
};
use crate::heap::RunningHeap;
use crate::show::action;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_kernel::process::Process;
use superpage_kernel::{Error, maps, meminfo};
use superpage_manager::clock;
use superpage_manager::free_memory;
use superpage_manager::history::{self, Entry, Tail};
use superpage_manager::ledger::STATUS;
use superpage_manager::process::{BySize, ManagedProcess};
use superpage_manager::registry::Registry;
use superpage_manager::select::Selection;
use superpage_manager::split::{Look, Splitter};
use superpage_manager::status::{Memory, Status};
use superpage_policy::debloat::Depth;
use superpage_policy::sampling::PRE_SAMPLE;
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, Bytes, Nanos, PageSize, Pid, PmdRange, ProcessKey,
};

/// How much time looking may take. Chosen, not measured: with a look a second, 1 % of a core.
const LOOK: Duration = Duration::from_millis(4);
/// How much it may take where nobody waits for the next: the first look, and the only one.
const FIRST_LOOK: Duration = Duration::from_millis(400);
/// In how many looks each process is looked at again that is neither shown nor changed.
const TURNS: u64 = 8;
/// Huge pages pre-sampled in one process at a time.
const PRE_SAMPLES: usize = 64;
/// Processes whose huge pages are pre-sampled, those with most of them.
const PRE_SAMPLED: usize = 64;
/// How long actions are kept, in milliseconds, and how many.
const KEPT_MS: u64 = 15 * 60 * 1000;
const KEPT: usize = 1000;
/// Looks for a heap in a process that is new: the program may be about to begin. Chosen, not measured.
const SEEK: u8 = 2;
/// A status that is older than this is of a daemon that is stuck or gone, in milliseconds.
const FRESH_MS: u64 = 120_000;

/// The machine, with what is remembered from look to look.
#[derive(Debug)]
pub(super) struct Live {
    state: PathBuf,
    tail: Tail,
    actions: Vec<Entry>,
    registry: Registry,
    known: BTreeMap<ProcessKey, Known>,
    looks: u64,
}

/// A process that was looked at, with the numbers of its last look.
#[derive(Debug)]
struct Known {
    process: Arc<ManagedProcess>,
    faults: u64,
    row: Row,
    /// The look after which its huge pages were pre-sampled last; 0 if they never were.
    pre_sampled_at: u64,
    /// The share that is zero-filled, of each huge page that was pre-sampled and is still there.
    zero: BTreeMap<PmdRange, f64>,
    /// The process's heap that may be larger than memory, and when it was looked at last.
    heap: Option<(RunningHeap, Option<Instant>)>,
    /// So many looks more are for such a heap.
    to_seek: u8,
}

impl Live {
    /// The machine, and the daemon that keeps its state in `state`.
    pub(super) fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            tail: Tail::new(state),
            actions: Vec::new(),
            registry: Registry::new(Selection::default(), PageSize::Huge.bytes()).with_gigantic(),
            known: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Brings the processes up to date that are new, shown, or due, within this time.
    fn look_at_processes(&mut self, ask: &Ask, time: Duration) -> anyhow::Result<()> {
        self.registry.refresh(clock::now())?;
        let end = Instant::now() + time;
        let processes = self.registry.processes();
        let present: BTreeSet<ProcessKey> = processes.iter().map(|process| process.key).collect();
        self.known.retain(|key, _| present.contains(key));
        for process in &processes {
            // After an `execve` it is held anew.
            if let Some(known) = self.known.get_mut(&process.key)
                && !Arc::ptr_eq(&known.process, process)
            {
                known.process = Arc::clone(process);
                (known.heap, known.row.heap, known.to_seek) = (None, None, SEEK);
            }
        }
        let shown: BTreeSet<Pid> = ask.shown.iter().take(PRE_SAMPLED).copied().collect();
        let is_due = |process: &&Arc<ManagedProcess>| {
            !self.known.contains_key(&process.key)
                || shown.contains(&process.pid())
                || self.is_turn(process)
        };
        let due: Vec<_> = processes.iter().filter(is_due).collect();
        // The next look begins where this one ended.
        let first = due.iter().position(|process| self.is_turn(process));
        let (later, sooner) = due.split_at(first.unwrap_or(0));
        for process in sooner.iter().chain(later) {
            if Instant::now() > end {
                break;
            }
            self.look_at(process);
        }
        Ok(())
    }

    /// Whether it is the process's turn to be looked at also if it did nothing: a huge page can be made
    /// without the process noticing.
    fn is_turn(&self, process: &ManagedProcess) -> bool {
        (u64::from(process.pid().0) + self.looks).is_multiple_of(TURNS)
    }

    fn look_at(&mut self, process: &Arc<ManagedProcess>) {
        let when = if self.is_turn(process) { When::Always } else { When::Touched };
        match read(process, self.known.get(&process.key), when) {
            Ok(None) => {}
            Ok(Some((faults, row))) => match self.known.get_mut(&process.key) {
                Some(known) => (known.faults, known.row) = (faults, row),
                None => {
                    let known = Known::new(Arc::clone(process), faults, row);
                    drop(self.known.insert(process.key, known));
                }
            },
            // It is gone, or odd; others are not.
            Err(_) => drop(self.known.remove(&process.key)),
        }
    }

    /// Pre-samples some huge pages of the processes whose turn it is.
    fn pre_sample(&mut self, ask: &Ask, end: Instant) {
        let mut turns: Vec<&mut Known> =
            self.known.values_mut().filter(|known| !known.row.huge.is_zero()).collect();
        turns.sort_by_key(|known| std::cmp::Reverse(known.row.huge));
        turns.truncate(PRE_SAMPLED);
        // The one that is open has every turn; of the others, who waits longest comes first.
        turns.sort_by_key(|known| (ask.open != Some(known.row.pid), known.pre_sampled_at));
        let mut splitter = Splitter::new();
        for known in turns {
            if Instant::now() > end {
                return;
            }
            // A process that exited leaves with the next look; what was known of it stays until then.
            if known.pre_sample(self.looks, &mut splitter).is_ok() {
                known.row.bloat = known.bloat_of(known.row.huge);
            }
        }
    }

    /// Looks at the heaps of programs, and for them where a process is new.
    fn look_at_heaps(&mut self, end: Instant) {
        for known in self.known.values_mut() {
            if known.heap.is_none() && known.to_seek > 0 && Instant::now() < end {
                known.to_seek -= 1;
                known.heap = RunningHeap::of(&known.process.process).ok().map(|heap| (heap, None));
            }
            known.look_at_heap();
        }
    }

    fn take_actions(&mut self, now_ms: u64) {
        // No history is no news.
        if let Ok(found) = self.tail.more() {
            self.actions.extend(found.entries);
        }
        let old = self.actions.partition_point(|entry| entry.at_ms + KEPT_MS < now_ms);
        let many = self.actions.len().saturating_sub(KEPT);
        self.actions.drain(..old.max(many));
    }

    fn origin(&self, now_ms: u64) -> Origin {
        let text = match std::fs::read(self.state.join(STATUS)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Origin::Alone("only root sees whether a daemon runs".to_owned());
            }
            Err(_) => return Origin::Alone("no daemon runs".to_owned()),
        };
        match serde_json::from_slice::<Status>(&text) {
            Ok(status)
                if now_ms.saturating_sub(status.at_ms) < FRESH_MS
                    && Process::open(status.pid).is_ok() =>
            {
                Origin::Daemon(Box::new(status))
            }
            Ok(_) => Origin::Alone("no daemon runs any more".to_owned()),
            Err(_) => Origin::Alone("the daemon's status is of another version".to_owned()),
        }
    }
}

impl Source for Live {
    fn look(&mut self, ask: &Ask) -> anyhow::Result<Snapshot> {
        let now_ms = history::now_ms();
        let time = if self.looks == 0 { FIRST_LOOK } else { LOOK };
        self.look_at_processes(ask, time)?;
        self.pre_sample(ask, Instant::now() + time);
        self.look_at_heaps(Instant::now() + time);
        self.take_actions(now_ms);
        self.looks += 1;
        let origin = self.origin(now_ms);
        let memory = match &origin {
            Origin::Daemon(status) => status.watches.clone(),
            _ => vec![machine()?],
        };
        let open = |known: &&Known| ask.open == Some(known.row.pid);
        let map = self.known.values().find(open);
        Ok(Snapshot {
            of: "this machine".to_owned(),
            at: action::date(now_ms),
            now_ms,
            memory,
            free_memory: free_memory::read(Path::new("/proc")).ok().map(|free_memory| FreeHuge {
                huge: free_memory.huge_pages(),
                fragmentation: free_memory.fmfi(PageSize::Huge),
            }),
            processes: self.known.values().map(|known| known.row.clone()).collect(),
            denied: self.registry.denied(),
            actions: self.actions.clone(),
            // It may have exited just now.
            map: map.and_then(|known| known.map().ok()),
            origin,
        })
    }

    fn step(&mut self, _: isize) -> Moved {
        Moved::No
    }
}

/// When a process's memory is counted again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Whatever it did.
    Always,
    /// If it has touched new memory, or has huge pages.
    Touched,
}

/// The page faults of a process and what is to be shown of it; `None` if nothing has changed.
fn read(
    process: &ManagedProcess,
    before: Option<&Known>,
    when: When,
) -> Result<Option<(u64, Row)>, Error> {
    let stat = process.stat()?;
    let faults = stat.minor_faults + stat.major_faults;
    // Memory is freed, and made huge, without a fault: what is in larger pages is read again.
    let is_idle = |known: &&Known| known.faults == faults && known.row.in_larger_pages().is_zero();
    if before.filter(is_idle).is_some() && when == When::Touched {
        return Ok(None);
    }
    let BySize { resident, base, huge, pool_huge, gigantic } = process.by_size()?;
    let bloat = before.and_then(|known| known.bloat_of(huge));
    let command = process.command().to_owned();
    let pid = process.pid();
    let heap = before.and_then(|known| known.row.heap.clone());
    let row = Row { pid, command, resident, base, huge, pool_huge, gigantic, bloat, heap };
    Ok(Some((faults, row)))
}

impl Known {
    fn new(process: Arc<ManagedProcess>, faults: u64, row: Row) -> Self {
        let (pre_sampled_at, zero) = (0, BTreeMap::new());
        Self { process, faults, row, pre_sampled_at, zero, heap: None, to_seek: SEEK }
    }

    /// Looks at its heap, if it has one.
    fn look_at_heap(&mut self) {
        let Some((heap, at)) = &mut self.heap else { return };
        let now = Instant::now();
        let before = self.row.heap.take().map(|heap| heap.now);
        // The file of the counters may have been cut off: then there is nothing to show.
        self.row.heap = heap.look().ok().map(|state| {
            let before =
                before.as_ref().zip(at.map(|at| Nanos::from_secs_f64((now - at).as_secs_f64())));
            RowHeap::after(before, state)
        });
        *at = Some(now);
    }

    /// The bloat in `huge` bytes of huge pages, as far as was pre-sampled.
    fn bloat_of(&self, huge: Bytes) -> Option<Bytes> {
        let share = self.zero.values().sum::<f64>() / self.zero.len() as f64;
        (!self.zero.is_empty()).then(|| huge.scaled(share))
    }

    fn pre_sample(&mut self, look: u64, splitter: &mut Splitter) -> Result<(), Error> {
        let ranges = self.process.huge_pages()?;
        let present: BTreeSet<PmdRange> = ranges.iter().copied().collect();
        self.zero.retain(|range, _| present.contains(range));
        // Every so many, beginning elsewhere each time.
        let every = ranges.len().div_ceil(PRE_SAMPLES).max(1);
        let first = usize::try_from(look).unwrap_or(0) % every;
        let chosen: Vec<PmdRange> = ranges.into_iter().skip(first).step_by(every).collect();
        let looks = splitter.look(&self.process, &chosen, Depth::Sample(PRE_SAMPLE), look)?;
        for (range, look) in chosen.into_iter().zip(looks) {
            if let Look::Known(known) = look
                && let Some(density) = known.density()
            {
                self.zero.insert(range, density.share().get());
            }
        }
        self.pre_sampled_at = look + 1;
        Ok(())
    }

    /// Its PMD ranges. Which base pages of a huge page are in use is known of those pre-sampled.
    fn map(&self) -> Result<Map, Error> {
        let mut vmas = maps::of(&self.process.process)?;
        vmas.retain(maps::Vma::is_private_anonymous);
        let populated = self.process.pagemap.populated(&vmas)?;
        let ranges = populated.iter().map(|found| {
            let share = self.zero.get(&found.range).copied();
            let (size, used) = match found.is_huge {
                true => (Size::Huge, share.map(used)),
                false => (Size::Base, Some(found.pages.count().0)),
            };
            SeenRange { range: found.range, size, used }
        });
        Ok(Map { ranges: ranges.collect() })
    }
}

/// The base pages in use of a huge page of which this share is zero-filled.
fn used(zero: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 512")]
    let used = ((1.0 - zero) * BASE_PAGES_PER_HUGE_PAGE as f64).round() as u64;
    used
}

/// The machine's memory, where no daemon watches it.
fn machine() -> Result<Memory, Error> {
    let memory = meminfo::read(Path::new("/proc"))?;
    Ok(Memory {
        name: "machine".to_owned(),
        used: memory.used(),
        total: memory.total,
        ..Memory::default()
    })
}
