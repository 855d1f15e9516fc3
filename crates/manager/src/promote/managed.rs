//! A process that is promoted in, as the [scheduler](super::scheduler) knows it: what it has done, what is under way in it,
//! which of its ranges are queued or cool down, and which were huge.

use super::RequestId;
use super::event::{Activity, LONGEST_RUN, Observed};
use super::gate::Domains;
use super::range::{Because, Known, State, Wanted};
use super::runs::Runs;
use crate::left_behind::Owner;
use std::collections::BTreeMap;
use std::ops::Bound;
use superpage_units::{BasePages, PmdRange, Time, VirtAddr};

/// A process with so many new faults, or that has grown by as much, is surveyed soon.
const ACTIVE: BasePages = BasePages(32);

/// A process that is promoted in.
#[derive(Debug)]
pub(super) struct Managed {
    /// Which policy instance it is under.
    pub(super) instance: usize,
    /// Whose process it is.
    pub(super) owner: Owner,
    /// The gate's domains that the process has its memory in.
    pub(super) domains: Domains,
    /// What it had done at the last observation.
    pub(super) activity: Activity,
    /// What it had done at the last survey.
    pub(super) surveyed: Option<Activity>,
    /// When it is surveyed next.
    pub(super) next_survey: Time,
    /// No survey before this, so as not to take more than its share.
    pub(super) survey_not_before: Time,
    /// The next survey begins at this address: the last one may not have come to the end.
    pub(super) survey_from: VirtAddr,
    /// The request about it that is under way.
    pub(super) request: Option<RequestId>,
    /// No collapse before this: the process has had to wait for the last one.
    pub(super) collapse_not_before: Time,
    /// The PMD ranges of which something is known beyond what is mapped in them, and that they were huge.
    pub(super) ranges: BTreeMap<PmdRange, Known>,
    /// How many of them are queued.
    pub(super) queued: usize,
    /// The policy wants more ranges than could be queued.
    pub(super) wants_more: bool,
    /// The ranges that a promotion, now or in an earlier run, made huge since they were mapped.
    pub(super) was_huge: Runs,
    /// Where the search for the next queued range goes on.
    pub(super) cursor: VirtAddr,
}

impl Managed {
    pub(super) fn new(observed: &Observed, instance: usize, now: Time) -> Self {
        Self {
            instance,
            owner: observed.owner.clone(),
            domains: observed.domains,
            activity: observed.activity,
            surveyed: None,
            next_survey: now,
            survey_not_before: now,
            survey_from: VirtAddr(0),
            request: None,
            collapse_not_before: now,
            ranges: BTreeMap::new(),
            queued: 0,
            wants_more: false,
            was_huge: Runs::default(),
            cursor: VirtAddr(0),
        }
    }

    /// Whether it has faulted or grown enough since its survey to be worth another.
    pub(super) fn is_active(&self) -> bool {
        let Some(before) = self.surveyed else { return true };
        let faults = self.activity.faults.saturating_sub(before.faults);
        let grown = self.activity.resident.saturating_sub(before.resident);
        faults >= ACTIVE.0 || grown >= ACTIVE.bytes()
    }

    /// When it is surveyed next, if nothing is under way in it.
    pub(super) fn survey_at(&self) -> Option<Time> {
        self.request.is_none().then(|| self.next_survey.max(self.survey_not_before))
    }

    /// Whether more can be queued of what its last survey found.
    pub(super) fn has_room(&self) -> bool {
        self.wants_more && self.queued == 0 && self.request.is_none()
    }

    /// When something is collapsed in it next, if that waits for nothing else.
    pub(super) fn collapse_at(&self) -> Option<Time> {
        (self.request.is_none() && self.queued > 0).then_some(self.collapse_not_before)
    }

    /// The next run of queued neighbours, as long as a call may be, and where the search goes on.
    pub(super) fn next_run(&self) -> Vec<PmdRange> {
        let is_queued = |(range, known): (&PmdRange, &Known)| {
            matches!(known.state, State::Queued(_)).then_some(*range)
        };
        let from = PmdRange::containing(self.cursor);
        let behind = self.ranges.range(from..).find_map(is_queued);
        let Some(first) = behind.or_else(|| self.ranges.iter().find_map(is_queued)) else {
            return Vec::new();
        };
        let mut run = vec![first];
        let most = usize::try_from(LONGEST_RUN.0).unwrap_or(1);
        let next = self.ranges.range((Bound::Excluded(first), Bound::Unbounded));
        for (range, known) in next {
            let follows = run.last().is_some_and(|last| last.end() == range.start());
            if run.len() >= most || !follows || !matches!(known.state, State::Queued(_)) {
                break;
            }
            run.push(*range);
        }
        run
    }

    /// Queues a range unless it is queued, under way, or cools down; says whether it did.
    pub(super) fn queue(&mut self, range: PmdRange, wanted: Wanted) -> Queued {
        let known = self.ranges.entry(range).or_insert(Known::NEW);
        if !known.is_free(wanted.since) {
            return Queued::No;
        }
        known.queue(wanted);
        self.queued += 1;
        Queued::Yes
    }

    /// Leaves a range alone for a while; it is surveyed when that is over.
    pub(super) fn cool_down(&mut self, range: PmdRange, because: Because, now: Time) {
        let known = self.ranges.entry(range).or_insert(Known::NEW);
        let was_queued = matches!(known.state, State::Queued(_));
        let until = known.cool_down(because, now);
        self.queued -= usize::from(was_queued);
        match because {
            Because::Promoted => self.was_huge.insert(range),
            Because::Refused(_) => self.next_survey = self.next_survey.min(until),
        }
    }

    /// Leaves all queued ranges alone for a while: they would be refused for the same reason.
    pub(super) fn cool_down_queue(&mut self, because: Because, now: Time) {
        let is_queued = |(_, known): &(&PmdRange, &Known)| matches!(known.state, State::Queued(_));
        let queued = self.ranges.iter().filter(is_queued).map(|(range, _)| *range);
        for range in queued.collect::<Vec<_>>() {
            self.cool_down(range, because, now);
        }
    }
}

/// Whether a range was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    Yes,
    No,
}
