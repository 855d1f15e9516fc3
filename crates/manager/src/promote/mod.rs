//! The promoter: looks at processes as they fill memory, asks their policies, and makes the huge pages
//! that these want, within a CPU budget and limits.
//!
//! It runs beside the daemon's loop, because a heap that grows is to be promoted in fractions of a
//! second while a pass that reclaims bloat may take minutes. [`Promoter::start`] starts it; the
//! [`Promoter`] is the handle.
//!
//! | file | what |
//! |---|---|
//! | [`policy`] | the policies that can be asked for by name |
//! | [`scheduler`] | decides: events and the time go in, commands come out; pure |
//! | `managed` | a process, as the scheduler knows it |
//! | [`event`] | those events and commands |
//! | [`range`](mod@range) | the one state of a PMD range, and why one is not promoted |
//! | [`runs`] | PMD ranges as runs of neighbours |
//! | [`gate`] | the admission gate: CPU budget, memory, fragmentation |
//! | [`bucket`] | the token bucket of that budget |
//! | [`observe`] | what the scheduler is told of all processes and of free memory |
//! | [`instance`] | a policy with its processes |
//! | [`machine`] | those processes as a machine, which policies see and act on |
//! | [`snapshot`] | what is known of them |
//! | `driver` | the thread that steps the scheduler |
//! | [`pool`] | the threads that wait for the kernel |
//! | [`collapse`] | what these do |
//! | [`once`] | promoting once, without a policy |

pub mod bucket;
pub mod collapse;
mod driver;
pub mod event;
pub mod gate;
pub mod instance;
pub mod machine;
mod managed;
pub mod observe;
pub mod once;
pub mod policy;
pub mod pool;
pub mod range;
pub mod runs;
pub mod scheduler;
pub mod snapshot;

pub use event::RequestId;

use crate::budget::CpuBudget;
use crate::config::{CgroupMarks, PromotionConfig};
use crate::ledger::Ledger;
use crate::process::Terms;
use crate::registry::Registry;
use crossbeam_channel::{Sender, unbounded};
use gate::Limits;
use observe::Wanted;
use policy::Promotion;
use runs::Runs;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use superpage_policy::watermark::Watermarks;
use superpage_units::{BasePages, HugePages, ProcessKey, Share};

/// What the promoter goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Policies, pace, limits.
    pub promotion: PromotionConfig,
    /// The watermarks of the machine; promoting keeps below them too.
    pub marks: Watermarks,
    /// The watermarks of single cgroups.
    pub cgroups: Vec<CgroupMarks>,
    /// The watermarks of other cgroups with a limit.
    pub limited: Watermarks,
    /// The base pages that splitting a huge page has to free to be worth it.
    pub worth: BasePages,
}

impl Setup {
    /// The part of the setup that observations need.
    fn wanted(&self) -> Wanted {
        Wanted {
            promotion: self.promotion.clone(),
            marks: self.marks,
            cgroups: self.cgroups.clone(),
            limited: self.limited,
        }
    }

    /// Which memory may be promoted.
    fn terms(&self) -> Terms {
        Terms {
            locked: self.promotion.locked,
            real_time: self.promotion.real_time,
            most_lazily_freed: self.worth.share_of(HugePages(1).base_pages()),
        }
    }

    /// What the scheduler needs of it.
    fn rules(&self) -> Rules {
        Rules {
            policies: self.promotion.policies().collect(),
            budget: self.promotion.budget,
            at_once: self.workers(),
            worth: self.worth,
            max_fragmentation: self.promotion.max_fragmentation,
        }
    }

    /// Collapse requests at a time: no more than half of the processors, because the programs that are
    /// promoted need some too.
    fn workers(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.promotion.at_once.min(processors.div_ceil(2))
    }
}

/// What the scheduler goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Every policy that some process may have.
    pub policies: Vec<Promotion>,
    /// What of one core promoting may use, looking included.
    pub budget: CpuBudget,
    /// Collapse requests at a time.
    pub at_once: usize,
    /// The base pages that splitting a huge page has to free to be worth it.
    pub worth: BasePages,
    /// The share of free memory above which fragmentation forbids promotions.
    pub max_fragmentation: Share,
}

impl Rules {
    fn limits(&self) -> Limits {
        let (worth, max_fragmentation) = (self.worth, self.max_fragmentation);
        Limits { worth, max_fragmentation, fragmentation: Share::NONE }
    }
}

/// How the promoter stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Processes under each policy, by its name.
    pub policies: Vec<(String, u64)>,
    /// What was done to see what is to be promoted, and what went wrong.
    pub counts: Counts,
    /// Promotions that wait or are under way.
    pub waiting: u64,
    /// The pause between calls, in milliseconds, because the kernel took long.
    pub pause_ms: f64,
    /// The processes in which huge pages were made that may be partly used, each with the name of its
    /// policy, which wants their bloat reclaimed.
    pub reclaim_from: BTreeMap<ProcessKey, String>,
}

/// What the scheduler counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Surveys made.
    pub surveys: u64,
    /// Requests that took longer than they may.
    pub timed_out: u64,
    /// Workers that ended in the middle of a request.
    pub workers_lost: u64,
}

/// PMD ranges that were huge, by process.
pub type Promoted = BTreeMap<ProcessKey, Runs>;

/// What the promoter is told.
#[derive(Debug)]
enum Order {
    /// Another setup holds from now on.
    Configure(Box<Setup>),
    /// Leave.
    Stop,
}

/// What the promoter and its handle share.
#[derive(Debug, Default)]
struct Shared {
    status: Mutex<Status>,
    promoted: Mutex<Promoted>,
}

/// The handle on a running promoter. Dropping it ends the promoter, after what is under way.
#[derive(Debug)]
pub struct Promoter {
    orders: Sender<Order>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Promoter {
    /// Starts it, for the processes in `registry`. `promoted` are ranges that an earlier one had made
    /// huge.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn start(
        setup: Setup,
        registry: Arc<Registry>,
        ledger: Arc<Ledger>,
        promoted: Promoted,
    ) -> std::io::Result<Self> {
        let (orders, received) = unbounded();
        let shared = Arc::new(Shared { status: Mutex::default(), promoted: Mutex::new(promoted) });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("promoter".to_owned())
            .spawn(move || driver::run(setup, &registry, &ledger, &its, &received))?;
        Ok(Self { orders, shared, thread: Some(thread) })
    }

    /// Goes by another setup from now on; what is known of processes stays.
    pub fn configure(&self, setup: Setup) {
        // One that has ended needs no setup.
        let _ = self.orders.send(Order::Configure(Box::new(setup)));
    }

    /// Whether its thread runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ranges that were huge, as of the last second.
    #[must_use]
    pub fn promoted(&self) -> Promoted {
        self.shared.promoted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it, after what is under way; which ranges were huge in the end.
    #[must_use]
    pub fn end(mut self) -> Promoted {
        self.stop();
        self.promoted()
    }

    fn stop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic has said what it was.
            let _ = thread.join();
        }
    }
}

impl Drop for Promoter {
    fn drop(&mut self) {
        self.stop();
    }
}
