//! The programs that the papers measure: what they are given and what they report.
//!
//! Each lives in its own file: [`random_access`], [`btree`], [`memcached`], [`fault_loop`]. They run in a process
//! of their own (see [`crate::worker`]), because what happens to their memory is done from outside.
//!
//! Every one of them takes its size as its footprint on huge pages, and knows how many of its base
//! pages hold data; the others are zero-filled, which is its bloat.

pub mod arena;
pub mod btree;
pub(crate) mod clock;
pub mod fault_loop;
pub mod memcached;
pub mod random_access;
pub mod rng;
pub(crate) mod zipf;

use arena::Residency;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use superpage_kernel::process::own_pid;
use superpage_manager::plain;
use superpage_units::{BasePages, Bytes, HugePages, Nanos, Pid};

/// The smallest footprint that every workload still has its shape at.
pub const LEAST_SIZE: Bytes = Bytes::from_mib(64);

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Random updates; 80 % bloat in the first half of the memory, 20 % in the second.
    RandomAccessL,
    /// Random updates; 20 % bloat in the first half of the memory, 80 % in the second.
    RandomAccessR,
    /// Random updates of memory without bloat.
    RandomAccessDense,
    /// Random lookups in a B+ tree.
    BTree,
    /// Random gets from a memcached server that is arranged to have bloat.
    Memcached,
    /// Ordinary traffic to a memcached server as an operator starts it.
    OrdinaryMemcached,
    /// Touches memory, gives it back, begins again.
    FaultLoop,
}

impl WorkloadKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::RandomAccessL,
        Self::RandomAccessR,
        Self::RandomAccessDense,
        Self::BTree,
        Self::Memcached,
        Self::OrdinaryMemcached,
        Self::FaultLoop,
    ];

    /// Whether the program asks for huge pages where it is started on them. Others have what the kernel gives them.
    #[must_use]
    pub const fn asks_for_huge_pages(self) -> bool {
        !matches!(self, Self::OrdinaryMemcached)
    }

    /// The name that the papers use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RandomAccessL => "RandomAccess-L",
            Self::RandomAccessR => "RandomAccess-R",
            Self::RandomAccessDense => "RandomAccess-Dense",
            Self::BTree => "BTree",
            Self::Memcached => "Memcached",
            Self::OrdinaryMemcached => "Memcached-ordinary",
            Self::FaultLoop => "FaultLoop",
        }
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The pages that a workload's memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageSize {
    /// 4 KiB pages only.
    Base,
    /// 2 MiB pages from the first touch.
    Huge,
    /// The pages that the kernel gives to a program that asks for nothing.
    Unasked,
}

/// A workload to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Which program.
    pub kind: WorkloadKind,
    /// Its footprint when all of it is on huge pages; rounded down to whole huge pages.
    #[serde(rename = "size_bytes", with = "plain")]
    pub size: Bytes,
    /// On which pages.
    pub pages: PageSize,
    /// The core that the process with the memory is kept on. A client, where there is one, goes to
    /// another core. `None`: the scheduler chooses (for memcached: the first core we may use).
    pub cpu: Option<u32>,
}

/// What a populated workload is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Populated {
    /// The process that the memory belongs to.
    #[serde(with = "plain")]
    pub pid: Pid,
    /// The size of its memory on huge pages.
    #[serde(rename = "footprint_bytes", with = "plain")]
    pub footprint: Bytes,
    /// How many base pages of the footprint hold data. The rest is bloat.
    #[serde(with = "plain")]
    pub used_base_pages: BasePages,
    /// What the kernel counts as resident for the whole process.
    #[serde(rename = "resident_bytes", with = "plain")]
    pub resident: Bytes,
    /// How many huge pages are mapped in the whole process.
    #[serde(with = "plain")]
    pub huge_pages: HugePages,
    /// How long populating took.
    #[serde(rename = "populate_ns", with = "plain")]
    pub populate: Nanos,
}

impl Populated {
    /// The zero-filled base pages in the footprint: what de-bloating can free at most.
    #[must_use]
    pub fn bloat(&self) -> BasePages {
        self.footprint.to_base_pages().saturating_sub(self.used_base_pages)
    }

    /// Whether at least 95 % of the footprint (chosen, not measured) is on huge pages.
    #[must_use]
    pub fn is_on_huge_pages(&self) -> bool {
        self.huge_pages.bytes() >= self.footprint.scaled(0.95)
    }
}

/// How long a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// By the clock on the wall.
    #[serde(rename = "wall_ns", with = "plain")]
    pub wall: Nanos,
    /// CPU time of the process with the memory, all its threads, in user space and kernel.
    #[serde(rename = "cpu_ns", with = "plain")]
    pub cpu: Nanos,
    /// How many operations were done: at least as many as asked for.
    pub operations: u64,
    /// A sum of all that the operations touched; the same for the same seed and number.
    pub checksum: u64,
}

/// The workload's own check of all its data, passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// How many items (base pages, keys) were compared.
    pub items: u64,
}

/// A workload, populated.
pub trait Workload {
    /// The process that the memory belongs to.
    fn pid(&self) -> Pid;

    /// The size of its memory on huge pages, and the base pages of that which hold data.
    fn memory(&self) -> (Bytes, BasePages);

    /// Does `operations` operations, rounded up to whole batches, chosen by `seed`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if data read is not the data written, [`Error::Server`] and
    /// [`Error::Protocol`] where a server is involved.
    fn run(&mut self, operations: u64, seed: u64) -> Result<Timing>;

    /// Compares all data with what was written.
    ///
    /// # Errors
    /// As [`Workload::run`].
    fn check(&mut self) -> Result<Checked>;
}

/// Builds and populates the workload that `spec` describes, in this process (and, for memcached,
/// a child of it).
///
/// # Errors
/// [`Error::TooSmall`], [`Error::Memory`], and for memcached [`Error::MissingProgram`],
/// [`Error::Server`] and [`Error::Protocol`].
pub fn populate(spec: &WorkloadSpec) -> Result<(Box<dyn Workload>, Populated)> {
    use random_access::{Bloat, RandomAccess};
    if spec.size < LEAST_SIZE {
        return Err(Error::TooSmall { size: spec.size, least: LEAST_SIZE });
    }
    let watch = clock::Stopwatch::start(own_pid())?;
    let random_access = |bloat| RandomAccess::populate(spec.size, spec.pages, bloat);
    let workload: Box<dyn Workload> = match spec.kind {
        WorkloadKind::RandomAccessL => Box::new(random_access(Bloat::HighFirst)?),
        WorkloadKind::RandomAccessR => Box::new(random_access(Bloat::LowFirst)?),
        WorkloadKind::RandomAccessDense => Box::new(random_access(Bloat::None)?),
        WorkloadKind::BTree => Box::new(btree::Lookups::populate(spec.size, spec.pages)?),
        WorkloadKind::Memcached => Box::new(memcached::Memcached::populate(spec)?),
        WorkloadKind::OrdinaryMemcached => Box::new(memcached::ordinary::Ordinary::populate(spec)?),
        WorkloadKind::FaultLoop => Box::new(fault_loop::FaultLoop::populate(spec.size)?),
    };
    let populate = watch.stop(0, 0)?.wall;
    let pid = workload.pid();
    let (footprint, used_base_pages) = workload.memory();
    let Residency { resident, huge_pages } = Residency::of(pid)?;
    Ok((workload, Populated { pid, footprint, used_base_pages, resident, huge_pages, populate }))
}

/// This module's result.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The size does not leave room for the workload's shape.
    #[error("a footprint of {size} is too small: give at least {least}")]
    TooSmall {
        /// What was asked for.
        size: Bytes,
        /// What it takes at least.
        least: Bytes,
    },
    /// The kernel refused memory, or to say how much there is.
    #[error("could not {what} ({errno})")]
    Memory {
        /// What was tried.
        what: &'static str,
        /// What the kernel answered.
        errno: Errno,
    },
    /// A program is not installed.
    #[error(
        "{program} is not installed: install the Debian package {package} \
         (apt-get install {package})"
    )]
    MissingProgram {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A server did not start, or has gone.
    #[error("could not {what}: {detail}")]
    Server {
        /// What was tried.
        what: &'static str,
        /// What happened instead.
        detail: String,
    },
    /// A server answered something else than its protocol says.
    #[error("the server answered {found:?}, expected {expected}")]
    Protocol {
        /// What should have come.
        expected: &'static str,
        /// What came, shortened.
        found: String,
    },
    /// Data read is not the data written.
    #[error("the workload's data is wrong: {what}")]
    Corrupt {
        /// Which data.
        what: String,
    },
}
