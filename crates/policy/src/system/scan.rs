//! Walking over the memory of all processes in turn, region by region or page by page, and coming
//! back to where one was. What is found on the way is the caller's business.

use super::{Area, View};
use crate::debloat::ProcessKey;
use crate::page::Page;
use crate::region::Region;
use crate::units::VirtAddr;

/// The area that holds the whole of `page`, if one does.
pub(super) fn area_holding(view: &dyn View, process: ProcessKey, page: Page) -> Option<Area> {
    let areas = view.areas(process);
    let after = areas.partition_point(|area| area.start <= page.start());
    areas.get(after.checked_sub(1)?).copied().filter(|area| area.holds(page))
}

/// A place in the memory of all processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hand {
    process: Option<ProcessKey>,
    from: VirtAddr,
}

impl Hand {
    /// The next region with anything mapped in it. `None` at the end of the last process; after
    /// that it begins anew.
    pub(super) fn next_region(&mut self, view: &dyn View) -> Option<(ProcessKey, Region)> {
        self.advance(view, |view, process, from| {
            let region = view.next_mapped(process, from)?;
            Some((region, region.end()))
        })
    }

    /// The next mapped page, likewise.
    pub(super) fn next_page(&mut self, view: &dyn View) -> Option<(ProcessKey, Page)> {
        self.advance(view, |view, process, from| {
            let page = view.next_page(process, from)?;
            Some((page, page.end()))
        })
    }

    fn advance<T>(
        &mut self,
        view: &dyn View,
        next: impl Fn(&dyn View, ProcessKey, VirtAddr) -> Option<(T, VirtAddr)>,
    ) -> Option<(ProcessKey, T)> {
        let begun = self.process;
        for process in view.processes().iter().copied().filter(|key| Some(*key) >= begun) {
            let from = if Some(process) == begun { self.from } else { VirtAddr::default() };
            if let Some((found, after)) = next(view, process, from) {
                *self = Self { process: Some(process), from: after };
                return Some((process, found));
            }
        }
        *self = Self::default();
        None
    }
}
