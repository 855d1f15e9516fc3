//! Promotion and de-bloating at the same time and as fast as they can, on memory whose contents are
//! known and change: nothing of it may be lost.
//!
//! [`superpage_kernel`]'s integrity test does it with the bare calls; here the promoter decides by
//! the program's own faults, and passes of a policy split what it made.

use crate::ordinary::until_held;
use crate::program::Program;
use crate::vma::Vma;
use crate::watch::{Watch, setup};
use crate::{Ended, Test, ensure};
use libtest_mimic::Failed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::own_child::OwnChild;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::find;
use superpage_manager::history::What;
use superpage_manager::pass::{Flow, Options, Pass};
use superpage_policy::debloat::hawkeye::HawkEye;
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, Pid, Time};

pub(crate) fn tests() -> Vec<Test> {
    vec![("no_byte_is_lost_between_promotion_and_debloating", None, no_byte_is_lost)]
}

const THREADS: u64 = 3;
const RANGES: usize = 24;
const PAGES: usize = 512;

/// Small random numbers; the same seed gives the same ones.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ x >> 31) % end as u64).unwrap_or(0)
    }
}

/// What the program does: threads that write, zero, give back and check, each in a VMA of its
/// own, and children that are forked meanwhile. Says how much was done, or what was wrong.
pub(crate) fn storm(time: Duration) -> Result<String, Failed> {
    let vmas: Vec<Vma> =
        (0..THREADS).map(|_| Vma::private(RANGES as u64)).collect::<Result<_, _>>()?;
    let stop = &AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(vmas)
            .map(|(seed, vma)| scope.spawn(move || part(vma, Rng(seed), stop)))
            .collect();
        let began = Instant::now();
        let mut forked = Ok(());
        while began.elapsed() < time && forked.is_ok() {
            forked = OwnChild::fork().map(|child| {
                // What it shares is left alone for a while after its end, too.
                std::thread::sleep(Duration::from_millis(50));
                drop(child);
                std::thread::sleep(Duration::from_secs(12).min(time / 3));
            });
        }
        stop.store(true, Ordering::Relaxed);
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        forked.map(|()| ended)
    })?;
    let mut steps = 0;
    for part in done {
        steps += part.map_err(|_| "a thread panicked")??;
    }
    Ok(format!("{steps} steps"))
}

fn part(mut vma: Vma, mut rng: Rng, stop: &AtomicBool) -> Result<u64, Failed> {
    let mut steps = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..200 {
            let page = rng.below(RANGES * PAGES);
            match rng.below(1000) {
                0..450 => vma.touch(page, 1)?,
                450..700 => vma.zero(page)?,
                700..703 => vma.release(page / PAGES * PAGES, PAGES)?,
                _ => {
                    if let Some(wrong) = vma.wrong_at(page)? {
                        return Err(wrong.into());
                    }
                }
            }
            steps += 1;
        }
        // Who promotes and splits needs the cores too.
        std::thread::sleep(Duration::from_millis(1));
    }
    vma.wrong()?.map_or(Ok(steps), |wrong| Err(wrong.into()))
}

fn no_byte_is_lost() -> Ended {
    let seconds = std::env::var("SUPERPAGE_INTEGRITY_SECONDS").ok();
    let seconds: u64 = seconds.and_then(|text| text.parse().ok()).unwrap_or(15);
    let mut program = Program::start()?;
    let mut setup = setup("quicksilver-sync-16", &[program.pid()])?;
    // Nothing that was reclaimed is too empty to be promoted again.
    setup.promoter.worth = BasePages(BASE_PAGES_PER_HUGE_PAGE + 1);
    setup.promoter.promotion.at_once = 2;
    let watch = Watch::start(setup)?;
    until_held(&watch, 1)?;
    let pid = program.pid();
    let stop = &AtomicBool::new(false);
    let (said, freed) = std::thread::scope(|scope| {
        let debloating = scope.spawn(move || debloat(pid, stop));
        let said = program.ask(&format!("storm {}", seconds * 1000));
        stop.store(true, Ordering::Relaxed);
        (said, debloating.join())
    });
    let (said, freed) = (said?, freed.map_err(|_| "de-bloating panicked")??);
    let told = watch.end()?;
    let promoted = told.promoted_in(pid);
    println!("{said}, {promoted} promoted, {freed} base pages freed");
    ensure!(said.ends_with(" steps"), "{said}");
    ensure!(promoted >= 2 * seconds && freed.0 >= 200 * seconds, "hardly anything happened");
    ensure!(told.of(What::Promoted).all(|entry| entry.pid == Some(pid)), "{told:?}");
    Ok(())
}

/// Splits every huge page that has a zero page, again and again; what that freed.
fn debloat(pid: Pid, stop: &AtomicBool) -> Result<BasePages, Failed> {
    let mut freed = BasePages::ZERO;
    let mut seed = 0;
    while !stop.load(Ordering::Relaxed) {
        seed += 1;
        let process = find::hold(pid).map_err(|refusal| refusal.to_string())?;
        let (options, need) = (Options { seed, ..Options::default() }, BasePages(u64::MAX >> 13));
        let mut cooling = CoolDown::new();
        let mut pass = Pass::new(vec![process], need, options, &cooling, Time::ZERO)?;
        pass.run(&mut HawkEye, &mut cooling, Time::ZERO, &mut |_| Flow::Continue)?;
        freed += pass.account().total().freed;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(freed)
}
