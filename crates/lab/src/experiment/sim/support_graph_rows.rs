//! What the graph paper's figures show alike: speedups over base pages, and the TLB misses behind
//! them, of several programs under several policies.

use super::support_graph_programs::Program;
use super::support_graph_runs::{self, Case, Outcome, Pages};
use super::{Progress, Quantity, Rests, Result, Setting, Table};

/// The bars of one colour.
pub(super) struct Bar {
    /// The policy, and what else is special.
    pub(super) policy: String,
    /// The run of each program.
    case: Box<dyn Fn(Program) -> Case>,
}

impl Bar {
    pub(super) fn new(policy: &str, case: impl Fn(Program) -> Case + 'static) -> Self {
        Self { policy: policy.to_owned(), case: Box::new(case) }
    }
}

/// What was found for one colour, program by program; no speedups of the baseline over itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) speedups: Vec<f64>,
    pub(super) outcomes: Vec<Outcome>,
    /// The constants behind the runs that speedups are over.
    baselines: Rests,
}

impl Found {
    pub(super) fn speedup(&self) -> f64 {
        mean(&self.speedups)
    }

    /// One number of each program.
    pub(super) fn all(&self, number: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.outcomes.iter().map(number).collect()
    }

    /// The constants behind the runs of this bar.
    pub(super) fn rests(&self) -> Rests {
        Rests::all(self.outcomes.iter().map(|outcome| &outcome.rests))
    }

    /// The constants behind the speedups of this bar.
    pub(super) fn rests_of_speedups(&self) -> Rests {
        Rests::all([&self.rests(), &self.baselines])
    }
}

/// Without pressure, on base pages: what speedups are over.
pub(super) const fn baseline(program: Program) -> Case {
    Case::plain(program, Pages::Base)
}

pub(super) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// The lowest and the highest.
pub(super) fn range(numbers: &[f64]) -> [f64; 2] {
    let lowest = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    [lowest, numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
}

/// Adds a miss rate, a walk rate and, but for the baseline itself, a speedup for each program and bar;
/// `suffix` goes behind the names of programs. What was found, for each bar.
pub(super) fn add(
    table: &mut Table,
    programs: &[Program],
    bars: &[Bar],
    suffix: &str,
    (setting, progress): (&Setting, Progress<'_>),
) -> Result<Vec<Found>> {
    let cases = programs.iter().flat_map(|program| {
        bars.iter().map(|bar| (bar.case)(*program)).chain([baseline(*program)])
    });
    support_graph_runs::make(&cases.collect::<Vec<Case>>(), setting, progress)?;
    let mut found = vec![Found::default(); bars.len()];
    for program in programs {
        let base = baseline(*program).outcome(setting)?;
        let case = format!("{}{suffix}", program.name());
        for (bar, found) in bars.iter().zip(&mut found) {
            let run = (bar.case)(*program);
            let outcome = run.outcome(setting)?;
            let speedup = (run != baseline(*program)).then_some(base.seconds / outcome.seconds);
            let rests = Rests::all([&outcome.rests, &base.rests]);
            let with_rests = speedup.map(|speedup| (speedup, &rests));
            add_one(table, (&case, &bar.policy), with_rests, &outcome)?;
            found.speedups.extend(speedup);
            found.baselines = Rests::all([&found.baselines, &base.rests]);
            found.outcomes.push(outcome);
        }
    }
    Ok(found)
}

fn add_one(
    table: &mut Table,
    (case, policy): (&str, &str),
    speedup: Option<(f64, &Rests)>,
    outcome: &Outcome,
) -> Result<()> {
    let of = |name, unit| Quantity { case, policy, name, unit };
    if let Some((speedup, rests)) = speedup {
        table.add(of("speedup", "ratio"), None, speedup, rests)?;
    }
    table.add(of("TLB misses", "of accesses"), None, outcome.miss_rate, &outcome.rests)?;
    table.add(of("page walks", "of accesses"), None, outcome.walk_rate, &outcome.rests)
}

/// What the paper says of the means of one bar.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) speedup: Option<f64>,
    /// The part of the memory that is on huge pages.
    pub(super) memory: Option<f64>,
}

/// Adds the means of one bar over the programs.
pub(super) fn add_means(
    table: &mut Table,
    case: &str,
    (bar, found): (&Bar, &Found),
    said: Said,
) -> Result<()> {
    let of = |name, unit| Quantity { case, policy: &bar.policy, name, unit };
    let mean_of = |number: fn(&Outcome) -> f64| mean(&found.all(number));
    let (rests, speedups) = (found.rests(), found.rests_of_speedups());
    table.add(of("speedup", "ratio"), said.speedup, found.speedup(), &speedups)?;
    table.add(of("TLB misses", "of accesses"), None, mean_of(|o| o.miss_rate), &rests)?;
    table.add(of("huge pages", "of memory"), said.memory, mean_of(|o| o.huge), &rests)?;
    let name = "huge pages";
    table.add(of(name, "of property array"), None, mean_of(|o| o.huge_property), &rests)
}

/// What every figure rests on.
pub(super) fn note(table: &mut Table) {
    table.note(
        "Speedups are of the kernel, without loading and grouping, over base pages without \
         pressure. Cycles of an edge without translation are the same for all programs, graphs and \
         orders, fitted to one number: the mean of Figure 1 without pressure. What degree-based \
         grouping does for data caches is so left out, as in the paper's own speedups. Degrees are \
         exact for Kronecker25 and assumed for the other graphs (a power law); Twitter's and \
         Wikipedia's natural order is taken as grouped. For all graphs it is assumed that BFS and \
         SSSP come to vertices in any order and PR in theirs, and how often each edge is come to.",
    );
}

/// What figures under pressure rest on besides.
pub(super) fn note_memory(table: &mut Table) {
    table.note(
        "Besides what is fragmented on purpose, 2.25 GiB of memory cannot be made into huge pages \
         (chosen with an outcome in view: section 4.3.1 has between 2 and 2.5 GB).",
    );
}
