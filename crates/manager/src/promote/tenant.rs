//! One watched process: where a policy may promote in it, and what its regions have been through.
//!
//! Left out of its areas: files, stacks of threads, memory that cannot be accessed, and what is in
//! other hands (merged by KSM, filled through a userfaultfd).

use super::headroom::Headroom;
use super::lasting::Lasting;
use super::limits::{Past, Refusal, Room};
use crate::cooldown::CoolDown;
use crate::supply;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_kernel::habits::{self, Habits};
use superpage_kernel::maps::{self, Device, Maps, Sharing};
use superpage_kernel::pagemap::{Pagemap, Survey};
use superpage_kernel::process::Process;
use superpage_kernel::{Result, mounts, smaps_flags};
use superpage_policy::system::Footprint;
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::{
    Advice, Area, AreaKind, BasePages, Bytes, Growth, HugePages, Nanos, ProcessKey, Region,
    VirtAddr,
};

/// What is needed to look at a process and to promote in it; shared with whoever carries out.
#[derive(Debug)]
pub struct Held {
    /// The process.
    pub process: Process,
    /// Its page tables.
    pub pagemap: Pagemap,
    /// Its command.
    pub command: String,
}

/// What kind of memory a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The process's own.
    Private,
    /// Shared on purpose: memfd, System V and the like.
    Shared,
}

/// A list of areas is read again only after so many times what reading took: a process with 40,000
/// areas takes tens of milliseconds.
const REREAD: u32 = 50;
/// What a process does otherwise is asked again after this.
const HABITS_HOLD: Duration = Duration::from_secs(30);
/// A region with no more in it was emptied, and is filled anew. Chosen, not measured: half of
/// Quicksilver's threshold.
const EMPTIED: BasePages = BasePages(32);
/// What is not possible rests for 4 s at first, and each time four times longer, up to 17 minutes.
const MOST_VAIN: u32 = 5;
/// A region that was promoted is not promoted again for so long, if its program gives back some or all
/// of it but keeps it mapped; and each time for four times longer, up to 8 minutes. Chosen, with a
/// Redis that writes values of up to 1 MB: its allocator took apart some hundred huge pages a second,
/// and fills them again.
const AGAIN: Nanos = Nanos(30_000_000_000); // tidy: allow(30 s)
const MOST_AGAIN: u32 = 2;
/// A region that is promoted so long after it had rested did not come apart shortly after it was made,
/// and does not rest for longer. Chosen: more than its being found again takes.
const STAYED: Nanos = Nanos(20_000_000_000); // tidy: allow(20 s)
/// The most regions of a process that are remembered as huge. Chosen, not measured: 2 TiB.
const MOST_REMEMBERED: usize = 1 << 20;
/// Areas directly above a guard, and no larger than this, are taken for stacks of threads. glibc's
/// are 8 MiB, Java's 1; nobody's default is larger.
const LARGEST_STACK: Bytes = Bytes::from_mib(64);

/// A region that was promoted.
#[derive(Clone, Copy, Debug)]
struct Promoted {
    /// When, the last time.
    at: Nanos,
    /// How often, shortly one after the other.
    times: u32,
}

impl Promoted {
    /// How long it is not promoted again.
    fn rest(self) -> Nanos {
        AGAIN * 4u64.pow(self.times.saturating_sub(1).min(MOST_AGAIN))
    }

    /// What it is when it is promoted at `now`.
    fn again(before: Option<Self>, now: Nanos) -> Self {
        let times = before.filter(|before| !before.is_over(now)).map_or(0, |before| before.times);
        Self { at: now, times: times.saturating_add(1) }
    }

    /// Whether it is not promoted again at `now`.
    fn rests(self, now: Nanos) -> bool {
        now < self.at + self.rest()
    }

    /// Whether it does not count any more.
    fn is_over(self, now: Nanos) -> bool {
        now > self.at + self.rest() + STAYED
    }
}

/// A watched process.
#[derive(Debug)]
pub struct Tenant {
    /// What it is held by.
    pub held: Arc<Held>,
    key: ProcessKey,
    cgroup: Option<PathBuf>,
    /// The watermarks of that, if it has some of its own.
    marks: Option<Watermarks>,
    habits: Habits,
    asked: Instant,
    areas: Vec<Area>,
    /// Where those of them begin that are shared on purpose.
    shared: BTreeSet<VirtAddr>,
    /// The file systems it sees that keep their files in memory; known once it maps a file shared.
    tmpfs: BTreeSet<Device>,
    read: Option<(Instant, Duration)>,
    /// To ask for single areas; opened when one may have grown.
    maps: Option<Maps>,
    was_huge: BTreeSet<Region>,
    promoted: BTreeMap<Region, Promoted>,
    lasting: Lasting,
    resting: CoolDown,
    /// How often the kernel said that it is not possible there.
    vain: BTreeMap<Region, u32>,
    /// Until when nothing is tried in all of it.
    rests_until: Nanos,
    /// What its cgroup leaves it.
    headroom: Headroom,
    /// What it has mapped, as far as it was seen.
    pub footprint: Footprint,
}

impl Tenant {
    /// Takes hold of what is needed; looks at its areas.
    ///
    /// # Errors
    /// [`superpage_kernel::Error::Gone`], [`superpage_kernel::Error::Denied`].
    pub fn new(
        key: ProcessKey,
        process: Process,
        command: String,
        cgroup: Option<PathBuf>,
    ) -> Result<Self> {
        let pagemap = Pagemap::open(&process)?;
        let habits = habits::of(&process)?;
        let mut tenant = Self {
            held: Arc::new(Held { process, pagemap, command }),
            key,
            cgroup,
            marks: None,
            habits,
            asked: Instant::now(),
            areas: Vec::new(),
            shared: BTreeSet::new(),
            tmpfs: BTreeSet::new(),
            read: None,
            maps: None,
            was_huge: BTreeSet::new(),
            promoted: BTreeMap::new(),
            lasting: Lasting::new(Instant::now()),
            resting: CoolDown::new(),
            vain: BTreeMap::new(),
            rests_until: Nanos::ZERO,
            headroom: Headroom::default(),
            footprint: Footprint::default(),
        };
        tenant.read_areas()?;
        Ok(tenant)
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> ProcessKey {
        self.key
    }

    /// Whether nobody can give it huge pages, because it forbade them itself.
    #[must_use]
    pub fn refuses_huge_pages(&self) -> bool {
        self.habits.refuses_huge_pages
    }

    /// Its areas where a policy may promote.
    #[must_use]
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// The area that `address` lies in.
    #[must_use]
    pub fn area_of(&self, address: VirtAddr) -> Option<Area> {
        let after = self.areas.partition_point(|area| area.start <= address);
        self.areas.get(after.checked_sub(1)?).copied().filter(|area| address < area.end)
    }

    /// The area of a fault's address. If it is in none, or if the list is old, it is read again, but
    /// not too often; one that may have grown is asked for by itself.
    ///
    /// # Errors
    /// As [`Tenant::new`].
    pub fn area_for_fault(&mut self, address: VirtAddr) -> Result<Option<Area>> {
        let is_old = self.read.is_none_or(|(at, _)| at.elapsed() >= HABITS_HOLD);
        let is_known = self.knows(Region::containing(address)) || self.take_in_growth(address);
        if (is_old || !is_known) && self.until_read().is_zero() {
            self.read_areas()?;
        }
        Ok(self.area_of(address))
    }

    /// Whether `address` is in an area that was there before and reaches further up now, or as far as
    /// it did; takes that in. (One that grows down begins elsewhere, as another one does.)
    fn take_in_growth(&mut self, address: VirtAddr) -> bool {
        let after = self.areas.partition_point(|area| area.start <= address);
        let next = self.areas.get(after).map(|next| next.start);
        let known =
            after.checked_sub(1).and_then(|at| self.areas.get(at).map(|area| (at, area.start)));
        let Some((at, start)) = known else { return false };
        if self.maps.is_none() {
            self.maps = Maps::open(&self.held.process).ok();
        }
        let found = match self.maps.as_ref().map(|maps| maps.area_at(address)) {
            Some(Ok(found)) => found,
            // After an `execve` it has other memory.
            Some(Err(_)) | None => {
                self.maps = None;
                None
            }
        };
        let is_same = |found: &maps::Area| {
            found.start == start
                && self.is_shared_memory(found) == self.shared.contains(&start)
                && next.is_none_or(|next| found.end <= next)
        };
        let Some(area) = found.filter(is_same).and_then(|found| self.as_policies_see(&found))
        else {
            return false;
        };
        self.areas[at] = area;
        true
    }

    /// Whether all of the region lies in an area that is known.
    fn knows(&self, region: Region) -> bool {
        self.area_of(region.start()).is_some_and(|area| area.holds(region.into()))
    }

    /// How long it is until the list of areas may be read again.
    fn until_read(&self) -> Duration {
        self.read.map_or(Duration::ZERO, |(at, took)| (took * REREAD).saturating_sub(at.elapsed()))
    }

    /// Whether some of the region lies in a known area, which may grow over the rest.
    #[must_use]
    pub fn may_hold(&self, region: Region) -> bool {
        let last = VirtAddr(region.end().0 - 1);
        self.area_of(region.start()).or_else(|| self.area_of(last)).is_some()
    }

    /// Reads the list of areas again if that is older than `age`.
    pub fn see_areas(&mut self, age: Duration) {
        let is_old = self.read.is_none_or(|(at, _)| at.elapsed() >= age);
        if is_old && self.until_read().is_zero() {
            // What cannot be read now is out of reach, and let go at the next sweep.
            let _ = self.read_areas();
            self.count();
        }
    }

    /// How long a fault at this address has to wait until it can be said in which area it is.
    #[must_use]
    pub fn wait_for_area(&mut self, address: VirtAddr) -> Duration {
        let wait = self.until_read();
        let is_known = wait.is_zero()
            || self.knows(Region::containing(address))
            || self.take_in_growth(address);
        if is_known { Duration::ZERO } else { wait }
    }

    /// Reads the list of areas.
    ///
    /// # Errors
    /// As [`Tenant::new`].
    pub fn read_areas(&mut self) -> Result<()> {
        let began = Instant::now();
        if self.asked.elapsed() >= HABITS_HOLD {
            self.habits = habits::of(&self.held.process)?;
            self.asked = began;
        }
        let found = maps::of(&self.held.process)?;
        let others = match self.habits.need_care() {
            true => smaps_flags::in_other_hands(&self.held.process)?,
            false => BTreeSet::new(),
        };
        let mut areas = Vec::new();
        if found.iter().any(|area| area.sharing == Sharing::Shared && !is_known_shared(area)) {
            self.tmpfs = mounts::tmpfs_of(&self.held.process).unwrap_or_default();
        }
        let shared = found.iter().filter(|area| self.is_shared_memory(area));
        self.shared = shared.map(|area| area.start).collect();
        let mut below: Option<&maps::Area> = None;
        for area in &found {
            if !others.contains(&area.start) && !is_stack(area, below) {
                areas.extend(self.as_policies_see(area));
            }
            below = Some(area);
        }
        self.areas = areas;
        let mut was_huge = std::mem::take(&mut self.was_huge);
        was_huge.retain(|region| self.area_of(region.start()).is_some());
        self.was_huge = was_huge;
        let mut promoted = std::mem::take(&mut self.promoted);
        // What is mapped there later is another one.
        promoted.retain(|region, _| self.area_of(region.start()).is_some());
        self.promoted = promoted;
        self.read = Some((began, began.elapsed()));
        Ok(())
    }

    /// An area as policies see it, if they may promote in it.
    fn as_policies_see(&self, area: &maps::Area) -> Option<Area> {
        let can_be_used = area.permissions.read || area.permissions.write;
        let is_heap = area.name == b"[heap]";
        let holds_any = Region::within(area.start, area.end).next().is_some();
        if !can_be_used || !(area.is_private_anonymous() || self.is_shared_memory(area)) {
            return None;
        }
        if !is_heap && !holds_any {
            return None;
        }
        let before = self.area_of(area.start);
        let has_grown = before.is_some_and(|b| b.growth == Growth::Up || b.end < area.end);
        let growth = if is_heap || has_grown { Growth::Up } else { Growth::Fixed };
        Some(Area {
            start: area.start,
            end: area.end,
            kind: AreaKind::Anonymous,
            growth,
            advice: Advice::None,
        })
    }

    /// Memory that programs share and that has no file on a disk behind it. Not hugetlb.
    fn is_shared_memory(&self, area: &maps::Area) -> bool {
        area.sharing == Sharing::Shared
            && (is_known_shared(area) || self.tmpfs.contains(&area.device))
    }

    /// What kind of memory a region is.
    #[must_use]
    pub fn memory_of(&self, region: Region) -> Memory {
        match self.area_of(region.start()) {
            Some(area) if self.shared.contains(&area.start) => Memory::Shared,
            _ => Memory::Private,
        }
    }

    /// What is mapped in a region.
    ///
    /// # Errors
    /// As [`Pagemap::survey`].
    pub fn survey(&self, region: Region) -> Result<Survey> {
        self.held.pagemap.survey(region)
    }

    /// Counts what it has mapped, by `smaps_rollup`: the kernel walks all of its page tables for it.
    pub fn count(&mut self) {
        let Ok(rollup) = superpage_kernel::smaps::of(&self.held.process) else { return };
        let huge = rollup.anon_huge_pages.unwrap_or_default().to_huge_pages();
        let base = rollup.rss.to_base_pages().saturating_sub(huge.base_pages());
        self.footprint = Footprint { base, huge, ..Footprint::default() };
    }

    /// Takes in what is in a region now: one that was emptied is new again.
    pub fn see(&mut self, region: Region, seen: &Survey) {
        if seen.population + seen.zero_pages <= EMPTIED {
            self.was_huge.remove(&region);
        }
    }

    /// What the region has been through.
    #[must_use]
    pub fn past(&self, region: Region) -> Past {
        if self.was_huge.contains(&region) { Past::WasHuge } else { Past::New }
    }

    /// So much CPU time was spent to promote in it.
    pub fn spend(&mut self, cost: Nanos, time: Instant) {
        self.lasting.spend(cost, time);
    }

    /// The region was promoted at `now`.
    pub fn is_huge(&mut self, region: Region, filled: BasePages, now: Nanos) {
        self.lasting.promoted(region, now);
        self.vain.remove(&region);
        if self.was_huge.len() < MOST_REMEMBERED {
            self.was_huge.insert(region);
            let promoted = Promoted::again(self.promoted.get(&region).copied(), now);
            self.promoted.insert(region, promoted);
        }
        self.footprint.huge += HugePages(1);
        let copied = HugePages(1).base_pages().saturating_sub(filled);
        self.footprint.base = self.footprint.base.saturating_sub(copied);
    }

    /// Regions that were huge, for whoever keeps them.
    pub fn remembered(&self) -> impl Iterator<Item = Region> {
        self.was_huge.iter().copied()
    }

    /// Takes in regions that were huge before we looked.
    pub fn remember(&mut self, regions: impl IntoIterator<Item = Region>) {
        self.was_huge.extend(regions);
    }

    /// Whether nothing is to be promoted there now (by both clocks).
    #[must_use]
    pub fn is_left_alone(&self, region: Region, now: Nanos, time: Instant) -> bool {
        self.rests(region, now) || !self.wait_to_promote(time).is_zero()
    }

    /// Whether the region, or all of the process, rests at `now`.
    fn rests(&self, region: Region, now: Nanos) -> bool {
        now < self.rests_until
            || self.resting.contains(self.key, region, now)
            || self.promoted.get(&region).is_some_and(|promoted| promoted.rests(now))
    }

    /// How long it is until anything may be promoted, where that does not last.
    #[must_use]
    pub fn wait_to_promote(&self, time: Instant) -> Duration {
        self.lasting.wait(time)
    }

    /// Leaves alone what was refused, for as long as it makes sense.
    pub fn rest(&mut self, region: Region, why: Refusal, now: Nanos) {
        let seconds = |s| now + Nanos::from_secs_f64(s);
        match why {
            // All of the process: its cgroup is at its limit.
            Refusal::CgroupLimit => self.rests_until = seconds(10.0),
            // How free memory lies is looked at every second; a program that fills the region meanwhile
            // would have it refused a thousand times.
            Refusal::Busy | Refusal::Fragmentation => {
                self.resting.add(self.key, region, seconds(1.0));
            }
            Refusal::Shared => self.resting.add(self.key, region, seconds(10.0)),
            Refusal::NoHugePage => self.resting.add(self.key, region, seconds(10.0)),
            // The kernel's answer is the same for what will never be and for what changed under
            // its hands.
            Refusal::NotPossible => {
                let times = self.vain.entry(region).or_default();
                *times = (*times + 1).min(MOST_VAIN);
                let until = seconds(f64::from(4u32.pow(*times)));
                self.resting.add(self.key, region, until);
            }
            // These depend on what is seen next time.
            Refusal::Memory | Refusal::BloatAgain | Refusal::Swapped | Refusal::Gone => {}
        }
    }

    /// Forgets what has rested long enough, and looks what became of what was promoted.
    pub fn expire(&mut self, now: Nanos) {
        self.resting.expire(now);
        let pagemap = &self.held.pagemap;
        self.lasting.look(now, |region| {
            // What was taken back from it says nothing of its program.
            let seen = pagemap.survey(region).ok()?;
            (seen.is_huge || seen.zero_pages.is_zero()).then_some(seen.is_huge)
        });
        self.promoted.retain(|_, promoted| !promoted.is_over(now));
    }

    /// This cgroup, which it is in, has watermarks of its own.
    pub fn guard(&mut self, cgroup: PathBuf, marks: Watermarks) {
        self.cgroup = Some(cgroup);
        self.marks = Some(marks);
    }

    /// What its cgroup leaves it; `marks` hold for one that has none of its own.
    pub fn room(&mut self, marks: Watermarks) -> Room {
        let Some(path) = &self.cgroup else { return Room::Plenty };
        let marks = self.marks.unwrap_or(marks);
        self.headroom.room(marks, Instant::now(), || usage_of(path))
    }

    /// A huge page is going to be made in it.
    pub fn promise(&mut self) {
        self.headroom.promise();
    }

    /// One that was promised has been made, or was not.
    pub fn settle(&mut self) {
        self.headroom.settle();
    }
}

/// What is used of the tightest limit of a cgroup and those above it; `None` where none has one, or
/// can be asked.
fn usage_of(path: &Path) -> Option<Usage> {
    let limited = path.ancestors().filter_map(|path| supply::usage_of_cgroup(path).ok().flatten());
    limited.max_by(|one, other| one.share().total_cmp(&other.share()))
}

/// Whether it is a stack: the kernel names the first thread's; those of other threads lie directly
/// above a guard.
fn is_stack(area: &maps::Area, below: Option<&maps::Area>) -> bool {
    let is_guard = |below: &maps::Area| {
        let access = below.permissions;
        below.end == area.start && !(access.read || access.write || access.execute)
    };
    area.name.starts_with(b"[stack")
        || area.name.starts_with(b"[anon:stack")
        || area.size() <= LARGEST_STACK
            && area.name.is_empty()
            && below.is_some_and(|below| is_guard(below) && below.size() < Bytes::from_mib(1))
}

/// Whether its name says that no disk is behind it: memfd, System V, POSIX shared memory,
/// `mmap(MAP_SHARED | MAP_ANONYMOUS)`.
fn is_known_shared(area: &maps::Area) -> bool {
    const NAMES: [&[u8]; 5] =
        [b"/memfd:", b"/dev/shm/", b"/SYSV", b"/dev/zero (deleted)", b"[anon_shmem:"];
    NAMES.iter().any(|name| area.name.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_kernel::Error;
    use superpage_kernel::own_memory::{OwnMemory, Wish};

    fn parse(text: &str) -> Vec<maps::Area> {
        maps::parse(text.as_bytes(), Path::new("maps")).expect("areas")
    }

    #[test]
    fn stacks_of_threads_are_known_by_their_guard() {
        let areas = parse(
            "7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
             7f0000001000-7f0000801000 rw-p 00000000 00:00 0 \n\
             7f0000900000-7f0010900000 rw-p 00000000 00:00 0 \n\
             7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                [stack]\n",
        );
        assert!(is_stack(&areas[1], Some(&areas[0])));
        assert!(!is_stack(&areas[2], Some(&areas[1])), "not above a guard");
        assert!(is_stack(&areas[3], None));
        // A heap of glibc's other arenas has what it has not used yet above it.
        let arena = parse(
            "7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
             7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n\
             7f0004000000-7f0004800000 rw-p 00000000 00:00 0 \n",
        );
        assert!(!is_stack(&arena[2], Some(&arena[1])), "that is no guard, it is too large");
    }

    #[test]
    fn shared_memory_without_a_file_may_be_promoted() {
        let areas = parse(
            "7f0000000000-7f0000400000 rw-s 00000000 00:01 5 /memfd:guest (deleted)\n\
             7f0000400000-7f0000800000 rw-p 00000000 00:01 5 /memfd:guest (deleted)\n\
             7f0000800000-7f0000c00000 rw-s 00000000 00:01 6 /dev/zero (deleted)\n\
             7f0000c00000-7f0001000000 rw-s 00000000 08:01 7 /var/lib/db\n\
             7f0001000000-7f0001400000 rw-s 00000000 00:0f 8 /anon_hugepage (deleted)\n\
             7f0001400000-7f0001800000 rw-s 00000000 00:2a 9 /run/db/buffers\n\
             7f0001800000-7f0001c00000 rw-p 00000000 00:2a 9 /run/db/buffers\n",
        );
        let me = Process::current().expect("we run");
        let mut tenant = Tenant::new(ProcessKey(1), me, "me".into(), None).expect("readable");
        tenant.tmpfs = BTreeSet::from([Device { major: 0, minor: 42 }]);
        let shared: Vec<bool> = areas.iter().map(|area| tenant.is_shared_memory(area)).collect();
        assert_eq!(shared, [true, false, true, false, false, true, false]);
    }

    #[test]
    fn our_own_memory_has_areas_and_rests_when_it_was_refused() {
        let me = Process::current().expect("we run");
        let mut tenant = Tenant::new(ProcessKey(1), me, "me".into(), None).expect("readable");
        assert!(!tenant.areas().is_empty());
        assert_eq!(tenant.room(Watermarks::default()), Room::Plenty);
        let region = Region::containing(tenant.areas()[0].start);
        let second = Nanos::from_secs_f64(1.0);
        tenant.rest(region, Refusal::Busy, second);
        assert!(tenant.rests(region, second) && !tenant.rests(region, second + second));
        tenant.rest(region, Refusal::CgroupLimit, second);
        let other = Region::containing(region.end());
        assert!(tenant.rests(other, second + second));
        assert_eq!(tenant.past(region), Past::New);
        tenant.is_huge(region, BasePages::ZERO, second);
        assert_eq!(tenant.past(region), Past::WasHuge);
        assert!(tenant.rests(region, second + second));
    }

    #[test]
    fn an_area_that_has_grown_is_asked_for_by_itself() {
        let memory = OwnMemory::map(HugePages(3), Wish::BasePages).expect("6 MiB");
        let last = memory.regions().last().expect("three");
        let me = Process::current().expect("we run");
        let maps = Maps::open(&me).expect("our own");
        if matches!(maps.area_at(last.start()), Err(Error::Unsupported { .. })) {
            return println!("skipped an area that has grown: one cannot be asked for by itself");
        }
        let mut tenant = Tenant::new(ProcessKey(1), me, "me".into(), None).expect("readable");
        let at = tenant.areas.partition_point(|area| area.start <= last.start()) - 1;
        let whole = tenant.areas[at];
        // As it was when it was read, and its list just now.
        tenant.areas[at].end = last.start();
        tenant.areas.truncate(at + 1);
        // It could be read again.
        tenant.read = Some((Instant::now(), Duration::ZERO));
        let read = tenant.read;
        let now = tenant.area_for_fault(last.start()).expect("readable");
        assert_eq!(now, Some(Area { growth: Growth::Up, ..whole }));
        assert_eq!(tenant.read, read, "the list was not read");
        // What begins elsewhere is another area.
        tenant.areas[at].start = tenant.areas[at].start.offset(Bytes(1));
        assert!(!tenant.take_in_growth(last.start()));
        tenant.areas[at] = whole;
        tenant.shared.insert(whole.start);
        assert!(!tenant.take_in_growth(last.start()), "that was shared");
    }

    #[test]
    fn what_comes_apart_again_and_again_is_promoted_less_and_less_often() {
        let second = Nanos::from_secs_f64(1.0);
        let mut promoted = Promoted::again(None, second);
        assert_eq!((promoted.times, promoted.rest()), (1, AGAIN));
        for (times, longer) in [(2, 4), (3, 16), (4, 16)] {
            promoted = Promoted::again(Some(promoted), promoted.at + promoted.rest());
            assert_eq!((promoted.times, promoted.rest()), (times, AGAIN * longer));
        }
        let later = promoted.at + promoted.rest() + STAYED + AGAIN;
        assert_eq!(Promoted::again(Some(promoted), later).times, 1, "it stayed whole for long");
    }
}
