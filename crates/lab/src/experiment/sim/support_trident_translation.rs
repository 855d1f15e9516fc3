//! Translation alone: a program's main part on memory that is all mapped by pages of one size, in a
//! guest or not. No machine is needed for that: nothing is allocated and nothing changes while it runs.

use super::support_hardware;
use super::{Constant, Constants, Error, Result};
use superpage_sim::random::Random;
use superpage_sim::run::Hardware;
use superpage_sim::translation::Translator;
use superpage_sim::workload::draw::Draw;
use superpage_sim::workload::{Phase, Stream, VmaShape, Workload};
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, PageSize, VirtAddr};

pub(super) static WARM_UP: Constant<u32> = Constant::immaterial(
    "trident.warm-up",
    300_000,
    "accesses before any is counted: as many as a run takes for a phase in which nothing changes, \
     three times over",
);
static COUNTED: Constant<u32> = Constant::immaterial(
    "trident.counted",
    300_000,
    "accesses that are counted: as many as a run takes for a phase in which nothing changes, three \
     times over",
);

/// Accesses of a program's main part.
#[derive(Debug)]
pub(super) struct Accesses {
    /// The start of each VMA.
    starts: Vec<VirtAddr>,
    /// Cumulated weights, with the drawing of each stream.
    streams: Vec<(f64, Draw)>,
    total: f64,
    random: Random,
}

/// The cost of an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Cycles that translation adds.
    pub(super) translation: f64,
    /// All cycles.
    pub(super) cycles: f64,
}

impl Cost {
    /// The share of cycles spent on translation.
    pub(super) fn share(self) -> f64 {
        self.translation / self.cycles
    }
}

impl Accesses {
    /// The accesses of the last phase of a workload, and the cycles of one without translation.
    pub(super) fn of(workload: &Workload, seed: u64) -> Result<(Self, f64)> {
        let Some(Phase::Access(access)) = workload.phases.last() else {
            return Err(Error::Simulation(format!("{} accesses nothing", workload.name)));
        };
        let shapes: Vec<VmaShape> = workload.phases.iter().filter_map(shape).collect();
        let starts = starts(&shapes);
        let mut total = 0.0;
        let stream = |stream: &Stream| {
            let start = starts.get(stream.part.vma).copied()?;
            let length = shapes.get(stream.part.vma)?.limit;
            let from = length.scaled(stream.part.from);
            let part = length.scaled(stream.part.to).saturating_sub(from);
            total += stream.weight;
            Some((total, Draw::new(start.offset(from), part, stream.pattern)))
        };
        let streams = access.streams.iter().filter_map(stream).collect();
        Ok((Self { starts, streams, total, random: Random::new(seed) }, access.cycles))
    }

    /// The start of each VMA.
    pub(super) fn starts(&self) -> &[VirtAddr] {
        &self.starts
    }

    /// The next access.
    pub(super) fn next(&mut self) -> VirtAddr {
        let share = self.random.share() * self.total;
        let at = self.streams.partition_point(|(until, _)| *until <= share);
        let last = self.streams.len().saturating_sub(1);
        let stream = self.streams.get_mut(at.min(last));
        stream.map_or(VirtAddr::default(), |(_, draw)| draw.next(&mut self.random))
    }
}

/// The VMA that a phase maps.
fn shape(phase: &Phase) -> Option<VmaShape> {
    if let Phase::Map(shape) = phase { Some(*shape) } else { None }
}

/// Where VMAs begin: one behind the other, each as far behind a 1 GiB border as it says.
fn starts(shapes: &[VmaShape]) -> Vec<VirtAddr> {
    let mut next = GIGANTIC_PAGE_BYTES;
    let start = |shape: &VmaShape| {
        let start = VirtAddr(next + shape.offset.0);
        let end = Bytes(shape.offset.0 + shape.limit.0.max(shape.size.0));
        next += (end.0 / GIGANTIC_PAGE_BYTES + 2) * GIGANTIC_PAGE_BYTES;
        start
    };
    shapes.iter().map(start).collect()
}

/// Translation hardware of Trident's machine.
pub(super) fn translator(hardware: &Hardware) -> Translator {
    Translator::new(&hardware.profile.geometry(), &hardware.profile.latencies())
}

/// The cost of an access in a guest that maps its memory by pages of size `guest`, on a host that maps the
/// guest's by pages of size `host`.
pub(super) fn nested(
    workload: &Workload,
    (guest, host): (PageSize, PageSize),
    seed: u64,
    constants: &Constants,
) -> Result<Cost> {
    let (mut accesses, own) = Accesses::of(workload, seed)?;
    let mut translator = translator(&support_hardware::of("trident")?);
    let mut access = |_| translator.translate(accesses.next(), guest, Some(host)).cycles.0 as f64;
    let (warm_up, counted) = (constants.get(&WARM_UP), constants.get(&COUNTED));
    let _warm: f64 = (0..warm_up).map(&mut access).sum();
    let translation = (0..counted).map(access).sum::<f64>() / f64::from(counted);
    Ok(Cost { translation, cycles: own + translation })
}

#[cfg(test)]
mod tests {
    use super::super::support_trident_programs::{Backed, Program};
    use super::*;
    use superpage_units::PageSize::{Base, Gigantic, Huge};

    /// Memory of the program by pages of this size.
    fn workload(size: PageSize) -> Workload {
        let hardware = support_hardware::of("trident").expect("built in");
        let frequency = hardware.profile.cpu.frequency.value;
        Program::Canneal.workload(Backed::SetAside(size), frequency, &Constants::default())
    }

    #[test]
    fn every_access_lies_in_a_vma() {
        let workload = workload(Huge);
        let sizes: Vec<u64> = workload.phases.iter().filter_map(shape).map(|s| s.limit.0).collect();
        let (mut accesses, _) = Accesses::of(&workload, 7).expect("it accesses memory");
        let mut counts = vec![0_u32; sizes.len()];
        for _ in 0..10_000 {
            let address = accesses.next();
            let inside = |(start, size): (&VirtAddr, &u64)| {
                address >= *start && address.since(*start).0 < *size
            };
            let at = accesses.starts().iter().zip(&sizes).position(inside);
            counts[at.expect("it lies in one")] += 1;
        }
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    }

    #[test]
    fn larger_pages_on_either_level_cost_less() {
        let cost = |guest, host| {
            let constants = Constants::default();
            nested(&workload(guest), (guest, host), 7, &constants).expect("it runs").cycles
        };
        assert!(cost(Base, Base) > cost(Base, Huge));
        assert!(cost(Base, Base) > cost(Huge, Base));
        assert!(cost(Huge, Huge) > cost(Gigantic, Gigantic));
    }
}
