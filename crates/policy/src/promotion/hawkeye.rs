//! HawkEye and HawkEye*, as Quicksilver (Table 1, section "Superpage Management Designs",
//! observation 2), EMD (section 2.2.3) and Trident (sections 5.1.2 and 7) describe them.
//!
//! Any range with one base page present is a candidate for promotion in the background. A round
//! of sampling sorts the candidates into ten buckets by access coverage: how many of their base
//! pages were accessed lately. The highest bucket comes first, over all processes; of those with a
//! range in it, the process that spends the most on page walks, then the one with the most memory.
//! A thread of its own zeroes free huge frames ahead of time. HawkEye* (observation 2) promotes with a whole CPU.
//!
//! The papers disagree about faults. Quicksilver (observation 2) says that HawkEye switches the
//! first-touch policy off, which is the default here; Trident (section 7) says that it uses huge
//! pages aggressively in the fault handler while memory is unfragmented. [`FirstTouch`] is the
//! choice.
//!
//! HawkEye's sequential bloat recovery is [`crate::debloat::hawkeye`], which is plugged into this
//! policy as into any other: by itself it gives no zero-filled page back.
//!
//! Deviations:
//! - The papers at hand name no period of sampling, no limit of CPU time and no amount of zeroed
//!   memory: chosen, not measured ([`Options`]). Quicksilver's published scripts (System-configs/hawkeye)
//!   let khugepaged sleep for 10 s, set `max_cpu` to 0, for HawkEye* to 100, and start a profiler with
//!   `-i 10`, for HawkEye* `-i 1`; what these numbers do is in a kernel and a program that are not at hand.
//! - Promotion and the thread that zeroes may take that share of a CPU each.
//! - The buckets are [`Bucket`]'s: EMD's ten, which it says come from HawkEye.
//! - "Memory is unfragmented" means here that a huge frame is free.
//! - A promotion that finds no memory, even by compaction, stops all of them for a minute, as
//!   khugepaged's `alloc_sleep_millisecs` does; its range waits for the next round.
//! - Under pressure it is Linux, with its clock.
//! - Where accesses cannot be seen, present base pages stand for accessed ones; where nobody counts
//!   page walks, memory alone says which process needs huge pages most.

use super::backoff::BackOff;
use super::capabilities::{self, Capabilities};
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::scan::{Found, Hand, Pace, Scanner, base_mapped, is_thp};
use super::{
    Act, Action, Attempt, Cause, Fault, FaultCause, FaultPlan, Footprint, How, Outcome, Policy,
    RangeView, Shortage, Step, View, Zeroed,
};
use crate::bloat::Bucket;
use crate::compaction::Compaction;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;
use superpage_units::{
    BasePages, HugePages, Mapping, Nanos, PageSize, PmdRange, ProcessKey, Share,
};

/// What HawkEye maps at a first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstTouch {
    /// A base page (Quicksilver, observation 2).
    Base,
    /// A huge page if one is free (Trident, section 7).
    HugeIfFree,
}

/// HawkEye's choices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What a first touch maps.
    pub first_touch: FirstTouch,
    /// The present pages from which a range is a candidate (Quicksilver, Table 1); at least 1.
    pub threshold: BasePages,
    /// The time between two rounds of sampling.
    pub period: Nanos,
    /// How many huge frames to keep zeroed, while there are so many free.
    pub zeroed: HugePages,
    /// How long nothing is promoted or zeroed after that found no memory.
    pub pause: Nanos,
    /// The share of one CPU that the background may take, and that the thread which zeroes may take too.
    pub cpu: Share,
}

impl Options {
    /// HawkEye. All but the threshold is chosen, not measured; the pause is khugepaged's.
    pub const PUBLISHED: Self = Self {
        first_touch: FirstTouch::Base,
        threshold: BasePages(1),
        period: Nanos(30_000_000_000),
        zeroed: HugePages(1024),
        pause: Nanos(60_000_000_000),
        cpu: Share::percent(10),
    };
    /// HawkEye*: a whole CPU (Quicksilver, observation 2).
    pub const STAR: Self = Self { cpu: Share::ALL, ..Self::PUBLISHED };
    /// HawkEye as Trident describes it: huge pages at faults too.
    pub const FIRST_TOUCH: Self = Self { first_touch: FirstTouch::HugeIfFree, ..Self::PUBLISHED };
}

/// The ranges that could be promoted, by process in ten buckets of coverage.
#[derive(Clone, Debug, Default)]
struct Candidates {
    buckets: [BTreeMap<ProcessKey, BTreeSet<PmdRange>>; Bucket::COUNT],
    bucket: BTreeMap<(ProcessKey, PmdRange), Bucket>,
}

impl Candidates {
    /// Puts a range in its bucket, from any other that it was in.
    fn place(&mut self, process: ProcessKey, range: PmdRange, bucket: Bucket) {
        self.remove(process, range);
        self.buckets[bucket.index()].entry(process).or_default().insert(range);
        self.bucket.insert((process, range), bucket);
    }

    fn remove(&mut self, process: ProcessKey, range: PmdRange) {
        let Some(bucket) = self.bucket.remove(&(process, range)) else {
            return;
        };
        let processes = &mut self.buckets[bucket.index()];
        if let Some(ranges) = processes.get_mut(&process) {
            ranges.remove(&range);
            if ranges.is_empty() {
                processes.remove(&process);
            }
        }
    }

    /// The candidates of a process that are mapped no more are none.
    fn forget(&mut self, process: ProcessKey, view: &dyn View) {
        let of_process = self.bucket.range((process, PmdRange::FIRST)..=(process, PmdRange::LAST));
        let ranges = of_process.map(|((_, range), _)| *range);
        let is_gone = |range: &PmdRange| view.range(process, *range).mapping == Mapping::Empty;
        let gone: Vec<PmdRange> = ranges.filter(is_gone).collect();
        gone.into_iter().for_each(|range| self.remove(process, range));
    }

    /// Takes the first range of the process that needs it most, in the highest bucket.
    fn take_best(&mut self, view: &dyn View) -> Option<(Bucket, ProcessKey, PmdRange)> {
        let mut buckets = Bucket::densest_first();
        let bucket = buckets.find(|bucket| !self.buckets[bucket.index()].is_empty())?;
        let processes = &self.buckets[bucket.index()];
        let (process, ranges) =
            processes.iter().max_by(|(a, _), (b, _)| by_need(view, **a, **b))?;
        let (process, range) = (*process, *ranges.first()?);
        self.remove(process, range);
        Some((bucket, process, range))
    }
}

/// Which of two processes needs huge pages more: the greater, by cost of page walks, then by
/// memory; of equals the one created first.
fn by_need(view: &dyn View, a: ProcessKey, b: ProcessKey) -> Ordering {
    let (of_a, of_b) = (view.footprint(a), view.footprint(b));
    let walks = |of: Footprint| of.walk_share.unwrap_or_default();
    let walks = walks(of_a).cmp(&walks(of_b));
    walks.then(of_a.total().cmp(&of_b.total())).then(b.cmp(&a))
}

/// The base pages accessed lately; where that cannot be seen, those that are populated.
fn coverage(seen: &RangeView) -> BasePages {
    seen.coverage.unwrap_or(seen.present)
}

fn bucket_of(seen: &RangeView) -> Bucket {
    let bucket = coverage(seen).0 / u64::from(Bucket::WIDTH);
    Bucket::new(u8::try_from(bucket).unwrap_or(u8::MAX))
}

/// The policy. Its state is the candidates, and where its sampling is.
#[derive(Clone, Debug)]
pub struct HawkEye {
    options: Options,
    candidates: Candidates,
    scanner: Scanner,
    promotion: BackOff,
    zeroing: BackOff,
    clock: Hand,
}

impl HawkEye {
    /// HawkEye with these options, about to sample.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            candidates: Candidates::default(),
            scanner: Scanner::default(),
            promotion: BackOff::default(),
            zeroing: BackOff::default(),
            clock: Hand::default(),
        }
    }

    /// A range that may be promoted.
    fn candidate(
        &self,
        view: &dyn View,
        process: ProcessKey,
        range: PmdRange,
    ) -> Option<RangeView> {
        let found = base_mapped(view, process, range, self.options.threshold);
        found.filter(|(vma, _)| is_thp(vma)).map(|(_, seen)| seen)
    }

    /// One range of a round of sampling.
    fn sample(&mut self, view: &dyn View, process: ProcessKey, range: PmdRange) -> Step {
        match self.candidate(view, process, range) {
            Some(seen) => self.candidates.place(process, range, bucket_of(&seen)),
            None => self.candidates.remove(process, range),
        }
        Step::Scanned(PageSize::Huge.base_pages())
    }

    /// The best candidate by what is seen of it now: one whose coverage has changed since it was
    /// sampled goes to the bucket where it belongs.
    fn next_promotion(&mut self, view: &dyn View) -> Option<Action> {
        loop {
            let (bucket, process, range) = self.candidates.take_best(view)?;
            match self.candidate(view, process, range) {
                Some(seen) if bucket_of(&seen) == bucket => {
                    let how = How::Copy(Some(Compaction::Sequential));
                    let act = Act::Promote { process, page: range.into(), how };
                    return Some(Action { act, cause: Cause::Coverage(coverage(&seen)) });
                }
                Some(seen) => self.candidates.place(process, range, bucket_of(&seen)),
                None => {}
            }
        }
    }

    /// Whether a free huge frame should be zeroed.
    fn wants_zeroed(&self, view: &dyn View) -> bool {
        let free_memory = view.free_memory();
        free_memory.zeroed_huge < self.options.zeroed.min(free_memory.huge_pages()).0
    }
}

impl Policy for HawkEye {
    fn fault(&mut self, fault: &Fault, _: &dyn View) -> FaultPlan {
        if !is_thp(&fault.vma) {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        match self.options.first_touch {
            FirstTouch::Base => FaultPlan::base(FaultCause::BasePages),
            FirstTouch::HugeIfFree if !fault.is_mappable(PageSize::Huge) => {
                FaultPlan::base(FaultCause::NoRoom)
            }
            FirstTouch::HugeIfFree => FaultPlan::try_first(
                Attempt::Map { size: PageSize::Huge, compaction: None, zeroed: Zeroed::Preferred },
                FaultCause::FirstTouch(PageSize::Huge),
            ),
        }
    }

    /// A round of sampling is finished before anything is promoted: the best candidate may be the
    /// last.
    fn background(&mut self, view: &mut dyn View) -> Step {
        let round = Pace { pages: BasePages(u64::MAX), sleep: self.options.period };
        let asleep = match self.scanner.next(view, round) {
            Found::PmdRange(process, range) => return self.sample(view, process, range),
            Found::Asleep(until) => until,
        };
        let (now, pause) = (view.now(), self.options.pause);
        if self.promotion.until(now, pause).is_none()
            && let Some(action) = self.next_promotion(view)
        {
            return Step::Act(action);
        }
        Step::Rest(Some(asleep))
    }

    fn prepare(&mut self, view: &dyn View) -> Step {
        if let Some(until) = self.zeroing.until(view.now(), self.options.pause) {
            return Step::Rest(Some(until));
        }
        if !self.wants_zeroed(view) {
            return Step::Rest(None);
        }
        let act = Act::Zero(PageSize::Huge);
        Step::Act(Action { act, cause: Cause::Short(PageSize::Huge) })
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        self.clock.evict_idle(view)
    }

    fn forget(&mut self, process: ProcessKey, view: &dyn View) {
        self.candidates.forget(process, view);
    }

    fn learn(&mut self, action: &Action, outcome: Outcome) {
        match action.act {
            Act::Promote { .. } if outcome == Outcome::NoFrame => self.promotion.fail(),
            Act::Zero(_) if outcome != Outcome::Done => self.zeroing.fail(),
            _ => {}
        }
    }

    fn background_share(&self) -> Share {
        self.options.cpu
    }

    fn capabilities(&self) -> Capabilities {
        let first_touch = match self.options.first_touch {
            FirstTouch::Base => capabilities::FirstTouch::BasePage,
            FirstTouch::HugeIfFree => capabilities::FirstTouch::Kernel,
        };
        let threshold = Some(self.options.threshold);
        Capabilities { first_touch, threshold, ..Capabilities::SCANS }
    }

    fn life(&self) -> Life {
        let from = self.options.threshold;
        Life {
            allocation: match self.options.first_touch {
                FirstTouch::Base => Allocation::Asynchronous(from),
                FirstTouch::HugeIfFree => {
                    Allocation::FirstTouch { largest: PageSize::Huge, later: Some(from) }
                }
            },
            preparation: Preparation::AheadOfTime,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Model, START, Served, address, at_second, promoted, range, vma};
    use super::*;
    use alloc::vec::Vec;
    use superpage_units::Vma;

    fn hawkeye() -> HawkEye {
        HawkEye::new(Options { zeroed: HugePages(0), ..Options::PUBLISHED })
    }

    /// A machine with processes that touched one base page of each range, with these coverages.
    fn machine(coverages: &[&[u64]], policy: &mut HawkEye) -> Model {
        let mut model = Model::new(0, 40, 2000);
        for coverages in coverages {
            let process = model.spawn(&[vma(coverages.len() as u64)]);
            for (index, coverage) in (0..).zip(*coverages) {
                model.touch(policy, process, address(index, 0));
                model.set_coverage(process, range(index), *coverage);
            }
        }
        model
    }

    /// What is promoted in this round: process and range.
    fn work(model: &mut Model, policy: &mut HawkEye) -> Vec<(u64, u64)> {
        let done = model.work(policy, 1000).0;
        let index = |page: superpage_units::Page| page.start().since(START).to_huge_pages().0;
        promoted(&done).into_iter().map(|(key, page)| (key.0, index(page))).collect()
    }

    #[test]
    fn the_highest_bucket_comes_first_over_all_processes() {
        let mut policy = hawkeye();
        let mut model = machine(&[&[0, 512, 120], &[460, 49, 399]], &mut policy);
        let order = [(1, 1), (2, 0), (2, 2), (1, 2), (1, 0), (2, 1)];
        assert_eq!(work(&mut model, &mut policy), order);
        model.check();
    }

    #[test]
    fn a_bucket_spans_fifty_base_pages() {
        // The second process is served first where both are in one bucket.
        for (coverages, first) in [([50, 99], 2), ([99, 50], 2), ([50, 49], 1), ([450, 449], 1)] {
            let mut policy = hawkeye();
            let mut model = machine(&[&[coverages[0]], &[coverages[1]]], &mut policy);
            model.set_walk_share(ProcessKey(2), Share::percent(50));
            assert_eq!(work(&mut model, &mut policy)[0].0, first, "{coverages:?}");
        }
    }

    #[test]
    fn within_a_bucket_walks_count_then_memory_then_age_then_addresses() {
        let mut policy = hawkeye();
        let all: [&[u64]; 4] = [&[70, 70], &[60, 90], &[60, 60, 60], &[60]];
        let mut model = machine(&all, &mut policy);
        model.set_walk_share(ProcessKey(4), Share::percent(20));
        // A promotion makes a process larger, so the one that was larger stays so.
        let order = [(4, 0), (3, 0), (3, 1), (3, 2), (1, 0), (1, 1), (2, 0), (2, 1)];
        assert_eq!(work(&mut model, &mut policy), order);
    }

    #[test]
    fn what_was_sampled_is_looked_at_again() {
        let mut policy = hawkeye();
        let mut model = machine(&[&[500, 300, 100]], &mut policy);
        for _ in 0..3 {
            assert!(matches!(policy.background(&mut model), Step::Scanned(_)));
        }
        model.set_coverage(ProcessKey(1), range(0), 10);
        model.set_coverage(ProcessKey(1), range(2), 450);
        assert_eq!(work(&mut model, &mut policy), [(1, 1), (1, 2), (1, 0)]);
    }

    #[test]
    fn a_round_comes_every_thirty_seconds() {
        let mut policy = hawkeye();
        let mut model = machine(&[&[]], &mut policy);
        assert_eq!(work(&mut model, &mut policy), []);
        let process = model.spawn(&[vma(1)]);
        model.touch(&mut policy, process, START);
        model.now = at_second(29) + Nanos(999_999_999);
        assert_eq!(work(&mut model, &mut policy), []);
        model.now = at_second(30);
        assert_eq!(work(&mut model, &mut policy), [(2, 0)]);
    }

    #[test]
    fn without_memory_promotions_stop_for_a_minute() {
        let mut policy = hawkeye();
        let mut model = machine(&[&[100, 90]], &mut policy);
        model.hide();
        model.can_compact = false;
        let (done, _) = model.work(&mut policy, 100);
        assert_eq!(done.len(), 1);
        model.show();
        model.now = at_second(59);
        assert_eq!(work(&mut model, &mut policy), []);
        model.now = at_second(60);
        assert_eq!(work(&mut model, &mut policy), [(1, 0), (1, 1)]);
    }

    #[test]
    fn free_huge_frames_are_zeroed_as_many_as_wanted() {
        for (wanted, free, zeroed) in [(3, 5, 3), (5, 3, 3), (0, 3, 0)] {
            let options = Options { zeroed: HugePages(wanted), ..Options::PUBLISHED };
            let mut model = Model::new(0, free, 0);
            model.work(&mut HawkEye::new(options), 100);
            assert_eq!(model.free_memory().zeroed_huge, zeroed);
        }
    }

    #[test]
    fn both_readings_of_the_first_touch() {
        let short = Vma { end: address(1, 9), ..vma(1) };
        let touch = |options, at| {
            let mut model = Model::new(0, 2, 50);
            let process = model.spawn(&[short]);
            model.touch(&mut HawkEye::new(options), process, at)
        };
        assert_eq!(touch(Options::PUBLISHED, START), Served::By(Attempt::Base));
        let huge = touch(Options::FIRST_TOUCH, START);
        assert!(matches!(huge, Served::By(Attempt::Map { size: PageSize::Huge, .. })));
        assert_eq!(touch(Options::FIRST_TOUCH, address(1, 0)), Served::By(Attempt::Base));
    }

    #[test]
    fn the_star_has_a_whole_cpu() {
        assert!(HawkEye::new(Options::PUBLISHED).background_share() < Share::percent(50));
        assert_eq!(HawkEye::new(Options::STAR).background_share(), Share::ALL);
    }
}
