//! `emd-fig10` on the simulated machine: four instances of each program, 20 and 40 % reclaimed
//! (EMD, Figures 9 to 11).

use super::support_emd::{Kind, Stage};
use super::{Basis, COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::hawkeye::HAWKEYE;
use superpage_policy::debloat::list::Entry;
use superpage_policy::fairness::fairness;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig10",
    source: "EMD, Figures 9 to 11",
    summary: "How evenly four instances of one program are hurt when 20 and 40 % are reclaimed",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

const FRACTIONS: [f64; 2] = [0.2, 0.4];
const POLICIES: [Entry; 2] = [HAWKEYE, EMD];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for kind in Kind::ALL {
        for fraction in FRACTIONS {
            for policy in POLICIES {
                let case = format!("4 x {}, {:.0} %", kind.name(), 100.0 * fraction);
                progress(&format!("{case}: {policy}"))?;
                let paper = paper(kind, policy);
                take_back(&mut table, &[kind; 4], &case, (policy, fraction), paper, setting)?;
            }
        }
    }
    Ok(table.report)
}

/// Takes a share of all programs' memory back, and says how evenly that hurts them.
pub(super) fn take_back(
    table: &mut Table,
    kinds: &[Kind],
    case: &str,
    (policy, fraction): (Entry, f64),
    paper: Option<f64>,
    setting: &Setting,
) -> Result<()> {
    let mut stage = Stage::new(kinds, "linux-nokhugepaged", setting)?;
    let need = stage.footprint().bytes().scaled(fraction).to_base_pages();
    stage.debloat(policy, need);
    let timed = stage.time()?;
    let policy = policy.name;
    let slowdowns: Vec<f64> = timed.iter().map(|timed| timed.slowdown).collect();
    let fair = fairness(&slowdowns).unwrap_or(f64::NAN);
    let basis =
        if kinds.iter().all(|kind| kind.is_known()) { Basis::Predicted } else { Basis::Assumed };
    table.add(Quantity { case, policy, name: "fairness", unit: "score" }, paper, fair, basis)?;
    for (at, timed) in timed.iter().enumerate() {
        let name = format!("slowdown of instance {}", at + 1);
        let quantity = Quantity { case, policy, name: &name, unit: "ratio" };
        table.add(quantity, None, timed.slowdown, basis)?;
        let name = format!("retained by instance {}", at + 1);
        let quantity = Quantity { case, policy, name: &name, unit: "share" };
        table.add(quantity, None, timed.retained, basis)?;
    }
    Ok(())
}

/// What the text says of Figure 10.
fn paper(kind: Kind, policy: Entry) -> Option<f64> {
    match (kind, policy.name) {
        (Kind::BTree | Kind::Memcached, "emd") => Some(1.0),
        (Kind::RandomAccessL, "hawkeye") => Some(0.65),
        (Kind::RandomAccessR, "hawkeye") => Some(0.72),
        (Kind::RandomAccessL | Kind::RandomAccessR, "emd") => Some(0.95),
        _ => None,
    }
}
