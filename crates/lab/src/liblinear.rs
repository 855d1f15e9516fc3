//! The real `liblinear-train` (Debian's liblinear-tools) on data that is generated for it.
//!
//! The training begins when the data's file is closed, and ends when the file for the model is made. Both are seen
//! from outside, some milliseconds late.
//! [LIBLINEAR](https://www.csie.ntu.edu.tw/~cjlin/liblinear/).

use crate::server::{Directory, Program, Server, Surroundings, failed, find};
use crate::workload::rng::{Rng, mix};
use crate::workload::zipf::Zipf;
use crate::workload::{Error, Result};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use superpage_units::{Bytes, Pid};

const TRAIN: Program = Program {
    name: "liblinear-train",
    starting: "train with liblinear",
    connecting: "wait for liblinear",
};
const PACKAGE: &str = "liblinear-tools";
/// The name of the file for the model.
const MODEL: &str = "model";

/// What is trained, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// L2-regularised L2-loss support vector classification, the dual: `liblinear-train`'s default, which reads rows
    /// in random order and weights as a row says. Features are drawn uniformly, and the class is.
    Dual,
    /// The primal of the same, which passes over all rows in order. As in KDD 2012, a row has 11 features of as many
    /// fields, there are 0.37 times as many features as rows, and some are popular. The class follows from the
    /// features, but for one row of sixteen.
    Primal,
}

impl Problem {
    /// Of the dual chosen: a row fills four cache lines.
    const fn features_of_row(self) -> u64 {
        match self {
            Self::Dual => 16,
            Self::Primal => 11,
        }
    }

    /// The features of a field, of so many rows.
    const fn features_of_field(self, rows: u64) -> u64 {
        match self {
            Self::Dual => rows,
            Self::Primal => rows * 37 / 100 / self.features_of_row() + 1,
        }
    }

    /// The bytes of a row in `liblinear-train`, about: 16 bytes for each feature and for the row's end, and 64 of
    /// numbers by row; 8 for each weight of the dual, 40 for each of the primal, which has a few vectors of them.
    const fn row(self) -> Bytes {
        let weights = match self {
            Self::Dual => 8 * self.features_of_row(),
            Self::Primal => 40 * 37 / 100,
        };
        Bytes(16 * (self.features_of_row() + 1) + weights + 64)
    }

    /// The number of the solver, and the tolerance at which it ends, its default.
    const fn options(self) -> [&'static str; 4] {
        match self {
            Self::Dual => ["-s", "1", "-e", "0.1"],
            Self::Primal => ["-s", "2", "-e", "0.01"],
        }
    }
}

/// The time that reading or training may take. Chosen: a GiB takes ten seconds each.
const PATIENCE: Duration = Duration::from_secs(600);

/// Rows of a problem with two classes, in a file.
#[derive(Debug)]
pub(crate) struct Data {
    directory: Directory,
    problem: Problem,
}

impl Data {
    /// Whether `liblinear-train` is installed here.
    pub(crate) fn is_usable() -> bool {
        find(TRAIN.name).is_ok()
    }

    /// Rows of ones at random features, for a training of about `size`.
    ///
    /// # Errors
    /// [`Error::Server`]: there is no room.
    pub(crate) fn generate(problem: Problem, size: Bytes) -> Result<Self> {
        let data = Self { directory: Directory::create()?, problem };
        let rows = size.0 / problem.row().0;
        let written = File::create(data.file()).and_then(|file| write(file, problem, rows));
        written.map_err(|error| failed("write the data for liblinear", &error))?;
        Ok(data)
    }

    fn file(&self) -> PathBuf {
        self.directory.file("data")
    }
}

/// The features of a row are in ascending order, as `liblinear-train` wants them: one of each field.
fn write(file: File, problem: Problem, rows: u64) -> io::Result<()> {
    let of_field = problem.features_of_field(rows);
    let zipf = Zipf::new(of_field);
    let mut rng = Rng::new(rows);
    let mut file = BufWriter::new(file);
    for _ in 0..rows {
        let class = rng.next();
        let features = (0..problem.features_of_row()).map(|field| {
            let feature = match problem {
                Problem::Dual => rng.below(of_field),
                Problem::Primal => zipf.scattered(&mut rng),
            };
            field * of_field + feature + 1
        });
        let features: Vec<u64> = features.collect();
        let is_drawn = problem == Problem::Dual || class >> 60 == 0;
        // Each feature is a sign of one class or of the other.
        let signs = features.iter().filter(|feature| mix(**feature) & 1 == 0).count();
        let is_first = if is_drawn { class & 1 == 0 } else { 2 * signs > features.len() };
        file.write_all(if is_first { b"+1" } else { b"-1" })?;
        features.iter().try_for_each(|feature| write!(file, " {feature}:1"))?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// A training. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Training {
    server: Server,
    directory: Directory,
    started: Instant,
}

impl Training {
    /// Starts a training by a command such as `superpage run --`; without words, by itself.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::Server`].
    pub(crate) fn start(data: &Data, words: &[String]) -> Result<Self> {
        if !Data::is_usable() {
            return Err(Error::MissingProgram { program: TRAIN.name, package: PACKAGE });
        }
        let directory = Directory::create()?;
        let paths = [data.file(), directory.file(MODEL)].map(|path| path.to_string_lossy().into());
        let options = data.problem.options().map(str::to_owned);
        let arguments = ["-q".to_owned()].into_iter().chain(options).chain(paths);
        let server = Server::start(TRAIN, arguments, Surroundings::under(words)?)?;
        Ok(Self { server, directory, started: Instant::now() })
    }

    /// The process that was started, which may be one above the program's own.
    pub(crate) fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// Waits until it has read its data; its own process, which `process` finds below the one that was started.
    ///
    /// # Errors
    /// [`Error::Server`].
    pub(crate) fn read(
        &mut self,
        data: &Data,
        process: impl Fn(Pid) -> io::Result<Pid>,
    ) -> Result<Pid> {
        let (outer, file) = (self.pid(), data.file());
        let pid = self.server.wait(|| {
            let pid = process(outer)?;
            if has_open(pid, &file)? { Ok(pid) } else { Err(not_yet()) }
        })?;
        self.server
            .wait_for(PATIENCE, || if has_open(pid, &file)? { Err(not_yet()) } else { Ok(()) })?;
        Ok(pid)
    }

    /// Waits until it is trained: the time since it was started. It still has its memory then, and writes the model.
    ///
    /// # Errors
    /// [`Error::Server`].
    pub(crate) fn trained(&mut self) -> Result<Duration> {
        let model = self.directory.file(MODEL);
        self.server.wait_for(PATIENCE, || std::fs::metadata(&model))?;
        Ok(self.started.elapsed())
    }

    /// Waits until it has ended in good order; a sum of the model.
    ///
    /// # Errors
    /// [`Error::Server`].
    pub(crate) fn ended(mut self) -> Result<u64> {
        self.server.ended(PATIENCE)?;
        let model = std::fs::read(self.directory.file(MODEL))
            .map_err(|error| failed("read the model of liblinear", &error))?;
        Ok(model.iter().fold(0, |sum, byte| mix(sum ^ u64::from(*byte))))
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

    fn features(problem: Problem, rows: u64) -> Vec<Vec<u64>> {
        let data = Data::generate(problem, problem.row() * rows).expect("written");
        let text = std::fs::read_to_string(data.file()).expect("there");
        let of_line = |line: &str| {
            let mut words = line.split(' ');
            assert!(matches!(words.next(), Some("+1" | "-1")), "{line}");
            let feature = |word: &str| word.strip_suffix(":1")?.parse::<u64>().ok();
            words.map(|word| feature(word).expect("a feature")).collect()
        };
        text.lines().map(of_line).collect()
    }

    #[test]
    fn rows_are_as_liblinear_reads_them() {
        for (problem, count, greatest) in [(Problem::Dual, 16, 1600), (Problem::Primal, 11, 44)] {
            let rows = features(problem, 100);
            assert_eq!(rows.len(), 100);
            for features in rows {
                assert!(features.len() == count && features.is_sorted_by(|a, b| a < b));
                assert!(features[0] > 0 && features[count - 1] <= greatest, "{features:?}");
            }
        }
    }

    #[test]
    fn some_features_of_the_primal_are_popular() {
        let rows = features(Problem::Primal, 10_000);
        let mut counts = std::collections::HashMap::new();
        for feature in rows.iter().flatten() {
            *counts.entry(feature).or_insert(0) += 1;
        }
        // Of 337 features of a field the most popular one has a sixth of the rows.
        let most = counts.values().copied().max().unwrap_or(0);
        assert!((1000..3000).contains(&most), "{most}");
    }
}
