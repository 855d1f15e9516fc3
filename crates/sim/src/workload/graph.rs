//! Graphs by the degrees of their vertices, and the drawing of vertices in proportion to them: what
//! a graph kernel does to its property array, which it accesses once for each edge, at the vertex
//! that the edge leads to.
//!
//! A graph is a list of classes of vertices with about the same degree, hottest first. No edge is
//! made: two accesses after each other have nothing to do with each other, so that neighbours of
//! one vertex are as far apart as any two.
//!
//! | degrees | classes | from |
//! |---|---|---|
//! | [`Degrees::Kronecker`] | by how many ones the vertex's number has before vertices are shuffled; what is drawn is then exact, but for edges made twice, which the generator drops | Graph500, with its initiator 0.57, 0.19, 0.19, 0.05 |
//! | [`Degrees::PowerLaw`] | a quarter of a power of two of all vertices each | the shifted power law (Pareto II, Lomax) whose mean is the graph's |

use super::draw::scatter;
use crate::random::Random;
use superpage_policy::grouping::{self, BINS};
use superpage_units::Bytes;

/// The share of edges whose end has a one in a given bit of its number, in a Kronecker graph: 0.19
/// and 0.05 of the initiator (Graph500).
const KRONECKER_ONE: f64 = 0.24;
/// Classes of a power law for each power of two of vertices. Chosen: degrees within a class differ
/// by less than a sixth.
const CLASSES_PER_OCTAVE: i32 = 4;
/// Entries that lead into the table of classes, for each of which few are to be compared. Chosen.
const GUIDES: usize = 1024;

/// How many neighbours the vertices have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Degrees {
    /// The degrees of a Kronecker graph with two to the power of `scale` vertices.
    Kronecker {
        /// The logarithm of how many vertices there are.
        scale: u32,
    },
    /// The density of degree `d` goes like `(s + d)` to the power of `-exponent`, with the `s` that
    /// gives the mean.
    PowerLaw {
        /// The exponent, above 2.
        exponent: f64,
        /// The most neighbours that one has, as a share of all vertices, above 0.
        most: f64,
    },
}

/// A graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Graph {
    /// Its vertices.
    pub vertices: u64,
    /// Its edges, each in one direction.
    pub edges: u64,
    /// How they spread.
    pub degrees: Degrees,
}

/// Vertices with about the same degree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// How many.
    pub vertices: u64,
    /// Their mean degree.
    pub degree: f64,
}

impl Class {
    /// The edges that lead to them.
    fn edges(self) -> f64 {
        self.vertices as f64 * self.degree
    }
}

impl Graph {
    /// The mean degree.
    #[must_use]
    pub fn mean_degree(&self) -> f64 {
        self.edges as f64 / self.vertices.max(1) as f64
    }

    /// Its vertices by degree, hottest first.
    #[must_use]
    pub fn classes(&self) -> Vec<Class> {
        match self.degrees {
            Degrees::Kronecker { scale } => kronecker(scale, self.edges as f64),
            Degrees::PowerLaw { exponent, most } => {
                let most = most * self.vertices as f64;
                power_law(self.vertices, self.mean_degree(), exponent, most)
            }
        }
    }

    /// The vertices with any neighbour, if each class's edges fall on its vertices at random: those
    /// that a traversal comes to.
    #[must_use]
    pub fn connected(&self) -> f64 {
        let some = |class: &Class| class.vertices as f64 * (1.0 - (-class.degree).exp());
        self.classes().iter().map(some).sum()
    }
}

/// One class for each number of ones; the vertex with none is the hottest.
fn kronecker(scale: u32, edges: f64) -> Vec<Class> {
    let mut vertices = 1;
    (0..=u64::from(scale))
        .map(|ones| {
            let zeroes = u64::from(scale) - ones;
            let share = KRONECKER_ONE.powf(ones as f64) * (1.0 - KRONECKER_ONE).powf(zeroes as f64);
            let class = Class { vertices, degree: edges * share };
            vertices = vertices * zeroes / (ones + 1);
            class
        })
        .collect()
}

/// Classes of a shifted power law without a degree above `most`, scaled so that the mean holds.
fn power_law(vertices: u64, mean: f64, exponent: f64, most: f64) -> Vec<Class> {
    let mut classes = Vec::new();
    let mut before = 0;
    let (mut step, mut covered) = (vertices.max(1).ilog2() as i32 * CLASSES_PER_OCTAVE, 0.0);
    while before < vertices {
        let share = 2_f64.powf(-f64::from(step) / f64::from(CLASSES_PER_OCTAVE)).min(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of it"
        )]
        let until = if step <= 0 { vertices } else { (vertices as f64 * share) as u64 };
        step -= 1;
        if until <= before {
            continue;
        }
        let coverage = coverage(until as f64 / vertices as f64, exponent);
        let count = until - before;
        let degree = mean * (coverage - covered) * vertices as f64 / count as f64;
        classes.push(Class { vertices: count, degree });
        (before, covered) = (until, coverage);
    }
    cap(&mut classes, mean * vertices as f64, most);
    classes
}

/// The share of edges that lead to this share of vertices, the hottest, by a shifted power law of
/// any mean.
fn coverage(share: f64, exponent: f64) -> f64 {
    let tail = (exponent - 1.0).max(1.001);
    tail * share.powf(1.0 - 1.0 / tail) - (tail - 1.0) * share
}

/// Lowers degrees to `most`, and raises the others so that there are as many edges as before.
fn cap(classes: &mut [Class], edges: f64, most: f64) {
    /// Raising the others can lift one above; it settles within a few rounds.
    const ROUNDS: u32 = 50;
    for _ in 0..ROUNDS {
        classes.iter_mut().for_each(|class| class.degree = class.degree.min(most));
        let now: f64 = classes.iter().map(|class| class.edges()).sum();
        classes.iter_mut().for_each(|class| class.degree *= edges / now);
    }
}

/// Where vertices lie in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VertexOrder {
    /// Hot ones anywhere.
    Scattered,
    /// By [`grouping`], and anywhere within their bin.
    Grouped,
}

/// Accesses to an array with an item for each vertex.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vertices {
    /// The graph.
    pub graph: Graph,
    /// Where they lie.
    pub order: VertexOrder,
    /// The size of an item.
    pub item: Bytes,
}

/// Vertices that a class shares with others of its bin.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The share of edges up to and with this class.
    until: f64,
    /// Vertices in hotter classes, and in this one.
    first: u64,
    vertices: u64,
    /// The part of the array that its vertices lie in.
    start: u64,
    length: u64,
}

/// Draws items of vertices, each as often as its vertex has neighbours.
#[derive(Clone, Debug)]
pub(super) struct VertexDraw {
    places: Vec<Place>,
    /// The first class that a share of the edges can be in, for each of [`GUIDES`] parts of 1.
    guides: Vec<usize>,
    item: u64,
}

impl VertexDraw {
    pub(super) fn new(vertices: Vertices) -> Self {
        let places = places(&vertices.graph, vertices.order);
        let guide = |at: usize| {
            let share = at as f64 / GUIDES as f64;
            places.partition_point(|place| place.until <= share).min(places.len() - 1)
        };
        let guides = (0..GUIDES).map(guide).collect();
        Self { places, guides, item: vertices.item.0 }
    }

    /// How far from the array's start the next item lies.
    pub(super) fn next(&mut self, random: &mut Random) -> Bytes {
        let share = random.share();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below GUIDES")]
        let from = self.guides[(share * GUIDES as f64) as usize];
        let last = self.places.len() - 1;
        let at = (from..last).find(|at| self.places[*at].until > share).unwrap_or(last);
        let place = self.places[at];
        let vertex = place.first + random.below(place.vertices);
        Bytes((place.start + scatter(vertex, place.length)) * self.item)
    }
}

fn places(graph: &Graph, order: VertexOrder) -> Vec<Place> {
    let (classes, mean) = (graph.classes(), graph.mean_degree());
    let edges: f64 = classes.iter().map(|class| class.edges()).sum();
    let mut sizes = [0; BINS];
    for class in &classes {
        sizes[grouping::bin(class.degree, mean)] += class.vertices;
    }
    let starts = grouping::starts(sizes);
    let (mut covered, mut first) = (0.0, 0);
    let place = |class: &Class| {
        covered += class.edges();
        let (start, length) = match order {
            VertexOrder::Scattered => (0, graph.vertices),
            VertexOrder::Grouped => {
                let bin = grouping::bin(class.degree, mean);
                (starts[bin], sizes[bin])
            }
        };
        let vertices = class.vertices;
        let place = Place { until: covered / edges, first, vertices, start, length };
        first += vertices;
        place
    };
    classes.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KRONECKER: Graph =
        Graph { vertices: 1 << 12, edges: 31 << 12, degrees: Degrees::Kronecker { scale: 12 } };
    const POWER_LAW: Graph = Graph {
        vertices: 100_000,
        edges: 3_600_000,
        degrees: Degrees::PowerLaw { exponent: 2.2, most: 1.0 / 16.0 },
    };

    /// How often each of `count` draws goes to each item.
    fn drawn(graph: Graph, order: VertexOrder, count: u64) -> Vec<u64> {
        let mut draw = VertexDraw::new(Vertices { graph, order, item: Bytes(8) });
        let mut random = Random::new(5);
        let mut seen = vec![0; usize::try_from(graph.vertices).unwrap()];
        for _ in 0..count {
            let offset = draw.next(&mut random).0;
            assert_eq!(offset % 8, 0);
            seen[usize::try_from(offset / 8).unwrap()] += 1;
        }
        seen
    }

    #[test]
    fn classes_have_all_vertices_and_all_edges_hottest_first() {
        for graph in [KRONECKER, POWER_LAW] {
            let classes = graph.classes();
            let vertices: u64 = classes.iter().map(|class| class.vertices).sum();
            assert_eq!(vertices, graph.vertices);
            let edges: f64 = classes.iter().map(|class| class.edges()).sum();
            assert!((edges / graph.edges as f64 - 1.0).abs() < 1e-6, "{edges}");
            assert!(classes.is_sorted_by(|a, b| a.degree >= b.degree));
            assert!(graph.connected() <= graph.vertices as f64);
        }
    }

    /// A Kronecker graph's edges end where its generator's bits say: drawn bit by bit, as many fall
    /// to vertices with each number of ones.
    #[test]
    fn a_kronecker_graph_is_drawn_as_its_generator_draws() {
        let mut random = Random::new(9);
        let mut by_ones = [0_u64; 13];
        let draws = 400_000;
        for _ in 0..draws {
            let ones = (0..12).filter(|_| random.share() < 0.19 + 0.05).count();
            by_ones[ones] += 1;
        }
        for (class, drawn) in KRONECKER.classes().iter().zip(by_ones) {
            let expected = class.edges() / KRONECKER.edges as f64 * f64::from(draws);
            assert!((drawn as f64 - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{class:?}");
        }
    }

    /// The model counts vertices above a degree: its formula is the shifted power law's own.
    #[test]
    fn a_power_law_has_the_tail_that_it_says() {
        let far = Graph { degrees: Degrees::PowerLaw { exponent: 2.2, most: 1.0 }, ..POWER_LAW };
        let shift = 0.2 * far.mean_degree();
        for degree in [10.0, 36.0, 100.0, 1000.0] {
            let classes = far.classes();
            let above = classes.iter().filter(|class| class.degree > degree);
            let share = above.map(|class| class.vertices).sum::<u64>() as f64 / 100_000.0;
            let expected = (1.0_f64 + degree / shift).powf(-1.2);
            assert!((share / expected).log2().abs() < 0.4, "{degree}: {share} for {expected}");
        }
        let most = POWER_LAW.classes()[0].degree;
        assert!((most / (100_000.0 / 16.0) - 1.0).abs() < 0.01, "{most}");
    }

    #[test]
    fn what_is_drawn_has_the_degrees_of_the_classes() {
        for graph in [KRONECKER, POWER_LAW] {
            let count = 2_000_000;
            let mut seen = drawn(graph, VertexOrder::Scattered, count);
            seen.sort_unstable_by(|a, b| b.cmp(a));
            // Two vertices may share an item, so the hottest hundredth can only hold more.
            let hot = usize::try_from(graph.vertices / 100).unwrap();
            let held = seen[..hot].iter().sum::<u64>() as f64 / count as f64;
            let mut left = hot as f64;
            let take = |class: &Class| {
                let vertices = left.min(class.vertices as f64);
                left -= vertices;
                vertices * class.degree
            };
            let expected = graph.classes().iter().map(take).sum::<f64>() / graph.edges as f64;
            assert!(held > expected - 0.01 && held < expected + 0.08, "{held} for {expected}");
        }
    }

    #[test]
    fn grouped_vertices_lie_in_the_bins_of_degree_based_grouping() {
        for graph in [KRONECKER, POWER_LAW] {
            let count = 1_000_000;
            let seen = drawn(graph, VertexOrder::Grouped, count);
            let (mean, mut sizes, mut edges) = (graph.mean_degree(), [0; BINS], [0.0; BINS]);
            for class in graph.classes() {
                let bin = grouping::bin(class.degree, mean);
                sizes[bin] += class.vertices;
                edges[bin] += class.edges() / graph.edges as f64;
            }
            for (bin, start) in grouping::starts(sizes).into_iter().enumerate() {
                let range =
                    usize::try_from(start).unwrap()..usize::try_from(start + sizes[bin]).unwrap();
                let share = seen[range].iter().sum::<u64>() as f64 / count as f64;
                assert!((share - edges[bin]).abs() < 0.005, "bin {bin}: {share}, {}", edges[bin]);
            }
        }
    }

    #[test]
    fn scattered_vertices_are_hot_anywhere() {
        let seen = drawn(POWER_LAW, VertexOrder::Scattered, 1_000_000);
        let grouped = drawn(POWER_LAW, VertexOrder::Grouped, 1_000_000);
        let first = |seen: &[u64]| seen[..20_000].iter().sum::<u64>() as f64 / 1e6;
        assert!(first(&seen) < 0.4, "{}", first(&seen));
        assert!(first(&grouped) > 0.8, "{}", first(&grouped));
    }
}
