//! `GET /metrics` for a Prometheus that asks: a listener on a thread of its own, off unless the
//! configuration names an address.
//!
//! One request on a connection, one connection at a time, and each has two seconds. Nothing can be
//! changed through it, and it knows no names of processes. There is no TLS and no password: listen
//! on the loopback, or put a proxy before it.

use super::Metrics;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::debug;

/// How long a client may take in all. Chosen, not measured: Prometheus asks at once, and who is
/// slower than this keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read, in bytes. Chosen: Prometheus's has some three hundred.
const LONGEST: usize = 8 << 10;
/// Headers that a request may have. Chosen: Prometheus sends six.
const HEADERS: usize = 64;

/// A listener; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Serves `metrics` under `/metrics` at `address`; with port 0 at any free port.
///
/// # Errors
/// If the address cannot be listened at: it is taken, or not ours, or forbidden to us.
pub fn serve(metrics: Arc<Metrics>, address: SocketAddr) -> io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked_to_stop = Arc::clone(&stop);
    let run = move || {
        while !asked_to_stop.load(Ordering::Acquire) {
            match listener.accept() {
                Ok(_) if asked_to_stop.load(Ordering::Acquire) => {}
                Ok((stream, peer)) => {
                    if let Err(error) = answer(&metrics, stream) {
                        debug!("{peer} was not given the metrics: {error}");
                    }
                }
                // Out of descriptors, for example: not to be tried again at full speed.
                Err(error) => {
                    debug!("no connection was taken: {error}");
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    };
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
        self.stop.store(true, Ordering::Release);
        // The thread sleeps until somebody comes: that is us.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let woken = TcpStream::connect_timeout(&address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

fn answer(metrics: &Metrics, mut stream: TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(&mut stream)?;
    let (status, body) = match asked(&request) {
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
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Reads until the request's head is whole, or has become too long to be one.
fn read_request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while request.len() < LONGEST && !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut piece)?;
        if count == 0 {
            break;
        }
        request.extend(piece.iter().take(count));
    }
    Ok(request)
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
