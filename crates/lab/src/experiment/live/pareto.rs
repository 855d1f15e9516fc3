//! `pareto`: what huge pages are worth to servers in cgroups, against the memory that they may have. No paper has it.
//!
//! A Redis after deletions that saves while it is asked, the same filled again before, a memcached, and lookups in a B+ tree,
//! each in a cgroup without swap whose limit is 1.1 or 1.5 times the most that it had there on base pages, or that has none;
//! and two cgroups at once: a B+ tree in a tight one, and a Redis that is filled without a limit. Clients are outside. Where
//! the kernel kills the program, or the child of Redis that saves for it, throughput is 0.
//!
//! Peers: base pages; huge pages as the kernel gives them; the same with the kernel's own shrinker armed as the daemon arms
//! it, and no daemon; Quicksilver's Sync-64 by the daemon; and `superpage` with `first_touch = "generous"`.
//!
//! The best of the others is chosen for each round by the other rounds, so that who was lucky in one is not compared in it.

use super::support_bench::{Bench, check_memory, median, memory_cgroups, rounded, scratch, warm};
use super::support_daemon::Daemon;
use super::support_redis::Pacing;
use super::support_regime::{Peer, in_turn, note_on_generous};
use super::support_served::{
    Asked, Seen, Served, ask_redis, ask_tree, fill_redis, filled_tree, start_redis, unless_killed,
    wait_until_empty,
};
use super::{Content, Error, Experiment, On, Picture, Progress, Report, Result, Setting};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use superpage_kernel::cgroup::{Hierarchy, Scratch};
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pareto",
    source: "no paper",
    summary: "Throughput and latency of servers in cgroups against the memory that they may have, under five policies",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("limit_over_4k", "limit over 4 KiB"),
        ("policy", "policy"),
        ("throughput", "requests/s"),
        ("over_4k", "over 4 KiB"),
        ("low", "low"),
        ("high", "high"),
        ("over_best", "over the best other"),
        ("cpu_us_per_request", "CPU us"),
        ("p999_us", "p99.9 us"),
        ("rss_bytes", "memory"),
        ("huge_pages", "huge pages"),
        ("killed", "killed"),
        ("daemon_cpu_s", "CPU s of the daemon"),
    ],
    run: &run,
};

/// The bytes that are stored in Redis and memcached at first, and the footprint of the tree on huge pages. Chosen: a trial takes
/// less than half a minute.
const SIZE: Bytes = Bytes::from_mib(1536);
/// The limits, over the most that a program had on base pages.
const LIMITS: [Option<f64>; 3] = [None, Some(1.5), Some(1.1)];
const PROGRAMS: [Served; 4] =
    [Served::Redis, Served::RedisRefilled, Served::Memcached, Served::BTree];
/// The part in which two programs run at once.
const TWO_CGROUPS: &str = "two-cgroups";
/// The limit of the B+ tree beside a Redis.
const TIGHT: f64 = 1.1;
/// The names of those two in rows.
const TREE_BESIDE: &str = "B+ tree beside Redis";
const REDIS_BESIDE: &str = "Redis beside a tight B+ tree";

/// The policies that are compared; the last one with the others.
const PEERS: [Peer; 5] =
    [Peer::BasePages, Peer::Always, Peer::Armed, Peer::Quicksilver, Peer::Generous];

/// A program in a cgroup, as rows are named.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    limit: Option<f64>,
}

/// One trial of a program.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// `None` if the kernel killed the program.
    seen: Option<Seen>,
    /// CPU time of the daemon, in seconds.
    daemon_cpu: f64,
    /// The most memory that the cgroup had.
    peak: Bytes,
}

impl Sample {
    fn throughput(&self) -> f64 {
        self.seen.map_or(0.0, |seen| seen.throughput)
    }
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    limit_over_4k: Option<f64>,
    throughput: f64,
    /// The ratio of the median throughputs; `low` and `high` are the least and the greatest ratio in a round.
    over_4k: f64,
    low: f64,
    high: f64,
    /// The other policy that the last round was compared with, and the ratios of all rounds; in rows of `superpage`.
    best: Option<&'static str>,
    over_best: Option<f64>,
    best_low: Option<f64>,
    best_high: Option<f64>,
    cpu_us_per_request: Option<f64>,
    p999_us: Option<f64>,
    rss_bytes: Option<f64>,
    huge_pages: Option<f64>,
    killed: usize,
    daemon_cpu_s: f64,
    rounds: u32,
}

/// The samples of each peer, by rounds.
type Samples = [Vec<Sample>; PEERS.len()];

/// The parts, as they are named on the command line.
pub(super) fn parts() -> Vec<&'static str> {
    PROGRAMS.iter().map(|served| served.file()).chain([TWO_CGROUPS]).collect()
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = setting.size.unwrap_or(SIZE);
    let least = Bytes(3 * size.0 + (1 << 30));
    check_memory("programs", size, least)?;
    let hierarchy = memory_cgroups()?;
    let mut bench = Bench::open(setting)?;
    warm(setting, Bytes(2 * size.0))?;
    let mut trials = Trials {
        setting,
        hierarchy,
        size,
        pacing: pacing(size),
        rates: BTreeMap::new(),
        peaks: BTreeMap::new(),
    };
    let mut report = Report::default();
    let is_asked =
        |part: &str| setting.only.is_empty() || setting.only.iter().any(|one| one == part);
    let programs: Vec<Served> =
        PROGRAMS.into_iter().filter(|served| is_asked(served.file())).collect();
    for served in programs.iter().copied() {
        for limit in LIMITS {
            let samples = in_turn(PEERS, setting.rounds, |peer, round| {
                progress(&what(served.name(), limit, peer, round, setting.rounds))?;
                peer.kernel().set(&mut bench)?;
                trials.alone(served, limit, peer, round)
            })?;
            push(&mut report, Case { name: served.name(), limit }, &samples)?;
        }
    }
    if is_asked(TWO_CGROUPS) {
        push_two_cgroups(&mut report, &mut trials, &mut bench, progress)?;
    }
    report.notes = notes(&report, size, trials.pacing);
    report.pictures = programs.into_iter().map(|served| picture(&report, served)).collect();
    Ok(report)
}

/// Two programs at once, in a cgroup each.
fn push_two_cgroups(
    report: &mut Report,
    trials: &mut Trials<'_>,
    bench: &mut Bench,
    progress: Progress<'_>,
) -> Result<()> {
    let rounds = trials.setting.rounds;
    if !trials.peaks.contains_key(Served::BTree.name()) {
        progress("B+ tree, no limit: the most that it has on base pages")?;
        Peer::BasePages.kernel().set(bench)?;
        trials.alone(Served::BTree, None, Peer::BasePages, 0)?;
    }
    let pairs = in_turn(PEERS, rounds, |peer, round| {
        progress(&what("two cgroups", Some(TIGHT), peer, round, rounds))?;
        peer.kernel().set(bench)?;
        trials.together(peer, round)
    })?;
    let of = |which: fn(&[Sample; 2]) -> Sample| {
        pairs.each_ref().map(|rounds| rounds.iter().map(which).collect())
    };
    push(report, Case { name: TREE_BESIDE, limit: Some(TIGHT) }, &of(|pair| pair[0]))?;
    push(report, Case { name: REDIS_BESIDE, limit: None }, &of(|pair| pair[1]))
}

fn what(case: &str, limit: Option<f64>, peer: Peer, round: u32, rounds: u32) -> String {
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
    format!("{case}, {limit}: {}, round {} of {rounds}", peer.name(), round + 1)
}

/// The times of a run with programs of this size. A run below a GiB is a trial of the experiment, not a measurement.
fn pacing(size: Bytes) -> Pacing {
    let each = Duration::from_secs(if size < Bytes::from_gib(1) { 1 } else { 5 });
    Pacing { settle: each, closed: each, open: each }
}

struct Trials<'a> {
    setting: &'a Setting,
    hierarchy: Hierarchy,
    size: Bytes,
    pacing: Pacing,
    /// The rates at which each Redis is asked. They follow from base pages, which come first.
    rates: BTreeMap<&'static str, Option<f64>>,
    /// The most that each program had on base pages without a limit in any round, which come first.
    peaks: BTreeMap<&'static str, Bytes>,
}

impl Trials<'_> {
    fn group(&self, number: usize, limit: Option<Bytes>) -> Result<Scratch> {
        let group = scratch(self.setting, &self.hierarchy, &format!("superpage-pareto-{number}"))?;
        limit.map_or(Ok(()), |limit| group.limit(limit))?;
        Ok(group)
    }

    /// The limit of a program's cgroup: so many times the most that it had on base pages.
    fn limit(&self, served: Served, times: Option<f64>) -> Option<Bytes> {
        times.zip(self.peaks.get(served.name())).map(|(times, peak)| peak.scaled(times))
    }

    fn seed(&self, round: u32) -> u64 {
        self.setting.seed + u64::from(round)
    }

    fn alone(
        &mut self,
        served: Served,
        times: Option<f64>,
        peer: Peer,
        round: u32,
    ) -> Result<Sample> {
        let group = self.group(0, self.limit(served, times))?;
        let daemon = peer.daemon(self.setting, &[&group])?;
        let seed = self.seed(round);
        let asked =
            Asked { pacing: self.pacing, seed, rate: self.rates.entry(served.name()).or_default() };
        let seen = served.run(self.setting, &group, self.size, asked);
        let seen = unless_killed(&group, seen)?;
        let sample = sample(&group, seen, daemon.as_ref())?;
        if peer == Peer::BasePages && times.is_none() {
            let peak = self.peaks.entry(served.name()).or_default();
            *peak = sample.peak.max(*peak);
        }
        daemon.map_or(Ok(()), Daemon::stop)?;
        Ok(sample)
    }

    /// A B+ tree in a tight cgroup that is filled beside a Redis without a limit.
    fn together(&mut self, peer: Peer, round: u32) -> Result<[Sample; 2]> {
        let tight = self.group(0, self.limit(Served::BTree, Some(TIGHT)))?;
        let free = self.group(1, None)?;
        let daemon = peer.daemon(self.setting, &[&tight, &free])?;
        let (seed, size) = (self.seed(round), self.size);
        let (server, mut client) = start_redis(&free, seed)?;
        let (tree, filled) = std::thread::scope(|scope| {
            let filling = scope.spawn(|| fill_redis(&mut client, size, seed));
            let tree = filled_tree(self.setting, &tight, size);
            (tree, filling.join())
        });
        filled.map_err(|_| Error::Child("the thread that fills Redis panicked".to_owned()))??;
        let mut tree = unless_killed(&tight, tree)?;
        std::thread::sleep(self.pacing.settle);
        let asked =
            Asked { pacing: self.pacing, seed, rate: self.rates.entry(REDIS_BESIDE).or_default() };
        let redis = ask_redis(&server, &mut client, asked)?;
        let asked = tree.as_mut().map(|tree| ask_tree(tree, self.pacing.closed, seed)).transpose();
        let asked = unless_killed(&tight, asked)?.flatten();
        let samples =
            [sample(&tight, asked, daemon.as_ref())?, sample(&free, Some(redis), daemon.as_ref())?];
        drop((tree, server));
        daemon.map_or(Ok(()), Daemon::stop)?;
        Ok(samples)
    }
}

/// The sample of a program, and of its group. Where the kernel has killed the program, its child may still be about to end.
fn sample(group: &Scratch, seen: Option<Seen>, daemon: Option<&Daemon>) -> Result<Sample> {
    if seen.is_none() {
        wait_until_empty(group)?;
    }
    let daemon_cpu = daemon.map(Daemon::cpu).transpose()?.unwrap_or_default().as_secs_f64();
    Ok(Sample { seen, daemon_cpu, peak: group.group().peak()? })
}

fn push(report: &mut Report, case: Case, samples: &Samples) -> Result<()> {
    let base = &samples[0];
    for (peer, of_peer) in PEERS.into_iter().zip(samples) {
        let of = |value: fn(&Seen) -> f64| {
            let seen: Vec<f64> =
                of_peer.iter().filter_map(|one| one.seen.as_ref()).map(value).collect();
            (!seen.is_empty()).then(|| median(seen))
        };
        let throughput = median(of_peer.iter().map(Sample::throughput));
        let ratios =
            of_peer.iter().zip(base).map(|(one, base)| one.throughput() / base.throughput());
        let (low, high) = bounds(ratios);
        let best = (peer == Peer::Generous).then(|| Best::of(samples)).flatten();
        report.push(&Row {
            case: case.name,
            policy: peer.name(),
            limit_over_4k: case.limit,
            throughput: throughput.round(),
            over_4k: rounded(throughput / median(base.iter().map(Sample::throughput)), 3),
            low: rounded(low, 3),
            high: rounded(high, 3),
            best: best.map(|best| best.peer.name()),
            over_best: best.map(|best| rounded(best.middle, 3)),
            best_low: best.map(|best| rounded(best.low, 3)),
            best_high: best.map(|best| rounded(best.high, 3)),
            cpu_us_per_request: of(|seen| seen.cpu_us).map(|us| rounded(us, 3)),
            p999_us: of(|seen| seen.p999_us.unwrap_or(f64::NAN))
                .filter(|us| us.is_finite())
                .map(|us| rounded(us, 1)),
            rss_bytes: of(|seen| seen.resident.0 as f64).map(f64::round),
            huge_pages: of(|seen| seen.huge_pages as f64),
            killed: of_peer.iter().filter(|one| one.seen.is_none()).count(),
            daemon_cpu_s: rounded(median(of_peer.iter().map(|one| one.daemon_cpu)), 2),
            rounds: u32::try_from(of_peer.len()).unwrap_or(u32::MAX),
        })?;
    }
    Ok(())
}

/// `superpage` over the best other policy.
#[derive(Clone, Copy, Debug)]
struct Best {
    /// The one that the last round was compared with.
    peer: Peer,
    middle: f64,
    low: f64,
    high: f64,
}

impl Best {
    /// `None` with one round, where there are no others to choose by. Rounds in which the chosen one was killed are left out.
    fn of(samples: &Samples) -> Option<Self> {
        let [others @ .., ours] = samples;
        if ours.len() < 2 {
            return None;
        }
        let (mut peer, mut ratios) = (Peer::BasePages, Vec::new());
        for (round, one) in ours.iter().enumerate() {
            let elsewhere = |of_peer: &Vec<Sample>| {
                let rounds = of_peer.iter().enumerate().filter(|(other, _)| *other != round);
                median(rounds.map(|(_, sample)| sample.throughput()))
            };
            let best = (0..others.len())
                .max_by(|a, b| elsewhere(&others[*a]).total_cmp(&elsewhere(&others[*b])))?;
            peer = PEERS[best];
            let theirs = others[best][round].throughput();
            if theirs > 0.0 {
                ratios.push(one.throughput() / theirs);
            }
        }
        if ratios.is_empty() {
            return None;
        }
        let (low, high) = bounds(ratios.iter().copied());
        Some(Self { peer, middle: median(ratios), low, high })
    }
}

/// The least and the greatest.
fn bounds(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold((f64::INFINITY, 0.0), |(low, high), one| (one.min(low), one.max(high)))
}

fn notes(report: &Report, size: Bytes, pacing: Pacing) -> Vec<String> {
    let (settle, asked) = (pacing.settle.as_secs(), pacing.closed.as_secs());
    let mut notes = vec![
        format!(
            "{size} are stored in Redis (before 70 % are deleted, and refilled with smaller values) and memcached, and are the footprint of the tree on huge pages. \
             Programs are left alone for {settle} s and asked for {asked} s as fast as they answer; Redis saves meanwhile, and again \
             while it is asked at half of its rate on base pages for its p99.9."
        ),
        "low and high are the least and the greatest of over_4k in single rounds, against base pages in the same round. \
         over_best: superpage over the other policy that was best in the other rounds."
            .to_owned(),
    ];
    notes.extend(note_on_generous());
    for other in &PEERS[..PEERS.len() - 1] {
        let of = |policy: &str| {
            report
                .rows
                .iter()
                .filter(|row| row["policy"] == policy)
                .map(throughput)
                .collect::<Vec<_>>()
        };
        let pairs: Vec<(f64, f64)> =
            of(Peer::Generous.name()).into_iter().zip(of(other.name())).collect();
        let both = pairs.iter().filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0);
        let logs: Vec<f64> = both.map(|(ours, theirs)| (ours / theirs).ln()).collect();
        let mean = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
        notes.push(format!(
            "superpage over {}: {:.3}, the geometric mean of the {} of {} rows in which both live.",
            other.name(),
            mean,
            logs.len(),
            pairs.len()
        ));
    }
    notes
}

fn throughput(row: &serde_json::Value) -> f64 {
    row["throughput"].as_f64().unwrap_or_default()
}

fn picture(report: &Report, served: Served) -> Picture {
    let of = |policy: &str, limit: Option<f64>| {
        let is_it = |row: &&serde_json::Value| {
            row["case"] == served.name()
                && row["policy"] == policy
                && row["limit_over_4k"].as_f64() == limit
        };
        report.rows.iter().find(is_it).and_then(|row| row["over_4k"].as_f64()).unwrap_or_default()
    };
    let series =
        |peer: Peer| (peer.name().to_owned(), LIMITS.map(|limit| of(peer.name(), limit)).to_vec());
    let category = |limit: Option<f64>| {
        limit.map_or_else(
            || "no limit".to_owned(),
            |limit| format!("{limit} times the peak on base pages"),
        )
    };
    Picture {
        file: format!("pareto-{}.svg", served.file()),
        title: format!("{}: throughput by limit of its cgroup", served.name()),
        content: Content::Bars {
            y_label: "over base pages (0: killed)".to_owned(),
            categories: LIMITS.map(category).to_vec(),
            series: PEERS.map(series).to_vec(),
            reference: Some(1.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rounds: [[f64; 3]; PEERS.len()]) -> Samples {
        rounds.map(|of_peer| {
            let sample = |throughput| {
                let seen = (throughput > 0.0).then(|| Seen { throughput, ..Seen::default() });
                Sample { seen, daemon_cpu: 0.0, peak: Bytes::ZERO }
            };
            of_peer.map(sample).to_vec()
        })
    }

    #[test]
    fn the_best_other_is_chosen_by_other_rounds() {
        let none = [0.0; 3];
        // The second was lucky in the first round, in which that does not count.
        let all = samples([[10.0; 3], [30.0, 8.0, 8.0], [9.0; 3], none, [12.0, 11.0, 10.0]]);
        let best = Best::of(&all).expect("there are rounds");
        assert_eq!((best.low, best.middle, best.high), (12.0 / 10.0, 10.0 / 8.0, 11.0 / 8.0));
        assert!(Best::of(&all.map(|rounds| rounds[..1].to_vec())).is_none());
    }
}
