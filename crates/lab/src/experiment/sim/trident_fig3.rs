//! `trident-fig3`: memory that 1 GiB and 2 MiB pages could map while Graph500 and SVM get theirs
//! (Trident, Figure 3).

use super::support_trident_programs::{Backed, Program};
use super::support_trident_runs::{Case, Memory};
use super::{
    COLUMNS, Constants, Error, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting,
    Table,
};
use superpage_units::{Bytes, Nanos, PageSize, Vma};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig3",
    source: "Trident, Figure 3",
    summary: "Memory of Graph500 and SVM that 1 GiB and that 2 MiB pages could map, over time",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for program in [Program::Graph500, Program::Svm] {
        progress(program.name())?;
        let case = Case::native(program, "trident-faults-only", Memory::Unfragmented);
        let constants = Constants::of(setting);
        let mut run = case.prepare(setting, &constants)?;
        let frequency = run.hardware().profile.cpu.frequency.value;
        let workload = program.workload(Backed::Asked, frequency, &constants);
        let rests = constants.rests();
        let phases = workload.phases.len();
        let key = run.start(workload);
        for left in (0..phases).rev() {
            run.until_left(left)?;
            let process = run.machine().process(key);
            let process = process.ok_or_else(|| Error::Simulation("it is gone".to_owned()))?;
            let time = run.report(key).map_or(Nanos::ZERO, |report| report.time);
            if process.footprint().total().is_zero() {
                continue;
            }
            let name = format!("{}, after {:.2} s", program.name(), time.as_secs_f64());
            let found =
                [PageSize::Gigantic, PageSize::Huge].map(|size| mappable(process.vmas(), size));
            for (quantity, found) in ["mappable by 1 GiB", "mappable by 2 MiB"].iter().zip(found) {
                let policy = "any";
                let quantity = Quantity { case: &name, policy, name: quantity, unit: "GiB" };
                table.add(quantity, None, found, &rests)?;
            }
            if left == 0 {
                add_paper(&mut table, program, found, &rests)?;
            }
        }
    }
    table.note(
        "The time that a program takes to fill its VMAs is assumed; what it frees and gets again later is not modelled.",
    );
    table.note(
        "The figure is not in our copy, and its text gives no number but \"several GBs\" that 2 MiB \
         pages could map and 1 GiB pages could not. The paper's numbers at the end are derived from \
         its Table 3: what Trident maps by each size without fragmentation once it has promoted, \
         and both together. The VMAs were chosen with that table in view.",
    );
    Ok(table.report)
}

/// GB that Trident maps by 1 GiB and by 2 MiB pages without fragmentation, after promotion (Table 3).
const fn mapped(program: Program) -> Option<[f64; 2]> {
    match program {
        Program::Graph500 => Some([60.0, 3.35]),
        Program::Svm => Some([65.0, 3.5]),
        _ => None,
    }
}

/// Rows for the end, with what follows from the paper's Table 3; `found` is mappable by 1 GiB and by
/// 2 MiB.
fn add_paper(
    table: &mut Table,
    program: Program,
    [gigantic, huge]: [f64; 2],
    rests: &Rests,
) -> Result<()> {
    let Some([by_gigantic, by_huge]) = mapped(program) else { return Ok(()) };
    let case = format!("{}, at the end", program.name());
    for (name, paper, measured) in [
        ("mappable by 1 GiB (paper: derived)", by_gigantic, gigantic),
        ("mappable by 2 MiB (paper: derived)", by_gigantic + by_huge, huge),
        ("mappable by 2 MiB and not by 1 GiB (paper: derived)", by_huge, huge - gigantic),
    ] {
        let quantity = Quantity { case: &case, policy: "any", name, unit: "GiB" };
        table.add(quantity, Some(paper), measured, rests)?;
    }
    Ok(())
}

/// GiB in whole pages of this size that lie in one VMA each.
fn mappable(vmas: &[Vma], size: PageSize) -> f64 {
    let page = size.bytes().0;
    let of =
        |vma: &Vma| ((vma.end.0 / page).saturating_sub(vma.start.0.div_ceil(page)) * page) as f64;
    vmas.iter().map(of).sum::<f64>() / Bytes::from_gib(1).0 as f64
}
