//! `quicksilver-table5`: throughput and tail latency of Redis while it is filled, at three levels of
//! fragmentation (Quicksilver, Table 5; Frag-100 from its section "Performance under
//! Fragmentation").

use super::support_quicksilver::{FRAGMENTATION, Frag, Server, machine, overhead};
use super::{
    COLUMNS, Cell, Constant, Constants, Experiment, On, Progress, Quantity, Report, Result,
    Setting, Table,
};
use superpage_sim::workload::redis::{Equal, Slab};
use superpage_units::{Bytes, Nanos};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-table5",
    source: "Quicksilver, Table 5 and section \"Performance under Fragmentation\"",
    summary: "Throughput and 95th percentile of the latency of a Redis that is filled with 16 GB",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const CASES: [(Frag, &[&str]); 3] = [
    (Frag::Zero, &["linux-4k", "linux", "ingens", "hawkeye", "quicksilver-sync-1"]),
    (Frag::Half, &["linux-4k", "linux", "quicksilver-sync-1"]),
    (Frag::Full, &["linux-4k", "linux", "freebsd", "ingens", "hawkeye", "quicksilver-sync-1"]),
];

static SIZE: Constant<Bytes> = Constant::paper(
    "quicksilver.cold-size",
    Bytes::from_gib(16),
    "Observation 4: 16 GB of 4 KB objects",
);
static VALUE: Constant<Bytes> = Constant::paper(
    "quicksilver.cold-value",
    Bytes::from_kib(4),
    "Observation 4: 16 GB of 4 KB objects",
);
static OWN: Constant<Nanos> = Constant::fitted(
    "quicksilver.cold-own",
    Nanos(2_400),
    &[Cell {
        experiment: "quicksilver-table5",
        case: "Frag-0",
        policy: "linux-4k",
        quantity: "throughput",
    }],
    "the server's own time for a request",
);
static SAME_COST: Constant<()> = Constant::assumed(
    "quicksilver.cold-same-cost",
    (),
    "requests cost the server's own time all alike, pages nothing more; served in their order",
);

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for (frag, policies) in CASES {
        for policy in policies.iter().copied() {
            progress(&format!("{}: {policy}", frag.name()))?;
            let constants = Constants::of(setting);
            let (rate, latency) = fill(frag, policy, setting, &constants)?;
            let rests = constants.rests();
            let of = |name, unit| Quantity { case: frag.name(), policy, name, unit };
            let (paper_rate, paper_latency) = paper(frag, policy).unzip();
            table.add(of("throughput", "GB/s"), paper_rate, rate, &rests)?;
            table.add(of("95th latency", "ms"), paper_latency, latency, &rests)?;
        }
    }
    table.note(FRAGMENTATION);
    table.note(
        "1280 requests are under way at any time (8 threads, 10 clients, 16 requests, after the \
         authors' repository); the server handles them in their order. What pages cost when \
         accessed is part of the server's own time, which is fitted.",
    );
    table.note(
        "At Frag-50 the paper's table has less throughput for Linux than for Linux-4KB (0.92 and 1.04 \
         GB/s), its text slightly more. It says that Linux's latency is higher than Linux-4KB's under \
         fragmentation: it has 10.2 and 5.7 ms at Frag-50, and 5.6 ms for Linux at Frag-100, where it \
         calls Linux the second best.",
    );
    Ok(table.report)
}

/// Fills a Redis; GB/s and milliseconds.
fn fill(frag: Frag, policy: &str, setting: &Setting, constants: &Constants) -> Result<(f64, f64)> {
    constants.get(&SAME_COST);
    let run = machine(policy, frag, setting, constants)?;
    let mut server = Server::new(run, (constants.get(&OWN), Nanos::ZERO), constants);
    let value = constants.get(&VALUE);
    let objects = constants.get(&SIZE).0 / value.0;
    Equal::new(Slab::VALUE_4K, overhead(constants))
        .insert(objects, &mut |event| server.hear(event))?;
    let (rate, latency) = server.performance();
    Ok((rate * value.0 as f64 / 1e9, latency.as_secs_f64() * 1e3))
}

/// GB/s and milliseconds.
fn paper(frag: Frag, policy: &str) -> Option<(f64, f64)> {
    match (frag, policy) {
        (Frag::Zero, "linux-4k") => Some((1.04, 5.6)),
        (Frag::Zero, "linux") => Some((1.34, 4.1)),
        (Frag::Half, "linux-4k") => Some((1.04, 5.7)),
        (Frag::Half, "linux") => Some((0.92, 10.2)),
        (Frag::Full, "linux") => Some((1.07, 5.6)),
        (Frag::Full, "quicksilver-sync-1") => Some((1.31, 4.5)),
        _ => None,
    }
}
