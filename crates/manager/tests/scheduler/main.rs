//! The scheduler on the simulated machine, from one seed: a kernel that is slow, loses requests and
//! lets some time out; programs that fill, free, exit, fork and run other programs in the middle.
//!
//! [`kernel`] carries commands out and reports when it likes. After every step the scheduler's own
//! check is made, and while something waits the machine's too (safety). Then the programs and the kernel behave, and all that a
//! policy wants must become huge within a bounded time (liveness).

mod kernel;

use kernel::{Kernel, Temper};
use superpage_manager::budget::CpuBudget;
use superpage_manager::process::Survey;
use superpage_manager::promote::event::{Command, Event, Report};
use superpage_manager::promote::policy::Promotion;
use superpage_manager::promote::scheduler::Scheduler;
use superpage_manager::promote::{Promoted, Rules};
use superpage_policy::promotion::list::Registry;
use superpage_units::{BasePages, Nanos, Share, Time, VirtAddr};

/// A second of simulated time.
const SECOND: Nanos = Nanos(1_000_000_000);
/// How long programs and kernel misbehave.
const ROUGH: Nanos = Nanos(40_000_000_000);
/// How long everything that is wanted may take after that: longer than the longest cooldown of a range
/// that was busy, promoted or refused in a rough time.
const CALM: Nanos = Nanos(2_200_000_000_000);

fn rules(policies: &[Promotion]) -> Rules {
    Rules {
        policies: policies.to_vec(),
        budget: CpuBudget::UNLIMITED,
        at_once: 2,
        worth: BasePages(31),
        max_fragmentation: Share::ALL,
    }
}

/// Steps until `end`; returns what was reported.
fn play(scheduler: &mut Scheduler, kernel: &mut Kernel, end: Time) -> Vec<Report> {
    let mut reports = Vec::new();
    while kernel.now < end {
        let (event, at) = kernel.next_event(scheduler.next_step(), end);
        kernel.now = at;
        let commands = scheduler.step(event, kernel.now);
        reports.extend(kernel.take(commands));
        scheduler.check();
        if kernel.temper == Temper::Rough && scheduler.waiting() > 0 {
            kernel.check();
        }
    }
    kernel.check();
    reports
}

fn run(policy: Promotion, seed: u64) -> (Vec<Report>, Kernel) {
    let mut kernel = Kernel::new(policy, seed);
    let mut scheduler = Scheduler::new(rules(&[policy]), Promoted::new(), kernel.now);
    kernel.temper = Temper::Rough;
    let mut reports = play(&mut scheduler, &mut kernel, Time::ZERO + ROUGH);
    kernel.temper = Temper::Calm;
    kernel.fill_all();
    let end = kernel.now + CALM;
    reports.extend(play(&mut scheduler, &mut kernel, end));
    (reports, kernel)
}

fn policy(name: &str) -> Promotion {
    Promotion::named(name, &Registry::published()).expect("a policy")
}

#[test]
fn whatever_happens_all_that_is_wanted_becomes_huge() {
    for (name, least) in
        [("quicksilver-sync-64", 64), ("quicksilver-async-64", 64), ("ingens", 460), ("hawkeye", 1)]
    {
        for seed in 0..5 {
            let (reports, kernel) = run(policy(name), seed);
            let left = kernel.base_mapped_with(BasePages(least));
            assert!(left.is_empty(), "{name}, seed {seed}: {left:?} are not huge");
            let promoted = reports.iter().any(|report| matches!(report, Report::Promoted { .. }));
            assert!(promoted, "{name}, seed {seed}: nothing was promoted");
        }
    }
}

#[test]
fn rough_times_are_rough() {
    let reports: Vec<Report> =
        (0..3).flat_map(|seed| run(policy("quicksilver-sync-64"), seed).0).collect();
    let any = |is_one: fn(&Report) -> bool| reports.iter().any(is_one);
    assert!(any(|report| matches!(report, Report::TimedOut(_))));
    assert!(any(|report| matches!(report, Report::WorkerLost(_))));
    assert!(any(|report| matches!(report, Report::Refused { .. })));
}

#[test]
fn one_seed_is_one_story() {
    let stories = [7, 7, 8].map(|seed| run(policy("quicksilver-sync-64"), seed).0);
    assert_eq!(stories[0], stories[1]);
    assert_ne!(stories[0], stories[2]);
}

#[test]
fn another_policy_takes_over_in_the_middle() {
    let (one, other) = (policy("quicksilver-sync-64"), policy("ingens"));
    for seed in 0..3 {
        let mut kernel = Kernel::new(one, seed);
        let mut scheduler = Scheduler::new(rules(&[one]), Promoted::new(), kernel.now);
        kernel.temper = Temper::Rough;
        play(&mut scheduler, &mut kernel, Time::ZERO + ROUGH);
        scheduler.configure(rules(&[other]), kernel.now);
        scheduler.check();
        kernel.policy = other;
        kernel.temper = Temper::Calm;
        kernel.fill_all();
        let end = kernel.now + CALM;
        play(&mut scheduler, &mut kernel, end);
        let policies = scheduler.policies();
        assert_eq!(policies, [("ingens".to_owned(), kernel.alive())]);
        let left = kernel.base_mapped_with(BasePages(460));
        assert!(left.is_empty(), "seed {seed}: {left:?} are not huge");
    }
}

#[test]
fn a_process_that_answers_no_survey_does_not_hold_up_the_others() {
    let policy = policy("quicksilver-sync-64");
    let mut kernel = Kernel::new(policy, 1);
    let mut scheduler = Scheduler::new(rules(&[policy]), Promoted::new(), kernel.now);
    kernel.stick(0);
    let end = kernel.now + SECOND * 60;
    play(&mut scheduler, &mut kernel, end);
    let left = kernel.base_mapped_with(BasePages(64));
    assert!(!left.is_empty() && left.iter().all(|(program, _)| *program == 0), "{left:?}");
}

#[test]
fn who_is_slow_keeps_others_waiting_for_one_request_at_a_time() {
    let policy = policy("quicksilver-sync-64");
    let mut kernel = Kernel::new(policy, 1);
    let mut scheduler = Scheduler::new(rules(&[policy]), Promoted::new(), kernel.now);
    let last = usize::try_from(kernel.alive()).expect("few") - 1;
    (0..last).for_each(|program| kernel.slow_down(program, SECOND * 9));
    for _ in 0..10 {
        // Every program has faults enough to be surveyed again.
        kernel.fill_some();
        let end = kernel.now + SECOND * 20;
        play(&mut scheduler, &mut kernel, end);
        let left = kernel.base_mapped_with(BasePages(64));
        assert!(left.iter().all(|(program, _)| *program != last), "{left:?}");
    }
}

#[test]
fn a_survey_that_ran_out_of_time_goes_on_where_it_ended() {
    let policy = policy("quicksilver-sync-64");
    let mut kernel = Kernel::new(policy, 3);
    let mut scheduler = Scheduler::new(rules(&[policy]), Promoted::new(), kernel.now);
    let first = scheduler.step(Event::Tick, kernel.now);
    kernel.take(first);
    let (event, at) = kernel.next_event(Time::NEVER, Time::NEVER);
    let commands = scheduler.step(event, at);
    let [Command::Survey(id, process, _)] = commands[..] else { panic!("{commands:?}") };
    let half = VirtAddr(1 << 40);
    let survey = Survey { part: Some((VirtAddr(0), half)), is_late: true, ..Survey::default() };
    let cost = Nanos(1_000_000);
    let mut now = at + cost;
    let mut commands = scheduler.step(Event::Surveyed(id, Some(survey), cost), now);
    // The others come first, which answer at once.
    let mut others = 0;
    let extent = loop {
        let found = commands.iter().find_map(|command| match command {
            Command::Survey(id, of, extent) => Some((*id, *of, *extent)),
            _ => None,
        });
        match found {
            Some((_, of, extent)) if of == process => break extent,
            Some((id, ..)) => {
                others += 1;
                commands = scheduler.step(Event::Surveyed(id, Some(Survey::default()), cost), now);
            }
            None => {
                now += cost;
                commands = scheduler.step(Event::Tick, now);
            }
        }
        assert!(now < at + SECOND, "it waits for longer than its share of a core");
    };
    assert_eq!((extent.from, others), (half, 4));
}

#[test]
fn a_step_without_news_orders_nothing_twice() {
    let policy = policy("quicksilver-sync-64");
    let mut kernel = Kernel::new(policy, 2);
    let mut scheduler = Scheduler::new(rules(&[policy]), Promoted::new(), kernel.now);
    let first = scheduler.step(Event::Tick, kernel.now);
    assert_eq!(first.len(), 1, "an observation: {first:?}");
    assert!(scheduler.step(Event::Tick, kernel.now).is_empty());
    kernel.take(first);
}
