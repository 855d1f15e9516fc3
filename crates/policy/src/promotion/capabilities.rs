//! What a machine must know of a policy to run it: what it goes by, what it wants of the kernel, and
//! what it cannot do without.

use super::Policy;
use super::life::Allocation;
use superpage_units::{BasePages, PageSize};

/// Whether a policy goes by page faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// The policy is told of each fault, and may want a huge page for it.
    Told,
    /// The policy goes by what its own scan comes upon.
    Scans,
}

/// What a first touch of memory is to give where the kernel serves the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstTouch {
    /// Whatever the kernel gives by its own settings.
    Kernel,
    /// A base page: the policy decides later.
    BasePage,
}

/// When huge pages that stay partly used are split in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleReclaim {
    /// Never: that is left to de-bloating under pressure.
    Never,
    /// Above the low watermark, of the machine or of a guarded cgroup that the process is in; and no
    /// memory that its program asked huge pages for.
    AboveLow,
    /// Always.
    Always,
}

/// What a policy is of no use without, and not every machine has. Without it the policy maps smaller
/// pages, rests or gives nothing up; no part of a [`View`](super::View) that may be missing is taken for
/// granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Pages set aside before programs start.
    Pools,
    /// Pages of 1 GiB.
    GiganticPages,
    /// Somebody who chooses ranges of memory for it.
    ChosenRanges,
}

/// What a machine must know of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether it goes by faults.
    pub faults: Faults,
    /// What it wants of first touches.
    pub first_touch: FirstTouch,
    /// What it does about huge pages that stay partly used.
    pub idle: IdleReclaim,
    /// What it cannot do without.
    pub need: Option<Need>,
    /// The base pages that must be present in a range before it is promoted, if there is such a number.
    pub threshold: Option<BasePages>,
}

impl Capabilities {
    /// Those of a policy that scans, leaves first touches to the kernel, and needs nothing.
    pub const SCANS: Self = Self {
        faults: Faults::Scans,
        first_touch: FirstTouch::Kernel,
        idle: IdleReclaim::Never,
        need: None,
        threshold: None,
    };

    /// Those of a policy that is told of faults and promotes from so many present base pages on.
    #[must_use]
    pub const fn told(threshold: BasePages) -> Self {
        Self {
            faults: Faults::Told,
            first_touch: FirstTouch::BasePage,
            threshold: Some(threshold),
            ..Self::SCANS
        }
    }

    /// Those of a policy that cannot do without something.
    #[must_use]
    pub const fn needs(need: Need) -> Self {
        Self { faults: Faults::Told, need: Some(need), ..Self::SCANS }
    }
}

/// The size of the pages by which a policy has all memory mapped, if those are set aside before.
#[must_use]
pub fn set_aside(policy: &dyn Policy) -> Option<PageSize> {
    match (policy.capabilities().need, policy.life().allocation) {
        (Some(Need::Pools), Allocation::FirstTouch { largest, later: None }) => Some(largest),
        _ => None,
    }
}
