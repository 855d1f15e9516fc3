//! `trident-table5`: what Redis and Memcached wait for memory, for Trident's tail latencies
//! (Trident, Table 5).

use super::support_trident_programs::Program;
use super::support_trident_runs::{self, Case, Memory, THP};
use super::{Basis, COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-table5",
    source: "Trident, Table 5",
    summary: "Waiting for memory in Redis and Memcached with 4 KiB pages, Linux THP and Trident",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

const POLICIES: [&str; 3] = ["linux-4k", THP, "trident"];
const PROGRAMS: [Program; 2] = [Program::Redis, Program::Memcached];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let mut cases = Vec::new();
    for memory in Memory::BOTH {
        for program in PROGRAMS {
            cases.extend(POLICIES.map(|policy| Case::native(program, policy, memory)));
        }
    }
    support_trident_runs::make(&cases, setting, progress)?;
    for case in cases {
        let outcome = case.outcome(setting)?;
        let name = format!("{}, {}", case.program.name(), case.memory.name());
        let of =
            |quantity| Quantity { case: &name, policy: case.policy, name: quantity, unit: "ms" };
        table.add(of("fault, 99 %"), None, outcome.fault_p99, Basis::Predicted)?;
        table.add(of("fault, longest"), None, outcome.fault_max, Basis::Predicted)?;
    }
    table.note(
        "The paper has the latency of requests under load (Redis 47 to 53 ms, Memcached 1.5 ms, \
         the same for all within 7 %), which follows from clients and queues that it does not \
         describe. Measured here is the part that differs between policies: waiting in faults while \
         the stores are filled. Faults by 1 GiB that found no chunk zeroed ahead of time are the \
         longest.",
    );
    Ok(table.report)
}
