//! The five events in a superpage's life (Quicksilver, Figure 1), and when a policy does each.
//!
//! The table of all policies by these events (as in Quicksilver's Table 1) is made from these
//! values; tests hold each value against what the policy does.

use super::Speculation;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use superpage_units::{BasePages, PageSize};

/// When a policy does each of the five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// A free physical superpage is taken.
    pub allocation: Allocation,
    /// It is given its first contents.
    pub preparation: Preparation,
    /// It is mapped as one.
    pub mapping: Mapped,
    /// It is unmapped.
    pub unmapping: Unmapping,
    /// It, or part of it, is free again.
    pub deallocation: Deallocation,
}

/// When a physical superpage is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Never.
    Never,
    /// At the first touch of a range that it fits; later also in the background, from this
    /// present pages on.
    FirstTouch {
        /// The largest size tried.
        largest: PageSize,
        /// The present pages from which it is also done in the background, if at all.
        later: Option<BasePages>,
    },
    /// A frame is reserved at the first touch.
    Reserved,
    /// A frame is reserved at the first touch, also beyond the end of a growing heap.
    ReservedSpeculatively,
    /// In the background, from so many present pages on.
    Asynchronous(BasePages),
    /// At the first touch of a range that the program chose.
    Chosen,
    /// At the first touch while the pool has one; later in the background, from so many present pages on.
    Pool(BasePages),
}

impl Allocation {
    /// By reservation.
    pub(super) const fn reserved(speculation: Speculation) -> Self {
        match speculation {
            Speculation::Growing => Self::ReservedSpeculatively,
            Speculation::Never => Self::Reserved,
        }
    }
}

/// When its first contents are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// There are none.
    Never,
    /// All at once, by zeroing or copying.
    AtOnce,
    /// All at once, zeroed ahead of time where that was possible.
    AheadOfTime,
    /// Base page by base page, in place.
    Incremental,
    /// Base page by base page up to a threshold, then the rest within the fault.
    IncrementalThenSynchronous(BasePages),
    /// Base page by base page up to a threshold, then the rest in the background.
    IncrementalThenAsynchronous(BasePages),
    /// By exchanging what backs a guest's frames.
    Exchange,
    /// Read from the backing store.
    Read,
}

/// When it is mapped as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Never.
    Never,
    /// As soon as it is allocated and prepared.
    AtOnce,
    /// With what completes its preparation: a fault, or the background.
    WhenPrepared,
}

/// When it is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapping {
    /// There is nothing to unmap.
    Never,
    /// When its memory is freed or its mapping changes.
    WhenFreed,
    /// And when it is written back to make room.
    WhenEvicted,
}

/// When its memory is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocation {
    /// There is nothing to free.
    Never,
    /// As soon as it is unmapped.
    WhenUnmapped,
    /// As soon as it is unmapped, and never to make room.
    OnlyWhenUnmapped,
    /// As late as possible: under pressure, the reservation idle longest first.
    Deferred,
    /// In the background, when it is idle and partly used.
    WhenIdle,
    /// When the clock's hand finds it unused, after writing it back.
    Clock,
}

impl Deallocation {
    /// Whether the frame of a huge page that is freed in part stays taken as a whole, until the policy gives it back.
    #[must_use]
    pub const fn keeps_frames(self) -> bool {
        matches!(self, Self::Deferred | Self::WhenIdle)
    }
}

/// Base pages in words.
fn counted(pages: BasePages) -> String {
    if pages.0 == 1 { "1 base page".to_owned() } else { format!("{pages} base pages") }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::FirstTouch { largest, later: None } => write!(f, "first touch, up to {largest}"),
            Self::FirstTouch { largest, later: Some(pages) } => {
                write!(f, "first touch, up to {largest}; later from {}", counted(*pages))
            }
            Self::Reserved => f.write_str("reserved at the first touch"),
            Self::ReservedSpeculatively => {
                f.write_str("reserved at the first touch, also beyond a heap's end")
            }
            Self::Asynchronous(pages) => write!(f, "in the background from {}", counted(*pages)),
            Self::Chosen => f.write_str("first touch of a chosen range"),
            Self::Pool(pages) => {
                write!(f, "first touch while the pool has one; later from {pages} base pages")
            }
        }
    }
}

impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::AtOnce => f.write_str("all at once"),
            Self::AheadOfTime => f.write_str("zeroed ahead of time, else all at once"),
            Self::Incremental => f.write_str("base page by base page, in place"),
            Self::IncrementalThenSynchronous(t) => {
                write!(f, "in place up to {t}, then the rest in the fault")
            }
            Self::IncrementalThenAsynchronous(t) => {
                write!(f, "in place up to {t}, then the rest in the background")
            }
            Self::Exchange => f.write_str("by exchanging what backs a guest's frames"),
            Self::Read => f.write_str("read from the backing store"),
        }
    }
}

impl fmt::Display for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::AtOnce => "at once",
            Self::WhenPrepared => "when its preparation is complete",
        })
    }
}

impl fmt::Display for Unmapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::WhenFreed => "when freed or changed",
            Self::WhenEvicted => "when freed, changed or evicted",
        })
    }
}

impl fmt::Display for Deallocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::WhenUnmapped => "when unmapped",
            Self::OnlyWhenUnmapped => "when unmapped, never to make room",
            Self::Deferred => "as late as possible, idle longest first",
            Self::WhenIdle => "in the background, when idle and partly used",
            Self::Clock => "when the clock finds it unused",
        })
    }
}
