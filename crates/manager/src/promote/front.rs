//! Where programs are filling memory just now: regions that are looked at again every few
//! milliseconds, whether a fault in them is heard or not; less and less often if nothing is added.
//!
//! Faults are heard for a part of the time only ([`super::hear`]), and one of many. They say where a
//! program is; from there it is followed by its page tables, which costs it nothing.

use super::group::FULL_ENOUGH;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use superpage_kernel::pagemap::Survey;
use superpage_policy::debloat::ProcessKey;
use superpage_policy::region::Region;
use superpage_policy::units::{BasePages, HugePages, VirtAddr};

/// Regions that are looked at, at the most: some hundred microseconds' work.
const MOST: usize = 48;
/// A region is looked at again after this, and as long as nothing is added each time after twice as
/// long as before.
pub(super) const SOON: Duration = Duration::from_millis(2);
/// A region to which nothing was added for so long is not being filled. Chosen, not measured.
const PATIENCE: Duration = Duration::from_millis(100);
/// Regions on either side of the one that is being filled that may be next before we look again:
/// heaps grow up, mappings grow down.
const AHEAD: HugePages = HugePages(3);

type Place = (ProcessKey, Region);

#[derive(Clone, Copy, Debug)]
struct Filling {
    /// What was in it when it was looked at last, if it was.
    population: Option<BasePages>,
    /// When something was added last.
    changed: Instant,
    /// When it is looked at next.
    next: Instant,
    /// How long after that again.
    then: Duration,
}

/// The regions that are being filled.
#[derive(Debug, Default)]
pub(super) struct Front {
    regions: BTreeMap<Place, Filling>,
}

impl Front {
    /// A fault was heard there: it is being filled, and the next ones may be soon.
    pub(super) fn add(&mut self, key: ProcessKey, region: Region, now: Instant) {
        let begin = VirtAddr(region.start().0.saturating_sub(AHEAD.bytes().0));
        for next in Region::within(begin, region.end().offset(AHEAD.bytes())) {
            let new = Filling { population: None, changed: now, next: now, then: SOON };
            let known = self.regions.entry((key, next)).or_insert(new);
            // The program is here, or may be in a moment.
            if next.start() <= region.end() && region.start() <= next.end() {
                *known = Filling { next: known.next.min(now + SOON), then: SOON, ..*known };
            }
        }
        while self.regions.len() > MOST {
            let oldest = self.regions.iter().min_by_key(|(_, filling)| filling.changed);
            let Some(place) = oldest.map(|(place, _)| *place) else { return };
            self.regions.remove(&place);
        }
    }

    /// A process has gone.
    pub(super) fn forget(&mut self, key: ProcessKey) {
        self.regions.retain(|(of, _), _| *of != key);
    }

    /// Looks at those whose time it is; returns those to which something was added since the last
    /// look, and those that were full when they were looked at first. What is huge by now, or gone, is
    /// not looked at any more.
    pub(super) fn look(
        &mut self,
        now: Instant,
        survey: impl Fn(ProcessKey, Region) -> Option<Survey>,
    ) -> Vec<Place> {
        let mut grown = Vec::new();
        self.regions.retain(|place, filling| {
            if now < filling.next {
                return true;
            }
            let Some(seen) = survey(place.0, place.1).filter(|seen| !seen.is_huge) else {
                return false;
            };
            let before = filling.population.replace(seen.population);
            // The program may have come through before we looked at all.
            let has_grown = match before {
                Some(before) => before < seen.population,
                None => seen.population >= FULL_ENOUGH,
            };
            if has_grown {
                filling.changed = now;
                filling.then = SOON;
                grown.push(*place);
            }
            filling.next = now + filling.then;
            filling.then *= 2;
            now.saturating_duration_since(filling.changed) < PATIENCE
        });
        for (key, region) in &grown {
            self.add(*key, *region, now);
        }
        grown
    }

    /// Whether nothing is being filled.
    pub(super) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_policy::units::HUGE_PAGE_BYTES;

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
            now += SOON * 4;
            look(&mut front, now, filled)
        };
        assert!(seen(&[(4, 10)]).is_empty(), "the first look only counts");
        assert_eq!(seen(&[(4, 11)]), [4]);
        assert_eq!(seen(&[(4, 12), (8, 512)]), [4], "that is too far away");
        assert_eq!(seen(&[(4, 512), (5, 512), (6, 1)]), [4, 5, 6]);
        let filled = |last| [(4, 512), (5, 512), (6, 512), (9, last)];
        assert_eq!(seen(&filled(7)), [6]);
        assert_eq!(seen(&filled(8)), [9]);
        assert_eq!(seen(&[(3, 1), (9, 8)]), [3], "downwards too");
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
        // At 0, 2, 6, 14, 30 and 62 ms.
        assert_eq!(looks.get(), 6);
        assert!(!front.is_empty());
    }

    #[test]
    fn what_is_huge_or_lies_still_is_not_looked_at_for_long() {
        let (mut front, now) = (Front::default(), Instant::now());
        front.add(KEY, region(4), now);
        let huge = |_, _| Some(Survey { is_huge: true, ..Survey::default() });
        assert!(front.look(now, huge).is_empty() && front.is_empty());
        front.add(KEY, region(4), now);
        look(&mut front, now + PATIENCE, &[(4, 1)]);
        assert!(front.is_empty());
        for index in 0..1000 {
            front.add(KEY, region(index), now);
        }
        assert!(front.regions.len() <= MOST);
        front.forget(KEY);
        assert!(front.is_empty());
    }
}
