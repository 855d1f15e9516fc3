//! `trident-fig3`: memory that 1 GiB and 2 MiB pages could map while Graph500 and SVM get theirs
//! (Trident, Figure 3).

use super::support_trident_programs::{Backed, Program};
use super::support_trident_runs::{Case, Memory};
use super::{
    Basis, COLUMNS, Error, Experiment, On, Progress, Quantity, Report, Result, Setting, Table,
};
use superpage_units::{Bytes, Nanos, PageSize, Vma};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig3",
    source: "Trident, Figure 3",
    summary: "Memory of Graph500 and SVM that 1 GiB and that 2 MiB pages could map, over time",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for program in [Program::Graph500, Program::Svm] {
        progress(program.name())?;
        let case = Case::native(program, "trident-faults-only", Memory::Unfragmented);
        let mut run = case.prepare(setting)?;
        let workload = program.workload(Backed::Asked, run.hardware().profile.cpu.frequency.value);
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
            for (size, quantity) in
                [(PageSize::Gigantic, "mappable by 1 GiB"), (PageSize::Huge, "mappable by 2 MiB")]
            {
                let policy = "any";
                let quantity = Quantity { case: &name, policy, name: quantity, unit: "GiB" };
                table.add(quantity, None, mappable(process.vmas(), size), Basis::Assumed)?;
            }
        }
    }
    table.note(
        "The VMAs are assumed (see trident-table3), and so is the time that a program takes to \
         fill them; what it frees and gets again later is not modelled. The paper's text has \
         several GB that 2 MiB pages could map and 1 GiB pages could not, for both.",
    );
    Ok(table.report)
}

/// GiB in whole pages of this size that lie in one VMA each.
fn mappable(vmas: &[Vma], size: PageSize) -> f64 {
    let page = size.bytes().0;
    let of =
        |vma: &Vma| ((vma.end.0 / page).saturating_sub(vma.start.0.div_ceil(page)) * page) as f64;
    vmas.iter().map(of).sum::<f64>() / Bytes::from_gib(1).0 as f64
}
