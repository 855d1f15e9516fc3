//! What the live tests of the program share: running it and starting what it is let loose on.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod daemon;
pub(crate) mod machine;
pub(crate) mod subject;

use libtest_mimic::Failed;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use superpage_kernel::pagemap::Pagemap;
use superpage_kernel::process::Process;
use superpage_kernel::smaps;
use superpage_lab::worker::{Launcher, Worker};
use superpage_lab::workload::{PageSize, WorkloadKind, WorkloadSpec};
use superpage_units::{Bytes, HugePages, Pid, PmdRange, VirtAddr};

/// How a live test ends.
pub(crate) type Ended = Result<(), Failed>;

/// The program that is tested.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_superpage");

/// Where the programs lie that tests are about.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program");

/// The reason why a test that runs another program cannot be run: this command fails.
pub(crate) fn without(command: &[&str]) -> Option<String> {
    let (name, arguments) = command.split_first()?;
    let done = Command::new(name).args(arguments).output().is_ok_and(|done| done.status.success());
    (!done).then(|| format!("`{}` fails", command.join(" ")))
}

/// Builds the programs of these names, and the libraries; the directory of the programs, which is cargo's, so that nothing
/// is left behind elsewhere.
pub(crate) fn build_programs(directory: &str, names: &[&str]) -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    for name in names {
        compile(name, &directory.join(name), &[])?;
    }
    build_libraries()?;
    Ok(directory)
}

/// Builds a program written in C.
pub(crate) fn compile(name: &str, program: &Path, options: &[&str]) -> Result<(), String> {
    let output = Command::new("cc")
        .args(["-O2", "-pthread", "-Wall", "-Werror", "-o"])
        .arg(program)
        .arg(Path::new(SOURCES).join(name).with_extension("c"))
        .args(options)
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("there is no C compiler (cc): {error}")),
    }
}

/// Builds the libraries beside the program that is tested: no crate depends on them, so cargo has not.
pub(crate) fn build_libraries() -> Result<(), String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked"]);
    for name in ["superpage-array-c", "superpage-malloc", "superpage-runtime"] {
        cargo.args(["--package", name]);
    }
    let beside = Path::new(PROGRAM).parent();
    if beside.is_some_and(|directory| directory.ends_with("release")) {
        cargo.arg("--release");
    }
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("cargo: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Ends the test with the message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        let holds: bool = $holds;
        if !holds {
            return Err(format!($($message)+).into());
        }
    };
}

/// What the program said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    /// Fails the test unless the program ended well.
    pub(crate) fn done(self) -> Result<Self, Failed> {
        if self.code == Some(0) { Ok(self) } else { Err(format!("{self:?}").into()) }
    }

    /// Its output as one JSON object per line.
    pub(crate) fn rows(&self) -> Result<Vec<Value>, Failed> {
        Ok(self.out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }
}

/// Runs the program to its end.
pub(crate) fn superpage(arguments: &[&str]) -> Result<Said, Failed> {
    Ok(Command::new(PROGRAM).args(arguments).output()?.into())
}

/// Runs `superpage debloat … --json`, which must end well; one row for each process.
pub(crate) fn debloat(arguments: &[&str]) -> Result<Vec<Value>, Failed> {
    let arguments = [&["debloat", "--json"], arguments].concat();
    superpage(&arguments)?.done()?.rows()
}

/// The number in a row.
pub(crate) fn number(row: &Value, key: &str) -> Result<u64, Failed> {
    row[key].as_u64().ok_or_else(|| format!("no number {key:?} in {row}").into())
}

/// A workload on huge pages in a process of its own.
pub(crate) fn worker(kind: WorkloadKind, size: Bytes) -> Result<Worker, Failed> {
    let leading_args = ["lab", "worker"].map(str::to_owned).to_vec();
    let launcher = Launcher { program: PROGRAM.into(), leading_args };
    let spec = WorkloadSpec { kind, size, pages: PageSize::Huge, cpu: None };
    // Right after somebody has split many huge pages, the kernel may not have enough at once.
    wait_for("enough huge pages", Duration::from_secs(20), || {
        let worker = Worker::spawn(&launcher, &spec)?;
        Ok(worker.populated().is_on_huge_pages().then_some(worker))
    })
}

/// What a process holds, according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holds {
    pub(crate) resident: Bytes,
    pub(crate) huge: HugePages,
}

impl Holds {
    pub(crate) fn now(pid: Pid) -> Result<Self, Failed> {
        let rollup = smaps::of(&Process::open(pid)?)?;
        let huge = rollup.anon_huge_pages.ok_or("no AnonHugePages")?.to_huge_pages();
        Ok(Self { resident: rollup.rss, huge })
    }
}

/// How many of so many ranges from `start` on are huge pages of the process.
pub(crate) fn huge_from(pid: Pid, start: VirtAddr, ranges: HugePages) -> Result<HugePages, Failed> {
    let pagemap = Pagemap::open(&Process::open(pid)?)?;
    let all = PmdRange::within(start, start.offset(ranges.bytes()));
    let seen = all.map(|range| pagemap.survey(range)).collect::<Result<Vec<_>, _>>()?;
    Ok(HugePages(seen.iter().filter(|seen| seen.is_huge).count() as u64))
}

/// Asks again and again until there is an answer; `what` is what it waits for.
pub(crate) fn wait_for<T>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> Result<Option<T>, Failed>,
) -> Result<T, Failed> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(Instant::now() < deadline, "waited {patience:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
