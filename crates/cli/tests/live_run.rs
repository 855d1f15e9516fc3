//! Programs under `superpage run`: what they hold, what they see of it, and how they end.
//!
//! The programs are in `program/`, built here by the C compiler that Rust links with: `program.c`, for all kinds of calls
//! `calls.c`, for malloc `allocator.c`, for [`integrity`] and [`trouble`] those of these names. They check every byte that
//! they wrote; a wrong one is exit code 1.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;
mod integrity;
mod trouble;

use common::machine::{self, Test};
use common::{Ended, PROGRAM, Said, compile, number, superpage, without};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use superpage_kernel::hugetlb;
use superpage_kernel::settings::{Mode, Settings};
use superpage_lab::shortage::Shortage;
use superpage_manager::find;
use superpage_units::{GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES, PageSize};
use tempfile::TempDir;

fn main() -> ExitCode {
    machine::run(tests()).exit_code()
}

fn tests() -> Vec<Test> {
    [guests(), allocators_and_others(), callers(), of_bloat(), integrity::tests(), trouble::tests()]
        .concat()
}

/// The tests with `calls.c`.
fn callers() -> Vec<Test> {
    let able = without_library().or_else(machine::without_settings);
    let gigantic = able.clone().or_else(without_gigantic);
    vec![
        ("any_call_may_change_a_part", gigantic.clone(), || calls(&["changes"])),
        ("hints_leave_gigantic_pages", gigantic.clone(), || calls(&["hints"])),
        ("advice_about_itself_is_followed", gigantic.clone(), || calls(&["advises-itself"])),
        ("segments_attach_elsewhere_only", gigantic.clone(), || calls(&["attaches"])),
        ("the_heap_grows_as_without", gigantic, || calls(&["heap"])),
        ("a_limit_set_by_number_is_kept", able, a_limit_set_by_number_is_kept),
    ]
}

fn guests() -> Vec<Test> {
    let able = without_library().or_else(machine::without_settings);
    let gigantic = able.clone().or_else(without_gigantic);
    let parts = without_library();
    // The first GiB that is full takes one, and the test is about the second.
    let two = gigantic.clone().or_else(without_two_gigantic);
    vec![
        ("first_touches_get_gigantic_pages", gigantic.clone(), first_touches_get_gigantic_pages),
        ("the_pool_is_put_back", gigantic.clone(), the_pool_is_put_back),
        ("full_slots_are_promoted_later", two, full_slots_are_promoted_later),
        ("promotions_lose_no_write", gigantic.clone(), promotions_lose_no_write),
        (
            "promotions_while_the_program_writes_lose_nothing",
            gigantic.clone(),
            promotions_while_the_program_writes_lose_nothing,
        ),
        (
            "all_memory_is_on_gigantic_pages_at_once",
            gigantic.clone(),
            all_memory_is_on_gigantic_pages_at_once,
        ),
        (
            "all_memory_is_on_huge_pages_of_the_pool_at_once",
            able.clone(),
            all_memory_is_on_huge_pages_of_the_pool_at_once,
        ),
        ("forks_and_promotions_race", gigantic.clone(), forks_and_promotions_race),
        ("refused_promotions_change_nothing", gigantic.clone(), || plays(&["refuses"])),
        ("all_threads_keep_what_they_write", gigantic.clone(), all_threads_keep_what_they_write),
        ("closed_descriptors_lose_nothing", gigantic.clone(), closed_descriptors_lose_nothing),
        ("parts_of_a_gigantic_page_can_be_changed", able.clone(), || plays(&["parts"])),
        ("forks_share_nothing", able.clone(), || plays(&["forks"])),
        ("the_kernel_reads_and_writes", able.clone(), || plays(&["by-the-kernel"])),
        ("signal_handlers_map_and_touch", able.clone(), || plays(&["signals"])),
        ("a_stack_may_lie_in_a_gigantic_page", able.clone(), || plays(&["stacks"])),
        ("a_limit_of_address_space_is_kept", able.clone(), || plays(&["limited"])),
        ("writes_before_the_library_looks_stay", able.clone(), || plays(&["races"])),
        ("wrong_arguments_change_nothing", able.clone(), || plays(&["errors"])),
        ("a_cloned_child_is_a_fork", able.clone(), || plays(&["clones"])),
        ("the_last_thread_ends_the_process", able.clone(), the_last_thread_ends_the_process),
        (
            "allocated_memory_gets_gigantic_pages",
            gigantic.clone(),
            allocated_memory_gets_gigantic_pages,
        ),
        ("a_program_ends_as_without", parts.clone(), a_program_ends_as_without),
        ("signals_are_passed_on", parts.clone(), signals_are_passed_on),
        ("others_know_a_managed_program", parts.clone(), others_know_a_managed_program),
        ("others_see_three_sizes_of_pages", gigantic.clone(), others_see_three_sizes_of_pages),
        ("a_small_process_with_a_gigantic_page_is_seen", gigantic, a_small_process_is_seen),
        ("nobody_waits_for_a_stopped_program", parts.clone(), nobody_waits_for_a_stopped_program),
        (
            "the_dynamic_linker_has_its_program_managed",
            able.clone(),
            the_dynamic_linker_has_its_program_managed,
        ),
        (
            "who_cannot_be_managed_runs_unmanaged",
            parts.clone(),
            who_cannot_be_managed_runs_unmanaged,
        ),
        (
            "scripts_are_followed_and_children_left",
            parts.clone(),
            scripts_are_followed_and_children_left,
        ),
    ]
}

/// The tests of malloc, and those that others have written.
fn allocators_and_others() -> Vec<Test> {
    let parts = without_library();
    vec![
        ("malloc_does_what_c_says", parts.clone(), malloc_does_what_c_says),
        ("a_child_can_allocate", parts.clone(), a_child_can_allocate),
        ("an_allocator_of_its_own_is_kept", parts.clone(), an_allocator_of_its_own_is_kept),
        (
            "pythons_own_tests_pass",
            parts.clone().or_else(|| without(&["python3", "-c", "import test.test_mmap"])),
            pythons_own_tests_pass,
        ),
        (
            "stress_ng_finds_nothing_wrong",
            parts.clone().or_else(|| without(&["stress-ng", "--version"])),
            stress_ng_finds_nothing_wrong,
        ),
        ("off_leaves_memory_to_the_kernel", parts, off_leaves_memory_to_the_kernel),
    ]
}

fn of_bloat() -> Vec<Test> {
    let able = without_library().or_else(machine::without_settings).or_else(without_gigantic);
    let able = able.or_else(with_free_gigantic);
    vec![
        (
            "bloat_becomes_memory_when_it_is_short",
            able.clone(),
            bloat_becomes_memory_when_it_is_short,
        ),
        (
            "bloat_on_an_administrators_pages_becomes_memory_too",
            able,
            bloat_on_an_administrators_pages_becomes_memory_too,
        ),
    ]
}

/// The reason why no program can be built here. Where one does not compile, the tests fail.
fn without_library() -> Option<String> {
    let compiler = Command::new("cc").arg("--version").output();
    compiler.err().map(|error| format!("there is no C compiler (cc): {error}"))
}

/// The reason why no gigantic page can be had here: the kernel is asked for one, which is given back.
fn without_gigantic() -> Option<String> {
    let said = run(&["--quiet", "--ready", "0"], &["touch", "1"]);
    let gigantic = said.ok().and_then(|said| said.out.trim().parse::<u64>().ok());
    (gigantic != Some(GIGANTIC_PAGE_BYTES))
        .then(|| "the kernel finds no 1 GiB of contiguous memory".to_owned())
}

/// The reason why no two gigantic pages can be had here at a time.
fn without_two_gigantic() -> Option<String> {
    take_gigantic(2).err().map(|_| "the kernel finds no 2 GiB of contiguous memory".to_owned())
}

/// The directory of the programs, which are built once.
fn programs() -> &'static Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let names = &["program", "calls", "integrity", "trouble"];
    BUILT.get_or_init(|| common::build_programs("live_run", names))
}

fn command(options: &[&str], words: &[&str]) -> Result<Command, Failed> {
    command_of("program", options, words)
}

/// The command that starts one of the programs under `superpage run`.
fn command_of(name: &str, options: &[&str], words: &[&str]) -> Result<Command, Failed> {
    let program = programs().as_ref()?.join(name);
    let mut command = Command::new(PROGRAM);
    command.arg("run").args(options).arg("--").arg(program).args(words);
    Ok(command)
}

fn run(options: &[&str], words: &[&str]) -> Result<Said, Failed> {
    Ok(command(options, words)?.output()?.into())
}

/// Runs a part to its good end, and gives what it said and the report.
fn report(words: &[&str]) -> Result<(Said, Value), Failed> {
    report_with(&[], words)
}

/// As [`report`], with options of `superpage run`.
fn report_with(options: &[&str], words: &[&str]) -> Result<(Said, Value), Failed> {
    let (said, report) = report_of("program", options, words)?;
    Ok((said.done()?, report))
}

/// How one of the programs ended, and the report.
fn report_of(name: &str, options: &[&str], words: &[&str]) -> Result<(Said, Value), Failed> {
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let file = file.to_str().ok_or("no text")?;
    // Pages that are ready would count among those that the program sees mapped.
    let options = [&["--ready", "0", "--report", file], options].concat();
    let said = Said::from(command_of(name, &options, words)?.output()?);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    ensure!(report["managed"] == true, "not managed: {said:?} {report}");
    Ok((said, report))
}

/// Runs a part to its good end.
fn plays(words: &[&str]) -> Ended {
    report(words).map(|_| ())
}

/// The number that a program said first, mostly of bytes.
fn bytes(said: &Said) -> Result<u64, Failed> {
    Ok(said.out.lines().next().unwrap_or_default().parse()?)
}

// ---------------------------------------------------------------- memory

/// Free gigantic pages in the kernel's pool, put back when dropped. A request of the library waits for one second,
/// and a kernel may need longer.
fn take_gigantic(count: u64) -> Result<(Settings, TempDir), Failed> {
    take(PageSize::Gigantic, count)
}

/// As [`take_gigantic`], pages of any size.
fn take(size: PageSize, count: u64) -> Result<(Settings, TempDir), Failed> {
    let state = TempDir::new()?;
    let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
    let setting = hugetlb::setting(Path::new("/sys"), size);
    let mut pool = hugetlb::read(Path::new("/sys"), size)?;
    let wanted = (pool.used + count).to_string();
    // Frames that the test before has given back may still be on their way to the kernel's free lists.
    for _ in 0..5 {
        match settings.change(&setting, &wanted) {
            Ok(_) | Err(superpage_kernel::Error::NotTaken { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        pool = hugetlb::read(Path::new("/sys"), size)?;
        if pool.free >= count {
            return Ok((settings, state));
        }
        std::fs::write("/proc/sys/vm/compact_memory", "1")?;
        std::thread::sleep(Duration::from_secs(1));
    }
    Err(format!("the kernel found no {count} pages of {size}: {pool:?}").into())
}

fn first_touches_get_gigantic_pages() -> Ended {
    let _taken = take_gigantic(1)?;
    let (said, report) = report(&["touch", "1"])?;
    ensure!(bytes(&said)? == GIGANTIC_PAGE_BYTES, "{said:?}");
    ensure!(report["most_gigantic_pages"] == 1 && report["first_touches"] == 2, "{report}");
    ensure!(
        said.err.contains("1 GiB of it on 1 GiB pages") || said.err.contains("1.0 GiB of it"),
        "{said:?}"
    );
    Ok(())
}

fn the_pool_is_put_back() -> Ended {
    let pool = || hugetlb::read(Path::new("/sys"), PageSize::Gigantic);
    let before = pool()?;
    report(&["touch", "2"])?;
    ensure!(pool()? == before, "{:?}, before {before:?}", pool()?);
    Ok(())
}

fn all_threads_keep_what_they_write() -> Ended {
    let _taken = take_gigantic(1)?;
    let (said, report) = report(&["threads", "2"])?;
    ensure!(
        report["first_touches"].as_u64() == Some(bytes(&said)? / GIGANTIC_PAGE_BYTES),
        "{report}"
    );
    ensure!(report["first_touches"].as_u64() >= Some(1), "{report}");
    Ok(())
}

fn closed_descriptors_lose_nothing() -> Ended {
    let (_, report) = report(&["closes"])?;
    let served = |key: &str| report[key].as_u64().unwrap_or_default();
    // The second was touched when everything was closed.
    let both = served("first_touches") + served("first_touches_left_to_smaller");
    ensure!(both == 2, "{report}");
    Ok(())
}

fn full_slots_are_promoted_later() -> Ended {
    let _taken = take_gigantic(2)?;
    let (said, report) = report(&["packed"])?;
    ensure!(bytes(&said)? >= GIGANTIC_PAGE_BYTES, "{said:?} {report}");
    ensure!(report["promotions"].as_u64() >= Some(1) && report["first_touches"] == 0, "{report}");
    Ok(())
}

/// Programs promote and demote for so many seconds.
const PROMOTING: &str = "15";

/// Threads of the program, direct reads and another process write while a GiB is promoted and demoted.
fn promotions_lose_no_write() -> Ended {
    let _taken = take_gigantic(1)?;
    let (said, report) = report(&["promotes", PROMOTING])?;
    let races = bytes(&said)?;
    println!("{races} promotions raced with such writes");
    ensure!(races >= 1, "{said:?} {report}");
    // Many are refused, because a descriptor for direct reads is open.
    ensure!(report["promotions"].as_u64() >= Some(4), "{said:?} {report}");
    ensure!(report["demotions"].as_u64() >= Some(4), "{said:?} {report}");
    Ok(())
}

/// Threads of the program write while a GiB is copied, and is demoted.
fn promotions_while_the_program_writes_lose_nothing() -> Ended {
    let _taken = take_gigantic(1)?;
    let (said, report) = report_with(&[], &["promotes-alone", PROMOTING])?;
    // A round takes some seconds where the writers leave the copying thread little of the processors.
    ensure!(report["promotions"].as_u64() >= Some(1), "{said:?} {report}");
    ensure!(report["demotions"].as_u64() >= Some(1), "{said:?} {report}");
    Ok(())
}

fn all_memory_is_on_gigantic_pages_at_once() -> Ended {
    let options = ["--policy", "hugetlb-1g"];
    let taken = take_gigantic(1)?;
    let (said, report) = report_with(&options, &["touch", "1"])?;
    ensure!(bytes(&said)? >= GIGANTIC_PAGE_BYTES, "{said:?} {report}");
    ensure!(report["longest_first_touch_ns"] == 0, "mapped at a touch: {report}");
    drop(taken);
    for part in ["parts", "forks", "clones"] {
        report_with(&options, &[part])?;
    }
    Ok(())
}

/// The same with pages of 2 MiB, whose pool is enlarged by what maps 1 GiB, and put back.
fn all_memory_is_on_huge_pages_of_the_pool_at_once() -> Ended {
    let options = ["--policy", "hugetlb-2m"];
    let pool = || hugetlb::read(Path::new("/sys"), PageSize::Huge);
    let before = pool()?;
    for part in [&["touch", "1"][..], &["parts"], &["forks"], &["clones"]] {
        let (_, report) = report_with(&options, part)?;
        ensure!(
            report["most_pool_huge_pages"].as_u64() >= Some(GIGANTIC_PAGE_BYTES / HUGE_PAGE_BYTES)
                && report["most_gigantic_pages"] == 0,
            "{part:?} {report}"
        );
        ensure!(report["refused"].as_object().is_some_and(|r| r.is_empty()), "{part:?} {report}");
    }
    let managed = Managed::start_with(&options, &["holds", "1"])?;
    let row = managed.scanned()?;
    ensure!(number(&row, "left_alone_huge_bytes")? >= GIGANTIC_PAGE_BYTES, "{row}");
    ensure!(number(&row, "gigantic_bytes")? == 0, "{row}");
    drop(managed);
    ensure!(pool()? == before, "{:?}, before {before:?}", pool()?);
    Ok(())
}

/// A promotion takes some 300 ms, so forks come before it, at each of its steps, and after it.
fn forks_and_promotions_race() -> Ended {
    let _taken = take_gigantic(1)?;
    let mut promotions = 0;
    for step in 0..5 {
        let words = ["forks-meanwhile", &(step * 90).to_string()];
        let (_, report) = report_with(&[], &words)?;
        promotions += report["promotions"].as_u64().unwrap_or_default();
    }
    ensure!(promotions > 0, "no fork met a promotion");
    Ok(())
}

/// Runs a part of `calls.c` to its good end, with one gigantic page to be had.
fn calls(words: &[&str]) -> Ended {
    let _taken = take_gigantic(1)?;
    let (said, _) = report_of("calls", &[], words)?;
    said.done().map(|_| ())
}

fn a_limit_set_by_number_is_kept() -> Ended {
    for call in ["setrlimit", "prlimit64"] {
        report_of("calls", &[], &[call])?.0.done()?;
    }
    Ok(())
}

/// Runs a program that uses a quarter of a gigantic page, and makes memory short by `lower` and by a shortage until the
/// kernel's pool has no more pages than `least`.
fn gives_bloat_back(least: u64, lower: impl FnOnce() -> Ended) -> Ended {
    let directory = TempDir::new()?;
    let (state, file) = (directory.path().join("state"), directory.path().join("report.json"));
    let report = file.to_str().ok_or("no text")?;
    let mut managed = Managed::start_with(&["--report", report], &["sparse", "60"])?;
    lower()?;
    let (mut settings, _) = Settings::open(&state, Mode::Apply)?;
    let mut shortage = Shortage::make(&mut settings)?;
    // All pages, also those that are used beyond the setting. The program ends after a minute if it is not given back.
    let end = Instant::now() + Duration::from_secs(60);
    let pages =
        || hugetlb::read(Path::new("/sys"), PageSize::Gigantic).map(|pool| pool.used + pool.free);
    while pages()? > least && managed.run.try_wait()?.is_none() && Instant::now() < end {
        shortage.hold()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    let has_ended = managed.run.try_wait()?.is_some();
    let left = pages()?;
    drop(shortage);
    drop(managed.run.stdin.take());
    let status = managed.run.wait()?;
    ensure!(status.success() && !has_ended, "{status:?}, too early: {has_ended}");
    ensure!(left <= least, "{left} pages are in the pool, not {least}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    ensure!(report["first_touches"] == 1 && report["demotions"] == 1, "{report}");
    ensure!(report["refused"].as_object().is_some_and(|refused| refused.is_empty()), "{report}");
    Ok(())
}

/// The reason why a page that becomes memory again could not be told from one that was free all the time.
fn with_free_gigantic() -> Option<String> {
    let free = hugetlb::read(Path::new("/sys"), PageSize::Gigantic).ok()?.free;
    (free > 0).then(|| {
        format!("the kernel's pool of 1 GiB pages has {free} free pages: make it smaller, if nobody needs them")
    })
}

fn bloat_becomes_memory_when_it_is_short() -> Ended {
    // The kernel finds a page that was in one piece a moment ago within the second for which the library waits.
    drop(take_gigantic(1)?);
    let least = hugetlb::read(Path::new("/sys"), PageSize::Gigantic)?.size;
    gives_bloat_back(least, || Ok(()))
}

/// This run enlarged no pool. The page becomes memory because the pool was told to be smaller.
fn bloat_on_an_administrators_pages_becomes_memory_too() -> Ended {
    let least = hugetlb::read(Path::new("/sys"), PageSize::Gigantic)?.size;
    let (mut settings, _state) = take_gigantic(1)?;
    let lower = || {
        settings
            .change(&hugetlb::setting(Path::new("/sys"), PageSize::Gigantic), &least.to_string())?;
        Ok(())
    };
    gives_bloat_back(least, lower)
}

// ---------------------------------------------------------------- the program's end

fn the_last_thread_ends_the_process() -> Ended {
    let said = run(&["--quiet"], &["leaves"])?;
    ensure!(said.code == Some(3), "{said:?}");
    Ok(())
}

fn a_program_ends_as_without() -> Ended {
    for code in [0, 1, 42, 255] {
        let said = run(&["--quiet"], &["exit", &code.to_string()])?;
        ensure!(said.code == Some(code) && said.err.is_empty(), "{code}: {said:?}");
    }
    for signal in [Signal::KILL, Signal::SEGV, Signal::TERM] {
        let words = ["die".to_owned(), signal.as_raw().to_string()];
        let output = command(&["--malloc", "keep"], &[&words[0], &words[1]])?.output()?;
        ensure!(output.status.signal() == Some(signal.as_raw()), "{signal:?}: {output:?}");
        let said = Said::from(output).err;
        ensure!(!said.contains("0 B in the areas"), "{signal:?}: {said}");
    }
    let file = ["run", "--report", "/nowhere/report.json", "true"];
    let said: Said = Command::new(PROGRAM).args(file).output()?.into();
    ensure!(said.code == Some(2) && said.err.contains("cannot be written"), "{said:?}");
    let mut elsewhere = command(&[], &["exit", "5"])?;
    let said: Said = elsewhere.env("TMPDIR", "/nowhere").output()?.into();
    ensure!(said.code == Some(5) && said.err.contains("in the areas at most"), "{said:?}");
    let mut kept_out = command(&[], &["exit", "5"])?;
    let said: Said = kept_out.env("SUPERPAGE_OFF", "1").output()?.into();
    ensure!(said.code == Some(5) && said.err.contains("SUPERPAGE_OFF is set"), "{said:?}");
    let said: Said = Command::new(PROGRAM).args(["run", "no-such-program"]).output()?.into();
    ensure!(said.code == Some(127) && said.err.contains("was not found"), "{said:?}");
    let said: Said = Command::new(PROGRAM).args(["run", "/etc/passwd"]).output()?.into();
    ensure!(said.code == Some(126) && said.err.contains("may not be executed"), "{said:?}");
    Ok(())
}

fn signals_are_passed_on() -> Ended {
    let mut child = command(&["--quiet"], &["wait"])?.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "{line:?}");
    kill_process(Pid::from_child(&child), Signal::USR1)?;
    let status = child.wait()?;
    ensure!(status.signal() == Some(Signal::USR1.as_raw()), "{status:?}");
    Ok(())
}

// ---------------------------------------------------------------- seen from outside

/// A program under `superpage run` that waits; killed when dropped.
struct Managed {
    run: Child,
    program: Pid,
}

impl Managed {
    /// Starts a part, and waits until it is ready.
    fn start(words: &[&str]) -> Result<Self, Failed> {
        Self::start_with(&[], words)
    }

    /// As [`Managed::start`], with options of `superpage run`. The part's input ends when `run` has none any more.
    fn start_with(options: &[&str], words: &[&str]) -> Result<Self, Failed> {
        let options = [&["--quiet", "--ready", "0"], options].concat();
        let mut command = command(&options, words)?;
        let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(run.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "{line:?}");
        let children = format!("/proc/{0}/task/{0}/children", run.id());
        let program = std::fs::read_to_string(children)?.trim().parse()?;
        Ok(Self { run, program: Pid::from_raw(program).ok_or("no process")? })
    }

    fn pid(&self) -> String {
        self.program.as_raw_nonzero().to_string()
    }

    /// The row about it in `superpage scan --json`.
    fn scanned(&self) -> Result<Value, Failed> {
        scanned(self.program)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // The process may be gone by itself.
        let _ = kill_process(self.program, Signal::KILL);
        let _ = self.run.wait();
    }
}

/// The row about a process in `superpage scan --json`.
fn scanned(program: Pid) -> Result<Value, Failed> {
    let rows = superpage(&["scan", "--json"])?.done()?.rows()?;
    let own = rows.into_iter().find(|row| row["pid"] == program.as_raw_nonzero().get());
    Ok(own.ok_or("not in the list")?)
}

/// A program that holds a gigantic page of the kernel's pool, without `superpage run`; ended when dropped.
struct Holder(Child);

impl Holder {
    fn start() -> Result<Self, Failed> {
        let program = programs().as_ref()?.join("program");
        let mut holder = Self(Command::new(program).arg("hugetlb").stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "it has no page: {line:?}");
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Hugetlb memory is not resident, so such a process is smaller than those that are looked at otherwise.
fn a_small_process_is_seen() -> Ended {
    let _taken = take_gigantic(1)?;
    let holder = Holder::start()?;
    let row = scanned(Pid::from_child(&holder.0))?;
    ensure!(number(&row, "gigantic_bytes")? == GIGANTIC_PAGE_BYTES, "{row}");
    ensure!(
        number(&row, "huge_pages")? == 0 && number(&row, "left_alone_huge_bytes")? == 0,
        "{row}"
    );
    Ok(())
}

/// The daemon and `scan` ask this before they read or change memory.
fn others_know_a_managed_program() -> Ended {
    let managed = Managed::start(&["wait"])?;
    let pid = managed.pid().parse()?;
    ensure!(find::hold(superpage_units::Pid(pid))?.excludes_memory()?, "taken for another program");
    let us = superpage_units::Pid(managed.run.id());
    ensure!(!find::hold(us)?.excludes_memory()?, "`superpage run` itself manages no memory");
    Ok(())
}

fn others_see_three_sizes_of_pages() -> Ended {
    let _taken = take_gigantic(1)?;
    let managed = Managed::start(&["holds", "1"])?;
    let row = managed.scanned()?;
    ensure!(number(&row, "gigantic_bytes")? == GIGANTIC_PAGE_BYTES, "{row}");
    ensure!(number(&row, "left_alone_huge_bytes")? >= HUGE_PAGE_BYTES, "{row}");
    ensure!(number(&row, "base_bytes")? > 0 && number(&row, "huge_pages")? == 0, "{row}");
    let pid = managed.pid();
    for arguments in [&["scan"][..], &["scan", &pid]] {
        let text = superpage(arguments)?.done()?.out;
        ensure!(text.contains("in 1 GiB pages") && text.contains("1.0 GiB"), "{text}");
    }
    let state = TempDir::new()?;
    let state = state.path().to_str().ok_or("no text")?;
    let text = superpage(&["top", "--once", "--state", state])?.done()?.out;
    let row = text.lines().find(|line| line.contains(&format!(" {pid} ")));
    ensure!(text.contains("GIGANTIC") && row.is_some_and(|r| r.contains("1.0 GiB")), "{text}");
    Ok(())
}

/// Whoever read memory that the stopped program is to fill would wait until it goes on.
fn nobody_waits_for_a_stopped_program() -> Ended {
    let managed = Managed::start(&["holds", "1"])?;
    kill_process(managed.program, Signal::STOP)?;
    let before = number(&managed.scanned()?, "left_alone_huge_bytes")?;
    let pid = managed.pid();
    let directory = TempDir::new()?;
    let path = |name| directory.path().join(name).to_str().map(str::to_owned);
    let (state, trace) = (path("").ok_or("no text")?, path("a.trace").ok_or("no text")?);
    let within_a_minute = |arguments: &[&str]| -> Result<Said, Failed> {
        let run = Command::new("timeout").args(["60", PROGRAM]).args(arguments).output()?;
        Said::from(run).done()
    };
    for arguments in [
        &["scan"][..],
        &["scan", &pid, "--exact"],
        &["top", "--once", "--state", &state],
        &["record", &pid, "--duration", "1s", "--exact", "-o", &trace],
    ] {
        within_a_minute(arguments)?;
    }
    let row = &within_a_minute(&["debloat", &pid, "--all", "--json"])?.rows()?[0];
    ensure!(number(row, "huge_pages")? == 0 && number(row, "split")? == 0, "{row}");
    let row = &within_a_minute(&["promote", &pid, "--json"])?.rows()?[0];
    ensure!(number(row, "were_huge")? == 0 && number(row, "promoted")? == 0, "{row}");
    let after = number(&managed.scanned()?, "left_alone_huge_bytes")?;
    ensure!(before == after && before >= HUGE_PAGE_BYTES, "{before} bytes, then {after}");
    Ok(())
}

// ---------------------------------------------------------------- who is managed

fn who_cannot_be_managed_runs_unmanaged() -> Ended {
    let directory = TempDir::new()?;
    let linked = directory.path().join("static");
    compile("program", &linked, &["-static"])?;
    let said: Said =
        Command::new(PROGRAM).arg("run").arg(&linked).args(["exit", "7"]).output()?.into();
    ensure!(said.code == Some(7) && said.err.contains("linked statically"), "{said:?}");
    let quietly = ["run", "--quiet"];
    let said: Said =
        Command::new(PROGRAM).args(quietly).arg(&linked).args(["exit", "7"]).output()?.into();
    ensure!(said.code == Some(7) && said.err.is_empty(), "{said:?}");
    // Its data may be larger than memory.
    let heap = ["run", "--heap", "/var/tmp", "--memory", "64M"];
    let said: Said =
        Command::new(PROGRAM).args(heap).arg(&linked).args(["exit", "7"]).output()?.into();
    ensure!(said.code == Some(3) && said.err.contains("cannot have a heap"), "{said:?}");
    Ok(())
}

/// The linker that is told which program to load is no program that is linked statically, as its file looks.
fn the_dynamic_linker_has_its_program_managed() -> Ended {
    let program = programs().as_ref()?.join("program");
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--report"]).arg(&file).args(["--", "/lib64/ld-linux-x86-64.so.2"]);
    command.arg(&program).args(["touch", "1"]);
    Said::from(command.output()?).done()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    ensure!(report["most_mapped_bytes"].as_u64() >= Some(GIGANTIC_PAGE_BYTES), "{report}");
    Ok(())
}

fn scripts_are_followed_and_children_left() -> Ended {
    let program = programs().as_ref()?.join("program");
    let directory = TempDir::new()?;
    let script = directory.path().join("script");
    // The child is left alone; the program that takes the script's place is managed.
    let text = format!("#!/bin/sh\n{0} touch 1 >&2\nexec {0} touch 2\n", program.display());
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let file = directory.path().join("report.json");
    let output =
        Command::new(PROGRAM).args(["run", "--report"]).arg(&file).arg(&script).output()?;
    Said::from(output).done()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    let expected = 2 * GIGANTIC_PAGE_BYTES;
    ensure!(report["most_mapped_bytes"].as_u64() >= Some(expected), "{report}");
    ensure!(
        report["most_mapped_bytes"].as_u64() < Some(expected + GIGANTIC_PAGE_BYTES),
        "{report}"
    );
    Ok(())
}

// ---------------------------------------------------------------- malloc

/// Runs a part of `allocator.c`, built with these options, to its good end; what it said, and the report.
fn allocates(built: &[&str], options: &[&str], words: &[&str]) -> Result<(Said, Value), Failed> {
    programs().as_ref()?; // and the libraries
    let directory = TempDir::new()?;
    let program = directory.path().join("allocator");
    compile("allocator", &program, built)?;
    let file = directory.path().join("report.json");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--ready", "0", "--report"]).arg(&file).args(options);
    let said = Said::from(command.arg("--").arg(&program).args(words).output()?).done()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    ensure!(report["managed"] == true, "not managed: {report}");
    Ok((said, report))
}

fn allocated_memory_gets_gigantic_pages() -> Ended {
    let _taken = take_gigantic(1)?;
    let (said, report) = allocates(&[], &[], &["fills", "2200"])?;
    ensure!(bytes(&said)? >= GIGANTIC_PAGE_BYTES, "{said:?} {report}");
    Ok(())
}

fn malloc_does_what_c_says() -> Ended {
    allocates(&[], &[], &["functions"]).map(|_| ())
}

/// A thread is in the middle of getting memory when another one forks.
fn a_child_can_allocate() -> Ended {
    allocates(&["-rdynamic", "-DSLOW"], &[], &["forks"]).map(|_| ())
}

/// 64 MiB is mimalloc's first arena, which lies in the areas; glibc's memory does not.
fn an_allocator_of_its_own_is_kept() -> Ended {
    let mapped = |built: &[&str], options: &[&str]| -> Result<u64, Failed> {
        let (_, report) = allocates(built, options, &["fills", "200"])?;
        report["most_mapped_bytes"].as_u64().ok_or_else(|| format!("{report}").into())
    };
    let arena = 64 << 20;
    ensure!(mapped(&[], &[])? >= arena, "mimalloc's memory is not in the areas");
    for (built, options) in [(["-rdynamic", "-DOWN"], &[][..]), (["-O2"; 2], &["--malloc", "keep"])]
    {
        let mapped = mapped(&built, options)?;
        ensure!(mapped < arena, "{built:?} {options:?}: {mapped}");
    }
    Ok(())
}

// ---------------------------------------------------------------- programs of others

/// Runs a command to its good end, unless it has another without us.
fn runs(command: &[&str]) -> Ended {
    programs().as_ref()?; // and the libraries
    let output = Command::new(PROGRAM).args(["run", "--quiet", "--"]).args(command).output()?;
    match Said::from(output).done() {
        Err(failed) if without(command).is_none() => Err(failed),
        _ => Ok(()),
    }
}

fn pythons_own_tests_pass() -> Ended {
    // This test fails without us as well on some builds.
    let ignored = ["-i", "test_import_from_another_thread"];
    let command = ["python3", "-m", "test", "-q"].into_iter().chain(ignored);
    runs(&command.chain(["test_mmap", "test_threading"]).collect::<Vec<_>>())
}

fn stress_ng_finds_nothing_wrong() -> Ended {
    let kinds = ["--vm", "--mmap", "--mremap", "--malloc", "--fork"];
    let kinds = kinds.iter().flat_map(|kind| [*kind, "1"]);
    let sizes = ["--vm-bytes", "300M", "--mmap-bytes", "300M", "--mremap-bytes", "300M"];
    let command = ["stress-ng"].into_iter().chain(kinds).chain(sizes);
    runs(&command.chain(["--verify", "--timeout", "5"]).collect::<Vec<_>>())
}

fn off_leaves_memory_to_the_kernel() -> Ended {
    let said = run(&["--policy", "off"], &["touch", "1"])?.done()?;
    ensure!(bytes(&said)? == 0, "{said:?}");
    Ok(())
}
