//! Runs of the graph paper's programs on its machine: how much memory is left and how fragmented it
//! is, which pages a program gets, and what came of it. Several figures look at the same runs, so
//! each is made once.
//!
//! # Memory
//!
//! The paper binds memory to one of two sockets of 64 GB; its scripts count 64,000 MB (run_frag.sh).
//! `memhog` takes what is to be gone, in huge frames first. Then one unmovable page goes into each
//! of as many whole huge frames as make up the share of what is left (section 4.4.1).
//!
//! Memory that nobody fragmented is fragmented too: "at least 2.5 GB" beyond a program's own must be
//! free before huge pages work as without pressure, and with 2 GB they do not (section 4.3.1). So
//! between 2 and 2.5 GB of what `memhog` leaves cannot be made into huge pages: 2.25 GB are taken,
//! as single unmovable pages at random places, which huge frames for `memhog` pass by.
//!
//! # Pages
//!
//! Linux maps huge pages everywhere and runs khugepaged. Faults compact only where a program asks
//! (the kernel's default): all that fragments memory here is unmovable, so compaction could only
//! make loading slower, which is not in the times.

use super::support_graph_constants::{
    DEFICIT, MEMHOG, NATURAL, NODE, SELECTIVE_FIRST, SPARE, TIGHT,
};
use super::support_graph_programs::{Array, Files, First, Numbering, Program, Setup};
use super::support_hardware;
use super::support_parallel::{self, Known};
use super::{Constants, Error, Given, Progress, Rests, Result, Setting, policy_named};
use superpage_policy::promotion::View;
use superpage_policy::promotion::selective::{self, Selective};
use superpage_sim::machine::{self, Backing, Machine};
use superpage_sim::physical::Physical;
use superpage_sim::random::Random;
use superpage_sim::run::Run;
use superpage_sim::workload::Phase;
use superpage_units::{Bytes, HUGE_PAGE_BYTES, Mapping, PmdRange, ProcessKey, Share};

/// Linux with huge pages everywhere; the policy, and what tables call it.
pub(super) const LINUX: &str = "linux-defrag-madvise";

/// The memory that a program finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Memory {
    /// The whole socket.
    Ample,
    /// 3 GB to spare, and this share (per cent) of what is left fragmented.
    Fragmented(u32),
    /// 0.5 GB to spare: what Figure 7 has.
    Tight,
    /// None beyond its own.
    Own,
    /// 0.5 GB less than its own.
    Short,
}

impl Memory {
    /// The free memory for a program that takes `footprint`; `None`: all of the socket's.
    fn left(self, footprint: Bytes, constants: &Constants) -> Option<Bytes> {
        Some(match self {
            Self::Ample => return None,
            Self::Fragmented(_) => footprint + constants.get(&SPARE),
            Self::Tight => footprint + constants.get(&TIGHT),
            Self::Own => footprint,
            Self::Short => footprint.saturating_sub(constants.get(&DEFICIT)),
        })
    }

    fn prepare(
        self,
        (physical, random): (&mut Physical, &mut Random),
        footprint: Bytes,
        constants: &Constants,
    ) {
        physical.scatter_unmovable(constants.get(&NATURAL), random);
        let Some(left) = self.left(footprint, constants) else { return };
        let fragmented = if let Self::Fragmented(per_cent) = self { per_cent } else { 0 };
        constants.get(&MEMHOG);
        physical.hog(physical.free_memory().free().bytes().saturating_sub(left));
        let wanted = left.scaled(f64::from(fragmented) / 100.0).to_huge_pages().0 as f64;
        let whole = physical.free_memory().huge_pages().0.max(1) as f64;
        physical.pin_blocks(Share::clamped(wanted / whole));
    }
}

/// Which pages a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pages {
    /// Base pages.
    Base,
    /// Huge pages wherever Linux has them.
    Linux,
    /// Huge pages where they are asked for: one array.
    Advised(Array),
    /// Huge pages for this share (per cent) of the property array.
    Selective(u32),
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) program: Program,
    pub(super) memory: Memory,
    pub(super) pages: Pages,
    pub(super) first: First,
    pub(super) numbering: Numbering,
    pub(super) files: Files,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Seconds that the program took once its graph was loaded.
    pub(super) seconds: f64,
    /// The share of its accesses that the first level of the TLBs did not know, and that took a
    /// page walk.
    pub(super) miss_rate: f64,
    pub(super) walk_rate: f64,
    /// The share of all its memory that huge pages map.
    pub(super) huge: f64,
    /// The share of its property array that they map.
    pub(super) huge_property: f64,
    /// The constants behind this outcome.
    pub(super) rests: Rests,
}

impl support_parallel::Outcome for Outcome {
    fn rests(&self) -> &Rests {
        &self.rests
    }
}

impl Case {
    /// With all of a socket, loaded and numbered as it comes.
    pub(super) const fn plain(program: Program, pages: Pages) -> Self {
        let (first, numbering) = (First::Graph, Numbering::Natural);
        Self { program, memory: Memory::Ample, pages, first, numbering, files: Files::Elsewhere }
    }

    pub(super) const fn on(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    pub(super) const fn property_first(self) -> Self {
        Self { first: First::Property, ..self }
    }

    /// The case with the files of the graph in the page cache of the same memory.
    pub(super) const fn through_page_cache(self) -> Self {
        Self { files: Files::PageCache, ..self }
    }

    pub(super) const fn grouped(self) -> Self {
        Self { numbering: Numbering::Grouped, ..self }
    }

    /// What it is, in a few words.
    fn name(self) -> String {
        format!("{}: {:?}", self.program.name(), self.pages)
    }

    /// Its outcome, from an earlier run if there was one: the outcome follows from the case and what is given.
    pub(super) fn outcome(self, setting: &Setting) -> Result<Outcome> {
        static KNOWN: Known<(Case, Given), Outcome> = Known::new();
        KNOWN.outcome(self, setting, |setting| self.simulate(setting))
    }

    fn simulate(self, setting: &Setting) -> Result<Outcome> {
        let constants = Constants::of(setting);
        let name = match self.pages {
            Pages::Base | Pages::Selective(_) => "linux-4k",
            Pages::Linux => LINUX,
            Pages::Advised(_) => "linux-madvise",
        };
        let found = (self.program, self.memory);
        let mut run = empty(found, Backing::None, name, (setting, &constants))?;
        let advised = match self.pages {
            Pages::Advised(array) => Some(array),
            Pages::Base | Pages::Linux | Pages::Selective(_) => None,
        };
        let Self { first, numbering, files, .. } = self;
        let setup = Setup { first, advised, numbering, files };
        let workload = self.program.workload(setup, &constants);
        let maps = workload.phases.iter().filter(|phase| matches!(phase, Phase::Map(_))).count();
        let phases = workload.phases.len();
        let key = run.start(workload);
        run.until_left(phases - maps)?;
        if let Pages::Selective(per_cent) = self.pages {
            constants.get(&SELECTIVE_FIRST);
            let range = self.property(run.machine(), key, &constants)?;
            let share = Share::clamped(f64::from(per_cent) / 100.0);
            let options = selective::Options { ranges: vec![range], share, ..Default::default() };
            run.machine_mut().change_policy(Box::new(Selective::new(options)));
        }
        run.to_end()?;
        self.outcome_of(&run, key, &constants)
    }

    /// Where its property array lies.
    fn property(
        self,
        machine: &Machine,
        process: ProcessKey,
        constants: &Constants,
    ) -> Result<selective::Range> {
        let at = self.program.index(Array::Property, constants);
        let vma = at.and_then(|at| machine.vmas(process).get(at).copied());
        vma.map(|vma| selective::Range { process, start: vma.start, end: vma.end })
            .ok_or_else(|| Error::Simulation(format!("{} has no memory", self.program.name())))
    }

    fn outcome_of(self, run: &Run, key: ProcessKey, constants: &Constants) -> Result<Outcome> {
        let gone = || Error::Simulation(format!("{} is gone", self.program.name()));
        let report = run.report(key).ok_or_else(gone)?;
        let machine = run.machine();
        let footprint = machine.footprint(key);
        let range = self.property(machine, key, constants)?;
        let ranges = range.end.since(range.start).0.div_ceil(HUGE_PAGE_BYTES);
        let range = |at| PmdRange::containing(range.start.offset(Bytes(at * HUGE_PAGE_BYTES)));
        let is_huge = |at: &u64| machine.range(key, range(*at)).mapping == Mapping::Huge;
        Ok(Outcome {
            seconds: report.phases.last().map_or(f64::NAN, |time| time.as_secs_f64()),
            miss_rate: report.miss_rate().get(),
            walk_rate: report.walk_rate().get(),
            huge: footprint.huge.base_pages().share_of(footprint.total()).get(),
            huge_property: (0..ranges).filter(is_huge).count() as f64 / ranges.max(1) as f64,
            rests: constants.rests(),
        })
    }
}

/// A run under the policy `name`, with the memory that a program finds and the program not started.
pub(super) fn empty(
    (program, memory): (Program, Memory),
    backing: Backing,
    name: &str,
    (setting, constants): (&Setting, &Constants),
) -> Result<Run> {
    let seed = setting.seed;
    let setup = machine::Setup { memory: constants.get(&NODE), pools: None, backing, seed };
    let mut machine = Machine::new(setup, policy_named(name)?);
    let footprint = program.footprint(constants);
    machine.prepare(|physical, random| {
        memory.prepare((physical, random), footprint, constants);
    });
    Ok(Run::new(machine, support_hardware::of("graph")?))
}

/// Makes the runs of these cases, so that their outcomes are there when they are asked for.
pub(super) fn make(cases: &[Case], setting: &Setting, progress: Progress<'_>) -> Result<()> {
    let run = |case: Case| case.outcome(setting).map(|_| ());
    support_parallel::each(cases, &run, &Case::name, progress)
}
