//! `emd-table4`: the memory of BTree and memcached on base and on huge pages, on this machine's kernel (EMD, section 6, Table 4:
//! "memory bloat continues to exist", on Linux 6.7.2).

use super::support_bench::{fitting_size, rounded};
use super::support_pages::{Pages, Placed, prepare};
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use crate::workload::arena::Residency;
use serde::Serialize;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-table4",
    source: "EMD, Table 4",
    summary: "Memory of BTree and memcached on base and on huge pages, on this kernel",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("kernel", "Linux"),
        ("base_bytes", "on 4 KiB pages"),
        ("thp_bytes", "with huge pages"),
        ("growth", "growth (times)"),
        ("collapsed_bytes", "all collapsed"),
        ("collapsed_growth", "growth (times)"),
        ("paper_base_bytes", "4 KiB in the paper"),
        ("paper_thp_bytes", "with huge pages"),
        ("paper_growth", "growth (times)"),
    ],
    run: &run,
};

/// The paper's programs, and an ordinary memcached.
const KINDS: [WorkloadKind; 3] =
    [WorkloadKind::BTree, WorkloadKind::Memcached, WorkloadKind::OrdinaryMemcached];

/// On base and on huge pages in the paper's Table 4, in GB.
const fn paper(kind: WorkloadKind) -> Option<[u64; 2]> {
    match kind {
        WorkloadKind::BTree => Some([10, 44]),
        WorkloadKind::Memcached => Some([19, 50]),
        _ => None,
    }
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    kernel: String,
    base_bytes: u64,
    thp_bytes: u64,
    growth: f64,
    collapsed_bytes: Option<u64>,
    collapsed_growth: Option<f64>,
    paper_base_bytes: Option<u64>,
    paper_thp_bytes: Option<u64>,
    paper_growth: Option<f64>,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, Bytes::from_gib(8), 1)?;
    let _bench = prepare(setting)?;
    let mut report = Report::default();
    for kind in KINDS {
        let mut found = Vec::new();
        for pages in Pages::of(kind) {
            progress(&format!("{kind}: filling {size} of memory, {}", pages.name()))?;
            found.push(Placed::start(setting, kind, size, *pages)?.residency);
        }
        report.push(&row(kind, &found))?;
    }
    report.notes.push(
        "memcached writes zeroes over each MiB that it takes into use, so base pages save it nothing, however it is started: what the \
         paper's had that took 19 GB on base pages and 50 GB on huge ones is not said. Memcached is arranged so that 62 % of its base \
         pages are zero-filled; Memcached-ordinary is started by `memcached -m SIZE`. `All collapsed` is after MADV_COLLAPSE of all \
         that a program has, where first touches do not give huge pages by themselves."
            .to_owned(),
    );
    report.pictures.push(picture(&report));
    Ok(report)
}

/// A program's row; `found` is in the order of [`Pages::of`].
fn row(kind: WorkloadKind, found: &[Residency]) -> Row {
    let bytes = |at: usize| found.get(at).map(|residency| residency.resident);
    let base = bytes(0).unwrap_or_default();
    let growth = |of: Bytes| rounded(of.0 as f64 / base.0 as f64, 2);
    let thp = bytes(1).unwrap_or_default();
    let paper = paper(kind);
    let of_paper = |at: usize| paper.map(|numbers| Bytes::from_gib(numbers[at]).0);
    Row {
        case: kind.name(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        base_bytes: base.0,
        thp_bytes: thp.0,
        growth: growth(thp),
        collapsed_bytes: bytes(2).map(|bytes| bytes.0),
        collapsed_growth: bytes(2).map(growth),
        paper_base_bytes: of_paper(0),
        paper_thp_bytes: of_paper(1),
        paper_growth: paper.map(|[base, thp]| rounded(thp as f64 / base as f64, 2)),
    }
}

fn picture(report: &Report) -> Picture {
    let of = |(name, key): (&str, &str)| {
        let values = report.rows.iter().map(|row| row[key].as_f64().unwrap_or(f64::NAN));
        (name.to_owned(), values.collect())
    };
    Picture {
        file: "emd-table4.svg".to_owned(),
        title: "Memory on huge pages relative to 4 KiB pages".to_owned(),
        content: Content::Bars {
            y_label: "growth (times)".to_owned(),
            categories: KINDS.iter().map(|kind| kind.name().to_owned()).collect(),
            series: [
                ("linux-thp", "growth"),
                ("all collapsed", "collapsed_growth"),
                ("in the paper", "paper_growth"),
            ]
            .map(of)
            .to_vec(),
            reference: Some(1.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::HugePages;

    #[test]
    fn a_row_compares_each_way_with_base_pages() {
        let resident = |mib| Residency { resident: Bytes::from_mib(mib), huge_pages: HugePages(0) };
        let row = row(WorkloadKind::BTree, &[resident(100), resident(400)]);
        assert_eq!((row.growth, row.collapsed_growth, row.paper_growth), (4.0, None, Some(4.4)));
        let found = [resident(100), resident(100), resident(110)];
        let row = super::row(WorkloadKind::OrdinaryMemcached, &found);
        assert_eq!((row.growth, row.collapsed_growth, row.paper_growth), (1.0, Some(1.1), None));
    }
}
