//! EMD to the letter (Gangar, Panwar, Gopinath, ISMM 2025): the paper's rules and nothing beside them. [`super::emd`] has ours, with a
//! reason for each deviation; this one stands beside it so that both can be compared with the paper.
//!
//! | rule | where it stands |
//! |---|---|
//! | Every zero-filled base page of every huge page is counted before anything is split. | Figure 6, line 10; section 4.4: "EMD needs to scan a process address space every time before de-bloating" |
//! | Ten buckets: densities 0 to 49, 50 to 99, and so on; higher ones first. | section 4.2; Figure 6, lines 4 and 22 |
//! | Within a process and a bucket, huge pages go in address order. | Figure 6, lines 7 and 8 |
//! | Of all processes, the highest bucket that is not empty in one of them; processes with huge pages in it go round-robin. | section 4.3 |
//! | A process gives up at most a quantum of 100 huge pages before the next one's turn, in the last round as in all others. | section 4.3 |
//! | The processes of a bucket take turns in the order of their creation, beginning with the first: A1, B1, C1, A2, B2, B3, C2, ... | section 4.3, the example |
//! | De-bloating stops with the huge page that reaches the target. | Figure 6, lines 17 to 19 |
//! | There is no least density: the threshold goes down to 0. | Figure 6, line 22 |
//!
//! Where the paper leaves something open:
//! - At a threshold of 0 the loop of Figure 6 comes to huge pages without a zero-filled base page too. `RMV_ZERO_PG` removes nothing of
//!   those. Here they stay whole, as Figure 15 suggests: programs without bloat lose 1 %.
//! - The loop of Figure 6 does not end where the target cannot be reached. Here the policy is done once nothing is left.
//! - Figure 6 is about one process, and section 4.3 does not say what a call for many begins with. Here each begins anew, with the
//!   first process of the highest bucket.

use super::emd::{EMD, Options, unknown_ranges};
use super::list::Entry;
use super::{BloatMaps, Debloat, Decision, Depth, DoneCause, LookCause, SplitCause};
use crate::bloat::{BloatDensity, BloatMap, Bucket};
use alloc::boxed::Box;
use alloc::vec::Vec;
use superpage_units::{BasePages, HugePages, PmdRange, ProcessKey};

/// EMD to the letter as the registry has it. Of what an operator can say it takes the quantum, which is "configurable by the user"
/// (section 4.3).
pub const EMD_LITERAL: Entry = Entry {
    name: "emd-literal",
    summary: "EMD to the letter: every base page read, whole turns to the last, no least density.",
    source: "EMD, sections 4.2 and 4.3, Figure 6",
    build: |options| Box::new(EmdLiteral::new(options)),
    ..EMD
};

/// The process whose turn it is in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    bucket: Bucket,
    process: ProcessKey,
    /// The huge pages that it may still give up in this turn.
    left: HugePages,
}

/// The policy. Its state is whose turn it is.
#[derive(Clone, Debug)]
pub struct EmdLiteral {
    quantum: HugePages,
    turn: Option<Turn>,
}

impl EmdLiteral {
    /// The policy before its first turn.
    #[must_use]
    pub fn new(options: Options) -> Self {
        // A turn of nothing would go on for ever.
        Self { quantum: options.quantum.max(HugePages(1)), turn: None }
    }

    /// The turn in `bucket`: the present one until its quantum is used up or its process has nothing more in the bucket, then the
    /// next process's, round-robin.
    fn turn(&self, bucket: Bucket, sharers: &[ProcessKey]) -> Option<Turn> {
        let whole = |process| Turn { bucket, process, left: self.quantum };
        let first = sharers.first().copied().map(whole);
        let Some(turn) = self.turn.filter(|turn| turn.bucket == bucket) else { return first };
        if !turn.left.is_zero() && sharers.contains(&turn.process) {
            return Some(turn);
        }
        let next = sharers.iter().copied().find(|process| *process > turn.process);
        next.map(whole).or(first)
    }
}

impl Debloat for EmdLiteral {
    fn decide(&mut self, maps: &BloatMaps, need: BasePages) -> Decision {
        if need.is_zero() {
            return Decision::Done(DoneCause::NeedMet);
        }
        if let Some((process, ranges)) = unknown_ranges(maps) {
            self.turn = None;
            let (depth, cause) = (Depth::Exact, LookCause::Unknown);
            return Decision::Look { process, ranges, depth, cause };
        }
        let highest = Bucket::densest_first().find_map(|bucket| {
            let sharers = sharers(maps, bucket);
            self.turn(bucket, &sharers).map(|turn| (turn, sharers.len()))
        });
        let Some((turn, sharers)) = highest else {
            return Decision::Done(DoneCause::NothingLeft);
        };
        let Turn { bucket, process, left } = turn;
        let ranges = first_of(&maps[&process], bucket, need, left);
        let left = left.saturating_sub(HugePages(ranges.len() as u64));
        self.turn = Some(Turn { left, ..turn });
        let cause = SplitCause::Densest { bucket, sharers, turn: self.quantum };
        Decision::Split { process, ranges, cause }
    }

    fn floor(&self) -> BloatDensity {
        BloatDensity::new(1)
    }
}

/// The processes with bloat in `bucket`, in the order of their creation.
fn sharers(maps: &BloatMaps, bucket: Bucket) -> Vec<ProcessKey> {
    let has_some = |map: &BloatMap| map.in_bucket(bucket).next().is_some();
    maps.iter().filter(|(_, map)| has_some(map)).map(|(process, _)| *process).collect()
}

/// The first ranges of `bucket` by address that together free `need`, at most `most`.
fn first_of(map: &BloatMap, bucket: Bucket, need: BasePages, most: HugePages) -> Vec<PmdRange> {
    let mut freed = BasePages::ZERO;
    let until_met = map.in_bucket(bucket).zip(0..most.0).take_while(|((_, known), _)| {
        let more = freed < need;
        freed += known.density().unwrap_or_default().base_pages();
        more
    });
    until_met.map(|((range, _), _)| range).collect()
}

#[cfg(test)]
mod tests {
    use super::super::emd::{Emd, Observation};
    use super::super::model::{Played, World, play};
    use super::*;
    use alloc::string::String;
    use alloc::{format, vec};
    use proptest::prelude::*;

    fn literal(quantum: u64) -> EmdLiteral {
        EmdLiteral::new(Options { quantum: HugePages(quantum), ..Options::WORTHWHILE })
    }

    /// Ours, reading everything, so that only the rules differ.
    fn ours() -> Emd {
        Emd::new(Options { observation: Observation::Exact, ..Options::WORTHWHILE })
    }

    fn split_by_process(played: &Played, processes: usize) -> Vec<usize> {
        (0..processes).map(|p| played.split.iter().filter(|(q, ..)| *q == p).count()).collect()
    }

    /// Section 4.3: "A1, B1, C1, A2, B2, B3, C2, C3, A3, B4, A4"; the buckets as in the test of ours.
    #[test]
    fn the_papers_three_processes_go_in_the_papers_order() {
        let world: World =
            vec![vec![480, 420, 370, 320], vec![470, 410, 430, 360], vec![500, 440, 405]];
        let all: u64 = world.iter().flatten().map(|d| u64::from(*d)).sum();
        let played = play(&mut literal(100), &world, all);
        let name = |(p, r, _): &(usize, usize, u16)| format!("{}{}", ["A", "B", "C"][*p], r + 1);
        let names: Vec<String> = played.split.iter().map(name).collect();
        assert_eq!(names.join(" "), "A1 B1 C1 A2 B2 B3 C2 C3 A3 B4 A4");
        assert_eq!(played.looks, 11, "each is read once, whole");
    }

    #[test]
    fn a_quantum_at_most_and_then_the_next_process() {
        let world: World = vec![vec![500; 5], vec![500; 2], vec![500; 3]];
        let order: Vec<usize> =
            play(&mut literal(2), &world, 5000).split.iter().map(|(p, ..)| *p).collect();
        assert_eq!(order, [0, 0, 1, 1, 2, 2, 0, 0, 2, 0]);
    }

    /// Where the two differ: a last round that is not needed in full, and a least density.
    #[test]
    fn the_first_process_pays_for_the_last_round_where_ours_shares_it() {
        let world: World = vec![vec![500; 400]; 4];
        // Of 250 huge pages the first two lose a quantum, the third what is left, the last nothing.
        let need = 250 * 500;
        let spread = |policy: &mut dyn Debloat| split_by_process(&play(policy, &world, need), 4);
        assert_eq!(spread(&mut literal(100)), [100, 100, 50, 0]);
        let shared = spread(&mut ours());
        assert_eq!(shared.iter().sum::<usize>(), 250);
        assert!(shared.iter().all(|count| (62..=63).contains(count)), "{shared:?}");
    }

    #[test]
    fn ours_goes_on_with_the_next_process_and_this_one_begins_anew() {
        let world: World = vec![vec![500; 10]; 3];
        let first_served =
            |policy: &mut dyn Debloat| [1, 1, 1].map(|need| play(policy, &world, need).split[0].0);
        assert_eq!(first_served(&mut literal(100)), [0, 0, 0]);
        assert_eq!(first_served(&mut ours()), [0, 1, 2]);
    }

    #[test]
    fn little_bloat_is_split_here_and_spared_by_ours_and_none_by_both() {
        let world: World = vec![vec![0, 1, 50, 51, 300]];
        let split = |policy: &mut dyn Debloat| -> Vec<u16> {
            play(policy, &world, 10_000).split.iter().map(|(_, _, density)| *density).collect()
        };
        assert_eq!(split(&mut literal(100)), [300, 50, 51, 1]);
        assert_eq!(split(&mut ours()), [300, 51]);
    }

    /// Figure 6 as it stands, for one process; without its endless last loop, and without huge pages of which nothing is removed.
    fn figure_6(densities: &[u16], target: u64) -> Vec<usize> {
        let mut split = Vec::new();
        let mut recovered = 0;
        let mut threshold = 450;
        while recovered < target && threshold >= 0 {
            for (at, density) in densities.iter().enumerate() {
                if i32::from(*density) < threshold || *density == 0 || split.contains(&at) {
                    continue;
                }
                split.push(at);
                recovered += u64::from(*density);
                if recovered >= target {
                    return split;
                }
            }
            threshold -= 50;
        }
        split
    }

    proptest! {
        #[test]
        fn one_process_goes_as_in_figure_6(
            densities in prop::collection::vec(0u16..=512, 0..80),
            need in 1u64..30_000,
            quantum in 1u64..200,
        ) {
            let played = play(&mut literal(quantum), &vec![densities.clone()], need);
            let split: Vec<usize> = played.split.iter().map(|(_, at, _)| *at).collect();
            prop_assert_eq!(split, figure_6(&densities, need));
        }

        /// Both free as much, bucket by bucket; a quantum is all that processes can differ by in a bucket.
        #[test]
        fn no_process_is_more_than_a_quantum_ahead_in_a_bucket(
            counts in prop::collection::vec(1usize..60, 2..5),
            need in 1u64..60_000,
            quantum in 1u64..30,
        ) {
            let world: World = counts.iter().map(|count| vec![460; *count]).collect();
            let played = play(&mut literal(quantum), &world, need);
            let split = split_by_process(&played, world.len());
            let unfinished = split.iter().zip(&counts).filter(|(s, c)| s < c).map(|(s, _)| *s);
            let least = unfinished.min().unwrap_or(usize::MAX);
            let most = split.iter().copied().max().unwrap_or(0);
            prop_assert!(most <= least.saturating_add(usize::try_from(quantum).unwrap()), "{:?}", split);
        }
    }
}
