//! The programs and graphs of the graph paper's Table 2, as data: which arrays they have and what
//! an edge makes them access.
//!
//! Read off the published programs (github.com/amanocha/graphs_thp_management, launch/*/{bfs,sssp,
//! pr}.h; one thread, compiled with -O3), for each edge and each vertex that is come to:
//!
//! | program | for each edge | for each vertex |
//! |---|---|---|
//! | BFS | edge, property of its end, the end of the vertex's edges again | vertex twice, worklists and their counts six times |
//! | SSSP | the same, the edge's value, the vertex's own property again | the same |
//! | PR | edge, property of its end read and written | vertex twice, scores six times, worklists twice |
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
//! The power law has an exponent of 2.2, between what was reported of the web and of Twitter, and
//! nobody has more neighbours than a sixteenth of all vertices; both are assumed.

use superpage_sim::workload::graph::{Degrees, Graph, VertexOrder, Vertices};
use superpage_sim::workload::{
    Access, Counting, Order, Part, Pattern, Phase, Populate, Stream, Target, VmaShape, Workload,
};
use superpage_units::{Advice, Bytes};

/// Cycles for each edge without those of translation. Fitted to the mean of Figure 1 without
/// pressure, and to nothing else.
pub(super) const CYCLES_PER_EDGE: f64 = 64.0;
/// Cycles for each base page that is filled while a graph is loaded. Assumed; loading is not in the
/// times.
const FILL_CYCLES: f64 = 2_000.0;
/// How often a little is run before the part that is timed. Page-table lines of edges are touched so
/// rarely that filling the last-level cache with them takes some millions of accesses, many times
/// what a run warms up with by itself. With thirty, speedups differ by 3 % at most and their mean
/// by less than 1 %.
const WARM_UPS: usize = 12;
/// An item of most arrays, and of values and PR's properties.
pub(super) const ITEM: Bytes = Bytes(8);
const HALF_ITEM: Bytes = Bytes(4);

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
    pub(super) const fn graph(self) -> Graph {
        let degrees = Degrees::PowerLaw { exponent: 2.2, most: 1.0 / 16.0 };
        let (vertices, edges, degrees) = match self {
            Self::Kronecker => (1 << 25, 1_050_000_000, Degrees::Kronecker { scale: 25 }),
            Self::Twitter => (53_000_000, 1_940_000_000, degrees),
            Self::Sd1Arc => (95_000_000, 1_960_000_000, degrees),
            Self::Wikipedia => (12_000_000, 378_000_000, degrees),
        };
        Graph { vertices, edges, degrees }
    }

    pub(super) const fn natural_order(self) -> VertexOrder {
        match self {
            Self::Kronecker | Self::Sd1Arc => VertexOrder::Scattered,
            Self::Twitter | Self::Wikipedia => VertexOrder::Grouped,
        }
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

    /// How often each edge is come to. Assumed; it says how long khugepaged has, and nothing else.
    const fn passes(self) -> f64 {
        match self {
            Self::Bfs => 1.0,
            Self::Sssp => 3.0,
            Self::Pr => 10.0,
        }
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

    /// Its memory, as measured by the paper's authors (run_frag.sh, in MB; rounded in Table 2).
    pub(super) const fn footprint(self) -> Bytes {
        let [kronecker, twitter, sd1_arc, wikipedia] = match self.kernel {
            Kernel::Bfs => [8634, 16123, 16611, 3121],
            Kernel::Sssp => [12800, 24374, 25386, 4736],
            Kernel::Pr => [8952, 16555, 17589, 3252],
        };
        Bytes::from_mib(match self.input {
            Input::Kronecker => kronecker,
            Input::Twitter => twitter,
            Input::Sd1Arc => sd1_arc,
            Input::Wikipedia => wikipedia,
        })
    }

    /// Its arrays, in the order in which they are mapped.
    pub(super) fn arrays(self) -> Vec<(Array, Bytes)> {
        let Graph { vertices, edges, .. } = self.input.graph();
        let mut arrays = vec![(Array::Vertex, ITEM * vertices), (Array::Edge, ITEM * edges)];
        match self.kernel {
            Kernel::Bfs => arrays.push((Array::Property, ITEM * vertices)),
            Kernel::Sssp => {
                arrays.push((Array::Values, HALF_ITEM * edges));
                arrays.push((Array::Property, ITEM * vertices));
            }
            Kernel::Pr => {
                arrays.push((Array::Property, HALF_ITEM * vertices));
                arrays.push((Array::Scores, ITEM * vertices));
            }
        }
        let taken: Bytes = arrays.iter().map(|(_, size)| *size).sum();
        arrays.push((Array::Worklists, self.footprint().saturating_sub(taken)));
        arrays
    }

    /// The place of an array among the arrays.
    pub(super) fn index(self, array: Array) -> Option<usize> {
        self.arrays().iter().position(|(each, _)| *each == array)
    }

    /// It as a workload. The last phase is the one that is timed.
    pub(super) fn workload(self, setup: Setup) -> Workload {
        let arrays = self.arrays();
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
                phases.push(Phase::ReadFile(*size));
            }
            phases.push(fill(at));
        }
        let streams = self.streams(setup.numbering);
        let per_edge: f64 = streams.iter().map(|stream| stream.weight).sum();
        let timed = Access {
            streams,
            count: self.input.graph().edges as f64 * self.kernel.passes() * per_edge,
            cycles: CYCLES_PER_EDGE / per_edge,
            exposed: 1.0,
            counting: Counting::Sampled,
        };
        let warm_up = Access { count: 1.0, ..timed.clone() };
        phases.extend(std::iter::repeat_n(Phase::Access(warm_up), WARM_UPS));
        phases.push(Phase::Access(timed));
        Workload { name: self.name(), threads: 1, phases }
    }

    /// What an edge makes it access; weights are accesses for each edge.
    fn streams(self, numbering: Numbering) -> Vec<Stream> {
        let graph = self.input.graph();
        let order = match numbering {
            Numbering::Natural => self.input.natural_order(),
            Numbering::Grouped => VertexOrder::Grouped,
        };
        let property = |item| Pattern::Vertices(Vertices { graph, order, item });
        let onward = |step| Pattern::Runs { accesses: u64::MAX, step };
        let here = onward(Bytes::ZERO);
        let visited =
            if self.kernel == Kernel::Pr { graph.vertices as f64 } else { graph.connected() };
        let edges = graph.edges as f64;
        let each = visited / edges;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a degree")]
        let degree = (edges / visited).round() as u64;
        let run = |step| Pattern::Runs { accesses: degree, step };
        let vertex = Pattern::Runs { accesses: degree + 2, step: Bytes::ZERO };
        let discovered = [
            (Array::Edge, run(ITEM), 1.0),
            (Array::Property, property(ITEM), 1.0),
            (Array::Vertex, vertex, 1.0 + 2.0 * each),
            (Array::Worklists, onward(ITEM), 6.0 * each),
        ];
        let weighted =
            [(Array::Values, run(HALF_ITEM), 1.0), (Array::Property, run(Bytes::ZERO), 1.0)];
        let in_order = [
            (Array::Edge, onward(ITEM), 1.0),
            (Array::Property, property(HALF_ITEM), 1.0),
            (Array::Property, here, 1.0),
            (Array::Vertex, onward(ITEM), 2.0 * each),
            (Array::Scores, onward(ITEM), 6.0 * each),
            (Array::Worklists, onward(ITEM), 2.0 * each),
        ];
        let all: Vec<(Array, Pattern, f64)> = match self.kernel {
            Kernel::Bfs => discovered.to_vec(),
            Kernel::Sssp => discovered.into_iter().chain(weighted).collect(),
            Kernel::Pr => in_order.to_vec(),
        };
        let stream = |(array, pattern, weight)| {
            let part = Part::whole(self.index(array)?);
            Some(Stream { part, pattern, target: Target::Any, weight })
        };
        all.into_iter().filter_map(stream).collect()
    }
}

/// Fills an array from its start to its end.
pub(super) fn fill(vma: usize) -> Phase {
    Phase::Populate(Populate {
        part: Part::whole(vma),
        order: Order::Sequential,
        density: 1.0,
        step: Bytes::ZERO,
        cycles_per_page: FILL_CYCLES,
        threads: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_fill_the_footprints_of_the_paper() {
        for program in Program::all() {
            let arrays = program.arrays();
            let total: Bytes = arrays.iter().map(|(_, size)| *size).sum();
            assert_eq!(total, program.footprint(), "{}", program.name());
            let share = |array| {
                let at = program.index(array).unwrap();
                arrays[at].1.share_of(total).get()
            };
            assert!(share(Array::Worklists) < 0.07, "{}", program.name());
            assert!(share(Array::Property) < 0.05, "{}", program.name());
        }
    }

    /// "2.92 %, on average, of the huge pages needed for the entire application" (section 4.5).
    #[test]
    fn the_property_array_of_bfs_and_sssp_has_the_papers_share() {
        let programs = Program::all();
        let share = |program: &Program| {
            let at = program.index(Array::Property).unwrap();
            program.arrays()[at].1.share_of(program.footprint()).get()
        };
        let mean = programs[..8].iter().map(share).sum::<f64>() / 8.0;
        assert!((mean / 0.0292 - 1.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn files_are_read_before_the_arrays_that_are_loaded_from_them() {
        let program = Program { kernel: Kernel::Sssp, input: Input::Wikipedia };
        let of = |first, files| {
            let setup = Setup { first, advised: None, numbering: Numbering::Natural, files };
            let phases = program.workload(setup).phases;
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
        for program in Program::all() {
            let streams = program.streams(Numbering::Natural);
            for at in 0..program.arrays().len() {
                assert!(streams.iter().any(|stream| stream.part.vma == at), "{}", program.name());
            }
        }
    }
}
