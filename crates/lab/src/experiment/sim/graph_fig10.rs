//! `graph-fig10`: degree-based grouping and huge pages for half and all of the property array (graph paper, Figure 10 and section 5.2).

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, Found, Said, range};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig10",
    source: "Graph page sizes, Figure 10 and section 5.2",
    summary: "Speedup by degree-based grouping and huge pages for half and all of the property array",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

/// The state of memory.
const MEMORY: Memory = Memory::Fragmented(50);

/// The lowest and the highest of what selective huge pages gain over base pages, and of what they
/// reach of Linux without pressure (section 5.2 and abstract).
const GAINS: [f64; 2] = [1.26, 1.57];
const REACHED: [f64; 2] = [0.773, 0.963];

const fn on(program: Program, pages: Pages) -> Case {
    Case::plain(program, pages).on(MEMORY)
}

fn bars() -> [Bar; 6] {
    let selective =
        |share| move |program| on(program, Pages::Selective(share)).property_first().grouped();
    [
        Bar::new(&format!("{LINUX}, no pressure"), |program| Case::plain(program, Pages::Linux)),
        Bar::new(LINUX, |program| on(program, Pages::Linux)),
        Bar::new("linux-4k, grouped", |program| on(program, Pages::Base).grouped()),
        Bar::new(&format!("{LINUX}, grouped"), |program| on(program, Pages::Linux).grouped()),
        Bar::new("selective 50 %, grouped", selective(50)),
        Bar::new("selective 100 %, grouped", selective(100)),
    ]
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let (programs, bars) = (Program::all(), bars());
    let found = support_graph_rows::add(&mut table, &programs, &bars, "", (setting, progress))?;
    for (bar, found) in bars.iter().zip(&found) {
        support_graph_rows::add_means(&mut table, "mean", (bar, found), Said::default())?;
    }
    if let ([ideal, .., best], [.., bar]) = (found.as_slice(), &bars) {
        add_ranges(&mut table, &bar.policy, ideal, best)?;
    }
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    table.note(
        "3 GB to spare, half of free memory fragmented. Selective runs load the property array \
         first (assumed). The paper gives only ranges over its configurations, which may include \
         smaller shares of the array. Its abstract, section 5.2 and conclusion have 1.26 to 1.57 over \
         base pages, its introduction the same numbers over Linux's THP under pressure, for which \
         section 5.2 has 1.18 to 1.49.",
    );
    Ok(table.report)
}

fn add_ranges(table: &mut Table, policy: &str, ideal: &Found, best: &Found) -> Result<()> {
    let over = best.speedups.iter().zip(&ideal.speedups).map(|(best, ideal)| best / ideal);
    let gains = range(&best.speedups).into_iter().zip(GAINS);
    let reached = range(&over.collect::<Vec<f64>>()).into_iter().zip(REACHED);
    let on_best = best.rests_of_speedups();
    let on_both = Rests::all([&on_best, &ideal.rests_of_speedups()]);
    for (name, numbers, rests) in [
        ("speedup", gains.collect::<Vec<_>>(), &on_best),
        ("performance over no pressure", reached.collect(), &on_both),
    ] {
        for (case, (measured, paper)) in ["lowest", "highest"].into_iter().zip(numbers) {
            let quantity = Quantity { case, policy, name, unit: "ratio" };
            table.add(quantity, Some(paper), measured, rests)?;
        }
    }
    Ok(())
}
