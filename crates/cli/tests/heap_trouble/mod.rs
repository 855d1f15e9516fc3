//! Heaps on block devices, and bad luck: devices that shrink, that are full or taken away; debuggers; locks; threads of the
//! library that are killed. And all at once, which is integrity.
//!
//! Loop devices are the test's own, over files of its own.

use super::{
    DISK, MEMORY, MEMORY_BYTES, SHORT_PATIENCE, Waiting, is_refused, other_program, report_of, run,
    was_paged, without_heap,
};
use crate::common::machine::Test;
use crate::common::{Ended, PROGRAM, Said, number, superpage, wait_for, without};
use crate::ensure;
use libtest_mimic::Failed;
use rustix::process::{Signal, test_kill_process};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub(super) fn tests() -> Vec<Test> {
    let able = without_heap();
    let device = able.clone().or_else(without_loop);
    let mount = device.clone().or_else(without_mounts);
    let disk = mount.clone().or_else(|| without(&["mkfs.ext4", "-V"]));
    let zram = able.clone().or_else(without_zram);
    vec![
        ("a_block_device_holds_the_heap", device.clone(), a_block_device_holds_the_heap),
        ("a_device_is_taken_away_when_it_is_closed", device.clone(), a_device_is_taken_away),
        ("a_device_that_shrinks_is_no_wrong_data", device, a_device_that_shrinks),
        ("what_cannot_be_written_stays_in_memory", mount, what_cannot_be_written_stays),
        ("a_disk_that_is_full_is_said_at_the_start", disk.clone(), a_full_disk_is_said),
        ("a_disk_that_becomes_full_is_no_memory", disk, a_disk_that_becomes_full_is_no_memory),
        ("compressed_memory_holds_the_heap", zram.clone(), compressed_memory_holds_the_heap),
        ("compressed_memory_of_a_killed_run_goes", zram.clone(), compressed_memory_of_a_killed_run),
        ("compressed_memory_takes_root", zram, compressed_memory_takes_root),
        ("a_debugger_reads_what_is_not_in_memory", able.clone(), a_debugger_reads),
        ("more_than_memory_may_be_locked", able.clone(), more_than_memory_may_be_locked),
        ("more_than_memory_may_be_pinned", able.clone(), more_than_memory_may_be_pinned),
        (
            "pages_that_cannot_be_read_are_lost_alone",
            able.clone(),
            pages_that_cannot_be_read_are_lost_alone,
        ),
        ("locked_memory_may_be_forbidden", able.clone(), locked_memory_may_be_forbidden),
        ("a_thread_that_is_killed_ends_the_program", able.clone(), a_thread_that_is_killed),
        ("all_at_once_leaves_no_wrong_word", able, all_at_once_leaves_no_wrong_word),
    ]
}

// ---------------------------------------------------------------- devices

/// The reason why there are no loop devices here.
fn without_loop() -> Option<String> {
    Loop::over(Path::new(DISK), 1 << 20).err().map(|why| format!("no loop device: {why:?}"))
}

/// The reason why no file system can be mounted here.
fn without_mounts() -> Option<String> {
    Small::mount("tmpfs", "1M").err().map(|why| format!("no file system: {why:?}"))
}

fn without_zram() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    let is_there =
        Path::new("/sys/class/zram-control").exists() || without(&["modprobe", "zram"]).is_none();
    (!is_root)
        .then(|| "zram takes root".to_owned())
        .or_else(|| (!is_there).then(|| "no zram".into()))
}

/// The output of a command that must end well.
fn output_of(command: &[&str]) -> Result<String, Failed> {
    let (name, arguments) = command.split_first().ok_or("no command")?;
    Ok(Said::from(Command::new(name).args(arguments).output()?).done()?.out.trim().to_owned())
}

/// A loop device over a file without content. It goes when dropped.
struct Loop {
    device: String,
    _directory: TempDir,
}

impl Loop {
    /// A device of this many bytes, over a file in a directory.
    fn over(directory: &Path, length: u64) -> Result<Self, Failed> {
        let directory = TempDir::new_in(directory)?;
        let file = directory.path().join("device");
        File::create(&file)?.set_len(length)?;
        let device = output_of(&["losetup", "--find", "--show", file.to_str().ok_or("text")?])?;
        Ok(Self { device, _directory: directory })
    }

    /// A device as large as the heap of a [`Waiting`] program takes.
    fn for_waiting() -> Result<Self, Failed> {
        Self::over(Path::new(DISK), 600 << 20)
    }

    fn is_there(&self) -> Result<bool, Failed> {
        Ok(!output_of(&["losetup", "--associated", &self.file()])?.is_empty())
    }

    fn file(&self) -> String {
        self._directory.path().join("device").to_string_lossy().into_owned()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A test may have taken it away.
        let _ = Command::new("losetup").args(["--detach", &self.device]).output();
    }
}

fn a_block_device_holds_the_heap() -> Ended {
    let device = Loop::for_waiting()?;
    let place = Path::new(&device.device);
    let mut waiting = Waiting::start(place)?;
    ensure!(waiting.ask("r")? == "right" && waiting.ask("w")? == "right", "it is not right");
    ensure!(waiting.end()?.success(), "it did not end well");
    // Now it holds something, also where its beginning, which is looked at, has got none of the pages.
    OpenOptions::new().write(true).open(&device.device)?.write_all_at(b"data", 0)?;
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--heap", &device.device, "--memory", MEMORY, "--", "true"]);
    is_refused(&mut command, &[2])
}

/// The kernel keeps a device that is to go until it is closed.
fn a_device_is_taken_away() -> Ended {
    let device = Loop::for_waiting()?;
    let mut waiting = Waiting::start(Path::new(&device.device))?;
    output_of(&["losetup", "--detach", &device.device])?;
    ensure!(waiting.ask("w")? == "right" && waiting.ask("r")? == "right", "it is not right");
    ensure!(waiting.end()?.success(), "it did not end well");
    wait_for("the end of the device", SHORT_PATIENCE, || Ok((!device.is_there()?).then_some(())))
}

/// Reads and writes fail: the program ends by SIGBUS, and reads no zeroes.
fn a_device_that_shrinks() -> Ended {
    let device = Loop::for_waiting()?;
    let mut waiting = Waiting::start(Path::new(&device.device))?;
    let trouble = other_program("heap_trouble")?;
    let trouble = trouble.to_str().ok_or("no text")?;
    output_of(&[trouble, "shrinks", &device.device, "1048576"])?;
    waiting.tell("r")?;
    let ended = waiting.end()?;
    ensure!(ended.signal() == Some(Signal::BUS.as_raw()), "{ended:?}");
    Ok(())
}

/// A file system of the test's own. It goes when dropped.
struct Small {
    directory: TempDir,
}

impl Small {
    fn mount(kind: &str, size: &str) -> Result<Self, Failed> {
        let directory = TempDir::new()?;
        let place = directory.path().to_str().ok_or("no text")?;
        output_of(&["mount", "-t", kind, "-o", &format!("size={size}"), "superpage-test", place])?;
        Ok(Self { directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(self.path()).output();
    }
}

/// A device that takes a part of what it promises: writes fail in the middle.
fn what_cannot_be_written_stays() -> Ended {
    let full = Small::mount("tmpfs", "100M")?;
    let device = Loop::over(full.path(), 1100 << 20)?;
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let mut command = run_on(&device.device, &file)?;
    // Once more than the device takes.
    let said = Said::from(command.arg(super::program()?).arg("forks").output()?);
    ensure!(said.code == Some(0), "{said:?}");
    ensure!(said.err.contains("reads or writes of the heap's file failed"), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    ensure!(number(&report["heap"], "errors")? > 0, "nothing failed: {report}");
    Ok(())
}

/// As [`run`], with the heap in another place.
fn run_on(place: &str, report: &Path) -> Result<Command, Failed> {
    let mut command = Command::new("timeout");
    for argument in run(report)?.get_args() {
        command.arg(if argument == DISK { place.as_ref() } else { argument });
    }
    Ok(command)
}

/// Maps more than the disk has room for, and says which error that is.
const TOO_MUCH: &str = "
import mmap
def memory(mib):
    return mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held = memory(150)
for at in range(0, len(held), 4096):
    held[at] = at // 4096 % 251
try:
    memory(200)
    print('there was room')
except OSError as error:
    print(error.errno)
assert all(held[at] == at // 4096 % 251 for at in range(0, len(held), 4096))
";

fn a_disk_that_becomes_full_is_no_memory() -> Ended {
    let (_device, mounted) = small_disk(400)?;
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--memory", MEMORY, "--heap-size", "512M", "--heap"]).arg(mounted.path());
    let said = Said::from(command.args(["--", "python3", "-c", TOO_MUCH]).output()?).done()?;
    ensure!(said.out.trim() == "12", "ENOMEM was expected: {said:?}");
    ensure!(!said.err.contains("could not be written"), "{said:?}");
    Ok(())
}

/// A file system of this many MiB on a loop device.
fn small_disk(mib: u64) -> Result<(Loop, Small), Failed> {
    let device = Loop::over(Path::new(DISK), mib << 20)?;
    output_of(&["mkfs.ext4", "-q", &device.device])?;
    let mounted = TempDir::new()?;
    let place = mounted.path().to_str().ok_or("no text")?;
    output_of(&["mount", &device.device, place])?;
    Ok((device, Small { directory: mounted }))
}

fn a_full_disk_is_said() -> Ended {
    let (_device, mounted) = small_disk(60)?;
    for place in [mounted.path().to_owned(), mounted.path().join("file")] {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--memory", MEMORY, "--heap-size", "512M", "--heap"]).arg(place);
        is_refused(command.args(["--", "true"]), &[2])?;
    }
    let left = std::fs::read_dir(mounted.path())?.filter_map(Result::ok);
    let left: Vec<PathBuf> = left.map(|entry| entry.path()).collect();
    ensure!(left.iter().all(|path| path.ends_with("lost+found")), "left: {left:?}");
    Ok(())
}

// ---------------------------------------------------------------- compressed memory

/// The devices of compressed memory.
fn devices() -> Result<Vec<String>, Failed> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/sys/block")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("zram") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

const ZRAM: &str = "zram";

fn compressed_memory_holds_the_heap() -> Ended {
    let before = devices()?;
    let mut waiting = Waiting::start(Path::new(ZRAM))?;
    let other = Waiting::start(Path::new(ZRAM))?;
    ensure!(devices()?.len() == before.len() + 2, "{:?}, before {before:?}", devices()?);
    let said = superpage(&["doctor"])?.out;
    ensure!(!said.contains("compressed memory of a heap"), "{said}");
    ensure!(waiting.ask("r")? == "right" && waiting.ask("w")? == "right", "it is not right");
    ensure!(waiting.end()?.success(), "it did not end well");
    let mut other = other;
    ensure!(other.ask("w")? == "right" && other.end()?.success(), "another one was harmed");
    ensure!(devices()? == before, "{:?}, before {before:?}", devices()?);
    // Also where the program ends by a signal.
    let directory = TempDir::new()?;
    let mut command = run_on(ZRAM, &directory.path().join("report.json"))?;
    let ended = command.arg(super::program()?).args(["dies", "9"]).status()?;
    ensure!(!ended.success() && devices()? == before, "{:?}, before {before:?}", devices()?);
    Ok(())
}

/// The program goes on with its data. Once it has ended, the device goes with the next run or by `superpage restore`.
fn compressed_memory_of_a_killed_run() -> Ended {
    let restored = || Ok(superpage(&["restore"])?.done()?.out);
    let next_run = || -> Result<String, Failed> {
        let words = ["run", "--quiet", "--heap", ZRAM, "--memory", MEMORY, "--", "true"];
        Ok(superpage(&words)?.done()?.out)
    };
    let before = devices()?;
    let ways: [&dyn Fn() -> Result<String, Failed>; 2] = [&restored, &next_run];
    for way in ways {
        let mut waiting = Waiting::start(Path::new(ZRAM))?;
        waiting.run.kill()?;
        // To wait for it closes the program's input.
        wait_for("its end", SHORT_PATIENCE, || Ok(waiting.run.try_wait()?))?;
        let said = superpage(&["doctor"])?.out;
        ensure!(said.contains("compressed memory of a heap"), "{said}");
        let said = superpage(&["restore"])?.done()?.out;
        ensure!(said.contains("in use by a program"), "{said}");
        ensure!(waiting.ask("w")? == "right" && waiting.ask("r")? == "right", "it is not right");
        drop(waiting.run.stdin.take());
        wait_for("the end of the program", SHORT_PATIENCE, || {
            Ok(test_kill_process(waiting.program).is_err().then_some(()))
        })?;
        ensure!(devices()?.len() == before.len() + 1, "{:?}, before {before:?}", devices()?);
        way()?;
        ensure!(devices()? == before, "{:?}, before {before:?}", devices()?);
    }
    Ok(())
}

/// A user with the right to a userfaultfd may not add devices.
fn compressed_memory_takes_root() -> Ended {
    let before = devices()?;
    let rights = "+sys_ptrace,+dac_read_search";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(format!("--inh-caps=-all,{rights}")).arg(format!("--ambient-caps={rights}"));
    command.arg(format!("--bounding-set=-all,{rights}")).arg(PROGRAM);
    command.args(["run", "--heap", ZRAM, "--memory", MEMORY, "--", "true"]);
    is_refused(&mut command, &[3])?;
    ensure!(devices()? == before, "{:?}, before {before:?}", devices()?);
    Ok(())
}

// ---------------------------------------------------------------- the program

/// A debugger (`/proc/PID/mem`) reads what is in memory, and is refused the rest. Another process reads all where one thread
/// of the program is stopped; where all are, it waits until they go on.
fn a_debugger_reads() -> Ended {
    let mut waiting = Waiting::start(Path::new(DISK))?;
    let place = waiting.ask("a")?;
    let process = waiting.program.as_raw_nonzero().to_string();
    for stopped in ["one", "all"] {
        let mut debugger = Command::new(other_program("heap_trouble")?);
        debugger.args(["debugs", &process, &place, stopped]);
        Said::from(debugger.output()?).done()?;
        ensure!(waiting.ask("w")? == "right", "it is not right after {stopped}");
    }
    ensure!(waiting.end()?.success(), "it did not end well");
    Ok(())
}

fn more_than_memory_may_be_locked() -> Ended {
    let trouble = other_program("heap_trouble")?;
    let (_, report) = report_of(&["locks-much"], &[trouble.to_str().ok_or("no text")?])?;
    was_paged(&report)
}

fn more_than_memory_may_be_pinned() -> Ended {
    let trouble = other_program("heap_trouble")?;
    let (said, report) = report_of(&["pins-much"], &[trouble.to_str().ok_or("no text")?])?;
    if said.out.contains("no io_uring") {
        println!("skipped in part: {}", said.out.trim());
        return Ok(());
    }
    was_paged(&report)
}

/// Reads of a part of the file fail. The pages that lie there are lost, and what the program gives up is no loss.
fn pages_that_cannot_be_read_are_lost_alone() -> Ended {
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let mut command = run(&file)?;
    command.arg(other_program("heap_trouble")?).arg("loses-pages");
    let said = Said::from(command.output()?);
    ensure!(said.code == Some(0), "{said:?}");
    ensure!(said.err.contains("reads or writes of the heap's file failed"), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    ensure!(number(&report["heap"], "errors")? > 0, "nothing failed: {report}");
    Ok(())
}

/// Without the right to lock memory, and with none allowed (RLIMIT_MEMLOCK).
fn locked_memory_may_be_forbidden() -> Ended {
    let directory = TempDir::new()?;
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock"]);
    command.args(["prlimit", "--memlock=0:0", "timeout"]);
    command.args(run(&directory.path().join("report.json"))?.get_args());
    Said::from(command.arg(super::program()?).arg("by-the-kernel").output()?).done()?;
    Ok(())
}

/// The program does not wait for ever for what nobody brings.
fn a_thread_that_is_killed() -> Ended {
    let trouble = other_program("heap_trouble")?;
    for what in ["reads", "writes"] {
        let directory = TempDir::new()?;
        let mut command = run(&directory.path().join("report.json"))?;
        let said = command.arg(&trouble).args(["loses-a-thread", what]).output()?;
        let said = Said::from(said);
        ensure!(said.code == Some(1), "{what}: {said:?}");
        ensure!(said.err.contains("could not be served any more"), "{what}: {said:?}");
    }
    Ok(())
}

// ---------------------------------------------------------------- integrity

const SECONDS: u64 = 8;

/// Eight threads check all that they read for some seconds.
fn all_at_once_leaves_no_wrong_word() -> Ended {
    let asked = std::env::var("SUPERPAGE_INTEGRITY_SECONDS").ok();
    let seconds: u64 = asked.and_then(|seconds| seconds.parse().ok()).unwrap_or(SECONDS);
    let directory = TempDir::new()?;
    let file = directory.path().join("report.json");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--heap", DISK, "--memory", MEMORY, "--heap-size", "1G", "--quiet"]);
    command.arg("--report").arg(&file).arg("--").arg(other_program("heap_integrity")?);
    // The program ends itself when it takes much longer.
    let said = Said::from(command.arg(seconds.to_string()).output()?);
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let heap = &report["heap"];
    let paged = (number(heap, "written_bytes")?, number(heap, "read_bytes")?);
    println!(
        "\n{}; paged out {} bytes and in {} bytes",
        said.out.trim().replace('\n', ", "),
        paged.0,
        paged.1
    );
    ensure!(said.code == Some(0) && said.out.contains("wrong-words 0\n"), "{said:?}");
    ensure!(report["heap"]["errors"] == 0, "the file failed: {report}");
    ensure!(paged.0.min(paged.1) >= MEMORY_BYTES, "hardly paged: {report}");
    Ok(())
}
