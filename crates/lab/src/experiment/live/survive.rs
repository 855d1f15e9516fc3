//! `survive`: whether programs that fit into their cgroup on base pages live there while first touches give huge pages. No
//! paper has it.
//!
//! A program touches 40 % of the base pages of twice the memory that its cgroup may have, without swap: on base pages it fits,
//! on huge pages it does not. Small ones are what a container is as it starts: six threads under a C library that asks for
//! huge pages by itself (`glibc.malloc.hugetlb=1`), which some have killed at once.
//!
//! Peers: base pages; huge pages as the kernel gives them; the same with the kernel's own shrinker armed, which is
//! `max_ptes_none` as the daemon holds it, and no daemon; the daemon; and the daemon with that shrinker off
//! (`shrink_underused` at 0).

use super::support_bench::{Bench, check_memory, memory_cgroups, rounded, scratch};
use super::support_regime::Peer;
use super::support_told::told_by;
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Helper, Order, Part};
use crate::worker::Launcher;
use serde::Serialize;
use std::path::Path;
use superpage_kernel::cgroup::{Hierarchy, Scratch, Version};
use superpage_kernel::vmstat;
use superpage_units::{Bytes, HUGE_PAGE_BYTES, HugePages, Share};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "survive",
    source: "no paper",
    summary: "Whether programs live in a cgroup that they fit into on base pages, while first touches give huge pages",
    on: On::Live,
    columns: &[
        ("case", "programs"),
        ("policy", "who makes and splits huge pages"),
        ("limit_mib", "limit MiB"),
        ("programs", "programs"),
        ("survived", "survived"),
        ("killed", "killed"),
        ("wrong", "wrong"),
        ("seconds", "longest s"),
        ("split_by_kernel", "split by the kernel"),
        ("split_by_daemon", "by the daemon"),
    ],
    run: &run,
};

/// The memory that the large program maps; its cgroup may have half of it.
const SIZE: Bytes = Bytes::from_mib(3000);
/// The share of its base pages that it touches.
const TOUCHED: Share = Share::percent(40);
/// Small programs, one after the other, and the limits of their cgroup.
const SMALL: u64 = 100;
const SMALL_LIMITS: [u64; 3] = [16, 32, 64];
const SMALL_THREADS: usize = 6;
/// The memory that each thread of a small program allocates.
const SMALL_HEAP: Bytes = Bytes::from_kib(256);

/// Who makes and splits huge pages.
const PEERS: [Peer; 5] =
    [Peer::BasePages, Peer::Always, Peer::Armed, Peer::Default, Peer::Disarmed];

/// Which programs.
#[derive(Clone, Copy, Debug)]
enum Case {
    /// So many large programs at once, each in a cgroup of its own, at this pace.
    Large { programs: usize, pace: Option<Bytes> },
    /// Small programs, one after the other in a cgroup with this limit.
    Small { limit: Bytes },
}

impl Case {
    /// The cases of a run with large programs of this size. A run below a GiB is a trial of the experiment, not a measurement.
    fn all(size: Bytes) -> Vec<Self> {
        let [slow, fast] = [300, 2000].map(Bytes::from_mib);
        let large = [(1, Some(slow)), (1, Some(fast)), (1, None), (4, Some(fast))];
        let large = large.map(|(programs, pace)| Self::Large { programs, pace });
        if size < Bytes::from_gib(1) {
            return large[..1].to_vec();
        }
        let small = SMALL_LIMITS.map(|limit| Self::Small { limit: Bytes::from_mib(limit) });
        large.into_iter().chain(small).collect()
    }

    /// How many programs there are at once.
    const fn programs(self) -> usize {
        match self {
            Self::Large { programs, .. } => programs,
            Self::Small { .. } => 1,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Large { programs, pace: Some(pace) } => {
                format!("{programs} at {} MiB/s", pace.0 >> 20)
            }
            Self::Large { programs, pace: None } => format!("{programs} as fast as it can"),
            Self::Small { .. } => format!("{SMALL_THREADS} threads, glibc.malloc.hugetlb=1"),
        }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    case: String,
    policy: &'static str,
    round: u32,
    cgroups: &'static str,
    limit_mib: u64,
    programs: u64,
    survived: u64,
    killed: u64,
    wrong: u64,
    seconds: f64,
    split_by_kernel: u64,
    split_by_daemon: u64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = setting.size.unwrap_or(SIZE);
    let programs = Case::all(size).into_iter().map(Case::programs).max().unwrap_or(1);
    let least = Bytes(programs as u64 * size.0 + (1 << 30));
    check_memory(&format!("{programs} program(s)"), size, least)?;
    let hierarchy = memory_cgroups()?;
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    for round in 1..=setting.rounds {
        for case in Case::all(size) {
            for peer in PEERS {
                let (name, of) = (peer.name(), setting.rounds);
                progress(&format!("{}, {name}: round {round} of {of}", case.name()))?;
                peer.kernel().set(&mut bench)?;
                report.push(&trial(setting, &hierarchy, case, peer, size, round)?)?;
            }
        }
    }
    report.notes.push(format!(
        "large programs map {size} and touch {:.0} % of its base pages, in address order; their cgroups have no swap. The \
         daemon has no configuration but that it sees these cgroups only. split by the kernel: huge pages that its shrinker \
         split (thp_underused_split_page).",
        TOUCHED.get() * 1e2
    ));
    Ok(report)
}

/// The number of programs that ended in each way.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    survived: u64,
    wrong: u64,
    /// The longest that one of them took.
    seconds: f64,
}

impl Ended {
    /// Takes in how one ended, whose cgroup says whether it was killed.
    fn add(&mut self, filled: Result<f64>) -> Result<()> {
        match filled {
            Ok(seconds) => {
                self.survived += 1;
                self.seconds = self.seconds.max(seconds);
            }
            Err(Error::Worker(crate::worker::Error::Died { .. })) => {}
            Err(Error::Worker(crate::worker::Error::Failed { .. })) => self.wrong += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn trial(
    setting: &Setting,
    hierarchy: &Hierarchy,
    case: Case,
    peer: Peer,
    size: Bytes,
    round: u32,
) -> Result<Row> {
    let limit = match case {
        Case::Large { .. } => Bytes(size.0 / 2),
        Case::Small { limit } => limit,
    };
    let groups: Result<Vec<Scratch>> = (0..case.programs())
        .map(|number| {
            let group = scratch(setting, hierarchy, &format!("superpage-survive-{number}"))?;
            group.limit(limit)?;
            Ok(group)
        })
        .collect();
    let groups = groups?;
    let mut daemon = peer.daemon(setting, &groups.iter().collect::<Vec<_>>())?;
    let before = split_by_kernel()?;
    let ended = match case {
        Case::Large { pace, .. } => large(setting, &groups, size, pace)?,
        Case::Small { .. } => small(setting, &groups[0])?,
    };
    let split_by_kernel = split_by_kernel()? - before;
    let told = daemon.as_mut().map(told_by).transpose()?.unwrap_or_default();
    let kills: Result<Vec<u64>> = groups.iter().map(|group| Ok(group.group().kills()?)).collect();
    Ok(Row {
        case: case.name(),
        policy: peer.name(),
        round,
        cgroups: if hierarchy.version() == Version::V1 { "v1" } else { "v2" },
        limit_mib: limit.0 >> 20,
        programs: match case {
            Case::Large { programs, .. } => programs as u64,
            Case::Small { .. } => SMALL,
        },
        survived: ended.survived,
        killed: kills?.into_iter().sum(),
        wrong: ended.wrong,
        seconds: rounded(ended.seconds, 2),
        split_by_kernel,
        split_by_daemon: told.split.0,
    })
}

/// Large programs, at once, each in its cgroup.
fn large(setting: &Setting, groups: &[Scratch], size: Bytes, pace: Option<Bytes>) -> Result<Ended> {
    let size = HugePages(size.0 / HUGE_PAGE_BYTES);
    let part = Part::Filling { size, touched: TOUCHED, pace };
    let start = |group: &Scratch| Ok(group.while_in(|| Helper::start(&setting.launcher, part))??);
    let programs: Result<Vec<Helper>> = groups.iter().map(start).collect();
    let mut programs = programs?;
    for program in &mut programs {
        program.order(Order::Go)?;
    }
    let mut ended = Ended::default();
    for mut program in programs {
        let filled = program.done().and_then(|time| {
            program.done_with(Order::Check)?;
            Ok(time.as_secs_f64())
        });
        ended.add(filled.map_err(Error::from))?;
    }
    Ok(ended)
}

/// Small programs, one after the other in one cgroup.
fn small(setting: &Setting, group: &Scratch) -> Result<Ended> {
    let tunable = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1".to_owned();
    let mut leading_args = vec![tunable, setting.launcher.program.to_string_lossy().into_owned()];
    leading_args.extend_from_slice(&setting.launcher.leading_args);
    let launcher = Launcher { program: "env".into(), leading_args };
    let part = Part::Threads { threads: SMALL_THREADS, size: SMALL_HEAP };
    let mut ended = Ended::default();
    for _ in 0..SMALL {
        let started = group.while_in(|| Helper::start(&launcher, part))?;
        let worked = started.and_then(|mut program| program.done_with(Order::Go));
        ended.add(worked.map(|time| time.as_secs_f64()).map_err(Error::from))?;
    }
    Ok(ended)
}

/// Huge pages that the kernel's shrinker has split since the machine started.
fn split_by_kernel() -> Result<u64> {
    Ok(vmstat::read(Path::new("/proc"))?.get("thp_underused_split_page").unwrap_or(0))
}
