//! The integrity test: nothing that is done to a process's huge pages from outside may change a
//! byte of its memory.
//!
//! A process of several threads writes patterns all over its memory, zeroes and discards parts of
//! it, has the kernel read parts of it, and checks all it wrote; it forks children that check what
//! they inherited. Meanwhile its memory is split and collapsed from outside as fast as possible, at
//! least 30 seconds long; with `SUPERPAGE_INTEGRITY_SECONDS` longer, with `SUPERPAGE_FULL=1` until it
//! has checked 10^12 bytes.

#![expect(unsafe_code, reason = "forks, and looks at memory as words")]
#![expect(clippy::print_stdout, reason = "says why a test is skipped; a subject reports by it")]

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::mm::{Advice, madvise};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::pagemap::{Mapping, Pagemap};
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::process::Process;
use superpage_kernel::process_madvise;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, HUGE_PAGE_BYTES, HugePages, PmdRange, VirtAddr,
};

/// Set for the copy of this program that is started to be the process: to the base pages that it checks at least.
const SUBJECT: &str = "SUPERPAGE_TEST_SUBJECT";

/// The base pages that are checked at least, if all is to be checked that we promise: 10^12 bytes.
const MANY: u64 = 1_000_000_000_000 / BASE_PAGE_BYTES;

fn main() -> ExitCode {
    if let Ok(least) = std::env::var(SUBJECT) {
        let least = least.parse().unwrap_or_default();
        // The parent may be gone, and its end is ours.
        return if be_subject(least).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let missing = [Ability::SplitAndFree, Ability::Collapse, Ability::FindHugePages]
        .map(probe::probe)
        .into_iter()
        .find(|finding| finding.answer != Answer::Yes);
    let name = "no_byte_is_lost_under_splits_and_collapses";
    if let Some(finding) = &missing {
        println!("skipped {name}: {}", finding.why);
    }
    let trial = Trial::test(name, no_byte_is_lost).with_ignored_flag(missing.is_some());
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

/// Small random numbers; the same seed gives the same ones.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

// ---------------------------------------------------------------- the process

const THREADS: usize = 4;
/// Of each thread; 320 MiB together.
const HUGE_PAGES: u64 = 40;
const WORDS_PER_PAGE: usize = 512;
const PAGES_PER_REGION: usize = 512;

/// What a thread, or all of them, did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Report {
    written: u64,
    zeroed: u64,
    discarded: u64,
    checked: u64,
    /// Base pages that the kernel read, to write them to a pipe.
    piped: u64,
    forks: u64,
    /// The longest time that a burst of steps or a check of everything took.
    longest_ms: u128,
    /// What was wrong first.
    wrong: Option<String>,
}

impl Report {
    fn merge(self, other: Self) -> Self {
        Self {
            written: self.written + other.written,
            zeroed: self.zeroed + other.zeroed,
            discarded: self.discarded + other.discarded,
            checked: self.checked + other.checked,
            piped: self.piped + other.piped,
            forks: self.forks + other.forks,
            longest_ms: self.longest_ms.max(other.longest_ms),
            wrong: self.wrong.or(other.wrong),
        }
    }
}

/// Says where its memory is, works until a line comes and it has checked `least` base pages, and reports.
fn be_subject(least: u64) -> Result<(), Failed> {
    let mut memory = OwnMemory::map(HugePages(HUGE_PAGES * THREADS as u64), Wish::HugePages)?;
    let start = memory.ranges().next().ok_or("no memory")?.start();
    let part = memory.bytes().len() / THREADS;
    println!("{}", start.0);
    std::io::stdout().flush()?;
    let (stop, checked) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let report = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(memory.bytes_mut().chunks_exact_mut(part))
            .map(|(seed, bytes)| {
                scope.spawn(move || Ok(Part::new(bytes, seed)?.work(stop, checked)))
            })
            .collect();
        let told = std::io::stdin().read_line(&mut String::new());
        let is_enough = || checked.load(Ordering::Relaxed) >= least;
        while !is_enough() && threads.iter().all(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
        let reports = threads.into_iter().map(|thread| {
            let ended = thread.join().unwrap_or_else(|_| Err("it panicked".into()));
            ended.unwrap_or_else(|error: Failed| Report {
                wrong: Some(format!("a thread ended: {error:?}")),
                ..Report::default()
            })
        });
        let report = reports.fold(Report::default(), Report::merge);
        told.map(|_| report)
    })?;
    println!("{}", serde_json::to_string(&report)?);
    std::io::stdout().flush()?;
    // We stay until we are killed: somebody may still be at our memory.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The memory of one thread and what it should hold.
struct Part<'a> {
    words: &'a mut [u64],
    /// For each base page, how often it was written since it was zero; zero: it is.
    versions: Vec<u32>,
    rng: Rng,
    report: Report,
    child: Option<Pid>,
    /// A pipe: what is read from it, and written to it.
    pipe: (OwnedFd, OwnedFd),
}

impl<'a> Part<'a> {
    fn new(bytes: &'a mut [u8], seed: u64) -> Result<Self, Failed> {
        // SAFETY: every bit pattern is a word, and these are ours alone.
        let (_, words, _) = unsafe { bytes.align_to_mut::<u64>() };
        let versions = vec![0; words.len() / WORDS_PER_PAGE];
        let (child, pipe) = (None, rustix::pipe::pipe()?);
        Ok(Self { words, versions, rng: Rng(seed), report: Report::default(), child, pipe })
    }

    fn work(mut self, stop: &AtomicBool, checked: &AtomicU64) -> Report {
        const BURST: usize = 256;
        const REST: Duration = Duration::from_millis(2);
        const FULL_CHECK: Duration = Duration::from_millis(1500);
        let (mut last, mut told) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) && self.report.wrong.is_none() {
            let began = Instant::now();
            (0..BURST).for_each(|_| self.step());
            if last.elapsed() > FULL_CHECK {
                self.fork();
                self.check_all();
                last = Instant::now();
            }
            self.report.longest_ms = self.report.longest_ms.max(began.elapsed().as_millis());
            checked.fetch_add(self.report.checked - told, Ordering::Relaxed);
            told = self.report.checked;
            // Whoever splits and collapses needs the cores too.
            std::thread::sleep(REST);
        }
        self.reap(WaitOptions::empty());
        self.check_all();
        self.report
    }

    fn step(&mut self) {
        let page = self.rng.below(self.versions.len());
        // Nothing is overwritten unseen: it would hide what was wrong with it.
        self.check(page);
        match self.rng.below(10_000) {
            0 => self.discard(page),
            1..4_000 => self.write(page),
            4_000..7_000 => self.zero(page),
            7_000..7_500 => self.pipe(page),
            _ => {}
        }
    }

    fn page(&mut self, page: usize) -> &mut [u64] {
        &mut self.words[page * WORDS_PER_PAGE..][..WORDS_PER_PAGE]
    }

    fn write(&mut self, page: usize) {
        let version = self.versions[page] + 1;
        self.versions[page] = version;
        for (at, word) in self.page(page).iter_mut().enumerate() {
            *word = expected(page, version, at);
        }
        self.report.written += 1;
    }

    fn zero(&mut self, page: usize) {
        self.versions[page] = 0;
        self.page(page).fill(0);
        self.report.zeroed += 1;
    }

    /// Has the kernel read a page: what it read must be what is there.
    fn pipe(&mut self, page: usize) {
        const BYTES: usize = WORDS_PER_PAGE * size_of::<u64>();
        let version = self.versions[page];
        let words = &self.words[page * WORDS_PER_PAGE..][..WORDS_PER_PAGE];
        // SAFETY: words are bytes, and these are ours alone.
        let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), BYTES) };
        let mut read = [0; BYTES];
        let (from, to) = &self.pipe;
        let piped = rustix::io::write(to, bytes).and_then(|_| rustix::io::read(from, &mut read));
        let is_right = |(at, word): (usize, &[u8; 8])| {
            u64::from_ne_bytes(*word) == expected(page, version, at)
        };
        if piped != Ok(BYTES) || !read.as_chunks::<8>().0.iter().enumerate().all(is_right) {
            let what = format!("the kernel read something else from page {page}: {piped:?}");
            self.report.wrong.get_or_insert(what);
        }
        self.report.piped += 1;
    }

    /// Gives a whole range back to the kernel; it reads as zeroes from then on.
    fn discard(&mut self, page: usize) {
        let first = page / PAGES_PER_REGION * PAGES_PER_REGION;
        (first..first + PAGES_PER_REGION).for_each(|page| self.check(page));
        self.versions[first..first + PAGES_PER_REGION].fill(0);
        let range = &mut self.words[first * WORDS_PER_PAGE..][..PAGES_PER_REGION * WORDS_PER_PAGE];
        let length = size_of_val(range);
        // SAFETY: the range is ours, whole and aligned, and zeroes are words like any others.
        let done = unsafe { madvise(range.as_mut_ptr().cast(), length, Advice::LinuxDontNeed) };
        if let Err(errno) = done {
            self.report.wrong = Some(format!("a range was not discarded: {errno}"));
        }
        self.report.discarded += 1;
    }

    fn is_right(&self, page: usize) -> bool {
        let version = self.versions[page];
        let words = &self.words[page * WORDS_PER_PAGE..][..WORDS_PER_PAGE];
        words.iter().enumerate().all(|(at, word)| *word == expected(page, version, at))
    }

    fn check(&mut self, page: usize) {
        if !self.is_right(page) {
            let version = self.versions[page];
            let again = if self.is_right(page) { "but right when read again" } else { "and stays" };
            let address = self.page(page).as_ptr();
            let what = format!("page {page} at {address:p}, version {version}, is wrong, {again}");
            self.report.wrong.get_or_insert(what);
        }
        self.report.checked += 1;
    }

    fn check_all(&mut self) {
        for page in 0..self.versions.len() {
            self.check(page);
        }
    }

    /// Starts a child that checks what it inherited of this part, unless one still does.
    fn fork(&mut self) {
        self.reap(WaitOptions::NOHANG);
        if self.child.is_some() {
            return;
        }
        // SAFETY: the child reads memory and leaves; it takes no lock and allocates nothing.
        match unsafe { libc::fork() } {
            -1 => self.report.wrong = Some("no child could be forked".to_owned()),
            0 => {
                let all_right = (0..self.versions.len()).all(|page| self.is_right(page));
                // SAFETY: ends this process without running what our exit would run.
                unsafe { libc::_exit(i32::from(!all_right)) }
            }
            pid => {
                self.child = Pid::from_raw(pid);
                self.report.forks += 1;
            }
        }
    }

    fn reap(&mut self, options: WaitOptions) {
        let Some(pid) = self.child else { return };
        match waitpid(Some(pid), options) {
            Ok(None) => return,
            Ok(Some((_, status))) if status.exit_status() == Some(0) => {}
            Ok(Some((_, status))) => {
                self.report.wrong = Some(format!("a child inherited something wrong: {status:?}"));
            }
            Err(errno) => self.report.wrong = Some(format!("a child was lost: {errno}")),
        }
        self.child = None;
    }
}

/// Word `at` of a page; none of a version above 0 is likely to be zero.
fn expected(page: usize, version: u32, at: usize) -> u64 {
    if version == 0 {
        return 0;
    }
    let seed = (page as u64) << 32 | u64::from(version);
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at as u64) | 1
}

// ---------------------------------------------------------------- what is done to it

/// The process as the test sees it. It ends when this is dropped.
struct Subject {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    ranges: Vec<PmdRange>,
}

impl Subject {
    fn start(least: u64) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(SUBJECT, least.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut subject = Self { child, orders, answers, ranges: Vec::new() };
        let start: u64 = subject.answer()?.parse()?;
        let all = HUGE_PAGES * THREADS as u64;
        let range = |index| PmdRange::containing(VirtAddr(start + index * HUGE_PAGE_BYTES));
        subject.ranges = (0..all).map(range).collect();
        Ok(subject)
    }

    fn answer(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("the process ended early".into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn stop(&mut self) -> Result<Report, Failed> {
        writeln!(self.orders, "stop")?;
        Ok(serde_json::from_str(&self.answer()?)?)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Somebody who does something to the process again and again.
struct Attacker {
    process: Process,
    pagemap: Pagemap,
    ranges: Vec<PmdRange>,
    rng: Rng,
}

/// What [`Attacker`] does, and how many ranges at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    Split,
    Collapse,
}

impl Attacker {
    fn new(subject: &Subject, seed: u64) -> Result<Self, Failed> {
        let process = Process::open(superpage_units::Pid(subject.child.id()))?;
        let pagemap = Pagemap::open(&process)?;
        Ok(Self { process, pagemap, ranges: subject.ranges.clone(), rng: Rng(seed) })
    }

    /// Some of the ranges, in address order. Few at a time: what one attacker has done, the other
    /// may undo before it is seen.
    fn choose(&mut self) -> Vec<PmdRange> {
        const FEWEST: usize = 40;
        let one_in = FEWEST / (1 + self.rng.below(4));
        let chosen = |_: &&PmdRange| self.rng.below(one_in) == 0;
        self.ranges.iter().filter(chosen).copied().collect()
    }

    /// Attacks until it `is_over`; returns how many ranges verifiably changed by it.
    fn attack(mut self, attack: Attack, is_over: &AtomicBool) -> Result<u64, Failed> {
        let mut done = 0;
        while !is_over.load(Ordering::Relaxed) {
            let ranges = self.choose();
            let before = self.pagemap.mappings(&ranges)?;
            let refused = match attack {
                Attack::Split => self.split(&ranges)?,
                Attack::Collapse => process_madvise::collapse(&self.process, &ranges)?,
            };
            let after = self.pagemap.mappings(&ranges)?;
            for (index, change) in before.into_iter().zip(after).enumerate() {
                let changed = match attack {
                    // A write to a shared page takes a huge mapping apart too, but frees nothing.
                    Attack::Split => matches!(
                        change,
                        (Mapping::Huge, Mapping::Split { zero_pages }) if !zero_pages.is_zero()
                    ),
                    Attack::Collapse => {
                        matches!(change, (Mapping::Split { .. }, Mapping::Huge))
                    }
                };
                done += u64::from(changed && !refused.iter().any(|r| r.index == index));
            }
        }
        Ok(done)
    }

    fn split(&mut self, ranges: &[PmdRange]) -> Result<Vec<process_madvise::Refusal>, Failed> {
        let mut spot = |range: &PmdRange| {
            let page = self.rng.next() % BASE_PAGES_PER_HUGE_PAGE;
            range.base_page(u16::try_from(page).unwrap_or(0))
        };
        let spots: Vec<_> = ranges.iter().map(&mut spot).collect();
        Ok(process_madvise::split(&self.process, &spots)?)
    }
}

fn duration() -> Duration {
    const LEAST: u64 = 30;
    let asked = std::env::var("SUPERPAGE_INTEGRITY_SECONDS").ok().and_then(|n| n.parse().ok());
    Duration::from_secs(asked.unwrap_or(LEAST).max(LEAST))
}

fn no_byte_is_lost() -> Result<(), Failed> {
    let is_full = std::env::var_os("SUPERPAGE_FULL").is_some_and(|full| full == "1");
    let least = if is_full { MANY } else { 0 };
    let mut subject = Subject::start(least)?;
    let (began, is_over) = (Instant::now(), &AtomicBool::new(false));
    let splitter = Attacker::new(&subject, 1)?;
    let collapser = Attacker::new(&subject, 2)?;
    let (report, splits, collapses) = std::thread::scope(|scope| {
        let splits = scope.spawn(|| splitter.attack(Attack::Split, is_over));
        let collapses = scope.spawn(|| collapser.attack(Attack::Collapse, is_over));
        std::thread::sleep(duration());
        let report = subject.stop();
        is_over.store(true, Ordering::Relaxed);
        (report, splits.join(), collapses.join())
    });
    let report = report?;
    let splits = splits.map_err(|_| "the splitter panicked")??;
    let collapses = collapses.map_err(|_| "the collapser panicked")??;
    let said = format!("{splits} splits, {collapses} collapses, {report:?}");
    println!("{said}");
    let worked = report.written > 10_000 && report.zeroed > 10_000 && report.discarded > 0;
    let read = report.piped > 1_000 && report.checked >= least;
    // An idle machine with two cores does thirty times as many and more; one with six busy programs
    // for each core, three times as many.
    let seconds = began.elapsed().as_secs();
    let enough = splits >= 3 * seconds && collapses >= seconds && report.forks >= 20;
    for (holds, what) in [
        (report.wrong.is_none(), "a byte is wrong"),
        (worked && read && report.checked > 100_000, "the process hardly worked"),
        (enough, "it was hardly attacked"),
        (report.longest_ms < 5_000, "a thread was stalled"),
    ] {
        if !holds {
            return Err(format!("{what}: {said}").into());
        }
    }
    Ok(())
}
