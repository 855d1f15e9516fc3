//! Times of the kernels: `kernel_times [kronecker|uniform|block] [SCALE] [TRIALS] [DELTA]` makes a graph of 2^SCALE vertices
//! (20 where nothing is said) and runs each kernel TRIALS times (16), searches each time from another vertex that has edges.
//! Results are verified once, out of the times. `RAYON_NUM_THREADS` says on how many threads.

use std::io::Write;
use std::time::{Duration, Instant};
use superpage_array::{PageArray, Pages};
use superpage_graph::build::{self, Direction};
use superpage_graph::generate::{BlockModel, Generator, Kronecker, Uniform, Weights};
use superpage_graph::kernel::{bfs, components, pagerank, sssp};
use superpage_graph::{Graph, GraphPages, Progress, Vertex};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, otherwise: u32| arguments.get(at).map_or(Ok(otherwise), |text| text.parse());
    let (scale, trials, delta) = (number(1, 20)?, number(2, 16)?, number(3, 2)?);
    let weights = Weights::Uniform;
    let generator = match arguments.first().map(String::as_str) {
        None | Some("kronecker") => {
            Generator::Kronecker(Kronecker { weights, ..Kronecker::new(scale) })
        }
        Some("uniform") => Generator::Uniform(Uniform { weights, ..Uniform::new(scale) }),
        Some("block") => Generator::BlockModel(BlockModel { weights, ..BlockModel::new(scale) }),
        Some(other) => return Err(format!("{other}: no such graph").into()),
    };
    // The property array comes first, as in the paper.
    let vertices = 1 << scale;
    let mut numbers = PageArray::<u32>::zeroed(vertices, Pages::BASE)?;
    let mut floats = [
        PageArray::<f32>::zeroed(vertices, Pages::BASE)?,
        PageArray::zeroed(vertices, Pages::BASE)?,
    ];
    let begun = Instant::now();
    let progress = Progress::default();
    let graph =
        build::graph(generator.source(), Direction::Undirected, GraphPages::default(), &progress)?;
    let made = format!("{generator}: {} edges in {:.1?}", graph.edges(), begun.elapsed());
    say(&format!("{made}, {} threads", rayon::current_num_threads()))?;
    searches(&graph, trials, delta, &mut numbers)?;
    rankings(&graph, trials, &mut floats)?;
    let found = times("components", trials, |_| Ok(components::run(&graph, &mut numbers)?))?;
    components::verify(&graph, &numbers)?;
    say(&format!("{found:?}"))
}

fn searches(graph: &Graph, trials: u32, delta: u32, numbers: &mut [u32]) -> Outcome {
    let sources = sources(graph, trials);
    let last = sources.last().copied().unwrap_or_default();
    let found = times("bfs", trials, |trial| Ok(bfs::run(graph, sources[trial], numbers)?))?;
    bfs::verify(graph, last, numbers)?;
    say(&format!("{found:?}"))?;
    let found =
        times("sssp", trials, |trial| Ok(sssp::run(graph, sources[trial], delta, numbers)?))?;
    sssp::verify(graph, last, numbers)?;
    say(&format!("{found:?}"))
}

fn rankings(graph: &Graph, trials: u32, floats: &mut [PageArray<f32>; 2]) -> Outcome {
    let options = pagerank::Options::default();
    let [scores, contributions] = floats;
    let found =
        times("pagerank", trials, |_| Ok(pagerank::run(graph, options, scores, contributions)?))?;
    pagerank::verify(graph, options.tolerance, scores)?;
    say(&format!("{found:?}"))
}

/// The vertices that searches start from: some that have edges.
fn sources(graph: &Graph, trials: u32) -> Vec<Vertex> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Vertex::try_from(state % graph.vertices() as u64).unwrap_or_default()
    };
    let with_edges =
        std::iter::repeat_with(next).filter(|vertex| graph.outgoing().degree(*vertex) > 0);
    with_edges.take(trials as usize).collect()
}

/// Runs a kernel and prints its times; returns what the last run found.
fn times<T: Default>(
    name: &str,
    trials: u32,
    mut run: impl FnMut(usize) -> Result<T, Box<dyn std::error::Error>>,
) -> Result<T, Box<dyn std::error::Error>> {
    let mut found = T::default();
    let mut times: Vec<Duration> = Vec::new();
    for trial in 0..trials as usize {
        let begun = Instant::now();
        found = run(trial)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let mean = times.iter().sum::<Duration>() / trials.max(1);
    if let (Some(least), Some(median)) = (times.first(), times.get(times.len() / 2)) {
        say(&format!("{name:12} median {median:9.3?}  mean {mean:9.3?}  least {least:9.3?}"))?;
    }
    Ok(found)
}

fn say(line: &str) -> Outcome {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
