//! The load: requests over several connections from one thread, paced by a closed or an open loop.
//!
//! A key always goes over the same connection, so the server does what is asked about it in our
//! order, and what an answer must be is known when its request is sent.

use super::items::{Items, Sizes, Value};
use super::resp::{self, Reply};
use crate::server::failed;
use crate::width::to_usize;
use crate::workload::rng::{Rng, mix};
use crate::workload::{Error, Result};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use superpage_units::{Bytes, Nanos};

/// How long the server may say nothing while requests wait. Chosen: longer than any stall that one
/// would want to measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes read at a time at least. Chosen, not measured.
const CHUNK: usize = 256 << 10;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Set,
    Get,
    Delete,
}

/// What is asked about which key.
type Request = (Ask, u32);

/// How much is under way at any time in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Requests at most.
    pub requests: usize,
    /// Bytes of values sent with them at most, but for a single one.
    pub bytes: Bytes,
}

/// Which requests a load is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// The share that reads (0 to 1); the others write a new value.
    pub reads: f64,
    /// What chooses keys and times.
    pub seed: u64,
}

/// What a load was like.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// In nanoseconds.
    histogram: Histogram<u64>,
    /// From the first request to the last answer.
    pub wall: Nanos,
}

impl Latencies {
    /// None yet.
    ///
    /// # Errors
    /// None that happens: the bounds are right.
    pub fn new() -> Result<Self> {
        /// An hour: longer than any run. Three digits are kept.
        const LONGEST: u64 = 3600 * 1_000_000_000;
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).map_err(|error| {
            Error::Server { what: "count latencies", detail: error.to_string() }
        })?;
        Ok(Self { histogram, wall: Nanos::ZERO })
    }

    /// Requests that were answered.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Answers per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.count() as f64 / self.wall.as_secs_f64()
    }

    /// The latency that a share (0 to 1) of the requests did not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Nanos {
        Nanos(self.histogram.value_at_quantile(share))
    }

    /// With those of another load, one after the other.
    ///
    /// # Errors
    /// None that happens: all histograms have the same bounds.
    pub fn join(&mut self, other: &Self) -> Result<()> {
        self.wall += other.wall;
        self.histogram
            .add(&other.histogram)
            .map_err(|error| Error::Server { what: "count latencies", detail: error.to_string() })
    }

    /// Takes in that of one request.
    pub(crate) fn add(&mut self, latency: Duration) {
        self.histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// What the pace says when it is asked for a request.
enum Next {
    /// Ask this about a key; it was due then.
    Issue(Ask, u32, Instant),
    /// Nothing until an answer comes, or until then.
    Wait(Option<Instant>),
    /// No more.
    End,
}

/// What is under way.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    requests: usize,
    bytes: usize,
}

/// A request whose answer has not come.
#[derive(Debug)]
struct Pending {
    ask: Ask,
    key: u32,
    value: Option<Value>,
    due: Instant,
}

/// Connections to a server, and what we know to be in it.
#[derive(Debug)]
pub struct Client {
    connections: Vec<Connection>,
    items: Items,
    under_way: UnderWay,
}

impl Client {
    /// Speaks over connected sockets to a server that holds `items`.
    pub(super) fn new(sockets: Vec<UnixStream>, items: Items) -> Result<Self> {
        let connections: Result<Vec<_>> = sockets.into_iter().map(Connection::new).collect();
        Ok(Self { connections: connections?, items, under_way: UnderWay::default() })
    }

    /// What is stored.
    #[must_use]
    pub fn items(&self) -> &Items {
        &self.items
    }

    /// Stores so many new values.
    ///
    /// # Errors
    /// [`Error::Server`], [`Error::Protocol`], [`Error::Corrupt`].
    pub fn fill(&mut self, count: u64, window: Window) -> Result<Latencies> {
        let mut left = count;
        self.in_window(window, &mut |items| {
            left = left.checked_sub(1)?;
            Some((Ask::Set, items.add()))
        })
    }

    /// As [`Client::fill`], with values of these lengths.
    ///
    /// # Errors
    /// As [`Client::fill`].
    pub fn fill_with(&mut self, sizes: Sizes, count: u64, window: Window) -> Result<Latencies> {
        self.items.resize(sizes);
        self.fill(count, window)
    }

    /// Deletes a share (0 to 1) of the keys, chosen at random.
    ///
    /// # Errors
    /// As [`Client::fill`].
    pub fn delete(&mut self, share: f64, seed: u64, window: Window) -> Result<Latencies> {
        let keep = Bytes(self.items.count() as u64).scaled(1.0 - share).0;
        let mut rng = Rng::new(mix(seed));
        self.in_window(window, &mut |items| {
            let more = items.count() as u64 > keep;
            more.then(|| items.remove(&mut rng)).flatten().map(|key| (Ask::Delete, key))
        })
    }

    /// Reads every value there is.
    ///
    /// # Errors
    /// As [`Client::fill`].
    pub fn check(&mut self, window: Window) -> Result<Latencies> {
        let mut at = 0;
        self.in_window(window, &mut |items| {
            let key = *items.live().get(at)?;
            at += 1;
            Some((Ask::Get, key))
        })
    }

    /// Asks as fast as the server answers, for so long.
    ///
    /// # Errors
    /// As [`Client::fill`].
    pub fn closed(&mut self, mix: Mix, window: Window, time: Duration) -> Result<Latencies> {
        let end = Instant::now() + time;
        let mut chooser = Chooser::new(mix);
        self.in_window(window, &mut |items| {
            (Instant::now() < end).then(|| chooser.next(items)).flatten()
        })
    }

    /// Asks so many times, as fast as the server answers.
    ///
    /// # Errors
    /// As [`Client::fill`].
    pub fn ask(&mut self, count: u64, mix: Mix, window: Window) -> Result<Latencies> {
        let mut chooser = Chooser::new(mix);
        let mut left = count;
        self.in_window(window, &mut |items| {
            left = left.checked_sub(1)?;
            chooser.next(items)
        })
    }

    /// Asks `rate` times a second on average, at random times (a Poisson process), for so long,
    /// whatever the answers do. Latency counts from when a request was due.
    ///
    /// # Errors
    /// As [`Client::fill`].
    pub fn open(&mut self, mix: Mix, rate: f64, time: Duration) -> Result<Latencies> {
        let mut chooser = Chooser::new(mix);
        let pauses = Chooser::new(Mix { seed: !mix.seed, ..mix });
        let end = Instant::now() + time;
        self.at_rate(rate, pauses, &mut |items, due| {
            if due < end { chooser.next(items) } else { None }
        })
    }

    /// Stores so many new values, `rate` a second on average at random times, as [`Client::open`].
    ///
    /// # Errors
    /// As [`Client::fill`].
    pub fn fill_at(&mut self, count: u64, rate: f64, seed: u64) -> Result<Latencies> {
        let mut left = count;
        let pauses = Chooser::new(Mix { reads: 0.0, seed });
        self.at_rate(rate, pauses, &mut |items, _| {
            left = left.checked_sub(1)?;
            Some((Ask::Set, items.add()))
        })
    }

    /// Asks what `next` says for each time that a request is due, until it has no more.
    fn at_rate(
        &mut self,
        rate: f64,
        mut pauses: Chooser,
        next: &mut dyn FnMut(&mut Items, Instant) -> Option<Request>,
    ) -> Result<Latencies> {
        let mut due = Instant::now();
        self.drive(&mut |items, _| {
            if due > Instant::now() {
                return Next::Wait(Some(due));
            }
            let this = due;
            due += pauses.pause(rate);
            next(items, this).map_or(Next::End, |(ask, key)| Next::Issue(ask, key, this))
        })
    }

    fn in_window(
        &mut self,
        window: Window,
        next: &mut dyn FnMut(&mut Items) -> Option<Request>,
    ) -> Result<Latencies> {
        self.drive(&mut |items, under_way| {
            let full = under_way.requests >= window.requests
                || under_way.requests > 0 && under_way.bytes as u64 >= window.bytes.0;
            if full {
                return Next::Wait(None);
            }
            next(items).map_or(Next::End, |(ask, key)| Next::Issue(ask, key, Instant::now()))
        })
    }

    /// Sends what `pace` says until it has no more, and takes all answers.
    fn drive(&mut self, pace: &mut dyn FnMut(&mut Items, UnderWay) -> Next) -> Result<Latencies> {
        let mut latencies = Latencies::new()?;
        let start = Instant::now();
        let mut heard = start;
        loop {
            let (wake, is_over) = loop {
                match pace(&mut self.items, self.under_way) {
                    Next::Issue(ask, key, due) => self.issue(ask, key, due)?,
                    Next::Wait(wake) => break (wake, false),
                    Next::End => break (None, true),
                }
            };
            if is_over && self.under_way.requests == 0 {
                break;
            }
            self.connections.iter_mut().try_for_each(Connection::flush)?;
            if self.wait(wake, &mut latencies)? {
                heard = Instant::now();
            } else if self.under_way.requests > 0 && heard.elapsed() > PATIENCE {
                let detail = format!("no answer for {} s", PATIENCE.as_secs());
                return Err(Error::Server { what: "talk to redis", detail });
            }
        }
        latencies.wall = Nanos::from_secs_f64(start.elapsed().as_secs_f64());
        Ok(latencies)
    }

    fn issue(&mut self, ask: Ask, key: u32, due: Instant) -> Result<()> {
        let value = match ask {
            Ask::Set => self.items.renew(key),
            Ask::Get | Ask::Delete => self.items.value(key),
        };
        let at = to_usize(key.into()) % self.connections.len();
        let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
        let pending = Pending { ask, key, value, due };
        self.under_way.requests += 1;
        self.under_way.bytes += pending.bytes();
        connection.send(pending);
        // Long values go out while others are made.
        if connection.output.len() > CHUNK { connection.flush() } else { Ok(()) }
    }

    /// Waits until something can be read or written or it is time, and takes what has come. Whether
    /// anything came.
    fn wait(&mut self, until: Option<Instant>, latencies: &mut Latencies) -> Result<bool> {
        let until = until.map_or(Duration::from_secs(1), |until| {
            until.saturating_duration_since(Instant::now())
        });
        let timeout = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(1),
            tv_nsec: until.subsec_nanos().into(),
        };
        let mut ready: Vec<PollFd<'_>> = self.connections.iter().map(Connection::poll_fd).collect();
        poll(&mut ready, Some(&timeout))
            .map_err(|errno| failed("wait for redis", &errno.into()))?;
        let came: Vec<bool> = ready
            .iter()
            .map(|fd| fd.revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
            .collect();
        let before = latencies.count();
        for (connection, _) in self.connections.iter_mut().zip(came).filter(|(_, came)| *came) {
            connection.receive(&mut self.under_way, latencies)?;
        }
        Ok(latencies.count() > before)
    }
}

/// Chooses requests and pauses.
struct Chooser {
    rng: Rng,
    reads: f64,
}

impl Chooser {
    fn new(mix_of: Mix) -> Self {
        Self { rng: Rng::new(mix(mix_of.seed)), reads: mix_of.reads }
    }

    /// A random number above 0, at most 1.
    fn uniform(&mut self) -> f64 {
        const STEPS: u64 = 1 << 53;
        (self.rng.below(STEPS) + 1) as f64 / STEPS as f64
    }

    fn next(&mut self, items: &Items) -> Option<Request> {
        let ask = if self.uniform() <= self.reads { Ask::Get } else { Ask::Set };
        Some((ask, items.draw(&mut self.rng)?))
    }

    /// The time to the next request of a Poisson process.
    fn pause(&mut self, rate: f64) -> Duration {
        Duration::from_secs_f64(-self.uniform().ln() / rate.max(1e-3))
    }
}

impl Pending {
    /// Bytes of values on their way because of it.
    fn bytes(&self) -> usize {
        self.value.filter(|_| self.ask != Ask::Delete).map_or(0, Value::len)
    }

    /// Is this the answer that it must have?
    fn judge(&self, reply: Reply<'_>) -> Result<()> {
        let corrupt = |what| Err(Error::Corrupt { what: format!("{what} of key {}", self.key) });
        match (self.ask, reply) {
            (_, Reply::Failure(said)) => Err(Error::Server {
                what: "ask redis",
                detail: String::from_utf8_lossy(said).into_owned(),
            }),
            (Ask::Set, Reply::Simple(b"OK")) | (Ask::Delete, Reply::Integer(1)) => Ok(()),
            (Ask::Get, Reply::Bulk(found)) => match self.value {
                Some(value) if value.is(found) => Ok(()),
                _ => corrupt("the value"),
            },
            (Ask::Get, Reply::Nothing) => corrupt("the server has lost the value"),
            (Ask::Delete, Reply::Integer(_)) => corrupt("nothing was there to delete"),
            (ask, reply) => {
                let found = format!("{reply:?}").chars().take(80).collect();
                let expected = match ask {
                    Ask::Set => "OK",
                    Ask::Get => "a value",
                    Ask::Delete => "a number",
                };
                Err(Error::Protocol { expected, found })
            }
        }
    }
}

/// One connection, with what waits to be sent and what has come of an answer.
#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    output: Vec<u8>,
    /// Of the output, what has been sent.
    sent: usize,
    input: Vec<u8>,
    /// Of the input, what has been read into it, and of that what has been used.
    filled: usize,
    used: usize,
    pending: VecDeque<Pending>,
}

impl Connection {
    fn new(socket: UnixStream) -> Result<Self> {
        socket.set_nonblocking(true).map_err(|error| failed("talk to redis", &error))?;
        Ok(Self {
            socket,
            output: Vec::new(),
            sent: 0,
            input: vec![0; 2 * CHUNK],
            filled: 0,
            used: 0,
            pending: VecDeque::new(),
        })
    }

    fn poll_fd(&self) -> PollFd<'_> {
        let writing = if self.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.socket, PollFlags::IN | writing)
    }

    /// Puts a request into the output; [`Connection::flush`] sends it.
    fn send(&mut self, pending: Pending) {
        let key = format!("k{:x}", pending.key);
        match (pending.ask, pending.value) {
            (Ask::Set, Some(value)) => {
                resp::head(&mut self.output, &[b"SET", key.as_bytes()], value.len());
                value.write(&mut self.output);
            }
            (ask, _) => {
                let word: &[u8] = if ask == Ask::Delete { b"DEL" } else { b"GET" };
                resp::head(&mut self.output, &[word], key.len());
                self.output.extend(key.bytes());
            }
        }
        self.output.extend(resp::END);
        self.pending.push_back(pending);
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self) -> Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("talk to redis", &error)),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once and judges every answer that is complete.
    fn receive(&mut self, under_way: &mut UnderWay, latencies: &mut Latencies) -> Result<()> {
        self.make_room();
        match self.socket.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err(failed("talk to redis", &ErrorKind::UnexpectedEof.into())),
            Ok(count) => self.filled += count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(failed("talk to redis", &error)),
        }
        let now = Instant::now();
        while let Some((reply, length)) = resp::parse(&self.input[self.used..self.filled])? {
            let Some(pending) = self.pending.pop_front() else {
                return Err(Error::Protocol { expected: "nothing", found: format!("{reply:?}") });
            };
            pending.judge(reply)?;
            latencies.add(now.saturating_duration_since(pending.due));
            under_way.requests -= 1;
            under_way.bytes -= pending.bytes();
            self.used += length;
        }
        Ok(())
    }

    /// Makes room for another chunk at the end of the input.
    fn make_room(&mut self) {
        if self.used == self.filled {
            (self.used, self.filled) = (0, 0);
        }
        if self.input.len() - self.filled >= CHUNK {
            return;
        }
        self.input.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.used = 0;
        if self.input.len() - self.filled < CHUNK {
            self.input.resize(2 * self.input.len(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::items::Sizes;
    use super::*;

    const WINDOW: Window = Window { requests: 16, bytes: Bytes::from_mib(1) };

    /// A client of a server that answers every request, whatever it is, with `said`.
    fn against(said: &'static [u8], items: Items) -> (Client, std::thread::JoinHandle<()>) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let server = std::thread::spawn(move || {
            let mut heard = [0; 4000];
            while let Ok(count @ 1..) = theirs.read(&mut heard) {
                for _ in 0..heard[..count].iter().filter(|byte| **byte == b'*').count() {
                    if theirs.write_all(said).is_err() {
                        return;
                    }
                }
            }
        });
        (Client::new(vec![ours], items).expect("a client"), server)
    }

    fn items() -> Items {
        // No word of a value begins a request.
        Items::new(Sizes::all(Bytes(0)), 1)
    }

    #[test]
    fn answers_are_counted_and_judged() {
        let (mut client, server) = against(b"+OK\r\n", items());
        assert_eq!(client.fill(100, WINDOW).map(|done| done.count()), Ok(100));
        assert_eq!(client.items().count(), 100);
        let read = client.check(WINDOW);
        assert!(matches!(read, Err(Error::Protocol { .. })), "{read:?}");
        drop(client);
        server.join().expect("it ends with us");
    }

    #[test]
    fn wrong_answers_are_told_apart() {
        type Case = (&'static [u8], fn(&Error) -> bool);
        let cases: [Case; 4] = [
            (b"$1\r\nx\r\n", |error| matches!(error, Error::Corrupt { .. })),
            (b"$-1\r\n", |error| matches!(error, Error::Corrupt { .. })),
            (b"-OOM\r\n", |error| matches!(error, Error::Server { .. })),
            (b"what\r\n", |error| matches!(error, Error::Protocol { .. })),
        ];
        for (said, is_it) in cases {
            let mut stored = items();
            let key = stored.add();
            stored.renew(key);
            let (mut client, server) = against(said, stored);
            let error = client.check(WINDOW).expect_err("not what was stored");
            assert!(is_it(&error), "{error}");
            drop(client);
            server.join().expect("it ends with us");
        }
    }

    #[test]
    fn a_server_that_stands_still_pays_for_all_that_it_keeps_waiting() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        const STALL: Duration = Duration::from_millis(200);
        let server = std::thread::spawn(move || {
            std::thread::sleep(STALL);
            let mut heard = [0; 4000];
            while let Ok(count @ 1..) = theirs.read(&mut heard) {
                for _ in 0..heard[..count].iter().filter(|byte| **byte == b'*').count() {
                    if theirs.write_all(b"$0\r\n\r\n").is_err() {
                        return;
                    }
                }
            }
        });
        let mut stored = items();
        let key = stored.add();
        stored.renew(key);
        let mut client = Client::new(vec![ours], stored).expect("a client");
        let mix = Mix { reads: 1.0, seed: 3 };
        let found = client.open(mix, 1000.0, 2 * STALL).expect("answered");
        assert!((250..600).contains(&found.count()), "{}", found.count());
        // Half of the time nothing was answered: about a quarter waited for more than half of that.
        assert!(found.quantile(0.99) > Nanos(150_000_000), "{:?}", found.quantile(0.99));
        assert!(found.quantile(0.80) > Nanos(80_000_000), "{:?}", found.quantile(0.80));
        drop(client);
        server.join().expect("it ends with us");
    }
}
