//! `trident-table5`: latency of requests to Redis and Memcached, and what they wait for memory (Trident,
//! Table 5).
//!
//! The paper does not describe its clients. Here so many requests are outstanding at all times, and the
//! server takes them one after the other, on each of its threads. Then all wait alike: the time of one
//! request, for each that is outstanding on a thread. The store is filled by then and no request
//! faults, so what differs is translation.

use super::support_hardware;
use super::support_trident_programs::{Program, SECONDS};
use super::support_trident_runs::{self, Case, Memory, Outcome, THP};
use super::{Basis, COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-table5",
    source: "Trident, Table 5",
    summary: "Latency of requests to Redis and Memcached, and waiting for memory, with 4 KiB pages, \
              Linux THP and Trident",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

const BASE: &str = "linux-4k";
const POLICIES: [&str; 3] = [BASE, THP, "trident"];
const PROGRAMS: [Program; 2] = [Program::Redis, Program::Memcached];

/// Accesses of a request that miss the data caches: bucket, entry, key and value. Assumed.
const ACCESSES: f64 = 4.0;

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

/// Seconds of a thread for a request, but for the accesses to the store: system calls and the network.
/// Assumed: a core serves some 100,000 requests a second to Redis, half as many to Memcached, whose
/// threads share a network card.
fn own(program: Program) -> f64 {
    if program == Program::Redis { 10e-6 } else { 20e-6 }
}

/// Seconds of a thread for a request, when the main part took as long as `outcome` says.
fn request(program: Program, outcome: &Outcome, frequency: f64) -> f64 {
    let access = program.cycles() / frequency * outcome.seconds / SECONDS;
    own(program) + ACCESSES * access
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let of = |program, memory| POLICIES.map(|policy| Case::native(program, policy, memory));
    let cases = PROGRAMS.iter().flat_map(|p| Memory::BOTH.map(|memory| of(*p, memory)));
    support_trident_runs::make(&cases.flatten().collect::<Vec<Case>>(), setting, progress)?;
    let frequency = support_hardware::of("trident")?.profile.cpu.frequency.value.0 as f64;
    for program in PROGRAMS {
        let base = Case::native(program, BASE, Memory::Unfragmented).outcome(setting)?;
        let [fitted, ..] = paper(program, Memory::Unfragmented);
        let outstanding = fitted / 1e3 / request(program, &base, frequency);
        let threads = f64::from(program.threads());
        let name = "requests outstanding";
        let quantity = Quantity { case: program.name(), policy: "any", name, unit: "count" };
        table.add(quantity, None, outstanding * threads, Basis::Fitted)?;
        for memory in Memory::BOTH {
            for (case, paper) in of(program, memory).into_iter().zip(paper(program, memory)) {
                let outcome = case.outcome(setting)?;
                let latency = outstanding * request(program, &outcome, frequency) * 1e3;
                add(&mut table, (case, &outcome), (paper, latency))?;
            }
        }
    }
    notes(&mut table);
    Ok(table.report)
}

/// Rows of one run.
fn add(
    table: &mut Table,
    (case, outcome): (Case, &Outcome),
    (paper, latency): (f64, f64),
) -> Result<()> {
    let name = format!("{}, {}", case.program.name(), case.memory.name());
    let of = |quantity| Quantity { case: &name, policy: case.policy, name: quantity, unit: "ms" };
    let is_fitted = case.policy == BASE && case.memory == Memory::Unfragmented;
    let basis = if is_fitted { Basis::Fitted } else { Basis::Assumed };
    table.add(of("request, 99 %"), Some(paper), latency, basis)?;
    table.add(of("fault, 99 %"), None, outcome.fault_p99, Basis::Predicted)?;
    table.add(of("fault, longest"), None, outcome.fault_max, Basis::Predicted)
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
    use superpage_sim::machine::Counts;

    fn outcome(seconds: f64) -> Outcome {
        Outcome {
            mapped: [0.0; 3],
            seconds,
            walk_share: 0.0,
            counts: Counts::default(),
            compacted: 0.0,
            futile: 0.0,
            fault_p99: 0.0,
            fault_max: 0.0,
        }
    }

    /// Without translation a request takes its own time and four accesses; twice as slow a store makes
    /// only these slower.
    #[test]
    fn a_request_is_slower_by_its_accesses_only() {
        let at = |seconds| request(Program::Redis, &outcome(seconds), 2.3e9);
        let accesses = 4.0 * 400.0 / 2.3e9;
        assert!((at(SECONDS) - 10e-6 - accesses).abs() < 1e-12);
        assert!((at(2.0 * SECONDS) - at(SECONDS) - accesses).abs() < 1e-12);
    }
}
