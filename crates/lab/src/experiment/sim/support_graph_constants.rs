//! The numbers that the graph paper's programs, graphs and memory are given here. "The published
//! programs" are those of github.com/amanocha/graphs_thp_management.

use super::{Cell, Constant};
use superpage_units::{BasePages, Bytes};

pub(super) static CYCLES_PER_EDGE: Constant<f64> = Constant::fitted(
    "graph.cycles-per-edge",
    64.0,
    &[Cell {
        experiment: "graph-fig1",
        case: "mean",
        policy: "linux-defrag-madvise",
        quantity: "speedup",
    }],
    "cycles for each edge without those of translation, the same for all programs and graphs",
);
pub(super) static FILL_CYCLES: Constant<f64> = Constant::assumed(
    "graph.fill-cycles",
    2_000.0,
    "cycles for each base page that is filled while a graph is loaded, which is not in the times",
);
pub(super) static WARM_UPS: Constant<usize> = Constant::assumed(
    "graph.warm-ups",
    12,
    "how often a little is run before the part that is timed; with thirty, speedups differ by 3 % \
     at most and their mean by less than 1 %",
);
pub(super) static THREADS: Constant<u32> =
    Constant::paper("graph.threads", 1, "the published programs: one thread");

pub(super) static ITEM: Constant<Bytes> =
    Constant::paper("graph.item", Bytes(8), "the published programs: an item of most arrays");
pub(super) static HALF_ITEM: Constant<Bytes> = Constant::paper(
    "graph.half-item",
    Bytes(4),
    "the published programs: an item of SSSP's values and of PR's properties",
);
pub(super) static ACCESSES: Constant<()> = Constant::paper(
    "graph.accesses",
    (),
    "the published programs (bfs.h, sssp.h, pr.h): which arrays each edge is one access to",
);
pub(super) static VERTEX_ACCESSES: Constant<u64> = Constant::paper(
    "graph.vertex-accesses",
    2,
    "the published programs: accesses to the vertex array for each vertex that is come to",
);
pub(super) static WORKLIST_ACCESSES: Constant<f64> = Constant::paper(
    "graph.worklist-accesses",
    6.0,
    "the published BFS and SSSP: two accesses to worklists and four to their counts for each vertex",
);
pub(super) static SCORE_ACCESSES: Constant<f64> = Constant::paper(
    "graph.score-accesses",
    5.0,
    "the published PR (pr.h): x and in_r are read, x written, in_r read and written, for each vertex",
);
pub(super) static PR_WORKLIST_ACCESSES: Constant<f64> = Constant::paper(
    "graph.pr-worklist-accesses",
    2.0,
    "the published PR: accesses to worklists for each vertex, without their counts",
);
pub(super) static DISCOVERED_ORDER: Constant<()> = Constant::assumed(
    "graph.discovered-order",
    (),
    "BFS and SSSP come to vertices in the order in which they are discovered, taken as any order",
);
pub(super) static PR_ORDER: Constant<()> = Constant::assumed(
    "graph.pr-order",
    (),
    "PR goes through vertices one by one in all its passes, and reads and writes the same array, \
     which changes places with its scores in the published program",
);
pub(super) static BFS_PASSES: Constant<f64> = passes("graph.bfs-passes", 1.0);
pub(super) static SSSP_PASSES: Constant<f64> = passes("graph.sssp-passes", 3.0);
pub(super) static PR_PASSES: Constant<f64> = passes("graph.pr-passes", 10.0);

pub(super) static KRONECKER_SCALE: Constant<u32> =
    Constant::paper("graph.kronecker-scale", 25, "Table 2: Kronecker25");
pub(super) static KRONECKER_EDGES: Constant<u64> = table2("graph.kronecker-edges", 1_050_000_000);
pub(super) static TWITTER_VERTICES: Constant<u64> = table2("graph.twitter-vertices", 53_000_000);
pub(super) static TWITTER_EDGES: Constant<u64> = table2("graph.twitter-edges", 1_940_000_000);
pub(super) static SD1_ARC_VERTICES: Constant<u64> = table2("graph.sd1-arc-vertices", 95_000_000);
pub(super) static SD1_ARC_EDGES: Constant<u64> = table2("graph.sd1-arc-edges", 1_960_000_000);
pub(super) static WIKIPEDIA_VERTICES: Constant<u64> =
    table2("graph.wikipedia-vertices", 12_000_000);
pub(super) static WIKIPEDIA_EDGES: Constant<u64> = table2("graph.wikipedia-edges", 378_000_000);
pub(super) static POWER_LAW: Constant<()> = Constant::assumed(
    "graph.power-law",
    (),
    "degrees of Twitter, Sd1 Arc and Wikipedia; the paper gives vertices and edges only",
);
pub(super) static EXPONENT: Constant<f64> = Constant::assumed(
    "graph.power-law-exponent",
    2.2,
    "between what was reported of the web and of Twitter",
);
pub(super) static MOST_NEIGHBOURS: Constant<f64> = Constant::assumed(
    "graph.most-neighbours",
    1.0 / 16.0,
    "the most neighbours that a vertex has, as a part of all vertices; not said",
);
pub(super) static KRONECKER_ORDER: Constant<()> =
    Constant::paper("graph.kronecker-order", (), "section 5.2: scattered");
pub(super) static SD1_ARC_ORDER: Constant<()> =
    Constant::paper("graph.sd1-arc-order", (), "section 5.2: scattered");
pub(super) static GROUPED_ORDER: Constant<()> = Constant::assumed(
    "graph.grouped-order",
    (),
    "Twitter and Wikipedia as they come are taken as grouped: section 5.2 has hot vertices \"in \
     close proximity\", \"at the beginning of the property array\"",
);

pub(super) static BFS_KRONECKER: Constant<Bytes> = footprint("graph.bfs-kronecker", 8634);
pub(super) static BFS_TWITTER: Constant<Bytes> = footprint("graph.bfs-twitter", 16123);
pub(super) static BFS_SD1_ARC: Constant<Bytes> = footprint("graph.bfs-sd1-arc", 16611);
pub(super) static BFS_WIKIPEDIA: Constant<Bytes> = footprint("graph.bfs-wikipedia", 3121);
pub(super) static SSSP_KRONECKER: Constant<Bytes> = footprint("graph.sssp-kronecker", 12800);
pub(super) static SSSP_TWITTER: Constant<Bytes> = footprint("graph.sssp-twitter", 24374);
pub(super) static SSSP_SD1_ARC: Constant<Bytes> = footprint("graph.sssp-sd1-arc", 25386);
pub(super) static SSSP_WIKIPEDIA: Constant<Bytes> = footprint("graph.sssp-wikipedia", 4736);
pub(super) static PR_KRONECKER: Constant<Bytes> = footprint("graph.pr-kronecker", 8952);
pub(super) static PR_TWITTER: Constant<Bytes> = footprint("graph.pr-twitter", 16555);
pub(super) static PR_SD1_ARC: Constant<Bytes> = footprint("graph.pr-sd1-arc", 17589);
pub(super) static PR_WIKIPEDIA: Constant<Bytes> = footprint("graph.pr-wikipedia", 3252);

pub(super) static NODE: Constant<Bytes> = Constant::paper(
    "graph.node",
    Bytes::from_mib(64_000),
    "one socket's memory: 64 GB in Table 1, 64,000 MB in the published run_frag.sh",
);
pub(super) static NATURAL: Constant<BasePages> = Constant::chosen(
    "graph.natural-unmovable",
    BasePages(1152),
    "section 4.3.1's 2 to 2.5 GB to spare, from which on huge pages work as without pressure,",
    "unmovable pages at random places before anybody fragments anything: 2.25 GiB in huge frames, \
     the middle",
);
pub(super) static MEMHOG: Constant<()> = Constant::assumed(
    "graph.memhog",
    (),
    "memhog takes whole huge frames first, and passes by those with an unmovable page; not said",
);
pub(super) static SPARE: Constant<Bytes> = Constant::paper(
    "graph.spare",
    Bytes::from_mib(3072),
    "section 4.4.1: 3 GB beyond a program's own where memory is fragmented",
);
pub(super) static TIGHT: Constant<Bytes> = Constant::paper(
    "graph.tight",
    Bytes::from_mib(512), // tidy: allow(MiB)
    "section 4.3: 0.5 GB beyond a program's own in Figure 7",
);
pub(super) static DEFICIT: Constant<Bytes> = Constant::paper(
    "graph.deficit",
    Bytes::from_mib(512), // tidy: allow(MiB)
    "section 4.3.1: memory oversubscribed by 0.5 GB",
);
pub(super) static SELECTIVE_FIRST: Constant<()> = Constant::assumed(
    "graph.selective-first",
    (),
    "selective runs load the property array first; not said",
);
pub(super) static CACHED_FILES: Constant<()> = Constant::assumed(
    "graph.cached-files",
    (),
    "files of a graph are as large as the arrays that are loaded from them, and read just before",
);

pub(super) static VISITED_PART: Constant<f64> = Constant::assumed(
    "graph.visited-part",
    1.0 / 32.0,
    "the part of its vertices that BFS comes to where memory is oversubscribed, first without \
     being timed and then timed; tens of thousands of them find a page gone, in every run",
);
pub(super) static PROPERTIES: Constant<f64> = Constant::assumed(
    "graph.properties-touched",
    4.0,
    "properties that are touched for a vertex where memory is oversubscribed; each stands for as \
     many as make up the vertex's edges",
);
pub(super) static READ_AHEAD: Constant<u32> = Constant::assumed(
    "graph.read-ahead",
    8,
    "base pages that a fault reads from swap, if they are read in order: Linux's default, 2 to the \
     power of page-cluster; not said",
);

/// How often a program comes to each edge.
const fn passes(name: &'static str, times: f64) -> Constant<f64> {
    let source = "how often each edge is come to, which says how long khugepaged has; not said";
    Constant::assumed(name, times, source)
}

/// The size of a graph.
const fn table2(name: &'static str, count: u64) -> Constant<u64> {
    Constant::paper(name, count, "Table 2")
}

/// A program's memory on a graph.
const fn footprint(name: &'static str, mib: u64) -> Constant<Bytes> {
    let source = "measured by the authors: the published run_frag.sh, in MB; rounded in Table 2";
    Constant::paper(name, Bytes::from_mib(mib), source)
}
