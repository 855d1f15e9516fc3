//! Pages set aside before a program starts, as libhugetlbfs uses them (Trident, sections 2 and
//! 4.1: the static way).
//!
//! A heap and other anonymous memory is mapped by pages of one size, whole, at the first touch.
//! Nothing is promoted and nothing is given up. What such a page does not fit stays with base
//! pages: with libhugetlbfs there is no such place, as VMAs are whole numbers of the page.
//!
//! Deviations:
//! - The pages are not taken away from other memory before: a machine with enough whole free
//!   chunks has them, another has not.
//! - A stack gets base pages. The scripts published with Trident leave THP on beside it.

use super::capabilities::{Capabilities, Need};
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::{Action, Attempt, Fault, FaultCause, FaultPlan, Policy, Shortage, Step, View, Zeroed};
use superpage_units::{PageSize, VmaKind};

/// The pages that were set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Their size.
    pub size: PageSize,
}

impl Options {
    /// 2 MiB.
    pub const HUGE: Self = Self { size: PageSize::Huge };
    /// 1 GiB.
    pub const GIGANTIC: Self = Self { size: PageSize::Gigantic };
}

/// The policy. It has no state.
#[derive(Clone, Copy, Debug)]
pub struct Hugetlb {
    options: Options,
}

impl Hugetlb {
    /// Pages of this size.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Policy for Hugetlb {
    fn fault(&mut self, fault: &Fault, _: &dyn View) -> FaultPlan {
        let size = self.options.size;
        if fault.vma.kind != VmaKind::Anonymous {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        if !fault.is_mappable(size) {
            return FaultPlan::base(FaultCause::NoRoom);
        }
        let attempt = Attempt::Map { size, compaction: None, zeroed: Zeroed::Preferred };
        FaultPlan::try_first(attempt, FaultCause::FirstTouch(size))
    }

    fn background(&mut self, _: &mut dyn View) -> Step {
        Step::Rest(None)
    }

    fn pressure(&mut self, _: Shortage, _: &mut dyn View) -> Option<Action> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::needs(Need::Pools)
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::FirstTouch { largest: self.options.size, later: None },
            preparation: Preparation::AtOnce,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::OnlyWhenUnmapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Model, address, range, vma};
    use super::*;
    use superpage_units::{Mapping, Vma};

    #[test]
    fn one_size_at_the_first_touch_where_it_fits() {
        use Mapping::{Base, Gigantic, Huge};
        let rows = [
            (Options::HUGE, VmaKind::Anonymous, [Huge, Huge]),
            (Options::GIGANTIC, VmaKind::Anonymous, [Gigantic, Base]),
            (Options::GIGANTIC, VmaKind::Stack, [Base, Base]),
            (Options::HUGE, VmaKind::File, [Base, Base]),
        ];
        for (options, kind, expected) in rows {
            let mut model = Model::new(1, 3, 50);
            let process = model.spawn(&[Vma { kind, ..vma(513) }]);
            let mut policy = Hugetlb::new(options);
            let mapped = [0, 512].map(|index| {
                model.touch(&mut policy, process, address(index, 3));
                model.range(process, range(index)).mapping
            });
            assert_eq!(mapped, expected, "{options:?} {kind:?}");
            assert!(matches!(policy.background(&mut model), Step::Rest(None)));
            model.check();
        }
    }
}
