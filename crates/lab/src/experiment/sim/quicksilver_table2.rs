//! `quicksilver-table2`: how much memory Redis takes after random deletions (Del-70), and with values
//! of random sizes (Range-XL) (Quicksilver, Table 2).

use super::support_quicksilver::{Frag, Server, machine};
use super::{Basis, COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};
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
    run,
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

/// Objects before the deletion. Assumed: 2 million of 8 KB, 16 GB as in Redis Cold.
const OBJECTS: u64 = 2_000_000;
const DELETED: f64 = 0.7;
/// Values of Range-XL, chosen so that Linux-4KB takes what it takes in the paper, and the share of
/// them that keep the buffer they were read into, chosen likewise for Linux-noKhugepaged.
const RANGE_XL: Sizes =
    Sizes { count: 27_400, between: (Bytes(256), Bytes::from_mib(1)), keep_buffer: 0.57 };
/// Afterwards khugepaged has time to come by everything once: 22 GiB at 16 MiB every ten seconds.
/// Assumed: the article says nothing about it.
const LATER: Nanos = Nanos(4 * 3600 * 1_000_000_000);
/// Of the server's own: 4 us for each base page written, about 1 GB/s. Assumed.
const OWN: (Nanos, Nanos) = (Nanos::ZERO, Nanos(4000));

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for case in ["Del-70", "Range-XL"] {
        for policy in POLICIES {
            progress(&format!("{case}: {policy}"))?;
            let mut server = Server::new(machine(policy, Frag::Zero, setting)?, OWN);
            let mut random = Random::new(setting.seed);
            let mut listen = |event| server.hear(event);
            if case == "Del-70" {
                let mut heap = Equal::new(Slab::VALUE_8K);
                heap.insert(OBJECTS, &mut listen)?;
                heap.delete(DELETED, &mut random, &mut listen)?;
            } else {
                insert_random(RANGE_XL, &mut random, &mut listen)?;
            }
            server.rest(LATER);
            let (paper, basis) = paper(case, policy);
            let quantity = Quantity { case, policy, name: "memory", unit: "GB" };
            table.add(quantity, paper, server.resident().0 as f64 / 1e9, basis)?;
        }
    }
    table.note(
        "Del-70: 2 million objects of 8 KB are assumed, two to a run of five pages in jemalloc; \
         runs without objects go back, but for an eighth of what is in use. khugepaged then has \
         four hours, enough to come by everything once (assumed).",
    );
    table.note(
        "Range-XL: the number of values and the share of them that keep the doubled buffer they \
         were read into are fitted to two numbers of this row; the others of it are predicted. \
         In the model every chunk is touched at once, so first touch maps all of it and leaves \
         khugepaged nothing; in the paper khugepaged adds 5 GB.",
    );
    table
        .note("Memory is what is mapped; frames that are reserved and not populated do not count.");
    Ok(table.report)
}

fn paper(case: &str, policy: &str) -> (Option<f64>, Basis) {
    match (case, policy) {
        ("Del-70", "linux-4k") => (Some(11.6), Basis::Predicted),
        ("Del-70", "linux-nokhugepaged") => (Some(11.7), Basis::Predicted),
        ("Del-70", "linux") => (Some(19.8), Basis::Predicted),
        ("Range-XL", "linux-4k") => (Some(14.4), Basis::Fitted),
        ("Range-XL", "linux-nokhugepaged") => (Some(25.7), Basis::Fitted),
        ("Range-XL", "linux") => (Some(30.7), Basis::Predicted),
        _ => (None, Basis::Predicted),
    }
}
