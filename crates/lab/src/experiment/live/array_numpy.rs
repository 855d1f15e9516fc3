//! `array-numpy`: a gather at random from an array on chosen pages, beside arrays of NumPy's own. No paper has it.
//!
//! NumPy asks the kernel for huge pages itself, so what there is to gain beside it is little while memory is free: gigantic
//! pages, and huge pages for the part of an array that needs them while there are few. Each run is a Python process of its
//! own (`array_numpy.py`), with our package from the wheel that `SUPERPAGE_WHEEL` names.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::support_graph::{BEYOND, FRAGMENTED, leave};
use super::support_python::{Python, object};
use super::support_regime::set_enabled;
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::pressure::Pressure;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use superpage_kernel::hugetlb;
use superpage_kernel::thp::Enabled;
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, PageSize};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "array-numpy",
    source: "no paper",
    summary: "A gather at random from an array on chosen pages, beside NumPy's own arrays, with and without pressure on memory",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "array"),
        ("seconds", "s"),
        ("low", "fastest"),
        ("high", "slowest"),
        ("over_numpy", "over NumPy"),
        ("over_base", "over base"),
        ("base_bytes", "base"),
        ("huge_bytes", "huge"),
        ("gigantic_bytes", "gigantic"),
        ("filled_s", "filled s"),
    ],
    run: &run,
};

/// The array where nobody says how large. Chosen: far larger than the TLB reaches with huge pages.
const SIZE: Bytes = Bytes::from_gib(2);
/// Memory that a run takes beside the array: indices, what is gathered, what makes indices, Python. Chosen.
const BESIDE: Bytes = Bytes::from_mib(384);
/// Gathers in one process.
const TRIALS: u32 = 5;
/// The environment variable that names the wheel.
const WHEEL: &str = "SUPERPAGE_WHEEL";
/// The environment variable by which NumPy asks for huge pages, or does not.
const ADVISE: &str = "NUMPY_MADVISE_HUGEPAGE";
/// The program that makes the array and gathers from it.
const PROGRAM: &str = include_str!("array_numpy.py");

/// An array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    /// The name in rows.
    name: &'static str,
    /// The pages that the program asks for; `numpy` for an array of NumPy's own.
    pages: &'static str,
    /// The value of [`ADVISE`].
    advise: &'static str,
}

const VARIANTS: [Variant; 6] = [
    Variant { name: "numpy.empty", pages: "numpy", advise: "1" },
    Variant { name: "numpy.empty, no advice", pages: "numpy", advise: "0" },
    Variant { name: "base", pages: "base", advise: "1" },
    Variant { name: "huge", pages: "huge", advise: "1" },
    Variant { name: "huge:20%", pages: "huge:20%", advise: "1" },
    Variant { name: GIGANTIC, pages: GIGANTIC, advise: "1" },
];
const NUMPY: usize = 0;
const BASE: usize = 2;
const GIGANTIC: &str = "gigantic";

/// The memory that a run finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Free,
    /// Little more than the run takes is free, and part of that is fragmented.
    Short,
}

impl Memory {
    const ALL: [Self; 2] = [Self::Free, Self::Short];

    /// The words behind the kind of indices.
    const fn name(self) -> &'static str {
        match self {
            Self::Free => "",
            Self::Short => ", under pressure",
        }
    }

    /// Whether a run with this array says anything. A pool of gigantic pages is filled before memory is short, so that
    /// pressure does not change what comes out of it.
    fn has(self, variant: Variant) -> bool {
        self == Self::Free || variant.name != GIGANTIC
    }

    /// Makes memory so, for an array of this size.
    fn make(self, setting: &Setting, bench: &mut Bench, size: Bytes) -> Result<Vec<Pressure>> {
        match self {
            Self::Free => Ok(Vec::new()),
            Self::Short => {
                let wanted = (size + BESIDE).scaled(1.0 + BEYOND);
                leave(setting, bench, wanted, FRAGMENTED)
            }
        }
    }
}

/// The findings of one process.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The medians of its gathers, by kind of indices.
    seconds: [f64; INDICES.len()],
    /// The time from nothing to an array with numbers in it.
    filled: f64,
    base: f64,
    huge: f64,
    gigantic: f64,
}

/// The kinds of indices: the key in the program's output, and the name in rows.
const INDICES: [(&str, &str); 2] = [("uniform", "uniform"), ("skewed", "80 % in the first fifth")];

#[derive(Debug, Serialize)]
struct Row {
    case: String,
    policy: &'static str,
    size_bytes: u64,
    seconds: f64,
    low: f64,
    high: f64,
    /// The seconds of `numpy.empty` in the same case through these.
    over_numpy: f64,
    /// The seconds of base pages in the same case through these.
    over_base: f64,
    base_bytes: f64,
    huge_bytes: f64,
    gigantic_bytes: f64,
    filled_s: f64,
    rounds: usize,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let wheel = wheel()?;
    let size = fitting_size(setting, SIZE, 1)?;
    let mut bench = Bench::open(setting)?;
    set_enabled(&mut bench, Enabled::Madvise)?;
    let mut report = Report::default();
    progress("making a virtual environment of Python's")?;
    let python = Python::new(setting)?;
    python.install([&wheel]).map_err(|why| {
        Error::NotPossible(format!("{} cannot be installed: {why}", wheel.display()))
    })?;
    let program = python.write("array_numpy.py", PROGRAM)?;
    warm(setting, size)?;
    let mut found = Memory::ALL.map(|_| VARIANTS.map(|_| Vec::new()));
    for round in 1..=setting.rounds {
        for (memory, found) in Memory::ALL.into_iter().zip(&mut found) {
            let pressure = memory.make(setting, &mut bench, size)?;
            for (variant, samples) in VARIANTS.into_iter().zip(found) {
                if !memory.has(variant) {
                    continue;
                }
                let (name, of) = (variant.name, setting.rounds);
                progress(&format!("{name}{}, round {round} of {of}", memory.name()))?;
                let mut trial = || trial(&python, &program, variant, size);
                if variant.name == GIGANTIC {
                    match with_gigantic(&mut bench, size, &mut trial)? {
                        Ok(sample) => samples.push(sample),
                        Err(why) => note_once(
                            &mut report,
                            format!(
                                "There is no row for gigantic pages in a round in which {why}."
                            ),
                        ),
                    }
                } else {
                    samples.push(trial()?);
                }
                pressure.iter().try_for_each(Pressure::check)?;
            }
        }
    }
    for (memory, found) in Memory::ALL.into_iter().zip(&found) {
        add_rows(memory, found, size, &mut report)?;
    }
    report.notes.push(note(size));
    Ok(report)
}

/// The wheel of our package.
fn wheel() -> Result<PathBuf> {
    let path = std::env::var_os(WHEEL).map(PathBuf::from).filter(|path| path.is_file());
    path.ok_or_else(|| {
        Error::NotPossible(format!(
            "{WHEEL} must name the file of the Python package's wheel; build it by `pip install maturin && maturin build \
             --release --manifest-path python/Cargo.toml --out wheels` (docs/arrays.md)"
        ))
    })
}

fn trial(python: &Python, program: &Path, variant: Variant, size: Bytes) -> Result<Sample> {
    let mut command = python.command();
    command.env(ADVISE, variant.advise).arg(program).arg(variant.pages);
    command.args([size.0.to_string(), TRIALS.to_string()]);
    sample(&object(&mut command)?)
        .ok_or_else(|| Error::Child("a program has not said what was expected".to_owned()))
}

/// The sample that the Python program says.
fn sample(found: &Value) -> Option<Sample> {
    let mut seconds = [0.0; INDICES.len()];
    for ((key, _), seconds) in INDICES.iter().zip(&mut seconds) {
        let all: Option<Vec<f64>> = found[key].as_array()?.iter().map(Value::as_f64).collect();
        *seconds = median(all?);
    }
    let bytes = |size: &str| found["pages"][size].as_f64();
    Some(Sample {
        seconds,
        filled: found["filled_s"].as_f64()?,
        base: bytes("base")?,
        huge: bytes("huge")?,
        gigantic: bytes("gigantic")?,
    })
}

/// Does something while the kernel's pool has enough free gigantic pages for an array; why not, where it gets none.
fn with_gigantic<T>(
    bench: &mut Bench,
    size: Bytes,
    work: &mut dyn FnMut() -> Result<T>,
) -> Result<std::result::Result<T, String>> {
    let sys = Path::new("/sys");
    let wanted = size.0.div_ceil(GIGANTIC_PAGE_BYTES);
    let before = match hugetlb::read(sys, PageSize::Gigantic) {
        Ok(pool) => pool,
        Err(error) => return Ok(Err(format!("the kernel has no such pages ({error})"))),
    };
    let setting = hugetlb::setting(sys, PageSize::Gigantic);
    let more = before.size + wanted.saturating_sub(before.free);
    let changed = bench.settings().change(&setting, &more.to_string());
    let free = hugetlb::read(sys, PageSize::Gigantic)?.free;
    let done = match (free >= wanted, changed) {
        (true, _) => work().map(Ok),
        (false, Err(error)) => Ok(Err(format!(
            "the kernel's pool had {free} of {wanted} pages of 1 GiB and got no more ({error})"
        ))),
        (false, Ok(_)) => Ok(Err(format!(
            "the kernel found contiguous memory for {free} of {wanted} pages of 1 GiB"
        ))),
    };
    bench.settings().change(&setting, &before.size.to_string())?;
    done
}

fn note_once(report: &mut Report, note: String) {
    if !report.notes.contains(&note) {
        report.notes.push(note);
    }
}

/// Adds the rows of one state of memory.
fn add_rows(
    memory: Memory,
    found: &[Vec<Sample>; VARIANTS.len()],
    size: Bytes,
    report: &mut Report,
) -> Result<()> {
    for (at, (_, indices)) in INDICES.iter().enumerate() {
        for (variant, samples) in VARIANTS.iter().zip(found).filter(|(_, all)| !all.is_empty()) {
            // The machine's speed changes over minutes, so a run is compared with those of its round.
            let over = |of: usize| {
                let pairs = found[of].iter().zip(samples);
                rounded(median(pairs.map(|(other, own)| other.seconds[at] / own.seconds[at])), 3)
            };
            let each = || samples.iter().map(|sample| sample.seconds[at]);
            let middle = |of: fn(&Sample) -> f64| median(samples.iter().map(of));
            report.push(&Row {
                case: format!("{indices}{}", memory.name()),
                policy: variant.name,
                size_bytes: size.0,
                seconds: rounded(median(each()), 4),
                low: rounded(each().fold(f64::INFINITY, f64::min), 4),
                high: rounded(each().fold(0.0, f64::max), 4),
                over_numpy: over(NUMPY),
                over_base: over(BASE),
                base_bytes: middle(|sample| sample.base),
                huge_bytes: middle(|sample| sample.huge),
                gigantic_bytes: middle(|sample| sample.gigantic),
                filled_s: rounded(middle(|sample| sample.filled), 3),
                rounds: samples.len(),
            })?;
        }
    }
    Ok(())
}

fn note(size: Bytes) -> String {
    format!(
        "numpy.take of 8 Mi elements of an array of {size} of float64, in the order of the indices, which are drawn anew for each \
         kind: uniform, or by a power law (80 % of them in the first fifth, denser towards the beginning). Each run is a process \
         with {TRIALS} gathers for each kind after one that does not count; its medians count, and rows are medians of the \
         rounds. Indices and what is gathered are on base pages in all rows. Over NumPy, over base: the seconds of numpy.empty \
         and of base pages in the same case through those of the row in the same round. No advice: {ADVISE}=0. The kernel's setting is enabled = madvise. \
         Base, huge, gigantic: what the array is on at the end, by superpage.pages; filled s: to make the array and put numbers \
         in it. Under pressure a run finds {:.2} times the memory that it takes, and {:.0} % of that is fragmented. Gigantic \
         pages come from a pool that is filled before memory gets short, so they have no rows under pressure.",
        1.0 + BEYOND,
        100.0 * FRAGMENTED,
    )
}
