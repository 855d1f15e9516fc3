//! What the promoter does on an ordinary day: thresholds, policies, kinds of memory.

use crate::program::{Memory, Program};
use crate::watch::{Watch, setup, setup_with};
use crate::{Ended, Test, ensure, own, wait_for};
use libtest_mimic::Failed;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};
use superpage_kernel::process_madvise;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::find;
use superpage_manager::history::What;
use superpage_manager::pass::{Flow, Options, Pass};
use superpage_policy::debloat::emd;
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, HUGE_PAGE_BYTES, HugePages, PmdRange, Time,
};

/// Base pages of a range.
pub(crate) const PAGES: u64 = BASE_PAGES_PER_HUGE_PAGE;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("at_the_threshold_and_not_below", None, at_the_threshold_and_not_below),
        ("in_the_background_too", None, in_the_background_too),
        ("ingens_waits_for_nine_tenths", None, ingens_waits_for_nine_tenths),
        ("a_policy_of_ones_own_decides", None, a_policy_of_ones_own_decides),
        ("a_de_bloater_of_ones_own_decides", None, a_de_bloater_of_ones_own_decides),
        ("what_was_there_before_is_found", None, what_was_there_before_is_found),
        ("a_heap_is_promoted_as_it_grows", None, a_heap_is_promoted_as_it_grows),
        ("vmas_may_come_in_a_hurry", None, vmas_may_come_in_a_hurry),
        ("stacks_stay_as_they_are", None, stacks_stay_as_they_are),
        ("shared_memory_is_huge_for_all", None, shared_memory_is_huge_for_all),
        ("a_file_in_memory_is_shared_memory", without_mounts(), a_file_in_memory_is_shared_memory),
        ("each_process_has_its_policy", None, each_process_has_its_policy),
        ("another_setup_holds_at_once", None, another_setup_holds_at_once),
        (
            "what_comes_apart_rests_and_is_found_again",
            None,
            what_comes_apart_rests_and_is_found_again,
        ),
        ("what_was_taken_back_comes_back_full", None, what_was_taken_back_comes_back_full),
    ]
}

/// A program with so many ranges, and the promoter on it.
pub(crate) fn watched(policy: &str, ranges: u64) -> Result<(Program, Memory, Watch), Failed> {
    let mut program = Program::start()?;
    let memory = program.memory(&format!("map {ranges}"))?;
    let watch = Watch::start(setup(policy, &[program.pid()])?)?;
    until_held(&watch, 1)?;
    Ok((program, memory, watch))
}

/// Waits until so many processes are under the first policy.
pub(crate) fn until_held(watch: &Watch, processes: u64) -> Ended {
    wait_for("the promoter to hold its processes", || {
        let held = watch.status().policies.first().is_some_and(|(_, held)| *held == processes);
        Ok(held.then_some(()))
    })
}

/// The first range of the second one's kind is promoted, and that of the first is not: by then it
/// would have been.
fn only_from(policy: &str, below: u64, enough: u64) -> Ended {
    let (mut program, memory, watch) = watched(policy, 4)?;
    for range in [0, 2] {
        program.touch(memory, range * PAGES, below)?;
        program.touch(memory, (range + 1) * PAGES, enough)?;
        program.wait_for_huge(memory.range(range + 1))?;
        ensure!(!program.is_huge(memory.range(range))?, "{below} base pages were enough");
    }
    program.check()?;
    let told = watch.end()?;
    told.promoted(2, "threshold")?;
    let filled: BasePages = told.of(What::Promoted).map(|entry| entry.base_pages).sum();
    ensure!(filled == BasePages(2 * (PAGES - enough)), "{filled} base pages filled: {told:?}");
    ensure!(told.of(What::Promoted).all(|e| e.pid == Some(program.pid())), "{told:?}");
    ensure!(told.of(What::Promoted).all(|e| e.policy.as_deref() == Some(policy)), "{told:?}");
    Ok(())
}

fn at_the_threshold_and_not_below() -> Ended {
    only_from("quicksilver-sync-64", 63, 64)
}

fn in_the_background_too() -> Ended {
    only_from("quicksilver-async-64", 63, 64)
}

fn ingens_waits_for_nine_tenths() -> Ended {
    only_from("ingens", 459, 460)
}

fn a_policy_of_ones_own_decides() -> Ended {
    only_from("hundred", 99, 100)
}

/// What half of a huge page holds stays whole; with less in it, the huge page is split.
fn a_de_bloater_of_ones_own_decides() -> Ended {
    let (mut program, memory, watch) = watched("quicksilver-sync-64", 2)?;
    for (range, touched) in [(0, PAGES / 2 + 1), (1, PAGES / 2)] {
        program.touch(memory, range * PAGES, touched)?;
        program.wait_for_huge(memory.range(range))?;
    }
    watch.end()?;
    let half = own::policies().debloat.entry("half").ok_or("its line")?;
    let processes = vec![find::hold(program.pid()).map_err(|refusal| refusal.to_string())?];
    let (need, mut cooling) = (BasePages(2 * PAGES), CoolDown::new());
    let mut pass = Pass::new(processes, need, Options::default(), &cooling, Time::ZERO)?;
    let mut policy = (half.build)(emd::Options::default());
    pass.run(policy.as_mut(), &mut cooling, Time::ZERO, &mut |_| Flow::Continue)?;
    ensure!(pass.account().total().freed == BasePages(PAGES / 2), "{:?}", pass.account());
    ensure!(program.is_huge(memory.range(0))?, "it was not half empty");
    ensure!(!program.is_huge(memory.range(1))?, "it was half empty");
    program.check()
}

fn what_was_there_before_is_found() -> Ended {
    let mut program = Program::start()?;
    let memory = program.memory("map 8")?;
    program.touch(memory, 0, 6 * PAGES)?;
    program.touch(memory, 6 * PAGES, 63)?;
    let watch = Watch::start(setup("quicksilver", &[program.pid()])?)?;
    for range in 0..6 {
        program.wait_for_huge(memory.range(range))?;
    }
    program.check()?;
    ensure!(!program.is_huge(memory.range(6))?, "63 base pages were enough");
    watch.end()?.promoted(6, "threshold")
}

/// The break stands in the middle of a range, which is populated that far, and promoted once the
/// break has passed it.
fn a_heap_is_promoted_as_it_grows() -> Ended {
    let mut program = Program::start()?;
    let first = program.memory("heap 4096")?;
    // Up to a place a quarter into a range, two ranges on.
    let start = PmdRange::containing(first.start);
    let quarter = HUGE_PAGE_BYTES / 4;
    let length = start.end().0 + HUGE_PAGE_BYTES + quarter - first.start.0 - 4096;
    let heap = program.memory(&format!("heap {length}"))?;
    let range = PmdRange::containing(start.end().offset(HUGE_PAGES_BYTES));
    let watch = Watch::start(setup("quicksilver-sync-64", &[program.pid()])?)?;
    until_held(&watch, 1)?;
    let page = |address: u64| (address - heap.start.0) / 4096;
    program.touch(heap, page(range.start().0), 128)?;
    watch.settle()?;
    ensure!(!program.is_huge(range)?, "the heap does not reach that far");
    // As an allocator does, it writes behind what it had.
    let more = program.memory(&format!("heap {HUGE_PAGE_BYTES}"))?;
    let behind = (range.end().0 - more.start.0) / 4096;
    program.touch(more, behind, 40)?;
    program.wait_for_huge(range)?;
    program.check()?;
    watch.end()?.promoted(1, "threshold")
}

/// A huge page, as a size.
const HUGE_PAGES_BYTES: superpage_units::Bytes = superpage_units::Bytes(HUGE_PAGE_BYTES);

/// The list of VMAs is not read for each of them.
fn vmas_may_come_in_a_hurry() -> Ended {
    const VMAS: u64 = 40;
    let (mut program, _, watch) = watched("quicksilver-sync-64", 1)?;
    let mut vmas = Vec::new();
    for _ in 0..VMAS {
        let memory = program.memory("map 1")?;
        program.touch(memory, 0, 64)?;
        vmas.push(memory);
    }
    for memory in vmas {
        program.wait_for_huge(memory.range(0))?;
    }
    program.check()?;
    watch.end()?.promoted(VMAS, "threshold")
}

fn stacks_stay_as_they_are() -> Ended {
    let (mut program, memory, watch) = watched("quicksilver-sync-64", 1)?;
    let stacks = program.ask("threads 4")?;
    let stacks: Vec<PmdRange> = stacks
        .split(' ')
        .map(|place| Ok(PmdRange::containing(superpage_units::VirtAddr(place.parse()?))))
        .collect::<Result<_, std::num::ParseIntError>>()?;
    ensure!(stacks.len() == 4, "{stacks:?}");
    // What is heard after them has been done: so they would have been.
    program.touch(memory, 0, 64)?;
    program.wait_for_huge(memory.range(0))?;
    for range in stacks {
        let seen = program.survey(range)?;
        ensure!(!seen.is_huge && seen.present > BasePages(64), "{seen:?}");
    }
    watch.end()?.promoted(1, "threshold")
}

fn shared_memory_is_huge_for_all() -> Ended {
    let [mut host, mut guest] = [Program::start()?, Program::start()?];
    let memory = host.memory("memfd 4")?;
    let descriptor = host.ask(&format!("descriptor {}", memory.number))?;
    let seen = guest.memory(&format!("open {} {descriptor} 4", host.pid()))?;
    let pids = [host.pid(), guest.pid()];
    let watch = Watch::start(setup("quicksilver-sync-64", &pids)?)?;
    until_held(&watch, 2)?;
    host.touch(memory, 0, PAGES)?;
    host.touch(memory, PAGES, 70)?;
    for range in [0, 1] {
        host.wait_for_huge(memory.range(range))?;
    }
    // The guest maps what is huge already by its first touch, or has it promoted.
    guest.touch(seen, 100, 64)?;
    guest.wait_for_huge(seen.range(0))?;
    ensure!(host.is_huge(memory.range(0))?, "it is not huge for the host any more");
    host.check()?;
    guest.touch(seen, 100, 1)?;
    guest.check()?;
    ensure!(host.check().is_err(), "the guest wrote elsewhere");
    let told = watch.end()?;
    let made = told.promoted_in(host.pid());
    ensure!(made == 2, "{told:?}");
    Ok(())
}

/// Why no file system can be mounted here.
fn without_mounts() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "only root can mount a tmpfs".to_owned())
}

/// A tmpfs of our own, unmounted in the end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn tmpfs() -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m", "superpage-test"]).arg(directory.path());
        ensure!(mount.status()?.success(), "mount a tmpfs");
        Ok(Self(directory))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Programs that still map a file of it keep it only where nobody sees it.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn a_file_in_memory_is_shared_memory() -> Ended {
    let mounted = Mounted::tmpfs()?;
    let file = std::fs::File::create_new(mounted.0.path().join("buffers"))?;
    file.set_len(HugePages(2).bytes().0)?;
    let mut program = Program::start()?;
    let number = file.as_raw_fd();
    let memory = program.memory(&format!("open {} {number} 2", std::process::id()))?;
    let watch = Watch::start(setup("quicksilver-sync-64", &[program.pid()])?)?;
    until_held(&watch, 1)?;
    program.touch(memory, 0, 70)?;
    program.wait_for_huge(memory.range(0))?;
    program.check()?;
    watch.end()?.promoted(1, "threshold")
}

fn each_process_has_its_policy() -> Ended {
    let mut programs = [Program::start()?, Program::start()?, Program::start()?];
    let pids = programs.each_ref().map(Program::pid);
    let rules = format!(
        "[[promotion.rule]]\npolicy = \"off\"\npids = [{}]\n\
         [[promotion.rule]]\npolicy = \"ingens\"\npids = [{}]\n",
        pids[1], pids[2]
    );
    let watch = Watch::start(setup_with("quicksilver-sync-64", &pids, &rules)?)?;
    wait_for("both to be held", || {
        let held = watch.status().policies.iter().filter(|(_, held)| *held == 1).count();
        Ok((held == 2).then_some(()))
    })?;
    let mut vmas = Vec::new();
    for (touched, program) in [100, PAGES, 100].into_iter().zip(&mut programs) {
        let memory = program.memory("map 2")?;
        program.touch(memory, 0, touched)?;
        vmas.push(memory);
    }
    programs[0].wait_for_huge(vmas[0].range(0))?;
    programs[2].touch(vmas[2], PAGES, PAGES)?;
    programs[2].wait_for_huge(vmas[2].range(1))?;
    ensure!(!programs[2].is_huge(vmas[2].range(0))?, "Ingens promotes full ranges only");
    ensure!(!programs[1].is_huge(vmas[1].range(0))?, "it was to be left alone");
    let told = watch.end()?;
    let promoted = pids.map(|pid| told.promoted_in(pid));
    ensure!(promoted == [1, 0, 1], "{promoted:?}, {told:?}");
    Ok(())
}

fn another_setup_holds_at_once() -> Ended {
    let (mut program, memory, watch) = watched("quicksilver-sync-64", 3)?;
    program.touch(memory, 0, 64)?;
    program.wait_for_huge(memory.range(0))?;
    watch.configure(setup("quicksilver-sync-128", &[program.pid()])?);
    wait_for("the other policy", || {
        let policies = watch.status().policies;
        Ok((policies == [("quicksilver-sync-128".to_owned(), 1)]).then_some(()))
    })?;
    program.touch(memory, PAGES, 127)?;
    program.touch(memory, 2 * PAGES, 128)?;
    program.wait_for_huge(memory.range(2))?;
    ensure!(!program.is_huge(memory.range(1))?, "the other policy's threshold is 128");
    program.check()?;
    watch.end()?.promoted(2, "threshold")
}

/// Promoting at once what comes apart would copy it again and again.
fn what_comes_apart_rests_and_is_found_again() -> Ended {
    let (mut program, memory, watch) = watched("quicksilver-sync-64", 2)?;
    let range = memory.range(0);
    program.touch(memory, 0, PAGES)?;
    program.wait_for_huge(range)?;
    // The promoter looks at what became of it; one that is split before that was not promoted.
    std::thread::sleep(Duration::from_secs(1));
    process_madvise::split(&program.process()?, &[range.start()])?;
    let apart = Instant::now();
    program.touch(memory, PAGES, 64)?;
    program.wait_for_huge(memory.range(1))?;
    std::thread::sleep(Duration::from_secs(25));
    ensure!(!program.is_huge(range)?, "it rested for less than {:?}", apart.elapsed());
    // It is found with the next survey, and that comes when the program fills something.
    std::thread::sleep(Duration::from_secs(6));
    let more = program.memory("map 1")?;
    program.touch(more, 0, 63)?;
    program.wait_for_huge(range)?;
    program.check()?;
    watch.end()?.promoted(3, "threshold")
}

/// A split frees what is zero; that must not come back as bloat, but may when it is used.
fn what_was_taken_back_comes_back_full() -> Ended {
    let (mut program, memory, watch) = watched("quicksilver-sync-64", 2)?;
    let range = memory.range(0);
    program.touch(memory, 0, 100)?;
    program.wait_for_huge(range)?;
    std::thread::sleep(Duration::from_secs(1)); // as above
    process_madvise::split(&program.process()?, &[range.start()])?;
    let seen = program.survey(range)?;
    ensure!(!seen.is_huge && seen.present == BasePages(100), "it was not split: {seen:?}");
    // Until it has rested.
    std::thread::sleep(Duration::from_secs(31));
    // 300 of 512: a new range would have been promoted long since.
    program.touch(memory, 100, 200)?;
    program.touch(memory, PAGES, 64)?;
    program.wait_for_huge(memory.range(1))?;
    ensure!(!program.is_huge(range)?, "it would be bloated again");
    program.touch(memory, 300, 212)?;
    program.wait_for_huge(range)?;
    program.check()?;
    let told = watch.end()?;
    told.promoted(3, "threshold")?;
    let refused = told.count(What::Refused, "would-bloat-again");
    ensure!(refused > 0, "that it was refused was not told: {told:?}");
    Ok(())
}
