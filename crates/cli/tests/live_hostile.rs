//! `scan` and the daemon run as root beside programs of ordinary users that try to bloat, hang or mislead them.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;

use common::daemon::{Config, Home, PATIENCE, says};
use common::machine::{self, Test};
use common::subject::{self, Subject, next_order, say};
use common::{Ended, Holds, PROGRAM, Said, superpage, wait_for, without, worker};
use libtest_mimic::Failed;
use rustix::process::{Resource, Rlimit, Signal, Uid, getrlimit, setrlimit};
use rustix::thread::set_thread_uid;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use superpage_kernel::cgroup::{Hierarchy, Scratch};
use superpage_kernel::ksm;
use superpage_kernel::own_vma::OwnVma;
use superpage_kernel::process::Process;
use superpage_kernel::settings::{Mode, Settings};
use superpage_kernel::status;
use superpage_lab::workload::WorkloadKind;
use superpage_units::{Bytes, HugePages, Pid};

fn main() -> ExitCode {
    let roles: [subject::Role; 4] = [
        ("many-mappings", be_mapping),
        ("many-descriptors", be_opening),
        ("merging", be_merging),
        ("flipping", be_flipping),
    ];
    subject::main(tests, &roles)
}

fn tests() -> [Test; 9] {
    let able = machine::without_debloating().or_else(machine::without_daemon);
    let merging = able.clone().or_else(without_merging);
    let stress = able.clone().or_else(|| without(&["stress-ng", "--version"]));
    [
        ("a_scan_takes_little_memory_whatever_is_mapped", able.clone(), a_scan_takes_little_memory),
        ("the_daemon_serves_others_meanwhile", able.clone(), the_daemon_serves_others_meanwhile),
        (
            "memory_that_never_answers_keeps_nobody_waiting",
            able.clone().or_else(machine::without_first_touches),
            memory_that_never_answers_keeps_nobody_waiting,
        ),
        (
            "cgroups_by_the_thousand_cost_nothing",
            able.clone().or_else(without_cgroups),
            cgroups_by_the_thousand_cost_nothing,
        ),
        (
            "a_cgroup_outside_our_namespace_is_unknown",
            able.clone()
                .or_else(without_cgroups)
                .or_else(|| without(&["unshare", "--cgroup", "true"])),
            a_cgroup_outside_our_namespace_is_unknown,
        ),
        ("another_proc_is_told_from_ours", able.clone().or_else(without_namespaces), another_proc),
        (
            "pages_of_other_sizes_are_refused",
            without_namespaces(),
            pages_of_other_sizes_are_refused,
        ),
        ("whose_pages_are_merged_is_said", merging, whose_pages_are_merged_is_said),
        ("stress_ng_finds_nothing_wrong", stress, stress_ng_finds_nothing_wrong),
    ]
}

/// Just below the kernel's limit (`vm.max_map_count`) for one process.
const MAPPINGS: u64 = 65_000;
/// Most of the longest path that may be opened.
const PATH: usize = 3_600;
/// Just below the kernel's limit (`fs.nr_open`) for one process.
const DESCRIPTORS: u64 = 1_000_000;
/// The most resident memory that `scan` and the daemon may have.
const LITTLE: Bytes = Bytes::from_mib(40);

/// A process whose `maps` has 240 MB: many mappings of a file with a long path.
fn be_mapping() -> Ended {
    let root = tempfile::tempdir()?;
    let mut directory = root.path().to_owned();
    while directory.as_os_str().len() < PATH - 200 {
        directory.push("d".repeat(200));
    }
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("f".repeat(199));
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let size = HugePages(MAPPINGS);
    file.set_len(size.bytes().0)?;
    let mut mapped = OwnVma::of_file(file.into(), size)?;
    mapped.divide()?;
    subject_waits()
}

/// A process with a million descriptors, or as many as we may give it.
fn be_opening() -> Ended {
    let limits = getrlimit(Resource::Nofile);
    let wanted = Some(DESCRIPTORS);
    let all = Rlimit { current: wanted, maximum: wanted };
    if setrlimit(Resource::Nofile, all).is_err() {
        setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?;
    }
    let file = File::open("/dev/null")?;
    let all: Vec<File> = std::iter::from_fn(|| file.try_clone().ok()).collect();
    subject_waits()?;
    drop(all);
    Ok(())
}

fn subject_waits() -> Ended {
    say("ready")?;
    loop {
        next_order()?;
    }
}

/// Runs the program to its end: what it said, and the most memory it had.
fn run_watched(arguments: &[&str]) -> Result<(Said, Bytes), Failed> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let process = Process::open(Pid(child.id()))?;
    let mut most = Bytes::ZERO;
    while child.try_wait()?.is_none() {
        // Its last milliseconds are not seen; the kernel keeps the maximum until then.
        let peak = status::of(&process).ok().and_then(|status| status.peak_rss);
        most = most.max(peak.unwrap_or_default());
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok((child.wait_with_output()?.into(), most))
}

fn a_scan_takes_little_memory() -> Ended {
    let subject = Subject::start("many-mappings")?;
    let pid = subject.pid().to_string();
    let (said, most) = run_watched(&["scan"])?;
    let passed_over = format!("Process {pid} was passed over: /proc/{pid}/maps is longer");
    ensure!(said.code == Some(0) && said.out.contains(&passed_over), "{said:?}");
    ensure!(most < LITTLE, "scan took {most}");
    let (said, most) = run_watched(&["scan", &pid])?;
    let is_said = said.err.contains("is longer than") && said.err.lines().count() == 1;
    ensure!(said.code == Some(1) && is_said, "{said:?}");
    ensure!(most < LITTLE, "scan {pid} took {most}");
    let said = superpage(&["debloat", &pid, "--all"])?;
    ensure!(said.code == Some(1) && said.err.contains("is longer than"), "{said:?}");
    Ok(())
}

fn the_daemon_serves_others_meanwhile() -> Ended {
    let subjects = ["many-mappings", "many-descriptors"].map(Subject::start);
    let mut pids = Vec::new();
    for subject in &subjects {
        let subject = subject.as_ref().map_err(|error| format!("{error:?}"))?;
        pids.push(subject.pid());
    }
    let mut worker = worker(WorkloadKind::RandomAccessR, Bytes::from_mib(64))?;
    let long = pids[0];
    pids.push(worker.pid());
    let home = Home::with(&Config::all_of(&pids))?;
    let daemon = home.start()?;
    let passes_over = |line: &Value| says(line, "passed over") && line["pid"] == long.0;
    daemon.wait_since(0, "it to pass one over", passes_over)?;
    let is_split = |line: &Value| says(line, "split huge pages") && line["pid"] == worker.pid().0;
    daemon.wait_since(0, "it to serve another", is_split)?;
    let peak = status::of(&Process::open(daemon.pid())?)?.peak_rss.unwrap_or_default();
    ensure!(peak < LITTLE, "the daemon took {peak}");
    wait_for("it to be counted", PATIENCE, || {
        let metrics = std::fs::read_to_string(home.state().join("metrics.prom"))?;
        let is_counted = metrics.lines().any(|line| line == "superpage_processes_too_long 1");
        Ok(is_counted.then_some(()))
    })?;
    daemon.stop()?;
    worker.check()?;
    Ok(worker.quit()?)
}

fn without_namespaces() -> Option<String> {
    without(&["unshare", "--mount", "--pid", "--fork", "true"])
}

/// Something else than this namespace's processes lies over `/proc`: nothing that is read there is believed.
fn another_proc() -> Ended {
    let files = "mount -t tmpfs none /proc && mkdir /proc/1";
    let others = "true";
    let not_ours = "it shows the processes of another namespace";
    for (namespaces, mount, says, commands) in [
        (&["--mount"][..], files, "it is not the kernel's (procfs)", &["scan"][..]),
        (&["--mount", "--pid", "--fork"], others, not_ours, &["scan", "daemon"]),
    ] {
        for command in commands {
            let script = format!("{mount} && exec \"$0\" {command}");
            let mut unshared = Command::new("unshare");
            let output = unshared.args(namespaces).args(["sh", "-c", &script, PROGRAM]).output()?;
            let said = Said::from(output);
            ensure!(said.code != Some(0) && said.err.contains(says), "{command}: {said:?}");
            ensure!(said.err.lines().count() == 1, "{command}: {said:?}");
        }
    }
    Ok(())
}

/// The kernel says that its huge pages have 32 MiB, as one with base pages of 16 KiB does.
fn pages_of_other_sizes_are_refused() -> Ended {
    const SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let home = tempfile::tempdir()?;
    let size = home.path().join("size");
    std::fs::write(&size, "33554432\n")?;
    let script = format!("mount --bind {} {SIZE} && exec \"$0\" \"$@\"", size.display());
    let state = home.path().join("state");
    let (me, state) = (std::process::id().to_string(), state.to_string_lossy().into_owned());
    let refused: [&[&str]; 12] = [
        &["doctor"],
        &["scan"],
        &["scan", &me],
        &["debloat", &me, "--all", "--dry-run"],
        &["promote", &me],
        &["record", &me, "--output", "/nonexistent/trace"],
        &["run", "true"],
        &["daemon", "--state", &state],
        &["top", "--once"],
        &["lab", "run", "emd-fig2"],
        &["lab", "fragment", "1%"],
        &["graph", "run", "bfs", "/nonexistent.el"],
    ];
    let done: [&[&str]; 5] = [
        &["lab", "list"],
        &["restore", "--state", &state],
        &["daemon", "--check"],
        &["completions", "bash"],
        &["man", &state],
    ];
    for (commands, code) in [(&refused[..], 3), (&done[..], 0)] {
        for command in commands {
            let mut unshared = Command::new("unshare");
            unshared.args(["--mount", "sh", "-c", &script, PROGRAM]).args(*command);
            let said = Said::from(unshared.output()?);
            ensure!(said.code == Some(code), "{command:?}: {said:?}");
            let sentence = "this kernel has base pages of 4 KiB and huge pages of 32 MiB";
            let is_said = said.err.contains(sentence) && said.err.lines().count() == 1;
            ensure!(is_said == (code == 3), "{command:?}: {said:?}");
        }
    }
    Ok(())
}

fn without_cgroups() -> Option<String> {
    let made =
        hierarchy().and_then(|hierarchy| Ok(Scratch::create(&hierarchy, "superpage-probe")?));
    made.err().map(|error| error.message().unwrap_or("no cgroups").to_owned())
}

fn hierarchy() -> Result<Hierarchy, Failed> {
    Ok(Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups are mounted")?)
}

/// The cgroups that a user makes who was given one of his own.
const GROUPS: usize = 3_000;

/// A user makes cgroups by the thousand, each with a limit, and has a small process go from one to the next, while the daemon
/// serves a process in another one.
fn cgroups_by_the_thousand_cost_nothing() -> Ended {
    let hierarchy = hierarchy()?;
    let group = |name: String| -> Result<Scratch, Failed> {
        let group = Scratch::create(&hierarchy, &name)?;
        group.limit(Bytes::from_mib(64))?;
        Ok(group)
    };
    let groups: Result<Vec<Scratch>, Failed> =
        (0..GROUPS).map(|number| group(format!("superpage-many-{number}"))).collect();
    let groups = groups?;
    let subject = Subject::start("merging")?;
    let wanderer = Process::open(subject.pid())?;
    let mut worker = worker(WorkloadKind::RandomAccessR, Bytes::from_mib(64))?;
    let home = Home::with(&Config::all_of(&[subject.pid(), worker.pid()]))?;
    let daemon = home.start()?;
    let is_split = |line: &Value| says(line, "split huge pages") && line["pid"] == worker.pid().0;
    daemon.wait_since(0, "it to serve another", is_split)?;
    let (before, began) = (daemon.cpu()?, Instant::now());
    for group in &groups {
        group.add(&wanderer)?;
    }
    std::thread::sleep(Duration::from_secs(5).saturating_sub(began.elapsed()));
    let used = daemon.cpu()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    let peak = status::of(&Process::open(daemon.pid())?)?.peak_rss.unwrap_or_default();
    ensure!(used < 0.1, "the daemon took {used} of a core");
    ensure!(peak < LITTLE, "the daemon took {peak}");
    daemon.stop()?;
    drop(subject);
    worker.check()?;
    Ok(worker.quit()?)
}

/// The daemon has a cgroup namespace of its own, as in a container, and a list names a cgroup outside: it cannot tell who is in there.
fn a_cgroup_outside_our_namespace_is_unknown() -> Ended {
    let hierarchy = hierarchy()?;
    let group = |name: &str| {
        Scratch::create(&hierarchy, &format!("superpage-{name}-{}", std::process::id()))
    };
    let (container, pod) = (group("container")?, group("pod")?);
    let mut excluded =
        pod.while_in(|| worker(WorkloadKind::RandomAccessR, Bytes::from_mib(64)))??;
    let path = pod.group().path().to_owned();
    let config = Config { exclude_cgroups: vec![path], ..Config::all_of(&[excluded.pid()]) };
    let before = Holds::now(excluded.pid())?.huge;
    let home = Home::with(&config)?.started_by(&["unshare", "--cgroup"]);
    let daemon = container.while_in(|| home.start())??;
    let is_said = |line: &Value| {
        says(line, "the cgroup of this process") && line.to_string().contains("--cgroupns=host")
    };
    daemon.wait_since(0, "it to say that", is_said)?;
    // It looks twenty times a second.
    std::thread::sleep(Duration::from_secs(2));
    daemon.stop()?;
    ensure!(Holds::now(excluded.pid())?.huge == before, "an excluded process was touched");
    let mut doctor = Command::new("unshare");
    doctor.args(["--cgroup", PROGRAM, "doctor"]);
    let said = Said::from(container.while_in(|| doctor.output())??);
    ensure!(said.out.contains("--cgroupns=host"), "{said:?}");
    excluded.check()?;
    Ok(excluded.quit()?)
}

const KSM: &str = "/sys/kernel/mm/ksm";

fn without_merging() -> Option<String> {
    let is_there = Path::new(KSM).join("run").exists();
    (!is_there).then(|| "this kernel merges no equal pages (KSM)".to_owned())
}

/// A process that lets equal pages be merged, as QEMU does.
fn be_merging() -> Ended {
    let mut memory = OwnVma::private(HugePages(16))?;
    memory.merge()?;
    memory.bytes_mut().fill(1);
    subject_waits()
}

/// That a program allows merging keeps nobody from its memory, and what is left alone once pages are merged is said.
fn whose_pages_are_merged_is_said() -> Ended {
    let subject = Subject::start("merging")?;
    let pid = subject.pid().to_string();
    let names_it = |line: &str| line.contains(&format!(" {pid} ("));
    let is_said_by = |command| -> Result<bool, Failed> {
        let said = superpage(&[command])?.done()?;
        let line = said.out.lines().find(|line| line.starts_with("Neither promoted nor split"));
        Ok(line.is_some_and(names_it))
    };
    let left_alone = || -> Result<Value, Failed> {
        let rows = superpage(&["promote", &pid, "--least", "1", "--json"])?.done()?.rows()?;
        Ok(rows[0]["left_alone_bytes"]["merged"].clone())
    };
    ensure!(left_alone()?.is_null(), "left alone though nothing is merged: {:?}", left_alone()?);
    ensure!(Holds::now(subject.pid())?.huge == HugePages(16), "it was not promoted");
    ensure!(!is_said_by("scan")? && !is_said_by("doctor")?, "it is said though nothing is merged");
    let state = tempfile::tempdir()?;
    let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
    for (name, value) in [("pages_to_scan", "20000"), ("sleep_millisecs", "10"), ("run", "1")] {
        settings.change(&Path::new(KSM).join(name), value)?;
    }
    wait_for("pages to be merged", PATIENCE, || {
        let merged = ksm::merged(&Process::open(subject.pid())?)?;
        Ok((!merged.is_zero()).then_some(()))
    })?;
    ensure!(is_said_by("scan")? && is_said_by("doctor")?, "it is not said");
    let left = left_alone()?;
    ensure!(left.as_u64().is_some_and(|bytes| bytes > 0), "{left}");
    let table = superpage(&["promote", &pid])?.done()?;
    ensure!(table.out.contains("(KSM)"), "{table:?}");
    Ok(())
}

/// Programs that map, move, advise about, free and fork as fast as they can, and see whether their memory is right, while the
/// daemon promotes and splits all that it finds.
fn stress_ng_finds_nothing_wrong() -> Ended {
    let home = Home::with(&Config::idle())?;
    home.configure(
        "[watermarks]\nhigh = \"1%\"\nlow = \"0%\"\n[budget]\ndebloat = \"100%\"\npromotion = \"100%\"\n\
         [promotion]\npolicy = \"quicksilver\"\nmax_fragmentation = \"100%\"\n\
         [timing]\ninterval = \"50ms\"\nback_off = \"100ms\"\ncool_down = \"100ms\"\n\
         [processes.include]\ncommands = [\"stress-ng\", \"stress-ng-vm\", \"stress-ng-mmap\", \"stress-ng-mrema\", \
         \"stress-ng-madvi\", \"stress-ng-fork\"]\n",
    )?;
    let daemon = home.start()?;
    let output = Command::new("stress-ng")
        .args(["--vm", "1", "--vm-bytes", "256M", "--mmap", "1", "--mmap-bytes", "128M"])
        .args(["--mremap", "1", "--madvise", "1", "--fork", "1", "--verify", "--timeout", "60s"])
        .output()?;
    let said = Said::from(output);
    ensure!(said.code == Some(0), "{said:?}");
    let log = daemon.stop()?;
    let has_split = log.iter().any(|line| says(line, "split huge pages"));
    ensure!(has_split, "nothing was split: {:?}", log.iter().rev().take(5).collect::<Vec<_>>());
    Ok(())
}

/// The user that processes with such memory belong to: nobody.
const HOSTILE: u32 = 65_534;

/// A process whose memory is bloat on huge pages at one moment, and at the next one without pages, which nobody fills.
fn be_flipping() -> Ended {
    let mut memory = OwnVma::private(HugePages(16))?;
    std::thread::spawn(move || -> Result<(), superpage_kernel::Error> {
        loop {
            memory.renew()?;
            memory.use_huge_pages()?;
            memory.bytes_mut().iter_mut().step_by(1 << 16).for_each(|byte| *byte = 1);
            std::thread::sleep(Duration::from_millis(30));
            memory.renew()?;
            memory.leave_missing()?;
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    // The kernel names this thread's user as the process's. The other thread stays root, without which it may not leave memory missing.
    set_thread_uid(Uid::from_raw(HOSTILE))?;
    subject_waits()
}

/// Whoever reads such memory at the wrong moment waits for ever, and the daemon goes on without: also where one user has eight
/// such processes, and may keep eight threads waiting. Chance decides whether a read of the daemon meets such a moment; the unit tests of
/// `reclaim` have threads that certainly wait.
fn memory_that_never_answers_keeps_nobody_waiting() -> Ended {
    let subjects = (0..8).map(|_| Subject::start("flipping")).collect::<Result<Vec<_>, _>>()?;
    let mut include: Vec<Pid> = subjects.iter().map(Subject::pid).collect();
    let config = Config::all_of(&include);
    let home = Home::with(&config)?;
    let daemon = home.start()?;
    std::thread::sleep(Duration::from_secs(15));
    let mut worker = worker(WorkloadKind::RandomAccessR, Bytes::from_mib(64))?;
    include.push(worker.pid());
    let both = Config { include, ..config };
    home.configure(&both.to_string())?;
    daemon.signal(Signal::HUP)?;
    let is_split = |line: &Value| says(line, "split huge pages") && line["pid"] == worker.pid().0;
    daemon.wait_since(0, "it to serve another", is_split)?;
    daemon.stop()?;
    worker.check()?;
    Ok(worker.quit()?)
}
