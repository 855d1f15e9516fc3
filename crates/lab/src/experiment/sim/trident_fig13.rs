//! `trident-fig13`: Trident and Trident-pv in a guest with fragmented memory whose background may
//! take a tenth of a CPU (Trident, Figure 13).

use super::support_trident_bars::{self, Bars, Paper};
use super::support_trident_programs::{Backed, Program};
use super::support_trident_runs::{Case, Memory, Place, THP};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};
use superpage_units::PageSize;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig13",
    source: "Trident, Figure 13",
    summary: "Performance of Trident and Trident-pv over Linux THP in a guest with fragmented \
              memory and a tenth of a CPU for khugepaged",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

/// Programs that Trident-pv helps in the paper.
const HELPED: [Program; 4] = [Program::XsBench, Program::Gups, Program::Memcached, Program::Svm];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let paper = Paper { performance: |_, _| None, mean: |_| None };
    let bars = Bars { programs: &Program::SENSITIVE, suffix: "", paper };
    let thp = |program| case(program, THP);
    let policies = ["trident", "trident-pv"];
    bars.add(&mut table, &policies, &thp, &case, (setting, &mut *progress))?;
    let (mut gains, mut all) = (Vec::new(), Vec::new());
    for program in HELPED {
        let trident = case(program, "trident").outcome(setting)?;
        let exchanged = case(program, "trident-pv").outcome(setting)?;
        gains.push(trident.seconds / exchanged.seconds);
        all.extend([trident.rests, exchanged.rests]);
    }
    let rests = Rests::all(&all);
    let of = |case, name| Quantity { case, policy: "trident-pv", name, unit: "ratio" };
    let case = "XSBench, GUPS, Memcached, SVM";
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    let most = gains.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    table.add(of(case, "mean over trident"), Some(1.05), mean, &rests)?;
    table.add(of(case, "most over trident"), Some(1.1), most, &rests)?;
    support_trident_bars::note(&mut table);
    table.note("What the guest's memory looks like was chosen with trident-table3 in view.");
    Ok(table.report)
}

fn case(program: Program, policy: &'static str) -> Case {
    let host = if policy == THP { PageSize::Huge } else { PageSize::Gigantic };
    let (memory, backed) = (Memory::Fragmented, Backed::Asked);
    Case { program, policy, memory, backed, place: Place::LimitedGuest(host) }
}
