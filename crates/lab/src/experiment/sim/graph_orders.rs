//! Figures 7 and 8 of the graph paper: speedups with memory in one state, the graph or the property array loaded first
//! (section 4.5).

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, Found, Said, baseline};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{
    COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Run, Setting, Table,
};

/// Both orders with 0.5 GB of memory to spare.
pub(super) const FIG7: Experiment = Experiment {
    name: "graph-fig7",
    source: "Graph page sizes, Figure 7 and section 4.5",
    summary: "Speedup of graph programs with 0.5 GB to spare, the graph or the property array loaded first",
    on: On::Sim,
    columns: COLUMNS,
    run: &Orders { memory: Memory::Tight, lost: 1.39, kept: 0.921, gain: None },
};

/// Both orders with half of free memory fragmented; what is still gained over base pages is in the caption.
pub(super) const FIG8: Experiment = Experiment {
    name: "graph-fig8",
    source: "Graph page sizes, Figure 8 and section 4.5",
    summary: "Speedup of graph programs with memory 50 % fragmented, the graph or the property array loaded first",
    on: On::Sim,
    columns: COLUMNS,
    run: &Orders { memory: Memory::Fragmented(50), lost: 1.59, kept: 0.8, gain: Some(1.25) },
};

/// Both orders with memory in one state, and what the paper says of it (section 4.5).
#[derive(Clone, Copy, Debug)]
struct Orders {
    memory: Memory,
    /// How much faster huge pages are without pressure.
    lost: f64,
    /// The share of that performance which loading the property array first keeps.
    kept: f64,
    /// The speedup over base pages which it then has.
    gain: Option<f64>,
}

fn bars(memory: Memory) -> [Bar; 4] {
    let linux = move |program| Case::plain(program, Pages::Linux).on(memory);
    [
        Bar::new(&format!("{LINUX}, no pressure"), |program| Case::plain(program, Pages::Linux)),
        Bar::new("linux-4k", move |program| baseline(program).on(memory)),
        Bar::new(LINUX, linux),
        Bar::new(&format!("{LINUX}, property array first"), move |program| {
            linux(program).property_first()
        }),
    ]
}

impl Run for Orders {
    fn run(
        &self,
        experiment: &'static str,
        setting: &Setting,
        progress: Progress<'_>,
    ) -> Result<Report> {
        let mut table = Table::new(experiment);
        let bars = bars(self.memory);
        let along = (setting, progress);
        let found = support_graph_rows::add(&mut table, &Program::all(), &bars, "", along)?;
        let gains = [None, None, None, self.gain];
        for ((bar, found), gain) in bars.iter().zip(&found).zip(gains) {
            support_graph_rows::add_means(
                &mut table,
                "mean",
                (bar, found),
                Said { speedup: gain, memory: None },
            )?;
        }
        if let ([ideal, _, natural, first], [_, _, linux, optimized]) = (found.as_slice(), &bars) {
            let of = |policy, name| Quantity { case: "mean", policy, name, unit: "ratio" };
            let lost = ideal.speedup() / natural.speedup();
            let name = "speedup without pressure over it";
            let on = |found: &Found| {
                Rests::all([&found.rests_of_speedups(), &ideal.rests_of_speedups()])
            };
            table.add(of(&linux.policy, name), Some(self.lost), lost, &on(natural))?;
            let kept = first.speedup() / ideal.speedup();
            let name = "performance over no pressure";
            table.add(of(&optimized.policy, name), Some(self.kept), kept, &on(first))?;
        }
        support_graph_rows::note(&mut table);
        support_graph_rows::note_memory(&mut table);
        Ok(table.report)
    }
}
