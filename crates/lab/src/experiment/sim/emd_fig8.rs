//! `emd-fig8` on the simulated machine: one instance of each program, 20 to 50 % of its footprint
//! reclaimed; also what that costs in time (EMD, Figures 7 and 8).

use super::super::emd_paper;
use super::support_emd::{Kind, SHARE_OF_FOOTPRINT, Stage};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::hawkeye::HAWKEYE;
use superpage_policy::debloat::list::Entry;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig8",
    source: "EMD, Figures 7 and 8",
    summary: "Huge pages that one program keeps, and its slowdown, when 20 to 50 % are reclaimed",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const FRACTIONS: [f64; 4] = [0.2, 0.3, 0.4, 0.5];
const POLICIES: [Entry; 2] = [HAWKEYE, EMD];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for kind in Kind::ALL {
        for policy in POLICIES {
            let (mut slowdowns, mut all) = (Vec::new(), Vec::new());
            for fraction in FRACTIONS {
                progress(&format!("{}: {policy}, {:.0} %", kind.name(), 100.0 * fraction))?;
                let mut stage = Stage::new(&[kind], "linux-nokhugepaged", setting)?;
                let need = stage.footprint().bytes().scaled(fraction).to_base_pages();
                stage.debloat(policy, need);
                let rests = stage.rests();
                let Some(timed) = stage.time()?.first().copied() else { continue };
                let case = format!("{}, {:.0} %", kind.name(), 100.0 * fraction);
                let of = |name, unit| Quantity { case: &case, policy: policy.name, name, unit };
                let paper = emd_paper::retained(kind.name(), policy.name, fraction);
                table.add(of("retained", "share"), paper, timed.retained, &rests)?;
                table.add(of("slowdown", "ratio"), None, timed.slowdown, &rests)?;
                slowdowns.push(timed.slowdown);
                all.push(rests);
            }
            let mean = slowdowns.iter().sum::<f64>() / slowdowns.len() as f64;
            let quantity = Quantity {
                case: kind.name(),
                policy: policy.name,
                name: "mean slowdown",
                unit: "ratio",
            };
            let paper = emd_paper::mean_slowdown(kind.name(), policy.name);
            table.add(quantity, paper, mean, &Rests::all(&all))?;
        }
    }
    table.note(
        "How bloat lies in BTree and Memcached was chosen with Table 2 in view: the paper shows three kinds of ranges \
         and the totals.",
    );
    table.note(SHARE_OF_FOOTPRINT);
    table.note(
        "Of the paper's numbers 0.5 and 1.01 are bounds: it has more than 50 % and less than 1.01 \
         times. Its text has about 18 % of RandomAccess-R's huge pages at 40 %, where the layout of its \
         section 3.1 leaves 12.5 %; and it calls the order of addresses optimal for RandomAccess-R, \
         where by its Figure 4 it is so for RandomAccess-L.",
    );
    Ok(table.report)
}
