//! A private Redis server that ends with us: Debian's, and nothing of it stays on disk. Not the load on it.
//!
//! `disable-thp no`, because Redis otherwise forbids huge pages to itself, and then nobody can make
//! any of its memory.

use super::client::Client;
use super::items::Items;
use super::resp::{self, Reply};
use crate::server::{Directory, Program, Server, Surroundings, cores, failed};
use crate::workload::{Error, PageSize, Result};
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::time::Duration;
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
    /// The directory of the server's socket, and of what the server saves.
    directory: Directory,
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
        let directory = Directory::create()?;
        let socket = directory.socket();
        let mut server = Server::start(REDIS, arguments(&directory), around)?;
        let connections: Result<Vec<UnixStream>> =
            (0..connections.get()).map(|_| server.connect(&socket)).collect();
        Ok((Self { server, directory }, Client::new(connections?, items)?))
    }

    /// Has it begin to save all that it holds, in a child that shares its memory until one of them writes to it.
    ///
    /// # Errors
    /// [`Error::Server`], [`Error::Protocol`].
    pub fn begin_to_save(&self) -> Result<()> {
        self.ask(b"BGSAVE").map(|_| ())
    }

    /// Waits until it has saved all that it holds.
    ///
    /// # Errors
    /// As [`Redis::begin_to_save`], and [`Error::Server`] if it could not.
    pub fn has_saved(&self) -> Result<()> {
        loop {
            let said = self.ask(b"INFO persistence")?;
            let says = |line: &str| said.lines().any(|one| one.trim() == line);
            if says("rdb_bgsave_in_progress:0") {
                let detail = "redis-server says that it could not save".to_owned();
                let failed = Error::Server { what: "save", detail };
                return if says("rdb_last_bgsave_status:ok") { Ok(()) } else { Err(failed) };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends an inline command over a new connection; returns the answer.
    fn ask(&self, command: &[u8]) -> Result<String> {
        let explain = |error: std::io::Error| failed("ask redis", &error);
        let mut socket = UnixStream::connect(self.directory.socket()).map_err(explain)?;
        socket.write_all(&[command, resp::END].concat()).map_err(explain)?;
        let (mut said, mut more) = (Vec::new(), [0; 8192]);
        loop {
            match socket.read(&mut more).map_err(explain)? {
                0 => return Err(explain(ErrorKind::UnexpectedEof.into())),
                count => said.extend_from_slice(&more[..count]),
            }
            match resp::parse(&said)? {
                None => {}
                Some((Reply::Simple(text) | Reply::Bulk(text), _)) => {
                    return Ok(String::from_utf8_lossy(text).into_owned());
                }
                Some((reply, _)) => {
                    let found = format!("{reply:?}").chars().take(80).collect();
                    return Err(Error::Protocol { expected: "a text", found });
                }
            }
        }
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
fn arguments(directory: &Directory) -> Vec<String> {
    let socket = directory.socket();
    let (socket, directory) = (socket.to_string_lossy(), directory.path().to_string_lossy());
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
        ("--dir", &directory),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
}
