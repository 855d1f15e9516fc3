//! `graph-fig9`: BFS by how much of free memory is fragmented (graph paper, Figure 9).

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, Found, Said};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig9",
    source: "Graph page sizes, Figure 9",
    summary: "Speedup of BFS with 0 to 75 % of memory fragmented, the graph or the property array loaded first",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const LEVELS: [u32; 4] = [0, 25, 50, 75];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let mut levels = Vec::new();
    for level in LEVELS {
        levels.push(one(&mut table, level, (setting, &mut *progress))?);
    }
    add_said(&mut table, &levels)?;
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    table.note(
        "With 75 % fragmented Wikipedia has 6 GiB, of which 4.5 are fragmented on purpose and 2.25 \
         were before: no huge page is left, whatever is loaded first.",
    );
    table.note(
        "The figure is not in our copy, and its text has no number. The paper's numbers are presumably means of \
         all twelve programs, here beside those of BFS: 1.63 without pressure (Figure 1; 3 GB to \
         spare are enough for that, section 4.3.1), 1.02 and 1.25 with half of memory fragmented \
         (Figures 1 and 8). That 25 % cost performance, and that loading the property array first \
         still gains with 75 %, are bounds.",
    );
    Ok(table.report)
}

/// The outcomes at one level of fragmentation, bar by bar.
fn one(table: &mut Table, level: u32, along: (&Setting, Progress<'_>)) -> Result<Vec<Found>> {
    let suffix = format!(", {level} % fragmented");
    let bars = bars(level);
    let found = support_graph_rows::add(table, &Program::bfs(), &bars, &suffix, along)?;
    let case = format!("mean{suffix}");
    for (bar, found) in bars.iter().zip(&found) {
        support_graph_rows::add_means(table, &case, (bar, found), Said::default())?;
    }
    Ok(found)
}

/// Rows for what the paper says of levels; `levels` has what was found at each, bar by bar.
fn add_said(table: &mut Table, levels: &[Vec<Found>]) -> Result<()> {
    let at = |level: usize, bar: usize| match levels.get(level).and_then(|bars| bars.get(bar)) {
        Some(found) => (found.speedup(), found.rests_of_speedups()),
        None => (f64::NAN, Rests::default()),
    };
    let over = |(speedup, rests): (f64, Rests), (base, base_rests): (f64, Rests)| {
        (speedup / base, Rests::all([&rests, &base_rests]))
    };
    let first = format!("{LINUX}, property array first");
    let all = "speedup (paper: of all programs)";
    let less = "speedup over 0 % fragmented (paper: less than)";
    for (level, policy, name, paper, (measured, rests)) in [
        (0, LINUX, all, 1.63, at(0, 1)),
        (1, LINUX, less, 1.0, over(at(1, 1), at(0, 1))),
        (2, LINUX, all, 1.02, at(2, 1)),
        (2, &first, all, 1.25, at(2, 2)),
        (3, &first, "speedup (paper: more than)", 1.0, at(3, 2)),
    ] {
        let level = LEVELS.get(level).copied().unwrap_or_default();
        let case = format!("mean, {level} % fragmented");
        let quantity = Quantity { case: &case, policy, name, unit: "ratio" };
        table.add(quantity, Some(paper), measured, &rests)?;
    }
    Ok(())
}

fn bars(level: u32) -> [Bar; 3] {
    let on = move |pages| move |program| Case::plain(program, pages).on(Memory::Fragmented(level));
    [
        Bar::new("linux-4k", on(Pages::Base)),
        Bar::new(LINUX, on(Pages::Linux)),
        Bar::new(&format!("{LINUX}, property array first"), move |program| {
            on(Pages::Linux)(program).property_first()
        }),
    ]
}
