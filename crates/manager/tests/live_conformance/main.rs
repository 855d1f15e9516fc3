//! The conformance test: what the simulated machine and the real kernel must both do.
//!
//! The same policy values drive the simulated machine and real memory. That is worth something only
//! if both do the same with the same answers. Here is one interface to programs on either
//! ([`testbed`], which also lists where they differ), tests written against it, and each of them run on
//! both. What sees, decides and acts in between is what ships.
//!
//! - [`contract`]: what touches, releases, promotions and de-bloating do to a range;
//! - [`policies`]: what promotion and de-bloating policies make of the same programs;
//! - [`random`]: random programs, against an obvious [`model`], and under every policy.
//!
//! On the real kernel they need the rights to act on other processes; without, they skip.

#![expect(clippy::print_stdout, reason = "says why a test is skipped; a program reports by it")]

mod contract;
mod live;
mod model;
mod policies;
mod program;
mod random;
mod recorder;
mod simulated;
mod testbed;

use libtest_mimic::{Arguments, Trial};
use std::path::Path;
use std::process::ExitCode;
use superpage_kernel::vmstat;
use testbed::Ended;

/// A test's name, and itself on each of the two machines.
type Script = (&'static str, fn() -> Ended, fn() -> Ended);

/// Tests, each by its name and on both machines.
#[macro_export]
macro_rules! scripts {
    ($($name:ident,)+) => {
        pub(crate) const SCRIPTS: &[$crate::Script] = &[$((
            stringify!($name),
            $name::<$crate::simulated::Simulated>,
            $name::<$crate::live::Live>,
        ),)+];
    };
}

/// Tests that return what was said. That must be the same on both machines, line by line.
#[macro_export]
macro_rules! dialogues {
    ($($name:ident,)+) => {
        pub(crate) const DIALOGUES: &[$crate::Script] = &[$((
            stringify!($name),
            || $name::<$crate::simulated::Simulated>().map(drop),
            || {
                let live = $name::<$crate::live::Live>()?;
                $crate::recorder::same(&$name::<$crate::simulated::Simulated>()?, &live)
            },
        ),)+];
    };
}

fn main() -> ExitCode {
    if let Some(size) = program::role() {
        // The test may be gone, and its end is ours.
        return if program::be(size).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let hindrance = live::hindrance();
    let scripts = [
        contract::SCRIPTS,
        policies::SCRIPTS,
        policies::DIALOGUES,
        random::SCRIPTS,
        random::DIALOGUES,
    ];
    let trials = scripts.concat().into_iter().flat_map(|(name, simulated, live)| {
        let simulated = Trial::test(format!("simulated::{name}"), simulated);
        [simulated, on_real(format!("live::{name}"), live, hindrance.as_ref())]
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// A test that needs the real machine.
fn on_real(name: String, test: fn() -> Ended, hindrance: Option<&String>) -> Trial {
    if let Some(reason) = hindrance {
        println!("skipped {name}: {reason}");
    }
    Trial::test(name, move || undisturbed(test)).with_ignored_flag(hindrance.is_some())
}

/// Runs a test that may fail because the kernel was short of memory meanwhile: it may then split
/// any huge page. If it was, and the test failed, it is run again.
fn undisturbed(test: fn() -> Ended) -> Ended {
    const TRIES: u32 = 5;
    let shrunk = || vmstat::read(Path::new("/proc")).ok().and_then(|v| v.get("slabs_scanned"));
    for _ in 1..TRIES {
        let before = shrunk();
        let ended = test();
        if ended.is_ok() || shrunk() == before {
            return ended;
        }
    }
    test()
}
