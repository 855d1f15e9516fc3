//! `superpage lab hog` and `superpage lab fragment`: pressure on memory, until they are ended.

use crate::args::{LabFragment, LabHog};
use crate::exit::{Failure, Outcome};
use crate::{show, signals};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use superpage_kernel::meminfo;
use superpage_lab::pressure::{self, Pressure};
use superpage_lab::worker::{Error, Launcher};
use superpage_units::{Bytes, HUGE_PAGE_BYTES, Share};

/// The time between two looks whether to end. Chosen: nobody waits longer for it.
const LOOK: Duration = Duration::from_millis(100);

/// `lab hog` leaves at least this much available.
const LEAST: Bytes = Bytes::from_mib(256);

/// Holds memory.
pub(super) fn hog(arguments: &LabHog, launcher: &Launcher) -> Outcome {
    let available = meminfo::obtainable(Path::new("/proc"))?;
    let size = match (arguments.size, arguments.leave) {
        (Some(size), _) => size,
        (None, leave) => available.saturating_sub(leave.unwrap_or(LEAST)),
    };
    if size.0 < HUGE_PAGE_BYTES {
        return Err(Failure::Usage(match arguments.leave {
            None => format!("{size} is less than a huge page: hold 2 MiB at least"),
            Some(leave) => format!(
                "{available} of memory are available: with {leave} left nothing can be held"
            ),
        }));
    }
    if available.saturating_sub(LEAST) < size {
        let why = format!(
            "{size} cannot be held: {available} of memory are available, and {LEAST} are left to the machine"
        );
        return Err(Failure::NotPossible(why));
    }
    let held = pressure::hold(launcher, size).map_err(refused)?;
    let left = meminfo::obtainable(Path::new("/proc"))?;
    wait(&held, &format!("Holding {}, locked; {left} of memory are available.", held.size))
}

/// Fragments free memory.
pub(super) fn fragment(arguments: &LabFragment, launcher: &Launcher) -> Outcome {
    let before = pressure::unusable_share()?;
    let made = pressure::fragment(launcher, arguments.share).map_err(refused)?;
    let found: Share = pressure::unusable_share()?;
    let what = format!(
        "Of free memory {found} lies in pieces smaller than a huge page ({before} before), held apart by {} that cannot be moved.",
        made.size
    );
    wait(&made, &what)
}

fn refused(error: Error) -> Failure {
    Failure::NotPossible(format!(
        "{error}; to lock memory takes root or a limit that allows it (ulimit -l)"
    ))
}

/// Says what was done, and waits until it is ended.
fn wait(pressure: &Pressure, what: &str) -> Outcome {
    let stop = signals::stop_flag()?;
    show::print(&format!(
        "{what}\nEnd with Ctrl-C: all of it is given back, also if this process is killed.\n"
    ))?;
    while !stop.load(Relaxed) {
        pressure.check().map_err(anyhow::Error::from)?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}
