//! `jvm-pretouch`: whether a JVM keeps the huge pages that it asked for. No paper has it.
//!
//! `-XX:+UseTransparentHugePages -XX:+AlwaysPreTouch`: the heap is advised to be on huge pages
//! (`MADV_HUGEPAGE`) and touched whole before the program begins, so that nothing is paid later. Then the
//! program waits. All of the heap is zero-filled, which is what de-bloating looks for, but memory is free
//! and was asked for. It takes the machine's own `java`; where there is none the experiment cannot run.
//!
//! A round is a minute of the same JVM, under the configurations that are to keep its huge pages. Without a daemon, and
//! under Quicksilver by its published rule, one minute shows what happens.

use super::support_bench::{Bench, fitting_size, rounded};
use super::support_daemon::Configuration;
use super::support_regime::{Khugepaged, note_on_generous, set_enabled};
use super::support_told::{Told, told_by};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::jvm::Jvm;
use serde::Serialize;
use std::time::Duration;
use superpage_kernel::maps::{self, Vma};
use superpage_kernel::pagemap::Pagemap;
use superpage_kernel::process::Process;
use superpage_kernel::thp::Enabled;
use superpage_units::{Bytes, HugePages};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "jvm-pretouch",
    source: "no paper",
    summary: "Whether a JVM that asked for huge pages and touched its heap keeps them while memory is free",
    on: On::Live,
    columns: &[
        ("case", "enabled"),
        ("policy", "configuration"),
        ("heap_bytes", "heap"),
        ("huge_at_start", "on huge pages at the start"),
        ("seconds", "after s"),
        ("huge_at_end", "then"),
        ("left", "of those at the start"),
        ("split", "split"),
        ("freed_bytes", "freed"),
    ],
    run: &run,
};

/// The heap.
const SIZE: Bytes = Bytes::from_gib(2);

const CONFIGURATIONS: [Configuration; 4] = [
    Configuration::NoDaemon,
    Configuration::Default,
    Configuration::Generous,
    Configuration::Quicksilver,
];

/// One JVM, from its start to its end.
#[derive(Clone, Copy, Debug)]
struct Sample {
    heap: Bytes,
    /// Its huge pages at the start.
    before: HugePages,
    /// At the end.
    after: HugePages,
    /// What the daemon did.
    told: Told,
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    heap_bytes: u64,
    huge_at_start: f64,
    seconds: u64,
    huge_at_end: f64,
    left: f64,
    split: u64,
    freed_bytes: u64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, SIZE, 1)?;
    // Below a GiB a run is a trial of the experiment, not a measurement.
    let round = Duration::from_secs(if size < Bytes::from_gib(1) { 1 } else { 60 });
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    for configuration in CONFIGURATIONS {
        set_enabled(&mut bench, Enabled::Always)?;
        Khugepaged::Default.set(&mut bench)?;
        let rounds = rounds(configuration, setting);
        let mut rest = || {
            (1..=rounds).try_for_each(|number| {
                progress(&format!("{}: minute {number} of {rounds}", configuration.name()))?;
                std::thread::sleep(round);
                Ok(())
            })
        };
        let sample = trial(setting, configuration, size, &mut rest)?;
        report.push(&row(configuration, sample, round * rounds))?;
    }
    report.notes.push(format!(
        "java -XX:+UseTransparentHugePages -XX:+AlwaysPreTouch, -Xms and -Xmx of {size}, its program waiting; \
         the daemon starts when the heap has been touched, and sees the JVM only. The heap is the largest VMA \
         of private anonymous memory; what was split and freed is of the whole JVM.",
    ));
    report.notes.extend(note_on_generous());
    Ok(report)
}

/// The minutes for which the JVM is left alone.
fn rounds(configuration: Configuration, setting: &Setting) -> u32 {
    match configuration {
        Configuration::NoDaemon | Configuration::Quicksilver => 1,
        _ => setting.rounds,
    }
}

fn trial(
    setting: &Setting,
    configuration: Configuration,
    size: Bytes,
    rest: &mut dyn FnMut() -> Result<()>,
) -> Result<Sample> {
    let jvm = Jvm::start(size)?;
    let process = Process::open(jvm.pid())?;
    let pagemap = Pagemap::open(&process)?;
    let heap = heap_of(maps::of(&process)?)
        .ok_or_else(|| Error::Child("the JVM has no private anonymous memory".to_owned()))?;
    let huge_pages = || {
        pagemap.huge_pages(std::slice::from_ref(&heap)).map(|pages| HugePages(pages.len() as u64))
    };
    let before = huge_pages()?;
    let mut daemon = configuration.start(setting, jvm.pid())?;
    rest()?;
    let after = huge_pages()?;
    let told = daemon.as_mut().map(told_by).transpose()?.unwrap_or_default();
    Ok(Sample { heap: heap.size(), before, after, told })
}

/// The largest VMA that may be a heap.
fn heap_of(vmas: Vec<Vma>) -> Option<Vma> {
    let may = |vma: &Vma| vma.is_private_anonymous() && vma.permissions.write;
    vmas.into_iter().filter(may).max_by_key(Vma::size)
}

fn row(configuration: Configuration, sample: Sample, rest: Duration) -> Row {
    let share = |huge: HugePages, of: Bytes| rounded(huge.bytes().share_of(of).get(), 3);
    Row {
        case: "always",
        policy: configuration.name(),
        heap_bytes: sample.heap.0,
        huge_at_start: share(sample.before, sample.heap),
        seconds: rest.as_secs(),
        huge_at_end: share(sample.after, sample.heap),
        left: share(sample.after, sample.before.bytes()),
        split: sample.told.split.0,
        freed_bytes: sample.told.freed.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_heap_is_the_largest_private_anonymous_vma() {
        // Of a JVM with a class archive at the end of its heap, and the reserved rest of an arena.
        let text = "80000000-ffe00000 rw-p 00000000 00:00 0 \n\
             ffe00000-100000000 rw-p 00c77000 fe:00 315149     /usr/lib/jvm/classes.jsa\n\
             7f0000000000-7f0010000000 rw-p 00000000 00:00 0 \n\
             7f0010000000-7f0110000000 ---p 00000000 00:00 0 \n\
             7f0200000000-7f0300000000 r--p 00000000 fe:00 315150     /usr/lib/jvm/modules\n";
        let vmas = maps::parse(text.as_bytes(), Path::new("maps")).expect("vmas");
        let heap = vmas[0].clone();
        assert_eq!(heap_of(vmas), Some(heap));
        assert_eq!(heap_of(Vec::new()), None);
    }

    #[test]
    fn what_is_left_is_a_share_of_what_was_there() {
        let sample = Sample {
            heap: HugePages(8).bytes(),
            before: HugePages(4),
            after: HugePages(1),
            told: Told { split: HugePages(3), ..Told::default() },
        };
        let row = row(Configuration::Default, sample, Duration::from_secs(600));
        assert_eq!((row.huge_at_start, row.huge_at_end, row.left), (0.5, 0.125, 0.25));
        assert_eq!((row.split, row.seconds), (3, 600));
    }
}
