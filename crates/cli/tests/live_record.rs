//! `record` on real processes, and `sim` on what it recorded. Needs root and a kernel that can.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;

use common::machine::Check;
use common::subject::{self, OWN, Subject, half_used, pages};
use common::{Ended, Holds, PROGRAM, Said, number, superpage};
use libtest_mimic::Failed;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::{BASE_PAGE_BYTES, BasePages, Pid};

fn main() -> ExitCode {
    subject::main(|| subject::tests_of_debloating(TESTS), &[("freeing", be_freeing)])
}

const TESTS: [(&str, Check); 4] = [
    ("what_is_recorded_is_replayed", what_is_recorded_is_replayed),
    ("an_interrupted_recording_is_whole", an_interrupted_recording_is_whole),
    ("what_a_fork_shares_is_not_read", what_a_fork_shares_is_not_read),
    ("nothing_is_written_where_it_must_not_be", nothing_is_written_where_it_must_not_be),
];

/// Base pages that hold something in each range of the sparse memory: too few for any threshold.
const FEW: usize = 16;

/// Half of some memory in use on huge pages, a little of some more on base pages; frees the first
/// when it is told to.
fn be_freeing() -> Ended {
    let half = half_used()?;
    let mut sparse = OwnMemory::map(OWN, Wish::BasePages)?;
    for (_, bytes) in pages(sparse.bytes_mut()).filter(|(page, _)| page % 512 < FEW) {
        bytes.fill(1);
    }
    subject::say("ready")?;
    subject::next_order()?;
    drop(half);
    subject::say("freed")?;
    // Ends with the parent.
    subject::next_order()?;
    drop(sparse);
    Ok(())
}

fn start(pid: Pid, path: &Path) -> Result<Child, Failed> {
    let path = path.to_str().ok_or("UTF-8")?;
    let child = Command::new(PROGRAM)
        .args(["record", &pid.to_string(), "-o", path, "--interval", "50ms", "--json", "--exact"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(400));
    Ok(child)
}

fn replayed(path: &Path, policies: &str) -> Result<Vec<Value>, Failed> {
    let path = path.to_str().ok_or("UTF-8")?;
    superpage(&["sim", "--trace", path, "--policy", policies, "--json"])?.done()?.rows()
}

fn what_is_recorded_is_replayed() -> Ended {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("a.trace");
    let mut subject = Subject::start("freeing")?;
    let recorder = start(subject.pid(), &path)?;
    ensure!(!path.exists(), "the file is there before it is whole");
    subject.order("free")?;
    std::thread::sleep(Duration::from_millis(400));
    drop(subject);
    let said = Said::from(recorder.wait_with_output()?).done()?;
    let recording = &said.rows()?[0];
    ensure!(recording["ended"] == "exited", "{recording}");
    ensure!(number(recording, "samples")? >= 8, "{recording}");

    let rows = replayed(&path, "linux-4k,quicksilver-sync-64,linux")?;
    let of = |key: &str| rows.iter().map(|row| number(row, key)).collect::<Result<Vec<_>, _>>();
    let (peaks, ends) = (of("peak_bytes")?, of("end_bytes")?);
    let range = OWN.base_pages();
    // Every other base page of the one, a few of the other, and what any process has.
    let sparse = OWN.0 * FEW as u64;
    let touched = BasePages(range.0 / 2 + sparse).bytes().0;
    let slack = 4 << 20;
    ensure!((touched..touched + slack).contains(&peaks[0]), "{touched} touched: {peaks:?}");
    let left = sparse * BASE_PAGE_BYTES;
    ensure!((left..left + slack).contains(&ends[0]), "{left} left: {ends:?}");
    ensure!(peaks.is_sorted() && ends.is_sorted(), "{peaks:?} {ends:?}");
    ensure!(peaks[1] >= range.bytes().0, "half used ranges are completed: {peaks:?}");
    ensure!(rows[1]["reserved_bytes"].as_u64() > Some(0), "sparse ones are reserved: {rows:?}");
    Ok(())
}

fn an_interrupted_recording_is_whole() -> Ended {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("a.trace");
    std::fs::write(&path, "older")?;
    let subject = Subject::start("freeing")?;
    let recorder = start(subject.pid(), &path)?;
    ensure!(std::fs::read(&path)? == b"older", "half written over");
    let pid = rustix::process::Pid::from_raw(recorder.id().cast_signed()).ok_or("a pid")?;
    kill_process(pid, Signal::INT)?;
    let said = Said::from(recorder.wait_with_output()?).done()?;
    ensure!(said.rows()?[0]["ended"] == "stopped", "{said:?}");
    ensure!(replayed(&path, "linux-4k")?.len() == 1, "it is whole");
    ensure!(std::fs::read_dir(directory.path())?.count() == 1, "something is left behind");
    Ok(())
}

fn what_a_fork_shares_is_not_read() -> Ended {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("a.trace");
    let mut subject = Subject::start("sharing")?;
    let before = Holds::now(subject.pid())?;
    let pid = subject.pid().to_string();
    let file = path.to_str().ok_or("UTF-8")?;
    let arguments = ["record", &pid, "-o", file, "--duration", "300ms", "--interval", "50ms"];
    superpage(&[&arguments[..], &["--exact"]].concat())?.done()?;
    ensure!(Holds::now(subject.pid())?.huge == before.huge, "reading split what is shared");
    let said = subject.order("check")?;
    ensure!(said == "intact", "it says {said:?}");
    Ok(())
}

fn nothing_is_written_where_it_must_not_be() -> Ended {
    let subject = Subject::start("freeing")?;
    let pid = subject.pid().to_string();
    for (path, code) in [("/dev/null", 2), ("/tmp", 2), ("/nonexistent/a", 1)] {
        let said = superpage(&["record", &pid, "-o", path, "--duration", "1s"])?;
        ensure!(said.code == Some(code) && said.err.contains(path), "{path}: {said:?}");
    }
    Ok(())
}
