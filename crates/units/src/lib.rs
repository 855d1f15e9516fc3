//! The words that every crate speaks in: sizes, addresses, pages, ranges, VMAs, shares, times,
//! and the numbers and keys of processes.
//!
//! A public signature anywhere in the workspace uses these types and no bare number for a size, a
//! count of pages, an address, a share or a time. Nothing here decides, reads or waits, and nothing
//! allocates.

#![no_std]

#[cfg(test)]
extern crate std;

mod address;
mod count;
mod page;
mod process;
mod range;
mod share;
mod size;
mod time;
mod vma;

pub use address::VirtAddr;
pub use page::{GIGANTIC_PAGE_BYTES, HUGE_PAGES_PER_GIGANTIC_PAGE, Page, PageSize};
pub use process::{Pid, ProcessKey};
pub use range::PmdRange;
pub use share::Share;
pub use size::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HUGE_PAGE_BYTES, HugePages,
};
pub use time::{Nanos, Time};
pub use vma::{Advice, Growth, Mapping, Vma, VmaKind};
