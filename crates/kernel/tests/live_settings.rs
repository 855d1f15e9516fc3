//! Settings, triggers and groups of the real kernel. Everything that is changed is put back, also
//! when a test fails. A test that cannot run here says why and counts as ignored.

#![expect(clippy::print_stdout, reason = "a test harness of its own reports on the terminal")]

use libtest_mimic::{Arguments, Failed, Trial};
use std::error::Error as StdError;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use superpage_kernel::Error;
use superpage_kernel::cgroup::{Hierarchy, Scratch, Version};
use superpage_kernel::pressure::{self, Trigger, Wake};
use superpage_kernel::process::Process;
use superpage_kernel::settings::{Mode, Outcome, Settings};
use superpage_kernel::thp::{MAX_PTES_NONE, PAGES_TO_SCAN, Thp};
use superpage_units::{BasePages, Bytes, Nanos, Pid};

/// How a test ends: with nothing to say, or with what went wrong.
type Ended = Result<(), Box<dyn StdError>>;

/// Set for the copy of this program that is started to be killed: the state directory to use.
const VICTIM: &str = "SUPERPAGE_TEST_VICTIM";

/// Ends the test with the message unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+).into());
        }
    };
}

fn main() {
    if let Some(state) = std::env::var_os(VICTIM) {
        be_killed(Path::new(&state));
    }
    let root = needs_root;
    let stall = root().or_else(needs_pressure).or_else(needs_group);
    let tests = [
        test("a_knob_is_set_and_put_back", root(), a_knob_is_set_and_put_back),
        test("a_killed_run_is_repaired", root(), a_killed_run_is_repaired),
        test("pressure_reads", needs_pressure(), pressure_reads),
        test("a_trigger_waits", root().or_else(needs_pressure), a_trigger_waits),
        test("a_trigger_goes_off", stall, a_trigger_goes_off),
        test("a_group_gives_memory_back", root().or_else(needs_group), a_group_gives_memory_back),
        test("a_group_left_behind_is_replaced", root().or_else(needs_group), a_group_is_replaced),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests.into()).exit();
}

/// The trial of `run`, ignored if there is a reason why it cannot run here.
fn test(name: &str, hindrance: Option<String>, run: fn() -> Ended) -> Trial {
    if let Some(reason) = &hindrance {
        println!("skipped {name}: {reason}");
    }
    let run = move || run().map_err(|error| Failed::from(error.to_string()));
    Trial::test(name, run).with_ignored_flag(hindrance.is_some())
}

fn needs_root() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it changes settings of the machine, which takes root".into());
    }
    thp().get(MAX_PTES_NONE).err().map(|error| error.to_string())
}

fn needs_pressure() -> Option<String> {
    pressure::read(Path::new(PRESSURE)).err().map(|error| error.to_string())
}

fn needs_group() -> Option<String> {
    let scratch = match Hierarchy::find(Path::new("/")) {
        Ok(Some(hierarchy)) => Scratch::create(&hierarchy, &group_name("probe")),
        Ok(None) => return Some("no memory cgroups are mounted".into()),
        Err(error) => Err(error),
    };
    scratch.err().map(|error| error.to_string())
}

const PRESSURE: &str = "/proc/pressure/memory";
const SECOND: u64 = 1_000_000_000;
/// The shortest that needs no CAP_SYS_RESOURCE, which root in a container may lack.
const WINDOW: Nanos = Nanos(2 * SECOND);

fn thp() -> Thp {
    Thp::under(Path::new("/sys"))
}

/// A name that no other run uses at the same time.
fn group_name(what: &str) -> String {
    format!("superpage-test-{what}-{}", std::process::id())
}

fn scratch(what: &str) -> Result<Scratch, Box<dyn StdError>> {
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups")?;
    Ok(Scratch::create(&hierarchy, &group_name(what))?)
}

fn a_knob_is_set_and_put_back() -> Ended {
    let state = tempfile::tempdir()?;
    let before = thp().get(MAX_PTES_NONE)?;
    let other = BasePages(if before == BasePages(409) { 51 } else { 409 });
    let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
    let change = thp().set(&mut settings, MAX_PTES_NONE, other)?;
    let during = thp().get(MAX_PTES_NONE)?;
    let refused = thp().set(&mut settings, MAX_PTES_NONE, BasePages(100_000));
    let repairs = settings.restore()?;
    ensure!(during == other && change.to == other.0.to_string(), "the value was not set");
    ensure!(refused.is_err(), "the kernel took a value that makes no sense");
    ensure!(matches!(repairs[0].outcome, Outcome::PutBack { .. }), "not put back");
    ensure!(thp().get(MAX_PTES_NONE)? == before, "the original is not back");
    Ok(())
}

/// The victim: changes a knob, says so, and waits for its end.
fn be_killed(state: &Path) -> ! {
    let changed = || -> Ended {
        let (mut settings, _) = Settings::open(state, Mode::Apply)?;
        let before = thp().get(PAGES_TO_SCAN)?;
        thp().set(&mut settings, PAGES_TO_SCAN, BasePages(before.0 + 1))?;
        println!("changed");
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    };
    let failed = changed().is_err();
    std::process::exit(failed.into())
}

fn a_killed_run_is_repaired() -> Ended {
    let state = tempfile::tempdir()?;
    let before = thp().get(PAGES_TO_SCAN)?;
    let mut victim = Command::new(std::env::current_exe()?)
        .env(VICTIM, state.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(victim.stdout.take().ok_or("no output")?).read_line(&mut said)?;
    let busy = Settings::open(state.path(), Mode::Apply).map(|_| ());
    let changed = thp().get(PAGES_TO_SCAN)?;
    victim.kill()?;
    victim.wait()?;
    let (_, repairs) = Settings::open(state.path(), Mode::Apply)?;
    ensure!(said == "changed\n", "the victim did not change the knob");
    ensure!(busy == Err(Error::Busy { pid: Some(Pid(victim.id())) }), "the victim had no lock");
    ensure!(changed.0 == before.0 + 1, "the knob was not changed");
    ensure!(matches!(repairs[0].outcome, Outcome::PutBack { .. }), "not repaired");
    ensure!(thp().get(PAGES_TO_SCAN)? == before, "the original is not back");
    Ok(())
}

fn pressure_reads() -> Ended {
    pressure::read(Path::new(PRESSURE))?;
    Ok(())
}

/// A whole window of nothing but stalls is what an idle machine does not have. A trigger may still go
/// off once: the kernel adds up the processors' stalls when a trigger is looked at, and those of before
/// the arming that it had not added yet count as new.
fn a_trigger_waits() -> Ended {
    for _ in 0..5 {
        let trigger = Trigger::arm(Path::new(PRESSURE), WINDOW, WINDOW)?;
        if trigger.wait(Some(Nanos(SECOND / 10)))? == Wake::TimedOut {
            return Ok(());
        }
    }
    Err("five of five went off for nothing".into())
}

/// Writing more than a group may have makes the writer reclaim, which is a stall; what is
/// reclaimed on request is none.
fn a_trigger_goes_off() -> Ended {
    let scratch = scratch("stall")?;
    let limit = match scratch.group().version() {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    std::fs::write(scratch.group().path().join(limit), Bytes::from_mib(16).0.to_string())?;
    let trigger = Trigger::arm(Path::new(PRESSURE), Nanos(1000), WINDOW)?;
    // The kernel may kill the writer for want of memory; it has stalled before that.
    let writer = Writer::start_in(&scratch);
    let wake = trigger.wait(Some(Nanos(10 * SECOND)))?;
    if wake != Wake::Pressure {
        writer?;
        return Err("it did not go off".into());
    }
    Ok(())
}

fn a_group_gives_memory_back() -> Ended {
    let scratch = scratch("reclaim")?;
    let path = scratch.group().path().to_owned();
    let writer = Writer::start_in(&scratch)?;
    let me = Process::current()?;
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups")?;
    let process = Process::open(Pid(writer.child.id()))?;
    ensure!(hierarchy.group_of(&process)?.as_ref() == Some(scratch.group()), "not in the group");
    ensure!(scratch.group().processes()? == [Pid(writer.child.id())], "not listed in the group");
    let before = scratch.group().usage()?;
    let freed = scratch.reclaim(Bytes::from_mib(32))?;
    let after = scratch.group().usage()?;
    ensure!(before.current >= Writer::SIZE, "the file was not charged to the group");
    ensure!(before.limit == after.limit, "the limit is not what it was");
    ensure!(freed >= Bytes::from_mib(24), "only {freed} came back");
    drop(scratch);
    ensure!(!path.exists(), "the group is still there");
    ensure!(hierarchy.group_of(&process)? == hierarchy.group_of(&me)?, "not moved to our group");
    Ok(())
}

fn a_group_is_replaced() -> Ended {
    let name = group_name("left");
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups")?;
    std::fs::create_dir(hierarchy.mount().join(&name))?;
    let scratch = Scratch::create(&hierarchy, &name)?;
    let again = Scratch::create(&hierarchy, &name);
    // Not in use, so it is replaced again; the two then share a directory.
    ensure!(again.is_ok(), "an empty group was not replaced");
    drop((scratch, again));
    ensure!(!hierarchy.mount().join(&name).exists(), "the group is still there");
    Ok(())
}

/// A process that has written a file, whose cache is charged to the group it did it in.
struct Writer {
    child: Child,
    file: PathBuf,
}

impl Writer {
    const SIZE: Bytes = Bytes::from_mib(64);

    fn start_in(scratch: &Scratch) -> Result<Self, Box<dyn StdError>> {
        let name = scratch.group().path().file_name().ok_or("a group without a name")?;
        let file = std::env::temp_dir().join(name);
        let script = r#"read -r _; head -c "$2" /dev/zero >"$1"; sync "$1"; echo done; read -r _"#;
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&file)
            .arg(Self::SIZE.0.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut writer = Self { child, file };
        scratch.add(&Process::open(Pid(writer.child.id()))?)?;
        writer.child.stdin.as_mut().ok_or("no input")?.write_all(b"go\n")?;
        let mut said = String::new();
        let output = writer.child.stdout.as_mut().ok_or("no output")?;
        BufReader::new(output).read_line(&mut said)?;
        ensure!(said == "done\n", "the file was not written");
        Ok(writer)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}
