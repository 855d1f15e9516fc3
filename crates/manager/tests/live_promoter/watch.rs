//! A promoter as the tests run it: for their own programs alone, with a history to look at.

use crate::{Ended, ensure, own, wait_for};
use libtest_mimic::Failed;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use superpage_manager::config;
use superpage_manager::history::{self, Entry, What};
use superpage_manager::ledger::Ledger;
use superpage_manager::promote::{self, Promoted, Promoter, Status};
use superpage_manager::registry::{Registry, WORTH_MANAGING};
use superpage_manager::select::Selection;
use superpage_units::Pid;

/// What a promoter goes by, and for which processes.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) promoter: promote::Setup,
    pub(crate) processes: Selection,
}

/// What the promoter goes by: this policy for these processes, no limit near.
pub(crate) fn setup(policy: &str, pids: &[Pid]) -> Result<Setup, Failed> {
    setup_with(policy, pids, "")
}

/// The same, and more lines for the part on promotion.
pub(crate) fn setup_with(policy: &str, pids: &[Pid], more: &str) -> Result<Setup, Failed> {
    let pids: Vec<u32> = pids.iter().map(|pid| pid.0).collect();
    let text = format!(
        "watermarks = {{ high = \"99%\", low = \"98%\" }}\n\
         budget = {{ promotion = \"100%\" }}\n\
         processes = {{ include = {{ pids = {pids:?} }} }}\n\
         [promotion]\npolicy = \"{policy}\"\nmax_fragmentation = \"100%\"\n{more}"
    );
    let config = config::parse_with(&text, Path::new("setup"), &own::policies())
        .map_err(|error| error.to_string())?;
    let promoter = promote::Setup {
        marks: config.machine.unwrap_or_default(),
        worth: config.worth(),
        promotion: config.promotion,
        cgroups: Vec::new(),
        limited: config.limited.marks,
    };
    Ok(Setup { promoter, processes: config.processes })
}

/// A running promoter.
#[derive(Debug)]
pub(crate) struct Watch {
    promoter: Promoter,
    registry: Arc<Registry>,
    ledger: Arc<Ledger>,
    directory: tempfile::TempDir,
}

impl Watch {
    pub(crate) fn start(setup: Setup) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let ledger = Arc::new(Ledger::open(directory.path()));
        let registry = Arc::new(Registry::new(setup.processes, WORTH_MANAGING));
        let (its, told) = (Arc::clone(&registry), Arc::clone(&ledger));
        let promoter = Promoter::start(setup.promoter, its, told, Promoted::new())?;
        Ok(Self { promoter, registry, ledger, directory })
    }

    /// Goes by another setup from now on.
    pub(crate) fn configure(&self, setup: Setup) {
        self.registry.configure(setup.processes);
        self.promoter.configure(setup.promoter);
    }

    pub(crate) fn status(&self) -> Status {
        self.promoter.status()
    }

    /// Waits until everything that is mapped by now has been surveyed and acted on.
    pub(crate) fn settle(&self) -> Ended {
        // Processes are observed several times a second, and the status is told once a second.
        std::thread::sleep(Duration::from_secs(3));
        wait_for("what follows from surveys", || Ok((self.status().waiting == 0).then_some(())))
    }

    /// Ends it; all that it told.
    pub(crate) fn end(self) -> Result<Told, Failed> {
        drop(self.promoter);
        self.ledger.close();
        Ok(Told(history::read(self.directory.path(), 0)?.entries))
    }
}

/// What a promoter told.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) Vec<Entry>);

impl Told {
    /// Huge pages of entries like this.
    pub(crate) fn count(&self, what: What, kind: &str) -> u64 {
        self.of(what).filter(|entry| entry.kind == kind).map(|entry| entry.huge_pages.0).sum()
    }

    /// Huge pages of entries of a process.
    pub(crate) fn promoted_in(&self, pid: Pid) -> u64 {
        self.of(What::Promoted).filter(|e| e.pid == Some(pid)).map(|e| e.huge_pages.0).sum()
    }

    pub(crate) fn of(&self, what: What) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(move |entry| entry.what == what)
    }

    /// Fails unless so many huge pages were made, all for this kind of cause.
    pub(crate) fn promoted(&self, huge_pages: u64, kind: &str) -> Ended {
        let right = self.count(What::Promoted, kind) == huge_pages
            && self.of(What::Promoted).all(|entry| entry.kind == kind);
        ensure!(right, "expected {huge_pages} promoted by {kind:?}: {:#?}", self.0);
        Ok(())
    }
}

/// CPU time that the promoter's threads have used: its own and its workers'.
pub(crate) fn cpu_of_promoter() -> Result<Duration, Failed> {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread may end while we look.
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        if name.trim_end() == "promoter" || name.starts_with("worker-") {
            let text = std::fs::read_to_string(task.join("schedstat"))?;
            let nanos = text.split(' ').next().ok_or("no time")?.parse()?;
            sum += Duration::from_nanos(nanos);
        }
    }
    ensure!(!sum.is_zero(), "there is no promoter");
    Ok(sum)
}
