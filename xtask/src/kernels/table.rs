//! What tests in guests printed, understood and as a table.

use crate::test::tally::{Failure, Second, Tally, skip};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The exit code of a program of which tests failed.
const TESTS_FAILED: i32 = 101;

/// What became of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

/// What a program of tests did.
#[derive(Debug, Default)]
struct Program {
    name: String,
    tests: Vec<(String, Verdict)>,
    /// Its exit code; `None` if it did not come to its end.
    ended: Option<i32>,
    /// Reasons and first lines of failures.
    tally: Tally,
}

impl Program {
    fn has_failing(&self) -> bool {
        self.tests.iter().any(|(_, verdict)| *verdict == Verdict::Failed)
    }
}

/// How a guest ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, or because nothing was heard of it for long.
    #[default]
    ByItself,
    /// Because its time was up.
    TimeUp,
}

/// What a guest did.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    programs: Vec<Program>,
    took: Duration,
    /// Whether the last program came to its end.
    is_whole: bool,
    end: End,
}

impl Ran {
    /// Whether a test failed, the guest ended in the middle of its tests by itself, or no test ran at all.
    pub(crate) fn has_failed(&self) -> bool {
        let failed = |program: &Program| {
            program.ended.is_some_and(|code| code != 0) || program.has_failing()
        };
        self.programs.iter().any(failed)
            || !self.is_whole && self.end == End::ByItself
            || self.programs.iter().all(|program| program.tests.is_empty())
    }

    /// Whether all tests came to their end.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The exit code of the last program; `None` if it did not come to its end.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        u8::try_from(self.programs.last()?.ended?).ok()
    }

    /// The programs of which a test failed.
    pub(crate) fn failing(&self) -> Vec<&str> {
        let fails = |program: &&Program| program.has_failing();
        self.programs.iter().filter(fails).map(|program| program.name.as_str()).collect()
    }

    /// Takes tests that failed as passed where they passed in `second`.
    pub(crate) fn settle(&mut self, second: &Self) {
        for program in self.programs.iter_mut().filter(|program| program.has_failing()) {
            for (name, verdict) in &mut program.tests {
                if *verdict == Verdict::Failed
                    && second.verdict(&program.name, name) == Some(Verdict::Passed)
                {
                    *verdict = Verdict::Passed;
                    let at = program.tally.failures.iter().position(|failed| failed.name == *name);
                    at.into_iter().for_each(|at| program.tally.settle(at, Second::Passed));
                }
            }
            let ended = second.programs.iter().find(|one| one.name == program.name);
            let has_ended = ended.is_some_and(|second| second.ended == Some(0));
            if !program.has_failing() && program.ended == Some(TESTS_FAILED) && has_ended {
                program.ended = Some(0);
            }
        }
    }

    /// How many programs of tests came to their ends.
    pub(crate) fn ended(&self) -> usize {
        self.programs.iter().filter(|program| program.ended.is_some()).count()
    }

    fn verdict(&self, program: &str, test: &str) -> Option<Verdict> {
        let program = self.programs.iter().find(|one| one.name == program)?;
        program.tests.iter().find(|(name, _)| name == test).map(|(_, verdict)| *verdict)
    }

    /// Adds what was found to the gate's count; whether none of it is a failure.
    pub(crate) fn count(&self, version: &str, tally: &mut Tally) -> bool {
        for program in &self.programs {
            for (_, verdict) in &program.tests {
                match verdict {
                    Verdict::Passed => tally.passed += 1,
                    Verdict::Failed => tally.failed += 1,
                    // What a guest lacks says nothing about this machine.
                    Verdict::Skipped => {}
                }
            }
            let on = |line: &String| format!("{line} (on {version})");
            tally.skips.extend(program.tally.skips.iter().map(on));
            let failures = program.tally.failures.iter().cloned();
            let on = |failure: Failure| Failure { name: on(&failure.name), ..failure };
            tally.failures.extend(failures.map(on));
        }
        !self.has_failed()
    }
}

/// Takes in what comes over a guest's second serial port.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The beginning of a line whose end has not come.
    rest: String,
    /// The test whose own words stand between its name and its verdict.
    pending: Option<String>,
    ran: Ran,
}

impl Parser {
    /// Takes in more text.
    pub(crate) fn add(&mut self, text: &str) {
        self.rest.push_str(text);
        while let Some((line, rest)) = self.rest.split_once('\n') {
            let (line, rest) = (line.trim_end().to_owned(), rest.to_owned());
            self.line(&line);
            self.rest = rest;
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("@@ begins ") {
            self.ran.programs.push(Program { name: name.to_owned(), ..Program::default() });
        } else if line == "@@ all ended" {
            self.ran.is_whole = true;
        } else if let Some(program) = self.ran.programs.last_mut() {
            if let Some(code) = line.strip_prefix("@@ ended ") {
                program.ended = code.parse().ok();
            } else {
                program.tally.add(line);
                match verdict(line) {
                    Some((name, Some(verdict))) => program.tests.push((name, verdict)),
                    Some((name, None)) => self.pending = Some(name),
                    None => {
                        let late = self.pending.take_if(|_| verdict_of(line).is_some());
                        program.tests.extend(late.zip(verdict_of(line)));
                    }
                }
            }
        }
    }

    /// What the guest did in all.
    pub(crate) fn finish(self, took: Duration, end: End) -> Ran {
        Ran { took, end, ..self.ran }
    }
}

/// The test and the verdict in a line `test NAME ... VERDICT`; no verdict where the test has said something in its place.
fn verdict(line: &str) -> Option<(String, Option<Verdict>)> {
    let (name, said) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let verdict = verdict_of(said).or_else(|| skip(line).map(|_| Verdict::Skipped));
    Some((name.trim().to_owned(), verdict))
}

fn verdict_of(word: &str) -> Option<Verdict> {
    match word {
        "ok" => Some(Verdict::Passed),
        "FAILED" => Some(Verdict::Failed),
        _ => word.starts_with("ignored").then_some(Verdict::Skipped),
    }
}

/// Erases a terminal's line, before another is written in its place (ECMA-48's EL), or in that of the line above (CUU).
const ERASED: &str = "\u{1b}[2K";
const UP: &str = "\u{1b}[1A";

/// The lines that programs printed, without the marks between them. A line that was written several times is the last one, as a
/// terminal shows it.
pub(crate) fn said(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("@@ "));
    let shown = lines.map(|line| {
        line.trim_end().rsplit(ERASED).next().unwrap_or_default().trim_start_matches(UP)
    });
    shown.map(|line| format!("{line}\n")).collect()
}

/// A line for each test, as a person follows them.
pub(crate) fn lines(version: &str, ran: &Ran) -> String {
    let mut text = String::new();
    for program in &ran.programs {
        for (test, verdict) in &program.tests {
            let _ = writeln!(text, "{version}: {} {test}: {}", program.name, verdict.word());
        }
        for line in program.tally.reasons() {
            let _ = writeln!(text, "    {line}");
        }
        if program.ended.is_none() {
            let _ = writeln!(text, "{version}: {} did not come to its end", program.name);
        }
    }
    text
}

/// The table, test by kernel. Of unit tests there is one row for each crate.
pub(crate) fn markdown(columns: &[(String, Ran)]) -> String {
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for program in columns.iter().flat_map(|(_, ran)| &ran.programs) {
        let tests = rows.entry(&program.name).or_default();
        for (test, _) in &program.tests {
            if !tests.contains(&test.as_str()) {
                tests.push(test);
            }
        }
    }
    let mut text = String::from("\n| test |");
    columns.iter().for_each(|(name, _)| {
        let _ = write!(text, " {name} |");
    });
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(columns.len()));
    for (program, tests) in &rows {
        if program.ends_with("unit tests") {
            let cells = columns.iter().map(|(_, ran)| summary(ran, program));
            let _ = writeln!(text, "| {program} | {} |", cells.collect::<Vec<_>>().join(" | "));
            continue;
        }
        for test in tests {
            let cells = columns
                .iter()
                .map(|(_, ran)| ran.verdict(program, test).map_or("-", Verdict::word));
            let _ =
                writeln!(text, "| {program} {test} | {} |", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    let _ = writeln!(text);
    for (name, ran) in columns {
        let end = if ran.is_whole { "" } else { ", and was ended before its tests" };
        let _ = writeln!(text, "{name}: the guest ran for {:.0} s{end}", ran.took.as_secs_f64());
        for line in ran.programs.iter().flat_map(|program| program.tally.reasons()) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn summary(ran: &Ran, program: &str) -> String {
    let Some(program) = ran.programs.iter().find(|one| one.name == program) else {
        return "-".to_owned();
    };
    let count = |wanted| program.tests.iter().filter(|(_, verdict)| *verdict == wanted).count();
    let counts =
        [Verdict::Passed, Verdict::Failed, Verdict::Skipped].map(|wanted| (count(wanted), wanted));
    let words = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, verdict)| format!("{count} {}", verdict.word()));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "@@ begins kernel/live_settings\r\n\
        skipped holds: no rights\n\
        test holds ... ignored\n\
        test is_put_back   ... ok\n\
        test breaks ... FAILED\n\
        @@ ended 101\n\
        @@ begins cli/log\n\
        test whole ... 7 lines\n\
        of its own\n\
        ok\n";

    fn ran(text: &str) -> Ran {
        let mut parser = Parser::default();
        // It comes in pieces.
        let (first, second) = text.split_at(text.len() / 2);
        parser.add(first);
        parser.add(second);
        parser.finish(Duration::from_secs(90), End::TimeUp)
    }

    #[test]
    fn verdicts_are_read_program_by_program() {
        let ran = ran(SAID);
        assert_eq!(ran.verdict("kernel/live_settings", "holds"), Some(Verdict::Skipped));
        assert_eq!(ran.verdict("kernel/live_settings", "is_put_back"), Some(Verdict::Passed));
        assert_eq!(ran.verdict("kernel/live_settings", "breaks"), Some(Verdict::Failed));
        assert_eq!(ran.verdict("cli/log", "whole"), Some(Verdict::Passed));
        assert_eq!(ran.verdict("cli/log", "breaks"), None);
        assert!(ran.has_failed() && !ran.is_whole && ran.ended() == 1);
        assert_eq!(ran.exit_code(), None);
        let mut tally = Tally::default();
        assert!(!ran.count("6.12", &mut tally));
        assert_eq!((tally.passed, tally.failed, tally.skipped), (2, 1, 0));
        assert_eq!(tally.skips, ["skipped holds: no rights (on 6.12)"]);
    }

    #[test]
    fn what_passes_at_the_second_attempt_has_passed() {
        let mut first = ran(SAID);
        assert_eq!(first.failing(), ["kernel/live_settings"]);
        let second = "@@ begins kernel/live_settings\ntest breaks ... FAILED\n@@ ended 101\n";
        first.settle(&ran(second));
        assert!(first.has_failed());
        let second = "@@ begins kernel/live_settings\ntest breaks ... ok\n@@ ended 0\n";
        first.settle(&ran(second));
        assert!(!first.has_failed());
        assert_eq!(first.verdict("kernel/live_settings", "breaks"), Some(Verdict::Passed));
    }

    #[test]
    fn the_last_programs_exit_code_is_known() {
        let ran = ran("@@ begins superpage\nno memory\n@@ ended 3\n@@ all ended\n");
        assert_eq!(ran.exit_code(), Some(3));
        assert_eq!(
            super::said("@@ begins superpage\r\nhalf\r\u{1b}[2K\u{1b}[1Awhole\r\nb\n@@ ended 3\n"),
            "whole\nb\n"
        );
    }

    #[test]
    fn a_guest_in_which_nothing_ran_has_failed() {
        assert!(ran("@@ begins cli/log\n").has_failed());
        assert!(ran("").has_failed());
        assert!(
            !ran("@@ begins cli/log\ntest whole ... ok\n@@ ended 0\n@@ all ended\n").has_failed()
        );
    }

    #[test]
    fn the_table_has_a_column_for_each_kernel() {
        let columns = [
            ("6.12".to_owned(), ran(SAID)),
            ("7.2".to_owned(), ran("@@ begins cli/log\ntest whole ... ok\n")),
        ];
        let table = markdown(&columns);
        assert!(table.contains("| cli/log whole | ok | ok |"), "{table}");
        assert!(table.contains("| kernel/live_settings breaks | FAILED | - |"), "{table}");
    }
}
