//! A private Redis server that ends with us: Debian's, nothing of it kept on disk. Not the load on it.
//!
//! `disable-thp no`, because Redis otherwise forbids huge pages to itself, and then nobody can make
//! any of its memory.

use super::client::Client;
use super::items::Items;
use crate::server::{Directory, Program, Server, Surroundings, cores};
use crate::workload::{PageSize, Result};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::Path;
use superpage_units::Pid;

const REDIS: Program =
    Program { name: "redis-server", starting: "start redis", connecting: "connect to redis" };

/// Connections that requests are spread over. Chosen: enough that Redis serves more than one each
/// time it looks.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Redis {
    server: Server,
}

impl Redis {
    /// Starts an empty server on the first core that we may use, and connects to it.
    ///
    /// # Errors
    /// [`Error::MissingProgram`](crate::workload::Error::MissingProgram),
    /// [`Error::Server`](crate::workload::Error::Server).
    pub fn start(items: Items) -> Result<(Self, Client)> {
        Self::start_with(CONNECTIONS, items)
    }

    /// As [`Redis::start`], with so many connections.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub fn start_with(connections: NonZeroUsize, items: Items) -> Result<(Self, Client)> {
        let (core, _) = cores(None)?;
        Self::start_in(Surroundings::new(PageSize::Huge, core), connections, items)
    }

    /// Starts a server as [`Redis::start`] does, by a command such as `superpage run --`, and on all cores that we may use.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub fn start_under(words: &[String], items: Items) -> Result<(Self, Client)> {
        Self::start_in(Surroundings::under(words)?, CONNECTIONS, items)
    }

    fn start_in(
        around: Surroundings,
        connections: NonZeroUsize,
        items: Items,
    ) -> Result<(Self, Client)> {
        // It is gone as soon as we are connected.
        let directory = Directory::create()?;
        let socket = directory.socket();
        let mut server = Server::start(REDIS, arguments(&socket), around)?;
        let connections: Result<Vec<UnixStream>> =
            (0..connections.get()).map(|_| server.connect(&socket)).collect();
        Ok((Self { server }, Client::new(connections?, items)?))
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// Whether it is installed here.
    #[must_use]
    pub fn is_installed() -> bool {
        crate::server::find(REDIS.name).is_ok()
    }
}

/// The server's command line.
fn arguments(socket: &Path) -> Vec<String> {
    let socket = socket.to_string_lossy();
    let options: [(&str, &str); 10] = [
        ("--port", "0"),
        ("--unixsocket", &socket),
        ("--unixsocketperm", "700"),
        ("--save", ""),
        ("--appendonly", "no"),
        ("--daemonize", "no"),
        ("--disable-thp", "no"),
        ("--loglevel", "warning"),
        ("--logfile", "/dev/stderr"),
        ("--dir", "/"),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
}
