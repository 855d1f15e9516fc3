//! How many accesses a second are translated, by page size, in a guest and not. Run by `make bench`.
//!
//! Each access goes to a random address in 32 GiB, as in GUPS, so nearly all miss the TLB at base
//! pages: the hard case. The random number is part of the time.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use superpage_sim::profile::Profile;
use superpage_sim::translation::Translator;
use superpage_sim::units::Cycles;
use superpage_units::{Bytes, PageSize, VirtAddr};

const FOOTPRINT: Bytes = Bytes::from_gib(32);
/// Accesses in one measured pass: enough that the loop's own cost does not show.
const PASS: u32 = 1 << 16;

/// Of the machine of Trident.
fn translator() -> Translator {
    let profile = Profile::named("trident").expect("built in");
    Translator::new(&profile.geometry(), &profile.latencies())
}

/// A random address of the footprint.
fn address(state: &mut u64) -> VirtAddr {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    VirtAddr(((u128::from(x ^ (x >> 31)) * u128::from(FOOTPRINT.0)) >> 64) as u64)
}

fn accesses(c: &mut Criterion) {
    let mut group = c.benchmark_group("access");
    group.throughput(Throughput::Elements(u64::from(PASS))).sample_size(10);
    for size in PageSize::ALL {
        let mut own = translator();
        let mut state = 1;
        group.bench_function(BenchmarkId::new("random", size), |b| {
            b.iter(|| (0..PASS).map(|_| own.access(address(&mut state), size)).sum::<Cycles>());
        });
        let mut guest = translator();
        group.bench_function(BenchmarkId::new("random, guest", size), |b| {
            b.iter(|| {
                let access = |_| guest.translate(address(&mut state), size, Some(size)).cycles;
                (0..PASS).map(access).sum::<Cycles>()
            });
        });
    }
    let mut own = translator();
    let mut next = 0;
    group.bench_function("sequential/4 KiB", |b| {
        b.iter(|| {
            for _ in 0..PASS {
                next = (next + 64) % FOOTPRINT.0;
                black_box(own.access(VirtAddr(next), PageSize::Base));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, accesses);
criterion_main!(benches);
