//! What looking into, splitting, verifying and rebuilding one huge page costs. Run by `make bench`.
//!
//! Every time is per huge page. The memory is our own; 410 of the 512 base pages of each huge page
//! are zero-filled, as in the bloated half of EMD's RandomAccess, scattered.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::pagemap::Pagemap;
use superpage_kernel::process::Process;
use superpage_kernel::process_madvise;
use superpage_kernel::sample::Sampler;
use superpage_policy::sampling::{EXCERPT, SampleSize};
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, Bytes, HugePages, PmdRange, VirtAddr,
};

/// Enough that no cache holds it.
const HUGE_PAGES: HugePages = HugePages(512);
const USED: u64 = 102;

struct Subject {
    me: Process,
    _memory: OwnMemory,
    ranges: Vec<PmdRange>,
}

impl Subject {
    fn new() -> Self {
        let mut memory = OwnMemory::map(HUGE_PAGES, Wish::HugePages).expect("memory");
        let page = usize::try_from(BASE_PAGE_BYTES).expect("small");
        for (index, bytes) in (0..).zip(memory.bytes_mut().chunks_exact_mut(page)) {
            let scattered = index % BASE_PAGES_PER_HUGE_PAGE * 333 % BASE_PAGES_PER_HUGE_PAGE;
            if scattered < USED {
                bytes[8] = 1;
            }
        }
        let ranges = memory.ranges().collect();
        Self { me: Process::current().expect("we run"), _memory: memory, ranges }
    }

    fn restore(&self) {
        let refusals = process_madvise::collapse(&self.me, &self.ranges).expect("collapse");
        assert!(refusals.is_empty(), "every range is a huge page again");
    }

    /// A base page of each range that is zero-filled.
    fn zero_spots(&self) -> Vec<VirtAddr> {
        let mut spots = vec![];
        for range in &self.ranges {
            let zero = (0..512).find(|page| u64::from(*page) * 333 % 512 >= USED);
            spots.push(range.base_page(zero.expect("most are zero-filled")));
        }
        spots
    }
}

/// Does `pass`, which handles all huge pages once and returns the time to count, often enough for
/// `times` huge pages; returns what `times` of them took.
fn over_all(times: u64, mut pass: impl FnMut() -> Duration) -> Duration {
    let passes = times.div_ceil(HUGE_PAGES.0);
    let took: Duration = (0..passes).map(|_| pass()).sum();
    took.mul_f64(times as f64 / (passes * HUGE_PAGES.0) as f64)
}

/// The time that `work` takes.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

fn looking(c: &mut Criterion) {
    let subject = Subject::new();
    let mut sampler = Sampler::new();
    let mut group = c.benchmark_group("look");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    let whole = Bytes(BASE_PAGE_BYTES);
    for (name, pages, piece) in
        [("pre-sample", 8, EXCERPT), ("sample", 8, whole), ("sample", 24, whole)]
    {
        let size = SampleSize::new(pages).expect("a sample size");
        let addresses: Vec<VirtAddr> = subject
            .ranges
            .iter()
            .flat_map(|r| size.positions(*r, 7).map(|page| r.base_page(page)))
            .collect();
        group.bench_function(BenchmarkId::new(name, pages), |b| {
            b.iter_custom(|times| {
                let mut look = || sampler.contents(&subject.me, &addresses, piece).expect("read");
                over_all(times, || timed(&mut look))
            });
        });
    }
    group.bench_function("whole", |b| {
        b.iter_custom(|times| {
            over_all(times, || {
                timed(|| {
                    for range in &subject.ranges {
                        black_box(sampler.zero_pages(&subject.me, *range).expect("readable"));
                    }
                })
            })
        });
    });
    group.finish();
}

fn splitting(c: &mut Criterion) {
    let subject = Subject::new();
    let spots = subject.zero_spots();
    let mut group = c.benchmark_group("split");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    for ranges in [1, 16, 100, 512] {
        group.bench_function(BenchmarkId::new("ranges_per_call", ranges), |b| {
            b.iter_custom(|times| {
                over_all(times, || {
                    subject.restore();
                    timed(|| {
                        for batch in spots.chunks(ranges) {
                            process_madvise::split(&subject.me, batch).expect("allowed");
                        }
                    })
                })
            });
        });
    }
    group.finish();
}

fn verifying(c: &mut Criterion) {
    let subject = Subject::new();
    let pagemap = Pagemap::open(&subject.me).expect("our pagemap");
    let mut group = c.benchmark_group("verify");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    let mut measure = |name: &str| {
        group.bench_function(name, |b| {
            b.iter_custom(|times| {
                over_all(times, || timed(|| pagemap.mappings(&subject.ranges).expect("ours")))
            });
        });
    };
    measure("whole");
    process_madvise::split(&subject.me, &subject.zero_spots()).expect("allowed");
    measure("split");
    group.finish();
}

fn rebuilding(c: &mut Criterion) {
    let subject = Subject::new();
    let spots = subject.zero_spots();
    let mut group = c.benchmark_group("collapse");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    group.bench_function("warm", |b| {
        b.iter_custom(|times| {
            over_all(times, || {
                process_madvise::split(&subject.me, &spots).expect("allowed");
                timed(|| subject.restore())
            })
        });
    });
    group.finish();
}

criterion_group!(benches, looking, splitting, verifying, rebuilding);
criterion_main!(benches);
