//! `quicksilver-sparse`: time and memory of a program that touches its memory sparsely (Quicksilver, Observation 1).

use super::support_quicksilver::{Frag, LAG, machine};
use super::{
    COLUMNS, Constant, Constants, Experiment, On, Progress, Quantity, Report, Result, Setting,
    Table,
};
use superpage_sim::run::Driven;
use superpage_units::{Bytes, HUGE_PAGE_BYTES, VirtAddr};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-sparse",
    source: "Quicksilver, Observation 1",
    summary: "Time and memory of a microbenchmark that sparsely touches 30 GB of anonymous memory",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const POLICIES: [&str; 6] = [
    "linux-4k",
    "linux-nokhugepaged",
    "freebsd",
    "quicksilver-sync-1",
    "quicksilver-sync-64",
    "quicksilver-async-64",
];
/// Where the memory begins.
const START: VirtAddr = VirtAddr(1 << 35);

static SIZE: Constant<Bytes> =
    Constant::paper("quicksilver.sparse-size", Bytes(30_000_000_000), "Observation 1: 30 GB");
static STRIDE: Constant<Bytes> = Constant::assumed(
    "quicksilver.sparse-stride",
    Bytes(HUGE_PAGE_BYTES),
    "from one touched base page to the next; the paper says \"sparsely\", and that all of it becomes superpages",
);

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for policy in POLICIES {
        progress(policy)?;
        let constants = Constants::of(setting);
        let (seconds, memory) = touch(policy, setting, &constants)?;
        let rests = constants.rests();
        let of = |name, unit| Quantity { case: "30 GB", policy, name, unit };
        let (time_of_paper, memory_of_paper) = paper(policy).unzip();
        table.add(of("time", "s"), time_of_paper, seconds, &rests)?;
        table.add(of("memory", "GB"), memory_of_paper, memory.0 as f64 / 1e9, &rests)?;
    }
    table.note(
        "The program does nothing else, and khugepaged does not run. Memory is what is mapped, without page tables. How sparsely the \
         paper's program touches is not said: its 0.2 GB are 3 to 4 base pages for each 2 MiB, or fewer with page tables.",
    );
    Ok(table.report)
}

/// Seconds and GB.
fn paper(policy: &str) -> Option<(f64, f64)> {
    match policy {
        "linux-4k" => Some((0.06, 0.2)),
        "linux-nokhugepaged" => Some((1.4, 30.0)),
        _ => None,
    }
}

/// Seconds that the touches take, and the memory that they map.
fn touch(policy: &str, setting: &Setting, constants: &Constants) -> Result<(f64, Bytes)> {
    let run = machine(policy, Frag::Zero, setting, constants)?;
    let (size, stride) = (constants.get(&SIZE), constants.get(&STRIDE));
    let mut program = Driven::new(run, START, size, constants.get(&LAG));
    for at in 0..size.0 / stride.0 {
        program.write(START.offset(Bytes(at * stride.0)))?;
        program.catch_up();
    }
    let resident = program.run().machine().resident(program.key()).bytes();
    Ok((program.elapsed().as_secs_f64(), resident))
}
