//! `heap-fits`: what a heap costs a program that has memory for all of its data: without a heap, on huge pages without a
//! heap, and with its data in a file by `superpage run --heap`.

use super::support_bench::{Bench, fitting_size, rounded, warm};
use super::support_heap::{SIZE, measure, middle};
use super::support_heap_trial::{Ask, Job, Policy, Sample, Trial, without_heap};
use super::xheap::LOOKUPS;
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::program::Program;
use serde::Serialize;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "heap-fits",
    source: "xHeap, section 4",
    summary: "Programs whose data has room in memory: without a heap, and in a heap file",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "policy"),
        ("seconds", "s"),
        ("over_no_heap", "over no heap"),
        ("over_huge", "over huge pages"),
        ("user_s", "user s"),
        ("system_s", "system s"),
        ("read_bytes", "read"),
        ("written_bytes", "written"),
        ("huge_share", "huge"),
    ],
    run: &run,
};

const CASES: [(&str, Job); 3] = [
    ("dedup", Job::Program(Program::Dedup, u64::MAX)),
    ("xsbench", Job::Program(Program::Xsbench, LOOKUPS)),
    ("redis-get", Job::Redis(Ask::Get)),
];

const POLICIES: [Policy; 3] = [Policy::NoHeap, Policy::InMemory, Policy::XHeap];

/// The memory of the heap beyond what the program has without one: the base pool, and what lies in huge pages beside the
/// data. Chosen.
const ROOM: Bytes = Bytes::from_mib(128);

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    size_bytes: u64,
    seconds: f64,
    low: f64,
    high: f64,
    /// The seconds without a heap through these.
    over_no_heap: f64,
    /// The seconds on huge pages without a heap through these.
    over_huge: f64,
    user_s: f64,
    system_s: f64,
    read_bytes: u64,
    written_bytes: u64,
    huge_share: f64,
    rounds: usize,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    if let Some(why) = without_heap(setting) {
        return Err(Error::NotPossible(why));
    }
    let size = fitting_size(setting, SIZE, 2)?;
    let mut bench = Bench::open(setting)?;
    progress("touching free memory")?;
    warm(setting, size)?;
    let mut report = Report::default();
    for (case, job) in CASES {
        let mut trial = Trial { setting, job, size, data: None, whole: size, memory: size };
        progress(&format!("{case}: how much memory"))?;
        trial.whole = trial.measure(&mut bench)?;
        trial.memory = trial.whole + ROOM;
        let of = measure(case, trial, &POLICIES, &mut bench, progress)?;
        for row in rows(case, trial, &of) {
            report.push(&row)?;
        }
    }
    report.notes.push(format!(
        "Medians. no-heap: enabled = madvise, which none of these programs asks for. in-memory: enabled = always. xheap: \
         as no-heap, by `superpage run --heap --memory` with {ROOM} more than the program's most memory without a heap. \
         Timed as in xheap-fig4, xheap-fig5 and heap-redis. Over no heap, over huge pages: the seconds of no-heap and of \
         in-memory through a row's. Read and written: what the process read and wrote while it was timed \
         (/proc/PID/io)."
    ));
    Ok(report)
}

fn rows(case: &'static str, trial: Trial<'_>, all: &[(Policy, Vec<Sample>)]) -> Vec<Row> {
    let seconds = |sample: &Sample| sample.took.as_secs_f64();
    let took_by = |wanted: Policy| {
        let found = all.iter().find(|(policy, _)| *policy == wanted);
        found.map_or(f64::NAN, |(_, samples)| middle(samples, seconds))
    };
    let (no_heap, huge) = (took_by(Policy::NoHeap), took_by(Policy::InMemory));
    let row = |(policy, samples): &(Policy, Vec<Sample>)| {
        let took = middle(samples, seconds);
        let each = || samples.iter().map(seconds);
        let of = |of: fn(&Sample) -> f64| rounded(middle(samples, of), 3);
        let bytes = |of: fn(&Sample) -> Bytes| {
            Bytes(1).scaled(middle(samples, |sample| of(sample).0 as f64)).0
        };
        Row {
            case,
            policy: policy.name(),
            size_bytes: trial.whole.0,
            seconds: rounded(took, 3),
            low: rounded(each().fold(f64::INFINITY, f64::min), 3),
            high: rounded(each().fold(0.0, f64::max), 3),
            over_no_heap: rounded(no_heap / took, 3),
            over_huge: rounded(huge / took, 3),
            user_s: of(|sample| sample.used.user.as_secs_f64()),
            system_s: of(|sample| sample.used.system.as_secs_f64()),
            read_bytes: bytes(|sample| sample.used.read),
            written_bytes: bytes(|sample| sample.used.written),
            huge_share: of(|sample| sample.huge),
            rounds: samples.len(),
        }
    };
    all.iter().map(row).collect()
}
