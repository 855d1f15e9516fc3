//! `superpage graph run`: a kernel on a graph, timed with its property array on each of several kinds of pages.

use super::kernels::Kernel;
use super::{Loaded, Use, check_target, directory_of, load};
use crate::args::graph::{KernelName, Run, When};
use crate::exit::{Failure, Outcome};
use crate::show;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_array::{Pages, Placement, Request, Shortfall};
use superpage_graph::format::Weights;
use superpage_graph::generate::SEED;
use superpage_graph::{Graph, GraphPages, Vertex, format};
use superpage_lab::workload::rng::Rng;
use superpage_units::{Bytes, Nanos};

/// Times the kernel.
pub(super) fn run(arguments: &Run) -> Outcome {
    check(arguments)?;
    arguments.output.as_deref().map_or(Ok(()), |path| check_output(path, arguments))?;
    let request = |pages| request(arguments, pages);
    let pages = GraphPages {
        vertex: request(arguments.vertex_pages),
        edge: request(arguments.edge_pages),
        values: request(arguments.values_pages),
    };
    let mut variants = match arguments.property {
        When::First => Variant::all(arguments, vertices(arguments)?)?,
        When::Last => Vec::new(),
    };
    // The kernel gives memory at first touches, and loading the graph makes many.
    variants.iter_mut().for_each(|variant| variant.kernel.touch());
    let weights = match arguments.kernel {
        KernelName::Sssp => Weights::Needed,
        KernelName::Bfs | KernelName::Pr | KernelName::Cc => Weights::Unread,
    };
    let loaded = load(&arguments.input, Use { pages, weights, beside: Kernel::beside(arguments) })?;
    if arguments.property == When::Last {
        variants = Variant::all(arguments, loaded.graph.vertices())?;
    }
    let sources = sources(&loaded, arguments)?;
    for round in Round::all(arguments.repeat) {
        for source in &sources {
            for variant in &mut variants {
                variant.trial(&loaded, arguments, *source, round)?;
            }
        }
    }
    let text = if arguments.json {
        let lines = variants.iter().map(|variant| variant.json(arguments, &loaded, &sources));
        lines.collect::<Result<String, Failure>>()?
    } else {
        tables(arguments, &loaded, &variants)?
    };
    show::print(&text)?;
    match (&arguments.output, variants.first()) {
        (Some(path), Some(variant)) => write(&variant.kernel, path),
        _ => Ok(()),
    }
}

/// Fails where the result cannot be written, or would replace the graph, before there is much work.
fn check_output(path: &Path, arguments: &Run) -> Result<(), Failure> {
    let found = std::fs::canonicalize(path).ok();
    if found.is_some() && found == std::fs::canonicalize(&arguments.input.file).ok() {
        let path = path.display();
        let what =
            format!("--output {path} would replace the graph that is read: write to another file");
        return Err(Failure::Usage(what));
    }
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let what = format!("{} is no regular file: write the result to a file", path.display());
        return Err(Failure::Usage(what));
    }
    check_target(path)
}

/// Writes the result of a kernel to a file, which is there when all of it is.
fn write(kernel: &Kernel, path: &Path) -> Outcome {
    // A temporary file is its owner's alone, but the umask decides who may read the result.
    let permissions = Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().permissions(permissions).tempfile_in(directory_of(path));
    let written = file.and_then(|file| {
        let mut writer = BufWriter::new(&file);
        kernel.write(&mut writer)?;
        writer.flush()?;
        drop(writer);
        Ok(file.persist(path)?)
    });
    let failed = |error| Failure::Failed(anyhow::anyhow!("{}: {error}", path.display()));
    written.map(drop).map_err(failed)
}

/// Refuses what the kernel has no use for.
fn check(arguments: &Run) -> Result<(), Failure> {
    let useless = |option: &str| {
        let kernel = name(arguments.kernel);
        Err(Failure::Usage(format!("{kernel} has no use for {option}; leave it out")))
    };
    match arguments {
        Run { source: Some(_), .. } if !begins_somewhere(arguments) => useless("--source"),
        Run { sources: Some(_), .. } if !begins_somewhere(arguments) => useless("--sources"),
        Run { delta: Some(_), kernel, .. } if *kernel != KernelName::Sssp => useless("--delta"),
        Run { iterations: Some(_), kernel, .. } if *kernel != KernelName::Pr => {
            useless("--iterations")
        }
        _ => Ok(()),
    }
}

/// Whether the kernel begins at a vertex.
fn begins_somewhere(arguments: &Run) -> bool {
    matches!(arguments.kernel, KernelName::Bfs | KernelName::Sssp)
}

fn request(arguments: &Run, pages: Pages) -> Request {
    let shortfall = if arguments.require { Shortfall::Refused } else { Shortfall::Allowed };
    Request { pages, shortfall }
}

/// The number of vertices, before the graph is read.
fn vertices(arguments: &Run) -> Result<usize, Failure> {
    let file = &arguments.input.file;
    let unknown = || {
        let file = file.display();
        Failure::Usage(format!(
            "{file} does not tell its number of vertices at the beginning, which `--property first` needs: write it as .sg or \
             .wsg with `superpage graph convert`"
        ))
    };
    let found = format::vertices(file)?.ok_or_else(unknown)?;
    usize::try_from(found).map_err(|_| unknown())
}

/// The vertices to begin at, by their numbers in the file; one that does not matter where a kernel begins at none.
fn sources(loaded: &Loaded, arguments: &Run) -> Result<Vec<Vertex>, Failure> {
    let graph = &loaded.graph;
    if !begins_somewhere(arguments) {
        return Ok(vec![0]);
    }
    if let Some(source) = arguments.source {
        graph.check(source)?;
        return Ok(vec![source]);
    }
    if graph.edges() == 0 {
        return Err(Failure::Usage(
            "no vertex has neighbors, so there is none to begin at; say one with --source"
                .to_owned(),
        ));
    }
    let vertices = graph.vertices() as u64;
    let mut rng = Rng::new(SEED);
    let drawn = std::iter::repeat_with(|| Vertex::try_from(rng.below(vertices)).unwrap_or(0));
    let has_neighbors = |vertex: &Vertex| graph.outgoing().degree(loaded.number(*vertex)) > 0;
    Ok(drawn.filter(has_neighbors).take(arguments.sources.unwrap_or(1) as usize).collect())
}

/// A round of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// The first round is not timed, because arrays on base pages get their memory in it.
    First,
    Timed,
}

impl Round {
    fn all(timed: u32) -> impl Iterator<Item = Self> {
        std::iter::once(Self::First).chain((0..timed).map(|_| Self::Timed))
    }
}

/// A kind of pages, and what was measured with it.
struct Variant {
    pages: Pages,
    kernel: Kernel,
    trials: Vec<Duration>,
    /// The result of the first trial, in words.
    result: String,
}

impl Variant {
    fn all(arguments: &Run, vertices: usize) -> Result<Vec<Self>, Failure> {
        let new = |pages: &Pages| -> Result<Self, Failure> {
            let kernel = Kernel::new(arguments, vertices, request(arguments, *pages))?;
            Ok(Self { pages: *pages, kernel, trials: Vec::new(), result: String::new() })
        };
        arguments.pages.iter().map(new).collect()
    }

    /// Runs the kernel from a vertex of the file.
    fn trial(
        &mut self,
        loaded: &Loaded,
        arguments: &Run,
        source: Vertex,
        round: Round,
    ) -> Result<(), Failure> {
        let (graph, source) = (&loaded.graph, loaded.number(source));
        let begun = Instant::now();
        let result = self.kernel.trial(graph, source)?;
        if round == Round::Timed {
            self.trials.push(begun.elapsed());
            return Ok(());
        }
        if self.result.is_empty() {
            self.result = result;
        }
        if arguments.verify {
            self.kernel.verify(graph, source).map_err(|what| {
                let pages = self.pages;
                Failure::Failed(anyhow::anyhow!("the result with {pages} pages is wrong: {what}"))
            })?;
        }
        Ok(())
    }

    fn median(&self) -> Duration {
        let mut sorted = self.trials.clone();
        sorted.sort_unstable();
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        (at(sorted.len().saturating_sub(1) / 2) + at(sorted.len() / 2)) / 2
    }

    fn json(
        &self,
        arguments: &Run,
        loaded: &Loaded,
        sources: &[Vertex],
    ) -> Result<String, Failure> {
        let graph = &loaded.graph;
        let (size, placement) = self.kernel.property()?;
        let mut arrays = vec![array_json("property", size, &placement)];
        for (name, size, placement) in others(graph, &self.kernel)? {
            arrays.push(array_json(&name, size, &placement));
        }
        let seconds: Vec<f64> = self.trials.iter().map(Duration::as_secs_f64).collect();
        let when = arguments.property.to_possible_value();
        let row = json!({
            "kernel": name(arguments.kernel),
            "file": arguments.input.file.display().to_string(),
            "vertices": graph.vertices(),
            "edges": graph.edges(),
            "directed": graph.is_directed(),
            "duplicates": loaded.duplicates,
            "threads": rayon::current_num_threads(),
            "pages": self.pages.to_string(),
            "vertex_pages": arguments.vertex_pages.to_string(),
            "edge_pages": arguments.edge_pages.to_string(),
            "values_pages": arguments.values_pages.to_string(),
            "require": arguments.require,
            "iterations": arguments.iterations,
            "cached": arguments.input.cached,
            "property": when.map(|when| when.get_name().to_owned()),
            "group": arguments.input.group.to_string(),
            "reading_s": loaded.reading.as_secs_f64(),
            "grouping_s": loaded.grouping.as_secs_f64(),
            "sources": if begins_somewhere(arguments) { sources } else { &[] },
            "seconds": seconds,
            "median_s": self.median().as_secs_f64(),
            "verified": arguments.verify,
            "result": self.result,
            "arrays": arrays,
        });
        Ok(format!("{row}\n"))
    }
}

fn name(kernel: KernelName) -> String {
    kernel.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The arrays beside the property array, by name.
fn others(graph: &Graph, kernel: &Kernel) -> Result<Vec<(String, Bytes, Placement)>, Failure> {
    let mut found = Vec::new();
    if let Some((size, placement)) = kernel.scores()? {
        found.push(("scores".to_owned(), size, placement));
    }
    for (name, size, placement) in graph.outgoing().placements()? {
        found.push((name.to_owned(), size, placement));
    }
    if graph.is_directed() {
        for (name, size, placement) in graph.incoming().placements()? {
            found.push((format!("{name}, backwards"), size, placement));
        }
    }
    Ok(found)
}

fn array_json(name: &str, size: Bytes, placement: &Placement) -> Value {
    json!({
        "name": name,
        "size_bytes": size.0,
        "base_bytes": placement.base.0,
        "huge_bytes": placement.huge.0,
        "gigantic_bytes": placement.gigantic.0,
        "swapped_bytes": placement.swapped.0,
        "absent_bytes": placement.absent.0,
    })
}

fn tables(arguments: &Run, loaded: &Loaded, variants: &[Variant]) -> Result<String, Failure> {
    let heads =
        ["property array", "median", "fastest", "slowest", "speed", "huge", "of all memory"];
    let mut times = show::table(&heads);
    let mut memory =
        show::table(&["array", "size", "gigantic", "huge", "base", "swapped", "not there"]);
    let mut line = |name: &str, size: Bytes, placed: &Placement| {
        let Placement { base, huge, gigantic, swapped, absent } = *placed;
        let sizes = [size, gigantic, huge, base, swapped, absent].map(|size| size.to_string());
        memory.add_row([name.to_owned()].into_iter().chain(sizes));
    };
    let large = |placed: &Placement| placed.huge + placed.gigantic;
    let first = variants.first().map_or(Duration::ZERO, Variant::median);
    for variant in variants {
        let (size, placement) = variant.kernel.property()?;
        let beside = others(&loaded.graph, &variant.kernel)?;
        let all = beside.iter().map(|(_, _, placed)| *placed).sum::<Placement>() + placement;
        let median = variant.median();
        let time = |time: Option<&Duration>| show::time(nanos(time.copied().unwrap_or_default()));
        times.add_row([
            variant.pages.to_string(),
            time(Some(&median)),
            time(variant.trials.iter().min()),
            time(variant.trials.iter().max()),
            format!("{:.2}", first.as_secs_f64() / median.as_secs_f64().max(f64::MIN_POSITIVE)),
            large(&placement).to_string(),
            large(&all).share_of(all.total()).to_string(),
        ]);
        line(&format!("property ({})", variant.pages), size, &placement);
    }
    if let Some(variant) = variants.first() {
        for (name, size, placement) in &others(&loaded.graph, &variant.kernel)? {
            line(name, *size, placement);
        }
    }
    Ok(format!("{}\n{times}\n\n{memory}\n", words(arguments, loaded, variants)))
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The graph, the times of reading and grouping, and the result, in words.
fn words(arguments: &Run, loaded: &Loaded, variants: &[Variant]) -> String {
    let graph = &loaded.graph;
    let (vertices, edges) = (graph.vertices(), graph.edges());
    let kind = if graph.is_directed() { "directed" } else { "undirected" };
    let threads = rayon::current_num_threads();
    let mut text = format!(
        "{} on {}: {vertices} vertices, {edges} entries in the edge array, {kind}, {threads} threads. Reading took {}",
        name(arguments.kernel),
        arguments.input.file.display(),
        show::time(nanos(loaded.reading)),
    );
    if !loaded.grouping.is_zero() {
        let group = arguments.input.group;
        text += &format!(", grouping ({group}) {}", show::time(nanos(loaded.grouping)));
    }
    text += ".\n";
    if let Some(variant) = variants.first() {
        let checked = if arguments.verify { "; verified" } else { "" };
        text += &format!("{}{checked}. Speed is over {} pages.\n", variant.result, variant.pages);
    }
    text
}
