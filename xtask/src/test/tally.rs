//! Counts tests from what test binaries print: libtest's and libtest-mimic's words alike.

use std::fmt;

/// The most lines of a failing test's output that the summary repeats.
const REPEATED: usize = 8;

/// How many tests did what, why some did not run, and why some failed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// One `skipped NAME: REASON` for each test that said why it did not run.
    pub(crate) skips: Vec<String>,
    /// The tests that failed.
    pub(crate) failures: Vec<Failure>,
    /// The program whose output is being read.
    program: String,
    /// Whether the output of the last failing test is being read.
    is_reading: bool,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The program of tests, as cargo names it.
    pub(crate) program: String,
    /// The test's name; in a guest, with the guest's kernel behind it.
    pub(crate) name: String,
    /// The first lines that the test printed.
    pub(crate) said: Vec<String>,
    /// The outcome when the test ran once more.
    pub(crate) second: Second,
}

/// The outcome of a failing test when it ran once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Second {
    /// The test failed again, or did not run once more.
    #[default]
    Failed,
    Passed,
    /// The test said that it cannot run here, such as where the kernel has no contiguous memory any more.
    Skipped,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.second {
            Second::Failed => "failed",
            Second::Passed => "passed at the second attempt only",
            Second::Skipped => "failed, and could not run at the second attempt",
        };
        write!(f, "{verdict} {}", self.name)?;
        self.said.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

impl Tally {
    /// Takes in one line of a test binary's output.
    pub(crate) fn add(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(program) = program(line) {
            program.clone_into(&mut self.program);
        }
        self.add_failure(line);
        if let Some((_, counts)) = line.split_once("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.skipped += count(counts, "ignored");
        } else if is_death(line) {
            self.failed += 1;
        } else if let Some(reason) = skip(line)
            && !self.skips.contains(&reason)
        {
            self.skips.push(reason);
        }
    }

    /// Keeps the first lines between `---- NAME ----` and the end of what a failing test printed.
    fn add_failure(&mut self, line: &str) {
        if let Some(name) = failing(line) {
            let (program, name) = (self.program.clone(), name.to_owned());
            self.failures.push(Failure { program, name, ..Failure::default() });
            self.is_reading = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.is_reading = false;
        } else if let Some(failure) = self.failures.last_mut()
            && self.is_reading
            && failure.said.len() < REPEATED
            && !line.is_empty()
        {
            failure.said.push(line.to_owned());
        }
    }

    /// Why tests did not run, then why some failed.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = String> {
        self.skips.iter().cloned().chain(self.failures.iter().map(ToString::to_string))
    }

    /// Takes the failing test at this place of the list for what became of it when it ran once more.
    pub(crate) fn settle(&mut self, at: usize, second: Second) {
        let Some(failure) = self.failures.get_mut(at) else { return };
        let counted = match second {
            Second::Failed => return,
            Second::Passed => &mut self.passed,
            Second::Skipped => &mut self.skipped,
        };
        failure.second = second;
        *counted += 1;
        self.failed = self.failed.saturating_sub(1);
    }

    /// Takes in the last line of pytest's output, such as `9 passed, 1 skipped in 2.10s`.
    pub(crate) fn add_pytest(&mut self, line: &str) {
        for part in
            line.trim_matches(['=', ' ']).split(" in ").next().unwrap_or_default().split(", ")
        {
            let (number, what) = part.split_once(' ').unwrap_or_default();
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" | "error" | "errors" => self.failed += number,
                "skipped" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Whether a large part of the tests was skipped: more than one in ten. The live ones are a third of all.
    pub(crate) fn is_mostly_skips(&self) -> bool {
        self.skipped * 10 > self.ran()
    }

    /// How many tests ran.
    pub(crate) fn ran(&self) -> usize {
        self.passed + self.failed
    }
}

/// The program of tests in cargo's `Running tests/NAME.rs (PATH/NAME-HASH)`.
fn program(line: &str) -> Option<&str> {
    let (before, path) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let file = path.rsplit('/').next()?;
    before.contains("Running ").then(|| file.rsplit_once('-').map(|(name, _)| name))?
}

/// The number before `word` in `ok. 3 passed; 0 failed; 1 ignored; …`.
fn count(text: &str, word: &str) -> usize {
    text.split(word)
        .next()
        .and_then(|before| before.split_whitespace().next_back())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Cargo's word on a test binary that a signal ended, or that ended otherwise than test binaries whose tests fail do.
fn is_death(line: &str) -> bool {
    let ends = ["(signal: ", "(exit status: "];
    line.contains("process didn't exit successfully") && ends.iter().any(|end| line.contains(end))
}

/// The test in the line above its output: `---- NAME ----`, or `---- NAME stdout ----`.
fn failing(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name))
}

/// The reason in a line that gives one: a test's own `skipped NAME: REASON`, which follows
/// `test NAME ... ` where nothing captures the output, or `test NAME ... ignored, REASON`.
pub(crate) fn skip(line: &str) -> Option<String> {
    let (announced, said) = match line.split_once(" ... ") {
        Some((name, said)) => (name.strip_prefix("test ").map(str::trim), said),
        None => (None, line),
    };
    if said.starts_with("skipped ") && said.contains(": ") {
        return Some(said.to_owned());
    }
    // The word may be coloured; what separates it from the reason is not.
    let (verdict, reason) = said.split_once(", ")?;
    let name = announced.filter(|_| verdict.contains("ignored"))?;
    Some(format!("skipped {name}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::{Second, Tally};

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.add(line));
        tally
    }

    #[test]
    fn results_of_all_binaries_are_added_up() {
        let seen = tally(
            "running 4 tests\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
             test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!((seen.passed, seen.failed, seen.skipped), (8, 2, 1));
        assert_eq!(seen.ran(), 10);
    }

    #[test]
    fn a_gate_that_skips_much_is_known() {
        let result = |passed, ignored| {
            format!("test result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured\n")
        };
        assert!(!tally(&result(1315, 8)).is_mostly_skips());
        assert!(tally(&result(1000, 300)).is_mostly_skips());
        assert!(!Tally::default().is_mostly_skips());
    }

    #[test]
    fn a_coloured_result_counts_too() {
        let seen = tally("test result: \u{1b}[32mok\u{1b}[0m. 7 passed; 0 failed; 0 ignored");
        assert_eq!(seen.passed, 7);
    }

    #[test]
    fn a_binary_that_died_is_a_failure() {
        let seen = tally("  process didn't exit successfully: `/a/b` (signal: 6, SIGABRT)\n");
        assert_eq!((seen.ran(), seen.failed), (1, 1));
        let seen = tally("  process didn't exit successfully: `/a/b` (exit status: 3)\n");
        assert_eq!((seen.ran(), seen.failed), (1, 1));
    }

    #[test]
    fn every_form_of_a_reason_is_seen_once() {
        let seen = tally(
            "skipped live::split: needs CAP_SYS_NICE\n\
             test live::scan   ... skipped live::scan: no PAGEMAP_SCAN\n\
             test live::scan   ... ignored, no PAGEMAP_SCAN\n\
             test live::psi ... \u{1b}[33mignored\u{1b}[0m, no PSI\n\
             skipped live::split: needs CAP_SYS_NICE\n",
        );
        assert_eq!(
            seen.skips,
            [
                "skipped live::split: needs CAP_SYS_NICE",
                "skipped live::scan: no PAGEMAP_SCAN",
                "skipped live::psi: no PSI",
            ]
        );
    }

    #[test]
    fn what_failing_tests_print_is_kept() {
        let seen = tally(
            "failures:\n\n---- takes_pages ----\nthe kernel found no 2 pages\n\n\nfailures:\n    takes_pages\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored\n\
             failures:\n\n---- a::b stdout ----\n\nthread 'a::b' panicked at x.rs:1:2:\nleft: 1\n\n\n\
             failures:\n    a::b\n",
        );
        let said: Vec<String> = seen.failures.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "failed takes_pages\n    the kernel found no 2 pages",
                "failed a::b\n    thread 'a::b' panicked at x.rs:1:2:\n    left: 1",
            ]
        );
    }

    #[test]
    fn the_program_of_a_failing_test_is_known() {
        let seen = tally(
            "     Running tests/live_settings.rs (target/debug/deps/live_settings-0123abcd)\n\
             failures:\n\n---- a_trigger_waits ----\nit went off\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
        );
        let failure = &seen.failures[0];
        assert_eq!(
            (failure.program.as_str(), failure.name.as_str()),
            ("live_settings", "a_trigger_waits")
        );
    }

    #[test]
    fn who_passes_at_the_second_attempt_is_named() {
        let mut seen =
            tally("---- a ----\nno page\ntest result: FAILED. 3 passed; 1 failed; 0 ignored\n");
        seen.settle(0, Second::Failed);
        assert_eq!((seen.passed, seen.failed), (3, 1));
        seen.settle(0, Second::Passed);
        assert_eq!((seen.passed, seen.failed), (4, 0));
        assert_eq!(
            seen.failures[0].to_string(),
            "passed at the second attempt only a\n    no page"
        );
    }

    #[test]
    fn who_cannot_run_at_the_second_attempt_is_skipped() {
        let mut seen =
            tally("---- a ----\nno page\ntest result: FAILED. 3 passed; 1 failed; 0 ignored\n");
        seen.settle(0, Second::Skipped);
        assert_eq!((seen.passed, seen.failed, seen.skipped), (3, 0, 1));
        assert_eq!(
            seen.failures[0].to_string(),
            "failed, and could not run at the second attempt a\n    no page"
        );
    }

    #[test]
    fn other_output_counts_for_nothing() {
        let seen = tally(
            "test a::b ... ok\n3 passed the door, skipped\nskipped lunch\nwell, ... yes, ignored\n",
        );
        assert_eq!(seen, Tally::default());
    }

    #[test]
    fn pytest_is_counted() {
        let mut tally = Tally::default();
        tally.add_pytest("9 passed, 1 skipped in 2.10s");
        tally.add_pytest("==== 2 failed, 3 passed, 1 warning, 1 error in 0.5s ====");
        assert_eq!((tally.passed, tally.failed, tally.skipped), (12, 3, 1));
        tally.add_pytest("no tests ran in 0.01s");
        assert_eq!(tally.ran(), 15);
    }
}
