//! Several runs at once.

use super::{Progress, Result};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::available_parallelism;

/// Makes the runs of these cases, as many at once as there are CPUs; `run` keeps what came of each.
pub(super) fn each<C: Copy + Send + Sync>(
    cases: &[C],
    run: &(dyn Fn(C) -> Result<()> + Sync),
    name: &dyn Fn(C) -> String,
    progress: Progress<'_>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let threads = available_parallelism().map_or(1, NonZero::get).min(cases.len());
    let (sender, done) = mpsc::channel();
    let work = |sender: mpsc::Sender<(C, Result<()>)>| {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if sender.send((*case, run(*case))).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        // An early return drops the receiver, and the others stop after the run that they are at.
        let done = done;
        for (finished, (case, result)) in done.iter().enumerate() {
            result?;
            progress(&format!("{} of {} runs; {}", finished + 1, cases.len(), name(case)))?;
        }
        Ok(())
    })
}
