//! `graph-fig11`: BFS by the share of the property array that gets huge pages (graph paper, Figure 11).

use super::support_graph_programs::{Numbering, Program};
use super::support_graph_rows::{self, Bar, Said};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig11",
    source: "Graph page sizes, Figure 11",
    summary: "Speedup of BFS by the share of the property array on huge pages, as it comes and grouped",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

/// The state of memory.
const MEMORY: Memory = Memory::Fragmented(50);
/// Per cent of the property array.
const SHARES: [u32; 6] = [0, 20, 40, 60, 80, 100];
/// The share for which the paper gives a number, and its speedup over Linux (section 5.2).
const SMALL: u32 = 20; // not a Constant: of the figure's axis
const OVER_LINUX: f64 = 1.15; // not a Constant: the paper's number

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let (mut over, mut rests) = (Vec::new(), Rests::default());
    for numbering in [Numbering::Natural, Numbering::Grouped] {
        let (ratio, on) = sweep(&mut table, numbering, (setting, &mut *progress))?;
        over.push(ratio);
        rests = Rests::all([&rests, &on]);
    }
    let policy = format!("selective {SMALL} %");
    let name = format!("speedup over {LINUX}");
    let quantity = Quantity { case: "mean", policy: &policy, name: &name, unit: "ratio" };
    let mean = support_graph_rows::mean(&over);
    table.add(quantity, Some(OVER_LINUX), mean, &rests)?;
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    table.note(
        "3 GB to spare, half of free memory fragmented. Selective runs load the property array \
         first (assumed). The speedup over Linux is over Linux with vertices in the same order, the \
         mean over both orders and all graphs.",
    );
    Ok(table.report)
}

/// Adds all shares for one order of vertices; the mean speedup over Linux with [`SMALL`] per cent,
/// and what that rests on.
fn sweep(
    table: &mut Table,
    numbering: Numbering,
    along: (&Setting, Progress<'_>),
) -> Result<(f64, Rests)> {
    let suffix = match numbering {
        Numbering::Natural => "",
        Numbering::Grouped => ", grouped",
    };
    let of = move |program, pages| Case { numbering, ..Case::plain(program, pages).on(MEMORY) };
    let mut bars = vec![Bar::new(LINUX, move |program| of(program, Pages::Linux))];
    for share in SHARES {
        let case = move |program| of(program, Pages::Selective(share)).property_first();
        bars.push(Bar::new(&format!("selective {share} %"), case));
    }
    let found = support_graph_rows::add(table, &Program::bfs(), &bars, suffix, along)?;
    let case = format!("mean{suffix}");
    for (bar, found) in bars.iter().zip(&found) {
        support_graph_rows::add_means(table, &case, (bar, found), Said::default())?;
    }
    let small = SHARES.iter().position(|share| *share == SMALL).and_then(|at| found.get(at + 1));
    let (Some(linux), Some(small)) = (found.first(), small) else {
        return Ok((f64::NAN, Rests::default()));
    };
    let ratios = small.speedups.iter().zip(&linux.speedups).map(|(small, linux)| small / linux);
    let rests = Rests::all([&small.rests_of_speedups(), &linux.rests_of_speedups()]);
    Ok((support_graph_rows::mean(&ratios.collect::<Vec<f64>>()), rests))
}
