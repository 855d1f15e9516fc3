//! What this machine and our rights allow, as reasons why a test cannot run.

use libtest_mimic::{Arguments, Conclusion, Trial};
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::process::{self, Process};
use superpage_kernel::settings::{Mode, Settings};
use superpage_kernel::thp::{self, Thp};
use superpage_units::{BasePages, Nanos, Pid};

use super::Ended;
use std::path::Path;

/// What a test does.
pub(crate) type Check = fn() -> Ended;

/// A test: its name, why it cannot run here, and itself.
pub(crate) type Test = (&'static str, Option<String>, Check);

/// Where the journal of what tests hold is kept: the next run of tests puts back what a killed one left.
const HELD: &str = "/run/superpage/tests";

/// Runs the tests one at a time: they use much memory, and some change settings of the machine.
pub(crate) fn run(tests: impl IntoIterator<Item = Test>) -> Conclusion {
    let _held = hold_pace();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests.into_iter().map(trial).collect())
}

/// Holds khugepaged at the pace that the kernel has by default until it is dropped: a faster one rebuilds what a test has split
/// before it looks. `None` where another test program holds it, or nobody may.
fn hold_pace() -> Option<Settings> {
    const PACE: (BasePages, Nanos) = (BasePages(4096), Nanos(10_000_000_000));
    if probe::probe(Ability::HoldKhugepaged).answer != Answer::Yes {
        return None;
    }
    let (mut settings, _) = Settings::open(Path::new(HELD), Mode::Apply).ok()?;
    let knobs = Thp::under(Path::new("/sys"));
    knobs.set(&mut settings, thp::PAGES_TO_SCAN, PACE.0).ok()?;
    knobs.set(&mut settings, thp::SCAN_SLEEP, PACE.1).ok()?;
    Some(settings)
}

fn trial((name, hindrance, test): Test) -> Trial {
    if let Some(reason) = &hindrance {
        println!("skipped {name}: {reason}");
    }
    Trial::test(name, test).with_ignored_flag(hindrance.is_some())
}

/// Why nothing can be de-bloated here.
pub(crate) fn without_debloating() -> Option<String> {
    Ability::ESSENTIAL.into_iter().chain([Ability::MakeHugePages]).find_map(|ability| {
        let finding = probe::probe(ability);
        (finding.answer != Answer::Yes).then_some(finding.why)
    })
}

/// Why no program can have a heap here: first touches of its memory are not heard of.
pub(crate) fn without_first_touches() -> Option<String> {
    let finding = probe::probe(Ability::HearFirstTouches);
    (finding.answer != Answer::Yes).then_some(finding.why)
}

/// Why khugepaged's settings cannot be held here: no rights, or somebody else is at it.
pub(crate) fn without_settings() -> Option<String> {
    let finding = probe::probe(Ability::HoldKhugepaged);
    if finding.answer != Answer::Yes {
        return Some(finding.why);
    }
    another_superpage().map(|pid| format!("process {pid} holds the settings of this machine"))
}

/// Why no daemon can be tested here: the machine has its one already. That of another test, which
/// keeps its state apart, is gone soon and waited for.
pub(crate) fn without_daemon() -> Option<String> {
    let is_here_to_stay = |words: &[&[u8]]| match words {
        [b"daemon", options @ ..] => !options.contains(&&b"--state"[..]),
        _ => false,
    };
    find_superpage(is_here_to_stay)
        .map(|pid| format!("process {pid} is the daemon of this machine"))
}

/// A daemon or an experiment that runs on this machine.
fn another_superpage() -> Option<Pid> {
    find_superpage(|words| matches!(words, [b"daemon", ..] | [b"lab", b"run" | b"demo", ..]))
}

/// A superpage on this machine with such arguments.
fn find_superpage(wanted: fn(&[&[u8]]) -> bool) -> Option<Pid> {
    let is_wanted = |pid: &Pid| {
        let line = Process::open(*pid).and_then(|process| process.read_file("cmdline"));
        let line = line.unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words[0].ends_with(b"superpage") && wanted(&words[1..])
    };
    process::list(Path::new("/proc")).unwrap_or_default().into_iter().find(is_wanted)
}
