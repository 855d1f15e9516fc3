//! The programs of the xHeap paper (section 3): XSBench, an SVM and dedup, as data, and the steps that
//! each makes.
//!
//! The paper names them and their inputs, and gives no footprint and no number of threads. What is known
//! of XSBench is from its public code (`GridInit.c`, `Materials.c`). Sizes, counts and shares are the caller's.
//!
//! Each makes its data first, which its authors' timers leave out, and then makes its steps.

use super::steps::{Steps, Touches};
use super::{Counting, Order, Part, Pattern, Phase, Populate, Spread, VmaShape, Workload};
use crate::machine::Content;
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// Cycles of a program's own for each base page that it fills with data. Assumed; not in the part that
/// is timed.
const FILL_CYCLES: f64 = 2_000.0;

fn populate(part: Part, threads: u32) -> Phase {
    Phase::Populate(Populate {
        part,
        order: Order::Sequential,
        density: 1.0,
        step: Bytes::ZERO,
        cycles_per_page: FILL_CYCLES,
        threads,
    })
}

/// A VMA of each size.
fn mapped(vmas: impl IntoIterator<Item = Bytes>) -> Vec<Phase> {
    vmas.into_iter().map(|size| Phase::Map(VmaShape::fixed(size))).collect()
}

/// As many whole base pages as it takes.
fn whole(size: u64) -> Bytes {
    Bytes(size.div_ceil(BASE_PAGE_BYTES) * BASE_PAGE_BYTES)
}

/// One read of a page that may have gone.
const READ: Touches = Touches {
    part: Part::whole(0),
    pattern: Pattern::Uniform,
    content: Content::Zeroes,
    per_step: 1.0,
    stands_for: 1.0,
    made: Counting::Each,
};

/// XSBench: looking up cross sections at random energies in a unionized grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct XsBench {
    /// Nuclides; 355 in all of its sizes but the smallest.
    pub nuclides: u64,
    /// Grid points for each nuclide.
    pub gridpoints: u64,
    /// Look-ups of all threads together.
    pub lookups: u64,
    /// Nuclides of a material, weighted with how often it is looked up.
    pub nuclides_a_lookup: f64,
    /// Probes of the binary search for an energy that go to pages of their own and not to a few hot ones.
    pub probes: f64,
    /// Threads.
    pub threads: u32,
    /// Cycles of a look-up, without those for translation.
    pub cycles: f64,
}

impl XsBench {
    /// Bytes of a grid point: six doubles.
    const POINT: u64 = 48;
    /// In how many pieces the index is made; in between, the nuclides' grids are read again, as they
    /// are all the time in the program.
    const PIECES: u32 = 8;

    /// The nuclides' grids, read once from end to end.
    fn read_grids(&self) -> Phase {
        let [grids, _, _] = self.vmas();
        Phase::Steps(Steps {
            count: grids.to_base_pages().0,
            cycles: FILL_CYCLES,
            exposed: 1.0,
            touches: vec![Touches { pattern: Pattern::Sequential, ..READ }],
        })
    }

    fn vmas(&self) -> [Bytes; 3] {
        let points = self.nuclides * self.gridpoints;
        [points * Self::POINT, points * 8, points * self.nuclides * 4].map(whole)
    }

    /// What it has in memory at most, where there is enough.
    #[must_use]
    pub fn footprint(&self) -> Bytes {
        self.vmas().into_iter().sum()
    }

    /// The program as a workload; the look-ups are its last phase.
    #[must_use]
    pub fn workload(&self) -> Workload {
        let mut phases = mapped(self.vmas());
        phases.extend([populate(Part::whole(0), 1), populate(Part::whole(1), 1)]);
        let share = |piece: u32| f64::from(piece) / f64::from(Self::PIECES);
        for piece in 0..Self::PIECES {
            phases.push(populate(Part { vma: 2, from: share(piece), to: share(piece + 1) }, 1));
            phases.push(self.read_grids());
        }
        // A row of the index is read from its first nuclide to its last.
        let row = (self.nuclides * 4) as f64;
        let touches = [(1, self.probes), (2, 1.0 + row / BASE_PAGE_BYTES as f64)];
        let touches = touches.into_iter().chain([(0, self.nuclides_a_lookup)]);
        phases.push(Phase::Steps(Steps {
            count: self.lookups,
            cycles: self.cycles,
            exposed: 1.0,
            touches: touches
                .map(|(vma, per_step)| Touches { part: Part::whole(vma), per_step, ..READ })
                .collect(),
        }));
        Workload { name: "XSBench".to_owned(), threads: self.threads, phases }
    }
}

/// A linear SVM (LIBLINEAR): passes over all instances; for each feature of one, its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Svm {
    /// Instances.
    pub instances: u64,
    /// Features of an instance that are not zero.
    pub nonzeros: u64,
    /// Features, each with a weight.
    pub features: u64,
    /// How skewed features are: the exponent of a power law.
    pub skew: f64,
    /// Passes that are timed, after one that is not.
    pub passes: u64,
    /// Threads.
    pub threads: u32,
    /// Cycles for a base page of instances, without those for translation.
    pub cycles: f64,
}

impl Svm {
    /// Bytes of a feature of an instance: its number and its value. One more ends an instance.
    const NODE: u64 = 16;
    /// Of the features of a page, those that are simulated, one for so many.
    const ONE_IN: f64 = 8.0;

    fn vmas(&self) -> [Bytes; 2] {
        let nodes = self.instances * (self.nonzeros + 1);
        [nodes * Self::NODE, self.features * 8].map(whole)
    }

    /// What it has in memory at most, where there is enough.
    #[must_use]
    pub fn footprint(&self) -> Bytes {
        self.vmas().into_iter().sum()
    }

    /// The program as a workload; the timed passes are its last phase.
    #[must_use]
    pub fn workload(&self) -> Workload {
        let mut phases = mapped(self.vmas());
        phases.extend([populate(Part::whole(0), 1), populate(Part::whole(1), 1)]);
        let in_page = (BASE_PAGE_BYTES / Self::NODE) as f64;
        let features = in_page * self.nonzeros as f64 / (self.nonzeros + 1) as f64;
        let weights = Touches {
            part: Part::whole(1),
            pattern: Pattern::PowerLaw { theta: self.skew, spread: Spread::Scattered },
            per_step: features / Self::ONE_IN,
            stands_for: Self::ONE_IN,
            made: Counting::Sampled,
            ..READ
        };
        let data = Touches { pattern: Pattern::Sequential, ..READ };
        let pass = Steps {
            count: self.vmas()[0].to_base_pages().0,
            cycles: self.cycles,
            exposed: 1.0,
            touches: vec![data, weights],
        };
        let timed = Steps { count: pass.count * self.passes, ..pass.clone() };
        phases.extend([Phase::Steps(pass), Phase::Steps(timed)]);
        Workload { name: "SVM".to_owned(), threads: self.threads, phases }
    }
}

/// dedup (PARSEC): its input, which is all in memory, is cut into chunks; each is looked up in a table,
/// and compressed if it is new. What comes of it stays in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dedup {
    /// The input.
    pub input: Bytes,
    /// What is kept of it, compressed, as a share of it.
    pub kept: f64,
    /// The table of chunks.
    pub table: Bytes,
    /// Pages of the table that are touched for a base page of input: for each chunk that begins in it a bucket and an entry.
    pub lookups: f64,
    /// Accesses to what a thread compresses with, for each byte of input, that miss a cache: the hash table, the chain, the window.
    pub accesses: f64,
    /// Threads.
    pub threads: u32,
    /// Cycles for a base page of input, without those for translation.
    pub cycles: f64,
}

impl Dedup {
    /// What a thread compresses with: zlib's window of 64 KiB and three tables (its manual: 256 KiB
    /// together).
    const DEFLATE: Bytes = Bytes::from_kib(256);
    /// Of the accesses to it, those that are simulated, one for so many.
    const ONE_IN: f64 = 32.0;

    fn vmas(&self) -> [Bytes; 4] {
        let deflate = Self::DEFLATE * u64::from(self.threads);
        [self.input, self.table, deflate, self.input.scaled(self.kept)].map(|size| whole(size.0))
    }

    /// What it has in memory at most, where there is enough.
    #[must_use]
    pub fn footprint(&self) -> Bytes {
        self.vmas().into_iter().sum()
    }

    /// The program as a workload; all but reading the input is its last phase.
    #[must_use]
    pub fn workload(&self) -> Workload {
        let mut phases = mapped(self.vmas());
        phases.extend([2, 1, 0].map(|vma| populate(Part::whole(vma), self.threads)));
        let input = Touches { pattern: Pattern::Sequential, ..READ };
        let table = Touches {
            part: Part::whole(1),
            content: Content::Data,
            per_step: self.lookups,
            ..READ
        };
        // Each thread has its own; the first one's is simulated.
        let deflate = Touches {
            part: Part { vma: 2, from: 0.0, to: 1.0 / f64::from(self.threads.max(1)) },
            per_step: BASE_PAGE_BYTES as f64 * self.accesses / Self::ONE_IN,
            stands_for: Self::ONE_IN,
            made: Counting::Sampled,
            ..READ
        };
        let output = Touches {
            part: Part::whole(3),
            pattern: Pattern::Sequential,
            content: Content::Data,
            per_step: self.kept,
            ..READ
        };
        phases.push(Phase::Steps(Steps {
            count: self.input.to_base_pages().0,
            cycles: self.cycles,
            exposed: 1.0,
            touches: vec![input, table, deflate, output],
        }));
        Workload { name: "dedup".to_owned(), threads: self.threads, phases }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(workload: &Workload) -> &Steps {
        match workload.phases.last() {
            Some(Phase::Steps(steps)) => steps,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn xsbench_is_as_large_as_its_readme_says() {
        let sizes = [(11_303, 5.6), (238_847, 120.0)];
        for (gridpoints, gigabytes) in sizes {
            let program = XsBench {
                nuclides: 355,
                gridpoints,
                lookups: 1,
                nuclides_a_lookup: 55.7,
                probes: 4.0,
                threads: 1,
                cycles: 1.0,
            };
            let share = program.footprint().0 as f64 / (gigabytes * 1e9);
            assert!((0.95..1.1).contains(&share), "{gridpoints}: {share}");
        }
    }

    #[test]
    fn an_svm_goes_over_all_its_instances_in_each_pass() {
        let svm = Svm {
            instances: 100_000,
            nonzeros: 11,
            features: 50_000,
            skew: 0.8,
            passes: 3,
            threads: 4,
            cycles: 1.0,
        };
        assert_eq!(
            steps(&svm.workload()).count,
            3 * (100_000 * 12 * 16_u64).div_ceil(BASE_PAGE_BYTES)
        );
    }

    #[test]
    fn dedup_keeps_what_it_says() {
        let input = Bytes::from_mib(64);
        let table = Bytes::from_mib(4);
        let (lookups, accesses) = (2.0, 2.0);
        let dedup = Dedup { input, kept: 0.25, table, lookups, accesses, threads: 4, cycles: 1.0 };
        assert_eq!(dedup.footprint(), Bytes::from_mib(64 + 16 + 4 + 1));
        let steps = steps(&dedup.workload()).clone();
        let written = steps.touches.iter().filter(|t| t.content == Content::Data);
        let pages: f64 = written.map(|t| t.per_step).sum::<f64>() * steps.count as f64;
        assert_eq!(pages, (0.25 + 2.0) * input.to_base_pages().0 as f64);
    }
}
