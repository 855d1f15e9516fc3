//! A server program of somebody else's, started for ourselves alone, that ends with us. Not what it
//! is started with, nor the load on it.
//!
//! Its UNIX socket and other files are in a directory that only we can enter. It dies with the thread
//! that started it (`PR_SET_PDEATHSIG`), so start servers from a thread that stays.

#![expect(unsafe_code, reason = "what a child does between fork and exec is the caller's promise")]

use crate::workload::{Error, PageSize, Result};
use rustix::process::{Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use rustix::thread::{
    CpuSet, disable_transparent_huge_pages, sched_getaffinity, sched_setaffinity,
};
use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use superpage_units::Pid;

/// How long a server may take to be ready. Chosen: memcached and Redis take a few milliseconds, a JVM
/// that touches its heap some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that was told to end (SIGTERM) gets so long to give its memory back. Chosen.
const ENDING: Duration = Duration::from_secs(20);

/// A program that can be started; a server's name is that of its Debian package too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// What was tried, for messages.
    pub(crate) starting: &'static str,
    /// As above.
    pub(crate) connecting: &'static str,
}

/// What it is given beside its arguments.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) pages: PageSize,
    pub(crate) cores: CpuSet,
    /// The words of a command that starts the program given after them, such as `superpage run --` or
    /// `env NAME=VALUE`. It must pass SIGTERM on. None: the program is started by us.
    pub(crate) under: Vec<String>,
}

impl Surroundings {
    /// The surroundings of a program that starts by itself.
    pub(crate) fn new(pages: PageSize, cores: CpuSet) -> Self {
        Self { pages, cores, under: Vec::new() }
    }

    /// The surroundings of a program that is started by a command, on all cores that we may use.
    pub(crate) fn under(words: &[String]) -> Result<Self> {
        let cores = sched_getaffinity(None)
            .map_err(|errno| failed("see which cores there are", &errno.into()))?;
        Ok(Self { under: words.to_vec(), ..Self::new(PageSize::Huge, cores) })
    }

    /// The command that starts `program`.
    fn command(&self, program: &Path) -> Command {
        let Some((first, rest)) = self.under.split_first() else { return Command::new(program) };
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        command
    }

    /// The signal that ends the server. A command that is killed could not pass that on.
    fn ending(&self) -> Signal {
        if self.under.is_empty() { Signal::KILL } else { Signal::TERM }
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    program: Program,
    ending: Signal,
}

impl Server {
    /// Starts `program`; its standard error is kept for the message if it ends.
    pub(crate) fn start(
        program: Program,
        arguments: impl IntoIterator<Item = String>,
        around: Surroundings,
    ) -> Result<Self> {
        let mut command = around.command(&find(program.name)?);
        let ending = around.ending();
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let parent = getpid();
        // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
        // allowed: it makes four plain system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || prepare(parent, &around));
        }
        let child = command.spawn().map_err(|error| failed(program.starting, &error))?;
        Ok(Self { child, program, ending })
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Tries until the server listens, or has ended, or we lose patience.
    pub(crate) fn connect(&mut self, socket: &Path) -> Result<UnixStream> {
        self.wait(|| UnixStream::connect(socket))
    }

    /// Makes the attempt until it works, or the server has ended, or we lose patience.
    pub(crate) fn wait<T>(&mut self, attempt: impl FnMut() -> io::Result<T>) -> Result<T> {
        self.wait_for(PATIENCE, attempt)
    }

    /// As [`Server::wait`], with so much patience.
    pub(crate) fn wait_for<T>(
        &mut self,
        patience: Duration,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            let error = match attempt() {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.has_ended(status));
            }
            if Instant::now() > deadline {
                return Err(failed(self.program.connecting, &error));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it has ended in good order, with so much patience.
    pub(crate) fn ended(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.has_ended(status)),
                Ok(None) if Instant::now() > deadline => {
                    let error = io::Error::from(io::ErrorKind::TimedOut);
                    return Err(failed(self.program.connecting, &error));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => return Err(failed(self.program.connecting, &error)),
            }
        }
    }

    /// The error of a server that has ended, in its own words.
    fn has_ended(&mut self, status: ExitStatus) -> Error {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Without its words the status must do.
            let _ = stderr.read_to_string(&mut said);
        }
        let detail = format!("it ended with {status}: {}", said.trim());
        Error::Server { what: self.program.starting, detail }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The calls only fail if the server has already ended and been reaped.
        if self.ending == Signal::TERM {
            let _ = kill_process(rustix::process::Pid::from_child(&self.child), Signal::TERM);
            let deadline = Instant::now() + ENDING;
            while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's last steps before it becomes the server.
fn prepare(parent: rustix::process::Pid, around: &Surroundings) -> io::Result<()> {
    set_parent_process_death_signal(Some(around.ending()))?;
    if getppid() != Some(parent) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    sched_setaffinity(None, &around.cores)?;
    if around.pages == PageSize::Base {
        disable_transparent_huge_pages(true)?;
    }
    Ok(())
}

/// The core of the server and that of its client: another one, if we may use two.
pub(crate) fn cores(wanted: Option<u32>) -> Result<(CpuSet, CpuSet)> {
    let explain = |errno: rustix::io::Errno| failed("choose cores", &errno.into());
    let init = rustix::process::Pid::from_raw(1);
    // We may be on one core by our own wish; what the machine has is what its first process has.
    let all = sched_getaffinity(init).or_else(|_| sched_getaffinity(None)).map_err(explain)?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    let wanted = wanted.and_then(|core| usize::try_from(core).ok());
    let server = wanted.or(usable.first().copied()).unwrap_or(0);
    let client = usable.iter().copied().find(|core| *core != server).unwrap_or(server);
    let only = |core| {
        let mut set = CpuSet::new();
        set.set(core);
        set
    };
    Ok((only(server), only(client)))
}

/// A program on the search path, or where Debian puts it.
pub(crate) fn find(name: &'static str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/bin")])
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
        .ok_or(Error::MissingProgram { program: name, package: name })
}

pub(crate) fn failed(what: &'static str, error: &io::Error) -> Error {
    Error::Server { what, detail: error.to_string() }
}

/// A directory that only we can enter, removed with all that is in it when dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Makes one.
    pub(crate) fn create() -> Result<Self> {
        let parent = std::env::temp_dir();
        let name = |n: u32| parent.join(format!("superpage-lab-{}-{n}", std::process::id()));
        // A dead process may have had our number.
        for path in (0..100).map(name) {
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("make a directory for the socket", &error)),
            }
        }
        let detail = format!("too many are left over in {}", parent.display());
        Err(Error::Server { what: "make a directory for the socket", detail })
    }
}

impl Directory {
    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a socket in it is.
    pub(crate) fn socket(&self) -> PathBuf {
        self.file("socket")
    }

    /// Where a file of this name in it is.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What stays behind is a dead socket or a small file.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_ours_alone_and_goes() {
        use std::os::unix::fs::PermissionsExt;
        let one = Directory::create().expect("made");
        let two = Directory::create().expect("made");
        assert_ne!(one.path, two.path);
        let mode = std::fs::metadata(&one.path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let path = one.path.clone();
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn server_and_client_have_a_core_each_where_there_are_two() {
        let (server, client) = cores(None).expect("chosen");
        assert_eq!((server.count(), client.count()), (1, 1));
        let two = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        assert_eq!(two, server != client);
    }
}
