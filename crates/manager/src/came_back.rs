//! What came back of the memory that splits freed: a bounded sample of split ranges of each process, looked at again before
//! the next pass. Not what is done with it: a de-bloater may order by it
//! ([`lasting`](superpage_policy::debloat::lasting)). Huge pages that are split because they stay partly used are not in it.

use crate::process::ManagedProcess;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use superpage_kernel::pagemap::Survey;
use superpage_units::{BasePages, HugePages, PmdRange, ProcessKey, Share};

/// Split ranges that are remembered of a process. Chosen, not measured: a look at all takes well under a millisecond.
const MOST: usize = 64;
/// Ranges of a process that are taken from one pass at most, so that there are some that were split long ago. Chosen, not
/// measured; it is even.
const OF_A_PASS: usize = 16;

/// A range that was split, and what that freed.
pub(crate) type Split = (PmdRange, BasePages);

/// Some of the splits of a process in one pass, as far from each other in their order as there are many: first comes what is most
/// bloated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    splits: Vec<Split>,
    seen: u64,
    /// The number of times that every other split was dropped.
    halved: u32,
}

impl Sample {
    /// Takes note of one more split.
    pub(crate) fn add(&mut self, split: Split) {
        if self.seen.is_multiple_of(1 << self.halved) {
            if self.splits.len() == OF_A_PASS {
                let mut is_kept = false;
                self.splits.retain(|_| {
                    is_kept = !is_kept;
                    is_kept
                });
                self.halved += 1;
            }
            self.splits.push(split);
        }
        self.seen += 1;
    }
}

/// The latest splits of each process.
#[derive(Clone, Debug, Default)]
pub(crate) struct CameBack {
    processes: BTreeMap<ProcessKey, VecDeque<Split>>,
}

impl CameBack {
    /// The share of the memory that splits freed in this process which its program has used again; nothing where that cannot be told.
    pub(crate) fn of(&self, process: &ManagedProcess) -> Share {
        let splits = self.processes.get(&process.key);
        share(splits.into_iter().flatten().filter_map(|(range, freed)| {
            let now = process.pagemap.survey(*range).ok()?;
            Some((came_back(*freed, now), *freed))
        }))
    }

    /// Forgets all processes but these.
    pub(crate) fn retain(&mut self, processes: &[Arc<ManagedProcess>]) {
        let keys: BTreeSet<ProcessKey> = processes.iter().map(|process| process.key).collect();
        self.processes.retain(|key, _| keys.contains(key));
    }

    /// Takes in what a pass split in each process.
    pub(crate) fn take_in<'a>(&mut self, samples: impl Iterator<Item = (ProcessKey, &'a Sample)>) {
        for (process, sample) in samples {
            let known = self.processes.entry(process).or_default();
            known.extend(&sample.splits);
            known.drain(..known.len().saturating_sub(MOST));
        }
    }
}

/// The base pages, in memory or in swap, that are in use again of a range of which a split freed so much.
fn came_back(freed: BasePages, now: Survey) -> BasePages {
    let in_use_then = HugePages(1).base_pages().saturating_sub(freed);
    now.present.saturating_sub(in_use_then).min(freed)
}

/// The share that came back of all that was freed.
fn share(splits: impl Iterator<Item = (BasePages, BasePages)>) -> Share {
    let sum = splits
        .fold((BasePages::ZERO, BasePages::ZERO), |(back, freed), (b, f)| (back + b, freed + f));
    if sum.1.is_zero() { Share::NONE } else { sum.0.share_of(sum.1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::VirtAddr;

    fn sample(splits: impl Iterator<Item = Split>) -> Sample {
        let mut sample = Sample::default();
        splits.for_each(|split| sample.add(split));
        sample
    }

    fn range(place: u64) -> PmdRange {
        PmdRange::containing(VirtAddr(place << 21))
    }

    fn now(present: u64, zero_pages: u64) -> Survey {
        let [present, zero_pages] = [present, zero_pages].map(BasePages);
        Survey { present, zero_pages, ..Survey::default() }
    }

    #[test]
    fn what_is_present_beyond_what_was_in_use_then_came_back() {
        let came_back = |now| came_back(BasePages(300), now).0;
        assert_eq!(came_back(now(212, 300)), 0);
        assert_eq!(came_back(now(312, 200)), 100);
        assert_eq!(came_back(now(512, 0)), 300, "all of it, or a huge page again");
        assert_eq!(came_back(now(0, 0)), 0, "what its program gave back did not come back");
        let swapped = Survey { swapped: BasePages(312), ..now(312, 200) };
        assert_eq!(
            came_back(swapped),
            100,
            "swapped out, but in use: it counts among what is present"
        );
    }

    #[test]
    fn the_share_is_one_of_memory_and_nothing_where_nothing_is_known() {
        let pages = |pairs: &[(u64, u64)]| {
            share(pairs.iter().map(|(back, freed)| (BasePages(*back), BasePages(*freed))))
        };
        assert_eq!(pages(&[]), Share::NONE);
        assert_eq!(pages(&[(100, 100), (0, 300)]), Share::percent(25));
    }

    /// However many there are: no more than are taken of a pass, from the first to the last, at equal distances.
    #[test]
    fn a_sample_of_a_pass_is_bounded_and_from_all_of_it() {
        for count in 0..2000_usize {
            let all = 0..count as u64;
            let sample = sample(all.clone().map(|place| (range(place), BasePages(1)))).splits;
            let places = sample.iter().map(|(range, _)| range.start().0 >> 21);
            let apart = count.div_ceil(OF_A_PASS).next_power_of_two();
            assert!(places.eq(all.step_by(apart)), "{count}: {sample:?}");
            assert!(sample.len() <= OF_A_PASS);
        }
    }

    /// The sample of a process is bounded, and one pass does not fill it.
    #[test]
    fn some_ranges_of_the_last_passes_are_remembered() {
        let mut known = CameBack::default();
        let (key, mut place) = (ProcessKey(1), 0);
        let mut pass = |splits: usize| {
            let split = || {
                place += 1;
                (range(place), BasePages(1))
            };
            let sample = sample(std::iter::repeat_with(split).take(splits));
            known.take_in([(key, &sample)].into_iter());
            known.processes[&key].clone()
        };
        assert_eq!(pass(0).len(), 0);
        assert_eq!(pass(1).len(), 1);
        assert_eq!(pass(1000).len(), 1 + 16);
        for _ in 0..10 {
            let sample = pass(17);
            assert!(sample.len() <= MOST);
        }
        let sample = pass(1);
        assert_eq!(sample.len(), MOST);
        assert!(sample.iter().all(|(range, _)| range.start().0 >> 21 > 1001), "the latest");
        known.retain(&[]);
        assert!(known.processes.is_empty());
    }
}
