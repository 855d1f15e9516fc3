//! `GET /metrics` for a Prometheus that asks: a listener on a thread of its own, off unless the
//! configuration names an address.
//!
//! One request on a connection, and each has two seconds. Many connections are open at a time, and where there are too many
//! the oldest is closed, so that clients that say nothing keep nobody waiting. Nothing can be
//! changed through it, and it knows no names of processes. There is no TLS and no password: listen
//! on the loopback, or put a proxy before it.

use super::Metrics;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::debug;

/// How long a client may take in all. Chosen, not measured: Prometheus asks at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many clients may be connected. Chosen, not measured: one or two Prometheus ask every few seconds.
const MOST: usize = 64;
/// The longest request that is read, in bytes. Chosen: Prometheus's has some three hundred.
const LONGEST: usize = 8 << 10;
/// Headers that a request may have. Chosen: Prometheus sends six.
const HEADERS: usize = 64;

/// A listener; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Is written to when it is to end.
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Serves `metrics` under `/metrics` at `address`; with port 0 at any free port.
///
/// # Errors
/// If the address cannot be listened at: it is taken, or not ours, or forbidden to us.
pub fn serve(metrics: Arc<Metrics>, address: SocketAddr) -> io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let asked_to_stop = Arc::clone(&stop);
    let mut clients = Clients { metrics, listener, connected: VecDeque::new() };
    let run = move || while clients.serve(&asked_to_stop) == Go::On {};
    let thread = thread::Builder::new().name("metrics".to_owned()).spawn(run)?;
    Ok(Server { address, stop, thread: Some(thread) })
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let is_told = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes()).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_told) {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    Home,
}

/// All who are connected.
struct Clients {
    metrics: Arc<Metrics>,
    listener: TcpListener,
    /// The oldest first.
    connected: VecDeque<Client>,
}

/// One who is connected.
struct Client {
    stream: TcpStream,
    until: Instant,
    exchange: Exchange,
}

/// What is going on with a client.
enum Exchange {
    /// Its request comes; so much has.
    Asks(Vec<u8>),
    /// The answer goes out; so much is left.
    Hears(Vec<u8>),
    Done,
}

impl Clients {
    /// Waits until something happens, and sees to it.
    fn serve(&mut self, stop: &OwnedFd) -> Go {
        let left = self
            .connected
            .front()
            .map(|oldest| oldest.until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let clients =
            self.connected.iter().map(|client| PollFd::new(&client.stream, client.awaited()));
        let mut fds: Vec<PollFd<'_>> =
            [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)]
                .into_iter()
                .chain(clients)
                .collect();
        // An interrupted wait is begun anew.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready.first() == Some(&true) {
            return Go::Home;
        }
        for (client, _) in
            self.connected.iter_mut().zip(ready.iter().skip(2)).filter(|(_, is_ready)| **is_ready)
        {
            if let Err(error) = client.go_on(&self.metrics) {
                debug!("a client was not given the metrics: {error}");
                client.exchange = Exchange::Done;
            }
        }
        let now = Instant::now();
        self.connected
            .retain(|client| !matches!(client.exchange, Exchange::Done) && client.until > now);
        if ready.get(1) == Some(&true) {
            self.accept();
        }
        Go::On
    }

    /// Takes those in who want to connect.
    fn accept(&mut self) {
        for _ in 0..MOST {
            let accepted = self.listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(stream)
            });
            match accepted {
                Ok(stream) => {
                    if self.connected.len() >= MOST {
                        self.connected.pop_front();
                    }
                    let (until, exchange) = (Instant::now() + PATIENCE, Exchange::Asks(Vec::new()));
                    self.connected.push_back(Client { stream, until, exchange });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Out of descriptors, for example: not to be tried again at full speed.
                Err(error) => {
                    debug!("no connection was taken: {error}");
                    return thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}

impl Client {
    fn awaited(&self) -> PollFlags {
        match self.exchange {
            Exchange::Asks(_) => PollFlags::IN,
            Exchange::Hears(_) | Exchange::Done => PollFlags::OUT,
        }
    }

    /// Reads or writes as much as can be at once.
    fn go_on(&mut self, metrics: &Metrics) -> io::Result<()> {
        if let Exchange::Asks(request) = &mut self.exchange
            && has_come(&mut self.stream, request)?
        {
            self.exchange = Exchange::Hears(answer(request, metrics));
        }
        let Exchange::Hears(answer) = &mut self.exchange else { return Ok(()) };
        while !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(count) => drop(answer.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.exchange = Exchange::Done;
        Ok(())
    }
}

/// Whether the head of the request is whole, or too long to be one.
fn has_come(stream: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 1024];
    while request.len() < LONGEST && !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => request.extend(piece.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn answer(request: &[u8], metrics: &Metrics) -> Vec<u8> {
    let (status, body) = match asked(request) {
        Asked::Metrics => ("200 OK", metrics.encode()),
        Asked::Head => ("200 OK", String::new()),
        Asked::Elsewhere => ("404 Not Found", "The metrics are at /metrics.\n".to_owned()),
        Asked::ToChange => ("405 Method Not Allowed", "There is only GET.\n".to_owned()),
        Asked::Nonsense => ("400 Bad Request", "That is no HTTP request.\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// What a request is for.
enum Asked {
    Metrics,
    /// Only whether they are there.
    Head,
    Elsewhere,
    ToChange,
    Nonsense,
}

fn asked(request: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    if !parsed.parse(request).is_ok_and(|status| status.is_complete()) {
        return Asked::Nonsense;
    }
    let path = parsed.path.unwrap_or_default().split('?').next();
    match (parsed.method, path) {
        (Some("GET"), Some("/metrics")) => Asked::Metrics,
        (Some("HEAD"), Some("/metrics")) => Asked::Head,
        (Some("GET" | "HEAD"), _) => Asked::Elsewhere,
        _ => Asked::ToChange,
    }
}
