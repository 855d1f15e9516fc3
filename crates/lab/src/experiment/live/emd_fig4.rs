//! `emd-fig4`: where the bloat is, by address, in the paper's four programs (EMD, Figure 4), and in a memcached that is started as an
//! operator starts it.
//!
//! Every base page is read, and beside it the ten buckets as a sample of two dozen base pages
//! per huge page gives them. The paper's figure has no numbers; its text names three kinds of huge pages in
//! Memcached and BTree (nearly all bloat, about half, none), and 80 % and 20 % in RandomAccess.

use super::support_bench::{Bench, Subject, fitting_size, hold, rounded};
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use serde::Serialize;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::pass::{Options, Pass};
use superpage_policy::bloat::{BloatMap, Bucket};
use superpage_policy::debloat::Depth;
use superpage_policy::sampling::SAMPLE;
use superpage_units::{BasePages, Bytes, Time};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig4",
    source: "EMD, Figure 4",
    summary: "Bloat by address in BTree, Memcached, RandomAccess-L and -R, and an ordinary memcached",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("huge_pages", "huge pages"),
        ("bloat", "bloat"),
        ("sampled_bloat", "from samples"),
        ("buckets", "huge pages by bucket, 0-49 first"),
        ("sampled_buckets", "from samples"),
        ("wrong_bucket", "in another bucket"),
        ("paper", "in the paper"),
    ],
    run: &run,
};

/// The programs in the paper's order, and what it says of each.
const CASES: [(WorkloadKind, &str); 5] = [
    (WorkloadKind::BTree, "three kinds: nearly all, about half, none"),
    (WorkloadKind::Memcached, "three kinds: nearly all, about half, none"),
    (WorkloadKind::RandomAccessL, "80 % in the first half, 20 % in the second"),
    (WorkloadKind::RandomAccessR, "20 % in the first half, 80 % in the second"),
    (WorkloadKind::OrdinaryMemcached, "not in the paper"),
];

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    huge_pages: u64,
    bloat: f64,
    sampled_bloat: f64,
    buckets: Vec<u64>,
    sampled_buckets: Vec<u64>,
    wrong_bucket: f64,
    paper: &'static str,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, Bytes::from_gib(4), 1)?;
    let _bench = Bench::open(setting)?;
    let mut report = Report::default();
    for (kind, paper) in CASES {
        progress(&format!("{kind}: filling {size} of memory"))?;
        let subject = Subject::start(setting, kind, size)?;
        progress(&format!("{kind}: reading it"))?;
        let exact = survey(&subject, Depth::Exact)?;
        let sampled = survey(&subject, Depth::Sample(SAMPLE))?;
        report.push(&row(kind, paper, &exact, &sampled))?;
        report.pictures.push(Picture {
            file: format!("emd-fig4-{}.svg", kind.name().to_lowercase()),
            title: format!("{kind}: bloat by address"),
            content: Content::BloatByAddress(
                exact.by_address().map(|(_, k)| k.density().map(|d| d.share())).collect(),
            ),
        });
    }
    report.notes.push(
        "BTree, Memcached and RandomAccess were arranged with this figure in view, so that they agree with it shows nothing. Memcached has \
         the paper's three kinds of huge pages: one arena and three coarse size classes, with values just above a class. Memcached-ordinary is started by `memcached -m SIZE` and has values as long as Facebook's; all its memory was \
         collapsed before it was read."
            .to_owned(),
    );
    Ok(report)
}

fn survey(subject: &Subject, depth: Depth) -> Result<BloatMap> {
    let processes = vec![hold(subject.pid())?];
    let nothing = CoolDown::new();
    let mut pass = Pass::new(processes, BasePages::ZERO, Options::default(), &nothing, Time::ZERO)?;
    pass.survey(depth)?;
    Ok(pass.maps().values().next().cloned().unwrap_or_default())
}

fn row(kind: WorkloadKind, paper: &'static str, exact: &BloatMap, sampled: &BloatMap) -> Row {
    let share = |map: &BloatMap| map.total_zero_pages().share_of(map.len().base_pages()).get();
    let buckets = |map: &BloatMap| {
        let mut counts: Vec<u64> = Bucket::densest_first().map(|b| map.count(b).0).collect();
        counts.reverse();
        counts
    };
    let wrong = exact
        .by_address()
        .filter(|(range, known)| {
            let bucket = |density: superpage_policy::bloat::BloatDensity| density.bucket();
            let guess = sampled.get(*range).and_then(|known| known.density()).map(bucket);
            guess != known.density().map(bucket)
        })
        .count();
    Row {
        case: kind.name(),
        huge_pages: exact.len().0,
        bloat: rounded(share(exact), 3),
        sampled_bloat: rounded(share(sampled), 3),
        buckets: buckets(exact),
        sampled_buckets: buckets(sampled),
        wrong_bucket: rounded(wrong as f64 / exact.len().0.max(1) as f64, 3),
        paper,
    }
}
