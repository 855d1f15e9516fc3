//! The stock kernel's huge-page interfaces, typed: one file for each interface.
//!
//! Each file says what its interface does, what can go wrong, and where it is documented. The
//! contract is on top, the mechanism below it. Readers take the root they read under, so that
//! tests can give them fixtures.
//!
//! What is deliberately absent: any decision. Of this workspace the crate uses only
//! `superpage-units` and `superpage-uapi`, and it knows no policy. Nothing prints or logs.

pub mod balloon;
pub mod buddyinfo;
pub mod cgroup;
pub mod cgroup_alarm;
pub mod compaction;
pub mod cpuinfo;
pub mod error;
pub mod habits;
pub mod hugetlb;
pub mod kpageflags;
pub mod ksm;
pub mod made;
pub mod maps;
pub mod meminfo;
pub mod mounts;
pub mod node;
pub mod numa_maps;
pub mod own_beginning;
pub mod own_child;
pub mod own_memory;
pub mod own_policy;
pub mod own_room;
pub mod own_thp;
pub mod own_vma;
pub mod page_sizes;
pub mod pagemap;
pub mod pressure;
pub mod probe;
pub mod process;
pub mod process_madvise;
pub mod procmap_query;
pub mod rights;
pub mod sample;
pub mod settings;
pub mod shared_page;
pub mod smaps;
pub mod smaps_flags;
pub mod smaps_hugetlb;
pub mod status;
pub mod swap;
pub mod text;
pub mod thp;
pub mod tracked_writes;
pub mod usage;
pub mod vmstat;
mod width;
pub mod zoneinfo;
pub mod zram;

pub use error::{Error, Result};
