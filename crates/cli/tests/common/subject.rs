//! A process made to be difficult: this test program itself, started again to be one.
//!
//! `main` of such a test program calls [`role`] first. The process says `ready` on its standard
//! output once it is what it should be, then obeys lines on its standard input, and answers each.

use super::Ended;
use crate::ensure;
use libtest_mimic::Failed;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SUBJECT: &str = "SUPERPAGE_TEST_SUBJECT";

/// What this process was started to be, if it was not started to run tests.
pub(crate) fn role() -> Option<String> {
    std::env::var(SUBJECT).ok()
}

/// Tells the parent something.
pub(crate) fn say(line: &str) -> Ended {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

/// The next order; an error, which ends the process, if the parent has gone.
pub(crate) fn next_order() -> Result<String, Failed> {
    let mut line = String::new();
    ensure!(std::io::stdin().read_line(&mut line)? > 0, "the parent has gone");
    Ok(line.trim_end().to_owned())
}

/// The process, seen by the test. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subject {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Subject {
    /// Starts one and waits until it is ready.
    pub(crate) fn start(role: &str) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(SUBJECT, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut subject = Self { child, orders, answers };
        let said = subject.answer()?;
        ensure!(said == "ready", "the {role} process said {said:?}");
        Ok(subject)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and waits for the answer.
    pub(crate) fn order(&mut self, order: &str) -> Result<String, Failed> {
        writeln!(self.orders, "{order}")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the subject ended early");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
