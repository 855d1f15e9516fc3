//! Live tests of watching page faults, on programs of our own: this binary again, which faults
//! when it is told to by lines on its standard input.

#![expect(clippy::print_stdout, reason = "says why a test is skipped; the program answers")]

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use superpage_kernel::Error;
use superpage_kernel::fault_events::{DEFAULT_RING, Event, FaultEvents, Scope, Wakeup, Watched};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::process::Process;
use superpage_kernel::text;
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, Nanos, VirtAddr};

/// Fails the test with `$what` unless `$holds`.
macro_rules! ensure {
    ($holds:expr, $what:expr) => {
        if !$holds {
            return Err(Failed::from($what));
        }
    };
}

type Test = fn() -> Result<(), Failed>;

const TESTS: [(&str, Test); 9] = [
    ("every_fault_is_seen_where_it_was", every_fault),
    ("one_of_so_many_is_seen", one_of_so_many),
    ("threads_from_before_and_after_are_followed", threads_are_followed),
    ("children_are_followed_through_exec_and_exit", children_are_followed),
    ("a_full_ring_says_what_it_lost", full_ring),
    ("a_cgroup_is_its_members_only", cgroup_members),
    ("the_machine_is_everybody", machine),
    ("what_is_over_is_over", over),
    ("who_waits_is_woken_as_asked", wakeups),
];

/// Set for the program that faults.
const PROGRAM: &str = "SUPERPAGE_TEST_FAULTS";

fn main() {
    if std::env::var_os(PROGRAM).is_some() {
        return program();
    }
    let mut arguments = Arguments::from_args();
    // They watch one machine.
    arguments.test_threads = Some(1);
    let missing =
        FaultEvents::new(DEFAULT_RING).and_then(|events| events.watch(Scope::Machine, EACH)).err();
    let group = perf_hierarchy();
    let trial = |(name, test): (&'static str, Test)| {
        let no_group = (name.contains("cgroup") && group.is_none())
            .then(|| "no cgroup hierarchy that perf takes is mounted".to_owned());
        let why = missing.as_ref().map(ToString::to_string).or(no_group);
        if let Some(why) = &why {
            println!("skipped {name}: {why}");
        }
        Trial::test(name, test).with_ignored_flag(why.is_some())
    };
    libtest_mimic::run(&arguments, TESTS.into_iter().map(trial).collect()).exit();
}

const EACH: NonZeroU64 = NonZeroU64::MIN;

/// Touches that many fresh base pages and says where they begin.
fn touch(pages: u64) -> VirtAddr {
    let huge_pages = BasePages(pages).bytes().to_huge_pages();
    let size = superpage_units::HugePages(huge_pages.0 + 1);
    let mut memory = OwnMemory::map(size, Wish::BasePages).expect("memory");
    let page = usize::try_from(BASE_PAGE_BYTES).expect("it fits");
    let many = usize::try_from(pages).expect("it fits");
    // Not the first byte, so that addresses are seen to be whole.
    memory.bytes_mut().chunks_exact_mut(page).take(many).for_each(|page| page[100] = 1);
    let start = memory.regions().next().expect("a region").start();
    std::mem::forget(memory); // So that no address comes twice.
    start
}

/// What the program does: `WHO PAGES` on a line; answers with its number and the address.
fn program() {
    let (to_old, orders) = channel::<(u64, Sender<VirtAddr>)>();
    std::thread::spawn(move || {
        for (pages, answer) in orders {
            answer.send(touch(pages)).expect("somebody waits");
        }
    });
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let (who, pages) = line.split_once(' ').expect("WHO PAGES");
        let pages = pages.parse().expect("a number");
        let (start, pid) = match who {
            "main" => (touch(pages), std::process::id()),
            "old" => {
                let (answer, start) = channel();
                to_old.send((pages, answer)).expect("it runs");
                (start.recv().expect("touched"), std::process::id())
            }
            "new" => {
                let thread = std::thread::spawn(move || touch(pages));
                (thread.join().expect("touched"), std::process::id())
            }
            "child" => {
                let mut child = Program::start();
                let (start, pid) = (child.touch("main", pages), child.child.id());
                child.end();
                (start, pid)
            }
            other => panic!("{other}?"),
        };
        println!("{} {pid}", start.0);
    }
}

/// The program that faults, which ends with this value.
struct Program {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    last_pid: u32,
}

impl Program {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("we have a path"))
            .env(PROGRAM, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("we start again");
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut program = Self { child, orders, answers, last_pid: 0 };
        assert_eq!(program.line(), "ready");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// Has `who` touch so many fresh pages; returns where.
    fn touch(&mut self, who: &str, pages: u64) -> VirtAddr {
        let mut orders = self.orders.as_ref().expect("it has not ended");
        writeln!(orders, "{who} {pages}").expect("it listens");
        let answer = self.line();
        let (start, pid) = answer.split_once(' ').expect("an address and a number");
        self.last_pid = pid.parse().expect("a number");
        VirtAddr(start.parse().expect("an address"))
    }

    fn process(&self) -> Result<Process, Error> {
        Process::open(self.child.id())
    }

    fn end(&mut self) {
        drop(self.orders.take());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

fn drained(events: &mut FaultEvents) -> Vec<Event> {
    let mut all = Vec::new();
    events.drain(|event| all.push(event));
    all
}

/// The addresses of the faults of `pid` in the `pages` from `start` on, in order.
fn faults_in(events: &[Event], pid: u32, start: VirtAddr, pages: u64) -> Vec<VirtAddr> {
    let end = start.offset(BasePages(pages).bytes());
    let hit = |event: &Event| match *event {
        Event::Fault { pid: whose, address, .. } if whose == pid => Some(address),
        _ => None,
    };
    let mut found: Vec<_> =
        events.iter().filter_map(hit).filter(|at| (start..end).contains(at)).collect();
    found.sort_unstable();
    found
}

/// What is seen of every page's touch.
fn touched(start: VirtAddr, pages: u64) -> Vec<VirtAddr> {
    (0..pages).map(|page| start.offset(BasePages(page).bytes()).offset(Bytes(100))).collect()
}

fn monotonic() -> Result<Nanos, Failed> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    Ok(Nanos(u64::try_from(nanos)?))
}

fn every_fault() -> Result<(), Failed> {
    let mut program = Program::start();
    let mut events = FaultEvents::new(DEFAULT_RING)?;
    let _watched = events.watch(Scope::Process(&program.process()?), EACH)?;
    let before = monotonic()?;
    let start = program.touch("main", 1000);
    let after = monotonic()?;
    let seen = drained(&mut events);
    let pid = program.child.id();
    ensure!(faults_in(&seen, pid, start, 1000) == touched(start, 1000), "each page, once");
    let in_time = seen.iter().all(|event| match event {
        Event::Fault { time, pid, tid, .. } => (before..=after).contains(time) && pid == tid,
        _ => true,
    });
    ensure!(in_time, "times are CLOCK_MONOTONIC, the thread is the first");
    ensure!(events.counts().lost == 0 && events.counts().seen >= 1000, "and none is lost");
    ensure!(drained(&mut events).is_empty(), "what was read is gone");
    Ok(())
}

fn one_of_so_many() -> Result<(), Failed> {
    const PAGES: u64 = 64_000;
    let mut program = Program::start();
    let mut events = FaultEvents::new(DEFAULT_RING)?;
    let period = NonZeroU64::new(64).ok_or("not zero")?;
    let watched = events.watch(Scope::Process(&program.process()?), period)?;
    let start = program.touch("main", PAGES);
    let seen = faults_in(&drained(&mut events), program.child.id(), start, PAGES);
    let cpus = events.fds().count();
    ensure!(seen.len().abs_diff(1000) <= 2 * cpus, format!("{} of 1000", seen.len()));
    let page_of = |at: &VirtAddr| at.since(start).0 / BASE_PAGE_BYTES;
    let gaps = seen.windows(2).map(|pair| page_of(&pair[1]) - page_of(&pair[0]));
    let regular = gaps.filter(|gap| *gap == 64).count();
    ensure!(regular * 10 > seen.len() * 8, format!("{regular} gaps are the period"));
    let all = watched.totals()?.faults;
    ensure!((PAGES..PAGES + 1000).contains(&all), format!("{all} faults in all"));
    Ok(())
}

fn threads_are_followed() -> Result<(), Failed> {
    let mut program = Program::start();
    let mut events = FaultEvents::new(DEFAULT_RING)?;
    let process = program.process()?;
    let watched = events.watch(Scope::Process(&process), EACH)?;
    let expected = 2 * events.fds().count();
    ensure!(watched.descriptors() == expected, "one for each thread and CPU");
    let pid = program.child.id();
    for who in ["old", "new", "main"] {
        let start = program.touch(who, 500);
        let seen = drained(&mut events);
        ensure!(faults_in(&seen, pid, start, 500) == touched(start, 500), format!("{who} thread"));
        let threads: BTreeSet<u32> = seen
            .iter()
            .filter_map(|event| match event {
                Event::Fault { tid, address, .. } if *address >= start => Some(*tid),
                _ => None,
            })
            .collect();
        ensure!(threads.contains(&pid) || who != "main", format!("{who}: {threads:?}"));
        let told =
            seen.iter().any(|event| matches!(event, Event::Fork { .. } | Event::Exit { .. }));
        ensure!(!told, "a thread is no process");
    }
    Ok(())
}

fn children_are_followed() -> Result<(), Failed> {
    let mut program = Program::start();
    let mut events = FaultEvents::new(DEFAULT_RING)?;
    let _watched = events.watch(Scope::Process(&program.process()?), EACH)?;
    let start = program.touch("child", 500);
    let (parent, pid) = (program.child.id(), program.last_pid);
    program.end();
    let seen = drained(&mut events);
    ensure!(faults_in(&seen, pid, start, 500) == touched(start, 500), "the child's faults");
    for told in [
        Event::Fork { parent, pid },
        Event::Exec { pid },
        Event::Exit { pid },
        Event::Exit { pid: parent },
    ] {
        let times = seen.iter().filter(|event| **event == told).count();
        ensure!(times == 1, format!("{told:?} came {times} times"));
    }
    Ok(())
}

fn full_ring() -> Result<(), Failed> {
    const PAGES: u64 = 5000;
    let mut program = Program::start();
    // On one CPU: a ring says what it lost with its next record.
    let mut one_cpu = CpuSet::new();
    one_cpu.set(sched_getcpu());
    sched_setaffinity(Pid::from_raw(i32::try_from(program.child.id())?), &one_cpu)?;
    let mut events = FaultEvents::new(Bytes(1))?;
    let watched = events.watch(Scope::Process(&program.process()?), EACH)?;
    program.touch("main", PAGES);
    drained(&mut events);
    let at_once = watched.totals()?;
    ensure!(at_once.lost > PAGES * 9 / 10, format!("{at_once:?}"));
    program.touch("main", 10);
    drained(&mut events);
    let (counts, totals) = (events.counts(), watched.totals()?);
    ensure!(counts.seen > 0 && counts.lost > 0 && counts.unreadable == 0, format!("{counts:?}"));
    let told = counts.seen + totals.lost;
    ensure!(told.abs_diff(totals.faults) <= 20, format!("{counts:?} {totals:?}"));
    ensure!(counts.lost == totals.lost, format!("{counts:?} {totals:?}"));
    Ok(())
}

/// The hierarchy that perf takes: version 1 with `perf_event` where there is one, else version 2.
fn perf_hierarchy() -> Option<PathBuf> {
    let mounts = text::read(Path::new("/proc/self/mountinfo")).ok()?;
    let mounts = String::from_utf8_lossy(&mounts).into_owned();
    let find = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut right = right.split(' ');
            let (name, options) = (right.next()?, right.nth(1)?);
            let wanted = name == kind && (option.is_empty() || options.contains(option));
            wanted.then(|| left.split(' ').nth(4).map(PathBuf::from))?
        })
    };
    find("cgroup", "perf_event").or_else(|| find("cgroup2", ""))
}

/// A cgroup that is taken away again.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

fn cgroup_members() -> Result<(), Failed> {
    let hierarchy = perf_hierarchy().ok_or("was there")?;
    let group = Group(hierarchy.join(format!("superpage-test-{}", std::process::id())));
    std::fs::create_dir(&group.0)?;
    let (mut member, mut other) = (Program::start(), Program::start());
    let number = member.child.id().to_string();
    std::fs::write(group.0.join("cgroup.procs"), number)?;
    let mut events = FaultEvents::new(DEFAULT_RING)?;
    let watched = events.watch(Scope::Cgroup(&group.0), EACH)?;
    let (ours, theirs) = (member.touch("new", 500), other.touch("main", 500));
    let child = member.touch("child", 300);
    let seen = drained(&mut events);
    let pid = member.child.id();
    ensure!(faults_in(&seen, pid, ours, 500) == touched(ours, 500), "a member");
    ensure!(faults_in(&seen, member.last_pid, child, 300) == touched(child, 300), "its child");
    ensure!(faults_in(&seen, other.child.id(), theirs, 500).is_empty(), "nobody else");
    let told = |wanted| seen.contains(&wanted);
    ensure!(told(Event::Fork { parent: pid, pid: member.last_pid }), "forks are told");
    ensure!(told(Event::Exit { pid: member.last_pid }), "exits are told");
    drop(watched);
    member.end();
    Ok(())
}

fn machine() -> Result<(), Failed> {
    let (mut one, mut two) = (Program::start(), Program::start());
    let mut events = FaultEvents::new(Bytes::from_mib(4))?;
    let _watched = events.watch(Scope::Machine, EACH)?;
    let starts = [one.touch("main", 500), two.touch("old", 500)];
    let seen = drained(&mut events);
    for (program, start) in [&one, &two].into_iter().zip(starts) {
        let found = faults_in(&seen, program.child.id(), start, 500);
        ensure!(found == touched(start, 500), "either");
    }
    Ok(())
}

fn over() -> Result<(), Failed> {
    let mut program = Program::start();
    let mut events = FaultEvents::new(DEFAULT_RING)?;
    let process = program.process()?;
    let watch = |events: &FaultEvents| -> Result<Watched, Error> {
        events.watch(Scope::Process(&process), EACH)
    };
    let watched = watch(&events)?;
    drop(watched);
    program.touch("main", 100);
    ensure!(drained(&mut events).is_empty(), "nothing after the end");
    let watched = watch(&events)?;
    program.touch("main", 100);
    ensure!(!drained(&mut events).is_empty(), "and again");
    program.end();
    drop(watched);
    ensure!(matches!(watch(&events), Err(Error::Gone { .. })), "a process that is gone is gone");
    let nowhere = events.watch(Scope::Cgroup(Path::new("/proc/self")), EACH);
    ensure!(matches!(nowhere, Err(Error::Refused { .. })), format!("{nowhere:?}"));
    Ok(())
}

fn wakeups() -> Result<(), Failed> {
    let mut program = Program::start();
    let process = program.process()?;
    for (wakeup, one_wakes) in
        [(Wakeup::EachRecord, true), (Wakeup::Filled(Bytes::from_kib(32)), false)]
    {
        let mut events = FaultEvents::with_wakeup(DEFAULT_RING, wakeup)?;
        let _watched = events.watch(Scope::Process(&process), EACH)?;
        program.touch("main", 1);
        ensure!(is_woken(&events)? == one_wakes, format!("{wakeup:?}, few"));
        ensure!(!drained(&mut events).is_empty(), "there is something all the same");
        program.touch("main", 4000);
        ensure!(is_woken(&events)?, format!("{wakeup:?}, many"));
    }
    Ok(())
}

fn is_woken(events: &FaultEvents) -> Result<bool, Failed> {
    let fds: Vec<_> = events.fds().collect();
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    Ok(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}
