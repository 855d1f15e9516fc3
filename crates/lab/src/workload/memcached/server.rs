//! A private memcached server that ends with us. Not the load on it.

#![expect(unsafe_code, reason = "what a child does between fork and exec is the caller's promise")]

use super::{Error, PageSize, RANGES, Result};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{
    CpuSet, disable_transparent_huge_pages, sched_getaffinity, sched_setaffinity,
};
use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use superpage_policy::units::Bytes;

/// How long the server may take to listen. Chosen: it takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Memory for items; a multiple of a MiB.
    pub(super) arena: Bytes,
    /// How many keys its hash table should expect.
    pub(super) keys: u64,
    pub(super) pages: PageSize,
    /// The core to stay on.
    pub(super) cpu: Option<u32>,
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
}

impl Server {
    /// Starts a server, and connects to it once it listens.
    pub(super) fn start(options: Options) -> Result<(Self, UnixStream)> {
        let program = find_program()?;
        let (server_core, client_core) = cores(options.cpu)?;
        let directory = Directory::create()?;
        let socket = directory.path.join("socket");
        let mut command = Command::new(program);
        command.args(arguments(&options)).arg("-s").arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let parent = getpid();
        // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
        // allowed: it makes four plain system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || prepare(parent, options.pages, &server_core));
        }
        let child = command.spawn().map_err(|error| failed("start memcached", &error))?;
        let mut server = Self { child };
        let stream = server.connect(&socket)?;
        sched_setaffinity(None, &client_core)
            .map_err(|errno| failed("keep the client on its core", &errno.into()))?;
        Ok((server, stream))
    }

    /// The server's process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tries until the server listens, or has ended, or we lose patience.
    fn connect(&mut self, socket: &Path) -> Result<UnixStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let error = match UnixStream::connect(socket) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                let mut said = String::new();
                if let Some(stderr) = &mut self.child.stderr {
                    // Without its words the status must do.
                    let _ = stderr.read_to_string(&mut said);
                }
                let detail = format!("it ended with {status}: {}", said.trim());
                return Err(Error::Server { what: "start memcached", detail });
            }
            if Instant::now() > deadline {
                return Err(failed("connect to memcached", &error));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both only fail if it has already ended and been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's last steps before it becomes the server.
fn prepare(parent: Pid, pages: PageSize, core: &CpuSet) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    sched_setaffinity(None, core)?;
    if pages == PageSize::Base {
        disable_transparent_huge_pages(true)?;
    }
    Ok(())
}

/// The server's command line, all but its socket.
fn arguments(options: &Options) -> Vec<String> {
    // Exact sizes rather than a growth factor (`-f`), which needs an item's header taken into
    // account and a limit (`slab_chunk_max`) whose unit is not the documented one.
    let mut chunks = RANGES.map(|range| range.chunk.0);
    chunks.sort_unstable();
    let chunks = chunks.map(|size| size.to_string()).join("-");
    let buckets = options.keys.next_power_of_two().ilog2().clamp(12, 32);
    // Nothing may move in the background: no eviction, no rebalancing, no LRU threads. The LRU is
    // then only changed by a get of an item that nobody got for a minute.
    let extended = format!(
        "slab_sizes={chunks},hashpower={buckets},no_hashexpand,no_slab_reassign,no_slab_automove,\
         no_lru_crawler,no_lru_maintainer"
    );
    let megabytes = options.arena.0 >> 20;
    format!("-L -M -C -t 1 -u root -m {megabytes} -o {extended}")
        .split(' ')
        .map(str::to_owned)
        .collect()
}

/// The core of the server and that of its client: another one, if we may use two.
fn cores(wanted: Option<u32>) -> Result<(CpuSet, CpuSet)> {
    let explain = |errno: rustix::io::Errno| failed("choose cores", &errno.into());
    let init = Pid::from_raw(1);
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

/// memcached on the search path, or where Debian puts it.
fn find_program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/bin")])
        .map(|directory| directory.join("memcached"))
        .find(|program| program.is_file())
        .ok_or(Error::MissingProgram { program: "memcached", package: "memcached" })
}

fn failed(what: &'static str, error: &io::Error) -> Error {
    Error::Server { what, detail: error.to_string() }
}

/// A directory that only we can enter, removed with all that is in it when dropped.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
}

impl Directory {
    fn create() -> Result<Self> {
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

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that stays behind is empty but for a dead socket.
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

    #[test]
    fn the_command_line_has_the_classes_of_the_ranges() {
        let arena = Bytes::from_gib(1);
        let options = Options { arena, keys: 200_000, pages: PageSize::Huge, cpu: None };
        let line = arguments(&options).join(" ");
        for part in ["-L ", "-m 1024 ", "slab_sizes=256-8192-131072,", "hashpower=18,"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
