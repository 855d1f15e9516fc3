//! The real `liblinear-train` (Debian's liblinear-tools) on data that is generated for it.
//!
//! Its time is that of the training, without reading the data: it begins when the data's file is closed, and
//! ends when the file for the model is made. Both are seen from outside, some milliseconds late.
//! [LIBLINEAR](https://www.csie.ntu.edu.tw/~cjlin/liblinear/).

use crate::server::{Directory, Program, Server, Surroundings, failed, find};
use crate::workload::rng::Rng;
use crate::workload::{Error, Result};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use superpage_units::{Bytes, Nanos, Pid};

const TRAIN: Program = Program {
    name: "liblinear-train",
    starting: "train with liblinear",
    connecting: "wait for liblinear",
};
const PACKAGE: &str = "liblinear-tools";

/// Features in a row. Chosen: a row fills four cache lines.
const FEATURES: u64 = 16;
/// The bytes of a row in `liblinear-train`: 16 bytes for each feature and for the row's end, 8 for the weight of
/// each (there are as many weights as features in all rows), and about 64 of numbers by row.
const ROW: Bytes = Bytes(16 * (FEATURES + 1) + 8 * FEATURES + 64);
/// L2-regularised L2-loss support vector classification, the dual: its default, which reads rows in random
/// order and weights as a row says.
const SOLVER: &str = "1";
/// The tolerance at which the dual ends: its default.
const TOLERANCE: &str = "0.1";

/// The time that reading or training may take. Chosen: a GiB takes ten seconds each.
const PATIENCE: Duration = Duration::from_secs(600);

/// Rows of a problem with two classes, in a file.
#[derive(Debug)]
pub(crate) struct Data {
    directory: Directory,
}

impl Data {
    /// Whether `liblinear-train` is installed here.
    pub(crate) fn is_usable() -> bool {
        find(TRAIN.name).is_ok()
    }

    /// Rows of ones at random features, of a class drawn at random, for a training of about `size`.
    ///
    /// # Errors
    /// [`Error::Server`]: there is no room.
    pub(crate) fn generate(size: Bytes) -> Result<Self> {
        let data = Self { directory: Directory::create()? };
        let written = File::create(data.file()).and_then(|file| write(file, size.0 / ROW.0));
        written.map_err(|error| failed("write the data for liblinear", &error))?;
        Ok(data)
    }

    fn file(&self) -> PathBuf {
        self.directory.file("data")
    }
}

/// The features of a row are in ascending order, as `liblinear-train` wants them, one of each of
/// [`FEATURES`] equal parts.
fn write(file: File, rows: u64) -> io::Result<()> {
    let mut rng = Rng::new(rows);
    let mut file = BufWriter::new(file);
    for _ in 0..rows {
        file.write_all(if rng.next() & 1 == 0 { b"+1" } else { b"-1" })?;
        for part in 0..FEATURES {
            write!(file, " {}:1", part * rows + rng.below(rows) + 1)?;
        }
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// A training. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Training {
    server: Server,
    /// Its own process, below whatever started it.
    pub(crate) pid: Pid,
    directory: Directory,
    began: Instant,
}

impl Training {
    /// Starts a training by a command such as `superpage run --`, and waits until it has read its
    /// data. `process` finds it below the process of the command.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::Server`].
    pub(crate) fn start(
        data: &Data,
        words: &[String],
        process: impl Fn(Pid) -> io::Result<Pid>,
    ) -> Result<Self> {
        if !Data::is_usable() {
            return Err(Error::MissingProgram { program: TRAIN.name, package: PACKAGE });
        }
        let directory = Directory::create()?;
        let file = data.file();
        let paths = [&file, &directory.file("model")].map(|path| path.to_string_lossy().into());
        let options = ["-q", "-s", SOLVER, "-e", TOLERANCE].map(str::to_owned);
        let arguments = options.into_iter().chain(paths);
        let mut server = Server::start(TRAIN, arguments, Surroundings::under(words)?)?;
        let outer = server.pid();
        let pid = server.wait(|| {
            let pid = process(outer)?;
            if has_open(pid, &file)? { Ok(pid) } else { Err(not_yet()) }
        })?;
        server
            .wait_for(PATIENCE, || if has_open(pid, &file)? { Err(not_yet()) } else { Ok(()) })?;
        Ok(Self { server, pid, directory, began: Instant::now() })
    }

    /// Waits until it is trained. It still has its memory then, and writes the model.
    ///
    /// # Errors
    /// [`Error::Server`].
    pub(crate) fn trained(&mut self) -> Result<Nanos> {
        let model = self.directory.file("model");
        self.server.wait_for(PATIENCE, || std::fs::metadata(&model))?;
        let took: Duration = self.began.elapsed();
        Ok(Nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)))
    }
}

fn not_yet() -> io::Error {
    io::Error::from(io::ErrorKind::WouldBlock)
}

fn has_open(pid: Pid, file: &Path) -> io::Result<bool> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    Ok(descriptors
        .flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_liblinear_reads_them() {
        let data = Data::generate(ROW * 100).expect("written");
        let text = std::fs::read_to_string(data.file()).expect("there");
        assert_eq!(text.lines().count(), 100);
        for line in text.lines() {
            let mut words = line.split(' ');
            assert!(matches!(words.next(), Some("+1" | "-1")), "{line}");
            let feature = |word: &str| word.strip_suffix(":1")?.parse::<u64>().ok();
            let features: Vec<u64> = words.map(|word| feature(word).expect("a feature")).collect();
            assert!(features.len() == 16 && features.is_sorted_by(|a, b| a < b), "{line}");
            assert!(features[0] > 0 && features[15] <= 1600, "{line}");
        }
    }
}
