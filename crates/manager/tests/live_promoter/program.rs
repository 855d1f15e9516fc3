//! A program whose memory is promoted: this test program, started again to be one.
//!
//! It obeys orders on its standard input, one in a line, and answers each with a line. It remembers
//! what it wrote, and can say whether it is there.

use crate::vma::{Vma, file_of};
use crate::{Ended, ensure, wait_for};
use libtest_mimic::Failed;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use superpage_kernel::own_child::OwnChild;
use superpage_kernel::own_vma::OwnVma;
use superpage_kernel::pagemap::{Pagemap, Survey};
use superpage_kernel::process::Process;
use superpage_kernel::{Error, own_thp};
use superpage_units::{BasePages, Bytes, HugePages, Pid, PmdRange, VirtAddr};

/// Set for the copy that is a program.
const PROGRAM: &str = "SUPERPAGE_TEST_PROGRAM";

/// Whether this process was started to be the program.
pub(crate) fn is_one() -> bool {
    std::env::var_os(PROGRAM).is_some()
}

/// What the program does.
pub(crate) fn be() -> Ended {
    match own_thp::only_where_advised() {
        // Where first touches give base pages anyway this is no loss; where not, it will show.
        Ok(()) | Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    say("ready")?;
    let mut subject = Subject::default();
    loop {
        let mut order = String::new();
        ensure!(std::io::stdin().read_line(&mut order)? > 0, "nobody gives orders any more");
        let answer = subject.obey(order.trim_end());
        say(&answer.unwrap_or_else(|error| error.message().unwrap_or("failed").to_owned()))?;
    }
}

fn say(line: &str) -> Ended {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

#[derive(Debug, Default)]
struct Subject {
    vmas: Vec<Vma>,
    children: Vec<OwnChild>,
}

impl Subject {
    fn obey(&mut self, order: &str) -> Result<String, Failed> {
        let words: Vec<&str> = order.split(' ').collect();
        let numbers: Vec<usize> =
            words.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
        match (words[0], &numbers[..]) {
            ("map", [ranges]) => return self.add(OwnVma::private(huge(*ranges))?),
            ("memfd", [ranges]) => return self.add(OwnVma::memfd(huge(*ranges))?),
            ("heap", [bytes]) => return self.add(OwnVma::heap(Bytes(*bytes as u64))?),
            ("open", [pid, file, ranges]) => {
                return self.add(OwnVma::of_file(file_of(*pid, *file)?, huge(*ranges))?);
            }
            ("descriptor", [vma]) => {
                return Ok(self.vma(*vma)?.descriptor().ok_or("no file")?.to_string());
            }
            ("touch", [vma, first, count]) => self.vma(*vma)?.touch(*first, *count)?,
            ("release", [vma, first, count]) => self.vma(*vma)?.release(*first, *count)?,
            ("merge", [vma]) => self.vma(*vma)?.memory().merge()?,
            ("watch-writes", [vma]) => self.vma(*vma)?.memory().watch_writes()?,
            ("free-lazily", [vma, first, count]) => {
                let pages = |count: usize| BasePages(count as u64);
                self.vma(*vma)?.memory().free_lazily(pages(*first), pages(*count))?;
            }
            ("lock", [vma]) => self.vma(*vma)?.memory().lock()?,
            ("divide", [vma]) => self.vma(*vma)?.memory().divide()?,
            ("sprinkle", [vma, number]) => self.vma(*vma)?.sprinkle(*number)?,
            ("check", []) => return self.check(),
            ("storm", [ms]) => return crate::integrity::storm(Duration::from_millis(*ms as u64)),
            ("churn", [ms]) => return churn(Duration::from_millis(*ms as u64)),
            ("fork", [count]) => return self.fork(*count),
            ("reap", []) => self.children.clear(),
            ("threads", [count]) => return threads(*count),
            ("exec", []) => {
                self.children.clear();
                return Err(Command::new(std::env::current_exe()?).exec().into());
            }
            ("exit", []) => std::process::exit(0),
            _ => return Err(format!("no order {order:?}").into()),
        }
        Ok("done".to_owned())
    }

    fn add(&mut self, memory: OwnVma) -> Result<String, Failed> {
        let vma = Vma::from(memory);
        let start = vma.start();
        self.vmas.push(vma);
        Ok(start.to_string())
    }

    fn vma(&mut self, number: usize) -> Result<&mut Vma, Failed> {
        Ok(self.vmas.get_mut(number).ok_or("no such VMA")?)
    }

    fn check(&mut self) -> Result<String, Failed> {
        for (number, vma) in self.vmas.iter_mut().enumerate() {
            if let Some(wrong) = vma.wrong()? {
                return Ok(format!("in VMA {number} {wrong}"));
            }
        }
        Ok("done".to_owned())
    }

    /// Children that share our memory and wait; their numbers.
    fn fork(&mut self, count: usize) -> Result<String, Failed> {
        let born = (0..count).map(|_| OwnChild::fork()).collect::<Result<Vec<_>, _>>()?;
        let numbers: Vec<String> =
            born.iter().map(|child| child.process().pid().to_string()).collect();
        self.children.extend(born);
        Ok(numbers.join(" "))
    }
}

fn huge(ranges: usize) -> HugePages {
    HugePages(ranges as u64)
}

/// Maps, touches, checks, unmaps or renews, again and again: how often, or what was wrong.
fn churn(time: Duration) -> Result<String, Failed> {
    let began = Instant::now();
    let mut vma = Vma::private(4)?;
    let mut rounds = 0;
    while began.elapsed() < time {
        for range in 0..4 {
            vma.touch(range * 512, 100 + (rounds * 37 + range * 101) % 412)?;
        }
        if rounds % 3 == 0 {
            vma.release(256 * (rounds % 7), 200)?;
        }
        if rounds % 5 == 0 {
            // Time for somebody to be in the middle of it.
            std::thread::sleep(Duration::from_micros(700 * (rounds as u64 % 11)));
        }
        if let Some(wrong) = vma.wrong()? {
            return Ok(wrong);
        }
        vma.renew()?;
        rounds += 1;
    }
    Ok(format!("{rounds} rounds"))
}

/// Threads that use a megabyte of their stacks and stay; an address in each stack.
fn threads(count: usize) -> Result<String, Failed> {
    let (tell, told) = channel();
    for _ in 0..count {
        let tell = tell.clone();
        let body = move || {
            let stack = std::hint::black_box([1u8; 3 << 20]);
            let _ = tell.send(stack.as_ptr().addr() + (1 << 20));
            loop {
                std::thread::park();
                std::hint::black_box(&stack);
            }
        };
        std::thread::Builder::new().stack_size(8 << 20).spawn(body)?;
    }
    let found: Vec<String> = told.iter().take(count).map(|place| place.to_string()).collect();
    Ok(found.join(" "))
}

/// The program, seen by the test. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    vmas: usize,
}

/// A VMA of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) number: usize,
    pub(crate) start: VirtAddr,
}

impl Memory {
    /// Its range of this number.
    pub(crate) fn range(self, number: u64) -> PmdRange {
        let place = BasePages(number * superpage_units::BASE_PAGES_PER_HUGE_PAGE);
        PmdRange::containing(self.start.offset(place.bytes()))
    }
}

impl Program {
    /// Starts one.
    pub(crate) fn start() -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(PROGRAM, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut program = Self { child, orders, answers, vmas: 0 };
        program.is_ready()?;
        Ok(program)
    }

    fn is_ready(&mut self) -> Ended {
        let said = self.answer()?;
        ensure!(said == "ready", "the program said {said:?}");
        Ok(())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    pub(crate) fn process(&self) -> Result<Process, Failed> {
        Ok(Process::open(self.pid())?)
    }

    /// Has it take memory: `map`, `memfd`, `heap` or `open`, with what that needs.
    pub(crate) fn memory(&mut self, order: &str) -> Result<Memory, Failed> {
        let answer = self.ask(order)?;
        let start = answer.parse().map_err(|_| format!("{order}: {answer}"))?;
        self.vmas += 1;
        Ok(Memory { number: self.vmas - 1, start: VirtAddr(start) })
    }

    /// Fills base pages.
    pub(crate) fn touch(&mut self, memory: Memory, first: u64, count: u64) -> Ended {
        self.order(&format!("touch {} {first} {count}", memory.number))
    }

    /// Fails if what it wrote is not there any more.
    pub(crate) fn check(&mut self) -> Ended {
        self.order("check")
    }

    /// Has it become another program, which is this one again, with nothing in its memory.
    pub(crate) fn exec(&mut self) -> Ended {
        writeln!(self.orders, "exec")?;
        self.vmas = 0;
        self.is_ready()
    }

    /// Gives an order that is answered with `done`.
    pub(crate) fn order(&mut self, order: &str) -> Ended {
        let answer = self.ask(order)?;
        ensure!(answer == "done", "{order}: {answer}");
        Ok(())
    }

    /// Gives an order, and waits for the answer.
    pub(crate) fn ask(&mut self, order: &str) -> Result<String, Failed> {
        writeln!(self.orders, "{order}")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the program ended early");
        Ok(line.trim_end().to_owned())
    }

    /// The pages that are mapped in a range.
    pub(crate) fn survey(&self, range: PmdRange) -> Result<Survey, Failed> {
        Ok(Pagemap::open(&self.process()?)?.survey(range)?)
    }

    pub(crate) fn is_huge(&self, range: PmdRange) -> Result<bool, Failed> {
        Ok(self.survey(range)?.is_huge)
    }

    /// Waits until a range is huge.
    pub(crate) fn wait_for_huge(&self, range: PmdRange) -> Ended {
        let result = wait_for("a huge page", || Ok(self.is_huge(range)?.then_some(())));
        result.map_err(|error| {
            let seen = self.survey(range);
            format!("{}: {seen:?}", error.message().unwrap_or_default()).into()
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
