//! A Redis of 2 GiB that forks and saves every ten seconds, while a client writes to it.
//!
//! A value says which version it is, so each that is read is compared with what was written last, and each of the first dump
//! with what was written last before that save began. The first fork is the one that finds memory on gigantic pages.

use crate::common::{Ended, PROGRAM, wait_for};
use crate::{ensure, programs, take_gigantic};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use superpage_kernel::hugetlb;
use superpage_units::PageSize;
use tempfile::TempDir;

/// Gigantic pages in the pool.
const GIGANTIC: u64 = 2;
const KEYS: usize = 512 * 1024;
/// The length of a value: with what Redis adds, a base page.
const LENGTH: usize = 4000;
/// Requests that are under way at once.
const BATCH: usize = 64;
const SAVES: u64 = 3;
const BETWEEN_SAVES: Duration = Duration::from_secs(10);
/// The name of a dump, and the one under which the first is kept.
const DUMP: &str = "dump.rdb";
const FIRST: &str = "first.rdb";
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn saves_what_it_holds() -> Ended {
    let _taken = take_gigantic(GIGANTIC)?;
    programs().as_ref()?; // and the libraries
    let directory = TempDir::new()?;
    let path = directory.path();
    let report = path.join("report.json");
    let mut under = Command::new(PROGRAM);
    under
        .args(["run", "--quiet", "--ready", "0", "--report"])
        .arg(&report)
        .args(["--", "redis-server"]);
    let mut redis = Redis::start(under, path)?;
    let mut versions = vec![0; KEYS];
    redis.write(&mut versions, 0..KEYS)?;
    // A GiB that is full is promoted in the background, and none for a while after a fork. A page that was only prepared
    // is given back within this time.
    let mut since = Instant::now();
    wait_for("a gigantic page", PATIENCE, || {
        if hugetlb::read(Path::new("/sys"), PageSize::Gigantic)?.free == GIGANTIC {
            since = Instant::now();
        }
        Ok((since.elapsed() > Duration::from_secs(5)).then_some(()))
    })?;
    let saved = redis.save_under_writes(path, &mut versions)?;
    redis.expect(&versions)?;
    redis.end()?;
    let report: Json = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    ensure!(report["most_gigantic_pages"].as_u64() >= Some(1), "no gigantic page: {report}");
    ensure!(report["demotions"].as_u64() >= Some(1), "none copied for a fork: {report}");

    std::fs::rename(path.join(FIRST), path.join(DUMP))?;
    let mut plain = Redis::start(Command::new("redis-server"), path)?;
    plain.expect(&saved)?;
    plain.end()
}

/// A server that keeps its dump in a directory; ended when dropped.
struct Redis {
    child: Child,
    connection: BufReader<UnixStream>,
}

impl Redis {
    /// Starts it by this command, and waits until it has loaded the dump that is there.
    fn start(mut command: Command, directory: &Path) -> Result<Self, Failed> {
        let socket = directory.join("socket");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--disable-thp", "no"]);
        command.args(["--rdbcompression", "no", "--logfile", "/dev/null"]);
        command.arg("--dir").arg(directory).arg("--unixsocket").arg(&socket);
        let mut child = command.stdout(Stdio::null()).spawn()?;
        let connected = wait_for("redis", PATIENCE, || Ok(UnixStream::connect(&socket).ok()))
            .inspect_err(|_| {
                let _ = child.kill();
            })?;
        let mut redis = Self { child, connection: BufReader::new(connected) };
        redis.connection.get_ref().set_read_timeout(Some(PATIENCE))?;
        wait_for("the dump", PATIENCE, || {
            redis.send(&[b"PING"])?;
            Ok((redis.line()? == "+PONG").then_some(()))
        })?;
        Ok(redis)
    }

    fn send(&mut self, words: &[&[u8]]) -> Ended {
        let mut request = Vec::new();
        append(&mut request, words);
        Ok(self.connection.get_mut().write_all(&request)?)
    }

    /// A line of an answer, without its end.
    fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        self.connection.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// A string of an answer, with the end of its line.
    fn string(&mut self) -> Result<Vec<u8>, Failed> {
        let line = self.line()?;
        let length: usize = line.strip_prefix('$').ok_or_else(|| line.clone())?.parse()?;
        let mut string = vec![0; length + 2];
        self.connection.read_exact(&mut string)?;
        Ok(string)
    }

    /// Writes the next version of each of these keys.
    fn write(&mut self, versions: &mut [u64], keys: impl IntoIterator<Item = usize>) -> Ended {
        let keys: Vec<usize> = keys.into_iter().collect();
        for batch in keys.chunks(BATCH) {
            let mut request = Vec::new();
            for key in batch {
                versions[*key] += 1;
                append(
                    &mut request,
                    &[b"SET", key.to_string().as_bytes(), &value(*key, versions[*key])],
                );
            }
            self.connection.get_mut().write_all(&request)?;
            for _ in batch {
                let answer = self.line()?;
                ensure!(answer == "+OK", "{answer}");
            }
        }
        Ok(())
    }

    /// Reads all keys, which must have these versions.
    fn expect(&mut self, versions: &[u64]) -> Ended {
        let keys: Vec<usize> = (0..versions.len()).collect();
        for batch in keys.chunks(BATCH) {
            let mut request = Vec::new();
            for key in batch {
                append(&mut request, &[b"GET", key.to_string().as_bytes()]);
            }
            self.connection.get_mut().write_all(&request)?;
            for key in batch {
                let found = self.string()?;
                let wanted = value(*key, versions[*key]);
                ensure!(found.strip_suffix(b"\r\n") == Some(&wanted), "key {key} is wrong");
            }
        }
        Ok(())
    }

    /// Saves so often, writing to random keys all the time; the versions when the first save began, whose dump is kept.
    fn save_under_writes(
        &mut self,
        directory: &Path,
        versions: &mut [u64],
    ) -> Result<Vec<u64>, Failed> {
        let mut random = 88_172_645_463_325_252_u64;
        let saved = versions.to_vec();
        for save in 1..=SAVES {
            self.send(&[b"BGSAVE"])?;
            let answer = self.line()?;
            ensure!(answer == "+Background saving started", "{answer}");
            let end = Instant::now() + BETWEEN_SAVES;
            let is_under_way = |redis: &mut Self| -> Result<bool, Failed> {
                Ok(redis.info("rdb_bgsave_in_progress")? == "1")
            };
            while is_under_way(self)? || save < SAVES && Instant::now() < end {
                let keys = std::iter::repeat_with(|| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    usize::try_from(random >> 33).unwrap_or_default() % KEYS
                });
                self.write(versions, keys.take(16 * BATCH))?;
            }
            let status = self.info("rdb_last_bgsave_status")?;
            ensure!(status == "ok", "a save ended with {status}");
            if save == 1 {
                std::fs::rename(directory.join(DUMP), directory.join(FIRST))?;
            }
        }
        let forks = self.info("total_forks")?;
        ensure!(forks == SAVES.to_string(), "{forks} forks");
        Ok(saved)
    }

    /// A value of what it says about itself.
    fn info(&mut self, key: &str) -> Result<String, Failed> {
        self.send(&[b"INFO"])?;
        let text = String::from_utf8(self.string()?)?;
        let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        Ok(found.ok_or_else(|| format!("no {key}"))?.to_owned())
    }

    fn end(mut self) -> Ended {
        self.send(&[b"SHUTDOWN", b"NOSAVE"])?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status:?}");
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The server may have ended by itself. `superpage run` passes the signal on.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// Appends a request.
fn append(request: &mut Vec<u8>, words: &[&[u8]]) {
    request.extend(format!("*{}\r\n", words.len()).into_bytes());
    for word in words {
        request.extend(format!("${}\r\n", word.len()).into_bytes());
        request.extend(*word);
        request.extend(b"\r\n");
    }
}

/// A version of a key's value.
fn value(key: usize, version: u64) -> Vec<u8> {
    let word = (key as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
    word.to_ne_bytes().repeat(LENGTH / 8)
}
