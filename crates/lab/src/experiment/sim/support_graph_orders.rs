//! What the graph paper's Figures 7 and 8 show alike: the graph or the property array loaded first,
//! with memory in one state (section 4.5).

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, Found, Said, baseline};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{Progress, Quantity, Report, Rests, Result, Setting, Table};

/// What the paper says of one state of memory (section 4.5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Paper {
    /// How much faster huge pages are without pressure.
    pub(super) lost: f64,
    /// The share of that performance which loading the property array first keeps.
    pub(super) kept: f64,
    /// The speedup over base pages which it then has.
    pub(super) gain: Option<f64>,
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

/// The figure `name`.
pub(super) fn run(
    name: &'static str,
    memory: Memory,
    paper: Paper,
    along: (&Setting, Progress<'_>),
) -> Result<Report> {
    let mut table = Table::new(name);
    let bars = bars(memory);
    let found = support_graph_rows::add(&mut table, &Program::all(), &bars, "", along)?;
    let gains = [None, None, None, paper.gain];
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
        let on =
            |found: &Found| Rests::all([&found.rests_of_speedups(), &ideal.rests_of_speedups()]);
        table.add(of(&linux.policy, name), Some(paper.lost), lost, &on(natural))?;
        let kept = first.speedup() / ideal.speedup();
        let name = "performance over no pressure";
        table.add(of(&optimized.policy, name), Some(paper.kept), kept, &on(first))?;
    }
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    Ok(table.report)
}
