//! `graph-oversubscribed`: BFS with less memory than it needs (graph paper, section 4.3.1, "High Memory
//! Pressure").
//!
//! Pages may have gone, so every touch is made: a vertex that BFS comes to is one step, which touches its
//! place in the vertex array, its edges, the properties of their ends and the worklists. Sizes, degrees
//! and cycles are those of the other figures.

use super::support_graph_programs::{Array, CYCLES_PER_EDGE, ITEM, Program, fill};
use super::support_graph_rows::mean;
use super::support_graph_runs::{self, LINUX, Memory};
use super::support_parallel::{self, Known};
use super::{
    Basis, COLUMNS, Error, Experiment, On, Progress, Quantity, Report, Result, Setting, Table,
};
use superpage_sim::machine::{Backing, Content};
use superpage_sim::workload::graph::Vertices;
use superpage_sim::workload::steps::{Steps, Touches};
use superpage_sim::workload::{Counting, Part, Pattern, Phase, VmaShape, Workload};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-oversubscribed",
    source: "Graph page sizes, section 4.3.1",
    summary: "Slowdown of BFS with no memory beyond its own and with 0.5 GB less, on base pages and on \
              huge pages",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

const BASE: &str = "linux-4k";
/// Policies, with how much slower they are in the paper.
const POLICIES: [(&str, f64); 2] = [(BASE, 24.6), (LINUX, 23.6)];
/// The memory that a program finds, and how rows name it.
const MEMORY: [(Memory, &str); 2] = [
    (Memory::Left { beyond: 0, fragmented: 0 }, "none beyond its own"),
    (Memory::Short { by: 512 }, "0.5 GB less"), // tidy: allow(MiB)
];
/// The part of its vertices that BFS comes to here, first without being timed and then timed. Chosen:
/// tens of thousands of them find a page gone, in every run.
const PART: f64 = 1.0 / 32.0;
/// Properties that are touched for a vertex; each stands for as many as make up its edges. Chosen.
const PROPERTIES: f64 = 4.0;
/// Base pages that a fault reads from swap, if they are read in order: Linux's default, 2 to the power
/// of `page-cluster`.
const READ_AHEAD: u16 = 8;

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Case {
    program: Program,
    memory: Memory,
    policy: &'static str,
}

/// The result of a run: seconds of the timed part, and of these in faults.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    seconds: f64,
    faults: f64,
}

impl Case {
    fn name(self) -> String {
        format!("{}: {}", self.program.name(), self.policy)
    }

    fn outcome(self, setting: &Setting) -> Result<Outcome> {
        static KNOWN: Known<(Case, u64), Outcome> = Known::new();
        KNOWN.get((self, setting.seed), || self.simulate(setting))
    }

    fn simulate(self, setting: &Setting) -> Result<Outcome> {
        let found = (self.program, self.memory);
        let mut run = support_graph_runs::empty(found, Backing::Swap, self.policy, setting)?;
        run.machine_mut().set_read_ahead(READ_AHEAD);
        let key = run.start(workload(self.program));
        run.until_left(1)?;
        let report = |run: &superpage_sim::run::Run| {
            let gone = || Error::Simulation(format!("{} is gone", self.program.name()));
            run.report(key).ok_or_else(gone)
        };
        let before = report(&run)?.fault_time;
        run.to_end()?;
        let report = report(&run)?;
        Ok(Outcome {
            seconds: report.phases.last().map_or(f64::NAN, |time| time.as_secs_f64()),
            faults: report.fault_time.saturating_sub(before).as_secs_f64(),
        })
    }
}

/// BFS on its arrays, a part of it twice: the second time is the one that is timed.
fn workload(program: Program) -> Workload {
    let arrays = program.arrays();
    let map = |(_, size): &(Array, Bytes)| Phase::Map(VmaShape::fixed(*size));
    let mut phases: Vec<Phase> = arrays.iter().map(map).collect();
    phases.extend((0..arrays.len()).map(fill));
    let steps = steps(program);
    phases.extend([Phase::Steps(steps.clone()), Phase::Steps(steps)]);
    Workload { name: program.name(), threads: 1, phases }
}

fn steps(program: Program) -> Steps {
    let graph = program.input.graph();
    let visited = graph.connected();
    let degree = graph.edges as f64 / visited;
    let vertices = Vertices { graph, order: program.input.natural_order(), item: ITEM };
    // Six accesses to worklists for each vertex, one after the other.
    let listed = 6.0 * ITEM.0 as f64 / BASE_PAGE_BYTES as f64;
    let (read, write) = (Content::Zeroes, Content::Data);
    // Array, pattern, content, touches of a step, accesses to each page touched.
    let touches = [
        (Array::Vertex, Pattern::Uniform, read, 1.0, 1.0),
        (Array::Edge, Pattern::Uniform, read, 1.0, 1.0),
        (Array::Property, Pattern::Vertices(vertices), write, PROPERTIES, degree / PROPERTIES),
        (Array::Worklists, Pattern::Sequential, write, listed, 1.0),
    ];
    let touches = touches.into_iter().filter_map(|(array, pattern, content, per_step, each)| {
        let part = Part::whole(program.index(array)?);
        Some(Touches { part, pattern, content, per_step, stands_for: each, made: Counting::Each })
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    Steps {
        count: (visited * PART) as u64,
        cycles: CYCLES_PER_EDGE * degree,
        exposed: 1.0,
        touches: touches.collect(),
    }
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let programs = Program::bfs();
    let of = |program, memory, policy| Case { program, memory, policy };
    let mut cases: Vec<Case> = programs.iter().map(|p| of(*p, Memory::Ample, BASE)).collect();
    for program in &programs {
        let each = MEMORY
            .into_iter()
            .flat_map(|(memory, _)| POLICIES.map(|(policy, _)| of(*program, memory, policy)));
        cases.extend(each);
    }
    let run = |case: Case| case.outcome(setting).map(|_| ());
    support_parallel::each(&cases, &run, &Case::name, progress)?;
    for (memory, state) in MEMORY {
        for (policy, paper) in POLICIES {
            let mut slower = Vec::new();
            for program in &programs {
                let base = of(*program, Memory::Ample, BASE).outcome(setting)?;
                let found = of(*program, memory, policy).outcome(setting)?;
                let case = format!("{}, {state}", program.name());
                let quantity = |name| Quantity { case: &case, policy, name, unit: "ratio" };
                let slowdown = found.seconds / base.seconds;
                table.add(quantity("slowdown"), None, slowdown, Basis::Assumed)?;
                let share = found.faults / found.seconds;
                table.add(quantity("share of time in faults"), None, share, Basis::Assumed)?;
                slower.push(slowdown);
            }
            let case = format!("mean, {state}");
            let quantity = Quantity { case: &case, policy, name: "slowdown", unit: "ratio" };
            table.add(quantity, Some(paper), mean(&slower), Basis::Assumed)?;
        }
    }
    notes(&mut table);
    Ok(table.report)
}

fn notes(table: &mut Table) {
    table.note(
        "Slowdowns are over base pages without pressure. The paper's 24.6 and 23.6 are of all twelve \
         programs, and of \"no additional memory available or there is even a deficit of 0.5GB\", \
         without saying which; they stand beside both. Here no memory beyond its own is enough: nothing \
         else is on the simulated machine, no page tables, no kernel that keeps a reserve.",
    );
    table.note(
        "The device is not in the paper: a flash drive, 80 us for a read (assumed, in the profile). \
         Slowdowns grow with its latency, and with the share of its memory that a program lacks: a \
         sixth of Wikipedia's and a thirtieth of Twitter's. Memory has Linux's clock for what to swap out; a huge page is \
         swapped out whole and comes back by base pages, as BFS touches them. BFS comes to vertices in any \
         order, as in the other figures; one in 32 of them is simulated, after as many that are not \
         timed.",
    );
}

#[cfg(test)]
mod tests {
    use super::super::support_graph_programs::{Input, Kernel};
    use super::*;

    /// A step goes over a vertex's edges, all of them make up the graph's, and every array of BFS is
    /// touched.
    #[test]
    fn steps_make_up_the_graph() {
        let program = Program { kernel: Kernel::Bfs, input: Input::Twitter };
        let steps = steps(program);
        let edges: f64 = steps.count as f64 / PART * steps.cycles / CYCLES_PER_EDGE;
        assert!((edges / program.input.graph().edges as f64 - 1.0).abs() < 0.01, "{edges}");
        let mut parts: Vec<usize> = steps.touches.iter().map(|touch| touch.part.vma).collect();
        parts.sort_unstable();
        assert_eq!(parts, [0, 1, 2, 3]);
        let property = program.index(Array::Property);
        let of = |touch: &&Touches| Some(touch.part.vma) == property;
        let properties = steps.touches.iter().find(of).expect("it is touched");
        let each = properties.per_step * properties.stands_for * CYCLES_PER_EDGE;
        assert!((each / steps.cycles - 1.0).abs() < 1e-9);
    }
}
