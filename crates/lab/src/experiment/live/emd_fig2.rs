//! `emd-fig2`: speed against memory on base and on huge pages (EMD, section 2.1.3, Figure 2).
//!
//! The figure's bars are not in the text, which says "as much 1.6x" and "up to 4.3x". The paper's numbers here follow from its Tables 2
//! (memory on 4 KiB and 2 MiB pages) and 3 (run times on 4 KiB pages, and under EMD before anything is reclaimed). Two programs are not
//! the paper's: a memcached that is started as an operator starts it, and liblinear.

use super::super::emd_paper;
use super::support_bench::{Bench, fitting_size, median, operations_for, rounded};
use super::support_pages::{Pages, Placed, prepare};
use super::support_regime::set_enabled;
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::liblinear::{Data, Problem, Training};
use crate::workload::WorkloadKind;
use crate::workload::arena::Residency;
use crate::workload::clock::cpu_time;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use superpage_kernel::thp::Enabled;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig2",
    source: "EMD, Figure 2",
    summary: "Speed against memory on base and on huge pages",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("pages", "pages"),
        ("resident_bytes", "memory"),
        ("huge_bytes", "of it on huge pages"),
        ("memory", "memory relative to 4 KiB"),
        ("paper_memory", "in the paper"),
        ("time_s", "CPU time (s)"),
        ("speed", "speed relative to 4 KiB"),
        ("paper_speed", "in the paper"),
    ],
    run: &run,
};

/// The paper's programs, and an ordinary memcached.
const KINDS: [WorkloadKind; 5] = [
    WorkloadKind::BTree,
    WorkloadKind::Memcached,
    WorkloadKind::RandomAccessL,
    WorkloadKind::RandomAccessR,
    WorkloadKind::OrdinaryMemcached,
];

/// Timed runs on base pages take about so long. Chosen, as in the other experiments of this paper.
const RUN: Duration = Duration::from_millis(300);
/// Operations to begin with, to learn how long they take.
const FEW: u64 = 20_000;

/// On huge pages relative to base pages, in the paper: memory (its Table 2) and speed (its Table 3).
fn paper(kind: WorkloadKind) -> Option<[f64; 2]> {
    let memory = match kind {
        WorkloadKind::BTree => 44.0 / 10.0,
        WorkloadKind::Memcached => 50.0 / 19.0,
        WorkloadKind::RandomAccessL | WorkloadKind::RandomAccessR => 8.0 / 4.0,
        _ => return None,
    };
    let [base, huge, _] = emd_paper::seconds(kind.name())?;
    Some([memory, base / huge])
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    pages: &'static str,
    resident_bytes: u64,
    huge_bytes: u64,
    memory: f64,
    paper_memory: Option<f64>,
    time_s: f64,
    speed: f64,
    paper_speed: Option<f64>,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let most = KINDS.iter().map(|kind| Pages::of(*kind).len()).max().unwrap_or(1);
    let size = fitting_size(setting, Bytes::from_gib(8), most as u64)?;
    let mut bench = prepare(setting)?;
    let mut report = Report::default();
    for kind in KINDS {
        measure(setting, kind, size, &mut report, progress)?;
    }
    report.notes = NOTES.map(str::to_owned).to_vec();
    if Data::is_usable() {
        let size = size.min(LARGEST_TRAINING);
        train(setting, &mut bench, size, &mut report, progress)?;
    } else {
        report
            .notes
            .push("liblinear is not installed (Debian package liblinear-tools).".to_owned());
    }
    report.pictures = vec![
        picture(&report, "emd-fig2-speed.svg", "Speed relative to 4 KiB pages", "speed"),
        picture(&report, "emd-fig2-memory.svg", "Memory relative to 4 KiB pages", "memory"),
    ];
    Ok(report)
}

const NOTES: [&str; 3] = [
    "The paper's numbers follow from its Tables 2 and 3. Its text has 1.6 times the speed at most, which is that of BTree and Memcached: \
     RandomAccess has 2.05 and 2.09 by Table 3. It has 4.3 times the memory at most, where Table 2 has 4.4.",
    "memcached writes zeroes over each MiB that it takes into use, so it has as much memory on base pages as on huge pages. Memcached is \
     started with one arena and three coarse size classes so that its huge pages have the paper's bloat, which is what de-bloating frees \
     (emd-fig4, emd-table3); Memcached-ordinary is started by `memcached -m SIZE`, with values as long as Facebook's and one key in a get.",
    "linux-thp is `transparent_hugepage/enabled` = always with khugepaged asleep. An ordinary memcached takes memory a MiB at a time \
     from malloc, and how much of that first touches put on huge pages is in the row; `all collapsed` is the same program after MADV_COLLAPSE of all that it has.",
];

fn measure(
    setting: &Setting,
    kind: WorkloadKind,
    size: Bytes,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let mut programs = Vec::new();
    for pages in Pages::of(kind) {
        progress(&format!("{kind}: filling {size} of memory, {}", pages.name()))?;
        programs.push(Placed::start(setting, kind, size, *pages)?);
    }
    let mut operations = FEW;
    // Twice: the first guess comes from a run too short to trust.
    for seed in 0..2 {
        operations = operations_for(programs[0].run(operations, seed)?, RUN);
    }
    let mut times = vec![Vec::new(); programs.len()];
    for round in 0..setting.rounds {
        progress(&format!("{kind}: round {} of {}", round + 1, setting.rounds))?;
        for (program, times) in programs.iter_mut().zip(&mut times) {
            times.push(program.time(operations, round)?);
        }
    }
    programs.iter_mut().try_for_each(Placed::check)?;
    let found = programs.iter().zip(times);
    let found: Vec<Found> =
        found.map(|(p, times)| Found::new(p.pages, p.residency, times)).collect();
    found.iter().try_for_each(|way| report.push(&way.row(kind.name(), paper(kind), &found[0])))
}

/// The largest training, which reads all of its data as text each time. Chosen: reading takes ten seconds for a GiB, and so does
/// training.
const LARGEST_TRAINING: Bytes = Bytes::from_mib(512); // tidy: allow(memory, not pages)

/// Trains with liblinear on base pages and on huge pages in turn; only the training is timed, not the reading.
fn train(
    setting: &Setting,
    bench: &mut Bench,
    size: Bytes,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let data = Data::generate(Problem::Dual, size)?;
    let ways = [(Pages::Base, Enabled::Never), (Pages::Thp, Enabled::Always)];
    let mut found = ways.map(|(pages, _)| Found::new(pages, Residency::default(), Vec::new()));
    for round in 0..setting.rounds {
        progress(&format!("liblinear: round {} of {}", round + 1, setting.rounds))?;
        for ((_, enabled), found) in ways.into_iter().zip(&mut found) {
            set_enabled(bench, enabled)?;
            let mut training = Training::start(&data, &[])?;
            let pid = training.read(&data, Ok)?;
            let before = cpu_time(pid)?;
            training.trained()?;
            found.times.push(cpu_time(pid)?.saturating_sub(before).as_secs_f64());
            found.residency = Residency::of(pid)?;
        }
    }
    found.iter().try_for_each(|way| report.push(&way.row("liblinear", None, &found[0])))
}

/// The findings of one program on one kind of pages.
#[derive(Clone, Debug)]
struct Found {
    pages: Pages,
    residency: Residency,
    times: Vec<f64>,
}

impl Found {
    fn new(pages: Pages, residency: Residency, times: Vec<f64>) -> Self {
        Self { pages, residency, times }
    }

    fn seconds(&self) -> f64 {
        median(self.times.iter().copied())
    }

    /// The row, beside what was found on base pages.
    fn row(&self, case: &'static str, paper: Option<[f64; 2]>, base: &Self) -> Row {
        let paper = match self.pages {
            Pages::Base => paper.map(|_| [1.0; 2]),
            Pages::Thp | Pages::Collapsed => paper,
        };
        let of_paper = |at: usize| paper.map(|numbers| rounded(numbers[at], 2));
        let resident = self.residency.resident;
        Row {
            case,
            pages: self.pages.name(),
            resident_bytes: resident.0,
            huge_bytes: self.residency.huge_pages.bytes().0,
            memory: rounded(resident.0 as f64 / base.residency.resident.0 as f64, 2),
            paper_memory: of_paper(0),
            time_s: rounded(self.seconds(), 3),
            speed: rounded(base.seconds() / self.seconds(), 2),
            paper_speed: of_paper(1),
        }
    }
}

/// A bar for each program and way.
fn picture(report: &Report, file: &str, title: &str, key: &str) -> Picture {
    let all = [Pages::Base, Pages::Thp, Pages::Collapsed];
    let base = report.rows.iter().filter(|row| row["pages"] == Pages::Base.name());
    let cases: Vec<&str> = base.filter_map(|row| row["case"].as_str()).collect();
    let value = |case: &str, pages: Pages| {
        let is_it = |row: &&Value| row["case"] == case && row["pages"] == pages.name();
        let found = report.rows.iter().find(is_it).and_then(|row| row[key].as_f64());
        found.unwrap_or(f64::NAN)
    };
    let of = |pages: Pages| {
        (pages.name().to_owned(), cases.iter().map(|case| value(case, pages)).collect())
    };
    Picture {
        file: file.to_owned(),
        title: title.to_owned(),
        content: Content::Bars {
            y_label: key.to_owned(),
            categories: cases.iter().map(|case| (*case).to_owned()).collect(),
            series: all.map(of).to_vec(),
            reference: Some(1.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_are_those_of_its_tables() {
        let [memory, speed] = paper(WorkloadKind::BTree).expect("in the paper");
        assert_eq!([rounded(memory, 2), rounded(speed, 2)], [4.4, 1.62]);
        assert_eq!(paper(WorkloadKind::OrdinaryMemcached), None);
        let of = |kind| rounded(paper(kind).expect("in the paper")[1], 2);
        assert_eq!(of(WorkloadKind::RandomAccessL), 2.05);
        assert_eq!(of(WorkloadKind::RandomAccessR), 2.09);
    }
}
