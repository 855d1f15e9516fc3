//! Many VMAs and many processes: what is to be promoted is, and it does not cost the promoter more
//! than it should.

use crate::ordinary::{PAGES, until_held};
use crate::program::Program;
use crate::watch::{Watch, cpu_of_promoter, setup};
use crate::{Ended, Test, ensure, wait_for, wait_within};
use libtest_mimic::Failed;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use superpage_manager::select::Filter;
use superpage_units::Pid;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("forty_thousand_vmas", None, forty_thousand_vmas),
        ("two_thousand_processes", None, two_thousand_processes),
        ("two_thousand_processes_by_name", None, two_thousand_processes_by_name),
    ]
}

/// Each of one range with one page in it, so that all are gone through.
///
/// To read the list of VMAs takes some 30 ms, ten times as long with their flags, which say what was freed lazily; surveys
/// take no more than 1 % of the time. So a second of CPU time is plenty, and what grows with the square of the VMAs takes
/// more.
fn forty_thousand_vmas() -> Ended {
    const VMAS: u64 = 40_000;
    const EVERY: u64 = 625;
    const MOST: Duration = Duration::from_secs(1);
    let mut program = Program::start()?;
    let memory = program.memory(&format!("map {VMAS}"))?;
    program.order(&format!("divide {}", memory.number))?;
    program.order(&format!("sprinkle {} 0", memory.number))?;
    let watch = Watch::start(setup("quicksilver-sync-64", &[program.pid()])?)?;
    until_held(&watch, 1)?;
    let before = cpu_of_promoter()?;
    let began = Instant::now();
    for range in (0..VMAS).step_by(usize::try_from(EVERY)?) {
        program.touch(memory, range * PAGES + 1, 63)?;
    }
    // The second survey begins a hundred times as long after the first as the first took.
    let patience = before * 100 + Duration::from_secs(30);
    for range in (0..VMAS).step_by(usize::try_from(EVERY)?) {
        let range = memory.range(range);
        wait_within(patience, "a huge page", || Ok(program.is_huge(range)?.then_some(())))?;
    }
    let promoted_after = began.elapsed();
    // It has had time to look everything over, too.
    std::thread::sleep(Duration::from_secs(3).saturating_sub(began.elapsed()));
    let cpu = cpu_of_promoter()?;
    println!(
        "40,000 vmas: held for {before:?} of CPU time; 64 huge pages after {promoted_after:?}, \
         {:?} of CPU time later",
        cpu.saturating_sub(before)
    );
    program.check()?;
    watch.end()?.promoted(VMAS / EVERY, "threshold")?;
    ensure!(cpu < MOST, "{cpu:?} of CPU time");
    Ok(())
}

/// Processes that are asked for by number, small and asleep, beside one that is to be promoted. To
/// take hold of each takes some 200 us: its status, maps, cgroup and descriptors. After that each
/// costs about 1 us a second.
fn two_thousand_processes() -> Ended {
    let mut program = Program::start()?;
    let crowd = Crowd::start()?;
    let mut pids: Vec<Pid> = crowd.0.iter().map(|child| Pid(child.id())).collect();
    pids.push(program.pid());
    let watch = Watch::start(setup("quicksilver-sync-64", &pids)?)?;
    until_held(&watch, 2001)?;
    let held = cpu_until_settled()?;
    let idle = idle_share()?;
    promotes(&mut program)?;
    println!(
        "2,000 processes held: {held:?} of CPU time for that, then {:.2} % of a core",
        idle * 1e2
    );
    watch.end()?.promoted(4, "threshold")?;
    ensure!(held < Duration::from_secs(4), "{held:?} to take hold of them");
    ensure!(idle < 0.05, "{idle} of a core while nothing happens");
    Ok(())
}

/// Processes among all others, as a daemon without a list has them: none is large enough to be held.
fn two_thousand_processes_by_name() -> Ended {
    let mut program = Program::start()?;
    let _crowd = Crowd::start()?;
    let command = std::fs::read_to_string("/proc/self/comm")?.trim_end().to_owned();
    let mut setup = setup("quicksilver-sync-64", &[])?;
    setup.processes.include = Filter { commands: vec![command], ..Filter::default() };
    let watch = Watch::start(setup)?;
    wait_for("the promoter", || Ok((!watch.status().policies.is_empty()).then_some(())))?;
    let swept = cpu_of_promoter()?;
    let idle = idle_share()?;
    let memory = program.memory("map 8")?;
    program.touch(memory, 0, 8 * PAGES)?;
    for range in 0..8 {
        program.wait_for_huge(memory.range(range))?;
    }
    program.check()?;
    println!("2,000 processes: {swept:?} of CPU time at first, then {:.2} % of a core", idle * 1e2);
    let told = watch.end()?;
    ensure!(told.promoted_in(program.pid()) == 8, "{told:?}");
    ensure!(swept < Duration::from_secs(1), "{swept:?} for the first sweep");
    // The faults of everybody on this machine are heard, and others may be busy.
    ensure!(idle < 0.5, "{idle} of a core while nothing happens");
    Ok(())
}

/// Small programs that sleep; they end when this is dropped, and after some minutes by themselves.
struct Crowd(Vec<Child>);

impl Crowd {
    fn start() -> Result<Self, Failed> {
        let mut crowd = Self(Vec::new());
        for _ in 0..2000 {
            crowd.0.push(Command::new("sleep").arg("300").stdin(Stdio::null()).spawn()?);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// The CPU time that the promoter has taken when it takes next to none any more: the first survey of each process comes after
/// that was taken hold of.
fn cpu_until_settled() -> Result<Duration, Failed> {
    let mut before = cpu_of_promoter()?;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_secs(1));
        let now = cpu_of_promoter()?;
        if now.saturating_sub(before) < Duration::from_millis(10) {
            return Ok(now);
        }
        before = now;
    }
    Err("the promoter does not come to rest".into())
}

/// The share of a core that the promoter takes while its programs sleep, 0 to 1: over more than the
/// ten seconds between two sweeps.
fn idle_share() -> Result<f64, Failed> {
    let (before, began) = (cpu_of_promoter()?, Instant::now());
    std::thread::sleep(Duration::from_secs(12));
    let used = cpu_of_promoter()?.saturating_sub(before);
    Ok(used.as_secs_f64() / began.elapsed().as_secs_f64())
}

fn promotes(program: &mut Program) -> Ended {
    let memory = program.memory("map 4")?;
    for range in 0..4 {
        program.touch(memory, range * PAGES, 64)?;
    }
    for range in 0..4 {
        program.wait_for_huge(memory.range(range))?;
    }
    program.check()
}
