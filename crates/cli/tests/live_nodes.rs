//! The daemon where a program may use one node (NUMA) only, which gets full while the machine is free. Needs root, a kernel that
//! can, and two nodes with memory, the last of which is small: a guest of `cargo xtask test-kernels`.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;

use common::daemon::{Daemon, Home, PATIENCE, says};
use common::machine::{self, Test};
use common::subject::{self, Subject, next_order, pages, pattern, say};
use common::{Ended, wait_for};
use libtest_mimic::Failed;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use superpage_kernel::cgroup::{Hierarchy, Scratch, Version};
use superpage_kernel::node::{self, Node};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::settings::{Mode, Settings};
use superpage_kernel::thp::{self, Enabled, Thp};
use superpage_kernel::{own_policy, vmstat};
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, Bytes, Pid};

/// A larger node takes too long to fill.
const LARGEST: Bytes = Bytes::from_gib(4);
/// The memory that the program maps, by the memory of its node. It touches 40 % of its base pages, and so half of the node.
const MAPPED: f64 = 1.25;
/// The time that a slow program takes for each huge page: 40 MiB in a second, with which a daemon on emulated processors keeps up.
const PACE: Duration = Duration::from_millis(50);
/// The memory that the program under a cpuset has: enough to be managed.
const SOME: Bytes = Bytes::from_mib(64);

fn main() -> ExitCode {
    subject::main(tests, &[("bound", be_bound), ("small", be_small)])
}

fn tests() -> [Test; 2] {
    let able = || machine::without_debloating().or_else(machine::without_daemon);
    let filled = without_nodes().or_else(without_small_node).or_else(able);
    let filled = filled.or_else(machine::without_settings);
    let cpuset = without_nodes().or_else(able).or_else(without_cpuset);
    [
        ("who_is_bound_to_a_node_lives_there", filled, who_is_bound_to_a_node_lives_there),
        ("who_is_in_a_cpuset_is_bound_too", cpuset, who_is_in_a_cpuset_is_bound_too),
    ]
}

/// The last node with memory, and how much that is.
fn last() -> Result<(Node, Bytes), Failed> {
    let nodes = node::with_memory(Path::new("/sys"))?;
    let last = nodes.iter().last().ok_or("no node has memory")?;
    Ok((last, node::memory(Path::new("/sys"), last)?.total))
}

fn without_nodes() -> Option<String> {
    let several = node::with_memory(Path::new("/sys")).is_ok_and(|nodes| nodes.len() > 1);
    (!several).then(|| "this machine has not two nodes with memory".to_owned())
}

fn without_small_node() -> Option<String> {
    let (node, total) = last().ok()?;
    (total > LARGEST).then(|| format!("to fill the {total} of node {} takes too long", node.0))
}

fn without_cpuset() -> Option<String> {
    let there = || -> Result<bool, Failed> {
        let group = scratch("probe")?;
        Ok(group.group().version() == Version::V2
            && group.group().path().join("cpuset.mems").exists())
    };
    (!there().unwrap_or(false)).then(|| "cgroups have no cpuset.mems here".to_owned())
}

fn scratch(what: &str) -> Result<Scratch, Failed> {
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups are mounted")?;
    Ok(Scratch::create(&hierarchy, &format!("superpage-test-{what}-{}", std::process::id()))?)
}

/// A program that may use the last node only, maps more than that has, and touches some of each huge page.
fn be_bound() -> Ended {
    std::fs::write("/proc/self/oom_score_adj", "1000")?;
    let (node, total) = last()?;
    own_policy::bind(node)?;
    let mut memory = OwnMemory::map(total.scaled(MAPPED).to_huge_pages(), Wish::Nothing)?;
    say("ready")?;
    loop {
        match next_order()?.as_str() {
            "fill" => fill(&mut memory, Duration::ZERO)?,
            "fill slowly" => fill(&mut memory, PACE)?,
            "check" => {
                let is_wrong = |(page, bytes): &(usize, &mut [u8])| {
                    is_touched(*page) && bytes[0] != pattern(*page)
                };
                let wrong = pages(memory.bytes_mut()).filter(is_wrong).count();
                say(if wrong == 0 { "intact" } else { "wrong" })?;
            }
            other => return Err(format!("no order {other:?}").into()),
        }
    }
}

fn fill(memory: &mut OwnMemory, pace: Duration) -> Ended {
    for (page, bytes) in pages(memory.bytes_mut()) {
        if is_touched(page) {
            bytes[0] = pattern(page);
        }
        if (page as u64 + 1).is_multiple_of(BASE_PAGES_PER_HUGE_PAGE) {
            std::thread::sleep(pace);
        }
    }
    say("filled")
}

/// Two base pages of five are.
fn is_touched(page: usize) -> bool {
    page % 5 < 2
}

/// A program with some memory.
fn be_small() -> Ended {
    let mut memory = OwnMemory::map(SOME.to_huge_pages(), Wish::Nothing)?;
    pages(memory.bytes_mut()).for_each(|(page, bytes)| bytes[0] = pattern(page));
    say("ready")?;
    next_order().map(|_| ())
}

/// A daemon that watches nothing that is not found, of this process, and leaves khugepaged and the kernel's own shrinker as they
/// are.
fn daemon(of: Pid) -> Result<(Home, Daemon), Failed> {
    let home = Home::with(&common::daemon::Config::idle())?;
    home.configure(&format!(
        "watermarks = {{ enabled = false }}\nprocesses = {{ include = {{ pids = [{}] }} }}\n\
         timing = {{ interval = \"100ms\" }}\nkhugepaged = {{ max_ptes_none = \"keep\" }}\n",
        of.0
    ))?;
    let daemon = home.start()?;
    Ok((home, daemon))
}

/// Whether the daemon says that it watches this.
fn watches(home: &Home, name: &str) -> bool {
    let text = std::fs::read_to_string(home.state().join("status.json")).unwrap_or_default();
    let status: Value = serde_json::from_str(&text).unwrap_or_default();
    status["watches"].as_array().is_some_and(|all| all.iter().any(|watch| watch["name"] == name))
}

fn kills() -> Result<u64, Failed> {
    Ok(vmstat::read(Path::new("/proc"))?.get("oom_kill").unwrap_or(0))
}

/// Killed without the daemon, and alive with it, while the other node is free.
fn who_is_bound_to_a_node_lives_there() -> Ended {
    let state = tempfile::tempdir()?;
    let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
    Thp::under(Path::new("/sys")).set(&mut settings, thp::ENABLED, Enabled::Always)?;
    let before = kills()?;
    let mut alone = Subject::start("bound")?;
    ensure!(alone.order("fill").is_err(), "it lives without the daemon: this shows nothing");
    ensure!(kills()? > before, "it ended, but nobody killed it");
    drop(alone);
    let (name, before) = (format!("nodes {}", last()?.0.0), kills()?);
    let mut program = Subject::start("bound")?;
    let (home, daemon) = daemon(program.pid())?;
    if program.order("fill slowly").is_err() {
        let log: Vec<_> = daemon.log().iter().rev().take(20).map(Value::to_string).collect();
        return Err(format!("killed; the log, last line first:\n{}", log.join("\n")).into());
    }
    ensure!(watches(&home, &name), "{name} is not watched");
    daemon.wait_since(0, "a pass", |line| says(line, "pass done") && line["watch"] == *name)?;
    daemon.stop()?;
    ensure!(kills()? == before, "somebody was killed");
    ensure!(program.order("check")? == "intact", "something was lost");
    Ok(())
}

/// The node is watched while the process is there.
fn who_is_in_a_cpuset_is_bound_too() -> Ended {
    let scratch = scratch("cpuset")?;
    let node = last()?.0.0;
    std::fs::write(scratch.group().path().join("cpuset.mems"), node.to_string())?;
    let program = scratch.while_in(|| Subject::start("small"))??;
    let (home, daemon) = daemon(program.pid())?;
    let name = format!("nodes {node}");
    wait_for("the node to be watched", PATIENCE, || Ok(watches(&home, &name).then_some(())))?;
    drop(program);
    wait_for("the node to be let go", PATIENCE, || Ok((!watches(&home, &name)).then_some(())))?;
    daemon.stop()?;
    Ok(())
}
