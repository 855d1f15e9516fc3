//! `graph-fig9`: BFS by how much of free memory is fragmented (graph paper, Figure 9).

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, Said};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig9",
    source: "Graph page sizes, Figure 9",
    summary: "Speedup of BFS with 0 to 75 % of memory fragmented, the graph or the property array loaded first",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

const LEVELS: [u32; 4] = [0, 25, 50, 75];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for level in LEVELS {
        one(&mut table, level, (setting, &mut *progress))?;
    }
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    table.note(
        "With 75 % fragmented Wikipedia has 6 GiB, of which 4.5 are fragmented on purpose and 2.25 \
         were before: no huge page is left, whatever is loaded first.",
    );
    Ok(table.report)
}

fn one(table: &mut Table, level: u32, along: (&Setting, Progress<'_>)) -> Result<()> {
    let suffix = format!(", {level} % fragmented");
    let bars = bars(level);
    let found = support_graph_rows::add(table, &Program::bfs(), &bars, &suffix, along)?;
    let case = format!("mean{suffix}");
    for (bar, found) in bars.iter().zip(&found) {
        support_graph_rows::add_means(table, &case, (bar, found), Said::default())?;
    }
    Ok(())
}

fn bars(level: u32) -> [Bar; 3] {
    let on = move |pages| move |program| Case::plain(program, pages).on(Memory::fragmented(level));
    [
        Bar::new("linux-4k", on(Pages::Base)),
        Bar::new(LINUX, on(Pages::Linux)),
        Bar::new(&format!("{LINUX}, property array first"), move |program| {
            on(Pages::Linux)(program).property_first()
        }),
    ]
}
