//! The live machine: its processes, its free memory, and what a daemon tells.
//!
//! Looking must cost little, so little is read at each look: what changed or is on the screen, and
//! of the contents of huge pages only a few, in turns, within a time.

use super::sight::{Ask, Map, Moved, Origin, Row, Sight, Size, Source, Spot, Supplied};
use crate::show::action;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use superpage_kernel::pagemap::Pagemap;
use superpage_kernel::process::{self, Process};
use superpage_kernel::sample::Sampler;
use superpage_kernel::status::{self, Ticks};
use superpage_kernel::{Error, maps, meminfo, smaps};
use superpage_manager::history::{self, Entry, Tail};
use superpage_manager::ledger::STATUS;
use superpage_manager::select;
use superpage_manager::status::{Memory, Status};
use superpage_manager::supply;
use superpage_manager::target::{Look, Target};
use superpage_policy::debloat::Depth;
use superpage_policy::sampling::GLANCE;
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, Bytes, PageSize, Region};

/// How much time looking may take. Chosen, not measured: with a look a second, 1 % of a core.
const LOOK: Duration = Duration::from_millis(4);
/// How much it may take where nobody waits for the next: the first look, and the only one.
const FIRST_LOOK: Duration = Duration::from_millis(400);
/// In how many looks each process is looked at again that is neither shown nor changed.
const TURNS: u64 = 8;
/// Huge pages glanced at in one process at a time.
const GLANCES: usize = 64;
/// Processes whose huge pages are glanced at: each takes three file descriptors.
const GLANCED: usize = 64;
/// How long actions are kept, in milliseconds, and how many.
const KEPT_MS: u64 = 15 * 60 * 1000;
const KEPT: usize = 1000;
/// A status that is older than this is of a daemon that is stuck or gone, in milliseconds.
const FRESH_MS: u64 = 120_000;

/// The machine, with what is remembered from look to look.
#[derive(Debug)]
pub(super) struct Live {
    state: PathBuf,
    tail: Tail,
    actions: Vec<Entry>,
    known: BTreeMap<u32, Known>,
    /// Threads of the kernel, and processes without memory of their own.
    empty: BTreeSet<u32>,
    denied: BTreeSet<u32>,
    looks: u64,
    sampler: Sampler,
}

/// A process.
#[derive(Debug)]
struct Known {
    start: Ticks,
    faults: u64,
    row: Row,
    glanced: Option<Glanced>,
}

/// What is known of the contents of a process's huge pages.
#[derive(Debug)]
struct Glanced {
    target: Target,
    at: u64,
    /// The share that is zero-filled, of each that was glanced at and is still there.
    zero: BTreeMap<Region, f64>,
}

impl Live {
    /// The machine, and the daemon that keeps its state in `state`.
    pub(super) fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            tail: Tail::new(state),
            actions: Vec::new(),
            known: BTreeMap::new(),
            empty: BTreeSet::new(),
            denied: BTreeSet::new(),
            looks: 0,
            sampler: Sampler::new(),
        }
    }

    /// Brings the processes up to date that are new, shown, or due.
    fn look_at_processes(&mut self, ask: &Ask, end: Instant) -> anyhow::Result<()> {
        let pids: BTreeSet<u32> = process::list(Path::new("/proc"))?.into_iter().collect();
        self.known.retain(|pid, _| pids.contains(pid));
        self.empty.retain(|pid| pids.contains(pid));
        self.denied.retain(|pid| pids.contains(pid));
        let shown: BTreeSet<u32> = ask.shown.iter().take(GLANCED).copied().collect();
        let is_due = |pid: &u32| {
            !self.known.contains_key(pid)
                || shown.contains(pid)
                || (u64::from(*pid) + self.looks).is_multiple_of(TURNS)
        };
        let skipped = |pid: &u32| {
            self.empty.contains(pid) || self.denied.contains(pid) || *pid == std::process::id()
        };
        let due: Vec<u32> =
            pids.iter().filter(|pid| !skipped(pid) && is_due(pid)).copied().collect();
        // The next look begins where this one ended.
        let first = due.iter().position(|pid| u64::from(*pid) % TURNS == self.looks % TURNS);
        let (later, sooner) = due.split_at(first.unwrap_or(0));
        for pid in sooner.iter().chain(later) {
            if Instant::now() > end {
                break;
            }
            self.look_at(*pid);
        }
        Ok(())
    }

    fn look_at(&mut self, pid: u32) {
        // A huge page can be made without the process noticing.
        let is_turn = (u64::from(pid) + self.looks).is_multiple_of(TURNS);
        let when = if is_turn { When::Always } else { When::Touched };
        match read(pid, self.known.get(&pid), when) {
            Ok(Reading::Unchanged) => {}
            Ok(Reading::Empty) => drop(self.empty.insert(pid)),
            Ok(Reading::Changed { start, faults, row }) => {
                let before = self.known.remove(&pid).filter(|known| known.start == start);
                let glanced = before.and_then(|known| known.glanced);
                self.known.insert(pid, Known { start, faults, row, glanced });
            }
            Err(Error::Denied { .. }) => drop(self.denied.insert(pid)),
            // It is gone, or odd; others are not.
            Err(_) => drop(self.known.remove(&pid)),
        }
    }

    /// Glances at some huge pages of the processes whose turn it is.
    fn glance(&mut self, ask: &Ask, end: Instant) {
        let mut turns: Vec<(u64, std::cmp::Reverse<Bytes>, u32)> = self
            .known
            .iter()
            .filter(|(_, known)| !known.row.huge.is_zero())
            .map(|(pid, known)| {
                let at = known.glanced.as_ref().map_or(0, |glanced| glanced.at);
                (at, std::cmp::Reverse(known.row.huge), *pid)
            })
            .collect();
        turns.sort_by_key(|(_, huge, _)| *huge);
        turns.truncate(GLANCED);
        // The one that is open has every turn.
        turns.sort_by_key(|(at, huge, pid)| (ask.open != Some(*pid), *at, *huge));
        for (_, _, pid) in turns {
            if Instant::now() > end {
                return;
            }
            if let Some(known) = self.known.get_mut(&pid) {
                known.glance(pid, self.looks, &mut self.sampler);
            }
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
    fn look(&mut self, ask: &Ask) -> anyhow::Result<Sight> {
        let now_ms = history::now_ms();
        let time = if self.looks == 0 { FIRST_LOOK } else { LOOK };
        self.look_at_processes(ask, Instant::now() + time)?;
        self.glance(ask, Instant::now() + time);
        self.take_actions(now_ms);
        self.looks += 1;
        let origin = self.origin(now_ms);
        let memory = match &origin {
            Origin::Daemon(status) => status.watches.clone(),
            _ => vec![machine()?],
        };
        let map = ask.open.and_then(|pid| self.known.get(&pid).zip(Some(pid)));
        Ok(Sight {
            of: "this machine".to_owned(),
            at: action::date(now_ms),
            now_ms,
            memory,
            supply: supply::read(Path::new("/proc")).ok().map(|supply| Supplied {
                huge: supply.available(PageSize::Huge),
                fragmentation: supply.fmfi(PageSize::Huge),
            }),
            processes: self.known.values().map(|known| known.row.clone()).collect(),
            denied: self.denied.len(),
            actions: self.actions.clone(),
            // It may have exited just now.
            map: map.and_then(|(known, pid)| known.map(pid).ok()),
            origin,
        })
    }

    fn step(&mut self, _: isize) -> Moved {
        Moved::No
    }
}

/// What was found of a process.
enum Reading {
    /// It has no memory of its own.
    Empty,
    /// No page was touched for the first time since.
    Unchanged,
    Changed {
        start: Ticks,
        faults: u64,
        row: Row,
    },
}

/// When a process's memory is counted again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Whatever it did.
    Always,
    /// If it has touched new memory, or has huge pages.
    Touched,
}

fn read(pid: u32, before: Option<&Known>, when: When) -> Result<Reading, Error> {
    let process = Process::open(pid)?;
    let stat = status::stat_of(&process)?;
    if stat.is_kernel_thread() {
        return Ok(Reading::Empty);
    }
    let faults = stat.minor_faults + stat.major_faults;
    let is_unchanged = |known: &&Known| known.start == stat.start && known.faults == faults;
    // Memory is given back, and made huge, without a fault: what is in huge pages is read again.
    let is_idle = before.filter(is_unchanged).is_some_and(|known| known.row.huge.is_zero());
    if is_idle && when == When::Touched {
        return Ok(Reading::Unchanged);
    }
    let rollup = smaps::of(&process)?;
    let huge = rollup.anon_huge_pages.unwrap_or_default();
    let bloat = before.filter(|known| known.start == stat.start).and_then(|k| k.bloat_of(huge));
    let command = String::from_utf8_lossy(&stat.comm).into_owned();
    let row = Row { pid, command, resident: rollup.rss, huge, bloat };
    Ok(Reading::Changed { start: stat.start, faults, row })
}

impl Known {
    /// The bloat in `huge` bytes of huge pages, as far as was glanced.
    fn bloat_of(&self, huge: Bytes) -> Option<Bytes> {
        let zero = &self.glanced.as_ref()?.zero;
        let share = zero.values().sum::<f64>() / zero.len() as f64;
        (!zero.is_empty()).then(|| huge.scaled(share))
    }

    fn glance(&mut self, pid: u32, look: u64, sampler: &mut Sampler) {
        if self.glanced.is_none() {
            let Ok(target) = select::hold(pid) else { return };
            self.glanced = Some(Glanced { target, at: 0, zero: BTreeMap::new() });
        }
        let Some(glanced) = &mut self.glanced else { return };
        // One that exited leaves with the next look; what was known of it stays until then.
        if glanced.glance(look, sampler).is_ok() {
            self.row.bloat = self.bloat_of(self.row.huge);
        }
    }

    /// Its regions. Which base pages of a huge page are in use is known of those glanced at.
    fn map(&self, pid: u32) -> Result<Map, Error> {
        let process = Process::open(pid)?;
        let mut areas = maps::of(&process)?;
        areas.retain(maps::Area::is_private_anonymous);
        let populated = Pagemap::open(&process)?.populated(&areas)?;
        let zero = self.glanced.as_ref().map(|glanced| &glanced.zero);
        let regions = populated.iter().map(|found| {
            let share = zero.and_then(|zero| zero.get(&found.region)).copied();
            let (size, used) = match found.is_huge {
                true => (Size::Huge, share.map(used)),
                false => (Size::Base, Some(found.pages.count().0)),
            };
            Spot { region: found.region, size, used }
        });
        Ok(Map { regions: regions.collect() })
    }
}

/// The base pages in use of a huge page of which this share is zero-filled.
fn used(zero: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 512")]
    let used = ((1.0 - zero) * BASE_PAGES_PER_HUGE_PAGE as f64).round() as u64;
    used
}

impl Glanced {
    fn glance(&mut self, look: u64, sampler: &mut Sampler) -> Result<(), Error> {
        let regions = self.target.huge_pages()?;
        let present: BTreeSet<Region> = regions.iter().copied().collect();
        self.zero.retain(|region, _| present.contains(region));
        // Every so many, beginning elsewhere each time.
        let every = regions.len().div_ceil(GLANCES).max(1);
        let first = usize::try_from(look).unwrap_or(0) % every;
        let chosen: Vec<Region> = regions.into_iter().skip(first).step_by(every).collect();
        let looks = self.target.look(sampler, &chosen, Depth::Sample(GLANCE), look)?;
        for (region, look) in chosen.into_iter().zip(looks) {
            if let Look::Known(known) = look
                && let Some(density) = known.density()
            {
                self.zero.insert(region, density.share());
            }
        }
        self.at = look + 1;
        Ok(())
    }
}

/// The machine's memory, where no daemon watches it.
fn machine() -> Result<Memory, Error> {
    let memory = meminfo::read(Path::new("/proc"))?;
    Ok(Memory {
        name: "machine".to_owned(),
        used: memory.used().0,
        total: memory.total.0,
        ..Memory::default()
    })
}
