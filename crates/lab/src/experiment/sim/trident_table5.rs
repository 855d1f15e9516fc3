//! `trident-table5`: latency of requests to Redis and Memcached, and what they wait for memory (Trident,
//! Table 5).
//!
//! The paper does not describe its clients. Here so many requests are outstanding at all times, and the
//! server takes them one after the other, on each of its threads. Then all wait alike: the time of one
//! request, for each that is outstanding on a thread. The store is filled by then and no request
//! faults, so what differs is translation.

use super::support_hardware;
use super::support_trident_constants::SECONDS;
use super::support_trident_programs::Program;
use super::support_trident_runs::{self, Case, Memory, Outcome, THP};
use super::{
    COLUMNS, Cell, Constant, Constants, Experiment, On, Progress, Quantity, Report, Rests, Result,
    Setting, Table,
};
use superpage_units::Nanos;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-table5",
    source: "Trident, Table 5",
    summary: "Latency of requests to Redis and Memcached, and waiting for memory, with 4 KiB pages, \
              Linux THP and Trident",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const BASE: &str = "linux-4k";
const POLICIES: [&str; 3] = [BASE, THP, "trident"];
const PROGRAMS: [Program; 2] = [Program::Redis, Program::Memcached];

static ACCESSES: Constant<f64> = Constant::assumed(
    "trident.request-accesses",
    4.0,
    "accesses of a request that miss the data caches: bucket, entry, key and value",
);
static REDIS_REQUEST: Constant<Nanos> = Constant::assumed(
    "trident.redis-request",
    Nanos(10_000),
    "of a thread, for system calls and the network: a core serves some 100,000 requests a second",
);
static MEMCACHED_REQUEST: Constant<Nanos> = Constant::assumed(
    "trident.memcached-request",
    Nanos(20_000),
    "of a thread, for system calls and the network: twice Redis's, as threads share a network card",
);
static REDIS_LATENCY: Constant<f64> = Constant::fitted(
    "trident.redis-latency",
    47.3,
    REDIS_LOAD,
    "Table 5, milliseconds on 4 KiB pages, un-fragmented: so many requests are outstanding",
);
static MEMCACHED_LATENCY: Constant<f64> = Constant::fitted(
    "trident.memcached-latency",
    1.53,
    MEMCACHED_LOAD,
    "Table 5, milliseconds on 4 KiB pages, un-fragmented: so many requests are outstanding",
);

const REDIS_LOAD: &[Cell] = &[latency("Redis, un-fragmented"), outstanding("Redis")];
const MEMCACHED_LOAD: &[Cell] = &[latency("Memcached, un-fragmented"), outstanding("Memcached")];

const fn latency(case: &'static str) -> Cell {
    Cell { experiment: "trident-table5", case, policy: BASE, quantity: "request, 99 %" }
}

const fn outstanding(case: &'static str) -> Cell {
    Cell { experiment: "trident-table5", case, policy: "any", quantity: "requests outstanding" }
}

/// Milliseconds that 99 % of requests do not exceed, by policy (Table 5).
const fn paper(program: Program, memory: Memory) -> [f64; 3] {
    match (program, memory) {
        (Program::Redis, Memory::Unfragmented) => [47.3, 50.3, 46.6],
        (Program::Redis, Memory::Fragmented) => [53.3, 53.3, 52.0],
        (Program::Memcached, Memory::Unfragmented) => [1.53, 1.52, 1.53],
        (Program::Memcached, Memory::Fragmented) => [1.55, 1.55, 1.54],
        _ => [f64::NAN; 3],
    }
}

/// Seconds of a thread for a request, when the main part took so many seconds.
fn request(program: Program, seconds: f64, frequency: f64, constants: &Constants) -> f64 {
    let access = program.cycles(constants) / frequency * seconds / constants.get(&SECONDS);
    let is_redis = program == Program::Redis;
    let own = constants.get(if is_redis { &REDIS_REQUEST } else { &MEMCACHED_REQUEST });
    own.as_secs_f64() + constants.get(&ACCESSES) * access
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let of = |program, memory| POLICIES.map(|policy| Case::native(program, policy, memory));
    let cases = PROGRAMS.iter().flat_map(|p| Memory::BOTH.map(|memory| of(*p, memory)));
    support_trident_runs::make(&cases.flatten().collect::<Vec<Case>>(), setting, progress)?;
    let frequency = support_hardware::of("trident")?.profile.cpu.frequency.value.0 as f64;
    for program in PROGRAMS {
        let constants = Constants::of(setting);
        let base = Case::native(program, BASE, Memory::Unfragmented).outcome(setting)?;
        let is_redis = program == Program::Redis;
        let fitted = constants.get(if is_redis { &REDIS_LATENCY } else { &MEMCACHED_LATENCY });
        let outstanding = fitted / 1e3 / request(program, base.seconds, frequency, &constants);
        let threads = f64::from(program.threads(&constants));
        let load = Rests::all([&constants.rests(), &base.rests]);
        let name = "requests outstanding";
        let quantity = Quantity { case: program.name(), policy: "any", name, unit: "count" };
        table.add(quantity, None, outstanding * threads, &load)?;
        for memory in Memory::BOTH {
            for (case, paper) in of(program, memory).into_iter().zip(paper(program, memory)) {
                let outcome = case.outcome(setting)?;
                let request = request(program, outcome.seconds, frequency, &constants);
                let latency = outstanding * request * 1e3;
                add(&mut table, (case, &outcome), (paper, latency), &load)?;
            }
        }
    }
    notes(&mut table);
    Ok(table.report)
}

/// Rows of one run, under a load that rests on `load`.
fn add(
    table: &mut Table,
    (case, outcome): (Case, &Outcome),
    (paper, latency): (f64, f64),
    load: &Rests,
) -> Result<()> {
    let name = format!("{}, {}", case.program.name(), case.memory.name());
    let of = |quantity| Quantity { case: &name, policy: case.policy, name: quantity, unit: "ms" };
    let both = Rests::all([load, &outcome.rests]);
    table.add(of("request, 99 %"), Some(paper), latency, &both)?;
    table.add(of("fault, 99 %"), None, outcome.fault_p99, &outcome.rests)?;
    table.add(of("fault, longest"), None, outcome.fault_max, &outcome.rests)
}

fn notes(table: &mut Table) {
    table.note(
        "The paper describes neither clients nor load. So many requests are outstanding that 4 KiB \
         pages without fragmentation come out: fitted, once for each program. A request takes 10 us \
         (Redis) or 20 us (Memcached) of a thread and four accesses that miss the data caches; assumed. \
         All requests wait alike then, so the 99th percentile is the mean: how much longer than the \
         mean the paper's is cannot be had.",
    );
    table.note(
        "Requests find the store filled, and none faults: what background work does to memory reaches \
         them only by translation, not by the memory bandwidth and caches that compaction takes. Faults \
         are those of filling the store. Those by 1 GiB that found no chunk zeroed ahead of time are \
         the longest.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without translation a request takes its own time and four accesses; twice as slow a store makes
    /// only these slower.
    #[test]
    fn a_request_is_slower_by_its_accesses_only() {
        let constants = Constants::default();
        let at = |seconds| request(Program::Redis, seconds, 2.3e9, &constants);
        let accesses = 4.0 * 400.0 / 2.3e9;
        let seconds = constants.get(&SECONDS);
        assert!((at(seconds) - 10e-6 - accesses).abs() < 1e-12);
        assert!((at(2.0 * seconds) - at(seconds) - accesses).abs() < 1e-12);
    }
}
