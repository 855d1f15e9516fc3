//! The arguments of `graph`.

use super::{jobs, share};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::num::NonZero;
use std::path::PathBuf;
use superpage_array::Pages;
use superpage_graph::generate::SEED;
use superpage_graph::order::Order;
use superpage_graph::{Direction, Vertex, Weight};
use superpage_units::Share;

/// Arguments of `graph`.
#[derive(Debug, Args)]
pub(crate) struct Graph {
    #[command(subcommand)]
    pub(crate) command: GraphCommand,
}

/// The commands on graphs.
#[derive(Debug, Subcommand)]
pub(crate) enum GraphCommand {
    /// Make a graph, and write it to a file
    Generate(Generate),
    /// Write a graph in another format, or with its vertices in another order
    Convert(Convert),
    /// Show how large a graph is, and how much of the work falls on the vertices with most neighbors
    Info(Info),
    /// Time a kernel on a graph, with the array that it touches at random on each of several kinds of pages
    Run(Run),
}

const FORMATS: &str = "Formats, by the end of a file's name: .el and .txt (two vertices on a line, with blanks, a comma or a semicolon \
                       between them; # or % begins a comment), .wel (and a weight), .mtx (Matrix Market, coordinates), .sg and .wsg (GAP's \
                       binary formats, without and with weights). Up to four fields on a line are understood, and those that the format does \
                       not name are not read. Weights are whole numbers from 0 on; others are read where none are needed: in a \
                       conversion to .el or .sg, by bfs, pr and cc";

/// Arguments of `graph generate`.
#[derive(Debug, Args)]
#[command(after_help = FORMATS)]
pub(crate) struct Generate {
    /// Kronecker and uniform: as the GAP benchmarks have them. block-model: communities whose vertices are numbered one after the
    /// other, with degrees by a power law
    #[arg(value_enum)]
    pub(crate) kind: Kind,
    /// Where to write the graph
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The graph has 2 to this power vertices
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=31))]
    pub(crate) scale: u32,
    /// Edges for each vertex that are drawn; each leads both ways
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) degree: u32,
    /// The seed: the same makes the same graph
    #[arg(long, value_name = "N", default_value_t = SEED)]
    pub(crate) seed: u64,
    /// Communities (block-model); by default 1024, or as many as vertices if these are fewer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) communities: Option<u32>,
    /// The share of edges that stay within a community (block-model); by default 80%
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub(crate) within: Option<Share>,
    /// How many threads work; by default one on each CPU
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub(crate) threads: Option<NonZero<usize>>,
}

/// A kind of graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Kronecker: few vertices have most neighbors
    Kronecker,
    /// Both ends of each edge anywhere
    Uniform,
    /// Communities, degrees by a power law
    BlockModel,
}

/// A graph that is read.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The graph
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Whether edges lead one way or both; by default as the file says, and one way where it does not (.el, .wel, .txt)
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) edges: Option<Way>,
    /// The order of vertices: none (as they are), dbg (degree-based grouping), degree (most neighbors first), random
    #[arg(long, value_name = "ORDER", default_value = "none")]
    pub(crate) group: Order,
    /// Read the graph through the page cache and leave it there, as most programs do; by default the cache is avoided, because
    /// it takes memory that arrays want
    #[arg(long)]
    pub(crate) cached: bool,
    /// How many threads work; by default one on each CPU
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub(crate) threads: Option<NonZero<usize>>,
}

/// Whether edges lead one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// One way
    Directed,
    /// Both ways
    Undirected,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::Directed => Self::Directed,
            Way::Undirected => Self::Undirected,
        }
    }
}

/// Arguments of `graph convert`.
#[derive(Debug, Args)]
#[command(after_help = FORMATS)]
pub(crate) struct Convert {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Where to write it
    #[arg(value_name = "TO", value_hint = ValueHint::FilePath)]
    pub(crate) to: PathBuf,
}

/// Arguments of `graph info`.
#[derive(Debug, Args)]
#[command(after_help = FORMATS)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Print a JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `graph run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Pages: base (4 KiB), huge (2 MiB), gigantic (1 GiB, of the kernel's pool), the first part of an array in \
                        memory order, as in huge:20%, or default (what the kernel gives by its own setting). Where the kernel has too few, smaller ones are used, unless --require is \
                        said; the table says what was had. Trials of all pages take turns on the same graph. The property array \
                        is the one that a kernel touches at random: parents, distances, components, and of PageRank the contributions; its scores are on base pages."
)]
pub(crate) struct Run {
    /// The kernel: breadth-first search, shortest paths, PageRank, connected components
    #[arg(value_enum)]
    pub(crate) kernel: KernelName,
    #[command(flatten)]
    pub(crate) input: Input,
    /// The pages of the property array, each timed
    #[arg(long, value_name = "PAGES", value_delimiter = ',', default_value = "base,huge:20%,huge")]
    pub(crate) pages: Vec<Pages>,
    /// The pages of the vertex array
    #[arg(long, value_name = "PAGES", default_value = "base")]
    pub(crate) vertex_pages: Pages,
    /// The pages of the edge array
    #[arg(long, value_name = "PAGES", default_value = "base")]
    pub(crate) edge_pages: Pages,
    /// The pages of the values array, which has the weights
    #[arg(long, value_name = "PAGES", default_value = "base")]
    pub(crate) values_pages: Pages,
    /// Make the property array before the graph and write to all of it, so that it gets huge pages first, or make it after
    /// the graph. "first" needs a format that tells the number of vertices at its beginning (.sg, .wsg, .mtx)
    #[arg(long, value_enum, value_name = "WHEN", default_value = "last")]
    pub(crate) property: When,
    /// Fail where the kernel has too few huge or gigantic pages
    #[arg(long)]
    pub(crate) require: bool,
    /// Begin at this vertex (bfs, sssp)
    #[arg(long, value_name = "VERTEX", conflicts_with = "sources")]
    pub(crate) source: Option<Vertex>,
    /// Begin at so many vertices one after the other, drawn among those with neighbors (bfs, sssp); by default at one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sources: Option<u32>,
    /// How often each is timed, after one trial that is not
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// The width of a bucket of distances (sssp); by default 16
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) delta: Option<Weight>,
    /// Iterations in each trial, for trials that do the same work (pr); by default as many as it takes until scores change by less
    /// than 0.0001 in all, and at most 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "verify")]
    pub(crate) iterations: Option<u32>,
    /// Check each result in another way, which takes time
    #[arg(long)]
    pub(crate) verify: bool,
    /// Write the result of the last trial with the first of --pages to this file: for each vertex a number of 4 bytes, the least byte first. bfs: the
    /// parent; sssp: the distance (both 4294967295 where there is none); pr: the score (a float); cc: the number of the component
    #[arg(long, value_name = "TO", value_hint = ValueHint::FilePath, conflicts_with = "group")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON object for each kind of pages instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// When the property array is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// Before the graph
    First,
    /// After the graph
    Last,
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelName {
    /// Breadth-first search
    Bfs,
    /// Single-source shortest paths
    Sssp,
    /// PageRank
    Pr,
    /// Connected components
    Cc,
}
