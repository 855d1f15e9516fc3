//! Programs whose memory lives in a file, `superpage run --heap`: they read what they wrote, whatever is done to them.
//!
//! The program is `program/heap.c`, built here by the C compiler. It compares every word that it reads; a wrong one is exit
//! code 1, and a hang is ended after [`PATIENCE`].

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;
mod heap_advice;
mod heap_trouble;

use common::machine::{self, Test};
use common::{Ended, PROGRAM, Said, number, wait_for, without};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use superpage_kernel::{meminfo, status};
use superpage_units::Bytes;
use tempfile::TempDir;

/// The files lie on a disk, which /tmp may not be.
const DISK: &str = "/var/tmp";

/// The memory of most programs: two fifths of what they have at once at the least.
const MEMORY: &str = "64M";
const MEMORY_BYTES: u64 = 64 << 20;

/// Each part takes some seconds where nobody else is at work.
const PATIENCE: &str = "120";
const SHORT_PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    machine::run(
        [parts(), others(), sizes(), heap_advice::tests(), heap_trouble::tests(), words()].concat(),
    )
    .exit_code()
}

/// The parts of the program that only have to end well.
fn parts() -> Vec<Test> {
    let able = without_heap();
    vec![
        ("all_orders_read_what_was_written", able.clone(), || plays(&["orders"])),
        ("a_page_that_was_written_is_never_clean", able.clone(), || plays(&["counters", "5"])),
        ("the_kernel_reads_and_writes", able.clone(), || plays(&["by-the-kernel"])),
        ("devices_write_while_pages_move", able.clone(), || plays(&["direct-reads", "3"])),
        ("what_is_given_up_reads_zeroes", able.clone(), || plays(&["gives-up"])),
        ("what_is_mapped_anew_reads_zeroes", able.clone(), || plays(&["maps-anew"])),
        ("mremap_keeps_content", able.clone(), || plays(&["moves"])),
        ("files_may_lie_over_the_heap", able.clone(), || plays(&["maps-files"])),
        ("mprotect_does_what_posix_says", able.clone(), || plays(&["protects"])),
        ("mprotect_and_paging_race", able.clone(), || plays(&["protects-meanwhile", "2"])),
        ("huge_pages_that_are_cut_leave", able.clone(), || plays(&["cuts"])),
        ("protected_memory_leaves", able.clone(), || plays(&["protects-all"])),
        ("mlock_keeps_pages_in_memory", able.clone(), || plays(&["locks"])),
        ("no_more_is_in_memory_than_asked", able.clone(), || plays(&["bounded", "84"])),
        ("pieces_of_ranges_are_no_more_than_they_are", able.clone(), || plays(&["pieces", "84"])),
        ("not_all_of_a_heap_is_locked", able.clone(), || plays(&["locks-all"])),
        ("guards_are_kept_or_refused", able.clone(), || plays(&["guards"])),
        ("parent_and_child_write_apart", able.clone(), || plays(&["forks"])),
        ("pages_shared_with_a_child_leave", able.clone(), || plays(&["shares"])),
        ("forks_while_threads_write", able.clone(), || plays(&["forks-meanwhile", "4"])),
        ("children_of_children_write_apart", able.clone(), || plays(&["generations"])),
        ("children_of_different_moments_live", able.clone(), || plays(&["siblings"])),
        ("a_child_sees_one_moment", able.clone(), || plays(&["snapshots", "4"])),
        ("killed_children_give_their_pages_back", able.clone(), || plays(&["kills"])),
        ("other_programs_are_started", able.clone(), || plays(&["spawns"])),
        ("signal_handlers_touch_memory", able.clone(), || plays(&["handles", "2"])),
        ("stacks_may_lie_in_the_heap", able.clone(), || plays(&["stacks"])),
        ("closed_descriptors_lose_nothing", able, || plays(&["closes"])),
    ]
}

/// Tests of what other processes do to the program, and the program to them.
fn others() -> Vec<Test> {
    let able = without_heap();
    let redis = able.clone().or_else(|| without(&["redis-server", "--version"]));
    let python = able.clone().or_else(|| without(&["python3", "--version"]));
    vec![
        ("a_child_outlives_its_parent", able.clone(), a_child_outlives_its_parent),
        ("a_fork_reads_nothing", able.clone(), a_fork_reads_nothing),
        ("memory_shrinks_after_a_fork", able.clone(), memory_shrinks_after_a_fork),
        ("it_ends_as_without", able.clone(), it_ends_as_without),
        ("a_stopped_program_goes_on", able.clone(), a_stopped_program_goes_on),
        ("nothing_is_left_of_a_killed_program", able.clone(), nothing_is_left_of_a_killed_program),
        ("nothing_is_left_of_a_killed_run", able.clone(), nothing_is_left_of_a_killed_run),
        ("a_file_is_the_heap_of_one_run", able.clone(), a_file_is_the_heap_of_one_run),
        ("what_lies_outside_is_said_at_once", python.clone(), what_lies_outside_is_said_at_once),
        ("a_truncated_file_is_no_wrong_data", able.clone(), a_truncated_file_is_no_wrong_data),
        ("graphs_have_more_than_memory", able.clone(), graphs_have_more_than_memory),
        ("a_truncated_file_refuses_forks", able, a_truncated_file_refuses_forks),
        ("python_has_more_than_memory", python, python_has_more_than_memory),
        ("redis_has_more_than_memory", redis, redis_has_more_than_memory),
    ]
}

/// `superpage heap`.
fn sizes() -> Vec<Test> {
    let able = without_heap();
    vec![
        ("huge_pages_are_huge_in_the_kernel", able.clone(), huge_pages_are_huge_in_the_kernel),
        ("a_heap_grows_and_shrinks", able.clone(), a_heap_grows_and_shrinks),
        (
            "others_find_memory_available",
            able.clone().or_else(without_memory),
            others_find_memory_available,
        ),
        ("sizes_change_while_pages_are_written", able.clone(), sizes_change_while_it_writes),
        ("a_stopped_program_is_resized_later", able.clone(), a_stopped_program_is_resized_later),
        ("wrong_sizes_change_nothing", able.clone(), wrong_sizes_change_nothing),
        ("a_heap_that_is_too_small_is_named", able.clone(), a_heap_that_is_too_small_is_named),
        ("top_shows_heaps", able, top_shows_heaps),
    ]
}

/// The command line.
fn words() -> Vec<Test> {
    let able = without_heap();
    vec![
        ("wrong_words_are_refused", able.clone(), wrong_words_are_refused),
        ("wrong_places_are_refused", able.clone(), wrong_places_are_refused),
        ("without_rights_it_says_so", able, without_rights_it_says_so),
    ]
}

/// The reason why no program can have a heap here.
fn without_heap() -> Option<String> {
    let compiler = Command::new("cc").arg("--version").output();
    machine::without_first_touches()
        .or_else(|| Some(format!("there is no C compiler (cc): {}", compiler.err()?)))
        .or_else(|| {
            let words = ["run", "--quiet", "--heap", DISK, "--memory", MEMORY, "--", "true"];
            let said = Said::from(Command::new(PROGRAM).args(words).output().ok()?);
            said.err.contains("in memory itself").then_some(said.err)
        })
}

/// The program, which is built once.
fn program() -> Result<PathBuf, Failed> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let names = ["heap", "heap_trouble", "heap_integrity"];
    let built = BUILT.get_or_init(|| common::build_programs("live_heap", &names));
    Ok(built.as_ref()?.join("heap"))
}

/// `superpage run --heap`, whose report goes to a file, without the program.
fn run(report: &Path) -> Result<Command, Failed> {
    run_with(&["--memory", MEMORY, "--heap-size", "1G", "--quiet"], report)
}

/// The same, with these options.
fn run_with(options: &[&str], report: &Path) -> Result<Command, Failed> {
    program()?; // and the libraries
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", PATIENCE, PROGRAM, "run", "--heap", DISK]).args(options);
    command.arg("--report").arg(report).arg("--");
    Ok(command)
}

/// The path of another program of these tests, by its name.
fn other_program(name: &str) -> Result<PathBuf, Failed> {
    Ok(program()?.with_file_name(name))
}

/// How a program ended, and the report.
fn report_of(words: &[&str], command: &[&str]) -> Result<(Said, Value), Failed> {
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let mut run = run(&file)?;
    if command.is_empty() {
        run.arg(program()?);
    }
    let said = Said::from(run.args(command).args(words).output()?).done()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    ensure!(report["managed"] == true, "not managed: {said:?} {report}");
    ensure!(report["heap"]["errors"] == 0, "the file failed: {said:?} {report}");
    Ok((said, report))
}

/// Runs a part to its good end.
fn plays(words: &[&str]) -> Ended {
    report_of(words, &[]).map(|_| ())
}

/// Fails unless a program had much more than its memory.
fn was_paged(report: &Value) -> Ended {
    let heap = &report["heap"];
    let (read, written) = (number(heap, "read_bytes")?, number(heap, "written_bytes")?);
    ensure!(read >= MEMORY_BYTES && written >= MEMORY_BYTES, "hardly paged: {report}");
    Ok(())
}

// ---------------------------------------------------------------- others

fn a_child_outlives_its_parent() -> Ended {
    for part in ["becomes-daemon", "orphans"] {
        let (said, _) = report_of(&[part], &[])?;
        ensure!(said.out == "intact\n", "{part}: {said:?}");
    }
    Ok(())
}

/// Neither is the heap brought into memory, nor a child's part of it.
fn a_fork_reads_nothing() -> Ended {
    let (_, report) = report_of(&["forks-often"], &[])?;
    let read = number(&report["heap"], "read_bytes")?;
    ensure!(read <= MEMORY_BYTES, "{read} bytes were read: {report}");
    Ok(())
}

fn memory_shrinks_after_a_fork() -> Ended {
    let (said, report) = report_of(&["shrinks", "4"], &[])?;
    was_paged(&report)?;
    let resident: u64 = said.out.trim().parse()?;
    // The program and the libraries have some of their own.
    ensure!(resident <= MEMORY_BYTES + MEMORY_BYTES / 4, "{resident} bytes at the end: {report}");
    Ok(())
}

fn it_ends_as_without() -> Ended {
    let ends = |words: [&str; 2]| -> Result<ExitStatus, Failed> {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--heap", DISK, "--memory", MEMORY, "--quiet", "--"]);
        Ok(command.arg(program()?).args(words).status()?)
    };
    for code in [0, 1, 2, 3, 77] {
        ensure!(ends(["exits", &code.to_string()])?.code() == Some(code), "not {code}");
    }
    for signal in [Signal::TERM, Signal::KILL, Signal::ABORT] {
        let ended = ends(["dies", &signal.as_raw().to_string()])?;
        ensure!(ended.signal() == Some(signal.as_raw()), "not by {signal:?}: {ended:?}");
    }
    Ok(())
}

/// A program that has data in its file, and reads it when it is told to.
struct Waiting {
    run: Child,
    said: BufReader<ChildStdout>,
    program: Pid,
}

impl Waiting {
    fn start(place: &Path) -> Result<Self, Failed> {
        Self::start_with(place, &[])
    }

    /// Starts it as [`Waiting::start`] does, with these words more before the program's.
    fn start_with(place: &Path, words: &[&str]) -> Result<Self, Failed> {
        Self::start_in(place, words, None)
    }

    /// Starts it as [`Waiting::start_with`] does, with its temporary files in a directory.
    fn start_in(place: &Path, words: &[&str], temporary: Option<&Path>) -> Result<Self, Failed> {
        let mut command = Command::new(PROGRAM);
        command.envs(temporary.map(|directory| ("TMPDIR", directory)));
        command.args(["run", "--quiet", "--memory", MEMORY, "--heap-size", "512M", "--heap"]);
        command.arg(place).args(words).arg("--").arg(program()?).arg("waits");
        let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(run.stdout.take().ok_or("no output")?);
        let children = format!("/proc/{0}/task/{0}/children", run.id());
        let mut waiting = Self { program: Pid::from_child(&run), run, said };
        ensure!(waiting.line()? == "ready", "it is not ready");
        let child = std::fs::read_to_string(children)?.trim().parse()?;
        waiting.program = Pid::from_raw(child).ok_or("no program")?;
        Ok(waiting)
    }

    fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Tells it to do something.
    fn tell(&mut self, what: &str) -> Ended {
        Ok(writeln!(self.run.stdin.as_mut().ok_or("no input")?, "{what}")?)
    }

    /// As [`Waiting::tell`]; what it answers.
    fn ask(&mut self, what: &str) -> Result<String, Failed> {
        self.tell(what)?;
        self.line()
    }

    /// The file of its heap, as `superpage run` has it open.
    fn file(&self) -> Result<PathBuf, Failed> {
        for entry in std::fs::read_dir(format!("/proc/{}/fd", self.run.id()))? {
            let entry = entry?.path();
            let is_heap = std::fs::metadata(&entry)
                .is_ok_and(|status| status.is_file() && status.len() >= 100 << 20);
            if is_heap {
                return Ok(entry);
            }
        }
        Err("no heap is open".into())
    }

    /// Waits for its end.
    fn end(&mut self) -> Result<ExitStatus, Failed> {
        drop(self.run.stdin.take());
        wait_for("the end of the program", SHORT_PATIENCE, || Ok(self.run.try_wait()?))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Until `superpage run` is waited for, nobody else has these numbers.
        if matches!(self.run.try_wait(), Ok(None)) {
            let _ = kill_process(self.program, Signal::KILL);
            let _ = self.run.kill();
            let _ = self.run.wait();
        }
    }
}

fn a_stopped_program_goes_on() -> Ended {
    let mut waiting = Waiting::start(Path::new(DISK))?;
    waiting.tell("w")?;
    for _ in 0..5 {
        kill_process(waiting.program, Signal::STOP)?;
        std::thread::sleep(Duration::from_millis(50));
        kill_process(waiting.program, Signal::CONT)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(waiting.line()? == "right", "it is not right");
    ensure!(waiting.ask("r")? == "right" && waiting.end()?.success(), "it did not end well");
    Ok(())
}

fn nothing_is_left_of_a_killed_program() -> Ended {
    let directory = TempDir::new_in(DISK)?;
    let mut waiting = Waiting::start(directory.path())?;
    waiting.tell("w")?;
    kill_process(waiting.program, Signal::KILL)?;
    ensure!(waiting.end()?.signal() == Some(Signal::KILL.as_raw()), "not killed");
    ensure!(std::fs::read_dir(directory.path())?.next().is_none(), "something is left");
    Ok(())
}

/// The program goes on with its data, and nothing is left when it has ended.
fn nothing_is_left_of_a_killed_run() -> Ended {
    let (directory, temporary) = (TempDir::new_in(DISK)?, TempDir::new()?);
    let mut waiting = Waiting::start_in(directory.path(), &[], Some(temporary.path()))?;
    waiting.run.kill()?;
    ensure!(waiting.ask("w")? == "right" && waiting.ask("r")? == "right", "it is not right");
    drop(waiting.run.stdin.take());
    wait_for("the end of the program", SHORT_PATIENCE, || {
        Ok(test_kill_process(waiting.program).is_err().then_some(()))
    })?;
    for directory in [directory, temporary] {
        ensure!(std::fs::read_dir(directory.path())?.next().is_none(), "something is left");
    }
    Ok(())
}

/// A file is the heap of one run, also where two of them have found it empty.
fn a_file_is_the_heap_of_one_run() -> Ended {
    let directory = TempDir::new_in(DISK)?;
    let file = directory.path().join("heap");
    let held = File::create_new(&file)?;
    held.lock()?;
    let heap = file.to_str().ok_or("no text")?;
    let words = ["run", "--quiet", "--heap", heap, "--memory", MEMORY, "--", "true"];
    let said = Said::from(Command::new(PROGRAM).args(words).output()?);
    ensure!(said.code == Some(2) && said.err.contains("heap of another run"), "{said:?}");
    ensure!(held.metadata()?.len() == 0, "the file was changed");
    drop(held);
    Said::from(Command::new(PROGRAM).args(words).output()?).done().map(|_| ())
}

/// A mapping for which the heap has no room is said when it is made.
fn what_lies_outside_is_said_at_once() -> Ended {
    let python = "import mmap, sys; m = mmap.mmap(-1, 3 << 30); sys.stderr.write('mapped\\n')";
    let heap = ["run", "--quiet", "--heap", DISK, "--memory", MEMORY, "--heap-size", "1G"];
    let mut command = Command::new(PROGRAM);
    let said = Said::from(command.args(heap).args(["--", "python3", "-c", python]).output()?);
    let said = said.done()?;
    // The mapping is anonymous and shared with nobody in neither case.
    let private = python.replace("3 << 30", "3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS");
    let mut command = Command::new(PROGRAM);
    let outside = Said::from(command.args(heap).args(["--", "python3", "-c", &private]).output()?);
    let outside = outside.done()?;
    ensure!(said.err == "mapped\n", "a shared mapping is none of the heap's: {said:?}");
    let lines: Vec<&str> = outside.err.lines().collect();
    ensure!(
        lines.len() == 2 && lines[0].contains("has no room") && lines[1] == "mapped",
        "{outside:?}"
    );
    Ok(())
}

/// The program ends by SIGBUS, also where writes have made the file long again before the program reads.
fn a_truncated_file_is_no_wrong_data() -> Ended {
    for what in ["r", "w"] {
        let mut waiting = Waiting::start(Path::new(DISK))?;
        let other = Waiting::start(Path::new(DISK))?;
        // The program maps its memory before: the library maps nothing more once the file is truncated.
        ensure!(waiting.ask(what)? == "right", "it is not right before");
        File::options().write(true).open(waiting.file()?)?.set_len(0)?;
        waiting.tell(what)?;
        let ended = waiting.end()?;
        ensure!(ended.signal() == Some(Signal::BUS.as_raw()), "{what}: {ended:?}");
        let mut other = other;
        ensure!(other.ask("r")? == "right" && other.end()?.success(), "another one was harmed");
    }
    Ok(())
}

/// No child reads zeroes: fork answers ENOMEM, and daemon as well.
fn a_truncated_file_refuses_forks() -> Ended {
    for (what, answer) in [("f", "refused"), ("d", "refused")] {
        let mut waiting = Waiting::start(Path::new(DISK))?;
        ensure!(waiting.ask("f")? == "forked", "it does not fork");
        waiting.ask("w")?;
        File::options().write(true).open(waiting.file()?)?.set_len(0)?;
        let said = waiting.ask(what)?;
        ensure!(said == answer, "{what}: {said:?}");
    }
    Ok(())
}

// ---------------------------------------------------------------- sizes

/// Beside its heap the program has code, stacks, and the library's tables.
const BESIDE: u64 = 16 << 20;

/// `superpage heap` of a process, with these words.
fn heap_of(pid: Pid, words: &[&str]) -> Result<Said, Failed> {
    common::superpage(&[&["heap", &pid.as_raw_pid().to_string()], words].concat())
}

/// How the heap of a process stands.
fn state_of(pid: Pid, words: &[&str]) -> Result<Value, Failed> {
    Ok(serde_json::from_str(&heap_of(pid, &[words, &["--json"]].concat())?.done()?.out)?)
}

fn resident(pid: Pid) -> Result<u64, Failed> {
    let pid = superpage_units::Pid(pid.as_raw_pid().unsigned_abs());
    Ok(status::resident(Path::new("/proc"), pid)?.0)
}

fn in_memory(state: &Value) -> Result<u64, Failed> {
    Ok(number(state, "huge_bytes")? + number(state, "base_bytes")?)
}

/// The kernel maps by huge pages what the library counts as huge pages, also after they left memory and came back.
fn huge_pages_are_huge_in_the_kernel() -> Ended {
    let mut waiting = Waiting::start(Path::new(DISK))?;
    let pid = waiting.program;
    ensure!(waiting.ask("r")? == "right", "wrong");
    let counted = number(&state_of(pid, &[])?, "huge_bytes")?;
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_pid()))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let mapped = line.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let mapped = mapped.ok_or("smaps_rollup has no AnonHugePages")? << 10; // tidy: allow(KiB)
    // Memory of the kernel may be in pieces.
    ensure!(counted > MEMORY_BYTES / 2 && mapped > counted / 2, "{mapped} bytes of {counted}");
    ensure!(waiting.end()?.success(), "it did not end well");
    Ok(())
}

/// The program has 160 MiB, and checks them in each size.
fn a_heap_grows_and_shrinks() -> Ended {
    let mut waiting = Waiting::start(Path::new(DISK))?;
    let pid = waiting.program;
    ensure!(number(&state_of(pid, &[])?, "memory_bytes")? == MEMORY_BYTES, "not 64 MiB");
    let grown = state_of(pid, &["--memory", "192M"])?;
    ensure!(number(&grown, "memory_bytes")? == 192 << 20, "{grown}");
    ensure!(waiting.ask("r")? == "right", "wrong once it has grown");
    let grown = state_of(pid, &[])?;
    ensure!(in_memory(&grown)? > 2 * MEMORY_BYTES, "it has not grown: {grown}");
    ensure!(resident(pid)? > 2 * MEMORY_BYTES, "{} bytes resident", resident(pid)?);
    // While it works.
    waiting.tell("w")?;
    state_of(pid, &["--memory", "32M"])?;
    ensure!(waiting.line()? == "right", "wrong while it shrinks");
    shrinks_to(pid, 32 << 20)?;
    ensure!(waiting.ask("r")? == "right", "wrong once it has shrunk");
    // While it does nothing.
    state_of(pid, &["--memory", "192M"])?;
    ensure!(waiting.ask("r")? == "right", "wrong once it has grown again");
    let said = heap_of(pid, &["--memory", "16M"])?.done()?.out;
    ensure!(said.contains("16.0 MiB of its heap may be in memory"), "{said}");
    shrinks_to(pid, 16 << 20)?;
    ensure!(waiting.ask("r")? == "right" && waiting.end()?.success(), "it did not end well");
    Ok(())
}

/// Waits until no more of a heap is in memory than this, by its own count and by the kernel's.
fn shrinks_to(pid: Pid, most: u64) -> Ended {
    wait_for("a smaller heap", SHORT_PATIENCE, || {
        let (counted, resident) = (in_memory(&state_of(pid, &[])?)?, resident(pid)?);
        Ok((counted <= most && resident <= most + BESIDE).then_some(()))
    })
}

/// The reason why memory cannot be made short here: what is available changes by a GiB by itself.
fn without_memory() -> Option<String> {
    let memory = meminfo::read(Path::new("/proc")).ok()?;
    (memory.available < Bytes::from_gib(6)).then(|| format!("only {} available", memory.available))
}

fn others_find_memory_available() -> Ended {
    const GIB: u64 = 1 << 30;
    let available = meminfo::read(Path::new("/proc"))?.available;
    let keep = (available.0 - 3 * GIB).to_string();
    let mut waiting = Waiting::start_with(Path::new(DISK), &["--keep-available", &keep])?;
    let pid = waiting.program;
    ensure!(number(&state_of(pid, &[])?, "memory_bytes")? == MEMORY_BYTES, "not 64 MiB");
    let taken = vec![1_u8; 4 * usize::try_from(GIB)?];
    shrinks_to(pid, 16 << 20)?;
    let state = state_of(pid, &[])?;
    let (now, most) = (number(&state, "memory_bytes")?, number(&state, "most_memory_bytes")?);
    ensure!(now == 16 << 20 && most == MEMORY_BYTES, "{state}");
    let said = heap_of(pid, &[])?.done()?.out;
    ensure!(said.contains("instead of 64.0 MiB, because memory is short"), "{said}");
    ensure!(waiting.ask("r")? == "right", "wrong while memory is short");
    ensure!(std::hint::black_box(&taken).len() as u64 == 4 * GIB, "it was taken until now");
    drop(taken);
    wait_for("memory again", SHORT_PATIENCE, || {
        let memory = number(&state_of(pid, &[])?, "memory_bytes")?;
        Ok((memory == MEMORY_BYTES).then_some(()))
    })?;
    ensure!(waiting.ask("r")? == "right" && waiting.end()?.success(), "it did not end well");
    Ok(())
}

/// A write that is lost while pages leave and come back is a wrong count in the program.
fn sizes_change_while_it_writes() -> Ended {
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let mut run = run(&file)?.arg(program()?).args(["counters", "8"]).spawn()?;
    let children = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    // `timeout` has a child, `superpage run`, whose child is the program.
    let found = wait_for("the program", SHORT_PATIENCE, || {
        let run: Option<u32> = children(run.id())?.trim().parse().ok();
        let pid = run.and_then(|run| children(run).ok()?.trim().parse().ok());
        let pid = pid.and_then(Pid::from_raw);
        Ok(pid.filter(|pid| state_of(*pid, &[]).is_ok_and(|state| state["memory_bytes"] != 0)))
    });
    let mut changes = 0;
    for memory in ["24M", "200M", "32M", "96M"].iter().cycle() {
        let changed = found.as_ref().is_ok_and(|pid| state_of(*pid, &["--memory", memory]).is_ok());
        changes += usize::from(changed);
        if run.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    ensure!(run.wait()?.success(), "it did not end well");
    ensure!(found.is_ok() && changes > 5, "only {changes} sizes");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    ensure!(report["heap"]["errors"] == 0, "{report}");
    was_paged(&report)
}

fn a_stopped_program_is_resized_later() -> Ended {
    let mut waiting = Waiting::start(Path::new(DISK))?;
    let pid = waiting.program;
    kill_process(pid, Signal::STOP)?;
    let said = heap_of(pid, &["--memory", "32M"]);
    kill_process(pid, Signal::CONT)?;
    let said = said?;
    ensure!(said.code == Some(1) && said.err.contains("is stopped"), "{said:?}");
    shrinks_to(pid, 32 << 20)?;
    ensure!(waiting.ask("r")? == "right" && waiting.end()?.success(), "it did not end well");
    Ok(())
}

fn wrong_sizes_change_nothing() -> Ended {
    let mut waiting = Waiting::start(Path::new(DISK))?;
    let pid = waiting.program.as_raw_pid().to_string();
    let run = waiting.run.id().to_string();
    let heap = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("heap").args(words);
        command
    };
    for memory in ["0", "1M", "8388608", "-5", "0%", "200%", "2G", "many"] {
        is_refused(&mut heap(&[&pid, "--memory", memory]), &[2])?;
    }
    // Another process than one with a heap: this one's, and nobody's.
    let us = std::process::id().to_string();
    is_refused(&mut heap(&[&us]), &[2])?;
    is_refused(&mut heap(&[&us, "--memory", "64M"]), &[2])?;
    is_refused(&mut heap(&["4194305", "--memory", "64M"]), &[1])?;
    let caps = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"];
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(caps);
    other.args(["--bounding-set=-all,+dac_read_search", PROGRAM, "heap", &pid]);
    is_refused(&mut other, &[3])?;
    is_refused(other.args(["--memory", "32M"]), &[3])?;
    let memory = number(&state_of(waiting.program, &[])?, "memory_bytes")?;
    ensure!(memory == MEMORY_BYTES, "it has {memory} bytes now");
    // The number of `superpage run`, which a shell knows, stands for the program.
    let said = Said::from(heap(&[&run]).output()?).done()?.out;
    ensure!(said.contains(&format!("({pid}): 64.0 MiB of its heap of 640.0 MiB")), "{said}");
    ensure!(waiting.ask("r")? == "right" && waiting.end()?.success(), "it did not end well");
    Ok(())
}

/// Mappings that have no room are ordinary memory, and the report says so.
fn a_heap_that_is_too_small_is_named() -> Ended {
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let mut command = run_with(&["--memory", MEMORY, "--heap-size", MEMORY], &file)?;
    let said = Said::from(command.arg(program()?).arg("orders").output()?).done()?;
    ensure!(said.err.contains("had no room"), "{said:?}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let outside = number(&report["heap"], "outside_bytes")?;
    ensure!(outside >= MEMORY_BYTES, "{outside} bytes were outside");
    Ok(())
}

fn top_shows_heaps() -> Ended {
    let mut waiting = Waiting::start(Path::new(DISK))?;
    let shown = common::superpage(&["top", "--once"])?.done()?.out;
    let line = format!("heap ({})", waiting.program.as_raw_pid());
    let found = shown.lines().find(|shown| shown.contains(&line)).unwrap_or_default();
    ensure!(found.contains("of 64.0 MiB"), "{shown}");
    ensure!(waiting.end()?.success(), "it did not end well");
    Ok(())
}

// ---------------------------------------------------------------- programs of others

const SCRIPT: &str = "
import hashlib, random
blocks = [bytearray(random.Random(i).randbytes(1 << 20)) for i in range(128)]
sums = [hashlib.sha1(b).digest() for b in blocks]
words = {i: str(i) * 3 for i in range(300000)}
for _ in range(2):
    assert sums == [hashlib.sha1(b).digest() for b in blocks]
    assert all(words[i] == str(i) * 3 for i in range(300000))
blocks = [b + b for b in blocks[:64]]
assert all(hashlib.sha1(b[:1 << 20]).digest() == s for b, s in zip(blocks, sums))
try:
    import numpy
    a = numpy.arange(24 << 20)
    assert (a[::-1][::-1] == numpy.arange(24 << 20)).all() and a.sum() == (24 << 20) * ((24 << 20) - 1) // 2
except ImportError:
    pass
";

fn python_has_more_than_memory() -> Ended {
    let (_, report) = report_of(&[], &["python3", "-c", SCRIPT])?;
    was_paged(&report)
}

/// Arrays that ask for no pages are in the heap; those that do are the program's own.
fn graphs_have_more_than_memory() -> Ended {
    let directory = TempDir::new()?;
    let file = directory.path().join("graph.sg");
    let file = file.to_str().ok_or("no text")?;
    let made = ["graph", "generate", "kronecker", "--scale", "20", file];
    Said::from(Command::new(PROGRAM).args(made).output()?).done()?;
    let words = ["graph", "run", "bfs", file, "--json", "--repeat", "1", "--pages", "base"];
    let (own, report) = report_of(&words, &[PROGRAM])?;
    ensure!(report["heap"]["read_bytes"] == 0, "arrays on base pages are in the heap: {report}");
    let edges = ["--vertex-pages", "default", "--edge-pages", "default"];
    let (heap, report) = report_of(&[&words[..], &edges].concat(), &[PROGRAM])?;
    was_paged(&report)?;
    let result = |said: &Said| -> Result<Value, Failed> {
        Ok(serde_json::from_str::<Value>(&said.out)?["result"].take())
    };
    ensure!(result(&own)? == result(&heap)? && !result(&own)?.is_null(), "{own:?} {heap:?}");
    Ok(())
}

/// Values of 130 MB in all.
const FILL: &str = "
    for i = 1, 32000 do redis.call('set', i, string.rep(tostring(i), 4000 / #tostring(i))) end
    return 0";
/// The first value that is not as it was filled.
const CHECK: &str = "
    for round = 1, 2 do for i = 1, 32000 do
        if redis.call('get', i) ~= string.rep(tostring(i), 4000 / #tostring(i)) then return i end
    end end
    return 0";

/// A Redis, which listens in a directory.
struct Redis<'a> {
    run: Child,
    directory: &'a Path,
}

impl<'a> Redis<'a> {
    fn start(mut command: Command, directory: &'a Path) -> Result<Self, Failed> {
        command.args(["--port", "0", "--save", "", "--logfile", "/dev/null"]);
        command.args(["--busy-reply-threshold", "100000", "--rdbcompression", "no"]);
        command.arg("--dir").arg(directory);
        command.arg("--unixsocket").arg(directory.join("socket"));
        let redis = Self { run: command.stdout(Stdio::null()).spawn()?, directory };
        wait_for("redis", SHORT_PATIENCE, || Ok((redis.ask(&["ping"])? == "PONG").then_some(())))?;
        Ok(redis)
    }

    fn ask(&self, words: &[&str]) -> Result<String, Failed> {
        let mut client = Command::new("redis-cli");
        let client = client.arg("-s").arg(self.directory.join("socket")).args(words);
        Ok(Said::from(client.output()?).out.trim().to_owned())
    }

    /// Writes all values to the disk, in a child, and new ones to memory meanwhile.
    fn save(&self) -> Ended {
        self.ask(&["bgsave"])?;
        let overwritten =
            self.ask(&["eval", &FILL.replace("string.rep(", "'x'..string.rep("), "0"])?;
        ensure!(overwritten == "0", "not overwritten: {overwritten}");
        // The child reads its values in the order of their hashes, from a device that may be slow.
        let state = wait_for("the snapshot", 3 * SHORT_PATIENCE, || {
            let state = self.ask(&["info", "persistence"])?;
            Ok(state.contains("rdb_bgsave_in_progress:0").then_some(state))
        })?;
        ensure!(state.contains("rdb_last_bgsave_status:ok"), "{state}");
        Ok(())
    }

    fn end(mut self) -> Ended {
        self.ask(&["shutdown", "nosave"])?;
        let status = self.run.wait()?;
        ensure!(status.success(), "{status:?}");
        Ok(())
    }
}

impl Drop for Redis<'_> {
    fn drop(&mut self) {
        let _ = self.ask(&["shutdown", "nosave"]);
        if matches!(self.run.try_wait(), Ok(None)) {
            let _ = self.run.kill();
            let _ = self.run.wait();
        }
    }
}

/// A server with 130 MB of values, whose snapshot another one reads.
fn redis_has_more_than_memory() -> Ended {
    let directory = TempDir::new_in(DISK)?;
    let file = directory.path().join("report.json");
    let mut command = run(&file)?;
    command.arg("redis-server");
    let server = Redis::start(command, directory.path())?;
    for script in [FILL, CHECK] {
        let wrong = server.ask(&["eval", script, "0"])?;
        ensure!(wrong == "0", "value {wrong} is wrong");
    }
    server.save()?;
    server.end()?;
    let reader = Redis::start(Command::new("redis-server"), directory.path())?;
    let wrong = reader.ask(&["eval", CHECK, "0"])?;
    ensure!(wrong == "0", "value {wrong} of the snapshot is wrong");
    reader.end()?;
    was_paged(&serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

// ---------------------------------------------------------------- the command line

/// Fails unless a command line is refused with one sentence and one of these exit codes.
fn is_refused(command: &mut Command, codes: &[i32]) -> Ended {
    let said = Said::from(command.output()?);
    ensure!(said.code.is_some_and(|code| codes.contains(&code)), "{command:?}: {said:?}");
    ensure!(said.out.is_empty() && !said.err.contains("panicked"), "{command:?}: {said:?}");
    let first = said.err.lines().next().unwrap_or_default();
    ensure!(first.starts_with("superpage:") || first.starts_with("error:"), "{said:?}");
    Ok(())
}

fn wrong_words_are_refused() -> Ended {
    let wrong: [&[&str]; 12] = [
        &["--heap", DISK],
        &["--memory", "64M"],
        &["--heap-size", "64M"],
        &["--heap", DISK, "--memory", "64M", "--policy", "trident"],
        &["--heap", DISK, "--memory", "64M", "--children"],
        &["--heap", DISK, "--memory", "0"],
        &["--heap", DISK, "--memory", "1M"],
        &["--heap", DISK, "--memory", "200%"],
        &["--heap", DISK, "--memory", "0%"],
        &["--heap", DISK, "--memory", "-5"],
        &["--heap", DISK, "--memory", "64M", "--heap-size", "32M"],
        &["--heap", DISK, "--memory", "64M", "--heap-size", "8000000G"],
    ];
    for words in wrong {
        is_refused(Command::new(PROGRAM).arg("run").args(words).args(["--", "true"]), &[2])?;
    }
    Ok(())
}

fn wrong_places_are_refused() -> Ended {
    let directory = TempDir::new_in(DISK)?;
    let full = directory.path().join("full");
    std::fs::write(&full, "content")?;
    let places = ["/dev/null", "/proc", "/nowhere/at/all", full.to_str().ok_or("no text")?];
    for place in places {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--heap", place, "--memory", MEMORY, "--", "true"]);
        is_refused(&mut command, &[2])?;
    }
    ensure!(std::fs::read(&full)? == b"content", "its content is gone");
    let in_memory = Path::new("/dev/shm/superpage-heap-test");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--memory", MEMORY, "--heap"]).arg(in_memory).args(["--", "true"]);
    is_refused(&mut command, &[2])?;
    ensure!(!in_memory.exists(), "a file is left in memory");
    // An empty file is taken.
    let empty = directory.path().join("empty");
    File::create(&empty)?;
    let mut waiting = Waiting::start(&empty)?;
    ensure!(waiting.ask("r")? == "right" && waiting.end()?.success(), "it did not end well");
    Ok(())
}

/// Without the right to hear faults of the kernel no program is started.
fn without_rights_it_says_so() -> Ended {
    let device = std::fs::metadata("/dev/userfaultfd");
    let is_open = device.is_ok_and(|device| device.permissions().mode() & 0o006 == 0o006);
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    if is_open || setting.is_ok_and(|setting| setting.trim() == "1") {
        return Ok(()); // everybody has it
    }
    let caps = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"];
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(caps);
    command.args(["--bounding-set=-all,+dac_read_search", PROGRAM, "run", "--heap", DISK]);
    is_refused(command.args(["--memory", MEMORY, "--", "true"]), &[2, 3])
}
