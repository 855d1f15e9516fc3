//! The second attempt of a live test that failed. Live tests run on the machine's real memory, which other programs, the
//! kernel's own threads and the tests before use too. One that fails runs once more by itself; one that fails again has failed,
//! and one that passes then is named at the end, so that somebody looks at it. No other test has a second attempt.

use super::tally::Tally;
use super::{command, follow};
use anyhow::{Context, Result};
use std::io::BufReader;

/// What the programs of live tests are called.
const LIVE: &str = "live_";

/// Runs the live tests among the failing ones once more; whether no failing test is left.
pub(super) fn run(tally: &mut Tally) -> Result<bool> {
    for (program, name) in std::mem::take(&mut tally.failing) {
        if program.starts_with(LIVE) && passes(&program, &name)? {
            settle(tally, name);
        }
    }
    Ok(tally.failed == 0)
}

fn settle(tally: &mut Tally, name: String) {
    tally.failed = tally.failed.saturating_sub(1);
    tally.passed += 1;
    let head = format!("failed {name}");
    tally.failures.iter_mut().filter(|line| **line == head).for_each(|line| {
        *line = format!("failed at the first attempt {name}");
    });
    tally.at_second.push(name);
}

/// Runs one test by itself.
fn passes(program: &str, name: &str) -> Result<bool> {
    println!("once more: {program} {name}");
    let (reader, writer) = std::io::pipe()?;
    let mut command = command(&["test", "--workspace", "--test", program, "--", "--exact", name]);
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("starting cargo")?;
    // The writing end that the command holds would keep the pipe open for ever.
    drop(command);
    let mut second = Tally::default();
    follow(BufReader::new(reader), &mut second)?;
    Ok(child.wait()?.success() && (second.passed, second.failed) == (1, 0))
}

#[cfg(test)]
mod tests {
    use super::{Tally, run, settle};

    #[test]
    fn only_live_tests_have_a_second_attempt() {
        let failing = vec![("superpage_units".to_owned(), "a::b".to_owned())];
        let mut tally = Tally::default();
        (tally.passed, tally.failed, tally.failing) = (3, 1, failing);
        assert!(!run(&mut tally).unwrap());
        assert_eq!((tally.passed, tally.failed), (3, 1));
    }

    #[test]
    fn who_passes_then_is_named() {
        let mut tally = Tally::default();
        (tally.passed, tally.failed) = (3, 1);
        settle(&mut tally, "a".to_owned());
        assert_eq!((tally.passed, tally.failed, tally.at_second.len()), (4, 0, 1));
    }
}
