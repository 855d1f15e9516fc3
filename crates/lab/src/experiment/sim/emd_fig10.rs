//! `emd-fig10` on the simulated machine: four instances of each program, 20 and 40 % reclaimed
//! (EMD, Figures 9 to 11).

use super::super::emd_paper;
use super::support_emd::{Kind, SHARE_OF_FOOTPRINT, Stage};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::emd_literal::EMD_LITERAL;
use superpage_policy::debloat::hawkeye::HAWKEYE;
use superpage_policy::debloat::list::Entry;
use superpage_policy::fairness::fairness;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig10",
    source: "EMD, Figures 9 to 11",
    summary: "How evenly four instances of one program are hurt when 20 and 40 % are reclaimed",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const FRACTIONS: [f64; 2] = [0.2, 0.4];
/// The policies that the paper compares, and EMD to the letter.
pub(super) const POLICIES: [Entry; 3] = [HAWKEYE, EMD, EMD_LITERAL];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for kind in Kind::ALL {
        for fraction in FRACTIONS {
            for policy in POLICIES {
                let case = format!("4 x {}, {:.0} %", kind.name(), 100.0 * fraction);
                progress(&format!("{case}: {policy}"))?;
                let said = said(kind, policy, fraction);
                take_back(&mut table, &[kind; 4], &case, (policy, fraction), said, setting)?;
            }
        }
    }
    table.note(SHARE_OF_FOOTPRINT);
    table.note(
        "The paper's text has slowdowns and huge pages retained of BTree at 40 % only. Under HawkEye \
         its third and fourth instance are hardly hurt and keep nearly all of their huge pages. EMD is here \
         as the daemon has it (emd) and to the letter of the paper (emd-literal); the paper's numbers stand \
         beside both. Fairness of RandomAccess under HawkEye is the paper's average, beside both shares.",
    );
    Ok(table.report)
}

/// What the paper's text says of one case: the fairness, and numbers of the first instances, in the
/// order in which they were started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) fairness: Option<f64>,
    pub(super) slowdowns: &'static [f64],
    pub(super) retained: &'static [f64],
}

/// Takes a share of all programs' memory back, and says how evenly that hurts them.
pub(super) fn take_back(
    table: &mut Table,
    kinds: &[Kind],
    case: &str,
    (policy, fraction): (Entry, f64),
    said: Said,
    setting: &Setting,
) -> Result<()> {
    let mut stage = Stage::new(kinds, "linux-nokhugepaged", setting)?;
    let need = stage.footprint().bytes().scaled(fraction).to_base_pages();
    stage.debloat(policy, need);
    let rests = stage.rests();
    let timed = stage.time()?;
    let policy = policy.name;
    let slowdowns: Vec<f64> = timed.iter().map(|timed| timed.slowdown).collect();
    let fair = fairness(&slowdowns).unwrap_or(f64::NAN);
    let quantity = Quantity { case, policy, name: "fairness", unit: "score" };
    table.add(quantity, said.fairness, fair, &rests)?;
    for (at, timed) in timed.iter().enumerate() {
        let name = format!("slowdown of instance {}", at + 1);
        let quantity = Quantity { case, policy, name: &name, unit: "ratio" };
        table.add(quantity, said.slowdowns.get(at).copied(), timed.slowdown, &rests)?;
        let name = format!("retained by instance {}", at + 1);
        let quantity = Quantity { case, policy, name: &name, unit: "share" };
        table.add(quantity, said.retained.get(at).copied(), timed.retained, &rests)?;
    }
    Ok(())
}

/// From the text of section 5.3.2.
fn said(kind: Kind, policy: Entry, fraction: f64) -> Said {
    let fairness = emd_paper::fairness(kind.name(), policy.name);
    let (slowdowns, retained): (&[f64], &[f64]) = match (kind, policy.name) {
        (Kind::BTree, "hawkeye") if fraction == 0.4 => (&[1.26, 1.25], &[0.14, 0.14]),
        (Kind::BTree, "emd" | "emd-literal") if fraction == 0.4 => (&[], &[0.56; 4]),
        _ => (&[], &[]),
    };
    Said { fairness, slowdowns, retained }
}
