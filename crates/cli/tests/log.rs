//! `superpage log` on a history as the daemon writes it. No daemon is needed for that.

mod fixture;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use superpage_manager::history::{self, Entry, History, What};
use superpage_units::Pid;
use tempfile::tempdir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_superpage");

fn log(state: &Path, arguments: &[&str]) -> Output {
    let mut command = assert_cmd::Command::new(PROGRAM);
    command.arg("log").arg("--state").arg(state).args(arguments);
    command.output().expect("it starts")
}

/// What it prints of a history that is fine.
fn shown(state: &Path, arguments: &[&str]) -> String {
    let output = log(state, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn where_no_daemon_ran_it_says_so() {
    let state = tempdir().expect("a directory");
    let output = log(state.path(), &[]);
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("superpage: no daemon ever ran here"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty());
}

#[test]
fn newest_last_in_plain_words_with_causes() {
    let state = tempdir().expect("a directory");
    fixture::write(state.path(), 1_700_000_000_000);
    let text = shown(state.path(), &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), fixture::entries(0).len(), "{text}");
    assert!(lines[0].starts_with("2023-11-14 22:13:20Z  started"), "{text}");
    let debloated = lines.iter().find(|line| line.contains("  debloated ")).expect("one");
    for part in ["memcached (43)", "split 100 huge pages, freeing 175.8 MiB", "emd: densest bucket"]
    {
        assert!(debloated.contains(part), "{debloated:?} lacks {part:?}");
    }
    assert!(lines.last().expect("a line").contains("stopped"), "{text}");
}

#[test]
fn entries_are_chosen_by_time_number_process_and_kind() {
    let state = tempdir().expect("a directory");
    let now = history::now_ms();
    fixture::write(state.path(), now - 3_600_000);
    let mut history = History::open(state.path()).expect("it opens");
    history.record(Entry::new(now, What::Reloaded, "signal", "SIGHUP"));
    drop(history);
    assert_eq!(shown(state.path(), &["--since", "10min"]).lines().count(), 1);
    let text = shown(state.path(), &["-n", "2"]);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.ends_with("[signal]\n"), "{text}");
    for process in ["43", "memcached"] {
        let text = shown(state.path(), &["--process", process]);
        assert!(text.lines().count() > 0, "{text}");
        assert!(text.lines().all(|line| line.contains("memcached (43)")), "{text}");
    }
    let text = shown(state.path(), &["--what", "promoted,refused", "--json"]);
    let rows: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(rows.iter().all(|row| row["what"] == "promoted" || row["what"] == "refused"));
    assert!(rows.len() > 1, "{text}");
    assert_eq!(shown(state.path(), &["--process", "nobody"]), "");
}

#[test]
fn a_commands_name_cannot_command_the_terminal() {
    let state = tempdir().expect("a directory");
    let mut history = History::open(state.path()).expect("it opens");
    let command = Some("a\u{1b}[2J\nb".to_owned());
    let entry = Entry::new(1000, What::Refused, "gone", "the process\rexited");
    history.record(Entry { command, pid: Some(Pid(7)), ..entry });
    drop(history);
    let text = shown(state.path(), &[]);
    assert_eq!(text.lines().count(), 1, "{text:?}");
    assert!(!text.trim_end().contains(char::is_control), "{text:?}");
    assert!(text.contains("a\\u{1b}[2J\\nb (7)"), "{text:?}");
}

#[test]
fn lines_that_are_no_entries_are_counted_beside() {
    let state = tempdir().expect("a directory");
    fixture::write(state.path(), 1000);
    let path = state.path().join(history::FILE);
    let torn = std::fs::read_to_string(&path).expect("it is there") + "{\"at_ms\":1}\n";
    std::fs::write(&path, torn).expect("it is written");
    let output = log(state.path(), &[]);
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "{message}");
    assert!(message.contains("1 line of the history is torn or of a later version"), "{message}");
}

#[test]
fn following_shows_what_is_added() {
    let state = tempdir().expect("a directory");
    fixture::write(state.path(), 1000);
    let mut child = Command::new(PROGRAM)
        .args(["log", "--follow", "-n", "1", "--state"])
        .arg(state.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(first.contains("stopped"), "{first}");
    let mut history = History::open(state.path()).expect("it opens");
    history.record(Entry::new(history::now_ms(), What::Started, "start", "again"));
    drop(history);
    let second = lines.next().expect("a line").expect("UTF-8");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(second.contains("the daemon started") && second.contains("again"), "{second}");
}
