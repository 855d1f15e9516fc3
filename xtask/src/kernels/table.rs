//! What tests in guests printed, understood and as a table.

use crate::test::tally::{Tally, skip};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

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

    fn verdict(&self, program: &str, test: &str) -> Option<Verdict> {
        let program = self.programs.iter().find(|one| one.name == program)?;
        program.tests.iter().find(|(name, _)| name == test).map(|(_, verdict)| *verdict)
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
        assert!(ran.has_failed() && !ran.is_whole);
        assert_eq!(ran.exit_code(), None);
        assert!(markdown(&[("6.12".to_owned(), ran)]).contains("skipped holds: no rights"));
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
