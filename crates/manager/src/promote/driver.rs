//! The thread that steps the [scheduler](super::scheduler): it waits for events, hands commands to
//! workers, and tells the operator. It reads the clock and decides nothing.

use super::collapse;
use super::event::{Collapse, Collapsed, Command, Event, Report, RequestId, Slow};
use super::observe::{Wanted, observe};
use super::pool::Pool;
use super::range::Refusal;
use super::scheduler::Scheduler;
use super::{Order, Setup, Shared, Status};
use crate::clock;
use crate::history::{Entry, What};
use crate::ledger::{Ledger, entry};
use crate::process::{Extent, Survey, Terms};
use crate::registry::Registry;
use crossbeam_channel::{Receiver, Sender, select, unbounded};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use superpage_kernel::Error;
use superpage_kernel::usage::CpuTime;
use superpage_policy::promotion::capabilities::IdleReclaim;
use superpage_units::{Nanos, Pid, ProcessKey};
use tracing::{error, warn};

/// How often the status is told, and workers are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Workers beside those that collapse: one observes, one surveys.
const OBSERVERS: usize = 2;

/// Runs until it is told to stop, or cannot go on.
pub(super) fn run(
    setup: Setup,
    registry: &Arc<Registry>,
    ledger: &Arc<Ledger>,
    shared: &Arc<Shared>,
    orders: &Receiver<Order>,
) {
    let mut driver =
        match Driver::new(setup, Arc::clone(registry), Arc::clone(ledger), Arc::clone(shared)) {
            Ok(driver) => driver,
            Err(error) => return error!("nothing is promoted, threads cannot be started: {error}"),
        };
    while driver.turn(orders) == Go::On {}
    driver.leave();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    Home,
}

struct Driver {
    scheduler: Scheduler,
    registry: Arc<Registry>,
    wanted: Arc<Wanted>,
    terms: Terms,
    pool: Pool,
    /// Earlier pools, for requests that they have still.
    retired: Vec<Pool>,
    results: Receiver<Event>,
    sender: Sender<Event>,
    at_once: usize,
    ledger: Arc<Ledger>,
    shared: Arc<Shared>,
    /// The numbers and commands of processes about which something may be told.
    names: BTreeMap<ProcessKey, (Pid, String)>,
    spent: CpuTime,
    kept_house: Instant,
}

impl Driver {
    fn new(
        setup: Setup,
        registry: Arc<Registry>,
        ledger: Arc<Ledger>,
        shared: Arc<Shared>,
    ) -> std::io::Result<Self> {
        let (sender, results) = unbounded();
        let at_once = setup.promotion.at_once;
        let promoted =
            std::mem::take(&mut *shared.promoted.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Self {
            scheduler: Scheduler::new(setup.rules(), promoted, clock::now()),
            registry,
            wanted: Arc::new(setup.wanted()),
            terms: setup.terms(),
            retired: Vec::new(),
            pool: Pool::new(setup.workers() + OBSERVERS, sender.clone())?,
            results,
            sender,
            at_once,
            ledger,
            shared,
            names: BTreeMap::new(),
            spent: CpuTime::of_thread(),
            kept_house: Instant::now(),
        })
    }

    /// Waits for something to happen, and sees to it.
    fn turn(&mut self, orders: &Receiver<Order>) -> Go {
        let until = Duration::from_nanos(self.scheduler.next_step().since(clock::now()).0);
        let house = HOUSEKEEPING.saturating_sub(self.kept_house.elapsed());
        let event = select! {
            recv(orders) -> order => match order {
                Ok(Order::Configure(setup)) => {
                    self.configure(*setup);
                    Event::Tick
                }
                Ok(Order::Stop) | Err(_) => return Go::Home,
            },
            recv(self.results) -> event => event.unwrap_or(Event::Tick),
            default(until.min(house)) => Event::Tick,
        };
        self.step(event);
        while let Ok(event) = self.results.try_recv() {
            self.step(event);
        }
        let cpu = CpuTime::of_thread();
        self.step(Event::Spent(cpu.since(self.spent)));
        self.spent = cpu;
        if self.kept_house.elapsed() < HOUSEKEEPING {
            return Go::On;
        }
        self.keep_house()
    }

    fn step(&mut self, event: Event) {
        for command in self.scheduler.step(event, clock::now()) {
            match command {
                Command::Observe(id) => self.observe(id),
                Command::Survey(id, process, extent) => self.survey(id, process, extent),
                Command::Collapse(id, request) => {
                    let process = self.registry.get(request.process);
                    if let Some(process) = &process {
                        let name = (process.pid(), process.command().to_owned());
                        self.names.insert(process.key, name);
                    }
                    self.pool.give(id, move || {
                        let cpu = CpuTime::of_thread();
                        let done = match process {
                            Some(process) => collapse::carry_out(&process, &request),
                            None => gone(&request),
                        };
                        Event::Collapsed(id, done, CpuTime::of_thread().since(cpu))
                    });
                }
                Command::Report(report) => self.tell(report),
            }
        }
    }

    fn observe(&self, id: RequestId) {
        let (registry, wanted) = (Arc::clone(&self.registry), Arc::clone(&self.wanted));
        self.pool.give(id, move || {
            let cpu = CpuTime::of_thread();
            match observe(&registry, &wanted, clock::now()) {
                Ok(seen) => Event::Observed(id, seen, CpuTime::of_thread().since(cpu)),
                Err(error) => {
                    warn!("processes cannot be seen: {error}");
                    Event::WorkerLost(id)
                }
            }
        });
    }

    fn survey(&self, id: RequestId, process: ProcessKey, extent: Extent) {
        let process = self.registry.get(process);
        let terms = self.terms;
        self.pool.give(id, move || {
            let cpu = CpuTime::of_thread();
            // In one that is left alone there is no range in which huge pages are made.
            let survey = process.and_then(|process| match process.is_left_alone(terms) {
                Ok(false) => match process.survey(terms, extent) {
                    Err(Error::TooLong { .. }) => Some(Survey::default()),
                    survey => survey.ok(),
                },
                Ok(true) | Err(_) => process.process.is_alive().then(Survey::default),
            });
            Event::Surveyed(id, survey, CpuTime::of_thread().since(cpu))
        });
    }

    fn configure(&mut self, setup: Setup) {
        let mut rules = setup.rules();
        if setup.promotion.at_once != self.at_once {
            match Pool::new(setup.workers() + OBSERVERS, self.sender.clone()) {
                // The old one's requests come to an end, and their events too.
                Ok(pool) => {
                    self.at_once = setup.promotion.at_once;
                    self.retired.push(std::mem::replace(&mut self.pool, pool));
                }
                Err(error) => {
                    warn!("as many promotions at once as before: {error}");
                    rules.at_once = rules.at_once.min(self.at_once);
                }
            }
        }
        self.wanted = Arc::new(setup.wanted());
        self.terms = setup.terms();
        self.scheduler.configure(rules, clock::now());
    }

    fn keep_house(&mut self) -> Go {
        self.kept_house = Instant::now();
        self.retired.retain(|pool| !pool.is_idle());
        let pools = std::iter::once(&mut self.pool).chain(&mut self.retired);
        let late: std::io::Result<Vec<_>> = pools.map(Pool::overdue).collect();
        match late {
            Ok(late) => late.into_iter().flatten().for_each(|id| self.step(Event::TimedOut(id))),
            Err(error) => {
                error!("promotion ends: {error}");
                return Go::Home;
            }
        }
        self.publish();
        self.ledger.flush();
        self.names.clear();
        Go::On
    }

    /// Lets others see how it stands.
    fn publish(&self) {
        let mut status = Status {
            policies: self.scheduler.policies(),
            counts: self.scheduler.counts(),
            waiting: self.scheduler.waiting(),
            pause_ms: self.scheduler.pause(clock::now()).as_secs_f64() * 1e3,
            ..Status::default()
        };
        let mut promoted = self.scheduler.promoted_before().clone();
        for (key, policy, ranges) in self.scheduler.promoted() {
            let may_bloat = !ranges.is_empty() && policy.idle_reclaim() != IdleReclaim::Never;
            if let Some(process) = self.registry.get(key).filter(|_| may_bloat) {
                status.reclaim_from.insert(process.key, policy.to_string());
            }
            promoted.insert(key, ranges.clone());
        }
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        *self.shared.promoted.lock().unwrap_or_else(PoisonError::into_inner) = promoted;
    }

    fn leave(&mut self) {
        self.pool.finish();
        while let Ok(event) = self.results.try_recv() {
            self.step(event);
        }
        self.publish();
        self.ledger.flush();
    }

    fn tell(&self, report: Report) {
        match report {
            Report::CollapseTook(time) => self.ledger.collapse_took(duration(time)),
            Report::Promoted { process, policy, huge_pages, filled, reason, waited } => {
                self.ledger.waited(duration(waited));
                self.ledger.record(Entry {
                    policy: Some(policy),
                    huge_pages,
                    base_pages: filled,
                    ..self.entry(process, What::Promoted, reason.kind(), &reason.to_string())
                });
            }
            Report::Refused { process, policy, huge_pages, why } => self.ledger.record(Entry {
                policy: Some(policy),
                huge_pages,
                ..self.entry(process, What::Refused, why.kind(), why.reason())
            }),
            Report::BackedOff { took, pause, cause } => {
                let kind = match cause {
                    Slow::Kernel => "slow",
                    Slow::NoHugePage => "no-huge-page",
                };
                let words = format!(
                    "the last call took {:.0} ms for a huge page; the next waits {:.0} ms",
                    took.as_secs_f64() * 1e3,
                    pause.as_secs_f64() * 1e3
                );
                self.ledger.record(entry(What::BackedOff, kind, &words));
            }
            Report::TimedOut(process) => {
                let words = "a request takes longer than it may; another worker goes on";
                self.missed(process, "timed-out", words);
            }
            Report::WorkerLost(process) => {
                self.missed(process, "worker-lost", "a worker ended in the middle of a request");
            }
        }
    }

    fn missed(&self, process: Option<ProcessKey>, kind: &str, words: &str) {
        warn!("{words}");
        self.ledger.record(match process {
            Some(process) => self.entry(process, What::Missed, kind, words),
            None => entry(What::Missed, kind, words),
        });
    }

    /// An entry about a process.
    fn entry(&self, process: ProcessKey, what: What, kind: &str, cause: &str) -> Entry {
        let held = || {
            let process = self.registry.get(process)?;
            Some((process.pid(), process.command().to_owned()))
        };
        let (pid, command) = self.names.get(&process).cloned().or_else(held).unzip();
        Entry { pid, command, ..entry(what, kind, cause) }
    }
}

/// What becomes of a request about a process that is not managed any more.
fn gone(request: &Collapse) -> Collapsed {
    let became = request.ranges().map(|range| (range, Err(Refusal::Gone))).collect();
    Collapsed { became, ..Collapsed::default() }
}

fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}
