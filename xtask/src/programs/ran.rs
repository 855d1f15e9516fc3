//! One run of a program: in a session and a directory of its own, with a limit of time, both gone at its end.

use super::declared::{Compares, Program, Way};
use super::had::Had;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a run is looked at: chosen, not measured.
const LOOK: Duration = Duration::from_millis(10);
/// The most of an output that is compared and kept.
const MOST: usize = 4 << 20;

/// The shell's words on a program that a signal ended, without the program's number.
const ENDED: &str = r"s/^(.*: line [0-9]+:) +[0-9]+ ([A-Z])/\1 \2/";

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ran {
    /// `exit code 0`, `signal 11`, or that it did not end.
    pub(crate) end: String,
    pub(crate) timed_out: bool,
    pub(crate) stdout: String,
    /// Empty where it is not compared.
    pub(crate) stderr: String,
    /// The lines that Superpage itself said on standard error.
    pub(crate) notes: Vec<String>,
    pub(crate) seconds: f64,
}

/// Runs the program once, without Superpage if there is no way.
pub(crate) fn run(program: &Program, had: &Had, way: Option<Way>, superpage: &Path) -> Result<Ran> {
    let scratch = had.scratch();
    let _ = std::fs::remove_dir_all(&scratch);
    let heap = scratch.join(".heap");
    std::fs::create_dir_all(&heap).with_context(|| format!("make {}", heap.display()))?;
    let (out, err) = (scratch.join(".stdout"), scratch.join(".stderr"));
    let mut command = had.shell(&program.command);
    command.current_dir(&scratch).stdin(Stdio::null());
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let (name, options) = match way {
        Some(way) => {
            (superpage.display().to_string(), way.options(program, &heap.display().to_string()))
        }
        None => Default::default(),
    };
    command
        .env("SP", format!("{name} {options}").trim())
        .env("SUPERPAGE", name)
        .env("OPTIONS", options);
    let begin = Instant::now();
    let child = command.spawn().context("starting bash")?;
    let (status, timed_out) = attend(child, begin, Duration::from_secs(program.timeout))?;
    let seconds = begin.elapsed().as_secs_f64();
    let beside = superpage.parent().unwrap_or(superpage);
    let read = |path: &Path| without_places(&read(path), &had.places(), beside);
    let (stderr, notes) = apart(&read(&err));
    let filtered = |text: &str| filter(&program.filter, text);
    let ran = Ran {
        end: if timed_out { format!("no end within {} s", program.timeout) } else { said(status) },
        timed_out,
        stdout: filtered(&read(&out))?,
        stderr: if program.compares == Compares::Both { filtered(&stderr)? } else { String::new() },
        notes,
        seconds,
    };
    let _ = std::fs::remove_dir_all(&scratch);
    Ok(ran)
}

/// Waits for the end or the limit, then ends what is left of the session: before the first process is reaped, so that the
/// session's number is still its own. `timeout` gives its command another process group, but no other session.
fn attend(mut child: Child, begin: Instant, limit: Duration) -> Result<(ExitStatus, bool)> {
    let first = Pid::from_child(&child);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let mut has_ended = false;
    while !has_ended && begin.elapsed() < limit {
        has_ended = waitid(WaitId::Pid(first), look)?.is_some();
        if !has_ended {
            std::thread::sleep(LOOK);
        }
    }
    for process in session(first)? {
        let _ = kill_process(process, Signal::KILL);
    }
    Ok((child.wait()?, !has_ended))
}

/// The processes of the session that this one began.
fn session(first: Pid) -> Result<Vec<Pid>> {
    let mut found = vec![first];
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        // One that has ended meanwhile, or is no process, has no such file.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // Behind the name: state, parent, process group, session.
        let session = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(3));
        let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        if session.and_then(|session| session.parse().ok()) == Some(first.as_raw_pid()) {
            found.extend(pid.filter(|pid| *pid != first));
        }
    }
    Ok(found)
}

fn said(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

fn read(path: &Path) -> String {
    // A program may have removed it.
    let mut bytes = std::fs::read(path).unwrap_or_default();
    bytes.truncate(MOST);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text with names for the places that differ from checkout to checkout, and from run to run.
fn without_places(text: &str, places: &[(&'static str, PathBuf)], beside: &Path) -> String {
    let mut text = text.to_owned();
    for (name, place) in places {
        text = text.replace(&place.display().to_string(), name);
    }
    text.replace(&beside.display().to_string(), "$SUPERPAGE")
}

/// Parts of the lines of the report on a program that was managed, which are compared with nothing.
const REPORT: [&str; 13] = [
    " in the areas",
    " in the heap",
    " of the heap ",
    " first touches of 1 GiB: ",
    " were copied to ",
    " refused ",
    " faults served by ",
    " faults waited ",
    " read and ",
    " of mappings ",
    " the pool cannot be enlarged: ",
    " the library was not loaded into it",
    " before the library began",
];

/// The program's output, and Superpage's beside its report.
fn apart(stderr: &str) -> (String, Vec<String>) {
    let (mut notes, rest): (Vec<&str>, Vec<&str>) =
        stderr.lines().partition(|line| line.starts_with("superpage: "));
    notes.retain(|line| !REPORT.iter().any(|part| line.contains(part)));
    let rest: String = rest.into_iter().flat_map(|line| [line, "\n"]).collect();
    let mut notes: Vec<String> = notes.into_iter().map(str::to_owned).collect();
    notes.dedup();
    (rest, notes)
}

/// The text after these expressions of `sed`.
fn filter(expressions: &[String], text: &str) -> Result<String> {
    if text.is_empty() {
        return Ok(text.to_owned());
    }
    let mut sed = Command::new("sed");
    sed.args(["-E", "-e", ENDED]).stdin(Stdio::piped()).stdout(Stdio::piped());
    for expression in expressions {
        sed.args(["-e", expression]);
    }
    let mut child = sed.spawn().context("starting sed")?;
    let mut input = child.stdin.take().context("a pipe to sed")?;
    let output = std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut input, text.as_bytes()));
        child.wait_with_output()
    })?;
    anyhow::ensure!(output.status.success(), "sed does not take {expressions:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Pid, apart, attend, filter, session, without_places};
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn superpages_own_words_are_set_apart() {
        let (rest, notes) = apart("a\nsuperpage: b\nc\n");
        assert_eq!((rest.as_str(), notes), ("a\nc\n", vec!["superpage: b".to_owned()]));
        let report = "superpage: 1.4 GiB in the areas at most, 0 B of it on 1 GiB pages at most\nin the areas\n";
        assert_eq!(apart(report), ("in the areas\n".to_owned(), Vec::new()));
    }

    #[test]
    fn a_run_that_does_not_end_is_ended_with_its_session() {
        let begin = Instant::now();
        let mut command = Command::new("setsid");
        let child = command.args(["sh", "-c", "timeout 100 sleep 99 & sleep 100"]).spawn().unwrap();
        let first = Pid::from_child(&child);
        let (_, timed_out) = attend(child, begin, Duration::from_millis(300)).unwrap();
        assert!(timed_out && begin.elapsed() < Duration::from_secs(50));
        let is_there = |pid: &Pid| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        std::thread::sleep(Duration::from_millis(100));
        assert!(!session(first).unwrap().iter().any(is_there));
    }

    #[test]
    fn places_have_names() {
        let places = [("$BUILT", "/x/built".into())];
        let named = without_places("/x/built/a /y/b", &places, Path::new("/y"));
        assert_eq!(named, "$BUILT/a $SUPERPAGE/b");
    }

    #[test]
    fn expressions_apply_in_order() {
        let expressions = ["s/[0-9]+/N/".to_owned(), "/^b/d".to_owned()];
        assert_eq!(filter(&expressions, "a12\nb\n").unwrap(), "aN\n");
        let text = "bash: line 3: 23178 Segmentation fault      $SP a\n";
        assert_eq!(filter(&[], text).unwrap(), "bash: line 3: Segmentation fault      $SP a\n");
    }
}
