//! A private memcached server that ends with us. Not the load on it.

use super::{PageSize, RANGES, Result};
use crate::server::{Directory, Program, Server, Surroundings, cores, failed};
use rustix::thread::sched_setaffinity;
use std::os::unix::net::UnixStream;
use superpage_units::Bytes;

const MEMCACHED: Program =
    Program { name: "memcached", starting: "start memcached", connecting: "connect to memcached" };

/// When the server gets memory for items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slabs {
    /// The server gets all memory at its start, as one arena (`-L`).
    Ahead,
    /// The server gets a MiB at a time from malloc, as it does without options.
    AsNeeded,
}

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Memory for items; a multiple of a MiB.
    pub(super) arena: Bytes,
    /// How many keys its hash table should expect.
    pub(super) keys: u64,
    pub(super) slabs: Slabs,
}

/// A server, a connection to it, and the directory of its socket.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) server: Server,
    pub(super) stream: UnixStream,
    directory: Directory,
}

impl Connected {
    /// Opens one more connection.
    pub(super) fn connect(&mut self) -> Result<UnixStream> {
        self.server.connect(&self.directory.socket())
    }
}

/// Whether it is installed here.
pub(super) fn is_installed() -> bool {
    crate::server::find(MEMCACHED.name).is_ok()
}

/// Starts a server on a core (the first one we may use, without a wish), keeps us on another one, and
/// connects to it once it listens.
pub(super) fn start_apart(
    line: Vec<String>,
    pages: PageSize,
    cpu: Option<u32>,
) -> Result<Connected> {
    let (server_core, client_core) = cores(cpu)?;
    let started = start(line, Surroundings::new(pages, server_core))?;
    sched_setaffinity(None, &client_core)
        .map_err(|errno| failed("keep the client on its core", &errno.into()))?;
    Ok(started)
}

/// Starts a server by its command line, all but its socket, and connects to it once it listens.
pub(super) fn start(mut line: Vec<String>, around: Surroundings) -> Result<Connected> {
    let directory = Directory::create()?;
    let socket = directory.socket();
    line.extend(["-s".to_owned(), socket.to_string_lossy().into_owned()]);
    let mut server = Server::start(MEMCACHED, line, around)?;
    let stream = server.connect(&socket)?;
    Ok(Connected { server, stream, directory })
}

/// The command line by which an operator starts a server with so much memory for items: everything else is as memcached has it.
/// (`-u` has to be said where root starts it.)
pub(super) fn ordinary(memory: Bytes) -> Vec<String> {
    ["-u", "root", "-m", &(memory.0 >> 20).to_string()].map(str::to_owned).into()
}

/// The server's command line for these options.
pub(super) fn arguments(options: &Options) -> Vec<String> {
    // Exact sizes rather than a growth factor (`-f`), which needs an item's header taken into
    // account and a limit (`slab_chunk_max`) whose unit is not the documented one.
    let mut chunks = RANGES.map(|range| range.chunk.0);
    chunks.sort_unstable();
    let chunks = chunks.map(|size| size.to_string()).join("-");
    let buckets = options.keys.next_power_of_two().ilog2().clamp(12, 32);
    // Nothing may move in the background: no eviction, no rebalancing, no LRU threads. The LRU is
    // then only changed by a get of an item that nobody got for a minute.
    let extended = format!(
        "slab_sizes={chunks},hashpower={buckets},no_hashexpand,no_slab_reassign,no_slab_automove,\
         no_lru_crawler,no_lru_maintainer"
    );
    let megabytes = options.arena.0 >> 20;
    let large = if options.slabs == Slabs::Ahead { "-L " } else { "" };
    format!("{large}-M -C -t 1 -u root -m {megabytes} -o {extended}")
        .split(' ')
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_has_the_classes_of_the_ranges() {
        let arena = Bytes::from_gib(1);
        let options = Options { arena, keys: 200_000, slabs: Slabs::Ahead };
        let line = arguments(&options).join(" ");
        for part in ["-L ", "-m 1024 ", "slab_sizes=256-8192-131072,", "hashpower=18,"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        let line = arguments(&Options { slabs: Slabs::AsNeeded, ..options });
        assert!(!line.contains(&"-L".to_owned()), "{line:?}");
    }
}
