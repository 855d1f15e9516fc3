//! `superpage run`: starts a program with our library inside, and says at its end what it did.
//!
//! [`program`] says whether the library can be loaded, [`supply`] enlarges the kernel's pool of gigantic
//! pages when the library asks, [`report`] shows what was counted.

pub(super) mod heap;
mod program;
mod report;
mod supply;

use crate::args::{Copying, Malloc, Run};
use crate::exit::{Failure, Outcome};
use crate::heap::COUNTERS;
use crate::show;
use anyhow::Context;
use heap::HeapFile;
use program::{Kind, ProgramError};
use report::Report;
use rustix::process::{Signal, WaitOptions, getpid, kill_process, waitpid};
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGPROF, SIGQUIT, SIGSYS,
    SIGTERM, SIGTRAP, SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU,
    SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause as Sent, Process};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use superpage_kernel::own_beginning;
use superpage_kernel::shared_page::SharedPage;
use superpage_launch::{Config, Counters, OFF, OUT, OpenFile, VARIABLE};
use superpage_policy::promotion::capabilities::set_aside;
use superpage_policy::promotion::list;
use superpage_units::{PageSize, Pid};
use supply::Supply;

const LIBRARY: &str = "libsuperpage.so";
// Signals that signal_hook has no names for.
const SIGSTKFLT: i32 = Signal::STKFLT.as_raw();
const SIGPWR: i32 = Signal::POWER.as_raw();
/// malloc by mimalloc, for programs that do not keep theirs.
const MALLOC: &str = "libsuperpage_malloc.so";
const PRELOAD: &str = "LD_PRELOAD";
/// The exit codes of shells for a program that is not there, or may not be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Runs the program to its end; then this process ends as the program did.
pub(super) fn run(arguments: &Run) -> Outcome {
    let (name, rest) = arguments.command.split_first().ok_or_else(|| {
        Failure::Usage("say which program to run: superpage run -- PROGRAM ARGUMENTS".into())
    })?;
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let file = program::find(name, &path).map_err(|error| not_startable(&error))?;
    let mut command = Command::new(&file);
    command.args(rest);
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    let mut report = arguments.report.as_deref().map(open_report).transpose()?;
    // Also SIGXFSZ, which what is said here may cause where standard error is a file and `ulimit -f` is low.
    let mut signals = SignalsInfo::<WithOrigin>::new(NAMED.into_iter().chain(UNNAMED))
        .context("signals cannot be set up")?;
    let (heap_wanted, shared) = match why_not(&file, rest) {
        _ if std::env::var_os(OUT).is_some_and(|value| !value.is_empty()) => {
            (false, Err(format!("{OUT} is set")))
        }
        Some((why, kind)) => (!kind.runs_without_heap(), Err(format!("{} {why}", name.display()))),
        None => (true, Shared::create(arguments)),
    };
    if let (Err(why), Some(_), true) = (&shared, &arguments.heap, heap_wanted) {
        return Err(Failure::NotPossible(format!(
            "{why}; so it cannot have a heap, and was not started: run it without --heap"
        )));
    }
    let heap = if shared.is_ok() { HeapFile::open(arguments)? } else { None };
    if let Ok(shared) = &shared {
        shared.pass_on(&mut command, arguments, heap.as_ref());
    }
    if let (Err(why), false) = (&shared, arguments.quiet) {
        show::note(&format!("{why}; it runs unmanaged"));
    }
    let shared = shared.ok();
    own_beginning::pass_on(&mut command);
    // From here on nothing may fail while the program runs.
    let none = Counters::default();
    let counters = shared.as_ref().map_or(&none, Shared::counters);
    let in_pool = pages_in_pool(&arguments.policy).filter(|_| heap.is_none());
    let supply = shared.as_ref().zip(in_pool).map(|(_, size)| Supply::open(counters, size));
    let (supply, no_supply) = match supply {
        Some(Err(why)) => (None, Some(why)),
        supply => (supply.and_then(Result::ok), None),
    };
    if let Some(signal) = asked_to_end(&mut signals) {
        heap.map(HeapFile::close);
        return end_as(ExitStatus::from_raw(signal));
    }
    let child = start(&mut command, &file, rest)?;
    let status = attend(&child, signals, counters, supply)?;
    let seen = match &heap {
        Some(_) => Report::of_heap(counters),
        None => Report::of(counters, in_pool.unwrap_or(PageSize::Gigantic)),
    };
    say_what_failed(&seen, status, report.as_mut());
    if !arguments.quiet && shared.is_some() {
        show::report(&seen.in_words(status));
        if let Some(why) = no_supply.filter(|_| seen.lacked_pages()) {
            show::note(&why);
        }
    }
    drop(shared);
    if let Some(Err(why)) = heap.map(HeapFile::close) {
        show::note(&why);
    }
    end_as(status)
}

/// The size of the pages that the policy has of a pool of the kernel's; nothing without a policy.
fn pages_in_pool(policy: &str) -> Option<PageSize> {
    let entry = list::find(policy)?;
    Some(set_aside(&*(entry.build)()).unwrap_or(PageSize::Gigantic))
}

/// Where programs are looked for without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file for the report, before the program is started.
fn open_report(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        Failure::Usage(format!("the report cannot be written to {}: {error}", path.display()))
    })
}

/// Says what failed, also where nothing else is to be said, and writes the report into its file.
fn say_what_failed(seen: &Report, end: ExitStatus, file: Option<&mut File>) {
    if let Some(file) = file
        && let Err(error) = writeln!(file, "{}", seen.as_json())
    {
        show::note(&format!("the report could not be written: {error}"));
    }
    if let Some(trouble) = seen.trouble() {
        show::note(&trouble);
    }
    if let Some(lacking) = seen.lacking_in_core_dump(end) {
        show::note(lacking);
    }
}

/// The reason why the library cannot be loaded into a program that is started with these arguments, as the end of a sentence, and
/// the program's kind.
fn why_not(file: &Path, arguments: &[OsString]) -> Option<(&'static str, Kind)> {
    let kind = program::kind(file, arguments);
    let others = std::env::var_os(PRELOAD).unwrap_or_default();
    let is_sanitized = program::has_sanitizer_in(others.as_encoded_bytes());
    let why = "is run with a sanitizer in LD_PRELOAD, which has to see all of its memory";
    kind.why_not().map(|why| (why, kind)).or(is_sanitized.then_some((why, Kind::Sanitized)))
}

fn not_startable(error: &ProgramError) -> Failure {
    let code = match error {
        ProgramError::NotFound(_) | ProgramError::NoInterpreter { .. } => NOT_FOUND,
        ProgramError::NotExecutable(_) => NOT_EXECUTABLE,
    };
    Failure::Program { code, why: error.to_string() }
}

/// Starts the program; a text that is no program is given to a shell, as shells do.
fn start(command: &mut Command, file: &Path, rest: &[OsString]) -> Result<Child, Failure> {
    const NO_PROGRAM: i32 = 8; // ENOEXEC
    let started = command.spawn().or_else(|error| {
        if error.raw_os_error() != Some(NO_PROGRAM) {
            return Err(error);
        }
        let mut shell = Command::new("/bin/sh");
        let variables = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
        shell.arg(file).args(rest).envs(variables);
        own_beginning::pass_on(&mut shell);
        shell.spawn()
    });
    started.map_err(|error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let code = if is_missing { NOT_FOUND } else { NOT_EXECUTABLE };
        Failure::Program { code, why: format!("{} could not be started: {error}", file.display()) }
    })
}

/// The page in which the library counts, and the library itself.
#[derive(Debug)]
struct Shared {
    page: SharedPage,
    /// The page's file, as the library is told of it.
    counters: OpenFile,
    /// The libraries of ours, in the order in which the dynamic linker is to load them.
    libraries: Vec<Library>,
}

impl Shared {
    /// The reason, as a sentence, if there is no library or no memory.
    fn create(arguments: &Run) -> Result<Self, String> {
        let mut libraries = vec![Library::find(LIBRARY)?];
        if arguments.malloc == Malloc::Mimalloc && arguments.policy != OFF {
            libraries.push(Library::find(MALLOC)?);
        }
        let page = SharedPage::create(COUNTERS).map_err(|error| error.to_string())?;
        let counters = as_open(page.file()).map_err(|error| error.to_string())?;
        Ok(Self { page, counters, libraries })
    }

    fn counters(&self) -> &Counters {
        Counters::of(self.page.words())
    }

    /// Has the command load the library, and tells the library what is wanted.
    fn pass_on(&self, command: &mut Command, arguments: &Run, heap: Option<&HeapFile>) {
        let parent = Pid(std::process::id());
        let Run { children, policy, promote, ready, .. } = arguments;
        let config = Config {
            parent,
            children: *children,
            policy: if heap.is_some() { heap::POLICY } else { policy },
            promote: *promote == Copying::Safe && heap.is_none(),
            ready: if heap.is_some() { 0 } else { *ready },
            heap: heap.map(HeapFile::config),
            counters: self.counters,
        };
        command.env(VARIABLE, config.to_string());
        let mut preload: Vec<OsString> = self.libraries.iter().map(Library::word).collect();
        preload.extend(std::env::var_os(PRELOAD).filter(|others| !others.is_empty()));
        command.env(PRELOAD, preload.join(OsStr::new(":")));
    }
}

/// A file that this process has open, as the library is told of it.
fn as_open(file: &File) -> std::io::Result<OpenFile> {
    let status = file.metadata()?;
    let descriptor = file.as_raw_fd().unsigned_abs();
    Ok(OpenFile { descriptor, identity: (status.dev(), status.ino()) })
}

/// A library of ours.
#[derive(Debug)]
enum Library {
    /// The dynamic linker finds it by its path.
    Path(PathBuf),
    /// A space or a colon in `LD_PRELOAD` ends a path, and a dollar begins a variable. So the linker finds it among the
    /// descriptors of this process, while this lives.
    Open(File),
}

impl Library {
    /// The library of this name.
    fn find(name: &str) -> Result<Self, String> {
        let path = library(name)?;
        if !path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :$\t\n".contains(byte)) {
            return Ok(Self::Path(path));
        }
        let failed = |error| format!("{} cannot be opened: {error}", path.display());
        File::open(&path).map(Self::Open).map_err(failed)
    }

    /// Its word in `LD_PRELOAD`.
    fn word(&self) -> OsString {
        match self {
            Self::Path(path) => path.into(),
            Self::Open(file) => {
                format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
            }
        }
    }
}

/// The path of a library: beside this program, or where `make install` puts it.
fn library(name: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(name), beside.join("../lib/superpage").join(name)];
    places.iter().find_map(|place| place.canonicalize().ok()).ok_or_else(|| {
        format!(
            "{name} is neither beside {} nor in ../lib/superpage (build or install it as well)",
            program.display()
        )
    })
}

/// The named signals that are passed on to the program: those that can be caught and that this process does not cause itself by a
/// mistake (SIGSEGV). SIGTSTP stops this process, as a terminal sends it to the program as well. With them SIGCHLD: where a caller has
/// had it ignored, no process can be waited for.
const NAMED: [i32; 24] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTRAP, SIGABRT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM,
    SIGSTKFLT, SIGCHLD, SIGCONT, SIGTTIN, SIGTTOU, SIGURG, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF,
    SIGWINCH, SIGIO, SIGPWR, SIGSYS,
];
/// The signals without names. Libc keeps the kernel's first two of them, 32 and 33, for itself.
const UNNAMED: std::ops::RangeInclusive<i32> = 34..=64;

/// The signal to end that has come before there was a program to pass it on to, if one has.
fn asked_to_end(signals: &mut SignalsInfo<WithOrigin>) -> Option<i32> {
    let ends = |signal: &i32| [SIGINT, SIGQUIT, SIGTERM, SIGHUP].contains(signal);
    signals.pending().map(|origin| origin.signal).find(ends)
}

/// Waits for the program, passing on signals and supplying gigantic pages meanwhile.
fn attend(
    child: &Child,
    mut signals: SignalsInfo<WithOrigin>,
    counters: &Counters,
    supply: Option<Supply>,
) -> Result<ExitStatus, Failure> {
    let handle = signals.handle();
    // The number of a process that was waited for may be another's; its descriptor never is.
    let pid = rustix::process::Pid::from_child(child);
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for origin in &mut signals {
                // A terminal sends its signals to the program as well.
                let is_for_all = matches!(origin.cause, Sent::Kernel);
                // The kernel sends SIGXFSZ for what this process has written in its own name.
                let is_own = |process: Process| process.pid.cast_unsigned() == std::process::id();
                let is_for_us = origin.signal == SIGCHLD || origin.process.is_some_and(is_own);
                if let (Some(process), false, false) = (&process, is_for_all, is_for_us) {
                    own_beginning::send_signal(process.as_fd(), origin.signal);
                }
            }
        });
        if let Some(mut supply) = supply {
            let ended = &ended;
            scope.spawn(move || supply.serve(counters, ended));
        }
        let status = wait_for(pid);
        ended.store(true, Release);
        supply::wake(counters);
        handle.close();
        Ok(status?)
    })
}

/// Waits for the program, and stops with it where it reads or writes a terminal in the background, so that a shell hears of it. As the
/// first process of a container this one is the parent of whatever lost its own, and waits for those too.
fn wait_for(program: rustix::process::Pid) -> std::io::Result<ExitStatus> {
    let whom = (std::process::id() != 1).then_some(program);
    loop {
        // The first process of a container waits for any child.
        let waited = match whom {
            Some(program) => waitpid(Some(program), WaitOptions::UNTRACED),
            None => rustix::process::wait(WaitOptions::UNTRACED),
        };
        match waited {
            Ok(Some((pid, status))) if pid == program => match status.stopping_signal() {
                Some(SIGTTIN | SIGTTOU) => {
                    kill_process(getpid(), Signal::STOP)?;
                }
                Some(_) => {}
                None => return Ok(ExitStatus::from_raw(status.as_raw())),
            },
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
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
            if std::process::id() != 1 {
                // The first process of a container is not ended by signals.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            std::process::exit(128 + signal)
        }
        (None, None) => Ok(()),
    }
}
