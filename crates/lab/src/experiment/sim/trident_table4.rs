//! `trident-table4`: how often no 1 GiB chunk can be had on fragmented memory (Trident, Table 4).

use super::support_trident_programs::Program;
use super::support_trident_runs::{self, Case, Memory};
use super::{
    COLUMNS, Constants, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table,
};
use superpage_units::PageSize;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-table4",
    source: "Trident, Table 4",
    summary: "Share of the attempts to allocate 1 GiB that fail on fragmented memory, at faults \
              and in promotion",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

/// Failures in percent: at faults, in promotion.
const fn paper(program: Program) -> (Option<f64>, Option<f64>) {
    match program {
        Program::XsBench => (Some(94.0), Some(32.0)),
        Program::Gups => (Some(71.0), Some(0.0)),
        Program::Svm => (Some(88.0), Some(19.0)),
        Program::Redis => (None, Some(36.0)),
        Program::Graph500 => (Some(91.0), Some(38.0)),
        Program::Btree => (None, Some(25.0)),
        Program::Memcached => (Some(43.0), Some(81.0)),
        Program::Canneal => (Some(12.0), Some(92.0)),
        Program::Cc | Program::Bc | Program::Pr | Program::CgD => (None, None),
    }
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let case = |program| Case::native(program, "trident", Memory::Fragmented);
    support_trident_runs::make(&Program::SENSITIVE.map(case), setting, progress)?;
    let gigantic = PageSize::Gigantic.index();
    for program in Program::SENSITIVE {
        let outcome = case(program).outcome(setting)?;
        let (at_fault, in_promotion) = paper(program);
        let counts = outcome.counts;
        let of = |name| Quantity { case: program.name(), policy: "trident", name, unit: "percent" };
        let attempts = counts.fault_attempts[gigantic];
        let failed = 100.0 * counts.fault_failures[gigantic] as f64 / attempts as f64;
        if attempts > 0 {
            table.add(of("failed at faults"), at_fault, failed, &outcome.rests)?;
        }
        let constants = Constants::of(setting);
        let mappable = program.mappable(PageSize::Gigantic, &constants);
        let rests = Rests::all([&constants.rests(), &outcome.rests]);
        let ranges = mappable - counts.faults[gigantic] as f64;
        let promoted = counts.promotions[gigantic] as f64;
        let left = 100.0 * (1.0 - promoted / ranges);
        table.add(of("ranges never promoted"), in_promotion, left, &rests)?;
        let attempts = counts.promotion_attempts[gigantic] as f64;
        let failed = 100.0 * counts.promotion_failures[gigantic] as f64 / attempts;
        table.add(of("failed in promotion"), None, failed, &outcome.rests)?;
    }
    table.note(
        "The paper's failures in promotion are taken as its Table 3's ranges that were not promoted \
         (XSBench: 36 of 116; near for all but Redis, Memcached and Graph500), so they are held against those here. Attempts are repeated in each \
         round of the scan, and counted in the third number. Where a program has no range of 1 GiB \
         at a fault, there is no attempt (NA in the paper). The paper's text has 71 to 94 % at faults, its \
         table 43 and 12 % for Memcached and Canneal too; its introduction says about a third.",
    );
    table.note("What memory looks like was chosen with trident-table3 in view.");
    Ok(table.report)
}
