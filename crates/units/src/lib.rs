//! The words that every crate speaks in: sizes, addresses, pages, regions, areas, shares, times,
//! and the numbers and keys of processes.
//!
//! A public signature anywhere in the workspace uses these types and no bare number for a size, a
//! count of pages, an address, a share or a time. Nothing here decides, reads or waits, and nothing
//! allocates.

#![no_std]

#[cfg(test)]
extern crate std;

mod address;
mod area;
mod count;
mod page;
mod process;
mod region;
mod share;
mod size;
mod time;

pub use address::VirtAddr;
pub use area::{Advice, Area, AreaKind, Growth, Mapping};
pub use page::{GIGANTIC_PAGE_BYTES, HUGE_PAGES_PER_GIGANTIC_PAGE, Page, PageSize};
pub use process::{Pid, ProcessKey};
pub use region::Region;
pub use share::Share;
pub use size::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HUGE_PAGE_BYTES, HugePages,
};
pub use time::{Nanos, Time};
