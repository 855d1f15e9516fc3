//! `superpage lab calibrate`: measures this machine, for a profile that the simulator can take.
//!
//! Only memory of our own is used, half a gigabyte at a time, and nothing is printed. In a virtual
//! machine all times are the guest's: page walks include the host's, and the frequency is what the
//! hypervisor says.

mod chase;
mod cpuid;
mod draft;
mod pages;

use crate::workload::rng::Rng;
use chase::Places;
use cpuid::Caches;
use pages::Pages;
use std::path::Path;
use superpage_kernel::cpuinfo::{self, Cpuinfo};
use superpage_kernel::own_memory::Wish;
use superpage_kernel::{Result, meminfo};
use superpage_sim::profile::Profile;
use superpage_sim::translation::{TlbGeometry, Translator};
use superpage_sim::units::BytesPerSecond;
use superpage_units::{Bytes, HugePages, PageSize, VirtAddr};

/// Memory that random loads go to. Chosen: on base pages, more than a second-level TLB covers.
const FOOTPRINT: Bytes = HugePages(256).bytes();
/// From one place of those loads to the next: lines enough that no cache holds them.
const STEP: Bytes = Bytes(256);
/// Pages that stay within a second-level TLB but not within a first, where sizes are not known.
/// Chosen: between those of all processors of the papers.
const PAGES_IN_TLB: u64 = 256;
/// Loads of the model when it says what the same walks should cost.
const MODEL_LOADS: u64 = 200_000;

/// A new profile, and what it was made from.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The profile.
    pub profile: Profile,
    /// What was measured.
    pub rows: Vec<Row>,
}

/// Something that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What.
    pub what: &'static str,
    /// How much.
    pub figure: Figure,
}

/// How much of something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// A time in nanoseconds; those of single loads have fractions.
    Nanos(f64),
    /// A rate.
    Rate(BytesPerSecond),
    /// A size.
    Size(Bytes),
    /// The shape of a TLB.
    Tlb(TlbGeometry),
}

/// What was measured, before anything is made of it.
#[derive(Clone, Debug)]
struct Measured {
    cpu: Cpuinfo,
    caches: Caches,
    memory: Bytes,
    pages: Pages,
    loads: Loads,
}

/// Nanoseconds of a load that waits for the one before.
#[derive(Clone, Copy, Debug)]
struct Loads {
    /// From the second-level data cache.
    near: Option<f64>,
    /// From the last-level data cache.
    far: Option<f64>,
    /// What missing the first-level TLB and hitting the second adds.
    second_level_hit: f64,
    /// From memory, on huge pages.
    huge: f64,
    /// From memory, on base pages.
    base: f64,
}

/// Measures this machine; what cannot be measured is taken from `rest`. `None` if the kernel gives
/// us no huge pages. `progress` hears what is being done.
///
/// # Errors
/// What the kernel refuses.
pub fn calibrate(rest: &Profile, progress: &mut dyn FnMut(&str)) -> Result<Option<Calibration>> {
    let proc = Path::new("/proc");
    let (cpu, memory) = (cpuinfo::read(proc)?, meminfo::read(proc)?.total);
    let caches = cpuid::caches();
    progress("faulting, splitting and rebuilding pages");
    let Some(pages) = Pages::measure()? else { return Ok(None) };
    let loads = Loads::measure(caches, progress)?;
    let measured = Measured { cpu, caches, memory, pages, loads };
    let profile = measured.draft(rest);
    progress("comparing page walks with the model's");
    let rows = measured.rows(&profile);
    Ok(Some(Calibration { profile, rows }))
}

impl Loads {
    fn measure(caches: Caches, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        progress("loading from caches");
        let lines = |size: u64| Places::lines(Bytes(size), Wish::HugePages).latency();
        // A half and a quarter: what fits with room to spare, but not into the level before.
        let near = caches.second_level_bytes.map(|size| lines(size / 2)).transpose()?;
        let far = caches.third_level_bytes.map(|size| lines(size / 4)).transpose()?;
        progress("loading from memory");
        let places = |pages| Places { pages, count: FOOTPRINT.0 / STEP.0, step: STEP };
        Ok(Self {
            near,
            far,
            second_level_hit: second_level_hit(caches)?,
            huge: places(Wish::HugePages).latency()?,
            base: places(Wish::BasePages).latency()?,
        })
    }

    /// What base pages add to a load from memory: the walks that huge pages do without.
    fn walk(&self) -> f64 {
        (self.base - self.huge).max(0.0)
    }
}

/// What it adds to a load that its page is in the second-level TLB and not in the first: the same
/// lines, on base pages and on huge pages.
fn second_level_hit(caches: Caches) -> Result<f64> {
    let half = |tlb: cpuid::Ways| u64::from(tlb.entries / 2);
    let count = caches.second_base.map_or(PAGES_IN_TLB, half);
    let on = |pages| Places::base_pages(count, pages).latency();
    Ok((on(Wish::BasePages)? - on(Wish::HugePages)?).max(0.0))
}

impl Measured {
    /// What is worth showing.
    fn rows(&self, profile: &Profile) -> Vec<Row> {
        let (pages, loads) = (&self.pages, &self.loads);
        let model = predicted_walk(profile);
        let rebuilding = pages.rebuilding.iter().flat_map(|times| {
            [
                ("MADV_COLLAPSE of 512 base pages", times.collapse_full),
                ("MADV_COLLAPSE of one base page", times.collapse_single),
                ("split of a huge page in use", times.split_full),
                ("split that frees 511 base pages", times.split_freeing),
            ]
        });
        let times = [
            ("fault, base page", Some(pages.base_fault)),
            ("fault, huge page", Some(pages.huge_fault)),
            ("load, second-level cache", loads.near),
            ("load, last-level cache", loads.far),
            ("load, memory on huge pages", Some(loads.huge)),
            ("load, memory on base pages", Some(loads.base)),
            ("page walk of such a load", Some(loads.walk())),
            ("the same by the new profile", Some(model)),
            ("hit in the second-level TLB", Some(loads.second_level_hit)),
            ("looking at a base page", pages.scan_page),
        ];
        let times = times.into_iter().filter_map(|(what, time)| Some((what, time?)));
        let times = times.chain(rebuilding).map(|(what, time)| (what, Figure::Nanos(time)));
        let memory = &profile.memory;
        let rates = [
            ("zeroing, in a fault", Some(memory.zeroing.value)),
            ("copying, in MADV_COLLAPSE", pages.rebuilding.map(|_| memory.copying.value)),
            ("copying, in a program", Some(draft::page_rate(pages.copy_page))),
        ];
        let rates = rates.into_iter().filter_map(|(what, rate)| Some((what, Figure::Rate(rate?))));
        let size = [("memory", Figure::Size(self.memory))];
        let tlbs = draft::tlbs(self.caches).map(|(what, tlb)| (what, Figure::Tlb(tlb)));
        let all = times.chain(rates).chain(size).chain(tlbs);
        all.map(|(what, figure)| Row { what, figure }).collect()
    }
}

/// What the model says that base pages add to loads from the same memory, in nanoseconds.
fn predicted_walk(profile: &Profile) -> f64 {
    let cost = |size| {
        let mut translator = Translator::new(&profile.geometry(), &profile.latencies());
        let mut rng = Rng::new(1);
        let mut load = |_| translator.access(VirtAddr(rng.below(FOOTPRINT.0)), size).0;
        // What is cached at first is not what is cached later.
        (0..MODEL_LOADS).for_each(|i| _ = load(i));
        (0..MODEL_LOADS).map(load).sum::<u64>() as f64
    };
    let cycles = (cost(PageSize::Base) - cost(PageSize::Huge)).max(0.0) / MODEL_LOADS as f64;
    cycles * 1e9 / profile.cpu.frequency.value.0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::Nanos;

    #[test]
    fn this_machine_gives_a_profile_that_can_be_read() {
        let rest = Profile::named("trident").expect("built in");
        let mut heard = 0;
        let found = calibrate(&rest, &mut |_| heard += 1).expect("our own memory");
        let Some(Calibration { profile, rows }) = found else { return };
        assert_eq!(Profile::from_toml(&profile.to_toml()).as_ref(), Ok(&profile));
        assert!(heard > 2 && rows.len() > 10, "{rows:?}");
        assert!(profile.fault.base.value > Nanos::ZERO, "{rows:?}");
        assert!(profile.memory.zeroing.value > BytesPerSecond(1), "{rows:?}");
    }
}
