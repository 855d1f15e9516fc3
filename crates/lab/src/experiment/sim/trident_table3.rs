//! `trident-table3`: memory mapped by 1 GiB and by 2 MiB under Trident's mechanisms (Trident,
//! Table 3).

use super::support_trident_programs::Program;
use super::support_trident_runs::{self, Case, Memory};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};
use superpage_units::PageSize;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-table3",
    source: "Trident, Table 3",
    summary: "Memory mapped by 1 GiB and by 2 MiB pages by the fault handler alone, and with \
              promotion and either compaction",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

/// The mechanisms, in the order of the columns.
const POLICIES: [&str; 3] = ["trident-faults-only", "trident-nc", "trident"];

/// GB by 1 GiB and by 2 MiB for each mechanism: un-fragmented, then fragmented.
type Row = [[[f64; 2]; 3]; 2];

const fn paper(program: Program) -> Option<Row> {
    Some(match program {
        Program::XsBench => {
            [[[114.0, 2.94], [116.0, 1.2], [116.0, 1.2]], [[6.0, 5.3], [79.0, 38.1], [80.0, 37.1]]]
        }
        Program::Gups => {
            [[[31.0, 1.0], [31.0, 1.0], [31.0, 1.0]], [[9.0, 2.5], [31.0, 1.0], [31.0, 1.0]]]
        }
        Program::Svm => {
            [[[54.0, 14.3], [65.0, 3.5], [65.0, 3.5]], [[6.0, 5.0], [53.0, 12.2], [54.0, 9.9]]]
        }
        Program::Redis => {
            [[[0.0, 0.5], [39.0, 3.4], [39.0, 3.4]], [[0.0, 0.0], [25.0, 10.3], [28.0, 14.3]]]
        }
        Program::Btree => {
            [[[0.0, 16.7], [16.0, 5.8], [16.0, 5.8]], [[0.0, 11.7], [8.0, 12.73], [12.0, 8.91]]]
        }
        Program::Graph500 => {
            [[[59.0, 4.01], [60.0, 3.35], [60.0, 3.35]], [[5.0, 5.8], [37.0, 24.2], [38.0, 23.6]]]
        }
        Program::Memcached => [
            [[16.0, 121.0], [121.0, 16.0], [121.0, 16.0]],
            [[9.0, 60.0], [12.0, 55.0], [16.0, 60.0]],
        ],
        Program::Canneal => {
            [[[8.0, 1.0], [30.0, 2.0], [30.0, 2.0]], [[6.0, 1.0], [6.0, 21.0], [8.0, 22.0]]]
        }
        Program::Cc | Program::Bc | Program::Pr | Program::CgD => return None,
    })
}

/// The shares (0 to 1) of its memory that 1 GiB and 2 MiB pages map, by the paper's name of a program and the name of a
/// state of memory.
pub(in crate::experiment) fn paper_shares(
    program: &str,
    memory: &str,
    policy: &str,
) -> Option<[f64; 2]> {
    let program = Program::SENSITIVE.into_iter().find(|known| known.name() == program)?;
    let block = Memory::BOTH.iter().position(|known| known.name() == memory)?;
    let column = POLICIES.iter().position(|known| *known == policy)?;
    let sizes = *paper(program)?.get(block)?.get(column)?;
    Some(sizes.map(|size| size / footprint(program)))
}

/// The memory of a program in GB, the first column.
const fn footprint(program: Program) -> f64 {
    match program {
        Program::XsBench => 117.0,
        Program::Gups => 32.0,
        Program::Svm => 68.5,
        Program::Redis => 44.0,
        Program::Btree => 25.0,
        Program::Graph500 => 63.5,
        Program::Memcached => 137.0,
        Program::Canneal => 32.0,
        Program::Cc | Program::Bc | Program::Pr | Program::CgD => f64::NAN,
    }
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let mut cases = Vec::new();
    for memory in Memory::BOTH {
        for program in Program::SENSITIVE {
            cases.extend(POLICIES.map(|policy| Case::native(program, policy, memory)));
        }
    }
    support_trident_runs::make(&cases, setting, progress)?;
    for (memory, block) in Memory::BOTH.into_iter().zip(0..) {
        for program in Program::SENSITIVE {
            for (policy, column) in POLICIES.into_iter().zip(0..) {
                let outcome = Case::native(program, policy, memory).outcome(setting)?;
                let case = format!("{}, {}", program.name(), memory.name());
                let row: Option<Row> = paper(program);
                for (size, name) in
                    [(PageSize::Gigantic, "mapped by 1 GiB"), (PageSize::Huge, "mapped by 2 MiB")]
                {
                    let at = usize::from(size == PageSize::Huge);
                    let quantity = Quantity { case: &case, policy, name, unit: "GiB" };
                    let paper = row.map(|row: Row| row[block][column][at]);
                    table.add(quantity, paper, outcome.mapped_by(size), &outcome.rests)?;
                }
            }
        }
    }
    notes(&mut table);
    Ok(table.report)
}

fn notes(table: &mut Table) {
    table.note(
        "Sizes of VMAs and of growth are assumed for each program, chosen with their rows in view for \
         Graph500, SVM, Memcached and Canneal, and fitted for Btree (nine vmas that grow by 6 MiB, from \
         its un-fragmented row).",
    );
    table.note(
        "Fragmented: 7 GiB in whole chunks and 133 GiB in base pages at random places are free \
         (FMFI 0.95), file pages fill the rest, and 128 unmovable pages lie at random places. The \
         paper gives the FMFI only; the amounts are chosen with this table in view. Growth of kernel memory while a \
         program runs is not modelled, so promotions go on for longer than in the paper.",
    );
}
