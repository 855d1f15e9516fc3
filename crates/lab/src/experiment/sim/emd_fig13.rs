//! `emd-fig13` on the simulated machine: one B+ tree, then one memcached, 20 to 50 % reclaimed
//! (EMD, Figures 12 to 14).

use super::emd_fig10::take_back;
use super::support_emd::Kind;
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::hawkeye::HAWKEYE;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig13",
    source: "EMD, Figures 12 to 14",
    summary: "How evenly a B+ tree and memcached are hurt when 20 to 50 % are reclaimed",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for fraction in [0.2, 0.3, 0.4, 0.5] {
        for (policy, paper) in [(HAWKEYE, 0.91), (EMD, 0.99)] {
            let case = format!("BTree and Memcached, {:.0} %", 100.0 * fraction);
            progress(&format!("{case}: {policy}"))?;
            let kinds = [Kind::BTree, Kind::Memcached];
            take_back(&mut table, &kinds, &case, (policy, fraction), Some(paper), setting)?;
        }
    }
    table.note("The paper gives HawkEye's fairness as a mean over the four shares.");
    Ok(table.report)
}
