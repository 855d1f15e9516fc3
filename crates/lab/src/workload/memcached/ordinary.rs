//! A memcached as an operator starts it, under ordinary traffic: `memcached -m SIZE`, and nothing else is said. Not the one of the EMD
//! paper's figures ([`super`]), which is arranged so that its huge pages have bloat.
//!
//! | | the arranged one | this one |
//! |---|---|---|
//! | memory | one arena, mapped at the start and advised to be on huge pages (`-L`) | a MiB at a time from malloc, as items come |
//! | size classes | three, 256 bytes to 128 KiB (`slab_sizes`) | from 96 bytes on by a factor of 1.25 |
//! | values | just above a class, so that most of the next one's chunk stays empty | lengths of Facebook's ETC |
//! | in the background | nothing: no eviction, no rebalancing, no LRU threads, a hash table of the final size | what memcached does |
//! | threads | one | four |
//! | traffic | 64 keys in a get, two on their way | a key in a get, a set for 30 gets, 16 connections |
//!
//! - Lengths of values: the generalized Pareto distribution of Atikoglu et al., Workload Analysis of a Large-Scale Key-Value Store
//!   (SIGMETRICS 2012), with its numbers for ETC. Left out: its table of lengths below 15 bytes, and its distribution of the lengths
//!   of keys.
//! - Traffic: ETC's 30 gets for a set; keys are drawn uniformly and a connection has one request on its way, as with the load
//!   generator mutilate. 16 connections are the most that mutilate's documentation recommends for a thread.
//! - The server is on one core and the client on another, so that its CPU time can be compared; a UNIX socket stands for the network.

use super::super::arena::Residency;
use super::super::rng::{Rng, mix, scale};
use super::client::Client;
use super::server::{self, Connected};
use super::{Checked, Item, Result, Stopwatch, Timing, Workload, WorkloadSpec, get_every, load};
use crate::server::Server;
use superpage_units::{BasePages, Bytes, Pid};

/// Connections of the client, each with one request on its way.
const CONNECTIONS: usize = 16;
/// Gets for each set: ETC's.
const GETS_PER_SET: u64 = 30;
/// The distribution of the lengths of ETC's values: generalized Pareto, in bytes.
const SCALE: f64 = 214.476;
const SHAPE: f64 = 0.348_238;
/// The bytes of an item beside its value: memcached's header with the CAS number, 56, and a key of some digits, about.
const BESIDE: u64 = 64;
/// The part of the server's memory that items fill, without what their chunks are larger. Chosen: chunks are up to a quarter larger
/// than what is in them, half of that on average, and nothing shall be evicted.
const FILLED: f64 = 0.8;
/// Memory that is hardly used: from 96 bytes to 512 KiB there are 39 size classes by a factor of 1.25, each of which has a MiB at least.
const CLASSES: Bytes = Bytes::from_mib(40);

/// The length of the value of a key.
fn length(key: u64) -> Bytes {
    // Another number than that of which the value is made.
    let drawn = mix(key ^ 0x6c65_6e67_7468) >> 11;
    // In (0, 1): the distribution has no end at 0.
    let uniform = (drawn as f64 + 0.5) / (1_u64 << 53) as f64;
    let length = SCALE * (uniform.powf(-SHAPE) - 1.0) / SHAPE;
    Bytes(1).scaled(length.ceil().max(1.0))
}

fn item(key: u64) -> Item {
    Item { key, length: length(key) }
}

/// The keys whose items fill a server of this size.
fn keys(size: Bytes) -> u64 {
    let room = size.saturating_sub(CLASSES).scaled(FILLED).0;
    let mut filled = 0;
    let fits = |key: &u64| {
        filled += length(*key).0 + BESIDE;
        filled <= room
    };
    (0..).take_while(fits).count() as u64
}

/// A request that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Get(Item),
    Set(Item),
}

impl Request {
    fn draw(keys: u64, rng: &mut Rng) -> Self {
        let is_set = scale(rng.next(), GETS_PER_SET + 1) == 0;
        let item = item(rng.below(keys));
        if is_set { Self::Set(item) } else { Self::Get(item) }
    }

    fn send(self, client: &mut Client) -> Result<()> {
        match self {
            Self::Get(item) => client.ask(&[item]),
            Self::Set(item) => client.send_set(item),
        }
    }

    /// Its answer, checked; the value's word if it was a get.
    fn receive(self, client: &mut Client) -> Result<u64> {
        match self {
            Self::Get(item) => client.receive(&[item]),
            Self::Set(_) => client.receive_stored().map(|()| 0),
        }
    }
}

/// The server, loaded, and our connections to it.
#[derive(Debug)]
pub struct Ordinary {
    clients: Vec<Client>,
    server: Server,
    keys: u64,
    resident: Bytes,
}

impl Ordinary {
    /// Starts a server with so much memory for items and fills it, but for some room.
    ///
    /// # Errors
    /// The same as of [`super::Memcached::populate`].
    pub fn populate(spec: &WorkloadSpec) -> Result<Self> {
        let keys = keys(spec.size);
        let line = server::ordinary(spec.size);
        let mut started = server::start_apart(line, spec.pages, spec.cpu)?;
        let more = (1..CONNECTIONS).map(|_| started.connect()).collect::<Result<Vec<_>>>()?;
        let Connected { server, stream, .. } = started;
        let sockets = std::iter::once(stream).chain(more);
        let mut clients = sockets.map(Client::new).collect::<Result<Vec<_>>>()?;
        clients.first_mut().map_or(Ok(()), |client| load(client, keys, item))?;
        let resident = Residency::of(server.pid())?.resident;
        Ok(Self { clients, server, keys, resident })
    }
}

impl Workload for Ordinary {
    fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// The resident memory. Nothing of it was arranged to be bloat.
    fn memory(&self) -> (Bytes, BasePages) {
        let footprint = self.resident.to_huge_pages().bytes();
        (footprint, footprint.to_base_pages())
    }

    fn run(&mut self, operations: u64, seed: u64) -> Result<Timing> {
        let mut rng = Rng::new(mix(seed));
        let rounds = operations.div_ceil(CONNECTIONS as u64);
        let mut checksum = 0_u64;
        let watch = Stopwatch::start(self.pid())?;
        for _ in 0..rounds {
            let requests = self.clients.iter().map(|_| Request::draw(self.keys, &mut rng));
            let requests: Vec<Request> = requests.collect();
            let mut each = requests.iter().zip(&mut self.clients);
            each.try_for_each(|(request, client)| request.send(client))?;
            for (request, client) in requests.iter().zip(&mut self.clients) {
                checksum = checksum.wrapping_add(request.receive(client)?);
            }
        }
        watch.stop(rounds * CONNECTIONS as u64, checksum)
    }

    /// Gets every key once.
    fn check(&mut self) -> Result<Checked> {
        let keys = self.keys;
        self.clients.first_mut().map_or(Ok(Checked { items: 0 }), |c| get_every(c, keys, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_long_as_those_of_etc() {
        let count: usize = 100_000;
        let mut lengths: Vec<u64> = (0..count).map(|key| length(key as u64).0).collect();
        lengths.sort_unstable();
        // The distribution's own: scale / shape * ((1 - share)^-shape - 1), and the mean scale / (1 - shape).
        for percent in [10, 50, 90, 99] {
            let above = (100 - percent) as f64 / 100.0;
            let expected = SCALE / SHAPE * (above.powf(-SHAPE) - 1.0);
            let found = lengths[count * percent / 100] as f64;
            assert!((found / expected - 1.0).abs() < 0.1, "{found} for {expected} at {percent} %");
        }
        let mean = lengths.iter().sum::<u64>() as f64 / count as f64;
        assert!((mean / (SCALE / (1.0 - SHAPE)) - 1.0).abs() < 0.1, "{mean}");
        assert!(
            lengths[0] > 0 && *lengths.last().unwrap() < 1 << 20,
            "memcached takes up to a MiB"
        );
    }

    #[test]
    fn a_server_is_filled_but_for_some_room() {
        let room = Bytes::from_mib(60);
        let filled: u64 = (0..keys(CLASSES + room)).map(|key| length(key).0 + BESIDE).sum();
        let share = filled as f64 / room.0 as f64;
        assert!((0.79..=0.80).contains(&share), "{share}");
    }

    #[test]
    fn the_command_line_is_an_operators() {
        assert_eq!(server::ordinary(Bytes::from_gib(2)), ["-u", "root", "-m", "2048"]);
    }

    #[test]
    fn one_request_of_31_is_a_set() {
        let mut rng = Rng::new(1);
        let drawn = |_| Request::draw(1000, &mut rng);
        let sets = (0..31_000).map(drawn).filter(|r| matches!(r, Request::Set(_))).count();
        assert!((900..1100).contains(&sets), "{sets}");
    }
}
