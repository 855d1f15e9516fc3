//! The published promotion policies: when each allocates, prepares, maps, unmaps and deallocates superpages.
//!
//! A [`Policy`] is asked three things: what to map now, on a fault ([`Policy::fault`]); what to do
//! next in the background ([`Policy::background`]); what to give up under pressure
//! ([`Policy::pressure`]). It answers with values that say why; the machine carries them out and
//! says what became of them ([`Policy::learn`]). It sees the machine through a [`View`].
//!
//! A [`Machine`] is what can be seen and what can be done: [`drive`] takes a policy's answers to it, the
//! same way whichever machine it is. What only some machines can tell is an optional part of the view.
//!
//! | file | policy |
//! |---|---|
//! | [`linux`] | Linux THP and its 4 KiB pages |
//! | [`freebsd`] | FreeBSD's reservations |
//! | [`ingens`] | Ingens and Ingens* |
//! | [`hawkeye`] | HawkEye and HawkEye* |
//! | [`quicksilver`] | Quicksilver: Sync-t and Async-t |
//! | [`trident`] | Trident, its ablations, Trident-pv |
//! | [`hugetlb`] | pages set aside before |
//! | [`xheap`] | xHeap |
//! | [`selective`] | huge pages for chosen ranges |
//!
//! [`list`] has all of them by name, and the table of what each does when.
//!
//! Reclaiming bloat is another rule, [`crate::debloat`]: any of its policies goes with any of these.

mod backoff;
pub mod capabilities;
pub mod drive;
pub mod freebsd;
pub mod hawkeye;
pub mod hugetlb;
pub mod ingens;
pub mod life;
pub mod linux;
pub mod list;
pub mod machine;
#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
mod queue;
pub mod quicksilver;
mod reservations;
mod scan;
pub mod selective;
pub mod superpage;
pub mod trident;
pub mod xheap;

pub use machine::{AccessBits, Carried, Footprint, Machine, Pool, Pools, RangeView, View};
pub use reservations::Speculation;
pub use scan::Pace;

use crate::compaction::Compaction;
use capabilities::Capabilities;
use core::fmt;
use life::Life;
use superpage_units::{
    BasePages, Nanos, Page, PageSize, PmdRange, ProcessKey, Share, Time, VirtAddr, Vma,
};

/// A process touched a base page that is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Who.
    pub process: ProcessKey,
    /// The address.
    pub address: VirtAddr,
    /// The VMA it lies in.
    pub vma: Vma,
    /// The range it lies in, before the fault.
    pub range: RangeView,
    /// Whether nothing is mapped in the gigantic page it lies in; `None` on a machine without gigantic pages.
    pub gigantic_is_empty: Option<bool>,
}

impl Fault {
    /// A fault at this address as a machine without gigantic pages tells of it; `None` in no VMA.
    #[must_use]
    pub fn at(view: &dyn View, process: ProcessKey, address: VirtAddr) -> Option<Self> {
        let vmas = view.vmas(process);
        let after = vmas.partition_point(|vma| vma.start <= address);
        let vma = *vmas.get(after.checked_sub(1)?).filter(|vma| address < vma.end)?;
        let range = view.range(process, PmdRange::containing(address));
        Some(Self { process, address, vma, range, gigantic_is_empty: None })
    }

    /// The page of this size that the address lies in.
    #[must_use]
    pub const fn page(&self, size: PageSize) -> Page {
        Page::containing(self.address, size)
    }

    /// Whether a page of this size could be mapped: it lies in the VMA, and nothing is mapped in
    /// it yet.
    #[must_use]
    pub fn is_mappable(&self, size: PageSize) -> bool {
        let is_empty = match size {
            PageSize::Base => true,
            PageSize::Huge => self.range.present.is_zero() && !self.range.is_reserved,
            PageSize::Gigantic => self.gigantic_is_empty == Some(true),
        };
        is_empty && self.vma.holds(self.page(size))
    }
}

/// One way to serve a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Map a base page from anywhere. Succeeds while there is memory.
    Base,
    /// Map a superpage, prepared whole. If none is free, compact memory for it first, or fail.
    Map {
        /// Its size.
        size: PageSize,
        /// How to make one if none is free.
        compaction: Option<Compaction>,
        /// Whether it must be zero-filled already.
        zeroed: Zeroed,
    },
    /// Reserve a huge frame for the range, and map the base page in its place there.
    Reserve,
    /// Map the base page in its place in the range's reserved frame.
    InPlace,
    /// As [`Attempt::InPlace`], then prepare the rest of the frame and map it as a huge page.
    Complete,
}

/// Whether a superpage may have to be zeroed while somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroed {
    /// One zeroed ahead of time if there is one, else any.
    Preferred,
    /// Only one zeroed ahead of time.
    Required,
}

/// How to serve a fault: the attempts in order; the first that succeeds counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    attempts: [Option<Attempt>; 3],
    /// Why.
    pub cause: FaultCause,
}

impl FaultPlan {
    /// Just a base page.
    #[must_use]
    pub const fn base(cause: FaultCause) -> Self {
        Self { attempts: [Some(Attempt::Base), None, None], cause }
    }

    /// `first`, or else a base page.
    #[must_use]
    pub const fn try_first(first: Attempt, cause: FaultCause) -> Self {
        Self { attempts: [Some(first), Some(Attempt::Base), None], cause }
    }

    /// `first`, or `second`, or else a base page.
    #[must_use]
    pub const fn try_both(first: Attempt, second: Attempt, cause: FaultCause) -> Self {
        Self { attempts: [Some(first), Some(second), Some(Attempt::Base)], cause }
    }

    /// The attempts in order.
    pub fn attempts(&self) -> impl Iterator<Item = Attempt> {
        self.attempts.into_iter().flatten()
    }
}

/// Why a fault is served the way it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCause {
    /// The policy maps base pages on faults.
    BasePages,
    /// The program or the administrator asked for no huge pages here.
    NotWanted,
    /// The VMA leaves no room for a superpage here, or something is mapped in it already.
    NoRoom,
    /// The first touch of a range that a superpage of this size fits.
    FirstTouch(PageSize),
    /// The range's frame is reserved; so many base pages are prepared with this one.
    Prepared(BasePages),
    /// With this one, as many base pages are prepared as the policy waits for.
    Threshold(BasePages),
    /// The range was chosen by the program.
    Chosen,
    /// Pages of this size are free in the pool, or are not.
    Pool(PageSize),
}

/// How a superpage is made from what is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Into a new frame: what is populated is copied, the rest zeroed. If no frame is free, memory
    /// is compacted for it, or it fails.
    Copy(Option<Compaction>),
    /// In the range's reserved frame: the rest is zeroed, nothing is copied.
    InPlace,
    /// Into a new frame of a guest, by exchanging what backs the frames (Trident-pv) instead of
    /// copying, in one hypercall or in one for each page.
    Exchange(Batching, Option<Compaction>),
    /// Into a frame of the huge pool, what is not populated read from the backing store (xHeap).
    Read,
}

/// How many exchanges a hypercall carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// As many as there are.
    Whole,
    /// One.
    Single,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Map a page that is mapped by smaller ones (or partly) as one superpage.
    Promote {
        /// Whose.
        process: ProcessKey,
        /// Which.
        page: Page,
        /// By which means.
        how: How,
    },
    /// Zero a free chunk of this size ahead of time.
    Zero(PageSize),
    /// Compact until one more chunk of this size is free.
    Compact(PageSize, Compaction),
    /// Give back the frames of a reservation that are not populated; what is populated stays.
    Unreserve {
        /// Whose.
        process: ProcessKey,
        /// For which range.
        range: PmdRange,
    },
    /// Move what is populated in a range's reserved or huge frame elsewhere, so that the frame is
    /// free whole; the range is mapped by base pages after that.
    Evacuate {
        /// Whose.
        process: ProcessKey,
        /// Which range.
        range: PmdRange,
    },
    /// Write a page to its backing store if it is dirty, and unmap it.
    Evict {
        /// Whose.
        process: ProcessKey,
        /// Which.
        page: Page,
    },
}

/// What to do, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// What.
    pub act: Act,
    /// Why.
    pub cause: Cause,
}

/// Why a policy acts in the background or under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A scan came by, and so many base pages are present.
    Scanned(BasePages),
    /// So many base pages are present, as many as the policy waits for.
    Threshold(BasePages),
    /// So many of its base pages were accessed lately, more than in any other candidate.
    Coverage(BasePages),
    /// A growing heap has passed the range.
    HeapGrew,
    /// The free memory of pages of this size is short.
    Short(PageSize),
    /// Nobody accessed it for so long.
    Idle(Nanos),
    /// Its access bit was not set when the clock's hand came by.
    Clock,
}

impl Cause {
    /// Its kind in a word, one of a small fixed set.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Scanned(_) => "scanned",
            Self::Threshold(_) => "threshold",
            Self::Coverage(_) => "coverage",
            Self::HeapGrew => "heap-grew",
            Self::Short(_) => "short",
            Self::Idle(_) => "idle",
            Self::Clock => "clock",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scanned(pages) => write!(f, "scanned, {pages} base pages present"),
            Self::Threshold(pages) => write!(f, "threshold reached: {pages} base pages present"),
            Self::Coverage(pages) => write!(f, "highest coverage: {pages} base pages accessed"),
            Self::HeapGrew => f.write_str("the heap has grown past it"),
            Self::Short(size) => write!(f, "free {size} pages are short"),
            Self::Idle(time) => write!(f, "idle for {:.1} s", time.as_secs_f64()),
            Self::Clock => f.write_str("not accessed since the clock's hand came by"),
        }
    }
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// No contiguous memory could be had.
    NoFrame,
    /// What it was about has changed or gone.
    Stale,
}

/// What to do next in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This.
    Act(Action),
    /// Nothing was to be done here, but looking took effort: so many base pages were scanned. Ask
    /// again.
    Scanned(BasePages),
    /// Nothing until this time, or until something happens.
    Rest(Option<Time>),
}

/// What is short, under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Pages of this size.
    pub size: PageSize,
    /// So many of them are needed.
    pub pages: u64,
}

/// A promotion policy: one published way to manage superpages.
///
/// A machine asks for one action at a time and carries it out before it asks again, so an answer
/// never rests on what an earlier answer has changed.
pub trait Policy: fmt::Debug + Send {
    /// How to serve a fault.
    fn fault(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan;

    /// What to do next in the background, most valuable first. Asked while the budget lasts.
    fn background(&mut self, view: &mut dyn View) -> Step;

    /// The policy says what is to be prepared ahead of time; most policies prepare nothing. A machine asks this for a thread of its own beside the
    /// background, or before it asks for the background, or never, if it can prepare nothing.
    fn prepare(&mut self, _view: &dyn View) -> Step {
        Step::Rest(None)
    }

    /// The next thing to give up, least valuable first; `None`: nothing of this policy's.
    fn pressure(&mut self, shortage: Shortage, view: &mut dyn View) -> Option<Action>;

    /// Hears what became of an action. Most policies see it in memory when they look again.
    fn learn(&mut self, _action: &Action, _outcome: Outcome) {}

    /// Memory of a process was freed, or it has ended: what is kept of its ranges that hold nothing any more, by
    /// `view`, can go. Without this a program that maps memory at ever new addresses would be remembered for ever.
    fn forget(&mut self, _process: ProcessKey, _view: &dyn View) {}

    /// The machine has reserved the frame of a huge page again, because the program freed a part of it. Machines do so if
    /// [`Life::deallocation`](life::Life::deallocation) defers that.
    fn freed_in_part(&mut self, _process: ProcessKey, _range: PmdRange, _now: Time) {}

    /// How many threads work in the background.
    fn background_threads(&self) -> u32 {
        1
    }

    /// The share of a CPU that each of them may take.
    fn background_share(&self) -> Share {
        Share::ALL
    }

    /// What a machine must know of it to run it.
    fn capabilities(&self) -> Capabilities;

    /// When it does what in a superpage's life.
    fn life(&self) -> Life;
}
