//! A JVM that touches its whole heap when it starts, asks for huge pages there (`MADV_HUGEPAGE`), and
//! then does nothing. It is whatever `java` the machine has.
//!
//! The JVM's program is keytool, which every JRE has and which waits where it is to read a FIFO to which nobody writes. One of
//! our own would need a compiler, which a JRE does not have.

use crate::server::{Directory, Program, Server, Surroundings, failed, find};
use crate::workload::{Error, PageSize, Result};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::thread::sched_getaffinity;
use std::os::fd::OwnedFd;
use std::path::Path;
use superpage_units::{Bytes, Pid};

const JAVA: Program =
    Program { name: "java", starting: "start a JVM", connecting: "wait for a JVM" };

/// A JVM is in this Debian package.
const PACKAGE: &str = "default-jre-headless";

/// A running JVM. Dropping it kills it.
#[derive(Debug)]
pub struct Jvm {
    server: Server,
    /// The end of the FIFO to which nobody writes: without it, keytool would read its end.
    _silent: OwnedFd,
    _directory: Directory,
}

impl Jvm {
    /// Starts one with a heap of this size, and waits until its program runs.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::Server`].
    pub fn start(heap: Bytes) -> Result<Self> {
        if !Self::is_installed() {
            return Err(Error::MissingProgram { program: JAVA.name, package: PACKAGE });
        }
        let cores =
            sched_getaffinity(None).map_err(|errno| failed(JAVA.starting, &errno.into()))?;
        let directory = Directory::create()?;
        let fifo = directory.file("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(|errno| failed(JAVA.starting, &errno.into()))?;
        let around = Surroundings::new(PageSize::Huge, cores);
        let mut server = Server::start(JAVA, arguments(heap, &fifo), around)?;
        // Refused until keytool has it open to read, which is after the heap was touched.
        let writing = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let silent = server.wait(|| Ok(open(&fifo, writing, Mode::empty())?))?;
        Ok(Self { server, _silent: silent, _directory: directory })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// Whether this machine has one.
    #[must_use]
    pub fn is_installed() -> bool {
        find(JAVA.name).is_ok()
    }
}

/// The JVM's command line.
fn arguments(heap: Bytes, fifo: &Path) -> Vec<String> {
    vec![
        format!("-Xms{}", heap.0),
        format!("-Xmx{}", heap.0),
        "-XX:+UseTransparentHugePages".to_owned(),
        "-XX:+AlwaysPreTouch".to_owned(),
        // The JVM would leave a file behind where it is killed.
        "-XX:-UsePerfData".to_owned(),
        "-m".to_owned(),
        "java.base/sun.security.tools.keytool.Main".to_owned(),
        "-printcertreq".to_owned(),
        "-file".to_owned(),
        fifo.to_string_lossy().into_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_has_its_whole_size_from_the_start() {
        let line = arguments(Bytes::from_gib(2), Path::new("a/fifo"));
        assert_eq!(line[..2], ["-Xms2147483648", "-Xmx2147483648"]);
        assert_eq!(line.last().map(String::as_str), Some("a/fifo"));
    }
}
