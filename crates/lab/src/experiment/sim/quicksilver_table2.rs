//! `quicksilver-table2`: how much memory Redis takes after random deletions (Del-70), and with values
//! of random sizes (Range-XL) (Quicksilver, Table 2).

use super::support_quicksilver::{Frag, Server, machine, overhead};
use super::{
    COLUMNS, Cell, Constant, Constants, Experiment, On, Progress, Quantity, Report, Result,
    Setting, Table,
};
use superpage_sim::random::Random;
use superpage_sim::workload::redis::{Equal, Sizes, Slab, insert_random};
use superpage_units::{Bytes, Nanos};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-table2",
    source: "Quicksilver, Table 2",
    summary: "Memory that Redis takes after deleting 70 % of its objects, and with values of any \
              size up to 1 MB",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const POLICIES: [&str; 10] = [
    "linux-4k",
    "linux-nokhugepaged",
    "linux",
    "freebsd",
    "ingens",
    "hawkeye",
    "quicksilver-sync-1",
    "quicksilver-sync-64",
    "quicksilver-async-64",
    "quicksilver-async-256",
];

static OBJECTS: Constant<u64> = Constant::assumed(
    "quicksilver.del70-objects",
    2_000_000,
    "objects before the deletion: 16 GB of 8 KB each, as much as in Redis Cold; not said",
);
static VALUE: Constant<()> = Constant::assumed(
    "quicksilver.del70-value",
    (),
    "objects of Del-70 have 8 KB each, two to a run of five pages; not said",
);
static DELETED: Constant<f64> =
    Constant::paper("quicksilver.del70-deleted", 0.7, "Observation 1: deletes 70 % of objects");
static COUNT: Constant<u64> = Constant::fitted(
    "quicksilver.range-xl-count",
    27_400,
    &[Cell {
        experiment: "quicksilver-table2",
        case: "Range-XL",
        policy: "linux-4k",
        quantity: "memory",
    }],
    "values of Range-XL, so that Linux-4KB takes what it takes in the paper",
);
static LEAST: Constant<Bytes> = Constant::paper(
    "quicksilver.range-xl-least",
    Bytes(256),
    "Observation 1: between 256 bytes and 1 MB",
);
static MOST: Constant<Bytes> = Constant::paper(
    "quicksilver.range-xl-most",
    Bytes::from_mib(1),
    "Observation 1: between 256 bytes and 1 MB",
);
static KEEP_BUFFER: Constant<f64> = Constant::fitted(
    "quicksilver.range-xl-keep-buffer",
    0.57,
    &[Cell {
        experiment: "quicksilver-table2",
        case: "Range-XL",
        policy: "linux-nokhugepaged",
        quantity: "memory",
    }],
    "the share of the values that keep the buffer they were read into",
);
static LATER: Constant<Nanos> = Constant::assumed(
    "quicksilver.table2-later",
    Nanos(4 * 3600 * 1_000_000_000),
    "khugepaged's time to come by everything once: 22 GiB at 16 MiB every ten seconds",
);
static OWN: Constant<Nanos> = Constant::assumed(
    "quicksilver.table2-own",
    Nanos(4000),
    "the server's own time for each base page written, about 1 GB/s, and none for requests",
);

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for case in ["Del-70", "Range-XL"] {
        for policy in POLICIES {
            progress(&format!("{case}: {policy}"))?;
            let constants = Constants::of(setting);
            let memory = memory(case, policy, setting, &constants)?;
            let quantity = Quantity { case, policy, name: "memory", unit: "GB" };
            let measured = memory.0 as f64 / 1e9;
            table.add(quantity, paper(case, policy), measured, &constants.rests())?;
        }
    }
    table.note(
        "Del-70: 2 million objects of 8 KB are assumed, two to a run of five pages in jemalloc; \
         runs without objects go back, but for an eighth of what is in use. khugepaged then has \
         four hours, enough to come by everything once (assumed).",
    );
    table.note(
        "Range-XL: the number of values and the share of them that keep the doubled buffer they \
         were read into are fitted to two numbers of this row; the others of it are not fitted. \
         In the model every chunk is touched at once, so first touch maps all of it and leaves \
         khugepaged nothing; in the paper khugepaged adds 5 GB.",
    );
    table
        .note("Memory is what is mapped; frames that are reserved and not populated do not count.");
    Ok(table.report)
}

/// The memory that Redis takes in the end.
fn memory(case: &str, policy: &str, setting: &Setting, constants: &Constants) -> Result<Bytes> {
    let run = machine(policy, Frag::Zero, setting, constants)?;
    let mut server = Server::new(run, (Nanos::ZERO, constants.get(&OWN)), constants);
    let mut random = Random::new(setting.seed);
    let mut listen = |event| server.hear(event);
    if case == "Del-70" {
        constants.get(&VALUE);
        let mut heap = Equal::new(Slab::VALUE_8K, overhead(constants));
        heap.insert(constants.get(&OBJECTS), &mut listen)?;
        heap.delete(constants.get(&DELETED), &mut random, &mut listen)?;
    } else {
        insert_random(range_xl(constants), overhead(constants), &mut random, &mut listen)?;
    }
    server.rest(constants.get(&LATER));
    Ok(server.resident())
}

/// The values of Range-XL.
fn range_xl(constants: &Constants) -> Sizes {
    Sizes {
        count: constants.get(&COUNT),
        between: (constants.get(&LEAST), constants.get(&MOST)),
        keep_buffer: constants.get(&KEEP_BUFFER),
    }
}

fn paper(case: &str, policy: &str) -> Option<f64> {
    match (case, policy) {
        ("Del-70", "linux-4k") => Some(11.6),
        ("Del-70", "linux-nokhugepaged") => Some(11.7),
        ("Del-70", "linux") => Some(19.8),
        ("Range-XL", "linux-4k") => Some(14.4),
        ("Range-XL", "linux-nokhugepaged") => Some(25.7),
        ("Range-XL", "linux") => Some(30.7),
        _ => None,
    }
}
