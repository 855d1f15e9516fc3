//! A process made to be difficult: this test program itself, started again to be one.
//!
//! [`main`] is the `main` of such a test program. The process says `ready` on its standard
//! output once it is what it should be, then obeys lines on its standard input, and answers each.

use super::Ended;
use super::machine::{self, Check, Test};
use crate::ensure;
use libtest_mimic::Failed;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use superpage_kernel::own_child::OwnChild;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::{BASE_PAGE_BYTES, HugePages, Pid};

const SUBJECT: &str = "SUPERPAGE_TEST_SUBJECT";

/// A part that a process can be started to play, by name.
pub(crate) type Role = (&'static str, Check);

/// Runs the tests, or plays the part that this process was started for: one of `roles`, or
/// `sharing`.
pub(crate) fn main<T: IntoIterator<Item = Test>>(
    tests: impl FnOnce() -> T,
    roles: &[Role],
) -> ExitCode {
    let Ok(wanted) = std::env::var(SUBJECT) else { return machine::run(tests()).exit_code() };
    let sharing: Role = ("sharing", be_sharing);
    let role = roles.iter().chain([&sharing]).find(|(name, _)| *name == wanted);
    let played = role.map_or_else(|| Err(format!("no role {wanted:?}").into()), |(_, play)| play());
    // The parent may be gone, and its end is ours.
    if played.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests of what needs nothing but the rights to de-bloat.
pub(crate) fn tests_of_debloating<const N: usize>(tests: [(&'static str, Check); N]) -> [Test; N] {
    let hindrance = machine::without_debloating();
    tests.map(|(name, test)| (name, hindrance.clone(), test))
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

/// Huge pages of the test's own processes.
pub(crate) const OWN: HugePages = HugePages(32);

/// Memory of which every other base page holds something, all of it on huge pages if there are any.
pub(crate) fn half_used() -> Result<OwnMemory, Failed> {
    half_used_of(OWN)
}

/// So much of it.
pub(crate) fn half_used_of(size: HugePages) -> Result<OwnMemory, Failed> {
    let mut memory = OwnMemory::map(size, Wish::HugePages)?;
    for (page, bytes) in pages(memory.bytes_mut()) {
        if page % 2 == 0 {
            bytes.fill(pattern(page));
        } else {
            // A touch without a trace.
            bytes[0] = 0;
        }
    }
    Ok(memory)
}

pub(crate) const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == BASE_PAGE_BYTES);

pub(crate) fn pages(bytes: &mut [u8]) -> impl Iterator<Item = (usize, &mut [u8])> {
    bytes.chunks_exact_mut(PAGE).enumerate()
}

/// Never zero.
pub(crate) fn pattern(page: usize) -> u8 {
    page.to_le_bytes()[0] | 1
}

/// Says whether what [`half_used`] wrote is still there.
pub(crate) fn say_whether_intact(memory: &mut OwnMemory) -> Ended {
    let wrong = pages(memory.bytes_mut()).find(|(page, bytes)| {
        let expected = if page % 2 == 0 { pattern(*page) } else { 0 };
        bytes.iter().any(|byte| *byte != expected)
    });
    say(&wrong.map_or_else(|| "intact".to_owned(), |(page, _)| format!("page {page}")))
}

/// A process that shares its memory with a child until it is told to end that.
pub(crate) fn be_sharing() -> Ended {
    let mut memory = half_used()?;
    let mut child = Some(OwnChild::fork()?);
    say("ready")?;
    loop {
        match next_order()?.as_str() {
            "check" => say_whether_intact(&mut memory)?,
            "end child" => {
                child = None;
                say("ended")?;
            }
            other => return Err(format!("no order {other:?}, {child:?}").into()),
        }
    }
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

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
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
