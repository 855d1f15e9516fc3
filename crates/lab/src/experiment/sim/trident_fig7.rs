//! `trident-fig7`: what smart compaction copies, against normal compaction (Trident, Figure 7).

use super::support_trident_programs::Program;
use super::support_trident_runs::{self, Case, Memory};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig7",
    source: "Trident, Figure 7",
    summary: "Bytes copied by smart and by normal compaction on fragmented memory",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const POLICIES: [&str; 2] = ["trident-nc", "trident"];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let of = |program, policy| Case::native(program, policy, Memory::Fragmented);
    let cases = Program::SENSITIVE.map(|program| POLICIES.map(|policy| of(program, policy)));
    support_trident_runs::make(cases.as_flattened(), setting, progress)?;
    let (mut reductions, mut all) = (Vec::new(), Vec::new());
    for program in Program::SENSITIVE {
        let (mut copied, mut both) = ([0.0; 2], Vec::new());
        for (policy, copied) in POLICIES.into_iter().zip(&mut copied) {
            let outcome = of(program, policy).outcome(setting)?;
            let of = |name| Quantity { case: program.name(), policy, name, unit: "GiB" };
            table.add(of("copied"), None, outcome.compacted, &outcome.rests)?;
            table.add(of("copied for nothing"), None, outcome.futile, &outcome.rests)?;
            *copied = outcome.compacted;
            both.push(outcome.rests);
        }
        let [normal, smart] = copied;
        let reduction = 100.0 * (1.0 - smart / normal);
        reductions.push(reduction);
        let name = "less copied by smart compaction";
        let quantity = Quantity { case: program.name(), policy: "trident", name, unit: "percent" };
        table.add(quantity, None, reduction, &Rests::all(&both))?;
        all.extend(both);
    }
    let name = "less copied by smart compaction";
    let rests = Rests::all(&all);
    let of = |case| Quantity { case, policy: "trident", name, unit: "percent" };
    let mean = reductions.iter().sum::<f64>() / reductions.len() as f64;
    table.add(of("mean"), None, mean, &rests)?;
    let most = reductions.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    table.add(of("most"), Some(85.0), most, &rests)?;
    table.note("The paper's text has \"up to 85 %\", a bound, and least for XSBench.");
    table.note("What memory looks like was chosen with trident-table3 in view.");
    Ok(table.report)
}
