//! What the daemon did and how it stands, as metrics for Prometheus.
//!
//! Counters come from the same [`Entry`] as the log, gauges from the same [`Status`] as the terminal
//! view. Names and labels are documented in docs/operate.md; a test holds that table. Labels are
//! policies, kinds of causes and watched memory, never processes, so their number is bounded.
//!
//! What is not here: how Prometheus gets at them but for an optional listener ([`serve`]); the file
//! is written by the [`ledger`](crate::ledger).

mod serve;

use crate::history::{Entry, What};
use crate::status::{AnonymousMemory, Status};
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use serve::{Server, serve};

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter>;
type Whole = Gauge<u64, AtomicU64>;
type Float = Gauge<f64, AtomicU64>;
type Seconds = Counter<f64, AtomicU64>;

/// How many different words a label may have. Policies and kinds of causes are some dozens; the
/// bound is for what was not thought of.
const WORDS: usize = 64;
/// What a word is counted as that is too long, or one too many.
const OTHER: &str = "other";

/// The metrics. All methods can be called from several threads.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    known: Known,
    /// The words that labels have had.
    words: Mutex<BTreeSet<String>>,
    /// Held while gauges are brought up to date, and while they are read.
    gate: Mutex<()>,
}

/// Each metric, to change it.
#[derive(Debug)]
struct Known {
    promoted: Counts,
    filled_bytes: Counts,
    refused: Counts,
    collapse: Histogram,
    wait: Histogram,
    debloated: Counts,
    freed_bytes: Counts,
    left_alone: Counts,
    restarts: Counts,
    surveys: Counter,
    requests_timed_out: Counter,
    workers_lost: Counter,
    used: Family<Labels, Whole>,
    total: Family<Labels, Whole>,
    watermark: Family<Labels, Float>,
    free_huge_pages: Whole,
    fragmentation: Float,
    anonymous: Family<Labels, Whole>,
    processes: Family<Labels, Whole>,
    too_long: Whole,
    waiting: Whole,
    pause: Float,
    cpu: Seconds,
    resident: Whole,
}

/// A quarter of a millisecond to sixteen seconds: a collapse takes 0.3 to 0.9 ms where a huge page is at
/// hand, and as long as it takes where the kernel has to make one.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 17))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics that have counted nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("superpage");
        let known = Known::register(&mut registry);
        let version: Labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        let build: Family<Labels, Whole> = Family::default();
        build.get_or_create(&version).set(1);
        registry.register("build_info", "The version that runs; always 1", build);
        Self { registry, known, words: Mutex::default(), gate: Mutex::default() }
    }

    /// Counts what happened.
    pub fn take(&self, entry: &Entry) {
        let known = &self.known;
        let kind = self.word(&entry.kind);
        let policy = self.word(entry.policy.as_deref().unwrap_or("none"));
        let by_cause: Labels = vec![("policy", policy.clone()), ("cause", kind.clone())];
        let by_reason: Labels = vec![("reason", kind)];
        let bytes = entry.base_pages.bytes().0;
        match entry.what {
            What::Promoted => {
                known.promoted.get_or_create(&by_cause).inc_by(entry.huge_pages.0);
                known.filled_bytes.get_or_create(&vec![("policy", policy)]).inc_by(bytes);
            }
            What::Refused => {
                known.refused.get_or_create(&by_reason).inc_by(entry.huge_pages.0.max(1));
            }
            What::Debloated => {
                known.debloated.get_or_create(&by_cause).inc_by(entry.huge_pages.0);
                known.freed_bytes.get_or_create(&by_cause).inc_by(bytes);
            }
            What::LeftAlone => {
                known.left_alone.get_or_create(&by_reason).inc_by(entry.huge_pages.0.max(1));
            }
            What::Restarted => {
                known.restarts.get_or_create(&vec![("part", self.word(&entry.kind))]).inc();
            }
            What::Started
            | What::Stopped
            | What::Reloaded
            | What::Setting
            | What::Watermark
            | What::BackedOff
            | What::Missed => {}
        }
    }

    /// Takes how long the kernel took for each huge page of a call.
    pub fn observe_collapse(&self, time: Duration) {
        self.known.collapse.observe(time.as_secs_f64());
    }

    /// Takes how long it was from the survey that found the range to the huge page being mapped.
    pub fn observe_wait(&self, time: Duration) {
        self.known.wait.observe(time.as_secs_f64());
    }

    /// Takes how the daemon stands. What is not watched any more is not shown any more.
    pub fn set(&self, status: &Status) {
        let _gate = self.close_gate();
        let known = &self.known;
        known.surveys.inner().store(status.surveys, Ordering::Relaxed);
        known.requests_timed_out.inner().store(status.requests_timed_out, Ordering::Relaxed);
        known.workers_lost.inner().store(status.workers_lost, Ordering::Relaxed);
        known.cpu.inner().store(status.cpu_s.to_bits(), Ordering::Relaxed);
        known.free_huge_pages.set(status.free_huge_pages.0);
        known.fragmentation.set(status.fragmentation.get());
        let AnonymousMemory { base, huge, gigantic } = status.anonymous;
        for (size, bytes) in [("base", base), ("huge", huge), ("gigantic", gigantic)] {
            known.anonymous.get_or_create(&vec![("page_size", size.to_owned())]).set(bytes.0);
        }
        known.too_long.set(status.too_long);
        known.waiting.set(status.waiting);
        known.pause.set(status.pause_ms / 1e3);
        known.resident.set(status.resident.0);
        self.set_watches(status);
        known.processes.clear();
        for (policy, processes) in &status.policies {
            known.processes.get_or_create(&vec![("policy", self.word(policy))]).set(*processes);
        }
    }

    fn set_watches(&self, status: &Status) {
        let known = &self.known;
        known.used.clear();
        known.total.clear();
        known.watermark.clear();
        for memory in &status.watches {
            let watch: Labels = vec![("watch", memory.name.clone())];
            known.used.get_or_create(&watch).set(memory.used.0);
            known.total.get_or_create(&watch).set(memory.total.0);
            for (mark, share) in [("high", memory.high), ("low", memory.low)] {
                let mut labels = watch.clone();
                labels.push(("mark", mark.to_owned()));
                known.watermark.get_or_create(&labels).set(share.get());
            }
        }
    }

    /// The metrics as text, in the format that Prometheus calls 0.0.4.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let gate = self.close_gate();
        // Writing to a string does not fail.
        let _ = encode_registry(&mut text, &self.registry);
        drop(gate);
        as_plain_text(&text)
    }

    fn close_gate(&self) -> MutexGuard<'_, ()> {
        // It guards no data of its own that could have been left half done.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `word` as a label: itself, or `other` if it is no word of ours or one too many.
    fn word(&self, word: &str) -> String {
        const LONGEST: usize = 40;
        let is_word = !word.is_empty()
            && word.len() <= LONGEST
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.contains(word) {
            return word.to_owned();
        }
        if !is_word || words.len() >= WORDS {
            return OTHER.to_owned();
        }
        words.insert(word.to_owned());
        word.to_owned()
    }
}

impl Known {
    fn register(registry: &mut Registry) -> Self {
        let known = Self {
            collapse: times(),
            wait: times(),
            promoted: Default::default(),
            filled_bytes: Default::default(),
            refused: Default::default(),
            debloated: Default::default(),
            freed_bytes: Default::default(),
            left_alone: Default::default(),
            restarts: Default::default(),
            surveys: Default::default(),
            requests_timed_out: Default::default(),
            workers_lost: Default::default(),
            used: Default::default(),
            total: Default::default(),
            watermark: Default::default(),
            free_huge_pages: Default::default(),
            fragmentation: Default::default(),
            anonymous: Default::default(),
            processes: Default::default(),
            too_long: Default::default(),
            waiting: Default::default(),
            pause: Default::default(),
            cpu: Default::default(),
            resident: Default::default(),
        };
        known.register_work(registry);
        known.register_standing(registry);
        known
    }

    /// What was done: from entries.
    fn register_work(&self, registry: &mut Registry) {
        let mut add = Adding(registry);
        add.metric(
            "promoted_huge_pages",
            "PMD ranges that became huge pages, by policy and kind of cause",
            &self.promoted,
        );
        add.metric(
            "promotion_filled_bytes",
            "Memory that was not in use and was filled with zeroes to make huge pages",
            &self.filled_bytes,
        );
        add.metric(
            "promotions_refused",
            "Promotions that the kernel or a limit said no to, by reason",
            &self.refused,
        );
        add.metric(
            "promotion_seconds",
            "How long the kernel took for each huge page, in each call",
            &self.collapse,
        );
        add.metric(
            "promotion_wait_seconds",
            "From the survey that found the range to the huge page being mapped",
            &self.wait,
        );
        add.metric(
            "debloated_huge_pages",
            "Huge pages that were split, by policy and kind of cause",
            &self.debloated,
        );
        add.metric(
            "debloat_freed_bytes",
            "Memory freed by splitting huge pages, as verified",
            &self.freed_bytes,
        );
        add.metric(
            "huge_pages_left_alone",
            "Huge pages that were to be split and stayed whole, by reason",
            &self.left_alone,
        );
        add.metric(
            "daemon_restarts",
            "Parts of the daemon that ended by themselves and were started again",
            &self.restarts,
        );
    }

    /// How the daemon stands: from its status.
    fn register_standing(&self, registry: &mut Registry) {
        let mut add = Adding(registry);
        add.metric(
            "surveys",
            "Surveys of processes: how often what is mapped in one was looked at",
            &self.surveys,
        );
        add.metric(
            "requests_timed_out",
            "Requests to the kernel and passes that took longer than they may",
            &self.requests_timed_out,
        );
        add.metric(
            "workers_lost",
            "Workers and passes that ended in the middle of their work",
            &self.workers_lost,
        );
        add.metric("memory_used_bytes", "Used memory of what is watched", &self.used);
        add.metric("memory_total_bytes", "All memory of what is watched", &self.total);
        add.metric(
            "memory_watermark_ratio",
            "The watermarks, as shares of all memory",
            &self.watermark,
        );
        add.metric(
            "free_huge_pages",
            "Free huge pages that could be had at once",
            &self.free_huge_pages,
        );
        add.metric(
            "fragmentation_ratio",
            "The share of free memory that lies in smaller pieces than a huge page",
            &self.fragmentation,
        );
        add.metric(
            "anonymous_memory_bytes",
            "Anonymous memory of all programs, by the size of the pages that map it",
            &self.anonymous,
        );
        add.metric("processes", "Managed processes, by promotion policy", &self.processes);
        add.metric(
            "processes_too_long",
            "Processes passed over, because a file of their /proc directories is longer than what is read of one",
            &self.too_long,
        );
        add.metric("promotions_waiting", "Promotions that wait for their turn", &self.waiting);
        add.metric(
            "promotion_pause_seconds",
            "How long promotions pause after each other, because the kernel took long",
            &self.pause,
        );
        add.metric("daemon_cpu_seconds", "CPU time that the daemon has used", &self.cpu);
        add.metric("daemon_resident_bytes", "Memory that the daemon uses", &self.resident);
    }
}

/// Adds metrics to a registry.
struct Adding<'a>(&'a mut Registry);

impl Adding<'_> {
    /// `help` goes without the full stop, which the registry adds; `_total` too, for a counter.
    fn metric(&mut self, name: &str, help: &str, metric: &(impl Metric + Clone)) {
        self.0.register(name, help, metric.clone());
    }
}

/// OpenMetrics as the older text format, which all collectors read: node_exporter's reads files in
/// no other. There a counter is called by its whole name at its head as well.
fn as_plain_text(open_metrics: &str) -> String {
    let mut plain = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let total = if kind == "counter" { "_total" } else { "" };
            let help = help.take().map_or("", |(_, help)| help);
            let _ = writeln!(plain, "# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}");
        } else if !line.starts_with('#') {
            let _ = writeln!(plain, "{line}");
        }
    }
    plain
}

#[cfg(test)]
mod tests;
