//! `superpage top` where there is no terminal: one frame, and what it says when it cannot show any.

mod fixture;

use std::path::{Path, PathBuf};
use std::process::Output;
use superpage_manager::history;
use superpage_manager::status::{Memory, Status};
use superpage_units::{Bytes, Share};
use tempfile::tempdir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_superpage");

fn top(arguments: &[&str]) -> Output {
    assert_cmd::Command::new(PROGRAM).arg("top").args(arguments).output().expect("it starts")
}

fn shown(arguments: &[&str]) -> String {
    let output = top(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/fixtures")
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let output = top(&[]);
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{message}");
    for part in ["superpage: top needs a terminal", "--once", "`superpage scan`", "`superpage log`"]
    {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn one_frame_of_a_machine_without_a_daemon() {
    let state = tempdir().expect("a directory");
    let text = shown(&["--once", "--state", state.path().to_str().expect("UTF-8")]);
    assert!(text.contains("no daemon runs"), "{text}");
    assert!(text.contains("COMMAND") && text.contains("memory  "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\u{1b}'), "it is plain text");
}

#[test]
fn one_frame_with_a_daemon_tells_its_story() {
    let state = tempdir().expect("a directory");
    let now = history::now_ms();
    fixture::write(state.path(), now - 22_000);
    let memory = Memory {
        name: "machine".to_owned(),
        used: Bytes(75),
        total: Bytes(100),
        high: Share::percent(80),
        low: Share::percent(65),
    };
    // A process that is there while the test runs: our own.
    let pid = superpage_kernel::process::own_pid();
    let status = Status { at_ms: now, pid, watches: vec![memory], ..Status::default() };
    let path = state.path().join("status.json");
    std::fs::write(path, serde_json::to_vec(&status).expect("JSON")).expect("it is written");
    let text = shown(&["--once", "--state", state.path().to_str().expect("UTF-8")]);
    let daemon = format!("daemon  {pid}: 0 surveys");
    for part in [
        &daemon,
        "75.0 %",
        "low 65.0 %, high 80.0 %",
        "promoted   threshold",
        "debloated  densest",
        "memcached (43) left 3 huge pages whole  emd: shared after a fork",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn one_frame_of_a_recording() {
    let good = traces().join("good.trace");
    let text = shown(&["--once", "--trace", good.to_str().expect("UTF-8")]);
    assert!(text.contains("recording of redis-server  0.0 s, sample 1 of 3"), "{text}");
    // One that was cut off is as good to look at.
    let cut_off = traces().join("cut-off.trace");
    shown(&["--once", "--trace", cut_off.to_str().expect("UTF-8")]);
}

#[test]
fn what_is_no_recording_is_a_usage_error() {
    let malformed = traces().join("malformed.trace");
    for (path, part) in [
        (malformed.to_str().expect("UTF-8"), "is malformed"),
        ("/dev/zero", "is not a regular file"),
        ("/nonexistent", "could not be read"),
    ] {
        let output = top(&["--once", "--trace", path]);
        let message = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}
