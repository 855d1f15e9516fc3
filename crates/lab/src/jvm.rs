//! A JVM that touches its whole heap when it starts, asks for huge pages there (`MADV_HUGEPAGE`), and
//! then does nothing. It is whatever `java` the machine has; no JVM is installed for it.

use crate::server::{Directory, Program, Server, Surroundings, failed, find};
use crate::workload::{Error, PageSize, Result};
use rustix::thread::sched_getaffinity;
use std::path::Path;
use superpage_units::{Bytes, Pid};

const JAVA: Program =
    Program { name: "java", starting: "start a JVM", connecting: "wait for a JVM" };

/// A JVM with its compiler is in this Debian package.
const PACKAGE: &str = "default-jdk-headless";

/// The program: says by a file that it runs, which is after the heap was touched, and sleeps.
const IDLE: &str = "\
import java.nio.file.Files;
import java.nio.file.Path;

class Idle {
    public static void main(String[] arguments) throws Exception {
        Files.createFile(Path.of(arguments[0]));
        Thread.sleep(Long.MAX_VALUE);
    }
}
";

/// A running JVM. Dropping it kills it.
#[derive(Debug)]
pub struct Jvm {
    server: Server,
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
        let (source, ready) = (directory.file("Idle.java"), directory.file("ready"));
        std::fs::write(&source, IDLE).map_err(|error| failed(JAVA.starting, &error))?;
        let around = Surroundings::new(PageSize::Huge, cores);
        let mut server = Server::start(JAVA, arguments(heap, &source, &ready), around)?;
        server.wait(|| std::fs::metadata(&ready))?;
        Ok(Self { server, _directory: directory })
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

/// The JVM's command line; it compiles the source itself.
fn arguments(heap: Bytes, source: &Path, ready: &Path) -> Vec<String> {
    vec![
        format!("-Xms{}", heap.0),
        format!("-Xmx{}", heap.0),
        "-XX:+UseTransparentHugePages".to_owned(),
        "-XX:+AlwaysPreTouch".to_owned(),
        // It would leave a file behind where it is killed.
        "-XX:-UsePerfData".to_owned(),
        source.to_string_lossy().into_owned(),
        ready.to_string_lossy().into_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_has_its_whole_size_from_the_start() {
        let line = arguments(Bytes::from_gib(2), Path::new("a/Idle.java"), Path::new("a/ready"));
        assert_eq!(line[..2], ["-Xms2147483648", "-Xmx2147483648"]);
        assert_eq!(line[5..], ["a/Idle.java", "a/ready"]);
    }
}
