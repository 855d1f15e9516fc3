//! `superpage graph`: graphs on chosen pages.

mod convert;
mod generate;
mod info;
mod kernels;
mod run;

use crate::args::graph::{Graph as Arguments, GraphCommand, Input};
use crate::exit::{Failure, Outcome};
use crate::show;
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use superpage_graph::format::{self, Read, ReadOptions, Weights};
use superpage_graph::order::{self, Order};
use superpage_graph::{Beside, Error, Graph, GraphPages, PageCache, Progress, Vertex};
use superpage_units::Bytes;

/// The time between two looks at how far the work is. Chosen: as a person sees it move.
const LOOK: Duration = Duration::from_millis(100);

/// Carries out the command.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        GraphCommand::Generate(arguments) => {
            on_threads(arguments.threads, || generate::run(arguments))
        }
        GraphCommand::Convert(arguments) => {
            on_threads(arguments.input.threads, || convert::run(arguments))
        }
        GraphCommand::Info(arguments) => {
            on_threads(arguments.input.threads, || info::run(arguments))
        }
        GraphCommand::Run(arguments) => on_threads(arguments.input.threads, || run::run(arguments)),
    }
}

/// Works with so many threads; by default one on each CPU.
fn on_threads(threads: Option<NonZero<usize>>, work: impl FnOnce() -> Outcome + Send) -> Outcome {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads.map_or(0, NonZero::get));
    let pool = builder.build().map_err(anyhow::Error::from)?;
    pool.install(work)
}

/// An error about a graph has its exit code by its kind.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::File { .. }
            | Error::Inconsistent(_)
            | Error::Array(superpage_array::Error::Memory { .. }) => {
                Self::Failed(anyhow::Error::msg(text))
            }
            Error::Array(_) | Error::TooLarge { .. } => Self::NotPossible(text),
            _ => Self::Usage(text),
        }
    }
}

/// Does long work while a line on the terminal says how far it is; and how long it took.
fn shown<T: Send>(name: &str, work: impl FnOnce(&Progress) -> T + Send) -> (T, Duration) {
    let progress = Progress::default();
    let (progress, begun) = (&progress, Instant::now());
    std::thread::scope(|scope| {
        // The sender is dropped when the work is done, and also if the work panics.
        let (ended, end) = channel::<()>();
        scope.spawn(move || {
            let bar = show::progress(0, &format!("{name} {{wide_bar}} {{percent}} %"));
            while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let (done, all) = progress.now();
                bar.set_length(all.max(1));
                bar.set_position(done.min(all));
            }
            bar.finish_and_clear();
        });
        let result = work(progress);
        let took = begun.elapsed();
        drop(ended);
        (result, took)
    })
}

/// A graph, and how long it took to have it.
struct Loaded {
    graph: Graph,
    /// The edges of the file that were there before, and are there once.
    duplicates: u64,
    reading: Duration,
    /// The time that choosing the new order of vertices and renumbering them took.
    grouping: Duration,
    /// The new number of each vertex, where it has one.
    numbers: Option<Vec<Vertex>>,
}

impl Loaded {
    /// The number that a vertex of the file has now.
    fn number(&self, vertex: Vertex) -> Vertex {
        let numbers = self.numbers.as_ref();
        numbers.and_then(|numbers| numbers.get(vertex as usize)).copied().unwrap_or(vertex)
    }
}

/// The use that a command makes of the graph that it reads.
#[derive(Clone, Copy, Debug)]
struct Use {
    pages: GraphPages,
    weights: Weights,
    /// The memory that it takes afterwards.
    beside: Beside,
}

/// Reads a graph, and puts its vertices in order. What of the file is not in it is said on standard error.
fn load(input: &Input, wanted: Use) -> Result<Loaded, Error> {
    let Use { pages, weights, beside } = wanted;
    let page_cache = if input.cached { PageCache::Filled } else { PageCache::Avoided };
    let direction = input.edges.map(Into::into);
    let beside = if input.group == Order::AsIs { [beside; 2] } else { grouped(beside) };
    let options = ReadOptions { direction, pages, page_cache, weights, beside };
    let (read, reading) = shown("reading", |progress| format::read(&input.file, options, progress));
    let read = read?;
    say_left_out(input, &read);
    let Read { graph, duplicates, .. } = read;
    if input.group == Order::AsIs {
        return Ok(Loaded { graph, duplicates, reading, grouping: Duration::ZERO, numbers: None });
    }
    let (grouped, grouping) = shown("grouping", |progress| {
        let numbers = order::numbers(&graph, input.group);
        order::renumber(&graph, &numbers, pages, progress).map(|graph| (numbers, graph))
    });
    let (numbers, graph) = grouped?;
    Ok(Loaded { graph, duplicates, reading, grouping, numbers: Some(numbers) })
}

/// What is taken beside a graph whose vertices are put in order: its copy with two numbers for each vertex, and then, beside the
/// new numbers, what the command takes.
fn grouped(beside: Beside) -> [Beside; 2] {
    let number = Bytes(size_of::<Vertex>() as u64);
    let copy = Beside { copies: 1, per_vertex: number * 2, ..Beside::default() };
    [copy, Beside { per_vertex: beside.per_vertex + number, ..beside }]
}

/// Says what of a file is not in its graph.
fn say_left_out(input: &Input, read: &Read) {
    let file = input.file.display();
    if read.duplicates > 0 {
        let kept = if read.graph.is_weighted() { ", with the least of their weights" } else { "" };
        show::note(&format!(
            "{file}: duplicate edges were left out: {}; each edge is in the graph once{kept}",
            read.duplicates
        ));
    }
    if read.unread_columns > 0 {
        show::note(&format!(
            "{file}: what follows the {} on each line was not read",
            if read.graph.is_weighted() { "weight" } else { "two vertices" }
        ));
    }
}

/// The directory that a file is in.
fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// Fails where no file can be written, before there is much work.
fn check_target(path: &Path) -> Result<(), Failure> {
    let directory = directory_of(path);
    tempfile::NamedTempFile::new_in(directory).map(drop).map_err(|error| {
        let why = format!(
            "{}: no file can be written in {}: {error}",
            path.display(),
            directory.display()
        );
        Failure::Failed(anyhow::Error::msg(why))
    })
}
