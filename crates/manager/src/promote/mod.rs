//! The promoter: hears of page faults as they happen, tells the policies, and carries out what they
//! want, several promotions at once, within a budget and limits.
//!
//! It runs in a thread of its own, because a fault that calls for a huge page is to be answered in
//! milliseconds while a de-bloating pass may take seconds. [`Promoter::start`] starts it; the
//! [`Promoter`] is the handle.
//!
//! | file | what |
//! |---|---|
//! | [`policy`] | the policies that can be asked for by name |
//! | [`tenant`] | one watched process |
//! | [`view`] | what a policy sees of its processes |
//! | [`group`] | the processes under one policy, and what it wants |
//! | [`limits`] | when promoting would do harm |
//! | [`headroom`] | what memory promotions may still add |
//! | `lasting` | whether what is promoted lasts, and a budget where it does not |
//! | [`pace`] | how fast: the budget, and waiting while the kernel takes long |
//! | `roster` | who is watched, under which policy |
//! | [`crew`] | the threads that carry out |
//! | `hear` | whose page faults are heard, and when |
//! | `front` | regions that are being filled, followed by their page tables at the pace that they go |
//! | `work` | the loop |
//! | [`once`] | promoting once, without any of that |

pub mod crew;
mod front;
pub mod group;
pub mod headroom;
mod hear;
mod lasting;
pub mod limits;
pub mod once;
pub mod pace;
pub mod policy;
mod roster;
pub mod tenant;
pub mod view;
mod work;

use crate::config::{CgroupMarks, PromotionConfig};
use crate::ledger::Ledger;
use crate::select::Selection;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use superpage_policy::watermark::Watermarks;
use superpage_units::{BasePages, Bytes, Nanos, ProcessKey, Region};

/// What the promoter goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Policies, pace, limits.
    pub promotion: PromotionConfig,
    /// Which processes at all.
    pub processes: Selection,
    /// The watermarks of the machine; promoting keeps below them too.
    pub marks: Watermarks,
    /// Those of single cgroups.
    pub cgroups: Vec<CgroupMarks>,
    /// What breaking a huge page has to free to be worth it.
    pub worth: BasePages,
    /// The size of each processor's buffer of page faults
    /// ([`superpage_kernel::fault_events::DEFAULT_RING`] is right nearly always).
    pub ring: Bytes,
}

/// How the promoter stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Processes under each policy, by its name.
    pub policies: Vec<(String, u64)>,
    /// Page faults heard of.
    pub seen: u64,
    /// Records lost because a buffer was full.
    pub lost: u64,
    /// How often the kernel throttled them.
    pub throttled: u64,
    /// Promotions that wait.
    pub waiting: u64,
    /// The delay between calls, in milliseconds, because the kernel took long.
    pub pause_ms: f64,
    /// Numbers of the processes whose partly used huge pages are to be taken back, and the names of the
    /// policies that want that.
    pub taken_back_from: BTreeMap<u32, String>,
}

/// Regions that were huge, by process.
pub type Remembered = BTreeMap<ProcessKey, Vec<Region>>;

/// What the promoter is told.
#[derive(Debug)]
enum Command {
    /// Another setup holds from now on.
    Configure(Box<Setup>),
    /// Leave.
    Stop,
}

/// What the promoter and its handle share.
#[derive(Debug, Default)]
struct Board {
    standing: Mutex<Standing>,
    remembered: Mutex<Remembered>,
}

/// The handle on a running promoter. Dropping it ends the promoter, after what is under way.
#[derive(Debug)]
pub struct Promoter {
    commands: Sender<Command>,
    wake: UnixStream,
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Promoter {
    /// Starts it. `remembered` are regions that an earlier one knew.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn start(
        setup: Setup,
        ledger: Arc<Ledger>,
        remembered: Remembered,
    ) -> std::io::Result<Self> {
        let (wake, ear) = UnixStream::pair()?;
        for end in [&wake, &ear] {
            end.set_nonblocking(true)?;
        }
        let (commands, orders) = mpsc::channel();
        let board =
            Arc::new(Board { standing: Mutex::default(), remembered: Mutex::new(remembered) });
        let (shared, waker) = (Arc::clone(&board), wake.try_clone()?);
        let thread = std::thread::Builder::new()
            .name("promoter".to_owned())
            .spawn(move || work::run(setup, &ledger, &shared, orders, (waker, ear)))?;
        Ok(Self { commands, wake, board, thread: Some(thread) })
    }

    /// Goes by another setup from now on; what is known of processes stays.
    pub fn configure(&self, setup: Setup) {
        self.tell(Command::Configure(Box::new(setup)));
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.board.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`Standing::taken_back_from`].
    #[must_use]
    pub fn taken_back_from(&self) -> BTreeMap<u32, String> {
        self.standing().taken_back_from
    }

    /// Regions that were huge, as of the last look.
    #[must_use]
    pub fn remembered(&self) -> Remembered {
        self.board.remembered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, command: Command) {
        // If it has ended, nobody is there to be told.
        let _ = self.commands.send(command);
        let _ = (&self.wake).write(&[0]);
    }
}

impl Promoter {
    /// Ends it, after what is under way; what was huge in the end.
    #[must_use]
    pub fn end(mut self) -> Remembered {
        self.stop();
        self.remembered()
    }

    fn stop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // What made it panic was said by the panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Promoter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The time by the clock that fault events carry.
#[must_use]
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Nanos(seconds * 1_000_000_000 + nanos)
}
