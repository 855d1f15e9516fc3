//! Where programs are filling memory just now: regions that are looked at again when, by the pace so
//! far, some more of them is likely to be there, whether a fault in them is heard or not; less and
//! less often if nothing is added.
//!
//! Faults are heard for a part of the time only ([`super::hear`]), and one of many. They say where a
//! program is; from there it is followed by its page tables, which costs it nothing.

use super::group::FULL_ENOUGH;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use superpage_kernel::pagemap::Survey;
use superpage_policy::system::quicksilver::Options;
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages, ProcessKey, Region, VirtAddr,
};

/// Regions that are looked at, at the most: some hundred microseconds' work.
const MOST: usize = 48;
/// Looks are so far apart at least, so that what is due soon is looked at together; and as long as
/// nothing is added to a region, each time twice as far as before.
const SOON: Duration = Duration::from_millis(2);
/// One that is being filled is looked at again after this at the latest. Chosen: most of what a huge
/// page may take from its threshold on, 5 ms, with a look every 2.
const LATE: Duration = Duration::from_millis(8);
/// As long as no more is in it than Quicksilver's threshold; after this many times that, when more is.
const LATER: u32 = 4;
/// What is to have been added by the next look: a quarter of what is there, and of Quicksilver's threshold
/// at least.
const STEP: BasePages = BasePages(THRESHOLD.0 / 4);
/// Quicksilver's threshold, from which on most regions are huge soon.
const THRESHOLD: BasePages = Options::SYNC_64.threshold;
/// Where it would take longer than this to fill a region at the pace so far, its program is not
/// filling memory there, but touches some of it now and then. Chosen, not measured.
const SLOWEST: Duration = Duration::from_secs(2);
/// A region to which nothing was added for so long is not being filled. Chosen, not measured.
const PATIENCE: Duration = Duration::from_millis(100);
/// Regions on either side of the one that is being filled that a fast program may come to before we look
/// again: heaps grow up, mappings grow down. Of a slow one it is the next.
const AHEAD: HugePages = HugePages(3);
/// A region where a program is expected is looked at again after this part of the time it took to
/// come. Chosen, not measured.
const UNSURE: u32 = 8;

type Place = (ProcessKey, Region);

#[derive(Clone, Copy, Debug)]
struct Filling {
    /// What was in it when it was looked at last, and when that was, if it was.
    seen: Option<(BasePages, Instant)>,
    /// When something was added last.
    changed: Instant,
    /// If nothing is added by then it is not being filled.
    until: Instant,
    /// When it is looked at next.
    next: Instant,
    /// How long after that again.
    then: Duration,
    /// When its program comes to the next region at the pace of the last look, if it was filling it.
    leaves: Option<Instant>,
    /// A fault was heard in it; in the others a program is only expected.
    is_heard: bool,
    /// It was huge when it was looked at last.
    is_huge: bool,
}

impl Filling {
    /// One in which a program is, or is expected after `wait`; what is in it by now is to be known.
    fn new(now: Instant, wait: Duration) -> Self {
        Self {
            seen: None,
            changed: now,
            until: now + wait + PATIENCE,
            next: now,
            then: wait.max(SOON),
            leaves: None,
            is_heard: false,
            is_huge: false,
        }
    }

    /// It was huge when it was looked at `now`. It stays known, so as not to be looked at anew. Returns
    /// when its program leaves it, if it was filling it: where it was promoted meanwhile, it goes on.
    fn set_huge(&mut self, now: Instant) -> Option<Instant> {
        let was_filled = self.seen.is_some() && self.worth().0 && !self.is_huge;
        let leaves = was_filled.then_some(self.leaves.unwrap_or(now));
        let next = self.until.max(now + SOON);
        *self = Self { next, is_huge: true, is_heard: false, leaves: None, ..*self };
        leaves
    }

    /// So much was in it when it was looked at `now`.
    fn take_in(&mut self, population: BasePages, now: Instant) -> Change {
        let is_first = self.seen.is_none();
        let (before, at) = self.seen.replace((population, now)).unwrap_or_else(|| {
            // The program may have come through before we looked at all.
            let is_full = population >= FULL_ENOUGH;
            (if is_full { BasePages::ZERO } else { population }, now - SOON)
        });
        let added = population.saturating_sub(before);
        if added.is_zero() {
            self.next = now + self.then;
            self.then = if is_first { after(self.then) } else { (self.then * 2).min(PATIENCE) };
            return Change::Nothing;
        }
        // One that was full already may be long left; where a program is, it is heard.
        if is_first && !self.is_heard {
            self.next = now + self.then;
            return Change::Grown;
        }
        // If nothing was added by then, the program may have come any time after it.
        let is_new = self.changed != at && !is_first;
        let pace = Pace { added, time: now - at, population };
        let fastest = if is_new { Pace { time: pace.time.min(SOON), ..pace } } else { pace };
        self.changed = now;
        if pace.is_filling() {
            let leaves = now + fastest.until_next_region();
            self.next = now + fastest.next_look();
            self.until = self.next + PATIENCE;
            self.then = SOON;
            self.leaves = Some(leaves);
            return Change::Filled { leaves };
        }
        // What is touched now and then is left to be heard of again.
        self.next = now + if is_new { SOON } else { self.then };
        self.then = (self.then * 2).min(PATIENCE / 2);
        self.leaves = None;
        Change::Grown
    }

    /// How much it is worth to go on looking at it.
    fn worth(&self) -> (bool, Instant) {
        (self.is_heard || self.leaves.is_some(), self.changed)
    }
}

/// What a look at a region found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// As it was.
    Nothing,
    /// Something was added.
    Grown,
    /// A program is filling it, and comes to the next region then.
    Filled {
        /// When.
        leaves: Instant,
    },
}

/// How fast a region is being filled.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// What was added to it.
    added: BasePages,
    /// In this time.
    time: Duration,
    /// What is in it now.
    population: BasePages,
}

impl Pace {
    /// How long `pages` more take.
    fn time_for(self, pages: BasePages) -> Duration {
        self.time.mul_f64(pages.0 as f64 / self.added.0.max(1) as f64)
    }

    /// When it is worth another look.
    fn next_look(self) -> Duration {
        let latest = if self.population > THRESHOLD { LATE * LATER } else { LATE };
        self.time_for(STEP.max(BasePages(self.population.0 / 4))).clamp(SOON, latest)
    }

    /// Whether the region is being filled.
    fn is_filling(self) -> bool {
        self.time_for(BasePages(BASE_PAGES_PER_HUGE_PAGE)) <= SLOWEST
    }

    /// When its program comes to the next region, if it goes through them in order.
    fn until_next_region(self) -> Duration {
        let left = BasePages(BASE_PAGES_PER_HUGE_PAGE).saturating_sub(self.population);
        self.time_for(left).clamp(SOON, SLOWEST)
    }
}

/// The regions that are being filled.
#[derive(Debug, Default)]
pub(super) struct Front {
    regions: BTreeMap<Place, Filling>,
    /// When some were looked at last.
    looked: Option<Instant>,
}

impl Front {
    /// A fault was heard there: it may be being filled.
    pub(super) fn add(&mut self, key: ProcessKey, region: Region, now: Instant) {
        let new = Filling::new(now, Duration::ZERO);
        let known = self.regions.entry((key, region)).or_insert(new);
        known.next = known.next.min(now + LATE);
        known.until = known.until.max(new.until);
        known.is_heard = true;
        self.forget_some();
    }

    /// The program is filling this region, and may be in those beside it at `then`.
    fn expect(&mut self, key: ProcessKey, region: Region, now: Instant, then: Instant) {
        let wait = then.saturating_duration_since(now).max(SOON);
        let ahead = if wait > LATE { HugePages(1) } else { AHEAD };
        let begin = VirtAddr(region.start().0.saturating_sub(ahead.bytes().0));
        let end = region.end().offset(ahead.bytes());
        for near in Region::within(begin, end).filter(|near| *near != region) {
            let new = Filling::new(now, wait);
            let known = self.regions.entry((key, near)).or_insert(new);
            let is_beside = near.start() == region.end() || near.end() == region.start();
            if is_beside && !known.is_huge && now + wait < known.next {
                *known = Filling { next: now + wait, then: after(wait), ..*known };
            }
            known.until = known.until.max(new.until);
        }
        self.forget_some();
    }

    fn forget_some(&mut self) {
        while self.regions.len() > MOST {
            let least = self.regions.iter().min_by_key(|(_, filling)| filling.worth());
            let Some(place) = least.map(|(place, _)| *place) else { return };
            self.regions.remove(&place);
        }
    }

    /// A process has gone.
    pub(super) fn forget(&mut self, key: ProcessKey) {
        self.regions.retain(|(of, _), _| *of != key);
    }

    /// Looks at those whose time it is; returns those to which something was added since the last
    /// look, and those that were full when they were looked at first.
    pub(super) fn look(
        &mut self,
        now: Instant,
        survey: impl Fn(ProcessKey, Region) -> Option<Survey>,
    ) -> Vec<Place> {
        if self.regions.values().any(|filling| filling.next <= now) {
            self.looked = Some(now);
        }
        let (mut grown, mut filled) = (Vec::new(), Vec::new());
        self.regions.retain(|place, filling| {
            if now < filling.next {
                return true;
            }
            let Some(seen) = survey(place.0, place.1) else { return false };
            if seen.is_huge {
                filled.extend(filling.set_huge(now).map(|leaves| (*place, leaves)));
                return now < filling.until;
            }
            let change = filling.take_in(seen.population, now);
            if change != Change::Nothing {
                grown.push(*place);
            }
            if let Change::Filled { leaves } = change {
                filled.push((*place, leaves));
            }
            now < filling.until
        });
        for ((key, region), then) in filled {
            self.expect(key, region, now, then);
        }
        grown
    }

    /// When one of them is to be looked at next, if any is.
    pub(super) fn next(&self) -> Option<Instant> {
        let next = self.regions.values().map(|filling| filling.next).min()?;
        Some(self.looked.map_or(next, |looked| next.max(looked + SOON)))
    }
}

/// When a region is looked at again in which a program was expected after `wait`.
fn after(wait: Duration) -> Duration {
    (wait / UNSURE).max(SOON)
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};

    const KEY: ProcessKey = ProcessKey(1);

    fn region(index: u64) -> Region {
        Region::containing(VirtAddr(index * HUGE_PAGE_BYTES))
    }

    fn look(front: &mut Front, now: Instant, filled: &[(u64, u64)]) -> Vec<u64> {
        let survey = |_, at: Region| {
            let found = filled.iter().find(|(index, _)| region(*index) == at);
            let population = BasePages(found.map_or(0, |(_, pages)| *pages));
            Some(Survey { population, ..Survey::default() })
        };
        let grown = front.look(now, survey);
        grown.into_iter().map(|(_, at)| at.start().0 / HUGE_PAGE_BYTES).collect()
    }

    #[test]
    fn a_program_is_followed_from_where_it_was_heard() {
        let (mut front, mut now) = (Front::default(), Instant::now());
        front.add(KEY, region(4), now);
        let mut seen = |filled: &[(u64, u64)]| {
            // By then each is looked at.
            now += LATE;
            look(&mut front, now, filled)
        };
        assert!(seen(&[(4, 10)]).is_empty(), "the first look only counts");
        assert_eq!(seen(&[(4, 300)]), [4]);
        assert_eq!(seen(&[(4, 450), (8, 512)]), [4], "that is too far away");
        assert_eq!(seen(&[(4, 512), (5, 512), (6, 400)]), [4, 5, 6]);
        let filled = |last| [(4, 512), (5, 512), (6, 512), (9, last)];
        assert_eq!(seen(&filled(7)), [6]);
        assert_eq!(seen(&filled(8)), [9]);
        assert_eq!(seen(&[(3, 1), (9, 8)]), [3], "downwards too");
    }

    /// Times in milliseconds at which a region is looked at, while a program that was heard in region 4
    /// fills that and the next ones at this pace, from then on.
    fn looks_at(index: u64, pages_a_second: u64, from: u64) -> Vec<u64> {
        let (mut front, begin) = (Front::default(), Instant::now());
        front.add(KEY, region(4), begin);
        let looks = std::cell::RefCell::new(Vec::new());
        for millisecond in 0..=200_u64 {
            let filled = pages_a_second * millisecond.saturating_sub(from) / 1000;
            let survey = |_, at: Region| {
                let before = at.start().0.saturating_sub(region(4).start().0) / BASE_PAGE_BYTES;
                if at == region(index) {
                    looks.borrow_mut().push(millisecond);
                }
                let population = filled.saturating_sub(before).min(BASE_PAGES_PER_HUGE_PAGE);
                Some(Survey { population: BasePages(population), ..Survey::default() })
            };
            front.look(begin + Duration::from_millis(millisecond), survey);
        }
        looks.into_inner()
    }

    #[test]
    fn a_region_is_looked_at_by_the_pace_it_is_filled_at() {
        // A gigabyte in four seconds: 16 base pages in a quarter of a millisecond.
        assert_eq!(looks_at(4, 65_536, 0)[..4], [0, 2, 4, 6]);
        // Sixteen of them each 4 ms.
        assert_eq!(looks_at(4, 4_000, 0)[..5], [0, 2, 6, 10, 14]);
        // Slower ones no later than that.
        assert_eq!(looks_at(4, 1_000, 0)[..4], [0, 2, 10, 18]);
        // Above the threshold by quarters, until it is full after 128 ms.
        let looks = looks_at(4, 4_000, 0).into_iter().filter(|at| (20..120).contains(at));
        let looks: Vec<_> = looks.collect();
        assert!((6..14).contains(&looks.len()), "{looks:?}");
    }

    #[test]
    fn the_next_region_is_looked_at_when_its_program_comes_there() {
        // It gets to the next region after 160 ms.
        let looks = looks_at(5, 3_200, 0);
        let near = looks.iter().filter(|at| (158..164).contains(*at)).count();
        assert!(near >= 2 && looks.len() < 40, "{looks:?}");
        // It rested, and is faster than can be seen by one look: region 4 is looked at after 62 ms.
        let looks = looks_at(5, 65_536, 50);
        assert!(looks.iter().any(|at| (64..67).contains(at)), "{looks:?}");
    }

    #[test]
    fn looks_are_some_time_apart_and_end() {
        let (mut front, begin) = (Front::default(), Instant::now());
        // All of its memory is there already, in base pages; faults are heard, nothing is added.
        let full = |_, _| {
            Some(Survey { population: BasePages(BASE_PAGES_PER_HUGE_PAGE), ..Survey::default() })
        };
        let (mut now, mut looks, mut grown) = (begin, 0, 0);
        for _ in 0..200 {
            front.add(KEY, region(400), now);
            let end = now + PATIENCE / 2;
            while let Some(next) = front.next().filter(|next| *next < end) {
                now = next.max(now);
                grown += front.look(now, full).len();
                looks += 1;
                assert!(front.next().is_none_or(|next| next >= now + SOON));
            }
            now = end;
        }
        assert!(grown < 10 && looks < 1500, "{grown} of them seemed to grow in {looks} looks");
        while let Some(next) = front.next() {
            front.look(next, full);
            assert!(next < now + PATIENCE * 3, "what lies still is not looked at for ever");
        }
    }

    #[test]
    fn a_slow_program_is_expected_where_it_goes_on_after_its_region_was_promoted() {
        let (mut front, begin) = (Front::default(), Instant::now());
        front.add(KEY, region(4), begin);
        let mut looks = Vec::new();
        // Four base pages a millisecond; region 4 is huge after 64.
        for millisecond in 0..=200_u64 {
            let seen = std::cell::Cell::new(false);
            let survey = |_, at: Region| {
                seen.set(seen.get() || at == region(5));
                let is_huge = at <= region(4) && millisecond > 16;
                let filled = if at == region(4) { millisecond * 4 } else { 0 };
                Some(Survey { population: BasePages(filled), is_huge, ..Survey::default() })
            };
            let now = begin + Duration::from_millis(millisecond);
            if front.next().is_some_and(|next| next <= now) {
                front.look(now, survey);
            }
            looks.extend(seen.get().then_some(millisecond));
        }
        let near = looks.iter().filter(|at| (120..150).contains(*at)).count();
        assert!((1..6).contains(&near) && looks.len() < 12, "{looks:?}");
    }

    #[test]
    fn where_memory_is_touched_now_and_then_it_is_not_looked_at_more_often() {
        // Each 10 ms one.
        let [sometimes, never] = [100, 0].map(|pace| looks_at(4, pace, 0).len());
        assert!(sometimes <= never + 4, "{sometimes}, but {never} where it lies still");
        assert!(looks_at(5, 100, 0).is_empty());
    }

    #[test]
    fn what_lies_still_is_looked_at_less_and_less_often() {
        let (mut front, begin) = (Front::default(), Instant::now());
        front.add(KEY, region(4), begin);
        let looks = std::cell::Cell::new(0);
        let survey = |_, at| {
            looks.set(looks.get() + u32::from(at == region(4)));
            Some(Survey::default())
        };
        for millisecond in 0..90 {
            front.look(begin + Duration::from_millis(millisecond), survey);
        }
        // At 0, 2, 4, 8, 16, 32 and 64 ms.
        assert_eq!(looks.get(), 7);
        assert!(!front.regions.is_empty());
    }

    #[test]
    fn what_is_huge_or_lies_still_is_not_looked_at_for_long() {
        let (mut front, now) = (Front::default(), Instant::now());
        front.add(KEY, region(4), now);
        let huge = |_, _| Some(Survey { is_huge: true, ..Survey::default() });
        assert!(front.look(now, huge).is_empty());
        assert!(front.look(now + PATIENCE, huge).is_empty() && front.regions.is_empty());
        // One that is promoted while it is filled: its program goes on beside it.
        front.add(KEY, region(4), now);
        look(&mut front, now, &[(4, 100)]);
        assert!(front.look(now + SOON, huge).is_empty());
        let beside = |index| front.regions.contains_key(&(KEY, region(index)));
        assert!(beside(3) && beside(5));
        front.forget(KEY);
        front.add(KEY, region(4), now);
        look(&mut front, now + PATIENCE, &[(4, 1)]);
        assert!(front.regions.is_empty());
        for index in 0..1000 {
            front.add(KEY, region(index), now);
        }
        assert!(front.regions.len() <= MOST);
        front.forget(KEY);
        assert!(front.regions.is_empty());
    }
}
