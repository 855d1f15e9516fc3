//! The promoter on real programs: what becomes huge, why, and what is left alone; and bad luck.
//!
//! The programs are this test program itself, started again ([`program`]); the promoter knows of no
//! others ([`watch`]). What became of their memory is seen in their page tables, what was told of
//! it in the history, and that nothing was lost, the programs say.
//!
//! - [`ordinary`]: thresholds, policies, kinds of memory;
//! - [`trouble`]: programs that exit, exec, fork and unmap in the middle, limits,
//!   memory in other hands;
//! - [`size`]: many VMAs, many processes;
//! - [`integrity`]: promotion and de-bloating at the same time, on memory whose contents are known.

#![expect(clippy::print_stdout, reason = "says why a test is skipped; a program reports by it")]

mod integrity;
mod ordinary;
#[path = "../own/mod.rs"]
mod own;
mod program;
mod size;
mod trouble;
mod vma;
mod watch;

use libtest_mimic::{Arguments, Failed, Trial};
use program::Program;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use superpage_kernel::probe::{self, Ability, Answer};

/// How a test ends.
pub(crate) type Ended = Result<(), Failed>;

/// A test: its name, why it cannot run here, and itself.
pub(crate) type Test = (&'static str, Option<String>, fn() -> Ended);

/// Ends the test with the message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        let holds: bool = $holds;
        if !holds {
            return Err(format!($($message)+).into());
        }
    };
}

/// Long enough for whatever does not take a fault to take longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer; `what` is what it waits for.
pub(crate) fn wait_for<T>(
    what: &str,
    ask: impl FnMut() -> Result<Option<T>, Failed>,
) -> Result<T, Failed> {
    wait_within(PATIENCE, what, ask)
}

/// Asks as [`wait_for`] does, no longer than `patience`.
pub(crate) fn wait_within<T>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<Option<T>, Failed>,
) -> Result<T, Failed> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(Instant::now() < deadline, "waited {patience:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn main() -> ExitCode {
    if program::is_one() {
        // The test may be gone, and its end is ours.
        return if program::be().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let hindrance = hindrance();
    let tests = [ordinary::tests(), trouble::tests(), size::tests(), integrity::tests()].concat();
    let trials = tests.into_iter().map(|(name, own, test)| {
        let reason = hindrance.clone().or(own);
        if let Some(reason) = &reason {
            println!("skipped {name}: {reason}");
        }
        Trial::test(name, test).with_ignored_flag(reason.is_some())
    });
    let mut arguments = Arguments::from_args();
    // They wait for huge pages, and some take much memory.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Why nothing of this can be tested here.
fn hindrance() -> Option<String> {
    let needed = Ability::ESSENTIAL.into_iter().chain([Ability::Collapse]);
    let missing = needed.map(probe::probe).find(|finding| finding.answer != Answer::Yes);
    if let Some(finding) = missing {
        return Some(finding.why);
    }
    match is_huge_at_first_touch() {
        Ok(false) => None,
        Ok(true) => Some(
            "a first touch gives a huge page here (transparent_hugepage/enabled is 'always'), and \
             this kernel cannot keep them from a single process (Linux 6.18 can)"
                .to_owned(),
        ),
        Err(why) => Some(why.message().unwrap_or("no program could be started").to_owned()),
    }
}

fn is_huge_at_first_touch() -> Result<bool, Failed> {
    let mut program = Program::start()?;
    let memory = program.memory("map 1")?;
    program.touch(memory, 0, 1)?;
    program.is_huge(memory.range(0))
}
