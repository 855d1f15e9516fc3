//! The admission gate: whether a promotion may begin now, or why not.
//!
//! The gate asks first what everybody shares ([`Gate::ready_at`]): the CPU budget, and the pause while there are no huge pages.
//! Then it asks for one owner's processes ([`Gate::ready_for`]): the pause after work that took long in them. Then one PMD range
//! ([`Gate::admit`]): memory, fragmentation, swap, bloat.

use super::bucket::TokenBucket;
use super::range::Refusal;
use crate::budget::CpuBudget;
use crate::left_behind::Owner;
use std::collections::BTreeMap;
use superpage_kernel::pagemap::Survey;
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages, Nanos, PageSize, Share, Time,
};

/// Time of which the CPU budget can be saved up. Chosen, not measured: a heap that is filled at once
/// is promoted at once, up to some thousands of huge pages.
pub const BURST: Nanos = Nanos(10_000_000_000); // tidy: allow(10 s)

/// A call that takes longer than this for each huge page slows down the next ones, and one of less than
/// half of it speeds them up. tcmalloc's rule for its own collapses (`HugePageFiller`,
/// `UpdateMaxBackoffDelay`).
pub const SLOW: Nanos = Nanos(30_000_000);
/// A request that took longer than this kept others waiting, and makes a pause of its owner's processes; all the time of such a
/// survey counts as what the process may take. Chosen, not measured.
pub const SLOW_REQUEST: Nanos = Nanos(500_000_000);
/// The first pause after a slow call. Chosen, not measured.
const FIRST_PAUSE: Nanos = Nanos(10_000_000);
/// The longest pause after slow calls, which do get something done, but for calls that take longer than that themselves.
/// Chosen, not measured.
const LONGEST_SLOW: Nanos = Nanos(1_000_000_000); // tidy: allow(1 s)
/// The longest pause where there is no huge page: khugepaged's (`alloc_sleep_millisecs`).
const LONGEST_PAUSE: Nanos = Nanos(60_000_000_000); // tidy: allow(60 s)

/// The pause between calls while the kernel takes long.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackOff {
    pause: Nanos,
    until: Time,
}

impl BackOff {
    /// A call ended at `now`, after this time for each huge page. The pause is at least as long as a slow call, so that others
    /// have a turn however long it was.
    pub fn took(&mut self, time: Nanos, now: Time) {
        if time > SLOW {
            self.slow_down(now, LONGEST_SLOW.max(self.pause));
            self.waited_for(time, now);
        } else if time * 2 < SLOW {
            self.pause =
                if self.pause <= FIRST_PAUSE { Nanos::ZERO } else { Nanos(self.pause.0 / 2) };
        }
    }

    /// Others waited so long for work that ended at `now`.
    pub fn waited_for(&mut self, time: Nanos, now: Time) {
        self.until = self.until.max(now + time);
    }

    /// There was no huge page to be had.
    pub fn found_none(&mut self, now: Time) {
        self.slow_down(now, LONGEST_PAUSE);
    }

    fn slow_down(&mut self, now: Time, longest: Nanos) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, longest);
        self.until = self.until.max(now + self.pause);
    }

    /// The rest of the pause at `now`.
    #[must_use]
    pub fn left(&self, now: Time) -> Nanos {
        self.until.since(now)
    }
}

/// Memory with watermarks: the machine's, a cgroup's, or some nodes', and what was promised of it since its usage
/// was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Domain {
    /// What was used.
    pub usage: Usage,
    /// When nothing may be added any more, and when only a little.
    pub marks: Watermarks,
    /// Huge pages that collapse requests under way may add.
    pub promised: HugePages,
}

/// The domains, besides the machine's, in which a process has its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    /// The domain of the process's cgroup, if that has a limit.
    pub cgroup: Option<usize>,
    /// The domain of the nodes to which the process is bound.
    pub nodes: Option<usize>,
}

impl Domains {
    /// The machine's domain and these.
    pub fn all(self) -> impl Iterator<Item = usize> {
        [Some(0), self.cgroup, self.nodes].into_iter().flatten()
    }
}

/// How much memory promotions may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// None: the high watermark is passed.
    None,
    /// No more than reclaiming bloat would leave: the low watermark is passed.
    Little,
    /// As much as the policy likes.
    Plenty,
}

impl Room {
    /// What is left below the watermarks.
    #[must_use]
    pub fn below(marks: Watermarks, usage: Usage) -> Self {
        match usage.share() {
            share if share >= marks.high() => Self::None,
            share if share >= marks.low() => Self::Little,
            _ => Self::Plenty,
        }
    }
}

impl Domain {
    /// What promotions may add to it.
    #[must_use]
    pub fn room(&self) -> Room {
        let used = self.usage.used + self.promised.bytes();
        Room::below(self.marks, Usage { used, ..self.usage })
    }
}

/// What holds for every promotion.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The base pages that splitting a huge page has to free to be worth it: with as much missing, a new
    /// huge page would be split again.
    pub worth: BasePages,
    /// The share of fragmented free memory above which no huge page is asked for.
    pub max_fragmentation: Share,
    /// The share of fragmented free memory now.
    pub fragmentation: Share,
}

/// Whether a range has been huge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It has not been seen as a huge page.
    New,
    /// It was one.
    WasHuge,
}

impl Limits {
    /// Takes in what memory is free.
    pub fn see(&mut self, free: &FreeMemory) {
        self.fragmentation = free.fmfi(PageSize::Huge);
    }

    /// Whether a range that looks like this may be promoted, where there is this much `room`.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, seen: &Survey, past: Past, room: Room) -> Result<(), Refusal> {
        let missing = BasePages(BASE_PAGES_PER_HUGE_PAGE).saturating_sub(seen.present);
        let little = self.worth.saturating_sub(BasePages(1));
        // A collapse reads what is in swap back, while its process waits.
        if !seen.swapped.is_zero() {
            return Err(Refusal::Swapped);
        }
        // A split maps what it frees to the shared zero page, which PAGEMAP_SCAN shows.
        let was_reclaimed = past == Past::WasHuge || !seen.zero_pages.is_zero();
        if was_reclaimed && missing > little {
            return Err(Refusal::BloatAgain);
        }
        let most = match room {
            Room::None => BasePages::ZERO,
            Room::Little => little,
            Room::Plenty => BasePages(BASE_PAGES_PER_HUGE_PAGE),
        };
        if missing > most {
            return Err(Refusal::Memory);
        }
        if self.fragmentation > self.max_fragmentation {
            return Err(Refusal::Fragmentation);
        }
        Ok(())
    }
}

/// The gate.
#[derive(Clone, Debug)]
pub struct Gate {
    budget: TokenBucket,
    /// The pause while there are no huge pages.
    pub no_huge_page: BackOff,
    /// The pause after calls that took long, by the owner in whose processes they did: who makes his own processes slow slows
    /// down nobody else's.
    slow: BTreeMap<Owner, BackOff>,
    /// What holds for every promotion.
    pub limits: Limits,
    /// The machine's memory first, then cgroups' with limits, and nodes'.
    domains: Vec<Domain>,
}

/// A promise of memory for one PMD range. It counts as used until the usage is read again after its
/// request has ended: until then that huge page is in no reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The domains of the process.
    pub domains: Domains,
}

impl Gate {
    /// A gate that nothing has passed, as of `now`.
    #[must_use]
    pub fn new(budget: CpuBudget, limits: Limits, now: Time) -> Self {
        Self {
            budget: TokenBucket::new(budget.share(), BURST, now),
            no_huge_page: BackOff::default(),
            slow: BTreeMap::new(),
            limits,
            domains: Vec::new(),
        }
    }

    /// Another budget and other limits hold from now on.
    pub fn configure(&mut self, budget: CpuBudget, limits: Limits, now: Time) {
        let fragmentation = self.limits.fragmentation;
        self.budget = TokenBucket::new(budget.share(), BURST, now);
        self.limits = Limits { fragmentation, ..limits };
    }

    /// Takes out of the budget what work has cost.
    pub fn spend(&mut self, cost: Nanos, now: Time) {
        self.budget.spend(cost, now);
    }

    /// When the next collapse may begin, as far as that concerns all processes.
    #[must_use]
    pub fn ready_at(&self) -> Time {
        self.budget.ready_at().max(self.no_huge_page.until)
    }

    /// The time at which the next work in this owner's processes may begin.
    #[must_use]
    pub fn ready_for(&self, owner: &Owner) -> Time {
        self.slow.get(owner).map_or(Time::ZERO, |pause| pause.until)
    }

    /// A call in a process of this owner ended at `now`, after this time for each huge page.
    pub fn took(&mut self, owner: Owner, time: Nanos, now: Time) {
        self.slow.entry(owner).or_default().took(time, now);
    }

    /// A request about a process of this owner ended at `now`, after this time. If that was long, his processes wait as long.
    pub fn waited_for(&mut self, owner: Option<Owner>, time: Nanos, now: Time) {
        if let Some(owner) = owner.filter(|_| time > SLOW_REQUEST) {
            self.slow.entry(owner).or_default().waited_for(time, now);
        }
    }

    /// Forgets pauses that were over some time ago.
    pub fn forget_pauses(&mut self, now: Time) {
        self.slow.retain(|_, pause| now.since(pause.until) < LONGEST_SLOW);
    }

    /// The rest, at `now`, of the longest pause: of some owner's processes, or of all.
    #[must_use]
    pub fn longest_pause(&self, now: Time) -> Nanos {
        let all = self.slow.values().chain([&self.no_huge_page]);
        all.map(|pause| pause.left(now)).max().unwrap_or_default()
    }

    /// When the CPU budget allows the next look at a process.
    #[must_use]
    pub fn budget_at(&self) -> Time {
        self.budget.ready_at()
    }

    /// Takes in how memory is used now. Requests under way may be in that or not, so their promises count
    /// still.
    pub fn see(&mut self, domains: Vec<Domain>, free: &FreeMemory) {
        self.domains = domains;
        self.limits.see(free);
    }

    /// Whether a range that looks like this may be promoted.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&mut self, seen: &Survey, past: Past, domains: Domains) -> Result<Guard, Refusal> {
        let guard = Guard { domains };
        let room = self.of(guard).map(|domain| domain.room()).min().unwrap_or(Room::Plenty);
        self.limits.check(seen, past, room)?;
        self.of(guard).for_each(|domain| domain.promised += HugePages(1));
        Ok(guard)
    }

    /// The machine's domain and those of a process.
    fn of(&mut self, guard: Guard) -> impl Iterator<Item = &mut Domain> {
        let is_meant = move |index: usize| guard.domains.all().any(|meant| meant == index);
        self.domains.iter_mut().enumerate().filter(move |(index, _)| is_meant(*index)).map(|d| d.1)
    }

    /// What is promised of the machine's memory.
    #[must_use]
    pub fn promised(&self) -> HugePages {
        self.domains.first().map(|domain| domain.promised).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use superpage_kernel::status::Uid;
    use superpage_units::Bytes;

    const LIMITS: Limits = Limits {
        worth: BasePages(51),
        max_fragmentation: Share::percent(90),
        fragmentation: Share::percent(50),
    };

    fn seen(present: u64) -> Survey {
        Survey { present: BasePages(present), ..Survey::default() }
    }

    fn domain(used: u64, total: u64) -> Domain {
        let usage = Usage { used: HugePages(used).bytes(), total: HugePages(total).bytes() };
        Domain { usage, marks: Watermarks::default(), promised: HugePages::ZERO }
    }

    #[test]
    fn while_memory_is_free_anything_goes() {
        assert_eq!(LIMITS.check(&seen(1), Past::New, Room::Plenty), Ok(()));
    }

    #[test]
    fn between_the_watermarks_only_what_hardly_adds() {
        for (room, most) in [(Room::Little, 50), (Room::None, 0)] {
            let check = |missing: u64| LIMITS.check(&seen(512 - missing), Past::New, room);
            assert_eq!(check(most), Ok(()));
            assert_eq!(check(most + 1), Err(Refusal::Memory));
        }
        let marks = Watermarks::default();
        let room = |used| Room::below(marks, Usage { used: Bytes(used), total: Bytes(100) });
        assert_eq!(
            [64, 65, 79, 80].map(room),
            [Room::Plenty, Room::Little, Room::Little, Room::None]
        );
    }

    #[test]
    fn reclaimed_ranges_must_be_nearly_full() {
        let freed = |zero| Survey { zero_pages: BasePages(zero), ..seen(461) };
        assert_eq!(LIMITS.check(&seen(461), Past::WasHuge, Room::Plenty), Err(Refusal::BloatAgain));
        assert_eq!(LIMITS.check(&seen(462), Past::WasHuge, Room::Plenty), Ok(()));
        assert_eq!(LIMITS.check(&freed(1), Past::New, Room::Plenty), Err(Refusal::BloatAgain));
        assert_eq!(LIMITS.check(&freed(0), Past::New, Room::Plenty), Ok(()));
    }

    #[test]
    fn fragmentation_and_swap_are_reasons_too() {
        let fragmented = Limits { fragmentation: Share::percent(91), ..LIMITS };
        let check = fragmented.check(&seen(512), Past::New, Room::Plenty);
        assert_eq!(check, Err(Refusal::Fragmentation));
        let swapped = Survey { swapped: BasePages(1), ..seen(512) };
        assert_eq!(LIMITS.check(&swapped, Past::New, Room::Plenty), Err(Refusal::Swapped));
    }

    #[test]
    fn promised_memory_counts_as_used_until_the_next_reading() {
        let mut gate = Gate::new(CpuBudget::UNLIMITED, LIMITS, Time::ZERO);
        gate.see(vec![domain(63, 100), domain(64, 100)], &FreeMemory::NONE);
        gate.limits.fragmentation = Share::NONE;
        let (inside, outside) = (Domains { cgroup: Some(1), nodes: None }, Domains::default());
        let guard = gate.admit(&seen(1), Past::New, inside).expect("there is room");
        assert_eq!(gate.admit(&seen(1), Past::New, inside), Err(Refusal::Memory));
        let other = gate.admit(&seen(1), Past::New, outside).expect("the cgroup is not its");
        assert_eq!(gate.promised(), HugePages(2));
        assert_eq!((guard.domains, other.domains), (inside, outside));
        gate.see(vec![domain(63, 100), domain(64, 100)], &FreeMemory::NONE);
        gate.limits.fragmentation = Share::NONE;
        assert_eq!(gate.promised(), HugePages::ZERO);
        assert!(gate.admit(&seen(1), Past::New, inside).is_ok());
    }

    #[test]
    fn a_process_keeps_to_its_cgroup_and_to_its_nodes() {
        let (free, full) = (domain(10, 100), domain(90, 100));
        for (cgroup, nodes, is_admitted) in
            [(free, free, true), (full, free, false), (free, full, false), (full, full, false)]
        {
            let mut gate = Gate::new(CpuBudget::UNLIMITED, LIMITS, Time::ZERO);
            gate.see(vec![free, cgroup, nodes], &FreeMemory::NONE);
            gate.limits.fragmentation = Share::NONE;
            let both = Domains { cgroup: Some(1), nodes: Some(2) };
            assert_eq!(gate.admit(&seen(1), Past::New, both).is_ok(), is_admitted);
            let none = gate.admit(&seen(1), Past::New, Domains::default());
            assert!(none.is_ok(), "the machine is free");
        }
    }

    #[test]
    fn slow_calls_make_pauses_longer_and_fast_ones_shorter() {
        let mut back_off = BackOff::default();
        let now = Time(1);
        back_off.took(Nanos(SLOW.0 + 1), now);
        assert_eq!((back_off.pause, back_off.until), (FIRST_PAUSE, now + SLOW + Nanos(1)));
        back_off.took(Nanos(SLOW.0 + 1), now);
        assert_eq!(back_off.pause, FIRST_PAUSE * 2);
        back_off.took(Nanos(SLOW.0 / 2 - 1), now);
        back_off.took(Nanos(SLOW.0 / 2 - 1), now);
        assert_eq!(back_off.pause, Nanos::ZERO);
        (0..20).for_each(|_| back_off.took(Nanos(SLOW.0 + 1), now));
        assert_eq!(back_off.pause, LONGEST_SLOW);
        back_off.took(LONGEST_SLOW * 9, now);
        assert_eq!((back_off.pause, back_off.until), (LONGEST_SLOW, now + LONGEST_SLOW * 9));
        back_off.took(Nanos(SLOW.0 + 1), now);
        assert_eq!(back_off.left(now), LONGEST_SLOW * 9, "another slow call makes it no shorter");
        (0..20).for_each(|_| back_off.found_none(now));
        assert_eq!(back_off.pause, LONGEST_PAUSE);
    }

    #[test]
    fn who_is_slow_slows_down_nobody_else() {
        let mut gate = Gate::new(CpuBudget::UNLIMITED, LIMITS, Time::ZERO);
        let now = Time(1);
        // Two containers, both of root.
        let [one, other] = ["/one", "/other"]
            .map(|group| Owner { user: Uid(0), cgroup: Some(Path::new(group).into()) });
        gate.took(one.clone(), Nanos(SLOW.0 + 1), now);
        assert_eq!(
            (gate.ready_for(&one), gate.ready_for(&other)),
            (now + SLOW + Nanos(1), Time::ZERO)
        );
        assert_eq!((gate.longest_pause(now), gate.ready_at()), (SLOW + Nanos(1), Time::ZERO));
        gate.waited_for(Some(other.clone()), SLOW_REQUEST, now);
        assert_eq!(gate.ready_for(&other), Time::ZERO, "that was not long");
        gate.waited_for(Some(other.clone()), SLOW_REQUEST * 2, now);
        assert_eq!(gate.ready_for(&other), now + SLOW_REQUEST * 2);
        gate.forget_pauses(now + SLOW_REQUEST * 2 + LONGEST_SLOW);
        assert!(gate.slow.is_empty(), "they are over");
    }

    #[test]
    fn kinds_are_unlike() {
        let kinds: std::collections::BTreeSet<_> =
            Refusal::ALL.iter().map(|one| one.kind()).collect();
        assert_eq!(kinds.len(), Refusal::ALL.len());
    }
}
