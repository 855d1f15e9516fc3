//! `heap-redis`: a Redis that holds more than it has memory for: on swap, with its data in a file by
//! `superpage run --heap`, and all in memory. The client is not in the server's cgroup.

use super::support_heap::{self, Plan};
use super::support_heap_trial::{Ask, Job, Policy};
use super::{Experiment, On, Progress, Report, Result, Setting};

/// As for all programs with a heap, and how long requests took.
const COLUMNS: [(&str, &str); support_heap::COLUMNS.len() + 1] = {
    let mut all = [("p99_request_us", "p99 request us"); support_heap::COLUMNS.len() + 1];
    let (known, _) = all.split_at_mut(support_heap::COLUMNS.len());
    known.copy_from_slice(support_heap::COLUMNS);
    all
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "heap-redis",
    source: "xHeap, section 4",
    summary: "A Redis that holds more than memory, asked at random: on swap, in a heap file, and in memory",
    on: On::Live,
    columns: &COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        experiment: EXPERIMENT.name,
        cases: &[("get", Job::Redis(Ask::Get)), ("set", Job::Redis(Ask::Set))],
        policies: &Policy::FOR_A_PART,
        size: support_heap::SIZE,
        memory: &[(75, None)],
    };
    let mut report = support_heap::run(&plan, setting, progress)?;
    report.notes.push(
        "Redis with values of 1000 bytes under keys that are all as likely (uniform), a KiB of the size for each; \
         nothing is persistent. It is filled, gets half as many requests as it has keys, and then as many once more, \
         which are timed: one on each of eight connections at a time, from a client outside the cgroup that compares \
         every answer. p99 request: from the sending of a request to its answer, so that it waits for up to seven \
         others. Of xheap the filling and the first requests count for faults, the huge share and p99 us."
            .to_owned(),
    );
    Ok(report)
}
