//! `emd-table3` on the simulated machine: run times on base pages, with bloat, and after all bloat
//! was reclaimed (EMD, Table 3).

use super::super::emd_paper;
use super::support_emd::{Kind, Stage};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};
use superpage_policy::debloat::emd::EMD;
use superpage_units::BasePages;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-table3",
    source: "EMD, Table 3",
    summary: "Run times with huge pages, and after all bloat was reclaimed, against 4 KiB pages",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for kind in Kind::ALL {
        progress(kind.name())?;
        let base = last(&Stage::new(&[kind], "linux-4k", setting)?);
        let stage = Stage::new(&[kind], "linux-nokhugepaged", setting)?;
        let rests = stage.rests();
        let high = last(&stage);
        let low = high * after_all(stage)?;
        let [paper_base, paper_high, paper_low] =
            emd_paper::seconds(kind.name()).unwrap_or([f64::NAN; 3]);
        let of =
            |policy| Quantity { case: kind.name(), policy, name: "relative time", unit: "ratio" };
        table.add_reference(of("linux-4k"))?;
        table.add(of("emd, high bloat"), Some(paper_high / paper_base), high / base, &rests)?;
        table.add(of("emd, low bloat"), Some(paper_low / paper_base), low / base, &rests)?;
    }
    table.note(
        "The paper does not say what its columns mean; read here as on the live machine: nothing \
         reclaimed, and all bloat reclaimed. It has seconds; its relative times are derived from them.",
    );
    Ok(table.report)
}

fn last(stage: &Stage) -> f64 {
    stage.seconds().first().copied().unwrap_or(f64::NAN)
}

/// The slowdown after all bloat was reclaimed.
fn after_all(mut stage: Stage) -> Result<f64> {
    stage.debloat(EMD, BasePages(u64::MAX));
    Ok(stage.time()?.first().map_or(f64::NAN, |timed| timed.slowdown))
}
