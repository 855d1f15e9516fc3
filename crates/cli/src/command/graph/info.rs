//! `superpage graph info`: how large a graph is, and how much of the work falls on few vertices.

use super::{Use, load};
use crate::args::graph::Info;
use crate::exit::{Failure, Outcome};
use crate::show;
use rayon::prelude::*;
use serde_json::json;
use superpage_graph::format::Weights;
use superpage_graph::order::{HotShares, hottest_share};
use superpage_graph::{Beside, Graph, GraphPages, Vertex};
use superpage_units::{Bytes, Share};

/// The shares of vertices that are shown, in percent: the paper's Figure 11 begins at 20.
const SHARES: [u8; 7] = [1, 5, 10, 20, 40, 60, 80];

/// Reads a graph, and says what is in it.
pub(super) fn run(arguments: &Info) -> Outcome {
    // The degrees are sorted in a copy.
    let degrees = Bytes(size_of::<u64>() as u64);
    let beside = Beside { per_vertex: degrees, ..Beside::default() };
    let (pages, weights) = (GraphPages::default(), Weights::Unseen);
    let loaded = load(&arguments.input, Use { pages, weights, beside })?;
    let graph = &loaded.graph;
    let degrees = Degrees::of(graph);
    let shares = SHARES.map(|percent| (percent, hottest_share(graph, Share::percent(percent))));
    let arrays = arrays(graph)?;
    if arguments.json {
        let hottest = shares.map(|(percent, shares)| {
            json!({
                "vertices_share": f64::from(percent) / 100.0,
                "accesses_as_numbered": shares.first.get(),
                "accesses_by_degree": shares.hottest.get(),
            })
        });
        let arrays: Vec<_> = arrays
            .iter()
            .map(|(name, size)| json!({ "name": name, "size_bytes": size.0 }))
            .collect();
        let row = json!({
            "file": arguments.input.file.display().to_string(),
            "vertices": graph.vertices(),
            "edges": graph.edges(),
            "directed": graph.is_directed(),
            "weighted": graph.is_weighted(),
            "loops": graph.loops(),
            "duplicates": loaded.duplicates,
            "reading_s": loaded.reading.as_secs_f64(),
            "grouping_s": loaded.grouping.as_secs_f64(),
            "degree": {
                "mean": graph.mean_degree(),
                "least": degrees.least,
                "median": degrees.median,
                "most": degrees.most,
                "none": degrees.none,
            },
            "arrays": arrays,
            "hottest": hottest,
        });
        return show::print(&format!("{row}\n"));
    }
    show::print(&words(arguments, graph, &degrees, &arrays, &shares))
}

/// The numbers of neighbors that vertices have.
struct Degrees {
    least: u64,
    median: u64,
    most: u64,
    /// Vertices without any.
    none: usize,
}

impl Degrees {
    fn of(graph: &Graph) -> Self {
        let vertices = 0..Vertex::try_from(graph.vertices()).unwrap_or(Vertex::MAX);
        let mut all: Vec<u64> =
            vertices.into_par_iter().map(|vertex| graph.outgoing().degree(vertex)).collect();
        all.par_sort_unstable();
        let at = |index: usize| all.get(index).copied().unwrap_or_default();
        Self {
            least: at(0),
            median: at(all.len() / 2),
            most: at(all.len().saturating_sub(1)),
            none: all.partition_point(|degree| *degree == 0),
        }
    }
}

/// The arrays of a graph in memory, and the one that a kernel adds.
fn arrays(graph: &Graph) -> Result<Vec<(&'static str, Bytes)>, Failure> {
    let of_graph = graph.outgoing().placements()?;
    let mut arrays: Vec<_> = of_graph.into_iter().map(|(name, size, _)| (name, size)).collect();
    if graph.is_directed() {
        arrays.iter_mut().for_each(|(_, size)| *size = *size * 2);
    }
    arrays.push(("property", Bytes((graph.vertices() * size_of::<Vertex>()) as u64)));
    Ok(arrays)
}

fn words(
    arguments: &Info,
    graph: &Graph,
    degrees: &Degrees,
    arrays: &[(&'static str, Bytes)],
    shares: &[(u8, HotShares)],
) -> String {
    let kind = if graph.is_directed() { "directed" } else { "undirected" };
    let weights = if graph.is_weighted() { "with weights" } else { "without weights" };
    let total: Bytes = arrays.iter().map(|(_, size)| *size).sum();
    let mut memory = show::table(&["array", "size", "of all"]);
    for (name, size) in arrays {
        memory.add_row([(*name).to_owned(), size.to_string(), size.share_of(total).to_string()]);
    }
    let mut hottest =
        show::table(&["first vertices", "accesses, as numbered", "accesses, by degree"]);
    for (percent, shares) in shares {
        let row = [shares.first.to_string(), shares.hottest.to_string()];
        hottest.add_row([format!("{percent} %")].into_iter().chain(row));
    }
    format!(
        "{}: {} vertices, {} edges, {kind}, {weights}\n\
         Neighbors of a vertex: {:.1} on average, {} to {}, half of the vertices have at most {}; {} have none. \
         Edges from a vertex to itself: {}.\n\n\
         {memory}\n\n{hottest}\n\
         Accesses to the property array that fall on so many of the vertices: on the first in memory order, and on those with \
         most neighbors, which `--group dbg` brings together.\n",
        arguments.input.file.display(),
        graph.vertices(),
        graph.edges(),
        graph.mean_degree(),
        degrees.least,
        degrees.most,
        degrees.median,
        degrees.none,
        graph.loops(),
    )
}
