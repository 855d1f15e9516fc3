//! `graph-fig6`: huge pages lost to single-use memory, the page cache of the files that a graph is loaded
//! from (graph paper, Figure 6 and section 4.3).
//!
//! Figure 6 is a drawing of that, without numbers; here it is run.

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, Found, Said, mean};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig6",
    source: "Graph page sizes, Figure 6 and section 4.3",
    summary: "Huge pages and speedup of BFS with the files of the graph in the page cache and \
              elsewhere",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

/// The memory that a program finds, and how rows name it.
const MEMORY: [(Memory, &str); 2] =
    [(Memory::Ample, "no pressure"), (Memory::Fragmented(0), "3 GB to spare")];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for (memory, name) in MEMORY {
        let (programs, bars) = (Program::bfs(), bars(memory));
        let suffix = format!(", {name}");
        let along: (&Setting, Progress<'_>) = (setting, &mut *progress);
        let found = support_graph_rows::add(&mut table, &programs, &bars, &suffix, along)?;
        let case = format!("mean{suffix}");
        for (bar, found) in bars.iter().zip(&found) {
            support_graph_rows::add_means(&mut table, &case, (bar, found), Said::default())?;
        }
        if memory != Memory::Ample {
            add_lost(&mut table, &case, &found)?;
        }
    }
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    notes(&mut table);
    Ok(table.report)
}

fn bars(memory: Memory) -> [Bar; 3] {
    let linux = move |program| Case::plain(program, Pages::Linux).on(memory);
    [
        Bar::new(LINUX, linux),
        Bar::new(&cached(), move |program| linux(program).through_page_cache()),
        Bar::new(&format!("{}, property array first", cached()), move |program| {
            linux(program).through_page_cache().property_first()
        }),
    ]
}

fn cached() -> String {
    format!("{LINUX}, files in the page cache")
}

/// A row for what the paper says: fewer huge pages with files in the page cache.
fn add_lost(table: &mut Table, case: &str, found: &[Found]) -> Result<()> {
    let [elsewhere, cache, ..] = found else { return Ok(()) };
    let huge = |found: &Found| mean(&found.all(|outcome| outcome.huge));
    let policy = cached();
    let name = "huge pages over files elsewhere (paper: less than)";
    let quantity = Quantity { case, policy: &policy, name, unit: "ratio" };
    let rests = Rests::all([&cache.rests(), &elsewhere.rests()]);
    table.add(quantity, Some(1.0), huge(cache) / huge(elsewhere), &rests)
}

fn notes(table: &mut Table) {
    table.note(
        "The paper has no number: \"fewer huge pages are created when the page cache occupies free \
         memory during data loading time\"; 1 is a bound. The files are read just before the arrays \
         that are loaded from them and are as large as these (assumed). What memory has no room for is \
         not cached; Wikipedia's files fit into the 3 GB. When memory is short the page cache gives way base page by base page, at random \
         places, so that its huge frames do not come back; Linux drops the oldest first, which lie side \
         by side, so what is lost here is the most that can be. Temporary arrays are not run: the \
         paper does not say how large they are.",
    );
}

#[cfg(test)]
mod tests {
    use super::super::support_graph_programs::{Input, Kernel};
    use super::*;

    /// The page cache costs huge pages if memory is short, and none if not. (Wikipedia's files fit into
    /// what there is to spare.)
    #[test]
    fn the_page_cache_costs_huge_pages_where_memory_is_short() {
        let program = Program { kernel: Kernel::Bfs, input: Input::Kronecker };
        for (memory, (least, most)) in MEMORY.into_iter().zip([(0.95, 1.0), (0.0, 0.9)]) {
            let elsewhere = Case::plain(program, Pages::Linux).on(memory.0);
            let [elsewhere, cache] = [elsewhere, elsewhere.through_page_cache()]
                .map(|case| case.outcome(&Setting::of_test()).expect("it runs").huge);
            let kept = cache / elsewhere;
            assert!((least..=most).contains(&kept), "{}: {kept}", memory.1);
        }
    }
}
