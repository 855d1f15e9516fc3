//! Several experiments on the simulated machine at once, on threads of this process.
//!
//! They share runs and take turns on the CPUs ([`crate::turn`]); what each finds does not depend on
//! the others. Not for experiments on this machine: those would disturb each other.

use super::{Error, Experiment, Report, Result, Setting};
use crate::turn;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Something that happened, to the experiment at this place in the list.
#[derive(Debug)]
pub enum News {
    /// The experiment does this now.
    Says(usize, String),
    /// The experiment has ended.
    Ended(usize, Result<Report>),
}

/// Experiments that run. Dropping it asks them to stop, and does not wait until they have.
#[derive(Debug)]
pub struct Batch {
    news: mpsc::Receiver<News>,
    stop: Arc<AtomicBool>,
}

/// What its threads share.
struct Shared {
    experiments: Vec<&'static Experiment>,
    setting: Setting,
    next: AtomicUsize,
    stop: Arc<AtomicBool>,
}

impl Batch {
    /// Starts them in their order, `jobs` at once, of which no more simulate at once than may.
    #[must_use]
    pub fn start(
        experiments: Vec<&'static Experiment>,
        setting: Setting,
        jobs: NonZero<usize>,
    ) -> Self {
        let threads = jobs.get().min(experiments.len());
        let stop = Arc::new(AtomicBool::new(false));
        let (next, stopped) = (AtomicUsize::new(0), Arc::clone(&stop));
        let shared = Arc::new(Shared { experiments, setting, next, stop: stopped });
        let (sender, news) = mpsc::channel();
        for _ in 0..threads {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            std::thread::spawn(move || shared.work(&sender));
        }
        Self { news, stop }
    }

    /// What happened next, if anything does before that much time has passed.
    ///
    /// # Errors
    /// [`Error::Child`] if no thread is left that could say anything.
    pub fn next(&self, patience: Duration) -> Result<Option<News>> {
        match self.news.recv_timeout(patience) {
            Ok(news) => Ok(Some(news)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(Error::Child("an experiment did not come to its end".to_owned()))
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn work(&self, sender: &mpsc::Sender<News>) {
        loop {
            let _turn = turn::take();
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(experiment) = self.experiments.get(at) else { return };
            let mut progress = |what: &str| {
                let heard = sender.send(News::Says(at, what.to_owned()));
                let stop = heard.is_err() || self.stop.load(Ordering::Relaxed);
                if stop { Err(Error::Interrupted) } else { Ok(()) }
            };
            let ended = experiment.run(&self.setting, &mut progress);
            if sender.send(News::Ended(at, ended)).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{On, Progress, Run};
    use super::*;

    fn found(setting: &Setting) -> Report {
        Report { notes: vec![setting.seed.to_string()], ..Report::default() }
    }

    const fn experiment(name: &'static str, run: &'static dyn Run) -> Experiment {
        Experiment { name, source: "", summary: "", on: On::Sim, columns: &[], run }
    }

    fn works(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
        progress("working")?;
        Ok(found(setting))
    }

    fn fails(_: &Setting, _: Progress<'_>) -> Result<Report> {
        Err(Error::Row("no".to_owned()))
    }

    fn goes_on(_: &Setting, progress: Progress<'_>) -> Result<Report> {
        loop {
            progress("still there")?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    static WORKS: Experiment = experiment("works", &works);
    static FAILS: Experiment = experiment("fails", &fails);
    static GOES_ON: Experiment = experiment("goes-on", &goes_on);

    fn jobs(count: usize) -> NonZero<usize> {
        NonZero::new(count).expect("some")
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn each_is_run_and_heard_of_once() {
        for count in [1, 3] {
            let batch =
                Batch::start(vec![&WORKS, &FAILS, &WORKS, &WORKS], Setting::of_test(), jobs(count));
            let mut ended: Vec<(usize, bool)> = Vec::new();
            let mut said = 0;
            while ended.len() < 4 {
                match batch.next(PATIENCE).expect("they run") {
                    Some(News::Says(_, what)) => said += usize::from(what == "working"),
                    Some(News::Ended(at, Ok(report))) => {
                        assert_eq!(report.notes, ["7"]);
                        ended.push((at, true));
                    }
                    Some(News::Ended(at, Err(_))) => ended.push((at, false)),
                    None => panic!("nothing in {PATIENCE:?}"),
                }
            }
            ended.sort_unstable();
            assert_eq!(ended, [(0, true), (1, false), (2, true), (3, true)]);
            assert_eq!(said, 3);
            assert!(batch.next(PATIENCE).is_err(), "nobody is left");
        }
    }

    #[test]
    fn what_is_found_does_not_depend_on_the_others() {
        let experiments = ["trident-pv-promotion", "superpage-table1", "quicksilver-table3"];
        let of = |name: &str| super::super::find(name, Some(On::Sim)).expect("it exists");
        let experiments = experiments.map(of);
        let batch = Batch::start(experiments.to_vec(), Setting::of_test(), jobs(3));
        let mut together = [const { None }; 3];
        while together.iter().any(Option::is_none) {
            if let Some(News::Ended(at, ended)) = batch.next(PATIENCE).expect("they run") {
                together[at] = Some(ended.expect("it runs"));
            }
        }
        for (experiment, together) in experiments.iter().zip(together) {
            let alone = experiment.run(&Setting::of_test(), &mut |_| Ok(())).expect("it runs");
            let together = together.expect("it ended");
            assert_eq!(alone.rows, together.rows, "{}", experiment.name);
            assert_eq!(alone.notes, together.notes, "{}", experiment.name);
        }
    }

    #[test]
    fn dropping_it_stops_them() {
        let batch = Batch::start(vec![&GOES_ON, &WORKS], Setting::of_test(), jobs(1));
        assert!(matches!(batch.next(PATIENCE), Ok(Some(News::Says(0, _)))));
        let stop = Arc::clone(&batch.stop);
        // As dropping it does, but with somebody to hear how they end.
        stop.store(true, Ordering::Relaxed);
        let ended = loop {
            match batch.next(PATIENCE) {
                Ok(Some(News::Says(..))) => {}
                other => break other,
            }
        };
        assert!(matches!(ended, Ok(Some(News::Ended(0, Err(Error::Interrupted))))), "{ended:?}");
        assert!(batch.next(PATIENCE).is_err(), "the next one is not begun");
        stop.store(false, Ordering::Relaxed);
        drop(batch);
        assert!(stop.load(Ordering::Relaxed));
    }
}
