//! Bad luck: programs that change under the promoter's hands, limits, memory that is in
//! other hands.
//!
//! That the kernel has no huge page (ENOMEM) cannot be brought about without taking memory from the
//! whole machine; `pool` and `gate` have what follows from it as units.

use crate::ordinary::{PAGES, until_held, watched};
use crate::program::{Memory, Program};
use crate::watch::{Watch, setup, setup_with};
use crate::{Ended, Test, ensure, wait_for};
use libtest_mimic::Failed;
use std::path::{Path, PathBuf};
use std::process::Command;
use superpage_kernel::cgroup::{Hierarchy, Scratch, Version};
use superpage_kernel::pagemap::Pagemap;
use superpage_kernel::smaps_flags;
use superpage_manager::history::What;
use superpage_manager::select::Filter;
use superpage_policy::watermark::Watermarks;
use superpage_units::{BasePages, Bytes};

pub(crate) fn tests() -> Vec<Test> {
    let groups = scratch("probe")
        .err()
        .map(|error| error.message().unwrap_or("no memory cgroups").to_owned());
    vec![
        ("programs_come_and_go", None, programs_come_and_go),
        ("programs_become_others", None, programs_become_others),
        ("memory_comes_and_goes", None, memory_comes_and_goes),
        ("what_a_child_shares_is_not_copied", None, what_a_child_shares_is_not_copied),
        ("what_is_in_other_hands_is_left_alone", None, what_is_in_other_hands_is_left_alone),
        ("what_is_locked_is_left_alone", None, what_is_locked_is_left_alone),
        (
            "who_runs_in_real_time_is_left_alone",
            without_chrt(),
            who_runs_in_real_time_is_left_alone,
        ),
        ("what_was_freed_lazily_is_left_alone", None, what_was_freed_lazily_is_left_alone),
        ("a_cgroup_keeps_room_for_its_program", groups.clone(), a_cgroup_keeps_room),
        ("a_cgroup_at_its_limit_is_left_alone", groups, a_cgroup_at_its_limit_is_left_alone),
    ]
}

/// Programs that nobody named: they are found by their faults, and are killed in the middle.
fn programs_come_and_go() -> Ended {
    const PROGRAMS: u64 = 25;
    const RANGES: u64 = 16;
    let mut setup = setup("quicksilver-sync-64", &[])?;
    let command = std::fs::read_to_string("/proc/self/comm")?.trim_end().to_owned();
    setup.processes.include = Filter { commands: vec![command], ..Filter::default() };
    let watch = Watch::start(setup)?;
    let mut pids = Vec::new();
    for number in 0..PROGRAMS {
        let mut program = Program::start()?;
        let memory = program.memory(&format!("map {RANGES}"))?;
        for range in 0..RANGES {
            program.touch(memory, range * PAGES, 64 + 8 * number)?;
            if number % 2 == 0 && range == number % RANGES {
                break;
            }
        }
        pids.push(program.pid());
        if number + 1 == PROGRAMS {
            // That it still does its work is seen at the last one.
            program.touch(memory, 0, RANGES * PAGES)?;
            for range in 0..RANGES {
                program.wait_for_huge(memory.range(range))?;
            }
            program.check()?;
        }
    }
    wait_for("the last one to be let go", || {
        Ok(watch.status().policies.iter().all(|(_, held)| *held == 0).then_some(()))
    })?;
    let told = watch.end()?;
    let ours = told.of(What::Promoted).all(|e| e.pid.is_some_and(|pid| pids.contains(&pid)));
    ensure!(ours, "others than ours were promoted: {told:?}");
    let most = pids.iter().map(|pid| told.promoted_in(*pid)).max();
    ensure!(most == Some(RANGES), "{most:?} promoted in one program: {told:?}");
    Ok(())
}

fn programs_become_others() -> Ended {
    let (mut program, mut memory, watch) = watched("quicksilver-sync-64", 8)?;
    for round in 0..20 {
        for range in 0..8 {
            program.touch(memory, range * PAGES, 64 + round)?;
        }
        if round % 4 == 3 {
            program.wait_for_huge(memory.range(7))?;
            program.check()?;
        }
        program.exec()?;
        memory = program.memory("map 8")?;
    }
    // It may be let go for a moment after each exec; then this is found full.
    program.touch(memory, 0, 8 * PAGES)?;
    for range in 0..8 {
        program.wait_for_huge(memory.range(range))?;
    }
    program.check()?;
    watch.end()?;
    Ok(())
}

/// Three programs that unmap, give back and map anew under the promoter's hands.
fn memory_comes_and_goes() -> Ended {
    let mut programs = [Program::start()?, Program::start()?, Program::start()?];
    let pids = programs.each_ref().map(Program::pid);
    let watch = Watch::start(setup("quicksilver-sync-64", &pids)?)?;
    until_held(&watch, 3)?;
    let churn = |program: &mut Program| program.ask("churn 5000");
    let said: Vec<Result<String, Failed>> = std::thread::scope(|scope| {
        let running: Vec<_> =
            programs.iter_mut().map(|program| scope.spawn(move || churn(program))).collect();
        let ended = running.into_iter().map(|one| one.join());
        ended.map(|said| said.unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    for said in said {
        let said = said?;
        ensure!(said.ends_with(" rounds"), "{said}");
    }
    // It goes on as if nothing had been.
    let memory = programs[0].memory("map 1")?;
    programs[0].touch(memory, 0, 64)?;
    programs[0].wait_for_huge(memory.range(0))?;
    programs[0].check()?;
    let told = watch.end()?;
    let promoted = pids.map(|pid| told.promoted_in(pid));
    ensure!(promoted.iter().all(|count| *count > 0), "{promoted:?}, {told:?}");
    Ok(())
}

/// The base pages of a range that are the program's alone.
fn exclusive(program: &Program, memory: Memory, range: u64) -> Result<BasePages, Failed> {
    let pagemap = Pagemap::open(&program.process()?)?;
    Ok(pagemap.exclusive(memory.range(range))?.count())
}

fn what_a_child_shares_is_not_copied() -> Ended {
    let mut program = Program::start()?;
    let memory = program.memory("map 3")?;
    program.touch(memory, 0, 100)?;
    program.touch(memory, PAGES, 100)?;
    program.ask("fork 1")?;
    let watch = Watch::start(setup("quicksilver-sync-64", &[program.pid()])?)?;
    until_held(&watch, 1)?;
    program.touch(memory, 100, 30)?;
    program.touch(memory, 2 * PAGES, 64)?;
    program.wait_for_huge(memory.range(2))?;
    let seen = program.survey(memory.range(0))?;
    ensure!(!seen.is_huge && seen.present == BasePages(130), "{seen:?}");
    let alone = exclusive(&program, memory, 0)?;
    ensure!(alone == BasePages(30), "{alone} base pages are its own, and 30 should be");
    program.order("reap")?;
    program.touch(memory, PAGES + 100, 1)?;
    program.wait_for_huge(memory.range(1))?;
    program.wait_for_huge(memory.range(0))?;
    program.check()?;
    let told = watch.end()?;
    told.promoted(3, "threshold")?;
    ensure!(told.count(What::Refused, "shared") > 0, "{told:?}");
    Ok(())
}

fn what_is_in_other_hands_is_left_alone() -> Ended {
    let mut program = Program::start()?;
    let [merged, filled, plain] = [(); 3].map(|()| program.memory("map 1"));
    let [merged, filled, plain] = [merged?, filled?, plain?];
    program.order(&format!("merge {}", merged.number))?;
    program.order(&format!("watch-writes {}", filled.number))?;
    let watch = Watch::start(setup("quicksilver-sync-64", &[program.pid()])?)?;
    until_held(&watch, 1)?;
    for memory in [merged, filled, plain] {
        program.touch(memory, 0, PAGES)?;
    }
    // What may be merged is in nobody's hands while the kernel has merged nothing of it.
    for memory in [merged, plain] {
        program.wait_for_huge(memory.range(0))?;
    }
    let seen = program.survey(filled.range(0))?;
    ensure!(!seen.is_huge && seen.present == BasePages(PAGES), "{seen:?}");
    program.check()?;
    watch.end()?.promoted(2, "threshold")
}

const POLICY: &str = "quicksilver-sync-64";

/// Fails unless the promoter leaves `kept` as it is and makes `plain` huge.
fn leaves_alone(program: &Program, kept: Memory, plain: Memory) -> Ended {
    let watch = Watch::start(setup(POLICY, &[program.pid()])?)?;
    program.wait_for_huge(plain.range(0))?;
    watch.settle()?;
    ensure!(!program.is_huge(kept.range(0))?, "it was promoted");
    watch.end()?.promoted(1, "threshold")
}

/// Unless the configuration includes it.
fn what_is_locked_is_left_alone() -> Ended {
    let mut program = Program::start()?;
    let (locked, plain) = (program.memory("map 1")?, program.memory("map 1")?);
    program.order(&format!("lock {}", locked.number))?;
    for memory in [locked, plain] {
        program.touch(memory, 0, PAGES)?;
    }
    leaves_alone(&program, locked, plain)?;
    let watch = Watch::start(setup_with(POLICY, &[program.pid()], "locked = \"include\"\n")?)?;
    program.wait_for_huge(locked.range(0))?;
    program.check()?;
    watch.end()?.promoted(1, "threshold")
}

fn without_chrt() -> Option<String> {
    let is_there = Command::new("chrt").arg("-m").output().is_ok_and(|done| done.status.success());
    (!is_there).then(|| "there is no chrt (util-linux)".to_owned())
}

/// Unless the configuration includes it.
fn who_runs_in_real_time_is_left_alone() -> Ended {
    let mut program = Program::start()?;
    let memory = program.memory("map 1")?;
    program.touch(memory, 0, PAGES)?;
    let pid = program.pid().to_string();
    let changed = Command::new("chrt").args(["-f", "-p", "1", &pid]).output()?;
    ensure!(changed.status.success(), "{changed:?}");
    let watch = Watch::start(setup(POLICY, &[program.pid()])?)?;
    until_held(&watch, 1)?;
    watch.settle()?;
    ensure!(!program.is_huge(memory.range(0))?, "it was promoted");
    watch.end()?;
    let watch = Watch::start(setup_with(POLICY, &[program.pid()], "real_time = \"include\"\n")?)?;
    program.wait_for_huge(memory.range(0))?;
    program.check()?;
    watch.end()?.promoted(1, "threshold")
}

fn what_was_freed_lazily_is_left_alone() -> Ended {
    const FREED: u64 = PAGES / 2;
    let mut program = Program::start()?;
    let (freed, plain) = (program.memory("map 1")?, program.memory("map 1")?);
    for memory in [freed, plain] {
        program.touch(memory, 0, PAGES)?;
    }
    program.order(&format!("free-lazily {} 0 {FREED}", freed.number))?;
    let lazily_freed = || -> Result<Bytes, Failed> {
        Ok(smaps_flags::of(&program.process()?)?.iter().map(|vma| vma.lazily_freed).sum())
    };
    let before = lazily_freed()?;
    // The kernel adds some of them to its count later.
    ensure!(before >= BasePages(FREED - 64).bytes(), "{before} are freed lazily");
    leaves_alone(&program, freed, plain)?;
    let after = lazily_freed()?;
    ensure!(after >= before, "{before} were freed lazily, {after} are");
    Ok(())
}

fn scratch(what: &str) -> Result<Scratch, Failed> {
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups are mounted")?;
    Ok(Scratch::create(&hierarchy, &format!("superpage-promoter-{what}-{}", std::process::id()))?)
}

/// Sets the limit of a cgroup.
fn limit(group: &Scratch, limit: Bytes) -> Ended {
    let file = match group.group().version() {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    Ok(std::fs::write(group.group().path().join(file), limit.0.to_string())?)
}

/// What the kernel counts of times at the limit.
fn failures(group: &Scratch) -> Result<u64, Failed> {
    let path = group.group().path();
    let number = match group.group().version() {
        Version::V1 => std::fs::read_to_string(path.join("memory.failcnt"))?,
        Version::V2 => {
            let text = std::fs::read_to_string(path.join("memory.events"))?;
            let max = text.lines().find_map(|line| line.strip_prefix("max "));
            max.ok_or("no line max")?.to_owned()
        }
    };
    Ok(number.trim_end().parse()?)
}

const RANGES: u64 = 32;

/// The watermarks hold for a cgroup as for the machine, and its program has the rest for itself: if
/// all its ranges were promoted, it would have 64 MiB of 48.
fn a_cgroup_keeps_room() -> Ended {
    const TOUCHED: u64 = 80;
    let group = scratch("room")?;
    limit(&group, Bytes::from_mib(48))?;
    let mut program = group.while_in(Program::start)??;
    let memory = program.memory(&format!("map {RANGES}"))?;
    let mut setup = setup("quicksilver-sync-64", &[program.pid()])?;
    setup.promoter.marks = Watermarks::default();
    let watch = Watch::start(setup)?;
    until_held(&watch, 1)?;
    for range in 0..RANGES {
        program.touch(memory, range * PAGES, TOUCHED)?;
    }
    watch.settle()?;
    let told = watch.end()?;
    let promoted = told.promoted_in(program.pid());
    ensure!(promoted > 0 && promoted < RANGES, "{promoted} promoted: {told:?}");
    ensure!(told.count(What::Refused, "memory-short") > 0, "{told:?}");
    ensure!(told.count(What::Refused, "cgroup-limit") == 0, "{told:?}");
    for range in 0..RANGES {
        program.touch(memory, range * PAGES, TOUCHED + 20)?;
    }
    program.check()?;
    let failures = failures(&group)?;
    ensure!(failures == 0, "the cgroup was {failures} times at its limit");
    Ok(())
}

/// A cgroup in another, removed when dropped.
struct Inner(PathBuf);

impl Inner {
    fn create(outer: &Scratch) -> Result<Self, Failed> {
        let path = outer.group().path();
        if outer.group().version() == Version::V2 {
            std::fs::write(path.join("cgroup.subtree_control"), "+memory")?;
        }
        let inner = Self(path.join("inner"));
        std::fs::create_dir(&inner.0)?;
        Ok(inner)
    }

    fn add(&self, program: &Program) -> Ended {
        Ok(std::fs::write(self.0.join("cgroup.procs"), program.pid().to_string())?)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The kernel may not have let go of the last process yet.
        let gone = wait_for("an empty cgroup", || Ok(std::fs::remove_dir(&self.0).ok()));
        drop(gone);
    }
}

/// The limit is that of a cgroup further up: whoever says no, the gate or the kernel, is not asked again
/// and again.
fn a_cgroup_at_its_limit_is_left_alone() -> Ended {
    const MOST: u64 = 200;
    let outer = scratch("limit")?;
    let inner = Inner::create(&outer)?;
    let mut program = Program::start()?;
    inner.add(&program)?;
    let memory = program.memory(&format!("map {RANGES}"))?;
    let watch = Watch::start(setup("quicksilver-sync-64", &[program.pid()])?)?;
    until_held(&watch, 1)?;
    for range in 0..RANGES {
        program.touch(memory, range * PAGES, 63)?;
    }
    // Room for a handful. The program takes its part before anything is promoted.
    let used = outer.group().usage()?.current;
    limit(&outer, used + Bytes::from_mib(10))?;
    program.order(&format!("sprinkle {} 63", memory.number))?;
    watch.settle()?;
    program.check()?;
    let told = watch.end()?;
    let promoted = told.promoted_in(program.pid());
    let refused = told.count(What::Refused, "cgroup-limit");
    let failures = failures(&outer)?;
    let huge = (0..RANGES).map(|number| program.is_huge(memory.range(number)));
    let huge = huge.collect::<Result<Vec<bool>, _>>()?.into_iter().filter(|is| *is).count();
    println!("{promoted} promoted, {refused} refused, {huge} huge, {failures} times at the limit");
    ensure!((1..=8).contains(&huge), "{huge} huge pages in 10 MiB: {told:?}");
    // While somebody holds `max_ptes_none` down, the kernel itself splits what is nearly empty to
    // make room, and refuses nothing.
    let made_room = promoted > huge as u64;
    // As many as there are threads may be under way when the first is refused.
    // The gate may refuse first: what was promoted counts as used before it is read again.
    let is_short = told.count(What::Refused, "memory-short") > 0;
    let is_said = refused > 0 || made_room || is_short;
    ensure!(refused <= 4 && is_said, "{refused} refused: {told:?}");
    ensure!(failures < MOST, "the kernel was {failures} times at the limit");
    drop((program, inner));
    Ok(())
}
