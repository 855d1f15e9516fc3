//! The second attempt of a live test that failed. Live tests run on the machine's real memory, which other programs, the
//! kernel's own threads and the tests before use too. A live test that fails runs once more by itself; one that fails again has
//! failed, and one that passes or cannot run then is named at the end, so that somebody looks at it. No other test has a second
//! attempt.

use super::tally::{Second, Tally};
use super::watched;
use anyhow::Result;

/// What the programs of live tests are called.
const LIVE: &str = "live_";

/// Runs the live tests among the failing ones once more; whether no failing test is left.
pub(super) fn run(tally: &mut Tally) -> Result<bool> {
    for at in 0..tally.failures.len() {
        let failure = &tally.failures[at];
        if failure.program.starts_with(LIVE) {
            let second = second(&failure.program, &failure.name)?;
            tally.settle(at, second);
        }
    }
    Ok(tally.failed == 0)
}

/// Runs one test by itself.
fn second(program: &str, name: &str) -> Result<Second> {
    println!("once more: {program} {name}");
    let mut tally = Tally::default();
    let arguments = ["test", "--workspace", "--test", program, "--", "--exact", name];
    let is_well = watched(&arguments, &mut tally)?;
    Ok(match (tally.passed, tally.failed, tally.skipped) {
        (1, 0, 0) if is_well => Second::Passed,
        (0, 0, 1) if is_well => Second::Skipped,
        _ => Second::Failed,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tally::Failure;
    use super::{Tally, run};

    #[test]
    fn only_live_tests_have_a_second_attempt() {
        let failure = Failure {
            program: "superpage_units".to_owned(),
            name: "a::b".to_owned(),
            ..Failure::default()
        };
        let mut tally = Tally::default();
        (tally.passed, tally.failed, tally.failures) = (3, 1, vec![failure]);
        assert!(!run(&mut tally).unwrap());
        assert_eq!((tally.passed, tally.failed), (3, 1));
    }
}
