//! The programs and graphs of the graph paper's Table 2, as data: which arrays they have and what
//! an edge makes them access.
//!
//! Read off the published programs (github.com/amanocha/graphs_thp_management, launch/*/{bfs,sssp,
//! pr}.h; one thread, compiled with -O3), for each edge and each vertex that is come to:
//!
//! | program | for each edge | for each vertex |
//! |---|---|---|
//! | BFS | edge, property of its end, the end of the vertex's edges again | vertex twice, worklists twice and their counts four times |
//! | SSSP | the same, the edge's value, the vertex's own property again | the same |
//! | PR | edge, property of its end read and written | vertex twice, scores five times, worklists twice |
//!
//! Here the counts, each at one place, go through the worklists like accesses to these, and PR has neither counts nor the end of the
//! vertex's edges again: such accesses hit the TLB.
//!
//! An item has 8 bytes; values, and PR's properties, have 4. BFS and SSSP come to vertices in the
//! order in which they are discovered, taken as any order (assumed), so each begins its edges
//! somewhere else; PR goes through them one by one (assumed for all its passes). What PR reads and
//! writes changes places with its scores after each pass; here it is always the same array.
//! Worklists are as large as the footprints of the published scripts (run_frag.sh) leave room for.
//!
//! | graph | degrees | natural order |
//! |---|---|---|
//! | Kronecker25 | exact | scattered: the generator shuffles vertices (GAP benchmark suite) |
//! | Twitter, Wikipedia | assumed: a power law | assumed grouped: "naturally have hot vertices in close proximity", "at the beginning of the property array" (section 5.2) |
//! | Sd1 Arc | assumed: a power law | scattered (section 5.2) |
//!
//! The numbers of all this are in `support_graph_constants`.

use super::support_graph_constants::{
    ACCESSES, BFS_KRONECKER, BFS_PASSES, BFS_SD1_ARC, BFS_TWITTER, BFS_WIKIPEDIA, CACHED_FILES,
    CYCLES_PER_EDGE, DISCOVERED_ORDER, EXPONENT, FILL_CYCLES, GROUPED_ORDER, HALF_ITEM, ITEM,
    KRONECKER_EDGES, KRONECKER_ORDER, KRONECKER_SCALE, MOST_NEIGHBOURS, POWER_LAW, PR_KRONECKER,
    PR_ORDER, PR_PASSES, PR_SD1_ARC, PR_TWITTER, PR_WIKIPEDIA, PR_WORKLIST_ACCESSES,
    SCORE_ACCESSES, SD1_ARC_EDGES, SD1_ARC_ORDER, SD1_ARC_VERTICES, SSSP_KRONECKER, SSSP_PASSES,
    SSSP_SD1_ARC, SSSP_TWITTER, SSSP_WIKIPEDIA, THREADS, TWITTER_EDGES, TWITTER_VERTICES,
    VERTEX_ACCESSES, WARM_UPS, WIKIPEDIA_EDGES, WIKIPEDIA_VERTICES, WORKLIST_ACCESSES,
};
use super::{Constant, Constants, EXPOSED};
use superpage_sim::workload::graph::{Degrees, Graph, VertexOrder, Vertices};
use superpage_sim::workload::{
    Access, Counting, Order, Part, Pattern, Phase, Populate, Stream, Target, VmaShape, Workload,
};
use superpage_units::{Advice, Bytes};

/// A program of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kernel {
    Bfs,
    Sssp,
    Pr,
}

/// A graph of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Input {
    Kronecker,
    Twitter,
    Sd1Arc,
    Wikipedia,
}

/// An array of a program, in the order in which the published programs make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Array {
    Vertex,
    Edge,
    Values,
    Property,
    Scores,
    Worklists,
}

impl Array {
    /// Whether the array is loaded from a file.
    const fn is_loaded(self) -> bool {
        matches!(self, Self::Vertex | Self::Edge | Self::Values)
    }
}

/// A program on a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    pub(super) kernel: Kernel,
    pub(super) input: Input,
}

/// Which array gets its memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum First {
    /// The graph, as programs do it.
    Graph,
    /// The property array ("optimized" in the paper).
    Property,
}

/// Where the files lie that a graph is loaded from: one for each array of it, as large as the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Files {
    /// In memory of the other socket (tmpfs), or read around the page cache.
    Elsewhere,
    /// In the page cache of the memory that the program runs on, from when they are read.
    PageCache,
}

/// How a program is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Setup {
    pub(super) first: First,
    /// The array that huge pages are asked for.
    pub(super) advised: Option<Array>,
    /// How vertices are numbered.
    pub(super) numbering: Numbering,
    pub(super) files: Files,
}

/// How vertices are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Numbering {
    /// As the graph comes.
    Natural,
    /// After degree-based grouping.
    Grouped,
}

impl Input {
    pub(super) const ALL: [Self; 4] =
        [Self::Kronecker, Self::Twitter, Self::Sd1Arc, Self::Wikipedia];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kronecker => "Kronecker25",
            Self::Twitter => "Twitter",
            Self::Sd1Arc => "Sd1 Arc",
            Self::Wikipedia => "Wikipedia",
        }
    }

    /// Sizes of Table 2; Kronecker25 has two to the power of 25 vertices.
    pub(super) fn graph(self, constants: &Constants) -> Graph {
        let power_law = |vertices, edges| {
            constants.get(&POWER_LAW);
            let (exponent, most) = (constants.get(&EXPONENT), constants.get(&MOST_NEIGHBOURS));
            let (vertices, edges) = (constants.get(vertices), constants.get(edges));
            Graph { vertices, edges, degrees: Degrees::PowerLaw { exponent, most } }
        };
        match self {
            Self::Kronecker => {
                let scale = constants.get(&KRONECKER_SCALE);
                let edges = constants.get(&KRONECKER_EDGES);
                Graph { vertices: 1 << scale, edges, degrees: Degrees::Kronecker { scale } }
            }
            Self::Twitter => power_law(&TWITTER_VERTICES, &TWITTER_EDGES),
            Self::Sd1Arc => power_law(&SD1_ARC_VERTICES, &SD1_ARC_EDGES),
            Self::Wikipedia => power_law(&WIKIPEDIA_VERTICES, &WIKIPEDIA_EDGES),
        }
    }

    pub(super) fn natural_order(self, constants: &Constants) -> VertexOrder {
        let (order, constant) = match self {
            Self::Kronecker => (VertexOrder::Scattered, &KRONECKER_ORDER),
            Self::Sd1Arc => (VertexOrder::Scattered, &SD1_ARC_ORDER),
            Self::Twitter | Self::Wikipedia => (VertexOrder::Grouped, &GROUPED_ORDER),
        };
        constants.get(constant);
        order
    }
}

impl Kernel {
    pub(super) const ALL: [Self; 3] = [Self::Bfs, Self::Sssp, Self::Pr];

    const fn name(self) -> &'static str {
        match self {
            Self::Bfs => "BFS",
            Self::Sssp => "SSSP",
            Self::Pr => "PR",
        }
    }

    /// How often each edge is come to.
    fn passes(self, constants: &Constants) -> f64 {
        constants.get(match self {
            Self::Bfs => &BFS_PASSES,
            Self::Sssp => &SSSP_PASSES,
            Self::Pr => &PR_PASSES,
        })
    }
}

impl Program {
    /// All twelve of Table 2.
    pub(super) fn all() -> Vec<Self> {
        let of = |kernel| Input::ALL.map(|input| Self { kernel, input });
        Kernel::ALL.into_iter().flat_map(of).collect()
    }

    /// BFS on each graph.
    pub(super) fn bfs() -> Vec<Self> {
        Input::ALL.map(|input| Self { kernel: Kernel::Bfs, input }).to_vec()
    }

    pub(super) fn name(self) -> String {
        format!("{} {}", self.kernel.name(), self.input.name())
    }

    /// Its memory, as measured by the paper's authors.
    pub(super) fn footprint(self, constants: &Constants) -> Bytes {
        let [kronecker, twitter, sd1_arc, wikipedia]: [&Constant<Bytes>; 4] = match self.kernel {
            Kernel::Bfs => [&BFS_KRONECKER, &BFS_TWITTER, &BFS_SD1_ARC, &BFS_WIKIPEDIA],
            Kernel::Sssp => [&SSSP_KRONECKER, &SSSP_TWITTER, &SSSP_SD1_ARC, &SSSP_WIKIPEDIA],
            Kernel::Pr => [&PR_KRONECKER, &PR_TWITTER, &PR_SD1_ARC, &PR_WIKIPEDIA],
        };
        constants.get(match self.input {
            Input::Kronecker => kronecker,
            Input::Twitter => twitter,
            Input::Sd1Arc => sd1_arc,
            Input::Wikipedia => wikipedia,
        })
    }

    /// Its arrays, in the order in which they are mapped.
    pub(super) fn arrays(self, constants: &Constants) -> Vec<(Array, Bytes)> {
        let Graph { vertices, edges, .. } = self.input.graph(constants);
        let item = constants.get(&ITEM);
        let mut arrays = vec![(Array::Vertex, item * vertices), (Array::Edge, item * edges)];
        match self.kernel {
            Kernel::Bfs => arrays.push((Array::Property, item * vertices)),
            Kernel::Sssp => {
                arrays.push((Array::Values, constants.get(&HALF_ITEM) * edges));
                arrays.push((Array::Property, item * vertices));
            }
            Kernel::Pr => {
                arrays.push((Array::Property, constants.get(&HALF_ITEM) * vertices));
                arrays.push((Array::Scores, item * vertices));
            }
        }
        let taken: Bytes = arrays.iter().map(|(_, size)| *size).sum();
        arrays.push((Array::Worklists, self.footprint(constants).saturating_sub(taken)));
        arrays
    }

    /// The place of an array among the arrays.
    pub(super) fn index(self, array: Array, constants: &Constants) -> Option<usize> {
        self.arrays(constants).iter().position(|(each, _)| *each == array)
    }

    /// The program as a workload. The last phase is the one that is timed.
    pub(super) fn workload(self, setup: Setup, constants: &Constants) -> Workload {
        let arrays = self.arrays(constants);
        let map = |(array, size): &(Array, Bytes)| {
            let advice = if setup.advised == Some(*array) { Advice::Huge } else { Advice::None };
            Phase::Map(VmaShape { advice, ..VmaShape::fixed(*size) })
        };
        let mut phases: Vec<Phase> = arrays.iter().map(map).collect();
        let mut order: Vec<usize> = (0..arrays.len()).collect();
        if setup.first == First::Property {
            order.sort_by_key(|at| arrays.get(*at).is_none_or(|(a, _)| *a != Array::Property));
        }
        for (at, (array, size)) in order.into_iter().filter_map(|at| Some((at, arrays.get(at)?))) {
            if setup.files == Files::PageCache && array.is_loaded() {
                constants.get(&CACHED_FILES);
                phases.push(Phase::ReadFile(*size));
            }
            phases.push(fill(at, constants));
        }
        let streams = self.streams(setup.numbering, constants);
        let per_edge: f64 = streams.iter().map(|stream| stream.weight).sum();
        let Graph { edges, .. } = self.input.graph(constants);
        let timed = Access {
            streams,
            count: edges as f64 * self.kernel.passes(constants) * per_edge,
            cycles: constants.get(&CYCLES_PER_EDGE) / per_edge,
            exposed: EXPOSED,
            counting: Counting::Sampled,
        };
        let warm_up = Access { count: 1.0, ..timed.clone() };
        let warm_ups = constants.get(&WARM_UPS);
        phases.extend(std::iter::repeat_n(Phase::Access(warm_up), warm_ups));
        phases.push(Phase::Access(timed));
        Workload { name: self.name(), threads: constants.get(&THREADS), phases }
    }

    /// What an edge makes it access; weights are accesses for each edge.
    fn streams(self, numbering: Numbering, constants: &Constants) -> Vec<Stream> {
        constants.get(&ACCESSES);
        let all = match self.kernel {
            Kernel::Bfs => self.discovered(numbering, constants),
            Kernel::Sssp => {
                let mut all = self.discovered(numbering, constants);
                all.extend(self.weighted(constants));
                all
            }
            Kernel::Pr => self.in_order(numbering, constants),
        };
        let stream = |(array, pattern, weight)| {
            let part = Part::whole(self.index(array, constants)?);
            Some(Stream { part, pattern, target: Target::Any, weight })
        };
        all.into_iter().filter_map(stream).collect()
    }

    /// The properties of the ends of edges, of this size.
    fn property(self, numbering: Numbering, item: Bytes, constants: &Constants) -> Pattern {
        let order = match numbering {
            Numbering::Natural => self.input.natural_order(constants),
            Numbering::Grouped => VertexOrder::Grouped,
        };
        Pattern::Vertices(Vertices { graph: self.input.graph(constants), order, item })
    }

    /// The accesses that BFS and SSSP share; both programs come to vertices as they discover them.
    fn discovered(self, numbering: Numbering, constants: &Constants) -> Vec<Accessed> {
        constants.get(&DISCOVERED_ORDER);
        let (item, twice) = (constants.get(&ITEM), constants.get(&VERTEX_ACCESSES));
        let (each, degree) = self.visits(constants);
        let vertex = Pattern::Runs { accesses: degree + twice, step: Bytes::ZERO };
        let listed = constants.get(&WORKLIST_ACCESSES) * each;
        vec![
            (Array::Edge, Pattern::Runs { accesses: degree, step: item }, 1.0),
            (Array::Property, self.property(numbering, item, constants), 1.0),
            (Array::Vertex, vertex, 1.0 + twice as f64 * each),
            (Array::Worklists, onward(item), listed),
        ]
    }

    /// The accesses of SSSP that BFS does not have.
    fn weighted(self, constants: &Constants) -> [Accessed; 2] {
        let (_, accesses) = self.visits(constants);
        let run = |step| Pattern::Runs { accesses, step };
        let values = run(constants.get(&HALF_ITEM));
        [(Array::Values, values, 1.0), (Array::Property, run(Bytes::ZERO), 1.0)]
    }

    /// The accesses of PR, which goes through the vertices in their order.
    fn in_order(self, numbering: Numbering, constants: &Constants) -> Vec<Accessed> {
        constants.get(&PR_ORDER);
        let (item, half) = (constants.get(&ITEM), constants.get(&HALF_ITEM));
        let (each, _) = self.visits(constants);
        let twice = constants.get(&VERTEX_ACCESSES) as f64;
        vec![
            (Array::Edge, onward(item), 1.0),
            (Array::Property, self.property(numbering, half, constants), 1.0),
            (Array::Property, onward(Bytes::ZERO), 1.0),
            (Array::Vertex, onward(item), twice * each),
            (Array::Scores, onward(item), constants.get(&SCORE_ACCESSES) * each),
            (Array::Worklists, onward(item), constants.get(&PR_WORKLIST_ACCESSES) * each),
        ]
    }

    /// The vertices that it comes to for each edge, and the edges of one of them.
    fn visits(self, constants: &Constants) -> (f64, u64) {
        let graph = self.input.graph(constants);
        let visited =
            if self.kernel == Kernel::Pr { graph.vertices as f64 } else { graph.connected() };
        let edges = graph.edges as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a degree")]
        let degree = (edges / visited).round() as u64;
        (visited / edges, degree)
    }
}

/// An array, how it is accessed, and how often for each edge.
type Accessed = (Array, Pattern, f64);

/// Accesses that lie so far apart, one after the other, without an end.
const fn onward(step: Bytes) -> Pattern {
    Pattern::Runs { accesses: u64::MAX, step }
}

/// Fills an array from its start to its end.
pub(super) fn fill(vma: usize, constants: &Constants) -> Phase {
    Phase::Populate(Populate {
        part: Part::whole(vma),
        order: Order::Sequential,
        density: 1.0,
        step: Bytes::ZERO,
        cycles_per_page: constants.get(&FILL_CYCLES),
        threads: constants.get(&THREADS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_fill_the_footprints_of_the_paper() {
        let constants = Constants::default();
        for program in Program::all() {
            let arrays = program.arrays(&constants);
            let total: Bytes = arrays.iter().map(|(_, size)| *size).sum();
            assert_eq!(total, program.footprint(&constants), "{}", program.name());
            let share = |array| {
                let at = program.index(array, &constants).unwrap();
                arrays[at].1.share_of(total).get()
            };
            assert!(share(Array::Worklists) < 0.07, "{}", program.name());
            assert!(share(Array::Property) < 0.05, "{}", program.name());
        }
    }

    /// "2.92 %, on average, of the huge pages needed for the entire application" (section 4.5).
    #[test]
    fn the_property_array_of_bfs_and_sssp_has_the_papers_share() {
        let (programs, constants) = (Program::all(), Constants::default());
        let share = |program: &Program| {
            let at = program.index(Array::Property, &constants).unwrap();
            program.arrays(&constants)[at].1.share_of(program.footprint(&constants)).get()
        };
        let mean = programs[..8].iter().map(share).sum::<f64>() / 8.0;
        assert!((mean / 0.0292 - 1.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn files_are_read_before_the_arrays_that_are_loaded_from_them() {
        let program = Program { kernel: Kernel::Sssp, input: Input::Wikipedia };
        let of = |first, files| {
            let setup = Setup { first, advised: None, numbering: Numbering::Natural, files };
            let phases = program.workload(setup, &Constants::default()).phases;
            let name = |phase: &Phase| match phase {
                Phase::ReadFile(_) => Some('r'),
                Phase::Populate(_) => Some('p'),
                _ => None,
            };
            phases.iter().filter_map(name).collect::<String>()
        };
        assert_eq!(of(First::Graph, Files::Elsewhere), "ppppp");
        assert_eq!(of(First::Graph, Files::PageCache), "rprprppp");
        assert_eq!(of(First::Property, Files::PageCache), "prprprpp");
    }

    #[test]
    fn every_program_accesses_each_of_its_arrays() {
        let constants = Constants::default();
        for program in Program::all() {
            let streams = program.streams(Numbering::Natural, &constants);
            for at in 0..program.arrays(&constants).len() {
                assert!(streams.iter().any(|stream| stream.part.vma == at), "{}", program.name());
            }
        }
    }
}
