//! `graph-oversubscribed`: BFS with less memory than it needs (graph paper, section 4.3.1, "High Memory
//! Pressure").
//!
//! Pages may have gone, so every touch is made: a vertex that BFS comes to is one step, which touches its
//! place in the vertex array, its edges, the properties of their ends and the worklists. Sizes, degrees
//! and cycles are those of the other figures.

use super::support_graph_constants::{
    CYCLES_PER_EDGE, DISCOVERED_ORDER, ITEM, PROPERTIES, READ_AHEAD, THREADS, VISITED_PART,
    WORKLIST_ACCESSES,
};
use super::support_graph_programs::{Array, Program, fill};
use super::support_graph_rows::mean;
use super::support_graph_runs::{self, LINUX, Memory};
use super::support_parallel::{self, Known};
use super::{
    COLUMNS, Constants, EXPOSED, Error, Experiment, Given, On, Progress, Quantity, Report, Rests,
    Result, Setting, Table,
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
    run: &run,
};

const BASE: &str = "linux-4k";
/// Policies, with how much slower they are in the paper.
const POLICIES: [(&str, f64); 2] = [(BASE, 24.6), (LINUX, 23.6)];
/// The memory that a program finds, and how rows name it.
const MEMORY: [(Memory, &str); 2] =
    [(Memory::Own, "none beyond its own"), (Memory::Short, "0.5 GB less")];

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Case {
    program: Program,
    memory: Memory,
    policy: &'static str,
}

/// The result of a run: seconds of the timed part, and of these in faults.
#[derive(Clone, Debug)]
struct Outcome {
    seconds: f64,
    faults: f64,
    rests: Rests,
}

impl support_parallel::Outcome for Outcome {
    fn rests(&self) -> &Rests {
        &self.rests
    }
}

impl Case {
    fn name(self) -> String {
        format!("{}: {}", self.program.name(), self.policy)
    }

    fn outcome(self, setting: &Setting) -> Result<Outcome> {
        static KNOWN: Known<(Case, Given), Outcome> = Known::new();
        KNOWN.outcome(self, setting, |setting| self.simulate(setting))
    }

    fn simulate(self, setting: &Setting) -> Result<Outcome> {
        let constants = Constants::of(setting);
        let (found, along) = ((self.program, self.memory), (setting, &constants));
        let mut run = support_graph_runs::empty(found, Backing::Swap, self.policy, along)?;
        let read_ahead = constants.get(&READ_AHEAD);
        run.machine_mut().set_read_ahead(u16::try_from(read_ahead).unwrap_or(u16::MAX));
        let key = run.start(workload(self.program, &constants));
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
            rests: constants.rests(),
        })
    }
}

/// BFS on its arrays, a part of it twice: the second time is the one that is timed.
fn workload(program: Program, constants: &Constants) -> Workload {
    let arrays = program.arrays(constants);
    let map = |(_, size): &(Array, Bytes)| Phase::Map(VmaShape::fixed(*size));
    let mut phases: Vec<Phase> = arrays.iter().map(map).collect();
    phases.extend((0..arrays.len()).map(|array| fill(array, constants)));
    let steps = steps(program, constants);
    phases.extend([Phase::Steps(steps.clone()), Phase::Steps(steps)]);
    Workload { name: program.name(), threads: constants.get(&THREADS), phases }
}

fn steps(program: Program, constants: &Constants) -> Steps {
    constants.get(&DISCOVERED_ORDER);
    let (item, properties) = (constants.get(&ITEM), constants.get(&PROPERTIES));
    let graph = program.input.graph(constants);
    let visited = graph.connected();
    let degree = graph.edges as f64 / visited;
    let vertices = Vertices { graph, order: program.input.natural_order(constants), item };
    // Accesses to worklists and their counts for each vertex, taken as one after the other.
    let listed = constants.get(&WORKLIST_ACCESSES) * item.0 as f64 / BASE_PAGE_BYTES as f64;
    let (read, write) = (Content::Zeroes, Content::Data);
    // Array, pattern, content, touches of a step, accesses to each page touched.
    let touches = [
        (Array::Vertex, Pattern::Uniform, read, 1.0, 1.0),
        (Array::Edge, Pattern::Uniform, read, 1.0, 1.0),
        (Array::Property, Pattern::Vertices(vertices), write, properties, degree / properties),
        (Array::Worklists, Pattern::Sequential, write, listed, 1.0),
    ];
    let touches = touches.into_iter().filter_map(|(array, pattern, content, per_step, each)| {
        let part = Part::whole(program.index(array, constants)?);
        Some(Touches { part, pattern, content, per_step, stands_for: each, made: Counting::Each })
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    Steps {
        count: (visited * constants.get(&VISITED_PART)) as u64,
        cycles: constants.get(&CYCLES_PER_EDGE) * degree,
        exposed: EXPOSED,
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
            let (mut slower, mut all) = (Vec::new(), Rests::default());
            for program in &programs {
                let base = of(*program, Memory::Ample, BASE).outcome(setting)?;
                let found = of(*program, memory, policy).outcome(setting)?;
                let case = format!("{}, {state}", program.name());
                let quantity = |name| Quantity { case: &case, policy, name, unit: "ratio" };
                let slowdown = found.seconds / base.seconds;
                let rests = Rests::all([&found.rests, &base.rests]);
                table.add(quantity("slowdown"), None, slowdown, &rests)?;
                let share = found.faults / found.seconds;
                table.add(quantity("share of time in faults"), None, share, &found.rests)?;
                slower.push(slowdown);
                all = Rests::all([&all, &rests]);
            }
            let case = format!("mean, {state}");
            let quantity = Quantity { case: &case, policy, name: "slowdown", unit: "ratio" };
            table.add(quantity, Some(paper), mean(&slower), &all)?;
        }
    }
    notes(&mut table);
    Ok(table.report)
}

fn notes(table: &mut Table) {
    table.note(
        "Slowdowns are over base pages without pressure. The paper's 24.6 and 23.6 are presumably of all twelve \
         programs, and they are of \"no additional memory available or there is even a deficit of 0.5GB\", \
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
        let constants = Constants::default();
        let cycles = constants.get(&CYCLES_PER_EDGE);
        let steps = steps(program, &constants);
        let count = steps.count as f64 / constants.get(&VISITED_PART);
        let edges: f64 = count * steps.cycles / cycles;
        let of_graph = program.input.graph(&constants).edges as f64;
        assert!((edges / of_graph - 1.0).abs() < 0.01, "{edges}");
        let mut parts: Vec<usize> = steps.touches.iter().map(|touch| touch.part.vma).collect();
        parts.sort_unstable();
        assert_eq!(parts, [0, 1, 2, 3]);
        let property = program.index(Array::Property, &constants);
        let of = |touch: &&Touches| Some(touch.part.vma) == property;
        let properties = steps.touches.iter().find(of).expect("it is touched");
        let each = properties.per_step * properties.stands_for * cycles;
        assert!((each / steps.cycles - 1.0).abs() < 1e-9);
    }
}
