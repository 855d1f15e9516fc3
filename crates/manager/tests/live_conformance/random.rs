//! Random programs: against an obvious model of what is mapped, and, under every policy, on both
//! machines side by side.
//!
//! The seeds are fixed; what fails names its seed and step, and fails again.

use crate::contract::{ALL, base_pages, emd_exact, promote};
use crate::model::{Model, PROGRAMS, PmdRange, RANGES, places};
use crate::policies::{POLICIES, policy_named};
use crate::recorder::Recorder;
use crate::testbed::{Ended, PAGES, Place, Testbed, about};
use crate::{dialogues, ensure, scripts};
use libtest_mimic::Failed;
use superpage_policy::debloat::Debloat;
use superpage_policy::debloat::hawkeye::HawkEye;
use superpage_sim::machine::Content;
use superpage_sim::random::Random;
use superpage_units::{BasePages, HugePages, Nanos, Time};

scripts! {
    random_programs_agree_with_the_model,
}

dialogues! {
    no_policy_loses_data,
}

/// Chosen for a few seconds of test.
const SEEDS: u64 = 3;
const STEPS: u64 = 200;
const STEPS_BETWEEN_CONTENTS: u64 = 10;
const STEPS_UNDER_A_POLICY: u64 = 40;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Do {
    Touch(Place, u16, u16, Content),
    Release(Place, u16, BasePages),
    Promote(Place),
    /// By HawkEye, so much.
    Recover(BasePages),
    /// By EMD, all.
    Debloat,
    /// Until then; the background works.
    Wait(Time),
}

/// A stream of things to do.
struct Script {
    random: Random,
    now: Time,
}

impl Script {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), now: Time::ZERO }
    }

    fn below(&mut self, bound: u64) -> u16 {
        u16::try_from(self.random.below(bound)).unwrap_or(0)
    }

    fn place(&mut self) -> Place {
        Place {
            program: usize::from(self.below(PROGRAMS as u64)),
            range: self.random.below(RANGES),
        }
    }

    /// One base page, some, or nearly all.
    fn run(&mut self) -> (u16, u16) {
        let most = [1, 20, 100, PAGES][usize::from(self.below(4))];
        let count = 1 + self.below(u64::from(most));
        (self.below(u64::from(PAGES - count) + 1), count)
    }

    fn content(&mut self) -> Content {
        if self.below(3) == 0 { Content::Zeroes } else { Content::Data }
    }

    fn touch(&mut self) -> Do {
        let (first, count) = self.run();
        Do::Touch(self.place(), first, count, self.content())
    }

    /// Up to the end of the VMA, at most two ranges.
    fn release(&mut self) -> Do {
        let (place, (first, count)) = (self.place(), self.run());
        let further = u64::from(self.below(2)) * self.random.below(u64::from(PAGES));
        let left = (RANGES - place.range) * u64::from(PAGES) - u64::from(first);
        Do::Release(place, first, BasePages((u64::from(count) + further).min(left)))
    }

    /// With the test in the place of a policy.
    fn any(&mut self) -> Do {
        match self.below(16) {
            0..7 => self.touch(),
            7..9 => self.release(),
            9..14 => Do::Promote(self.place()),
            14 => Do::Recover(BasePages(1 + self.random.below(1500))),
            _ => Do::Debloat,
        }
    }

    /// With a policy at work.
    fn any_of_a_program(&mut self) -> Do {
        match self.below(10) {
            0..6 => self.touch(),
            6..8 => self.release(),
            8 => {
                self.now += Nanos(1_000_000_000) * self.random.below(20);
                Do::Wait(self.now)
            }
            _ => Do::Debloat,
        }
    }
}

/// Does one thing on the machine and in the model, and holds what it came to against each other.
fn do_both<M: Testbed>(machine: &mut M, model: &mut Model, what: Do) -> Ended {
    match what {
        Do::Touch(place, first, count, content) => {
            machine.touch_all(place, first..first + count, content)?;
            model.touch(place, first, count, content);
        }
        Do::Release(place, first, count) => {
            machine.release(place, first, count)?;
            model.release(place, first, count);
        }
        Do::Promote(place) => {
            let (became, expected) = (promote(machine, place)?, model.promote(place));
            ensure!(became == expected, "it became {became:?}, and not {expected:?}");
        }
        Do::Recover(need) => {
            let mut hawkeye = Recorder::<Box<dyn Debloat>>::new(Box::new(HawkEye)).0;
            let (freed, expected) = (machine.debloat(&mut hawkeye, need)?, model.debloat(need));
            ensure!(freed == expected, "{freed} freed, and not {expected}");
        }
        Do::Debloat => {
            let freed = machine.debloat(&mut *emd_exact(), ALL)?;
            let expected = model.debloat(ALL);
            ensure!(freed == expected, "{freed} freed, and not {expected}");
        }
        Do::Wait(until) => {
            machine.set_time(until);
            machine.settle()?;
        }
    }
    Ok(())
}

/// Everything is mapped as the model says.
fn compare<M: Testbed>(machine: &mut M, model: &Model) -> Ended {
    let expected = places().zip(model.0.values().map(PmdRange::mapping));
    let ranges: Vec<_> = places().map(|place| machine.range(place)).collect();
    let view = machine.view()?;
    for ((place, expected), range) in expected.zip(ranges) {
        let seen = view.range(M::key(place.program), range);
        let seen = (seen.mapping, seen.present);
        ensure!(seen == expected, "{place:?} is {seen:?}, and not {expected:?}");
    }
    Ok(())
}

/// And holds what it says.
fn compare_contents<M: Testbed>(machine: &mut M, model: &Model) -> Ended {
    for (place, range) in &model.0 {
        let data = machine.data(*place)?;
        ensure!(data == range.data, "{place:?} holds {data:?}, and not {:?}", range.data);
    }
    machine.check()
}

fn random_programs_agree_with_the_model<M: Testbed>() -> Ended {
    for seed in 0..SEEDS {
        let mut machine = M::start(&[HugePages(RANGES); PROGRAMS], base_pages())?;
        let mut model = Model::new();
        let mut script = Script::new(seed);
        for step in 1..=STEPS {
            let what = script.any();
            do_both(&mut machine, &mut model, what)
                .and_then(|()| compare(&mut machine, &model))
                .and_then(|()| match step.is_multiple_of(STEPS_BETWEEN_CONTENTS) {
                    true => compare_contents(&mut machine, &model),
                    false => Ok(()),
                })
                .map_err(|why| about(&format!("seed {seed}, step {step}, {what:?}"), &why))?;
        }
    }
    Ok(())
}

/// Under a policy: no data is lost, whatever it does. Returns all that was said, and how it ended.
///
/// Of the model only what holds data counts here.
fn under<M: Testbed>(name: &str, seed: u64) -> Result<Vec<String>, Failed> {
    let (policy, log) = Recorder::new(policy_named(name)?);
    let mut machine = M::start(&[HugePages(RANGES); PROGRAMS], Box::new(policy))?;
    let mut model = Model::new();
    let mut script = Script::new(seed);
    for _ in 0..STEPS_UNDER_A_POLICY {
        match script.any_of_a_program() {
            Do::Debloat => {
                machine.debloat(&mut *emd_exact(), ALL)?;
            }
            what => do_both(&mut machine, &mut model, what)?,
        }
    }
    machine.settle()?;
    machine.check()?;
    let mut words = machine.words(&log);
    for place in places() {
        let seen = machine.seen(place)?;
        let expected = &model.at(place).data;
        ensure!(seen.data == *expected, "{place:?} is {seen:?}, and not {expected:?}");
        words.push(format!("{place:?}: {seen:?}"));
    }
    Ok(words)
}

fn no_policy_loses_data<M: Testbed>() -> Result<Vec<String>, Failed> {
    let mut said = Vec::new();
    for (seed, name) in (0..).zip(POLICIES) {
        said.extend(under::<M>(name, seed).map_err(|why| about(name, &why))?);
    }
    Ok(said)
}
