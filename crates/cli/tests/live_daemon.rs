//! The daemon on real processes: what it frees, what it leaves alone, what it puts back. Needs root
//! and a kernel that can. The configurations admit only the tests' own processes.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;

use common::daemon::{Config, Daemon, Home, PATIENCE, says};
use common::machine::{self, Test};
use common::subject::{self, PAGE, Subject, half_used_of, next_order, say, say_whether_intact};
use common::{Ended, Holds, huge_from, superpage, wait_for, worker};
use libtest_mimic::Failed;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use superpage_array::{PageArray, Pages};
use superpage_kernel::cgroup::{Group, Hierarchy, Scratch, Version};
use superpage_kernel::hugetlb::{self, Pool};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::own_vma::OwnVma;
use superpage_kernel::process::Process;
use superpage_kernel::settings::{self, Mode, RUN, STATE_DIRECTORY, Settings};
use superpage_kernel::thp::{MAX_PTES_NONE, Thp};
use superpage_kernel::{Error, compaction, meminfo, own_thp, status};
use superpage_lab::worker::Worker;
use superpage_lab::workload::WorkloadKind;
use superpage_manager::free_memory;
use superpage_units::{
    BASE_PAGE_BYTES, BasePages, Bytes, GIGANTIC_PAGE_BYTES, HugePages, PageSize, Pid, Share,
    VirtAddr,
};

fn main() -> ExitCode {
    subject::main(
        tests,
        &[
            ("plain", be_plain),
            ("asking", be_asking),
            ("mixed", be_mixed),
            ("arrays", be_arrays),
            ("pieces", be_pieces),
        ],
    )
}

fn tests() -> [Test; 23] {
    let able = || machine::without_debloating().or_else(machine::without_daemon);
    let settings = able().or_else(machine::without_settings);
    let group = able().or_else(without_groups);
    let gigantic = settings.clone().or_else(without_gigantic);
    let able = able();
    [
        // Right after it was seen that nobody else is at the settings.
        ("khugepaged_is_held_and_let_go", settings.clone(), khugepaged_is_held_and_let_go),
        (
            "a_killed_one_is_repaired_by_the_next",
            settings.clone(),
            a_killed_one_is_repaired_by_the_next,
        ),
        (
            "a_killed_one_is_repaired_before_the_configuration_is_read",
            settings.clone(),
            a_killed_one_is_repaired_before_the_configuration_is_read,
        ),
        (
            "a_killed_one_is_repaired_on_request",
            settings.clone(),
            a_killed_one_is_repaired_on_request,
        ),
        (
            "what_was_asked_for_stays_while_memory_is_free",
            settings.clone(),
            what_was_asked_for_stays_while_memory_is_free,
        ),
        ("free_memory_in_pieces_is_compacted", settings, free_memory_in_pieces_is_compacted),
        ("gigantic_pages_are_kept_free", gigantic.clone(), gigantic_pages_are_kept_free),
        (
            "gigantic_pages_of_a_killed_one_are_given_back",
            gigantic,
            gigantic_pages_of_a_killed_one_are_given_back,
        ),
        (
            "what_was_asked_for_goes_only_above_high",
            able.clone(),
            what_was_asked_for_goes_only_above_high,
        ),
        (
            "arrays_keep_the_pages_they_asked_for",
            able.clone(),
            arrays_keep_the_pages_they_asked_for,
        ),
        ("it_frees_down_to_the_low_watermark", able.clone(), it_frees_down_to_the_low_watermark),
        ("it_keeps_to_its_lists", able.clone(), it_keeps_to_its_lists),
        ("a_full_cgroup_pays_for_itself", group.clone(), a_full_cgroup_pays_for_itself),
        ("a_cgroup_that_nobody_named_is_kept_from_its_limit", group.clone(), || {
            a_cgroup_that_nobody_named_is_kept_from_its_limit("default")
        }),
        ("a_cgroup_is_found_where_nothing_is_promoted", group.clone(), || {
            a_cgroup_that_nobody_named_is_kept_from_its_limit("off")
        }),
        (
            "who_is_excluded_in_the_middle_of_a_pass_is_left_alone",
            group.clone(),
            who_is_excluded_in_the_middle_of_a_pass_is_left_alone,
        ),
        ("what_is_shared_is_left_to_cool_down", able.clone(), what_is_shared_is_left_to_cool_down),
        ("it_keeps_to_its_budget_and_outlives_others", able.clone(), it_keeps_to_its_budget),
        ("it_leaves_in_the_middle_of_a_pass", able.clone(), it_leaves_in_the_middle_of_a_pass),
        ("it_reads_its_configuration_again", able.clone(), it_reads_its_configuration_again),
        ("there_is_one_at_a_time", able.clone(), there_is_one_at_a_time),
        ("it_needs_nobody_to_read_its_log", able.clone(), it_needs_nobody_to_read_its_log),
        ("it_costs_next_to_nothing_when_idle", able, it_costs_next_to_nothing_when_idle),
    ]
}

fn without_groups() -> Option<String> {
    scratch("probe").err().map(|error| error.message().unwrap_or("no cgroups").to_owned())
}

/// Tried, because only that tells.
fn without_gigantic() -> Option<String> {
    let tried = || -> Result<bool, Failed> {
        let state = tempfile::tempdir()?;
        let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
        let wanted = (pool()?.size + 1).to_string();
        Ok(settings
            .change(&hugetlb::setting(Path::new("/sys"), PageSize::Gigantic), &wanted)
            .is_ok())
    };
    let found = tried().unwrap_or(false);
    (!found).then(|| "the kernel finds no 1 GiB of contiguous memory".to_owned())
}

fn pool() -> Result<Pool, Failed> {
    Ok(hugetlb::read(Path::new("/sys"), PageSize::Gigantic)?)
}

const SIZE: Bytes = Bytes::from_mib(256);

fn random_access() -> Result<Worker, Failed> {
    worker(WorkloadKind::RandomAccessR, SIZE)
}

/// The share of the machine's memory in use, and all of its memory.
fn memory_in_use() -> Result<(f64, Bytes), Failed> {
    let usage = free_memory::usage_of_machine(Path::new("/proc"))?;
    Ok((usage.share().get(), usage.total))
}

/// Waits until the daemon has found that there is nothing left to free.
fn wait_until_nothing_is_left(daemon: &Daemon, mark: usize) -> Ended {
    daemon.wait_since(mark, "nothing to be left", |line| says(line, "nothing left to free"))?;
    Ok(())
}

/// More than half of its bloat is gone, and nothing of what it wrote.
fn is_debloated(worker: &mut Worker) -> Ended {
    let before = worker.populated().resident;
    let after = Holds::now(worker.pid())?.resident;
    let gone = before.saturating_sub(after);
    let bloat = worker.populated().bloat().bytes();
    ensure!(gone >= bloat.scaled(0.8), "only {gone} of {bloat} freed");
    worker.check()?;
    Ok(())
}

/// Half-used huge pages of processes that are freed in part.
const FREED_IN_PART: HugePages = HugePages(256);

/// A process whose huge pages nobody asked for any more.
fn be_plain() -> Ended {
    let memory = half_used_of(FREED_IN_PART)?;
    memory.wish(BasePages::ZERO, FREED_IN_PART.base_pages(), Wish::BasePages)?;
    be_checked(memory)
}

/// A process that asked for its huge pages.
fn be_asking() -> Ended {
    be_checked(half_used_of(FREED_IN_PART)?)
}

/// The words of an array that lies on huge pages for one half and on base pages for the other.
const ARRAY_WORDS: usize = 16 << 20;

/// A process with an array: its huge pages hold nothing, and its base pages are full.
fn be_arrays() -> Ended {
    let mut array = PageArray::<u64>::zeroed(ARRAY_WORDS, "huge:50%".parse::<Pages>()?)?;
    array[ARRAY_WORDS / 2..].fill(1);
    say("ready")?;
    loop {
        match next_order()?.as_str() {
            "pages" => say(&array.placement()?.to_string())?,
            other => return Err(format!("no order {other:?}").into()),
        }
    }
}

/// Zeroed huge pages are all bloat, and full base pages what is promoted first.
fn arrays_keep_the_pages_they_asked_for() -> Ended {
    let mut subject = Subject::start("arrays")?;
    let before = subject.order("pages")?;
    ensure!(before == "64.0 MiB huge, 64.0 MiB base", "the array was on {before}");
    let (used, _) = memory_in_use()?;
    // Between the marks the daemon promotes, and reclaims nothing that was asked for.
    let marks = [used + 0.05, used - 0.02].map(|share| format!("{:.4}%", share * 100.0));
    let config = Config { marks: Some(marks.into()), ..Config::all_of(&[subject.pid()]) };
    let home = Home::with(&config)?;
    let daemon = home.start()?;
    daemon.wait_since(0, "a look at memory", |line| says(line, "resting"))?;
    // A process that has just filled memory is surveyed up to twenty times a second.
    std::thread::sleep(Duration::from_secs(5));
    daemon.stop()?;
    let after = subject.order("pages")?;
    ensure!(after == before, "the array is on {after}");
    Ok(())
}

fn be_checked(mut memory: OwnMemory) -> Ended {
    say("ready")?;
    loop {
        match next_order()?.as_str() {
            "check" => say_whether_intact(&mut memory)?,
            other => return Err(format!("no order {other:?}").into()),
        }
    }
}

/// A process of `role`, and watermarks of the machine such that a third of its bloat lies above the high
/// one and a third between the two.
fn passing_both_marks(role: &str) -> Result<(Subject, Config, f64), Failed> {
    let subject = Subject::start(role)?;
    let (used, total) = memory_in_use()?;
    let bloat = FREED_IN_PART.bytes().scaled(0.5);
    let step = bloat.share_of(total).get() / 3.0;
    let marks = [used - step, used - 2.0 * step].map(|share| format!("{:.4}%", share * 100.0));
    let config = Config { marks: Some(marks.into()), ..Config::all_of(&[subject.pid()]) };
    Ok((subject, config, step))
}

/// Above the high watermark asked-for huge pages are split too, but no further than down to it.
fn what_was_asked_for_goes_only_above_high() -> Ended {
    let mut worst = String::new();
    // Other processes come and go, and after other tests the kernel may raise its own watermarks for some seconds,
    // which counts as used.
    for _ in 0..8 {
        let (mut subject, config, _) = passing_both_marks("asking")?;
        let before = Holds::now(subject.pid())?.huge;
        let home = Home::with(&config)?;
        let daemon = home.start()?;
        let done = daemon.wait_since(0, "a pass", |line| says(line, "pass done"));
        daemon.stop()?;
        ensure!(subject.order("check")? == "intact", "something was lost");
        let gone = before.saturating_sub(Holds::now(subject.pid())?.huge);
        // To reach the low watermark two thirds of them would have had to go.
        let share = gone.0 as f64 / FREED_IN_PART.0 as f64;
        if done.is_ok() && (0.1..0.6).contains(&share) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(2));
        worst = format!("{gone} of {FREED_IN_PART} were split, {done:?}");
    }
    Err(worst.into())
}

const ASKED_FOR: HugePages = HugePages(64);
const NOT_ASKED_FOR: HugePages = HugePages(4);

/// A process that asked for huge pages and uses a base page of each. When it is told to, it uses so much of
/// memory that it did not ask them for that the daemon makes them.
fn be_mixed() -> Ended {
    match own_thp::only_where_advised() {
        Ok(()) | Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let (mut asked, mut plain) =
        (OwnMemory::map(ASKED_FOR, Wish::HugePages)?, OwnVma::private(NOT_ASKED_FOR)?);
    let page = usize::try_from(BASE_PAGE_BYTES)?;
    let range = usize::try_from(HugePages(1).bytes().0)?;
    asked.bytes_mut().chunks_mut(range).for_each(|range| range[..page].fill(1));
    say("ready")?;
    next_order()?;
    plain.bytes_mut().chunks_mut(range).for_each(|range| range[..100 * page].fill(1));
    let start = asked.ranges().next().ok_or("no range")?.start();
    say(&format!("{} {}", start.0, plain.start().0))?;
    next_order()?;
    Ok(())
}

/// As a JVM that touches its heap at the start.
fn what_was_asked_for_stays_while_memory_is_free() -> Ended {
    const WHILE: Duration = Duration::from_secs(4);
    let mut subject = Subject::start("mixed")?;
    let pid = subject.pid();
    let config = |policy: &str, low: &str| {
        format!(
            "watermarks = {{ high = \"99.9%\", low = \"{low}\" }}\n\
             promotion = {{ {policy} idle = \"500ms\" }}\n\
             timing = {{ interval = \"100ms\" }}\n\
             processes = {{ include = {{ pids = [{pid}] }} }}\n"
        )
    };
    let home = Home::with(&Config::idle())?;
    home.configure(&config("", "99.8%"))?;
    let daemon = home.start()?;
    wait_for("the process to be managed", PATIENCE, || {
        let text = std::fs::read_to_string(home.state().join("status.json")).unwrap_or_default();
        Ok(text.contains("[\"superpage\",1]").then_some(()))
    })?;
    let said = subject.order("fill")?;
    let starts: Vec<u64> = said.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let huge = || -> Result<[HugePages; 2], Failed> {
        let of = |index: usize, size| huge_from(pid, VirtAddr(starts[index]), size);
        Ok([of(0, ASKED_FOR)?, of(1, NOT_ASKED_FOR)?])
    };
    let are_left = |left| move || Ok((huge()? == left).then_some(()));
    let none = HugePages(0);
    wait_for("what was filled to be promoted", PATIENCE, are_left([ASKED_FOR, NOT_ASKED_FOR]))?;
    std::thread::sleep(WHILE);
    let left = huge()?;
    ensure!(left == [ASKED_FOR, NOT_ASKED_FOR], "with memory free only {left:?} are left");
    // Above the low watermark, what was not asked for is reclaimed.
    let reload = |text: &str| -> Ended {
        home.configure(text)?;
        daemon.signal(Signal::HUP)
    };
    reload(&config("", "0.1%"))?;
    wait_for("what nobody asked for to be split", PATIENCE, are_left([ASKED_FOR, none]))?;
    std::thread::sleep(WHILE);
    let left = huge()?;
    ensure!(left == [ASKED_FOR, none], "of what was asked for only {left:?} are left");
    // A published policy keeps its rule.
    reload(&config("policy = \"quicksilver-sync-64\",", "99.8%"))?;
    wait_for("all to be split", PATIENCE, are_left([none, none]))?;
    daemon.stop()?;
    Ok(())
}

/// Other processes come and go, so that the watermarks may be wrong before they are tried.
fn it_frees_down_to_the_low_watermark() -> Ended {
    let mut worst = String::new();
    for _ in 0..4 {
        let (mut subject, config, step) = passing_both_marks("plain")?;
        let (used, _) = memory_in_use()?;
        let low = used - 2.0 * step;
        let home = Home::with(&config)?;
        let daemon = home.start()?;
        let done = daemon.wait_since(0, "a pass", |line| says(line, "pass done"));
        let (after, _) = memory_in_use()?;
        ensure!(subject.order("check")? == "intact", "something was lost");
        let log = daemon.stop()?;
        let nothing_left = log.iter().any(|line| says(line, "nothing left to free"));
        // The kernel counts what each core has freed only now and then.
        if done.is_ok() && (nothing_left || after <= low + step) {
            let line = log.iter().find(|line| says(line, "memory above its watermark"));
            let line = line.ok_or("it did not say why it acted")?;
            ensure!(line["watch"] == "machine" && line["used"].is_string(), "{line}");
            return Ok(());
        }
        worst = format!("used {used}, low {low}, after {after}, {done:?}");
    }
    Err(worst.into())
}

fn it_keeps_to_its_lists() -> Ended {
    let [mut included, excluded, neither] = [random_access()?, random_access()?, random_access()?];
    let spared = [excluded.pid(), neither.pid()];
    let before = spared.map(|pid| Holds::now(pid).map(|holds| holds.huge));
    let mut config = Config::all_of(&[included.pid(), excluded.pid()]);
    config.exclude = vec![excluded.pid()];
    let home = Home::with(&config)?;
    let daemon = home.start()?;
    wait_until_nothing_is_left(&daemon, 0)?;
    let log = daemon.stop()?;
    let looked = log.iter().find(|line| says(line, "looked")).ok_or("it never looked")?;
    ensure!(looked["cause"] == "nothing is known about them", "{looked}");
    is_debloated(&mut included)?;
    for (pid, before) in spared.into_iter().zip(before) {
        ensure!(Holds::now(pid)?.huge == before?, "process {pid} was touched");
        ensure!(!log.iter().any(|line| line["pid"] == pid.0), "process {pid} was looked at");
    }
    Ok(())
}

fn scratch(what: &str) -> Result<Scratch, Failed> {
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups are mounted")?;
    Ok(Scratch::create(&hierarchy, &format!("superpage-test-{what}-{}", std::process::id()))?)
}

fn limit(group: &Group, limit: Bytes) -> Ended {
    let file = match group.version() {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    Ok(std::fs::write(group.path().join(file), limit.0.to_string())?)
}

fn a_full_cgroup_pays_for_itself() -> Ended {
    let scratch = scratch("daemon")?;
    let group = scratch.group();
    limit(group, FREED_IN_PART.bytes() * 2)?;
    let mut inside = scratch.while_in(|| Subject::start("plain"))??;
    let outside = random_access()?;
    let before = Holds::now(outside.pid())?.huge;
    let mut config = Config::all_of(&[inside.pid(), outside.pid()]);
    config.marks = None;
    config.cgroup = Some((group.path().to_owned(), "45%", "35%"));
    let home = Home::with(&config)?;
    let daemon = home.start()?;
    let done = daemon.wait_since(0, "a pass", |line| says(line, "pass done"))?;
    ensure!(done["watch"] == group.path().to_str().unwrap_or_default(), "{done}");
    let used = || -> Result<f64, Failed> {
        let usage = group.usage()?;
        Ok(usage.working.share_of(usage.limit.ok_or("no limit")?).get())
    };
    // 50 % of the limit before. The kernel counts per core and adds up now and then.
    wait_for("the group to get smaller", PATIENCE, || Ok((used()? < 0.40).then_some(())))?;
    daemon.stop()?;
    ensure!(used()? > 0.25, "all of it was freed, not only what was asked for");
    ensure!(inside.order("check")? == "intact", "something was lost");
    ensure!(Holds::now(outside.pid())?.huge == before, "a process outside was touched");
    Ok(())
}

/// Leaves more than half of the free memory in pieces: of each 64 base pages it keeps one, which can be moved.
fn be_pieces() -> Ended {
    const GROUP: u64 = 64;
    let size = meminfo::read(Path::new("/proc"))?.free.scaled(0.6).to_huge_pages();
    let mut memory = OwnMemory::map(size, Wish::BasePages)?;
    memory.bytes_mut().iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    for group in 0..size.base_pages().0 / GROUP {
        memory.discard(BasePages(group * GROUP + 1), BasePages(GROUP - 1))?;
    }
    say("ready")?;
    next_order().map(drop)
}

/// With the kernel's own default before and after. How much the kernel gets done is its own business.
fn free_memory_in_pieces_is_compacted() -> Ended {
    const DEFAULT: &str = "20";
    let state = tempfile::tempdir()?;
    let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
    let path = compaction::path(Path::new("/proc"));
    settings.change(&path, DEFAULT)?;
    let home = Home::with(&Config::idle())?;
    home.configure(
        "processes = { include = { pids = [4194305] } }\ntiming = { interval = \"100ms\" }\n",
    )?;
    let _pieces = Subject::start("pieces")?;
    let before = free_memory::read(Path::new("/proc"))?.fmfi(PageSize::Huge);
    ensure!(before > Share::percent(50), "only {before} of the free memory is in pieces");
    let daemon = home.start()?;
    let held = format!("{}: {DEFAULT} -> 80", path.display());
    let begins = |line: &Value| says(line, &held);
    daemon.wait_since(0, "a turn", begins)?;
    let ends = |line: &Value| says(line, "the kernel compacted free memory");
    daemon.wait_since(0, "its end", ends)?;
    // Another one may have begun.
    daemon.stop()?;
    let after = settings::read_value(&path)?;
    ensure!(after == DEFAULT, "it was left at {after}");
    Ok(())
}

/// A cgroup with a limit that comes while the daemon runs, and whose program is near that.
fn a_cgroup_that_nobody_named_is_kept_from_its_limit(promotion: &str) -> Ended {
    let scratch = scratch("found")?;
    let group = scratch.group();
    // The program has nearly all of it, and half of that is bloat.
    limit(group, FREED_IN_PART.bytes().scaled(1.06))?;
    let home = Home::with(&Config::idle())?;
    let path = group.path();
    home.configure(&format!(
        "watermarks = {{ enabled = false }}\nprocesses = {{ include = {{ cgroups = [{path:?}] }} }}\n\
         khugepaged = {{ max_ptes_none = \"keep\" }}\npromotion = {{ policy = {promotion:?} }}\n"
    ))?;
    let daemon = home.start()?;
    let mut inside = scratch.while_in(|| Subject::start("plain"))??;
    let done = daemon.wait_since(0, "a pass", |line| says(line, "pass done"))?;
    ensure!(done["watch"] == path.to_str().unwrap_or_default(), "{done}");
    let used = || -> Result<f64, Failed> {
        let usage = group.usage()?;
        Ok(usage.working.share_of(usage.limit.ok_or("no limit")?).get())
    };
    wait_for("the group to get smaller", PATIENCE, || Ok((used()? < 0.85).then_some(())))?;
    daemon.stop()?;
    ensure!(used()? > 0.6, "all of it was freed, not only what was needed: {}", used()?);
    ensure!(group.kills()? == 0, "something was killed");
    ensure!(inside.order("check")? == "intact", "something was lost");
    Ok(())
}

/// By its group, which it is moved to, and by a configuration that is read again.
fn who_is_excluded_in_the_middle_of_a_pass_is_left_alone() -> Ended {
    let [mut moved, mut reloaded] = [random_access()?, random_access()?];
    let pids = [moved.pid(), reloaded.pid()];
    let scratch = scratch("moved")?;
    let group = scratch.group().path().to_owned();
    let slow = Config { cpu: "1%", quantum: 4, ..Config::all_of(&pids) };
    let config = Config { exclude_cgroups: vec![group], ..slow };
    let home = Home::with(&config)?;
    let daemon = home.start()?;
    let split =
        |pid: Pid| move |line: &Value| says(line, "split huge pages") && line["pid"] == pid.0;
    for pid in pids {
        daemon.wait_since(0, "it to begin", split(pid))?;
    }
    scratch.add(&Process::open(pids[0])?)?;
    let left_out = |line: &Value| says(line, "left out") && line["pid"] == pids[0].0;
    let mark = daemon.mark();
    daemon.wait_since(mark, "it to be left out", left_out)?;
    home.configure(&Config { exclude: vec![pids[1]], ..config }.to_string())?;
    daemon.signal(Signal::HUP)?;
    daemon.wait_since(mark, "it to read", |line| says(line, "configuration read again"))?;
    let left = pids.map(|pid| Holds::now(pid).map(|holds| holds.huge));
    std::thread::sleep(Duration::from_secs(2));
    for (pid, left) in pids.into_iter().zip(left) {
        let (left, now) = (left?, Holds::now(pid)?.huge);
        // On slow processors khugepaged comes by meanwhile, and makes some anew.
        ensure!(!left.is_zero() && now >= left, "process {pid} had {left}, has {now} huge pages");
    }
    moved.check()?;
    reloaded.check()?;
    daemon.stop()?;
    Ok(())
}

/// Lines that report shared huge pages.
fn reports_sharing(line: &Value) -> bool {
    says(line, "huge pages that would not split") && line["shared"] == subject::OWN.0
}

fn what_is_shared_is_left_to_cool_down() -> Ended {
    let mut parent = Subject::start("sharing")?;
    let before = Holds::now(parent.pid())?.huge;
    let home = Home::with(&Config::all_of(&[parent.pid()]))?;
    let daemon = home.start()?;
    daemon.wait_since(0, "a report", reports_sharing)?;
    // They are in no later pass as long as they cool down.
    let mark = daemon.mark();
    for _ in 0..3 {
        let mark = daemon.mark();
        daemon.wait_since(mark, "another pass", |line| says(line, "pass done"))?;
    }
    ensure!(!daemon.log()[mark..].iter().any(reports_sharing), "tried again too soon");
    ensure!(Holds::now(parent.pid())?.huge == before, "shared huge pages were split");
    drop(daemon);
    // With a short time to cool down they are tried again, and work once they are shared no more.
    let config = Config { cool_down: "300ms", ..Config::all_of(&[parent.pid()]) };
    home.configure(&config.to_string())?;
    let daemon = home.start()?;
    daemon.wait_since(0, "a report", reports_sharing)?;
    let mark = daemon.mark();
    daemon.wait_since(mark, "a second report", reports_sharing)?;
    parent.order("end child")?;
    let mark = daemon.mark();
    daemon.wait_since(mark, "them to split", |line| says(line, "split huge pages"))?;
    ensure!(parent.order("check")? == "intact", "something was lost");
    Ok(())
}

/// And while it goes slowly, one of two processes exits.
fn it_keeps_to_its_budget() -> Ended {
    let (victim, mut other) = (random_access()?, random_access()?);
    let slow = Config { cpu: "2%", quantum: 8, ..Config::all_of(&[victim.pid(), other.pid()]) };
    let home = Home::with(&slow)?;
    let daemon = home.start()?;
    daemon.wait_since(0, "it to begin", |line| says(line, "split huge pages"))?;
    let (began, before) = (Instant::now(), daemon.cpu()?);
    std::thread::sleep(Duration::from_millis(1500));
    let share = (daemon.cpu()? - before).as_secs_f64() / began.elapsed().as_secs_f64();
    // A tick of the kernel's clock is 1 % of this time.
    ensure!(share < 0.05, "it used {share} of a core");
    let lost = victim.pid();
    drop(victim);
    daemon.wait_since(0, "it to notice", |line| says(line, "left out") && line["pid"] == lost.0)?;
    let mark = daemon.mark();
    // The rest need not take so long.
    home.configure(&Config::all_of(&[other.pid()]).to_string())?;
    daemon.signal(Signal::HUP)?;
    wait_until_nothing_is_left(&daemon, mark)?;
    is_debloated(&mut other)?;
    daemon.stop()?;
    Ok(())
}

fn it_leaves_in_the_middle_of_a_pass() -> Ended {
    let mut worker = random_access()?;
    let slow = Config { cpu: "1%", quantum: 4, ..Config::all_of(&[worker.pid()]) };
    let home = Home::with(&slow)?;
    let daemon = home.start()?;
    daemon.wait_since(0, "it to begin", |line| says(line, "split huge pages"))?;
    let told = Instant::now();
    let log = daemon.stop()?;
    ensure!(told.elapsed() < Duration::from_secs(5), "it took {:?}", told.elapsed());
    ensure!(!log.iter().any(|line| says(line, "nothing left")), "the pass was over already");
    ensure!(log.last().is_some_and(|line| says(line, "left")), "{:?}", log.last());
    worker.check()?;
    Ok(())
}

fn it_reads_its_configuration_again() -> Ended {
    let mut worker = random_access()?;
    let before = Holds::now(worker.pid())?.huge;
    let home = Home::with(&Config::idle())?;
    let daemon = home.start()?;
    // A broken configuration changes nothing, and the log says where it is broken.
    home.configure("[watermarks]\nhigh = \"1%\"\nlow = 0\n")?;
    daemon.signal(Signal::HUP)?;
    let error = daemon.wait_since(0, "an error", |line| line["level"] == "ERROR")?;
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with(&format!("{}:3: ", home.config().display())), "{message}");
    ensure!(message.contains("stays in force"), "{message}");
    ensure!(Holds::now(worker.pid())?.huge == before, "it acted on half a configuration");
    // A good one takes effect.
    let mark = daemon.mark();
    home.configure(&Config::all_of(&[worker.pid()]).to_string())?;
    daemon.signal(Signal::HUP)?;
    daemon.wait_since(mark, "it to read", |line| says(line, "configuration read again"))?;
    wait_until_nothing_is_left(&daemon, mark)?;
    is_debloated(&mut worker)?;
    daemon.stop()?;
    Ok(())
}

fn there_is_one_at_a_time() -> Ended {
    let home = Home::with(&Config::idle())?;
    let daemon = home.start()?;
    let second = home.start_in_vain()?;
    ensure!(second.code == Some(1) && second.err.starts_with("superpage: "), "{second:?}");
    ensure!(second.err.contains(&format!("process {}", daemon.pid())), "{second:?}");
    ensure!(second.err.lines().count() == 1, "{second:?}");
    // It is the machine that has one, not a directory.
    let elsewhere = Home::with(&Config::idle())?.start_in_vain()?;
    ensure!((elsewhere.code, &elsewhere.err) == (Some(1), &second.err), "{elsewhere:?}");
    daemon.stop()?;
    home.start()?.stop()?;
    Ok(())
}

fn it_needs_nobody_to_read_its_log() -> Ended {
    let mut worker = random_access()?;
    let home = Home::with(&Config::all_of(&[worker.pid()]))?;
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let daemon = home.start_logging_to(writer.into())?;
    let pid = worker.pid();
    let half = worker.populated().huge_pages.0 / 2;
    wait_for("huge pages to be split", PATIENCE, || {
        Ok((Holds::now(pid)?.huge < HugePages(half)).then_some(()))
    })?;
    daemon.stop()?;
    worker.check()?;
    Ok(())
}

/// The 8 GiB only where somebody asks for it.
fn it_costs_next_to_nothing_when_idle() -> Ended {
    const WORKERS: u64 = 10;
    const WHILE: Duration = Duration::from_secs(10);
    let full = std::env::var_os("SUPERPAGE_FULL").is_some();
    let size = Bytes::from_mib(if full { 8192 } else { 2048 } / WORKERS);
    let workers = (0..WORKERS).map(|_| worker(WorkloadKind::RandomAccessR, size));
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let pids: Vec<Pid> = workers.iter().map(Worker::pid).collect();
    let mut config = Config { interval: "5s", ..Config::all_of(&pids) };
    // The defaults, unless this machine is too full for them.
    let marks = if memory_in_use()?.0 < 0.75 { ("80%", "65%") } else { ("99%", "98%") };
    config.marks = Some((marks.0.to_owned(), marks.1.to_owned()));
    let home = Home::with(&config)?;
    let daemon = home.start()?;
    let before = daemon.cpu()?;
    std::thread::sleep(WHILE);
    let share = (daemon.cpu()? - before).as_secs_f64() / WHILE.as_secs_f64();
    let status = status::of(&Process::open(daemon.pid())?)?;
    let peak = status.peak_rss.ok_or("no peak")?;
    let log = daemon.stop()?;
    ensure!(log.iter().any(|line| says(line, "resting")), "it never looked: {log:?}");
    ensure!(share < 0.01, "it used {share} of a core");
    ensure!(peak < Bytes::from_mib(20), "it used {peak}");
    Ok(())
}

/// `max_ptes_none` at a known value, and at its own again when this is dropped.
struct Knob {
    settings: Settings,
    original: BasePages,
    _state: tempfile::TempDir,
}

impl Knob {
    fn at(value: BasePages) -> Result<Self, Failed> {
        let state = tempfile::tempdir()?;
        let (settings, _) = Settings::open(state.path(), Mode::Apply)?;
        let knob = Self { settings, original: Self::now()?, _state: state };
        knob.write(value)?;
        Ok(knob)
    }

    fn now() -> Result<BasePages, Failed> {
        Ok(Thp::under(Path::new("/sys")).get(MAX_PTES_NONE)?)
    }

    fn write(&self, value: BasePages) -> Ended {
        let path = Thp::under(Path::new("/sys")).path(MAX_PTES_NONE);
        Ok(self.settings.act(&path, &value.0.to_string())?)
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        if let Err(error) = self.write(self.original) {
            println!("max_ptes_none was {} and is not again: {error:?}", self.original);
        }
    }
}

/// The kernel's default.
const ORIGINAL: BasePages = BasePages(511);

fn khugepaged_is_held_and_let_go() -> Ended {
    let _knob = Knob::at(ORIGINAL)?;
    let home = Home::with(&Config { max_ptes_none: "\"auto\"".to_owned(), ..Config::idle() })?;
    let daemon = home.start()?;
    // Just below the 6 % of a huge page that are worth splitting it.
    let held = Knob::now()?;
    ensure!(held == BasePages(30), "it is held at {held}");
    // A change of the configuration changes it from what it was at first.
    home.configure(&Config { max_ptes_none: "7".to_owned(), ..Config::idle() }.to_string())?;
    daemon.signal(Signal::HUP)?;
    let is_held = || Ok((Knob::now()? == BasePages(7)).then_some(()));
    wait_for("the new value", PATIENCE, is_held)?;
    daemon.stop()?;
    let after = Knob::now()?;
    ensure!(after == ORIGINAL, "it was left at {after}");
    ensure!(!home.journal().exists(), "the journal is still there");
    Ok(())
}

fn a_killed_one_is_repaired_on_request() -> Ended {
    let _knob = Knob::at(ORIGINAL)?;
    let home = Home::with(&Config { max_ptes_none: "33".to_owned(), ..Config::idle() })?;
    let state = home.state();
    let state = state.to_str().ok_or("UTF-8")?;
    let restore = || superpage(&["restore", "--state", state]);
    let daemon = home.start()?;
    let refused = restore()?;
    ensure!(refused.code == Some(1), "a daemon runs: {refused:?}");
    ensure!(Knob::now()? == BasePages(33), "it was taken from a daemon that runs");
    daemon.kill()?;
    let done = restore()?.done()?;
    ensure!(done.out.contains("33 -> 511, put back"), "{done:?}");
    ensure!(Knob::now()? == ORIGINAL && !home.journal().exists(), "something is left");
    let again = restore()?.done()?;
    ensure!(again.out == "Nothing was left changed.\n", "{again:?}");
    Ok(())
}

fn a_killed_one_is_repaired_by_the_next() -> Ended {
    let _knob = Knob::at(ORIGINAL)?;
    let home = Home::with(&Config { max_ptes_none: "33".to_owned(), ..Config::idle() })?;
    home.start()?.kill()?;
    ensure!(Knob::now()? == BasePages(33), "a killed daemon cannot put anything back");
    let journal = std::fs::read_to_string(home.journal())?;
    ensure!(journal.contains("\"511\"") && journal.contains("\"33\""), "{journal}");
    home.configure(&Config { max_ptes_none: "44".to_owned(), ..Config::idle() }.to_string())?;
    let next = home.start()?;
    ensure!(Knob::now()? == BasePages(44), "the next one does not hold it");
    let log = next.log();
    let repair = log.iter().find(|line| says(line, "an earlier run did not end well"));
    let repair = repair.and_then(|line| line["message"].as_str()).ok_or("no word on the repair")?;
    ensure!(repair.contains("33 -> 511, put back"), "{repair}");
    let message = |line: &Value| line["message"].as_str().map(str::to_owned);
    let held = log.iter().filter_map(message).any(|text| text.contains("511 -> 44"));
    ensure!(held, "the original is not what it holds down: {log:?}");
    next.stop()?;
    let after = Knob::now()?;
    ensure!(after == ORIGINAL, "it was left at {after}");
    ensure!(!home.journal().exists(), "the journal is still there");
    Ok(())
}

fn a_killed_one_is_repaired_before_the_configuration_is_read() -> Ended {
    let _knob = Knob::at(ORIGINAL)?;
    let home = Home::with(&Config { max_ptes_none: "33".to_owned(), ..Config::idle() })?;
    home.start()?.kill()?;
    ensure!(Knob::now()? == BasePages(33), "a killed daemon cannot put anything back");
    home.configure("no configuration")?;
    let said = home.start_in_vain()?;
    ensure!(said.code == Some(2), "{said:?}");
    let after = Knob::now()?;
    ensure!(after == ORIGINAL && !home.journal().exists(), "it was left at {after}");
    Ok(())
}

/// A configuration that keeps one more gigantic page free than there is.
fn one_more_than(before: Pool, config: &Config) -> String {
    format!("{config}[gigantic]\nfree = {}\nmost = \"100%\"\n", before.free + 1)
}

fn wait_for_pool(wanted: Pool) -> Ended {
    let is_so = || Ok((pool()? == wanted).then_some(()));
    wait_for(&format!("the pool to be {wanted:?}"), PATIENCE, is_so)
}

fn gigantic_pages_are_kept_free() -> Ended {
    let before = pool()?;
    let with_more = Pool { size: before.size + 1, free: before.free + 1, ..before };
    let low = Config { marks: Some(("99.9%".into(), "99.8%".into())), ..Config::idle() };
    let high = Config { marks: Some(("1%".into(), "0%".into())), ..Config::idle() };
    let home = Home::with(&Config::idle())?;
    home.configure(&one_more_than(before, &low))?;
    let daemon = home.start()?;
    wait_for_pool(with_more)?;
    // Nobody else changes the pool meanwhile, `superpage run` included.
    let record = Path::new(STATE_DIRECTORY).join(RUN);
    let other = Settings::open(&record, Mode::Apply);
    ensure!(matches!(other, Err(Error::Busy { .. })), "{other:?}");
    // Memory is short: the pool is given back before anything else.
    let mark = daemon.mark();
    home.configure(&one_more_than(before, &high))?;
    daemon.signal(Signal::HUP)?;
    wait_for_pool(before)?;
    home.configure(&one_more_than(before, &low))?;
    daemon.signal(Signal::HUP)?;
    wait_for_pool(with_more)?;
    // A program takes the page, and the daemon looks for another.
    let taken = memfd_create("taken", MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB)?;
    fallocate(&taken, FallocateFlags::empty(), 0, GIGANTIC_PAGE_BYTES)?;
    let more = format!("{} -> {}", with_more.size, with_more.size + 1);
    daemon.wait_since(mark, "it to look for another", |line| {
        says(line, "the kernel finds no gigantic page")
            || line["message"].as_str().is_some_and(|message| message.ends_with(&more))
    })?;
    daemon.stop()?;
    // The page in use stays until it is freed, and nobody is asked to put it back. If there was a free page before, the setting
    // that is put back takes it away, because the page in use counts.
    let in_use = Pool { free: before.free.saturating_sub(1), used: before.used + 1, ..before };
    ensure!(pool()? == in_use, "{:?}, before {before:?}", pool()?);
    ensure!(!record.join("settings.json").exists(), "the journal is still there");
    let all = before.size.max(in_use.used);
    ensure!(all_of_pool()? == all, "the kernel says {} for {all}", all_of_pool()?);
    drop(taken);
    ensure!(all_of_pool()? == before.size, "the kernel says {}", all_of_pool()?);
    Ok(())
}

/// The pages in the pool, those in use beyond the setting included.
fn all_of_pool() -> Result<u64, Failed> {
    let text = std::fs::read_to_string(hugetlb::setting(Path::new("/sys"), PageSize::Gigantic))?;
    Ok(text.trim().parse()?)
}

fn gigantic_pages_of_a_killed_one_are_given_back() -> Ended {
    let before = pool()?;
    let with_more = Pool { size: before.size + 1, free: before.free + 1, ..before };
    let home = Home::with(&Config::idle())?;
    home.configure(&one_more_than(before, &Config::idle()))?;
    let daemon = home.start()?;
    wait_for_pool(with_more)?;
    daemon.kill()?;
    ensure!(pool()? == with_more, "a killed daemon cannot put anything back");
    let done = superpage(&["restore"])?.done()?;
    let said = format!("{} -> {}, put back", with_more.size, before.size);
    ensure!(done.out.contains(&said), "{done:?}");
    ensure!(pool()? == before, "{:?}, before {before:?}", pool()?);
    // The next daemon does the same, also if it keeps none.
    let daemon = home.start()?;
    wait_for_pool(with_more)?;
    daemon.kill()?;
    home.configure(&Config::idle().to_string())?;
    let next = home.start()?;
    wait_for_pool(before)?;
    next.stop()?;
    Ok(())
}
