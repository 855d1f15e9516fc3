//! `scan` and `debloat` let loose on real processes, and what they say held against what the
//! kernel and the processes themselves say. Needs root and a kernel that can.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;

use common::machine::Check;
use common::subject::{
    self, OWN, Subject, half_used, next_order, pages, pattern, say, say_whether_intact,
};
use common::{Ended, Holds, PROGRAM, Said, debloat, number, superpage, wait_for, worker};
use libtest_mimic::Failed;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use superpage_kernel::cgroup::{Hierarchy, Scratch, Version};
use superpage_kernel::own_beginning;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::own_vma::OwnVma;
use superpage_kernel::process::{self, Process};
use superpage_kernel::thp::{self, Thp};
use superpage_kernel::{smaps_flags, status};
use superpage_lab::worker::Worker;
use superpage_lab::workload::WorkloadKind;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::find;
use superpage_manager::pass::{Flow, Options, Pass};
use superpage_policy::bloat::BloatMap;
use superpage_policy::debloat::emd::{self, Emd};
use superpage_policy::debloat::list::Registry;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, Pid,
    Share, Time,
};

fn main() -> ExitCode {
    subject::main(
        || {
            let [(name, hindrance, test)] = subject::tests_of_debloating([SHORT_OF_MEMORY]);
            let short = (name, hindrance.or_else(without_short_cgroup), test);
            subject::tests_of_debloating(TESTS).into_iter().chain([short])
        },
        &[("locked", be_locked), ("watched", be_watched), ("wild", be_wild)],
    )
}

const SHORT_OF_MEMORY: (&str, Check) =
    ("where_no_huge_page_is_free_it_goes_on", where_no_huge_page_is_free_it_goes_on);

/// The reason why no cgroup here has room for the program and for no huge page beside it.
fn without_short_cgroup() -> Option<String> {
    let hierarchy = Hierarchy::find(Path::new("/")).ok().flatten();
    let is_v1 = hierarchy.is_some_and(|hierarchy| hierarchy.version() == Version::V1);
    (!is_v1)
        .then(|| "the limit that has no room for a huge page was tried on cgroup v1 only".into())
}

const TESTS: [(&str, Check); 21] = [
    ("a_scan_is_near_the_truth", a_scan_is_near_the_truth),
    ("a_scan_of_everything_adds_up", a_scan_of_everything_adds_up),
    ("a_scan_draws_a_picture", a_scan_draws_a_picture),
    ("top_sees_what_a_scan_sees", top_sees_what_a_scan_sees),
    ("as_much_is_freed_as_was_asked_for", as_much_is_freed_as_was_asked_for),
    ("a_fraction_is_of_what_is_in_huge_pages", a_fraction_is_of_what_is_in_huge_pages),
    ("all_leaves_next_to_nothing", all_leaves_next_to_nothing),
    ("a_dry_run_changes_nothing", a_dry_run_changes_nothing),
    ("emd_breaks_fewer_than_hawkeye", emd_breaks_fewer_than_hawkeye),
    ("two_processes_share_the_loss", two_processes_share_the_loss),
    ("more_than_there_is_is_said", more_than_there_is_is_said),
    ("a_process_that_exits_is_no_accident", a_process_that_exits_is_no_accident),
    ("the_others_are_done_when_one_exits", the_others_are_done_when_one_exits),
    ("what_a_fork_shares_is_left_alone", what_a_fork_shares_is_left_alone),
    ("what_was_not_worth_breaking_cools_down", what_was_not_worth_breaking_cools_down),
    ("locked_memory_is_refused", locked_memory_is_refused),
    ("a_wild_process_loses_nothing", a_wild_process_loses_nothing),
    ("whose_writes_are_followed_is_left_alone", whose_writes_are_followed_is_left_alone),
    ("khugepaged_is_held_for_as_long_as_asked", khugepaged_is_held_for_as_long_as_asked),
    ("a_commands_name_cannot_command_the_terminal", a_commands_name_cannot_command_the_terminal),
    ("a_thread_of_the_kernel_is_a_usage_error", a_thread_of_the_kernel_is_a_usage_error),
];

const SIZE: Bytes = Bytes::from_mib(256);

/// What khugepaged may rebuild while a test looks: it gets this far before it sleeps again.
const REBUILT: HugePages = HugePages(8);

fn random_access() -> Result<Worker, Failed> {
    worker(WorkloadKind::RandomAccessR, SIZE)
}

/// `a` and `b` differ by no more than `share` of `b`.
fn is_near(a: u64, b: u64, share: f64) -> bool {
    a.abs_diff(b) as f64 <= share * b as f64
}

/// The base pages that a `scan PID` found to be zero-filled, from its rows.
fn zero_pages(rows: &[Value]) -> Result<u64, Failed> {
    rows.iter().map(|row| number(row, "density")).sum()
}

fn scan(pid: Pid, more: &[&str]) -> Result<Vec<Value>, Failed> {
    superpage(&[&["scan", &pid.to_string(), "--json"], more].concat())?.done()?.rows()
}

fn a_scan_is_near_the_truth() -> Ended {
    let mut worker = random_access()?;
    let truth = worker.populated().bloat().0;
    for (more, looked, share) in [(&[][..], 8..128, 0.05), (&["--exact"], 512..513, 0.01)] {
        let rows = scan(worker.pid(), more)?;
        let huge = Holds::now(worker.pid())?.huge.0;
        ensure!(is_near(rows.len() as u64, huge, 0.05), "{} rows, {huge} huge pages", rows.len());
        let found = zero_pages(&rows)?;
        ensure!(is_near(found, truth, share), "{more:?}: {found} of {truth} zero pages");
        for row in &rows {
            ensure!(looked.contains(&number(row, "base_pages_looked_at")?), "{row}");
            ensure!(number(row, "density")? <= BASE_PAGES_PER_HUGE_PAGE, "{row}");
            ensure!(row["address"].as_str().is_some_and(|a| a.starts_with("0x")), "{row}");
        }
    }
    worker.check()?;
    // What is read to people says the same.
    let text = superpage(&["scan", &worker.pid().to_string()])?.done()?.out;
    ensure!(text.contains("By bucket") && text.contains("By address"), "{text}");
    Ok(worker.quit()?)
}

fn a_scan_of_everything_adds_up() -> Ended {
    let workers = [random_access()?, worker(WorkloadKind::RandomAccessDense, SIZE)?];
    let said = superpage(&["scan", "--json"])?.done()?;
    let rows = said.rows()?;
    for worker in &workers {
        let row = rows.iter().find(|row| row["pid"] == worker.pid().0).ok_or("not in the list")?;
        let (huge, bloat) = (number(row, "huge_pages")?, number(row, "bloat_base_pages")?);
        ensure!(number(row, "huge_bytes")? == huge * HUGE_PAGE_BYTES, "{row}");
        ensure!(number(row, "bloat_bytes")? == bloat * BASE_PAGE_BYTES, "{row}");
        let share = bloat as f64 / HugePages(huge).base_pages().0 as f64;
        ensure!((row["bloat"].as_f64().ok_or("no share")? - share).abs() < 1e-6, "{row}");
        let truth = worker.populated().bloat().share_of(SIZE.to_base_pages()).get();
        ensure!((share - truth).abs() < 0.05, "{row}, but {truth} is bloat");
        ensure!(row["exact"] == false, "{row}");
    }
    let bloat =
        rows.iter().map(|row| number(row, "bloat_base_pages")).collect::<Result<Vec<_>, _>>()?;
    ensure!(bloat.is_sorted_by(|a, b| a >= b), "the most wasteful come first: {bloat:?}");
    Ok(())
}

fn a_scan_draws_a_picture() -> Ended {
    let worker = random_access()?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("bloat.svg");
    scan(worker.pid(), &["--svg", path.to_str().ok_or("UTF-8")?])?;
    let svg = std::fs::read_to_string(&path)?;
    ensure!(svg.contains(&format!("({}): bloat by address", worker.pid())), "no title");
    check_xml(&svg)?;
    let nowhere = superpage(&["scan", &worker.pid().to_string(), "--svg", "/proc/no.svg"])?;
    ensure!(nowhere.code == Some(1) && nowhere.err.contains("/proc/no.svg"), "{nowhere:?}");
    Ok(())
}

fn top_sees_what_a_scan_sees() -> Ended {
    let worker = random_access()?;
    let state = tempfile::tempdir()?;
    let state = state.path().to_str().ok_or("UTF-8")?;
    let text = superpage(&["top", "--once", "--state", state])?.done()?.out;
    let pid = format!(" {} ", worker.pid());
    let row = text.lines().find(|line| line.contains(&pid)).ok_or_else(|| text.clone())?;
    let sizes: Vec<f64> =
        row.split(" MiB").filter_map(|part| part.split(' ').next_back()?.parse().ok()).collect();
    let [huge, bloat, ..] = sizes[..] else { return Err(format!("no sizes in {row:?}").into()) };
    let mib = Bytes::from_mib(1).0 as f64;
    let expected = Holds::now(worker.pid())?.huge.bytes().0 as f64 / mib;
    let truth = worker.populated().bloat().bytes().0 as f64 / mib;
    ensure!((huge - expected).abs() <= 0.05 * expected, "{row:?}, but {expected} MiB are huge");
    ensure!((bloat - truth).abs() <= 0.1 * truth, "{row:?}, but {truth} MiB are bloat");
    Ok(worker.quit()?)
}

/// Every element that is opened is closed, in order, and the outermost is `svg`.
fn check_xml(text: &str) -> Ended {
    let mut open: Vec<&str> = Vec::new();
    let mut outermost = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, after) = tag.split_once('>').ok_or("a tag without end")?;
        let name = tag.trim_matches('/').split_whitespace().next().unwrap_or_default();
        if tag.starts_with(['?', '!']) {
            continue;
        }
        ensure!(tag.matches('"').count() % 2 == 0, "quotes in <{tag}>");
        if tag.starts_with('/') {
            ensure!(open.pop() == Some(name), "</{name}> closes something else");
        } else {
            if open.is_empty() {
                outermost.push(name);
            }
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        ensure!(!open.is_empty() || after.trim().is_empty(), "text outside of everything");
    }
    ensure!(open.is_empty() && outermost == ["svg"], "{open:?} left open in {outermost:?}");
    Ok(())
}

fn as_much_is_freed_as_was_asked_for() -> Ended {
    let mut worker = random_access()?;
    let asked = Bytes::from_mib(64);
    let pid = worker.pid().to_string();
    let before = Holds::now(worker.pid())?;
    let rows = debloat(&[&pid, "--free", "64M"])?;
    let after = Holds::now(worker.pid())?;
    let row = &rows[0];
    let (freed, split) = (Bytes(number(row, "freed_bytes")?), number(row, "split")?);
    ensure!(row["pid"] == worker.pid().0 && row["dry_run"] == false && rows.len() == 1, "{row}");
    ensure!(freed >= asked && freed <= asked.scaled(1.1), "freed {freed} of {asked}");
    ensure!(number(row, "freed_base_pages")? == freed.to_base_pages().0, "{row}");
    // What the kernel says, but for what khugepaged may have rebuilt meanwhile.
    let gone = before.resident.saturating_sub(after.resident);
    let slack = REBUILT.bytes();
    ensure!(gone + slack >= freed && gone <= freed + slack, "{gone} gone, {freed} freed");
    let fewer = before.huge.saturating_sub(after.huge);
    ensure!(fewer.0.abs_diff(split) <= REBUILT.0, "{fewer} fewer huge pages, {split} split");
    worker.run(10_000, 1)?;
    worker.check()?;
    Ok(worker.quit()?)
}

fn a_fraction_is_of_what_is_in_huge_pages() -> Ended {
    let mut worker = random_access()?;
    let before = Holds::now(worker.pid())?;
    let rows = debloat(&[&worker.pid().to_string(), "--fraction", "20%"])?;
    let asked = before.huge.bytes().scaled(0.20).0;
    let freed = number(&rows[0], "freed_bytes")?;
    ensure!(freed >= asked && is_near(freed, asked, 0.1), "freed {freed} of {asked}");
    worker.check()?;
    Ok(worker.quit()?)
}

/// More than once, should khugepaged have rebuilt something in between.
fn all_leaves_next_to_nothing() -> Ended {
    let mut worker = random_access()?;
    let pid = worker.pid().to_string();
    let footprint = SIZE.to_base_pages();
    let mut left = BasePages::ZERO;
    for _ in 0..3 {
        let rows = debloat(&[&pid, "--all"])?;
        ensure!(rows[0]["exited"] == false, "{}", rows[0]);
        worker.check()?;
        left = BasePages(zero_pages(&scan(worker.pid(), &["--exact"])?)?);
        if left.share_of(footprint) < Share::percent(1) {
            return Ok(worker.quit()?);
        }
    }
    Err(format!("{left} zero-filled base pages are left of {footprint}").into())
}

fn a_dry_run_changes_nothing() -> Ended {
    let worker = random_access()?;
    let pid = worker.pid().to_string();
    let before = Holds::now(worker.pid())?;
    for policy in ["emd", "emd-exact", "hawkeye"] {
        let rows = debloat(&[&pid, "--all", "--dry-run", "--policy", policy])?;
        let (split, freed) = (number(&rows[0], "split")?, number(&rows[0], "freed_base_pages")?);
        ensure!(rows[0]["dry_run"] == true && split > 0, "{policy}: {}", rows[0]);
        let truth = worker.populated().bloat().0;
        ensure!(is_near(freed, truth, 0.10), "{policy}: {freed} of {truth} zero pages");
        let after = Holds::now(worker.pid())?;
        ensure!(after.huge == before.huge, "{policy}: {before:?}, then {after:?}");
    }
    let said = superpage(&["debloat", &pid, "--free", "16M", "--dry-run"])?.done()?;
    ensure!(said.out.contains("Would split") && said.out.contains("estimated"), "{}", said.out);
    Ok(())
}

fn emd_breaks_fewer_than_hawkeye() -> Ended {
    let split_by = |policy: &str| -> Result<(u64, u64), Failed> {
        let mut worker = random_access()?;
        let pid = worker.pid().to_string();
        let rows = debloat(&[&pid, "--fraction", "25", "--policy", policy])?;
        worker.check()?;
        worker.quit()?;
        Ok((number(&rows[0], "split")?, number(&rows[0], "freed_base_pages")?))
    };
    let (emd, by_emd) = split_by("emd")?;
    let (exact, by_exact) = split_by("emd-exact")?;
    let (hawkeye, by_hawkeye) = split_by("hawkeye")?;
    ensure!(is_near(by_emd, by_hawkeye, 0.05) && is_near(by_exact, by_hawkeye, 0.05), "not alike");
    // 80 % of each for the one, 20 % of half of them and then 80 % for the other.
    let said = format!("emd {emd}, emd-exact {exact}, hawkeye {hawkeye}");
    ensure!(emd * 2 < hawkeye && exact * 2 < hawkeye, "{said}");
    ensure!(is_near(emd, exact, 0.1), "{said}");
    Ok(())
}

fn two_processes_share_the_loss() -> Ended {
    let mut workers = [random_access()?, random_access()?];
    let pids = [0, 1].map(|at: usize| workers[at].pid().to_string());
    // A pid that is given twice is one process.
    let rows = debloat(&[&pids[0], &pids[1], &pids[0], "--free", "120M", "--quantum", "10"])?;
    ensure!(rows.len() == 2, "{rows:?}");
    let split = [number(&rows[0], "split")?, number(&rows[1], "split")?];
    let freed = number(&rows[0], "freed_bytes")? + number(&rows[1], "freed_bytes")?;
    // They may be a quantum apart in each bucket, and what is found by samples lies in two.
    ensure!(split[0].abs_diff(split[1]) <= 20, "{split:?}");
    ensure!(is_near(freed, Bytes::from_mib(120).0, 0.1), "{freed} freed");
    for worker in &mut workers {
        worker.check()?;
    }
    Ok(())
}

fn more_than_there_is_is_said() -> Ended {
    let worker = worker(WorkloadKind::RandomAccessDense, SIZE)?;
    let pid = worker.pid().to_string();
    let said = superpage(&["debloat", &pid, "--free", "1G"])?.done()?;
    ensure!(said.out.contains("That is all the bloat there was"), "{}", said.out);
    ensure!(said.out.contains("freed and verified"), "{}", said.out);
    let huge = Holds::now(worker.pid())?.huge;
    ensure!(huge.bytes() >= SIZE.scaled(0.95), "huge pages without bloat were split: {huge}");
    Ok(())
}

/// Asserts that a run which lost its process ended as it should.
fn ended_well(said: &Said) -> Ended {
    ensure!(matches!(said.code, Some(0 | 1)), "{said:?}");
    ensure!(!said.err.contains("panicked") && !said.out.contains("panicked"), "{said:?}");
    let clear = |line: &str| line.starts_with("superpage: ");
    ensure!(said.err.lines().all(clear), "{said:?}");
    ensure!(said.code == Some(0) || !said.err.is_empty(), "{said:?}");
    Ok(())
}

/// Killed sooner or later after the start, so that it happens in all the places there are.
fn a_process_that_exits_is_no_accident() -> Ended {
    let mut lost = 0;
    for millis in [0, 2, 4, 7, 11, 16, 25, 40] {
        let worker = random_access()?;
        let pid = worker.pid().to_string();
        let run = Command::new(PROGRAM)
            .args(["debloat", &pid, "--all", "--policy", "emd-exact"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(millis));
        drop(worker);
        let said = Said::from(run.wait_with_output()?);
        ended_well(&said)?;
        let told = said.out.contains("(exited)") || said.err.contains("process");
        lost += u32::from(told);
    }
    // Reading 256 MiB takes longer than most of these waits.
    ensure!(lost > 0, "none was seen to exit");
    Ok(())
}

fn the_others_are_done_when_one_exits() -> Ended {
    let (victim, mut other) = (random_access()?, random_access()?);
    let before = Holds::now(other.pid())?;
    let pids = [victim.pid().to_string(), other.pid().to_string()];
    let run = Command::new(PROGRAM)
        .args(["debloat", &pids[0], &pids[1], "--all", "--policy", "emd-exact", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(10));
    drop(victim);
    let said = Said::from(run.wait_with_output()?);
    ended_well(&said)?;
    if !said.out.is_empty() {
        let row = said.rows()?.into_iter().find(|row| row["pid"] == other.pid().0);
        let freed = number(&row.ok_or("not in the list")?, "freed_base_pages")?;
        let truth = other.populated().bloat().0;
        ensure!(is_near(freed, truth, 0.05), "{freed} of {truth} freed");
        ensure!(Holds::now(other.pid())?.resident < before.resident, "nothing freed");
    }
    other.check()?;
    Ok(other.quit()?)
}

fn what_a_fork_shares_is_left_alone() -> Ended {
    let mut parent = Subject::start("sharing")?;
    let pid = parent.pid().to_string();
    let before = Holds::now(parent.pid())?;
    // Reading them would split them: the kernel makes a copy of each page read.
    for more in [&[][..], &["--exact"]] {
        let rows = scan(parent.pid(), more)?;
        let unknown = rows.iter().filter(|row| row["density"].is_null()).count();
        ensure!(unknown as u64 == OWN.0, "{rows:?}");
        let after = Holds::now(parent.pid())?;
        ensure!(after.huge == before.huge, "a scan: {before:?}, then {after:?}");
    }
    let text = superpage(&["scan", &pid])?.done()?.out;
    ensure!(text.contains(&format!("not looked into: {OWN}")), "{text}");
    for policy in Registry::published().names() {
        let rows = debloat(&[&pid, "--all", "--policy", policy])?;
        ensure!(number(&rows[0], "left_alone_shared")? == OWN.0, "{}", rows[0]);
        ensure!(number(&rows[0], "freed_base_pages")? == 0, "{}", rows[0]);
        let after = Holds::now(parent.pid())?;
        ensure!(after.huge == before.huge, "{policy}: {before:?}, then {after:?}");
    }
    let text = superpage(&["debloat", &pid, "--all"])?.done()?.out;
    ensure!(text.contains(&format!("{OWN} shared")), "{text}");
    parent.order("end child")?;
    let rows = debloat(&[&pid, "--all"])?;
    ensure!(number(&rows[0], "left_alone_shared")? == 0, "{}", rows[0]);
    let freed = number(&rows[0], "freed_base_pages")?;
    ensure!(freed >= OWN.base_pages().0 / 2, "{}", rows[0]);
    let said = parent.order("check")?;
    ensure!(said == "intact", "the parent says {said:?}");
    Ok(())
}

fn be_locked() -> Ended {
    let mut memory = half_used()?;
    mlockall(MlockAllFlags::CURRENT)?;
    subject::say("ready")?;
    loop {
        subject::next_order()?;
        say_whether_intact(&mut memory)?;
    }
}

/// Were they rebuilt, they would be misjudged and split again and again.
fn what_was_not_worth_breaking_cools_down() -> Ended {
    let mut worker = random_access()?;
    let pid = worker.pid();
    let hold = || find::hold(pid).map_err(|refusal| refusal.to_string());
    let huge_pages = hold()?.huge_pages()?;
    // Half of them are 80 % bloat, half 20 %.
    let half = HugePages(1).base_pages().0 / 2;
    let options = Options { worth: BasePages(half), ..Options::default() };
    let mut cooling = CoolDown::new();
    let everything = BasePages(u64::MAX);
    let mut pass = Pass::new(vec![hold()?], everything, options, &cooling, Time::ZERO)?;
    let mut policy = Emd::new(emd::Options::default());
    pass.run(&mut policy, &mut cooling, Time::ZERO, &mut |_| Flow::Continue)?;
    let (split, cooled) = (pass.account().total().split.0, cooling.len() as u64);
    ensure!(is_near(cooled, split / 2, 0.05), "{cooled} of {split} cool down");
    let process = hold()?;
    process.collapse(&huge_pages)?;
    let pass = Pass::new(vec![process], everything, options, &cooling, Time(1))?;
    let admitted: HugePages = pass.maps().values().map(BloatMap::len).sum();
    ensure!(admitted.0 + cooled <= huge_pages.len() as u64, "{admitted} and {cooled} cooling");
    worker.check()?;
    Ok(())
}

fn locked_memory_is_refused() -> Ended {
    let mut locked = Subject::start("locked")?;
    let pid = locked.pid().to_string();
    let before = Holds::now(locked.pid())?;
    let rows = debloat(&[&pid, "--all"])?;
    ensure!(number(&rows[0], "left_alone_refused")? >= OWN.0, "{}", rows[0]);
    ensure!(number(&rows[0], "split")? == 0, "{}", rows[0]);
    ensure!(Holds::now(locked.pid())?.huge == before.huge, "some were split");
    let said = locked.order("check")?;
    ensure!(said == "intact", "it says {said:?}");
    Ok(())
}

/// Threads that map memory, write all over it, check it and unmap it, until told to stop.
fn be_wild() -> Ended {
    const THREADS: usize = 4;
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|seed| scope.spawn(move || go_wild(seed, stop)));
        let threads: Vec<_> = threads.collect();
        let told = subject::say("ready").and_then(|()| subject::next_order());
        stop.store(true, Ordering::Relaxed);
        let mut rounds = 0;
        for thread in threads {
            rounds += thread.join().map_err(|_| "a thread panicked")??;
        }
        told?;
        subject::say(&format!("intact after {rounds}"))
    })
}

/// Maps and unmaps memory with something in some base pages of it; says how often.
fn go_wild(seed: usize, stop: &AtomicBool) -> Result<usize, Failed> {
    let mut round = 0;
    let mut kept: Vec<OwnMemory> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let step = seed + 2;
        let mut memory =
            OwnMemory::map(HugePages(4 + (round as u64 + seed as u64) % 5), Wish::HugePages)?;
        for (page, bytes) in pages(memory.bytes_mut()).filter(|(page, _)| page % step == 0) {
            bytes.fill(pattern(page));
        }
        kept.push(memory);
        // Some live a little longer than others.
        let at = round % kept.len();
        for (page, bytes) in pages(kept[at].bytes_mut()) {
            let expected = if page % step == 0 { pattern(page) } else { 0 };
            ensure!(bytes.iter().all(|byte| *byte == expected), "page {page} of round {round}");
        }
        if kept.len() > 4 {
            kept.swap_remove(at);
        }
        round += 1;
    }
    Ok(round)
}

fn a_wild_process_loses_nothing() -> Ended {
    let mut wild = Subject::start("wild")?;
    let pid = wild.pid().to_string();
    let mut split = 0;
    for policy in Registry::published().names().into_iter().cycle().take(40) {
        let said = superpage(&["debloat", &pid, "--all", "--json", "--policy", policy])?.done()?;
        split += number(&said.rows()?[0], "split")?;
    }
    let said = wild.order("stop")?;
    ensure!(said.starts_with("intact after ") && said != "intact after 0", "it says {said:?}");
    ensure!(split > 100, "only {split} huge pages were split under it");
    Ok(())
}

/// A process whose writes are followed: by soft-dirty bits, which are cleared, or where the kernel keeps none by a userfaultfd.
fn be_watched() -> Ended {
    let mut memory = OwnVma::private(OWN)?;
    memory.use_huge_pages()?;
    for (page, bytes) in pages(memory.bytes_mut()) {
        bytes.fill(if page % 2 == 0 { pattern(page) } else { 0 });
    }
    match smaps_flags::kernel_has_soft_dirty() {
        true => std::fs::write("/proc/self/clear_refs", "4")?,
        false => memory.watch_writes()?,
    }
    say("ready")?;
    next_order().map(|_| ())
}

fn whose_writes_are_followed_is_left_alone() -> Ended {
    let subject = Subject::start("watched")?;
    let before = Holds::now(subject.pid())?;
    ensure!(before.huge >= OWN, "{before:?}");
    let said = debloat(&[&subject.pid().to_string(), "--all"])?;
    let after = Holds::now(subject.pid())?;
    ensure!(after.huge == before.huge, "{before:?}, then {after:?}: {said:?}");
    // Without soft-dirty bits the memory is watched by a userfaultfd that the process holds, and no huge page of it is listed.
    let counted = number(&said[0], "left_alone_followed")?;
    ensure!(counted >= OWN.0 || !smaps_flags::kernel_has_soft_dirty(), "{said:?}");
    Ok(())
}

/// And is put back when it is over, or is interrupted.
fn khugepaged_is_held_for_as_long_as_asked() -> Ended {
    let limit = || -> Result<BasePages, Failed> {
        Ok(Thp::under(Path::new("/sys")).get(thp::MAX_PTES_NONE)?)
    };
    let before = limit()?;
    let mut worker = random_access()?;
    let pid = worker.pid().to_string();
    // A child of a test under nohup ignores SIGHUP too.
    let closed = match own_beginning::ignored(Signal::HUP.as_raw()) {
        true => Signal::TERM,
        false => Signal::HUP,
    };
    let interrupts = [None, Some(Signal::INT), Some(closed)];
    for (time, interrupt) in ["1s", "10min", "10min"].into_iter().zip(interrupts) {
        let mut child = Command::new(PROGRAM)
            .args(["debloat", &pid, "--fraction", "1%", "--hold", time])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        wait_for("khugepaged to be held", Duration::from_secs(20), || {
            let is_held = limit()? < BasePages(BASE_PAGES_PER_HUGE_PAGE / 10);
            Ok((is_held || before < BasePages(31)).then_some(()))
        })?;
        if let Some(signal) = interrupt {
            let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).ok_or("no pid")?;
            rustix::process::kill_process(pid, signal)?;
        }
        let status = child.wait()?;
        ensure!(status.code().is_some(), "it was killed: {status}");
        ensure!(status.success() || interrupt.is_some(), "{status}");
        ensure!(limit()? == before, "max_ptes_none is {} and was {before}", limit()?);
    }
    worker.check()?;
    Ok(worker.quit()?)
}

fn a_commands_name_cannot_command_the_terminal() -> Ended {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("a\u{1b}[2J\nb\u{9b}m");
    // A link, not a copy: one that another test's fork still has open for writing cannot be run.
    std::os::unix::fs::symlink("/bin/sleep", &program)?;
    let mut child = Command::new(&program).arg("60").spawn()?;
    let pid = child.id().to_string();
    let trace = directory.path().join("a.trace");
    let trace = trace.to_str().ok_or("UTF-8")?;
    let outputs = [
        superpage(&["scan", &pid]),
        superpage(&["record", &pid, "-o", trace, "--interval", "10ms", "--duration", "10ms"]),
        superpage(&["top", "--once", "--trace", trace]),
        superpage(&["promote", &pid, "--dry-run", "--json"]),
    ];
    child.kill()?;
    child.wait()?;
    for output in outputs {
        let shown = output?.done()?.out;
        ensure!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        // A trace replaces what a terminal would obey as soon as it is read.
        let spelled = ["a\\u{1b}[2J\\nb\\u{9b}m", "a\u{fffd}[2J", "a\\u001b[2J\\nb\\u009bm"];
        ensure!(spelled.iter().any(|name| shown.contains(name)), "{shown:?}");
    }
    Ok(())
}

fn a_thread_of_the_kernel_is_a_usage_error() -> Ended {
    let is_one = |pid: &Pid| {
        Process::open(*pid).and_then(|p| status::stat_of(&p)).is_ok_and(|s| s.is_kernel_thread())
    };
    let pid = process::list(Path::new("/proc"))?.into_iter().find(is_one);
    let pid = pid.ok_or("no thread of the kernel can be seen")?.to_string();
    for arguments in [&["scan", &pid][..], &["debloat", &pid, "--all"]] {
        let said = superpage(arguments)?;
        let is_said = said.err.contains("thread of the kernel") && said.err.contains(&pid);
        ensure!(said.code == Some(2) && is_said && said.err.lines().count() == 1, "{said:?}");
    }
    Ok(())
}

/// No huge page can be had to try abilities on, because the cgroup that it runs in has no room for one: that is no missing ability.
fn where_no_huge_page_is_free_it_goes_on() -> Ended {
    let mut worker = worker(WorkloadKind::RandomAccessR, Bytes::from_mib(64))?;
    let before = Holds::now(worker.pid())?;
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups are mounted")?;
    let group = Scratch::create(&hierarchy, &format!("superpage-short-{}", std::process::id()))?;
    // The program needs some 1.5 MiB of its own.
    group.limit(Bytes::from_kib(2560))?;
    let words = group.words();
    let pid = worker.pid().to_string();
    let run = |arguments: &[&str]| -> Result<Said, Failed> {
        let mut command = Command::new(&words[0]);
        Ok(command.args(&words[1..]).arg(PROGRAM).args(arguments).output()?.into())
    };
    let said = run(&["debloat", &pid, "--all"])?.done()?;
    ensure!(said.err.contains("could not tell whether we can"), "{said:?}");
    ensure!(Holds::now(worker.pid())?.huge < before.huge, "nothing was split: {said:?}");
    let said = run(&["promote", &pid, "--least", "512"])?;
    ensure!(said.code == Some(0), "{said:?}");
    let said = run(&["doctor"])?;
    ensure!(said.code == Some(3) && said.err.contains("could not tell whether"), "{said:?}");
    worker.check()?;
    Ok(worker.quit()?)
}
