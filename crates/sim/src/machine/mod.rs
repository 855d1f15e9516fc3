//! The simulated machine: a [`superpage_policy::promotion::Machine`] that counts what it does. Faults and
//! time are taken to its policy by [`superpage_policy::promotion::drive`].
//!
//! | file | what |
//! |---|---|
//! | `access` | what accesses leave behind: access bits, coverage |
//! | `fault` | serving a fault, and finding memory for it |
//! | `fill` | what a new page is filled with |
//! | `fork` | fork with copy-on-write |
//! | `reclaim` | what is kept free: watermarks and kswapd |
//! | `share` | frames that several processes map after a fork |
//! | `act` | carrying out background and pressure actions |
//! | `device` | the queue of the device that pages go to |
//! | `hold` | a program that holds a little of every huge frame: Quicksilver's Frag-X |
//! | `lazy` | huge pages given back in part, which are split when memory is short |
//! | `debloat` | reclaiming bloat by one of [`superpage_policy::debloat`]'s policies |
//! | `view` | what a policy sees of it |
//! | `work` | work counted, so that it can be priced |
//!
//! Time does not pass in here: whoever asks for something says when, by [`Machine::at`].

mod access;
mod act;
mod debloat;
mod device;
mod fault;
mod fill;
mod fork;
mod hold;
mod lazy;
mod reclaim;
mod share;
mod view;
pub mod work;

use crate::physical::{Frame, Owner, Physical, Taken};
use crate::random::Random;
use crate::virtual_memory::{Process, Processes};
use std::collections::{BTreeSet, VecDeque};
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::{Policy, Pool};
use superpage_units::{
    BasePages, Bytes, Mapping, PageSize, PmdRange, ProcessKey, Time, VirtAddr, Vma,
};
use work::Work;

pub use act::{Stepped, Worked};
pub use debloat::Pass;
pub use fault::{Content, Served};

/// How much happened, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults by the size of the page that served them.
    pub faults: [u64; 3],
    /// Attempts to map a superpage at a fault, by size.
    pub fault_attempts: [u64; 3],
    /// Of those, attempts for which no contiguous memory could be had.
    pub fault_failures: [u64; 3],
    /// Attempts to promote, by the size promoted to.
    pub promotion_attempts: [u64; 3],
    /// Of those, attempts for which no contiguous memory could be had.
    pub promotion_failures: [u64; 3],
    /// Promotions, by the size promoted to.
    pub promotions: [u64; 3],
    /// Reservations made by faults.
    pub reservations: u64,
    /// Superpages split to take their bloat back.
    pub split: u64,
    /// Base pages freed by that.
    pub freed: BasePages,
    /// Actions that came too late.
    pub stale: u64,
    /// Processes forked.
    pub forks: u64,
    /// Base pages copied because one of those that shared them wrote to them.
    pub copied_on_write: BasePages,
}

/// Memory was short and nothing more could be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulated machine is out of memory: give it more, or a place to swap to")]
pub struct OutOfMemory {
    /// Who needed it.
    pub process: ProcessKey,
}

/// How a machine is made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its memory.
    pub memory: Bytes,
    /// Base and huge pages set aside for xHeap's pools; nothing else is used then.
    pub pools: Option<[u64; 2]>,
    /// Whether pages can be written to a device to make room.
    pub backing: Backing,
    /// The seed of all chance.
    pub seed: u64,
}

/// Where pages can go that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nowhere.
    None,
    /// To swap: a page is read only if it was written there.
    Swap,
    /// To the file that is mapped: every page is read when it is first touched.
    File,
}

/// Whether the policy sees which memory is accessed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accesses {
    /// The policy sees it, as a kernel does.
    Seen,
    /// The policy does not see it, as from outside of a process.
    Unseen,
}

/// A machine.
#[derive(Debug)]
pub struct Machine {
    /// When it does what it is asked for now.
    now: Time,
    pub(crate) physical: Physical,
    watermarks: reclaim::Watermarks,
    pub(crate) processes: Processes,
    policy: Option<Box<dyn Policy>>,
    /// The work since [`Machine::take_work`] was asked last.
    work: Work,
    /// kswapd's work since [`Machine::take_reclaimed`] was called last.
    reclaimed: Work,
    accesses: Accesses,
    pools: Option<[Pool; 2]>,
    backing: Backing,
    /// How many neighbours a fault reads from swap at once; see [`Machine::set_read_ahead`].
    read_ahead: u16,
    /// The queue of the device that pages go to.
    device: device::Queue,
    /// Pages evicted so far.
    evicted: u64,
    pub(crate) random: Random,
    counts: Counts,
    /// Huge pages that a program has given back in part, to be split when memory is short.
    partly_unmapped: VecDeque<(ProcessKey, PmdRange)>,
    /// The ranges that were split to reclaim bloat, if they are not to be promoted again with more
    /// base pages missing than so many.
    split: BTreeSet<(ProcessKey, PmdRange)>,
    may_miss: Option<BasePages>,
}

impl Machine {
    /// A machine with nothing running.
    #[must_use]
    pub fn new(setup: Setup, policy: Box<dyn Policy>) -> Self {
        Self {
            now: Time::ZERO,
            physical: Physical::new(setup.memory),
            watermarks: reclaim::Watermarks::of(setup.memory),
            processes: Processes::default(),
            policy: Some(policy),
            work: Work::default(),
            reclaimed: Work::default(),
            accesses: Accesses::Seen,
            pools: setup.pools.map(|sizes| sizes.map(|size| Pool { free: size, size })),
            backing: setup.backing,
            read_ahead: 1,
            device: device::Queue::default(),
            evicted: 0,
            random: Random::new(setup.seed),
            counts: Counts::default(),
            partly_unmapped: VecDeque::new(),
            split: BTreeSet::new(),
            may_miss: None,
        }
    }

    /// The machine at this time, from now on. Programs and who works beside them have clocks of their
    /// own, so one may ask for an earlier time than the last did.
    pub fn at(&mut self, time: Time) -> &mut Self {
        self.now = time;
        self
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Its physical memory.
    #[must_use]
    pub fn physical(&self) -> &Physical {
        &self.physical
    }

    /// Its physical memory and its chance, to fragment it before anything runs.
    pub fn prepare(&mut self, prepare: impl FnOnce(&mut Physical, &mut Random)) {
        let mut random = self.random.fork();
        prepare(&mut self.physical, &mut random);
    }

    /// Its processes.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// One of its processes.
    #[must_use]
    pub fn process(&self, key: ProcessKey) -> Option<&Process> {
        self.processes.get(key)
    }

    /// Free memory by contiguity.
    #[must_use]
    pub fn free_memory(&self) -> &FreeMemory {
        self.physical.free_memory()
    }

    /// Memory in use by programs: not free, and no file page.
    #[must_use]
    pub fn used(&self) -> BasePages {
        self.physical.total() - self.free_memory().free() - self.physical.page_cache()
    }

    /// Of that, frames that are reserved for huge pages and not populated: they are given back when
    /// memory is short. Takes a walk over all page tables.
    #[must_use]
    pub fn reserved(&self) -> BasePages {
        self.processes.iter().map(Process::unpopulated).sum()
    }

    /// Starts a process.
    pub fn spawn(&mut self) -> ProcessKey {
        self.processes.spawn()
    }

    /// Gives a process a VMA.
    pub fn map(&mut self, process: ProcessKey, vma: Vma) {
        if let Some(process) = self.processes.get_mut(process) {
            process.add_vma(vma);
        }
    }

    /// Moves the end of the VMA that starts at `start`. What was mapped beyond a lower end is
    /// discarded.
    pub fn resize(&mut self, process: ProcessKey, start: VirtAddr, end: VirtAddr) -> Work {
        let old = self
            .processes
            .get_mut(process)
            .and_then(|p| p.vma_mut(start))
            .map(|vma| std::mem::replace(&mut vma.end, end));
        match old {
            Some(old) if old > end => self.discard(process, end, old),
            _ => Work::default(),
        }
    }

    /// Gives a process these VMAs (in address order) in place of those that it has. What lies in
    /// none of them is discarded.
    pub fn lay_out(&mut self, process: ProcessKey, vmas: Vec<Vma>) -> Work {
        let Some(target) = self.processes.get_mut(process) else { return Work::default() };
        let gone: Vec<_> = target.vmas().iter().flat_map(|old| uncovered(old, &vmas)).collect();
        target.set_vmas(vmas);
        let mut work = Work::default();
        for (start, end) in gone {
            work += self.discard(process, start, end);
        }
        work
    }

    /// Says how many base pages a fault reads from swap at most, itself included; 1 unless set.
    ///
    /// Linux reads up to `1 << page-cluster`, 8 by default, as long as what was read ahead gets used
    /// (`swap_vma_readahead()` in mm/swap_state.c). Here it reads so many, within a range, if the
    /// page before the faulting one is mapped, else one; and those read ahead are mapped with it,
    /// each at the price of a fault, where the kernel takes one for each later.
    pub fn set_read_ahead(&mut self, pages: u16) {
        self.read_ahead = pages.max(1);
    }

    /// Says whether the policy sees accesses; it does unless this is set.
    pub fn set_accesses(&mut self, accesses: Accesses) {
        self.accesses = accesses;
    }

    /// Says how many threads a process has, each of which may hold its translations.
    pub fn set_threads(&mut self, key: ProcessKey, threads: u32) {
        if let Some(process) = self.processes.get_mut(key) {
            process.threads = threads;
        }
    }

    fn threads(&self, key: ProcessKey) -> u64 {
        self.processes.get(key).map_or(0, |process| u64::from(process.threads))
    }

    /// Runs a function with the policy taken out, so that both can be changed.
    fn with_policy<T>(&mut self, run: impl FnOnce(&mut Self, &mut dyn Policy) -> T) -> Option<T> {
        let mut policy = self.policy.take()?;
        let result = run(self, policy.as_mut());
        self.policy = Some(policy);
        Some(result)
    }

    /// The work since this was asked last.
    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    /// The policy that manages it.
    #[must_use]
    pub fn policy(&self) -> Option<&dyn Policy> {
        self.policy.as_deref()
    }

    /// Puts another policy in charge, as writing to a kernel's settings does. What the old one
    /// mapped stays.
    pub fn change_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = Some(policy);
    }

    /// Takes a page; from the pool of its size if there are pools.
    fn take(&mut self, size: PageSize, owner: Owner) -> Option<Taken> {
        if let Some(pools) = &mut self.pools {
            let pool = pools.get_mut(size.index()).filter(|pool| pool.free > 0)?;
            pool.free -= 1;
        }
        self.physical.take(size, owner)
    }

    fn give(&mut self, frame: Frame, size: PageSize) {
        if let Some(pool) = self.pools.as_mut().and_then(|pools| pools.get_mut(size.index())) {
            pool.free += 1;
        }
        self.physical.give(frame, size);
    }

    /// Asserts that no frame is lost, or mapped twice but by those that share it after a fork, and
    /// that every count is right.
    ///
    /// # Panics
    /// If something is wrong. Slow: for tests.
    pub fn check(&self) {
        self.physical.check();
        self.check_owners();
    }

    /// Ends a process and frees its memory.
    pub fn exit(&mut self, key: ProcessKey) -> Work {
        let ranges: Vec<(VirtAddr, VirtAddr)> = self
            .processes
            .get(key)
            .map(|process| process.vmas().iter().map(|vma| (vma.start, vma.end)).collect())
            .unwrap_or_default();
        let mut work = Work::default();
        for (start, end) in ranges {
            work += self.discard(key, start, end);
        }
        self.split.retain(|(owner, _)| *owner != key);
        if let Some(process) = self.processes.remove(key) {
            debug_assert!(process.frames().next().is_none(), "VMAs hold all memory");
        }
        work
    }

    /// Memory that a process has in memory, by its page tables (its resident set).
    #[must_use]
    pub fn resident(&self, key: ProcessKey) -> BasePages {
        self.processes.get(key).map(|p| p.footprint().total()).unwrap_or_default()
    }

    /// Whether a base page of a process holds data, in memory or in the backing store.
    #[must_use]
    pub fn holds_data(&self, key: ProcessKey, address: VirtAddr) -> bool {
        let range = PmdRange::containing(address);
        let page = crate::virtual_memory::page_index(address);
        self.processes.get(key).and_then(|process| process.slot(range)).is_some_and(|slot| {
            let is_swapped = slot.detail.as_ref().is_some_and(|d| d.swapped.contains(page));
            is_swapped || (slot.is_present(page) && slot.used().contains(page))
        })
    }

    /// Base pages that hold only zeroes in the huge pages of a process.
    #[must_use]
    pub fn bloat(&self, key: ProcessKey) -> BasePages {
        let Some(process) = self.processes.get(key) else { return BasePages::ZERO };
        process
            .mapped_slots(VirtAddr::default())
            .filter(|(_, slot)| matches!(slot.mapping, Mapping::Huge | Mapping::Gigantic))
            .map(|(_, slot)| slot.bloat().base_pages())
            .sum()
    }
}

/// The ranges of a VMA that lie in none of `vmas`, which are in address order.
fn uncovered(old: &Vma, vmas: &[Vma]) -> Vec<(VirtAddr, VirtAddr)> {
    let mut ranges = Vec::new();
    let mut at = old.start;
    let first = vmas.partition_point(|vma| vma.end <= old.start);
    for vma in vmas.iter().skip(first).take_while(|vma| vma.start < old.end) {
        if at < vma.start {
            ranges.push((at, vma.start));
        }
        at = at.max(vma.end);
    }
    if at < old.end {
        ranges.push((at, old.end));
    }
    ranges
}
