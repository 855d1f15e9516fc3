//! When promoting would do harm: memory is nearly used up, free memory is in pieces, or the huge
//! page would be bloated again that was taken back before.

use superpage_kernel::pagemap::Survey;
use superpage_policy::supply::Supply;
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, PageSize};

/// Why a region is not promoted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It would take memory that is short, on the machine or in the cgroup.
    Memory,
    /// Free memory is in pieces: a huge page would have to be made by moving others.
    Fragmentation,
    /// It was huge before, or was de-bloated, and too much of it is missing.
    BloatAgain,
    /// Other processes map some of it, as after a fork: promoting would copy it.
    Shared,
    /// Too much of it is in swap.
    Swapped,
    /// The kernel had no huge page (ENOMEM).
    NoHugePage,
    /// The cgroup is at its limit (EBUSY).
    CgroupLimit,
    /// The kernel was using it just then (EAGAIN).
    Busy,
    /// The kernel does not do it there: advised against, watched by userfaultfd, locked, or not
    /// mapped any more (EINVAL).
    NotPossible,
    /// The process has gone or is out of reach.
    Gone,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Memory,
        Self::Fragmentation,
        Self::BloatAgain,
        Self::Shared,
        Self::Swapped,
        Self::NoHugePage,
        Self::CgroupLimit,
        Self::Busy,
        Self::NotPossible,
        Self::Gone,
    ];

    /// Its kind in a word.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Memory => "memory-short",
            Self::Fragmentation => "fragmented",
            Self::BloatAgain => "would-bloat-again",
            Self::Shared => "shared",
            Self::Swapped => "swapped",
            Self::NoHugePage => "no-huge-page",
            Self::CgroupLimit => "cgroup-limit",
            Self::Busy => "busy",
            Self::NotPossible => "not-possible",
            Self::Gone => "gone",
        }
    }

    /// Whether it has to do with something else than the region, and may be over soon.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        match self {
            Self::Memory
            | Self::Fragmentation
            | Self::Shared
            | Self::Swapped
            | Self::NoHugePage
            | Self::CgroupLimit
            | Self::Busy => true,
            Self::BloatAgain | Self::NotPossible | Self::Gone => false,
        }
    }

    /// In words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Memory => "it would take memory that is short",
            Self::Fragmentation => "free memory is in pieces",
            Self::BloatAgain => "it was taken back or freed before, and is not full enough",
            Self::Shared => "another process maps it too",
            Self::Swapped => "too much of it is in swap",
            Self::NoHugePage => "the kernel had no huge page",
            Self::CgroupLimit => "its cgroup is at its limit",
            Self::Busy => "the kernel was using it",
            Self::NotPossible => "the kernel does not do it there",
            Self::Gone => "its process has gone",
        }
    }
}

/// How much memory promotions may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// None: the high watermark is passed.
    None,
    /// No more than de-bloating would not take back: the low watermark is passed.
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

/// Base pages in swap from which on a region is left alone: khugepaged's default `max_ptes_swap`.
const MOST_SWAPPED: BasePages = BasePages(BASE_PAGES_PER_HUGE_PAGE / 8);

/// What holds now.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// What breaking a huge page has to free to be worth it: with as much missing, what is made
    /// would be broken again.
    pub worth: BasePages,
    /// The share of free memory in pieces above which none is asked for, 0 to 1.
    pub max_fragmentation: f64,
    /// That share now, 0 to 1.
    pub fragmentation: f64,
}

/// What a region has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It has not been seen as a huge page.
    New,
    /// It was one.
    WasHuge,
}

impl Limits {
    /// Takes in the supply of free memory.
    pub fn see(&mut self, supply: &Supply) {
        self.fragmentation = supply.fmfi(PageSize::Huge);
    }

    /// Whether a region that looks like this may be promoted, where there is this much `room`.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, seen: &Survey, past: Past, room: Room) -> Result<(), Refusal> {
        let missing = BasePages(BASE_PAGES_PER_HUGE_PAGE).saturating_sub(seen.population);
        let little = self.worth.saturating_sub(BasePages(1));
        if seen.swapped > MOST_SWAPPED {
            return Err(Refusal::Swapped);
        }
        // A split maps what it frees to the shared zero page, which stays to be seen.
        let was_taken_back = past == Past::WasHuge || !seen.zero_pages.is_zero();
        if was_taken_back && missing > little {
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

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::Bytes;

    const LIMITS: Limits =
        Limits { worth: BasePages(51), max_fragmentation: 0.9, fragmentation: 0.5 };

    fn seen(population: u64) -> Survey {
        Survey { population: BasePages(population), ..Survey::default() }
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
    fn what_was_taken_back_must_be_nearly_full() {
        let freed = |zero| Survey { zero_pages: BasePages(zero), ..seen(461) };
        assert_eq!(LIMITS.check(&seen(461), Past::WasHuge, Room::Plenty), Err(Refusal::BloatAgain));
        assert_eq!(LIMITS.check(&seen(462), Past::WasHuge, Room::Plenty), Ok(()));
        assert_eq!(LIMITS.check(&freed(1), Past::New, Room::Plenty), Err(Refusal::BloatAgain));
        assert_eq!(LIMITS.check(&freed(0), Past::New, Room::Plenty), Ok(()));
    }

    #[test]
    fn pieces_and_swap_are_reasons_too() {
        let pieces = Limits { fragmentation: 0.91, ..LIMITS };
        assert_eq!(pieces.check(&seen(512), Past::New, Room::Plenty), Err(Refusal::Fragmentation));
        let swapped = Survey { swapped: BasePages(65), ..seen(512) };
        assert_eq!(LIMITS.check(&swapped, Past::New, Room::Plenty), Err(Refusal::Swapped));
    }

    #[test]
    fn kinds_are_unlike() {
        let kinds: std::collections::BTreeSet<_> =
            Refusal::ALL.iter().map(|one| one.kind()).collect();
        assert_eq!(kinds.len(), Refusal::ALL.len());
    }
}
