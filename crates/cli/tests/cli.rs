//! The command line as people and scripts meet it: help, completions, exit codes, error messages.
//!
//! Nothing here needs huge pages or root; what the program does with them is in the `live_` tests.

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use superpage_kernel::process::Process;
use superpage_units::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_superpage");

/// Commands with a man page, as words on the command line; the one that is hidden has none.
const COMMANDS: [&[&str]; 27] = [
    &["doctor"],
    &["scan"],
    &["debloat"],
    &["heap"],
    &["daemon"],
    &["top"],
    &["log"],
    &["promote"],
    &["record"],
    &["restore"],
    &["run"],
    &["sim"],
    &["lab"],
    &["lab", "list"],
    &["lab", "run"],
    &["lab", "report"],
    &["lab", "demo"],
    &["lab", "calibrate"],
    &["lab", "hog"],
    &["lab", "fragment"],
    &["graph"],
    &["graph", "generate"],
    &["graph", "convert"],
    &["graph", "info"],
    &["graph", "run"],
    &["completions"],
    &["man"],
];

/// No process has this number: the kernel's limit is 2^22.
const NOBODY: &str = "4194305";

fn superpage(arguments: &[&str]) -> Output {
    assert_cmd::Command::new(PROGRAM).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Asserts that the program failed with `code` and one sentence that has all of `parts` in it.
fn assert_sentence(output: &Output, code: i32, parts: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(message.starts_with("superpage: "), "{message:?}");
    assert_eq!(message.matches('\n').count(), 1, "one line: {message:?}");
    assert!(message.ends_with('\n'), "{message:?}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
    assert_eq!(text(&output.stdout), "", "nothing on standard output");
}

/// Asserts that the arguments were refused before anything was done.
fn assert_usage(arguments: &[&str], part: &str) {
    let output = superpage(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{arguments:?}: {message:?}");
    assert!(message.contains(part), "{arguments:?}: {message:?} lacks {part:?}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
}

#[test]
fn every_command_has_help() {
    let help = superpage(&["--help"]);
    assert!(help.status.success() && help.stderr.is_empty());
    for code in ["0  done", "1  failed", "2  usage", "3  not possible"] {
        assert!(text(&help.stdout).contains(code), "the exit codes are documented");
    }
    for command in COMMANDS {
        assert!(text(&help.stdout).contains(command[0]), "{command:?} is listed");
        let help = superpage(&[command, &["--help"]].concat());
        assert!(help.status.success(), "{command:?}");
        let usage = format!("Usage: superpage {}", command.join(" "));
        assert!(text(&help.stdout).contains(&usage), "{command:?}: {help:?}");
    }
    let version = superpage(&["--version"]);
    assert_eq!(text(&version.stdout), concat!("superpage ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn arguments_that_make_no_sense_are_usage_errors() {
    assert_usage(&["nonsense"], "unrecognized subcommand");
    for pid in ["x", "-1", "4294967296", "1.5"] {
        assert_usage(&["scan", pid], &format!("'{pid}' for '[PID]': give the number of a process"));
        assert_usage(&["debloat", pid, "--all"], "give the number of a process");
    }
    assert_usage(&["scan", "--svg", "a.svg"], "<PID>");
    assert_usage(&["debloat", "--all"], "<PID>");
    assert_usage(&["debloat", "1"], "--free");
    assert_usage(&["debloat", "1", "--all", "--free", "1M"], "cannot be used with");
    assert_usage(&["debloat", "1", "--free", "0"], "512M");
    assert_usage(&["debloat", "1", "--free", "-3M"], "give a size such as 512M");
    assert_usage(&["debloat", "1", "--fraction", "-5%"], "20%");
    assert_usage(&["debloat", "1", "--free", "12 parsecs"], "512M");
    assert_usage(&["debloat", "1", "--free", "99999999999999G"], "512M");
    assert_usage(&["debloat", "1", "--fraction", "0"], "20%");
    assert_usage(&["debloat", "1", "--fraction", "101%"], "20%");
    assert_usage(&["debloat", "1", "--fraction", "NaN"], "20%");
    assert_usage(&["debloat", "1", "--all", "--quantum", "0"], "1 or more");
    assert_usage(&["debloat", "1", "--all", "--policy", "linux"], "emd, emd-exact, hawkeye");
    assert_usage(&["daemon", "--log", "xml"], "text, json");
    assert_usage(&["completions", "cmd"], "bash");
    assert_usage(&["top", "--interval", "1ms"], "at least 100ms");
    assert_usage(&["log", "--since", "yesterday"], "5m");
    assert_usage(&["log", "--last", "-1"], "such as 20");
    assert_usage(&["log", "--what", "promoted,teleported"], "promoted, refused, debloated");
    assert_usage(&["record", "1"], "--output <FILE>");
    assert_usage(&["record", "abc", "-o", "a"], "process id, such as $(pidof redis-server)");
    assert_usage(&["record", "1", "-o", "a", "--interval", "1ns"], "at least 10ms");
    assert_usage(&["record", "1", "-o", "a", "--duration", "0s"], "5m");
    assert_usage(&["record", "1", "-o", "a", "--cpu", "0"], "20%");
    assert_usage(&["run", "--polcy", "trident", "--", "true"], "'--polcy'");
    assert_usage(&["run", "--policy", "best", "true"], "hugetlb-1g, hugetlb-2m, linux, off");
    assert_usage(&["sim"], "--trace <FILE>");
    assert_usage(&["sim", "--trace", "a", "--policy", "linux,best"], "linux-4k, freebsd, ingens");
    assert_usage(&["sim", "--trace", "a", "--policy", "best+emd"], "linux-4k, freebsd, ingens");
    assert_usage(&["sim", "--trace", "a", "--policy", "linux+ksm"], "emd, emd-exact, hawkeye");
    assert_usage(&["sim", "--trace", "a", "--policy", "xheap+emd"], "xheap are set aside");
    assert_usage(&["sim", "--trace", "a", "--policy", "linux,"], "empty name");
    assert_usage(&["sim", "--trace", "a", "--policy", "linux+emd+emd"], "one de-bloater each");
    assert_usage(&["sim", "--trace", "a", "--memory", "0"], "a size of 0 is too small");
    for seed in ["x", "-1", "99999999999999999999"] {
        assert_usage(&["sim", "--trace", "a", "--seed", seed], "give a whole number from 0");
    }
    assert_usage(&["sim", "--trace", "a", "--high", "101"], "0% to 100%");
    assert_usage(&["sim", "--trace", "a", "--memory", "much"], "512M");
    assert_usage(&["sim", "--trace", "a", "--fragment", "101"], "0% to 100%");
    assert_usage(&["sim", "--trace", "a", "--access-rate", "0"], "0.001");
    assert_usage(&["lab", "run"], "<NAME>");
    assert_usage(&["lab", "run", "emd-table1", "--size", "1M"], "at least 64");
    assert_usage(&["lab", "run", "emd-table1", "--rounds", "0"], "1..=99");
    assert_usage(&["lab", "run", "all", "--jobs", "0"], "1 to 1024");
    assert_usage(&["lab", "calibrate"], "--out <FILE>");
    assert_usage(&["lab", "calibrate", "--out", "x", "--like", "vax"], "trident");
}

/// A serial console says that it has no columns; `script` makes such a terminal where its own input is none.
#[test]
fn a_terminal_without_a_width_is_taken_for_an_ordinary_one() {
    for command in ["doctor", "--help"] {
        let line = format!("{PROGRAM} {command}");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
        let output = script.output().expect("script (util-linux) runs");
        let shown = text(&output.stdout);
        let longest = shown.lines().map(|line| line.trim_end().chars().count()).max();
        assert!(longest.is_some_and(|longest| longest >= 60), "{command}: {shown}");
        assert!(shown.lines().count() < 200, "{command}: {shown}");
    }
}

#[test]
fn no_arguments_at_all_show_the_help() {
    let output = superpage(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: superpage <COMMAND>"));
    assert!(output.stdout.is_empty());
}

#[test]
fn an_unknown_experiment_names_the_known_ones() {
    let output = superpage(&["lab", "run", "emd-table9"]);
    assert_sentence(&output, 2, &["emd-table9", "emd-table1", "emd-fig10", "superpage lab list"]);
    assert_eq!(text(&output.stderr).matches("emd-table1,").count(), 1, "{output:?}");
    assert_sentence(&superpage(&["lab", "run", "bogus"]), 2, &["bogus", "superpage lab list"]);
    let elsewhere = superpage(&["lab", "run", "emd-fig4", "--on", "sim"]);
    assert_sentence(&elsewhere, 2, &["emd-fig4 exists only for --on live"]);
}

#[test]
fn a_process_that_is_not_there_is_a_failure() {
    let parts = ["there is no process", NOBODY, "superpage scan"];
    assert_sentence(&superpage(&["scan", NOBODY]), 1, &parts);
    assert_sentence(&superpage(&["debloat", NOBODY, "--all"]), 1, &parts);
    assert_sentence(&superpage(&["debloat", "0", "--all", "--dry-run"]), 1, &["no process 0"]);
    assert_sentence(&superpage(&["record", NOBODY, "-o", "/nonexistent/a"]), 1, &parts);
}

#[test]
fn a_process_that_has_exited_but_was_not_reaped_is_not_there() {
    let mut child = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).spawn();
    let child = child.as_mut().expect("it starts");
    let pid = child.id().to_string();
    while Process::open(Pid(child.id())).is_ok() {
        std::thread::yield_now();
    }
    assert_sentence(&superpage(&["debloat", &pid, "--all"]), 1, &["no process", &pid]);
    child.wait().expect("it is ours");
}

/// A trace among the fixtures of the format.
fn trace(name: &str) -> String {
    format!("{}/../trace/tests/fixtures/{name}.trace", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_trace_that_is_none_is_one_sentence() {
    let sim = |path: &str, more: &[&str]| superpage(&[&["sim", "--trace", path], more].concat());
    let missing = sim("/nonexistent/a.trace", &[]);
    assert_sentence(&missing, 2, &["/nonexistent/a.trace", "No such file"]);
    for endless in ["/dev/zero", "/"] {
        assert_sentence(&sim(endless, &[]), 2, &[endless, "not a regular file"]);
    }
    assert_sentence(&sim(PROGRAM, &[]), 2, &["not a trace", "superpage record PID -o FILE"]);
    assert_sentence(&sim(&trace("malformed"), &[]), 2, &["malformed.trace: line 3"]);
    assert_sentence(&sim(&trace("other-version"), &[]), 2, &["version 3", "reads version 2"]);
    assert_sentence(&sim(&trace("cut-off"), &[]), 2, &["after 2 samples", "--allow-partial"]);
    let partial = sim(&trace("cut-off"), &["--allow-partial", "--policy", "linux"]);
    assert!(partial.status.success(), "{partial:?}");
    assert!(text(&partial.stdout).contains("2 samples over 1.0 s before it was cut off"));
    let good = |more: &[&str]| sim(&trace("good"), more);
    assert_sentence(&good(&["--memory", "1M"]), 2, &["needs 6.0 MiB", "--memory 6M"]);
    assert_sentence(&good(&["--memory", "9999T"]), 2, &["more than the 4.0 TiB"]);
    assert_sentence(&good(&["--profile", "abacus"]), 2, &["abacus", "trident", "lab calibrate"]);
}

#[test]
fn a_replay_is_the_same_each_time_and_always_beside_base_pages() {
    let trace = trace("good");
    let arguments =
        ["sim", "--trace", &trace, "--policy", "all", "--fragment", "50", "--seed", "7"];
    let table = superpage(&arguments);
    assert!(table.status.success(), "{table:?}");
    assert_eq!(table.stdout, superpage(&arguments).stdout);
    for part in ["Memory: ", "Speed: ", "Both: ", "Assumed: 10 million", "50.0 % of its", "seed 7"]
    {
        assert!(text(&table.stdout).contains(part), "{part} in {}", text(&table.stdout));
    }
    let json = [&arguments[..], &["--json"]].concat();
    let lines = superpage(&json);
    assert_eq!(lines.stdout, superpage(&json).stdout);
    let rows: Vec<Value> =
        text(&lines.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(rows.len() > 20 && rows.iter().all(|row| row["ended"] == "whole"), "{rows:?}");
    let one = superpage(&["sim", "--trace", &trace, "--policy", "linux,linux", "--json"]);
    assert_eq!(text(&one.stdout).lines().count(), 2, "linux once, and linux-4k to compare with");
}

#[test]
fn a_de_bloater_goes_with_a_policy() {
    let trace = trace("good");
    let sim = |policy: &str, more: &[&str]| {
        superpage(&[&["sim", "--trace", &trace, "--policy", policy], more].concat())
    };
    let policies = "linux,linux+emd,quicksilver-sync-64+hawkeye";
    let short = ["--memory", "10M", "--high", "40", "--low", "20"];
    let table = sim(policies, &short);
    for part in ["linux+emd", "quicksilver-sync-64+hawkeye", "split", "freed"] {
        assert!(text(&table.stdout).contains(part), "{part} in {}", text(&table.stdout));
    }
    let lines = sim(policies, &[&short[..], &["--json"]].concat());
    let rows: Vec<Value> =
        text(&lines.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [linux, emd, hawkeye, base] = &rows[..] else { panic!("{rows:?}") };
    assert!(linux["debloat_passes"].is_null() && base["debloat_split_huge_pages"].is_null());
    for row in [emd, hawkeye] {
        assert!(row["debloat_passes"].as_u64() > Some(0), "{row}");
        assert!(row["debloat_freed_bytes"].as_u64() > Some(0), "{row}");
        assert!(row["end_bytes"].as_u64() < linux["end_bytes"].as_u64(), "{row} {linux}");
        assert!(row["background_ns"].as_u64() >= row["debloat_ns"].as_u64(), "{row}");
    }
    // Both peak alike; only the end tells them apart.
    let tie = sim("linux, linux+emd", &short);
    for part in ["linux and linux+emd need most", "At the end: ", "then; linux needs most"] {
        assert!(text(&tie.stdout).contains(part), "{part} in {}", text(&tie.stdout));
    }
    let fragmented = sim("linux", &["--fragment", "50"]);
    assert!(text(&fragmented.stdout).contains("can hardly have mattered"), "{fragmented:?}");
    let idle = sim("linux+emd", &[]);
    assert!(text(&idle.stdout).contains("linux+emd took nothing back"), "{idle:?}");
    assert_sentence(&sim("linux", &["--high", "50"]), 2, &["linux+emd"]);
    let crossed = sim("linux+emd", &["--high", "50"]);
    assert_sentence(&crossed, 2, &["--high is 50.0 %", "--low is 65.0 %"]);
}

/// Huge pages for 60 thinly used ranges do not fit into 50 MiB, base pages do.
#[test]
fn what_is_in_swap_at_the_end_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("thin.trace");
    let lines = [
        r#"{"superpage":"trace","version":2,"command":"thin","base_page":4096,"interval":1000000000,"contents":"exact"}"#,
        r#"{"at":0,"resident":0,"minor":0,"major":0,"cpu":0,"vmas":[["0x7f0000000000","0x7f0010000000","anonymous","fixed","none"]],"ranges":[["0x7f0000000000",60,"base",200,200]]}"#,
        r#"{"at":1000000000,"resident":0,"minor":0,"major":0,"cpu":1000000}"#,
        r#"{"samples":2}"#,
    ];
    std::fs::write(&path, lines.join("\n") + "\n").expect("it is ours");
    let path = path.to_str().expect("UTF-8");
    let output = superpage(&["sim", "--trace", path, "--policy", "linux", "--memory", "50M"]);
    let said = text(&output.stdout);
    let swap = said.lines().find(|line| line.starts_with("Swap: ")).expect("a sentence");
    assert!(swap.contains("linux with ") && !swap.contains("linux-4k"), "{swap}");
}

#[test]
fn simulated_experiments_are_interrupted_at_once() {
    let mut child = Command::new(PROGRAM)
        .args(["lab", "run", "all", "--on", "sim", "--jobs", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(first.contains("experiments") && first.ends_with("2 simulations at once"), "{first:?}");
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a pid");
    kill_process(pid, Signal::INT).expect("it is ours");
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    assert!(rest.last().is_some_and(|line| line.contains("interrupted")), "{rest:?}");
}

#[test]
fn one_bad_process_among_good_ones_stops_everything() {
    let us = std::process::id().to_string();
    let output = superpage(&["debloat", &us, NOBODY, "--all", "--dry-run"]);
    assert_sentence(&output, 1, &[NOBODY]);
}

/// A shell that becomes the program keeps its number.
#[test]
fn its_own_process_is_a_usage_error() {
    let mut shell = assert_cmd::Command::new("sh");
    let output = shell.args(["-c", "exec \"$0\" debloat $$ --all", PROGRAM]).output();
    assert_sentence(&output.expect("sh runs"), 2, &["this very program"]);
}

/// What is wrong in each, and what the message must have in it besides file and line.
const BAD_CONFIGS: [(&str, usize, &str); 8] = [
    ("[watermarks]\nhigher = \"80%\"\n", 2, "expected one of `enabled`, `high`, `low`"),
    ("\n\n[watermark]\n", 3, "expected one of `watermarks`"),
    ("[watermarks]\nhigh = 80\n", 2, "expected a string"),
    ("[watermarks]\nhigh = \"80\"\n", 2, "expected one such as \"80%\""),
    ("[debloat]\nname = \"linux\"\n", 2, "expected emd, emd-exact, hawkeye"),
    ("[debloat]\nquantum = \"many\"\n", 2, "invalid type"),
    ("[timing]\ncool_down = \"a while\"\n", 2, "expected one such as"),
    ("[processes.include]\npids = [1,\n\"two\"]\n", 3, "expected u32"),
];

#[test]
fn a_bad_configuration_names_file_line_and_what_was_expected() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("superpage.toml");
    let file = path.to_str().expect("UTF-8");
    for (config, line, expected) in BAD_CONFIGS {
        std::fs::write(&path, config).expect("written");
        let place = format!("{file}:{line}:");
        let check = superpage(&["daemon", "--check", "--config", file]);
        assert_sentence(&check, 2, &[&place, expected]);
        // The daemon itself says the same, before it touches anything.
        let state = directory.path().join("state");
        let state = state.to_str().expect("UTF-8");
        let daemon = superpage(&["daemon", "--config", file, "--state", state]);
        assert_sentence(&daemon, 2, &[&place, expected]);
        assert!(!Path::new(state).exists(), "nothing was made");
    }
}

#[test]
fn a_missing_configuration_points_to_the_example() {
    let missing = ["daemon", "--check", "--config", "/nonexistent/superpage.toml"];
    let parts = ["/nonexistent/superpage.toml", "packaging/superpage.toml"];
    assert_sentence(&superpage(&missing), 2, &parts);
    assert_sentence(&superpage(&["daemon", "--check", "--config", "/"]), 2, &["/: "]);
}

#[test]
fn a_good_configuration_is_valid() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/superpage.toml");
    let check = |arguments: &[&str]| {
        let output = superpage(&[&["daemon", "--check"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).to_owned()
    };
    assert_eq!(check(&["--config", example]), format!("{example} is valid.\n"));
    assert!(check(&[]).contains("the defaults hold"));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = superpage(&["completions", shell]);
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        for command in COMMANDS {
            let last = command[command.len() - 1];
            assert!(text(&output.stdout).contains(last), "{shell}: {last}");
        }
        // Where there is such a shell, it says whether it understands the script.
        let mut command = assert_cmd::Command::new(shell);
        if let Ok(parsed) = command.arg("-n").write_stdin(output.stdout).output() {
            assert!(parsed.status.success(), "{shell}: {}", text(&parsed.stderr));
        }
    }
}

#[test]
fn every_command_has_a_man_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = directory.path().join("not/yet/there");
    let output = superpage(&["man", made.to_str().expect("UTF-8")]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let mut pages: Vec<_> = std::fs::read_dir(&made)
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    let page = |command: &[&str]| format!("superpage-{}.1", command.join("-"));
    let mut expected: Vec<_> = COMMANDS.iter().map(|command| page(command)).collect();
    expected.push("superpage.1".to_owned());
    pages.sort();
    expected.sort();
    assert_eq!(pages, expected);
    for page in pages {
        let text = std::fs::read_to_string(made.join(&page)).expect("a page");
        assert!(text.contains(".TH ") && text.contains(".SH NAME"), "{page}");
    }
}

#[test]
fn a_directory_for_man_pages_that_cannot_be_made_is_a_failure() {
    let output = superpage(&["man", "/proc/man"]);
    assert_sentence(&output, 1, &["could not be written to /proc/man"]);
}

/// The writing end of a pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().expect("a pipe");
    writer.into()
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    for arguments in [&["lab", "list"][..], &["doctor", "--json"], &["completions", "zsh"]] {
        let whole = superpage(arguments);
        let mut command = Command::new(PROGRAM);
        let output = command.args(arguments).stdout(closed_pipe()).output().expect("it starts");
        // doctor ends with 3 where something essential is missing, read or not.
        assert!(output.status.success() || output.status == whole.status, "{arguments:?}");
        assert!(!text(&output.stderr).contains("ipe"), "{output:?}");
    }
}

#[test]
fn an_error_that_nobody_reads_keeps_its_exit_code() {
    for (arguments, code) in
        [(&["scan", NOBODY][..], 1), (&["lab", "run", "nothing"], 2), (&["nonsense"], 2)]
    {
        let status = Command::new(PROGRAM)
            .args(arguments)
            .stdout(closed_pipe())
            .stderr(closed_pipe())
            .status()
            .expect("it starts");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn lists_and_abilities_are_json_on_request() {
    let rows = |arguments: &[&str]| -> Vec<Value> {
        let output = superpage(arguments);
        let lines = text(&output.stdout).lines();
        lines.map(|line| serde_json::from_str(line).expect(line)).collect()
    };
    let experiments = rows(&["lab", "list", "--json"]);
    assert!(experiments.iter().any(|row| row["name"] == "emd-table1" && row["source"] != ""));
    let abilities = rows(&["doctor", "--json"]);
    assert!(abilities.len() > 8);
    for ability in abilities {
        let answer = ability["answer"].as_str().expect("an answer");
        assert!(["yes", "no", "could not tell"].contains(&answer), "{ability}");
        assert!(answer == "yes" || ability["advice"].is_string(), "{ability}");
        assert!(ability["why"].as_str().is_some_and(|why| !why.is_empty()), "{ability}");
    }
}

/// The program run without rights: as we are, or if we are root, as the user nobody.
struct Unprivileged {
    /// A copy of the program where everybody may read it.
    directory: tempfile::TempDir,
}

impl Unprivileged {
    const NOBODY: u32 = 65534;

    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), everybody).expect("ours");
        // Copied here, it could not be started while a child of another test holds the copy open for writing.
        let copied = Command::new("cp").arg(PROGRAM).arg(directory.path()).status();
        assert!(copied.expect("cp starts").success());
        Self { directory }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.directory.path().join("superpage"));
        command.args(arguments).current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.uid(Self::NOBODY).gid(Self::NOBODY);
        }
        command.output().expect("it starts")
    }

    /// A directory that it may not write to.
    fn somebody_elses_state(&self) -> PathBuf {
        let root = rustix::process::geteuid().is_root();
        if root { self.directory.path().to_owned() } else { "/root-only/superpage".into() }
    }
}

#[test]
fn without_rights_the_doctor_says_what_to_do() {
    let output = Unprivileged::new().run(&["doctor"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.starts_with("superpage: cannot ") && message.contains("Run as root"));
    assert!(text(&output.stdout).contains("CAP_SYS_NICE"), "the report is there all the same");
}

#[test]
fn without_rights_somebody_elses_process_is_not_touched() {
    let unprivileged = Unprivileged::new();
    for arguments in [&["debloat", "1", "--all"][..], &["debloat", "1", "--all", "--dry-run"]] {
        assert_sentence(&unprivileged.run(arguments), 3, &["process 1;", "sudo"]);
    }
    assert_sentence(&unprivileged.run(&["scan", "1"]), 3, &["process 1;", "sudo"]);
}

#[test]
fn without_rights_the_daemon_does_not_start() {
    let unprivileged = Unprivileged::new();
    let state = unprivileged.somebody_elses_state();
    let state = state.to_str().expect("UTF-8");
    let output = unprivileged.run(&["daemon", "--state", state]);
    assert_sentence(&output, 3, &["not allowed", "root"]);
    let own = std::env::temp_dir().join(format!("superpage-test-{}", std::process::id()));
    let output = unprivileged.run(&["daemon", "--state", own.to_str().expect("UTF-8")]);
    let _ = std::fs::remove_dir_all(&own);
    assert_sentence(&output, 3, &["do not allow", "CAP_SYS_NICE"]);
}

#[test]
fn without_rights_a_scan_says_how_much_it_did_not_see() {
    let output = Unprivileged::new().run(&["scan"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("not looked into; run as root (sudo)."), "{output:?}");
}
