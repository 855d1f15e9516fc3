//! Arrays on chosen pages: the first part of an array, in memory order, lies on huge (2 MiB) or gigantic (1 GiB) pages, the
//! rest on base pages (4 KiB).
//!
//! Data that is touched at random gains from huge pages, and most of them for nothing where only a part is touched often:
//! "The Implications of Page Size Management on Graph Analytics" (IISWC 2022, section 5) puts the hottest fifth of one array
//! on huge pages and has most of the speed of huge pages everywhere.
//!
//! ```
//! use superpage_array::{PageArray, Pages};
//!
//! let mut ranks = PageArray::<f32>::zeroed(1_000_000, "huge:20%".parse::<Pages>()?)?;
//! ranks[0] = 1.0;
//! let placed = ranks.placement()?;
//! println!("{} on huge pages, {} on base pages", placed.huge, placed.base);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`pages`] is the grammar, [`mod@array`] what programs use, `memory` maps and advises, [`placement`] says which pages memory is
//! really on, `fork` gives a child of a fork its copy of what is on gigantic pages. Arrays are made once: they do not grow.
//!
//! The order in which arrays are made is the order in which they get huge pages, so the one that is touched most comes first
//! (the paper's section 5.1.1).

pub mod array;
pub mod error;
mod fork;
mod memory;
pub mod pages;
pub mod placement;
mod width;

pub use array::{PageArray, Request, Shortfall};
pub use error::{Error, Result};
pub use memory::{Advice, advise_at, collapse, collapse_at};
pub use pages::Pages;
pub use placement::Placement;
pub use superpage_units::Bytes;
