//! Memory of which every base page has been touched, and that then only is there.

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::{BASE_PAGE_BYTES, BasePages, HugePages};

/// The memory. On which pages it lies is the machine's setting.
pub(super) struct Heap {
    memory: OwnMemory,
}

impl Heap {
    pub(super) fn new(size: HugePages) -> Result<Self, String> {
        let mut memory = OwnMemory::map(size, Wish::Nothing).map_err(|error| error.to_string())?;
        for page in memory.bytes_mut().chunks_mut(to_usize(BASE_PAGE_BYTES)) {
            page[0] = 1;
        }
        Ok(Self { memory })
    }
}

impl Play for Heap {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        if order != Order::Advise {
            return refused(order);
        }
        let all = self.memory.size().to_base_pages();
        let advised = self.memory.wish(BasePages::ZERO, all, Wish::HugePages);
        advised.map(|()| Answer::Done { nanos: 0 }).map_err(|error| error.to_string())
    }
}
