//! A program on the real machine: this test program, started again to be one.
//!
//! It has one VMA. It says where that begins, then obeys orders on its standard input, one in a
//! line, and answers each with a line. It remembers what it wrote, and can say whether it is there.

use crate::ensure;
use crate::testbed::Ended;
use libtest_mimic::Failed;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::{Error, own_thp};
use superpage_sim::machine::Content;
use superpage_units::{BASE_PAGE_BYTES, BasePages, HugePages, Pid, VirtAddr};

/// Set for the copy that is a program: how many ranges its VMA has.
const RANGES: &str = "SUPERPAGE_TEST_REGIONS";

/// How large the VMA of the program is that this process was started to be, if it was.
pub(crate) fn role() -> Option<HugePages> {
    Some(HugePages(std::env::var(RANGES).ok()?.parse().ok()?))
}

/// What the program does.
pub(crate) fn be(size: HugePages) -> Ended {
    match own_thp::only_where_advised() {
        // Where first touches give base pages anyway this is no loss; where not, it will show.
        Ok(()) | Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let memory = OwnMemory::map(size, Wish::Nothing)?;
    let start = memory.ranges().next().ok_or("no memory")?.start();
    let mut vma = Vma { memory, written: BTreeMap::new() };
    say(&start.0.to_string())?;
    loop {
        let mut order = String::new();
        ensure!(std::io::stdin().read_line(&mut order)? > 0, "nobody gives orders any more");
        say(&vma.obey(order.trim_end())?)?;
    }
}

fn say(line: &str) -> Ended {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

/// The program's memory, and the pages that it touched: what each should be full of.
struct Vma {
    memory: OwnMemory,
    written: BTreeMap<u64, u8>,
}

impl Vma {
    fn obey(&mut self, order: &str) -> Result<String, Failed> {
        let words: Vec<&str> = order.split(' ').collect();
        match words[..] {
            ["data", page] => self.write(page.parse()?)?,
            ["zeroes", page] => self.write_zeroes(page.parse()?)?,
            ["release", first, count] => {
                let (first, count) = (first.parse()?, count.parse()?);
                self.memory.discard(BasePages(first), BasePages(count))?;
                self.written.retain(|page, _| !(first..first + count).contains(page));
            }
            ["check"] => return Ok(self.wrong()?.unwrap_or_else(|| "done".to_owned())),
            _ => return Err(format!("no order {order:?}").into()),
        }
        Ok("done".to_owned())
    }

    fn page(&mut self, page: u64) -> Result<&mut [u8], Failed> {
        let size = usize::try_from(BASE_PAGE_BYTES)?;
        let start = usize::try_from(page)?.checked_mul(size).ok_or("no such page")?;
        Ok(self.memory.bytes_mut().get_mut(start..start + size).ok_or("no such page")?)
    }

    /// Fills it with something that is unlike its neighbours, and never zero.
    fn write(&mut self, page: u64) -> Ended {
        let before = self.written.get(&page).copied().unwrap_or_default();
        let [low, high, ..] = page.to_le_bytes();
        let value = (low ^ high.rotate_left(5)).wrapping_add(before).wrapping_mul(2) | 1;
        self.page(page)?.fill(value);
        self.written.insert(page, value);
        Ok(())
    }

    /// Touches it, and leaves in it what is there.
    fn write_zeroes(&mut self, page: u64) -> Ended {
        let bytes = self.page(page)?;
        bytes[0] = black_box(bytes[0]);
        black_box(bytes);
        self.written.entry(page).or_insert(0);
        Ok(())
    }

    /// The first page that is not as it was written.
    fn wrong(&mut self) -> Result<Option<String>, Failed> {
        for (page, value) in self.written.clone() {
            if self.page(page)?.iter().any(|byte| *byte != value) {
                return Ok(Some(format!("page {page} does not hold {value}")));
            }
        }
        Ok(None)
    }
}

/// The program, seen by the test. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) start: VirtAddr,
}

impl Program {
    /// Starts one.
    pub(crate) fn start(size: HugePages) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(RANGES, size.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut program = Self { child, orders, answers, start: VirtAddr(0) };
        program.start = VirtAddr(program.answer()?.parse()?);
        Ok(program)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Touches the base page of this number in its VMA.
    pub(crate) fn touch(&mut self, page: BasePages, content: Content) -> Ended {
        match content {
            Content::Data => self.order(&format!("data {page}")),
            Content::Zeroes => self.order(&format!("zeroes {page}")),
        }
    }

    /// Gives base pages back.
    pub(crate) fn release(&mut self, first: BasePages, count: BasePages) -> Ended {
        self.order(&format!("release {first} {count}"))
    }

    /// Fails if what it wrote is not there any more.
    pub(crate) fn check(&mut self) -> Ended {
        self.order("check")
    }

    fn order(&mut self, order: &str) -> Ended {
        writeln!(self.orders, "{order}")?;
        let answer = self.answer()?;
        ensure!(answer == "done", "{order}: {answer}");
        Ok(())
    }

    fn answer(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the program ended early");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
