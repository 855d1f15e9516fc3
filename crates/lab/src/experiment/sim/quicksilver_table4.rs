//! `quicksilver-table4`: speed of two programs that allocate again and again, and of one whose heap grows, relative to Linux, with
//! memory that is not fragmented (Quicksilver, Table 4 and section "Unfragmented Performance").

use super::support_quicksilver::{Frag, Program, Timed};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-table4",
    source: "Quicksilver, Table 4 and section \"Unfragmented Performance\"",
    summary: "Speed of GraphChi-PR, BlockSVM and canneal relative to Linux with unfragmented memory",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const POLICIES: [&str; 8] = [
    "ingens",
    "ingens-star",
    "hawkeye",
    "hawkeye-star",
    "freebsd",
    "quicksilver-sync-1",
    "quicksilver-sync-64",
    "quicksilver-async-64",
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for program in [Program::GraphChi, Program::BlockSvm, Program::Canneal] {
        let case = program.name();
        progress(&format!("{case}: linux"))?;
        let linux = Timed::of(program, "linux", Frag::Zero, setting)?;
        for policy in POLICIES {
            progress(&format!("{case}: {policy}"))?;
            let timed = Timed::of(program, policy, Frag::Zero, setting)?;
            let (speed, rests) = timed.speed_over(&linux);
            let quantity =
                Quantity { case, policy, name: "speed relative to linux", unit: "ratio" };
            table.add(quantity, paper(case, policy), speed, &rests)?;
        }
    }
    table.note(
        "Sizes, loading and accesses of GraphChi-PR and BlockSVM are assumed; the cycles of an access, the \
         same in both, are fitted to FreeBSD on GraphChi-PR. Their threads read files ahead, so \
         nobody waits for the device (assumed). Files are not mapped here, so superpages for files, \
         which Sync-1 has, gain nothing. canneal is as in Table 6.",
    );
    table.note(
        "A promotion by copying keeps faults waiting but takes no CPU from the program. HawkEye \
         samples every 30 s (assumed), which is longer than these programs run here, so that it \
         promotes next to nothing, and HawkEye* no more.",
    );
    Ok(table.report)
}

fn paper(case: &str, policy: &str) -> Option<f64> {
    let columns = match case {
        "GraphChi-PR" => [0.58, 0.58, 0.53, 0.60, 0.77],
        "BlockSVM" => [0.81, 0.79, 0.73, 0.81, 0.96],
        _ => return None,
    };
    let at = POLICIES.iter().position(|name| *name == policy)?;
    columns.get(at).copied()
}
