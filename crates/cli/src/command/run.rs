//! `superpage run`: starts a program with our library inside, and says at its end what it did.
//!
//! [`program`] says whether the library can be loaded, [`supply`] enlarges the kernel's pool of gigantic
//! pages when the library asks, [`report`] shows what was counted.

mod program;
mod report;
mod supply;

use crate::args::Run;
use crate::exit::{Failure, Outcome};
use crate::show;
use anyhow::Context;
use program::ProgramError;
use report::Report;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause as Sent;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use superpage_kernel::shared_page::SharedPage;
use superpage_launch::{Config, Counters, Name, Policy, VARIABLE};
use superpage_units::Pid;
use supply::Supply;
use tempfile::TempDir;

const LIBRARY: &str = "libsuperpage.so";
const PRELOAD: &str = "LD_PRELOAD";
/// The exit codes of shells for a program that is not there, or may not be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Runs the program to its end; then this process ends as the program did.
pub(super) fn run(arguments: &Run) -> Outcome {
    let (name, rest) = arguments.command.split_first().ok_or_else(|| {
        Failure::Usage("say which program to run: superpage run -- PROGRAM ARGUMENTS".into())
    })?;
    let path = std::env::var("PATH").unwrap_or_default();
    let file = program::find(name, &path).map_err(|error| not_startable(&error))?;
    let mut command = Command::new(&file);
    command.args(rest);
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    if let Some(why) = program::kind(&file).why_not() {
        show::note(&format!("{name} {why}; it runs unmanaged"));
        return end_as(start(&mut command, name)?.wait()?);
    }
    let shared = Shared::create()?;
    shared.pass_on(&mut command, arguments)?;
    let child = start(&mut command, name)?;
    let status = attend(child, shared.counters(), arguments)?;
    let report = Report::of(shared.counters());
    drop(shared);
    if let Some(path) = &arguments.report {
        let text = format!("{}\n", report.as_json());
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    if !arguments.quiet {
        show::report(&report.in_words());
    }
    end_as(status)
}

fn not_startable(error: &ProgramError) -> Failure {
    let code = match error {
        ProgramError::NotFound(_) => NOT_FOUND,
        ProgramError::NotExecutable(_) => NOT_EXECUTABLE,
    };
    Failure::Program { code, why: error.to_string() }
}

fn start(command: &mut Command, name: &str) -> Result<Child, Failure> {
    command.spawn().map_err(|error| Failure::Program {
        code: NOT_EXECUTABLE,
        why: format!("{name} could not be started: {error}"),
    })
}

/// The file in which the library counts, and the library itself.
#[derive(Debug)]
struct Shared {
    directory: TempDir,
    page: SharedPage,
    library: PathBuf,
}

impl Shared {
    fn create() -> Result<Self, Failure> {
        let library = library()?;
        let directory = TempDir::with_prefix("superpage-run-").context("make a directory")?;
        let page = SharedPage::create(&Self::file(&directory))?;
        Ok(Self { directory, page, library })
    }

    fn file(directory: &TempDir) -> PathBuf {
        directory.path().join("counters")
    }

    fn counters(&self) -> &Counters {
        Counters::of(self.page.words())
    }

    /// Has the command load the library, and tells the library what is wanted.
    fn pass_on(&self, command: &mut Command, arguments: &Run) -> Result<(), Failure> {
        let policy = match arguments.policy.as_str() {
            Policy::OFF => Policy::Off,
            name => Name::new(name)
                .map(Policy::Named)
                .ok_or_else(|| Failure::Usage(format!("there is no policy {name}")))?,
        };
        let file = Self::file(&self.directory);
        let counters = file.to_str().context("the directory for temporary files is no text")?;
        let parent = Pid(std::process::id());
        let config = Config { parent, policy, ready: arguments.ready, counters };
        command.env(VARIABLE, config.to_string());
        let mut preload = self.library.clone().into_os_string();
        if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        command.env(PRELOAD, preload);
        Ok(())
    }
}

/// The library: beside this program, or where `make install` puts it.
fn library() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().context("find this program")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(LIBRARY), beside.join("../lib/superpage").join(LIBRARY)];
    let found = places.iter().find_map(|place| place.canonicalize().ok()).ok_or_else(|| {
        Failure::NotPossible(format!(
            "{LIBRARY} is neither beside {} nor in ../lib/superpage: build or install it as well",
            program.display()
        ))
    })?;
    let text = found.to_string_lossy();
    if text.contains([' ', ':']) {
        return Err(Failure::NotPossible(format!(
            "the dynamic linker cannot load {text}: the path has a space or a colon; move it"
        )));
    }
    Ok(found)
}

/// Waits for the program, passing on signals and supplying gigantic pages meanwhile.
fn attend(mut child: Child, counters: &Counters, arguments: &Run) -> Result<ExitStatus, Failure> {
    let signals = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH];
    let mut signals =
        SignalsInfo::<WithOrigin>::new(signals).context("signals cannot be set up")?;
    let handle = signals.handle();
    // The number of a process that was waited for may be another's; its descriptor never is.
    let process = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(&child),
        rustix::process::PidfdFlags::empty(),
    )
    .context("watch the program")?;
    let ended = AtomicBool::new(false);
    let supply = match arguments.policy.as_str() {
        Policy::OFF => None,
        _ => Supply::open().ok(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for origin in &mut signals {
                // What a terminal sends, it sends to the program as well.
                let is_for_all = matches!(origin.cause, Sent::Kernel);
                let signal = rustix::process::Signal::from_named_raw(origin.signal);
                if let Some(signal) = signal.filter(|_| !is_for_all) {
                    let _ = rustix::process::pidfd_send_signal(&process, signal);
                }
            }
        });
        if let Some(mut supply) = supply {
            let ended = &ended;
            scope.spawn(move || supply.serve(counters, ended));
        }
        let status = child.wait();
        ended.store(true, Release);
        supply::wake(counters);
        handle.close();
        Ok(status?)
    })
}

/// Ends this process as the program ended: with its exit code, or by its signal.
fn end_as(status: ExitStatus) -> Outcome {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => std::process::exit(code),
        (None, Some(signal)) => {
            // A core dump of this process would say nothing of the program.
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            std::process::exit(128 + signal)
        }
        (None, None) => Ok(()),
    }
}
