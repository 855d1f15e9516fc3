//! The worker pool: threads that may have to wait for the kernel, so that the scheduler's never does.
//!
//! A collapse waits for every processor to hand over its batches of pages, for memory, for locks; to
//! read a process's VMAs waits for whoever holds its memory map. So each request has a time limit. A
//! worker that exceeds it is replaced and counted; it ends when its request does. A worker that
//! panics reports that instead of a result.

use super::event::{Event, RequestId};
use crate::left_behind;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a request may take. Chosen, not measured: some thousand times what one takes.
const LIMIT: Duration = Duration::from_secs(10);
/// How long leaving waits for requests under way.
const PATIENCE: Duration = Duration::from_secs(2);
/// More workers than this that do not come back are a reason to give up: twice as many as the scheduler lets become late before it
/// begins nothing more.
const MOST_STUCK: usize = 2 * left_behind::MOST;

/// What a worker is given.
struct Request {
    id: RequestId,
    work: Box<dyn FnOnce() -> Event + Send>,
}

/// What is under way, and since when.
#[derive(Clone, Copy, Debug)]
struct Started {
    at: Instant,
    is_late: bool,
}

type UnderWay = Arc<Mutex<BTreeMap<RequestId, Started>>>;

/// The threads.
#[derive(Debug)]
pub struct Pool {
    requests: Option<Sender<Request>>,
    queue: Receiver<Request>,
    results: Sender<Event>,
    under_way: UnderWay,
    threads: Vec<JoinHandle<()>>,
    started: usize,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request {}", self.id)
    }
}

impl Pool {
    /// So many threads, which send to `results`.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn new(threads: usize, results: Sender<Event>) -> std::io::Result<Self> {
        let (requests, queue) = unbounded();
        let mut pool = Self {
            requests: Some(requests),
            queue,
            results,
            under_way: UnderWay::default(),
            threads: Vec::new(),
            started: 0,
        };
        for _ in 0..threads {
            pool.start()?;
        }
        Ok(pool)
    }

    fn start(&mut self) -> std::io::Result<()> {
        let (queue, results) = (self.queue.clone(), self.results.clone());
        let under_way = Arc::clone(&self.under_way);
        let thread = std::thread::Builder::new()
            .name(format!("worker-{}", self.started))
            .spawn(move || work(&queue, &results, &under_way))?;
        self.started += 1;
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread);
        Ok(())
    }

    /// Has a worker carry `work` out; its event goes to the results.
    pub fn give(&self, id: RequestId, work: impl FnOnce() -> Event + Send + 'static) {
        if let Some(requests) = &self.requests {
            // The queue is ours too, so it is never closed before.
            let _ = requests.send(Request { id, work: Box::new(work) });
        }
    }

    /// The requests that have exceeded their time since this was asked last. For each another worker
    /// is started.
    ///
    /// # Errors
    /// If no thread can be started, or too many do not come back.
    pub fn overdue(&mut self) -> std::io::Result<Vec<RequestId>> {
        let mut late = Vec::new();
        for (id, started) in lock(&self.under_way).iter_mut() {
            if !started.is_late && started.at.elapsed() > LIMIT {
                started.is_late = true;
                late.push(*id);
            }
        }
        let stuck = lock(&self.under_way).values().filter(|started| started.is_late).count();
        if stuck > MOST_STUCK {
            let what = format!("{stuck} workers wait for the kernel and do not come back");
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, what));
        }
        for _ in &late {
            self.start()?;
        }
        Ok(late)
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && lock(&self.under_way).is_empty()
    }

    /// Takes no more requests, and waits a while for those under way.
    pub fn finish(&mut self) {
        self.requests = None;
        let end = Instant::now() + PATIENCE;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        // One that is stuck ends with us.
        self.threads.clear();
    }
}

fn lock(under_way: &UnderWay) -> MutexGuard<'_, BTreeMap<RequestId, Started>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(queue: &Receiver<Request>, results: &Sender<Event>, under_way: &UnderWay) {
    while let Ok(Request { id, work }) = queue.recv() {
        lock(under_way).insert(id, Started { at: Instant::now(), is_late: false });
        // What a panic left half done is memory of the request only.
        let done = catch_unwind(AssertUnwindSafe(work));
        let was_late = lock(under_way).remove(&id).is_some_and(|started| started.is_late);
        if results.send(done.unwrap_or(Event::WorkerLost(id))).is_err() || was_late {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::Nanos;

    #[test]
    fn a_panic_is_reported_and_the_pool_goes_on() {
        let (send, results) = unbounded();
        let mut pool = Pool::new(1, send).expect("threads");
        pool.give(RequestId(1), || panic!("a test of panics"));
        assert_eq!(results.recv(), Ok(Event::WorkerLost(RequestId(1))));
        pool.give(RequestId(2), || Event::Spent(Nanos(7)));
        assert_eq!(results.recv(), Ok(Event::Spent(Nanos(7))));
        assert!(pool.overdue().expect("a pool").is_empty());
        pool.finish();
    }

    #[test]
    fn a_worker_that_is_late_is_replaced_once_and_reports_in_the_end() {
        let (send, results) = unbounded();
        let (free, stuck) = unbounded::<()>();
        let mut pool = Pool::new(1, send).expect("threads");
        pool.give(RequestId(1), move || {
            let _ = stuck.recv();
            Event::Tick
        });
        while lock(&pool.under_way).is_empty() {
            std::thread::yield_now();
        }
        let long_ago = Instant::now().checked_sub(LIMIT * 2).expect("the machine is up longer");
        lock(&pool.under_way).values_mut().for_each(|started| started.at = long_ago);
        assert_eq!(pool.overdue().expect("a pool"), [RequestId(1)]);
        assert!(pool.overdue().expect("a pool").is_empty(), "it is told once");
        pool.give(RequestId(2), || Event::Spent(Nanos(7)));
        assert_eq!(results.recv(), Ok(Event::Spent(Nanos(7))), "another worker took it");
        drop(free);
        assert_eq!(results.recv(), Ok(Event::Tick));
    }
}
