//! How the daemon ends: by a signal, because it has to stop, or by a mistake of its own. The kernel's
//! settings are put back before anything else; then its threads get some time to end.

use super::{Daemon, DaemonError};
use crate::history::What;
use crate::ledger::entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use superpage_kernel::Error;
use superpage_kernel::settings::Outcome;
use tracing::{error, info, warn};

/// How long the daemon waits for a promoter, a pass or a change of the pool to end, which may be stuck in the kernel. Chosen, not
/// measured: calls under way take milliseconds, and whoever stops a service waits for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The promoter may be started again so often within [`SPELL`]. Chosen: what goes wrong each time goes
/// wrong within seconds.
const MOST_RESTARTS: usize = 3;
/// Chosen, not measured.
const SPELL: Duration = Duration::from_secs(600);

/// When the promoter was started again.
#[derive(Clone, Debug, Default)]
pub(super) struct Restarts(Vec<Instant>);

/// Whether the promoter is to be started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Start,
    TooMany,
}

impl Restarts {
    /// It has ended once more at `now`.
    pub(super) fn one_more(&mut self, now: Instant) -> Verdict {
        self.0.retain(|at| now.saturating_duration_since(*at) < SPELL);
        self.0.push(now);
        if self.0.len() > MOST_RESTARTS { Verdict::TooMany } else { Verdict::Start }
    }
}

impl Daemon {
    /// Does `work`, and leaves however that ends. Fails if `work` did, or if something could not be put
    /// back.
    pub(super) fn run_to_its_end(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DaemonError>,
    ) -> Result<(), DaemonError> {
        let ended = catch_unwind(AssertUnwindSafe(|| work(self)));
        let ended = ended.unwrap_or(Err(DaemonError::Panicked));
        let put_back = self.put_back().and(self.supply.end());
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        self.end_pass();
        self.end_promoter();
        self.save();
        let why = ended.as_ref().map_or_else(ToString::to_string, |()| "told to leave".to_owned());
        self.reporter.ledger.record(entry(What::Stopped, "stop", &why));
        self.reporter.ledger.close();
        match &put_back {
            Ok(()) => info!("left"),
            Err(error) => error!("{error}; the next start will try again"),
        }
        ended.and(put_back.map_err(DaemonError::Kernel))
    }

    /// Ends the pass under way; a thread that does not end is left behind.
    pub(super) fn end_pass(&mut self) {
        if let Some(ended) = self.reclaimer.end(PATIENCE, &self.config) {
            self.pass_ended(ended);
        }
    }

    /// Ends the promoter and keeps what it knew; one that does not end is left behind.
    pub(super) fn end_promoter(&mut self) {
        let Some(promoter) = self.promoter.take() else { return };
        let known = promoter.promoted();
        self.remembered = within(PATIENCE, move || promoter.end()).unwrap_or_else(|| {
            warn!("a thread of the promoter does not end; it is left behind");
            known
        });
    }

    /// Puts back every setting of the kernel that was changed.
    pub(super) fn put_back(&mut self) -> Result<(), Error> {
        let mut failed = None;
        for repair in self.settings.restore()? {
            match &repair.outcome {
                Outcome::Failed(error) => {
                    error!("{repair}");
                    failed = Some(error.clone());
                }
                _ => {
                    info!("{repair}");
                    let words = repair.to_string();
                    self.reporter.ledger.record(entry(What::Setting, "put-back", &words));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// What `work` gives, unless it takes longer than this; then it goes on unheard.
fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::channel();
    let run = move || {
        // Nobody may be waiting any more.
        let _ = tell.send(work());
    };
    thread::Builder::new().name("leaving".to_owned()).spawn(run).ok()?;
    told.recv_timeout(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::fs;
    use std::path::Path;
    use superpage_kernel::settings::{Mode, Settings};

    const KNOB: &str = "sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";

    /// A tree that imitates the kernel's, with a daemon that holds a setting in it.
    fn daemon() -> (tempfile::TempDir, Daemon) {
        let root = tempfile::tempdir().expect("a directory");
        let files = [
            (KNOB, "511\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/sys/kernel/random/boot_id", "0\n"),
        ];
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, text).expect("written");
        }
        let text = "[watermarks]\nenabled = false\n[promotion]\npolicy = \"off\"\n";
        let config = config::parse(text, Path::new("test.toml")).expect("valid");
        let state = root.path().join("state");
        let settings = Settings::open_under(root.path(), &state, Mode::Apply).expect("ours").0;
        let mut daemon = Daemon::new(config, None, &state, settings).expect("it can be woken");
        daemon.hold();
        (root, daemon)
    }

    fn knob(root: &tempfile::TempDir) -> String {
        fs::read_to_string(root.path().join(KNOB)).expect("readable").trim().to_owned()
    }

    #[test]
    fn settings_are_put_back_also_after_a_panic() {
        let (root, mut daemon) = daemon();
        assert_eq!(knob(&root), "30");
        let ended = daemon.run_to_its_end(|_| panic!("a mistake, for the test"));
        assert!(matches!(ended, Err(DaemonError::Panicked)), "{ended:?}");
        assert_eq!(knob(&root), "511");
        assert!(!root.path().join("state/settings.json").exists(), "the journal is still there");
    }

    #[test]
    fn an_error_of_the_work_is_told_after_the_settings_are_put_back() {
        let (root, mut daemon) = daemon();
        let ended = daemon.run_to_its_end(|_| Err(DaemonError::PromoterEnds));
        assert!(matches!(ended, Err(DaemonError::PromoterEnds)), "{ended:?}");
        assert_eq!(knob(&root), "511");
    }

    #[test]
    fn what_does_not_end_is_not_waited_for() {
        let began = Instant::now();
        let stuck = within(Duration::from_millis(10), || thread::sleep(Duration::from_secs(60)));
        assert!(stuck.is_none() && began.elapsed() < Duration::from_secs(30));
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
    }

    #[test]
    fn the_promoter_is_started_again_three_times_in_a_spell() {
        let (mut restarts, began) = (Restarts::default(), Instant::now());
        let mut at = |seconds| restarts.one_more(began + Duration::from_secs(seconds));
        let verdicts = [at(0), at(100), at(200), at(300), at(900), at(1600)];
        let (start, many) = (Verdict::Start, Verdict::TooMany);
        assert_eq!(verdicts, [start, start, start, many, start, start]);
    }
}
