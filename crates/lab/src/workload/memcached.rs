//! A real memcached server under a real load over its protocol, arranged so that its huge pages have the paper's bloat. One as an
//! operator starts it is in [`ordinary`].
//!
//! The Memcached workload of EMD (ISMM 2025, Table 2: 19 GB on base pages, 50 GB on huge pages;
//! Figure 4(a): huge pages with nearly all, about half and none of their base pages zero-filled).
//! What makes the bloat is real: memcached gives each value a chunk of the next bigger size class,
//! and with a coarse table of classes (256 bytes, 8 KiB and 128 KiB here) a value just above one
//! class leaves most of the next one's chunk empty. The keys come in three ranges whose values have one size
//! each, loaded one after the other, so each has its own part of the address space.
//!
//! - The server is the Debian package `memcached`, with one thread, on a UNIX socket in a directory
//!   that only we can enter and that is gone as soon as we are connected. It dies with us.
//! - Its memory is one arena, mapped at its start and advised to be on huge pages (`-L`). For base
//!   pages the server starts with huge pages disabled for its process; the layout stays the same.
//!   Either way memcached writes zeroes over each MiB that it takes into use, so all of the arena
//!   is resident on base pages too, unlike in the paper: compare [`super::Populated::bloat`].
//! - The load is closed-loop: batches of gets, two on their way at a time so that neither side
//!   waits for the other, and every value is compared with the one that was stored.

mod client;
pub mod ordinary;
mod server;

use super::clock::Stopwatch;
use super::rng::{Rng, mix};
use super::{Checked, Error, PageSize, Result, Timing, Workload, WorkloadSpec};
use crate::load::Latencies;
use crate::server::{Server, Surroundings};
use client::Client;
use server::{Connected, Options, Slabs};
use std::time::{Duration, Instant};
use superpage_units::{BasePages, Bytes, Pid};

/// What the server takes from its arena at a time.
const SLAB: Bytes = Bytes::from_mib(1);
/// Keys in one get. Long enough that system calls do not hide memory accesses: chosen.
const BATCH: u64 = 64;
/// Batches on their way: one that the server works on and one that we check.
const WINDOW: u64 = 2;

/// Keys whose values have the same length, and so lie in chunks of the same size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyRange {
    /// Its share of the arena, in percent.
    percent: u64,
    /// The class's chunk.
    chunk: Bytes,
    /// Length of its values.
    value: Bytes,
    /// Base pages of a chunk that a value lies on; where chunks share a base page, 0.
    pages: u64,
    /// Its share of the gets, in percent.
    gets: u64,
}

/// In order of loading and so, nearly, of address: half, nearly all and none of it bloat.
///
/// The shares make 62 % of all base pages zero-filled, as in the paper. Few gets go to the big
/// values, as caches see it, and because copying 8 KiB through a socket takes longer than many TLB
/// misses. The shares of the gets are chosen, not measured.
const RANGES: [KeyRange; 3] = [
    KeyRange { percent: 36, chunk: Bytes::from_kib(8), value: Bytes(300), pages: 1, gets: 48 },
    KeyRange { percent: 49, chunk: Bytes::from_kib(128), value: Bytes(8200), pages: 3, gets: 5 },
    KeyRange { percent: 15, chunk: Bytes(256), value: Bytes(100), pages: 0, gets: 47 },
];

/// Slabs that the server keeps for itself: one of its last class, which it adds to ours.
const SPARE_SLABS: u64 = 1;

/// How many keys each range has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// In the whole arena.
    slabs: u64,
    keys: [u64; RANGES.len()],
}

impl Plan {
    /// Fills an arena of `size`.
    fn new(size: Bytes) -> Self {
        let slabs = size.to_huge_pages().bytes().0 / SLAB.0;
        let ours = slabs.saturating_sub(SPARE_SLABS);
        let mut end = 0;
        let keys = RANGES.map(|range| {
            let start = end;
            end += range.percent;
            (ours * end / 100 - ours * start / 100) * (SLAB.0 / range.chunk.0)
        });
        Self { slabs, keys }
    }

    fn options(&self, slabs: Slabs) -> Options {
        Options { arena: SLAB * self.slabs, keys: self.count(), slabs }
    }

    /// The base pages that values lie on.
    fn used(&self) -> BasePages {
        let used = |(range, keys): (&KeyRange, u64)| match range.pages {
            0 => (range.chunk * keys).to_base_pages(),
            pages => BasePages(pages * keys),
        };
        RANGES.iter().zip(self.keys).map(used).sum()
    }

    fn count(&self) -> u64 {
        self.keys.iter().sum()
    }

    /// The first key of a range.
    fn first(&self, range: usize) -> u64 {
        self.keys[..range].iter().sum()
    }

    /// The item that is stored under key number `key`.
    fn item(&self, key: u64) -> Item {
        let mut range = 0;
        while range + 1 < RANGES.len() && key >= self.first(range + 1) {
            range += 1;
        }
        Item { key, length: RANGES[range].value }
    }

    /// A random item: first the range by its share of the gets, then any key of it.
    fn draw(&self, rng: &mut Rng) -> Item {
        let mut percent = rng.below(100);
        let mut range = 0;
        while percent >= RANGES[range].gets {
            percent -= RANGES[range].gets;
            range += 1;
        }
        let key = self.first(range) + rng.below(self.keys[range]);
        Item { key, length: RANGES[range].value }
    }
}

/// A key, by its number, and what is stored under it: its word, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    key: u64,
    length: Bytes,
}

impl Item {
    /// What its value is made of: eight bytes, none of them zero.
    fn word(self) -> [u8; 8] {
        (mix(self.key) | 0x0101_0101_0101_0101).to_le_bytes()
    }
}

/// The server, loaded, and our connection to it.
#[derive(Debug)]
pub struct Memcached {
    client: Client,
    server: Server,
    plan: Plan,
}

impl Memcached {
    /// Whether its server is installed here.
    #[must_use]
    pub fn is_installed() -> bool {
        server::is_installed()
    }

    /// Starts a server with an arena of the specified size and fills it.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::Server`], [`Error::Protocol`].
    pub fn populate(spec: &WorkloadSpec) -> Result<Self> {
        let plan = Plan::new(spec.size);
        let options = plan.options(Slabs::Ahead);
        let line = server::arguments(&options);
        Self::fill(plan, server::start_apart(line, spec.pages, spec.cpu)?)
    }

    /// Starts a server by a command such as `superpage run --`, with the memory that it gets by itself, on all
    /// cores that we may use, and fills it.
    ///
    /// # Errors
    /// As [`Memcached::populate`].
    pub fn populate_under(words: &[String], size: Bytes) -> Result<Self> {
        let plan = Plan::new(size);
        let around = Surroundings::under(words)?;
        let line = server::arguments(&plan.options(Slabs::AsNeeded));
        Self::fill(plan, server::start(line, around)?)
    }

    fn fill(plan: Plan, Connected { server, stream, .. }: Connected) -> Result<Self> {
        let mut client = Client::new(stream)?;
        load(&mut client, plan.count(), |key| plan.item(key))?;
        Ok(Self { client, server, plan })
    }

    /// As [`Workload::run`], for so long; with how long each batch of gets took.
    ///
    /// # Errors
    /// As [`Workload::run`].
    pub fn run_for(&mut self, time: Duration, seed: u64) -> Result<(Timing, Latencies)> {
        let (plan, mut rng, mut latencies) = (self.plan, Rng::new(mix(seed)), Latencies::new()?);
        let watch = Stopwatch::start(self.pid())?;
        let end = Instant::now() + time;
        let mut batches = 0;
        let draw = std::iter::from_fn(|| {
            batches += 1;
            (Instant::now() < end).then(|| (0..BATCH).map(|_| plan.draw(&mut rng)).collect())
        });
        let checksum = get_all(&mut self.client, draw, &mut |took| latencies.add(took))?;
        let timing = watch.stop((batches - 1) * BATCH, checksum)?;
        latencies.wall = timing.wall;
        Ok((timing, latencies))
    }
}

/// Stores all items and sees that the server has kept them.
fn load(client: &mut Client, keys: u64, item: impl Fn(u64) -> Item) -> Result<()> {
    client.store((0..keys).map(item))?;
    let stored = client.stored()?;
    if stored == keys {
        return Ok(());
    }
    let detail = format!("it kept {stored} of {keys} values");
    Err(Error::Server { what: "load memcached", detail })
}

/// Gets the items of `batches`, [`WINDOW`] batches on their way at a time; `took` hears how long each was. Returns the sum
/// of the values' words.
fn get_all(
    client: &mut Client,
    batches: impl Iterator<Item = Vec<Item>>,
    took: &mut dyn FnMut(Duration),
) -> Result<u64> {
    let mut sent = std::collections::VecDeque::new();
    let mut checksum = 0_u64;
    let mut receive = |client: &mut Client, (batch, since): (Vec<Item>, Instant)| {
        checksum = checksum.wrapping_add(client.receive(&batch)?);
        took(since.elapsed());
        Ok::<_, Error>(())
    };
    for batch in batches {
        client.ask(&batch)?;
        sent.push_back((batch, Instant::now()));
        if sent.len() as u64 >= WINDOW
            && let Some(oldest) = sent.pop_front()
        {
            receive(client, oldest)?;
        }
    }
    sent.into_iter().try_for_each(|batch| receive(client, batch))?;
    Ok(checksum)
}

/// Gets every key once.
fn get_every(client: &mut Client, keys: u64, item: impl Fn(u64) -> Item) -> Result<Checked> {
    let batch = usize::try_from(BATCH).unwrap_or(1);
    let batches =
        (0..keys).step_by(batch).map(|first| (first..keys.min(first + BATCH)).map(&item).collect());
    get_all(client, batches, &mut |_| ())?;
    Ok(Checked { items: keys })
}

impl Workload for Memcached {
    fn pid(&self) -> Pid {
        self.server.pid()
    }

    fn memory(&self) -> (Bytes, BasePages) {
        (SLAB * self.plan.slabs, self.plan.used())
    }

    fn run(&mut self, operations: u64, seed: u64) -> Result<Timing> {
        let plan = self.plan;
        let mut rng = Rng::new(mix(seed));
        let batches = operations.div_ceil(BATCH);
        let watch = Stopwatch::start(self.pid())?;
        let draw = (0..batches).map(|_| (0..BATCH).map(|_| plan.draw(&mut rng)).collect());
        let checksum = get_all(&mut self.client, draw, &mut |_| ())?;
        watch.stop(batches * BATCH, checksum)
    }

    /// Gets every key once.
    fn check(&mut self) -> Result<Checked> {
        let plan = self.plan;
        get_every(&mut self.client, plan.count(), |key| plan.item(key))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn about_three_fifths_are_bloat() {
        for mib in [64, 1024, 16 * 1024] {
            let plan = Plan::new(Bytes::from_mib(mib));
            assert_eq!(plan.slabs, mib);
            let whole = (SLAB * plan.slabs).to_base_pages();
            let bloat = plan.used().share_of(whole).rest().get();
            assert!((0.60..0.64).contains(&bloat), "{bloat} at {mib} MiB");
        }
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(RANGES.iter().map(|range| range.percent).sum::<u64>(), 100);
        assert_eq!(RANGES.iter().map(|range| range.gets).sum::<u64>(), 100);
    }

    proptest! {
        #[test]
        fn what_is_drawn_is_what_is_stored(mib in 64_u64..20_000, seed in any::<u64>()) {
            let plan = Plan::new(Bytes::from_mib(mib));
            let item = plan.draw(&mut Rng::new(seed));
            prop_assert!(item.key < plan.count());
            prop_assert_eq!(item, plan.item(item.key));
            prop_assert!(!item.word().contains(&0));
        }
    }
}
