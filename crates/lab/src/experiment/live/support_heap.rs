//! Programs with memory for a part of their own, for the experiments of [`super::xheap`], which differ in what the programs do:
//! which trials there are, and what is made of them.
//!
//! What a kill leaves of a trial is undone when an experiment of these starts the next time.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::support_disk::{self, Disk, PIECE};
use super::support_heap_trial::{ALLOWANCE, Job, Policy, SWAP, Sample, Trial, without_heap};
use super::{Content, Error, Picture, Progress, Report, Result, Run, Setting};
use crate::liblinear::{Data, Problem};
use crate::picture;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use superpage_kernel::settings::Settings;
use superpage_kernel::text;
use superpage_units::{Bytes, Share};

pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("case", "case"),
    ("policy", "policy"),
    ("memory_percent", "memory %"),
    ("seconds", "s"),
    ("over_swap", "over swap"),
    ("paper_over_swap", "in the paper"),
    ("over_disk", "over the disk"),
    ("user_s", "user s"),
    ("system_s", "system s"),
    ("read_bytes", "read"),
    ("written_bytes", "written"),
    ("huge_share", "huge"),
    ("faults", "faults"),
    ("p99_fault_us", "p99 us"),
    ("peak_bytes", "most memory"),
];

/// The size of data for which a round takes some minutes.
pub(super) const SIZE: Bytes = Bytes::from_gib(1);

/// What an experiment measures.
pub(super) struct Plan {
    pub(super) cases: &'static [(&'static str, Job)],
    /// The size of the data if no other is asked for.
    pub(super) size: Bytes,
    /// The memory of programs if no other is asked for, in percent, and how many times longer than xHeap the better of
    /// the paper's two ways to swap takes with it.
    pub(super) memory: &'static [(u8, Option<f64>)],
    /// The notes that stand below the table, after those of all these experiments.
    pub(super) notes: &'static [&'static str],
}

impl Run for Plan {
    fn run(
        &self,
        experiment: &'static str,
        setting: &Setting,
        progress: Progress<'_>,
    ) -> Result<Report> {
        run((experiment, self), setting, progress)
    }
}

/// Runs all rounds of all cases, another policy first in each round.
fn run(
    (experiment, plan): (&'static str, &Plan),
    setting: &Setting,
    progress: Progress<'_>,
) -> Result<Report> {
    let size = fitting_size(setting, plan.size, 1)?;
    let mut bench = Bench::open(setting)?;
    bypass_zswap(bench.settings())?;
    let mut report = Report::default();
    let mut policies = Policy::FOR_A_PART.to_vec();
    if let Some(why) = without_heap(setting) {
        policies.retain(|policy| *policy != Policy::XHeap);
        report.notes.push(format!("{} is left out: {why}", Policy::XHeap.name()));
    }
    progress("touching free memory")?;
    warm(setting, size)?;
    let disk = disk(setting, size, progress, &mut report)?;
    let mut groups = Vec::new();
    for (case, job) in plan.cases.iter().copied() {
        let data = match job {
            Job::Train => Some(Data::generate(Problem::Primal, size)?),
            Job::Passes(..) | Job::Program(..) | Job::Redis(_) => None,
        };
        let data = data.as_ref();
        let mut trial = Trial { setting, job, size, data, whole: size, memory: size };
        if !matches!(job, Job::Passes(..)) {
            progress(&format!("{case}: how much memory"))?;
            trial.whole = trial.measure(&mut bench)?;
        }
        for memory in plan.memory_of(setting) {
            trial.memory = memory.of(trial.whole);
            let of = measure(case, trial, &policies, &mut bench, progress)?;
            let rows = rows(plan, case, trial, &of, disk);
            groups
                .push((format!("{case}, {:.0} %", percent(trial)), rows.iter().map(bar).collect()));
            for row in rows {
                report.push(&row)?;
            }
        }
    }
    report.pictures.push(picture(experiment, groups));
    report.notes.extend(notes(disk));
    report.notes.extend(plan.notes.iter().map(|note| (*note).to_owned()));
    Ok(report)
}

impl Plan {
    fn memory_of(&self, setting: &Setting) -> Vec<Share> {
        let own = self.memory.iter().map(|(percent, _)| Share::percent(*percent));
        if setting.memory.is_empty() { own.collect() } else { setting.memory.clone() }
    }
}

/// Runs all rounds of a case with some memory.
pub(super) fn measure(
    case: &str,
    trial: Trial<'_>,
    policies: &[Policy],
    bench: &mut Bench,
    progress: Progress<'_>,
) -> Result<Vec<(Policy, Vec<Sample>)>> {
    let mut of: Vec<_> = policies.iter().map(|policy| (*policy, Vec::new())).collect();
    let percent = percent(trial);
    for round in 0..trial.setting.rounds as usize {
        for turn in 0..of.len() {
            let at = (turn + round) % policies.len();
            let (policy, rounds) = (policies[at], trial.setting.rounds);
            let what = format!("{case}, {percent:.0} %, {}", policy.name());
            progress(&format!("{what}: round {} of {rounds}", round + 1))?;
            of[at].1.push(trial.run(policy, bench)?);
        }
    }
    let mut results = of.iter().flat_map(|(_, of)| of).filter_map(|sample| sample.result);
    let first = results.next();
    if results.any(|result| Some(result) != first) {
        return Err(Error::Child(format!("{case} has another result under another policy")));
    }
    Ok(of)
}

/// Has swap go to the disk and not to compressed memory, where the kernel has that.
pub(super) fn bypass_zswap(settings: &mut Settings) -> Result<()> {
    let zswap = Path::new("/sys/module/zswap/parameters/enabled");
    if text::read(zswap).is_ok_and(|enabled| enabled.trim_ascii() == b"Y") {
        settings.change(zswap, "N")?;
    }
    Ok(())
}

/// Measures the disk once in each round, for the first rows. The bytes that it reads in a second.
fn disk(
    setting: &Setting,
    size: Bytes,
    progress: Progress<'_>,
    report: &mut Report,
) -> Result<f64> {
    let mut all = Vec::new();
    for round in 1..=setting.rounds {
        progress(&format!("the disk: round {round} of {}", setting.rounds))?;
        all.push(support_disk::measure(&setting.directory, size)?);
    }
    let took = |time: fn(&Disk) -> Duration| median(all.iter().map(|d| time(d).as_secs_f64()));
    let (read, write) = (took(|disk| disk.read), took(|disk| disk.write));
    let hash = took(|disk| disk.hash);
    let row = |policy, seconds| Row {
        seconds: rounded(seconds, 3),
        ..Row::empty("disk", policy, size, all.len())
    };
    report.push(&Row { read_bytes: size.0, ..row("disk-read", read) })?;
    report.push(&Row { written_bytes: size.0, ..row("disk-write", write) })?;
    report.push(&row("hash", hash))?;
    Ok(size.0 as f64 / read)
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    /// The memory of all trials that the row is compared with; data that is all in memory has as much as it takes.
    memory_percent: Option<f64>,
    size_bytes: u64,
    seconds: f64,
    low: Option<f64>,
    high: Option<f64>,
    /// The seconds of the best way to swap through these.
    over_swap: Option<f64>,
    /// The same in the paper.
    paper_over_swap: Option<f64>,
    /// The bytes read in a second, through those that the disk gives in order.
    over_disk: Option<f64>,
    user_s: Option<f64>,
    system_s: Option<f64>,
    read_bytes: u64,
    written_bytes: u64,
    huge_share: Option<f64>,
    faults: Option<f64>,
    p99_fault_us: Option<f64>,
    p99_request_us: Option<f64>,
    peak_bytes: Option<u64>,
    rounds: usize,
}

impl Row {
    const fn empty(case: &'static str, policy: &'static str, size: Bytes, rounds: usize) -> Self {
        Self {
            case,
            policy,
            memory_percent: None,
            size_bytes: size.0,
            seconds: 0.0,
            low: None,
            high: None,
            over_swap: None,
            paper_over_swap: None,
            over_disk: None,
            user_s: None,
            system_s: None,
            read_bytes: 0,
            written_bytes: 0,
            huge_share: None,
            faults: None,
            p99_fault_us: None,
            p99_request_us: None,
            peak_bytes: None,
            rounds,
        }
    }
}

/// The program's memory, in percent of what it wants.
fn percent(trial: Trial<'_>) -> f64 {
    trial.memory.share_of(trial.whole).get() * 100.0
}

/// How many times as fast as on the best swap, with the paper's number marked.
fn bar(row: &Row) -> picture::Row {
    picture::Row {
        name: row.policy.to_owned(),
        value: row.over_swap.unwrap_or(f64::NAN),
        mark: row.paper_over_swap,
    }
}

fn picture(experiment: &str, groups: Vec<(String, Vec<picture::Row>)>) -> Picture {
    Picture {
        file: format!("{experiment}.svg"),
        title: format!("{experiment}: how many times as fast as the best swap"),
        content: Content::Rows {
            found: "measured",
            label: "times as fast as the best swap".to_owned(),
            groups,
            scaling: picture::Scaling::ByRange,
        },
    }
}

/// The rows of a case; `disk` is what the disk reads in a second.
fn rows(
    plan: &Plan,
    case: &'static str,
    trial: Trial<'_>,
    of: &[(Policy, Vec<Sample>)],
    disk: f64,
) -> Vec<Row> {
    let seconds = |samples: &[Sample]| middle(samples, |sample| sample.took.as_secs_f64());
    let swap = of.iter().filter(|(policy, _)| policy.is_swap());
    let best = swap.map(|(_, samples)| seconds(samples)).fold(f64::INFINITY, f64::min);
    let percent = rounded(percent(trial), 1);
    let in_paper = plan.memory.iter().find(|(of, _)| f64::from(*of) == percent);
    let row = |(policy, samples): &(Policy, Vec<Sample>)| {
        let took = seconds(samples);
        let all = || samples.iter().map(|sample| sample.took.as_secs_f64());
        let used = |of: fn(&Sample) -> f64| rounded(middle(samples, of), 2);
        let bytes = |of: fn(&Sample) -> Bytes| Bytes(1).scaled(middle(samples, |s| of(s).0 as f64));
        let read = bytes(|sample| sample.used.read);
        let p99 = |of: fn(&Sample) -> Option<f64>| {
            let all: Option<Vec<f64>> = samples.iter().map(of).collect();
            all.map(|all| rounded(median(all), 1))
        };
        let peak = samples.iter().map(|sample| sample.peak).max().flatten();
        Row {
            memory_percent: Some(percent),
            seconds: rounded(took, 3),
            low: Some(rounded(all().fold(f64::INFINITY, f64::min), 3)),
            high: Some(rounded(all().fold(0.0, f64::max), 3)),
            over_swap: best.is_finite().then(|| rounded(best / took, 3)),
            paper_over_swap: in_paper.and_then(|(_, of)| *of).filter(|_| *policy == Policy::XHeap),
            over_disk: Some(rounded(read.0 as f64 / took / disk, 3)),
            user_s: Some(used(|sample| sample.used.user.as_secs_f64())),
            system_s: Some(used(|sample| sample.used.system.as_secs_f64())),
            read_bytes: read.0,
            written_bytes: bytes(|sample| sample.used.written).0,
            huge_share: Some(rounded(middle(samples, |sample| sample.huge), 3)),
            faults: Some(middle(samples, |sample| sample.faults as f64)),
            p99_fault_us: p99(|sample| sample.p99_fault_us),
            p99_request_us: p99(|sample| sample.p99_request_us),
            peak_bytes: peak.map(|peak| peak.0),
            ..Row::empty(case, policy.name(), trial.whole, samples.len())
        }
    };
    of.iter().map(row).collect()
}

/// The median of something of all samples.
pub(super) fn middle(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(of))
}

/// The note of an experiment whose programs pass over their data.
pub(super) const PASSES: &str = "Data is filled, passed over once and then timed; every word that is read is compared \
     with what was written. Of xheap the filling and the first pass count for faults, the huge share and p99.";

fn notes(disk: f64) -> Vec<String> {
    let mib = disk / Bytes::from_mib(1).0 as f64;
    vec![
        format!(
            "Medians. On swap a memory cgroup holds memory % of what the program wants and {ALLOWANCE} for the rest \
             of the process; in-memory has no limit, and huge pages from the first touch on; xheap has memory % for \
             its pools, and no other limit. Most memory: of the program's cgroup, from its start on."
        ),
        format!(
            "Swap is a file of {SWAP} times the program's memory, used before any other, zswap off; the kernel swaps \
             huge pages out whole only to block devices. swap-4k: enabled = never, swap-thp: always, khugepaged at \
             its defaults; the last number is vm.page-cluster. Read and written on swap are pswpin and pswpout of \
             the machine; else what the process read and wrote (/proc/PID/io). Faults are major faults; of xheap, \
             faults that read or filled a page, from the program's start on, as are its huge share and p99."
        ),
        format!(
            "disk-read and disk-write: a file as large as the data in pieces of {PIECE}, one at a time, O_DIRECT: \
             {mib:.0} MiB/s are read. hash: XXH3 of as many bytes, by which the library knows what was written. Over the disk: what a row reads in a second through this."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::Pattern;

    const PLAN: Plan = Plan {
        cases: &[],
        size: Bytes::from_gib(1),
        memory: &[(75, Some(1.4)), (80, None)],
        notes: &[],
    };

    fn sample(seconds: f64, read: Bytes) -> Sample {
        let mut sample = Sample { took: Duration::from_secs_f64(seconds), ..Sample::default() };
        sample.used.read = read;
        sample
    }

    #[test]
    fn rows_are_compared_with_the_best_way_to_swap_and_with_the_disk() {
        let (setting, size) = (Setting::of_test(), PLAN.size);
        let (job, memory) = (Job::Passes(Pattern::Uniform), Share::percent(75).of(size));
        let trial = Trial { setting: &setting, job, size, data: None, whole: size, memory };
        let of = [
            (Policy::FOR_A_PART[0], vec![sample(0.5, Bytes::ZERO)]),
            (Policy::FOR_A_PART[1], vec![sample(6.0, size), sample(8.0, size), sample(5.0, size)]),
            (Policy::FOR_A_PART[2], vec![sample(4.0, size)]),
            (Policy::XHeap, vec![sample(2.0, size)]),
        ];
        let rows = rows(&PLAN, "uniform", trial, &of, size.0 as f64);
        let over: Vec<Option<f64>> = rows.iter().map(|row| row.over_swap).collect();
        assert_eq!(over, [Some(8.0), Some(0.667), Some(1.0), Some(2.0)]);
        assert_eq!((rows[1].seconds, rows[1].low, rows[1].high), (6.0, Some(5.0), Some(8.0)));
        assert_eq!((rows[0].over_disk, rows[3].over_disk), (Some(0.0), Some(0.5)));
        assert_eq!((rows[3].memory_percent, rows[3].policy), (Some(75.0), "xheap"));
        assert_eq!((rows[0].paper_over_swap, rows[3].paper_over_swap), (None, Some(1.4)));
    }

    #[test]
    fn an_experiment_has_its_own_memory_unless_asked() {
        let percents = |memory| -> Vec<f64> {
            let memory = PLAN.memory_of(&Setting { memory, ..Setting::of_test() });
            memory.into_iter().map(|share| share.get() * 100.0).collect()
        };
        assert_eq!(percents(Vec::new()), [75.0, 80.0]);
        assert_eq!(percents(vec![Share::percent(50)]), [50.0]);
    }
}
