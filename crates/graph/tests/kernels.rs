//! The kernels against slow, obvious models and against petgraph, on random graphs and on shapes, on 1, 2 and 4 threads; and
//! their verifiers against wrong results.

mod common;

use common::{Listed, made};
use petgraph::graph::{DiGraph, NodeIndex};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;
use superpage_graph::build::{Direction, Edge};
use superpage_graph::kernel::{bfs, components, pagerank, sssp};
use superpage_graph::{Error, Graph, Vertex};

const NONE: u32 = u32::MAX;

/// Pools of 1, 2 and 4 threads.
static POOLS: LazyLock<Vec<rayon::ThreadPool>> = LazyLock::new(|| {
    let pool =
        |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    [1, 2, 4].map(pool).into()
});

/// What `work` finds on each of the pools.
fn on_all_pools<T: Send>(work: impl Fn() -> T + Sync) -> Vec<T> {
    POOLS.iter().map(|pool| pool.install(&work)).collect()
}

/// A graph in words.
#[derive(Clone, Debug)]
struct Described {
    vertices: u32,
    edges: Vec<Edge>,
    direction: Direction,
    is_weighted: bool,
}

impl Described {
    fn new(
        vertices: u32,
        direction: Direction,
        pairs: impl IntoIterator<Item = (u32, u32)>,
    ) -> Self {
        let weight =
            |(from, to): (u32, u32)| Edge { from, to, weight: 1 + (from * 7 + to * 3) % 50 };
        let edges = pairs.into_iter().map(weight).collect();
        Self { vertices, edges, direction, is_weighted: true }
    }

    fn graph(&self) -> Graph {
        let (edges, vertices) = (self.edges.clone(), u64::from(self.vertices));
        made(&Listed { edges, vertices, is_weighted: self.is_weighted }, self.direction)
    }
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Directed), Just(Direction::Undirected)]
}

/// Random graphs with all kinds of weights.
fn described() -> impl Strategy<Value = Described> {
    let weight = || prop_oneof![3 => 0..20_u32, 1 => 0..=i32::MAX as u32];
    let of_size = move |vertices| {
        let edge = (0..vertices, 0..vertices, weight());
        let edge = edge.prop_map(|(from, to, weight)| Edge { from, to, weight });
        (Just(vertices), vec(edge, 0..150), direction())
    };
    (1..60_u32).prop_flat_map(of_size).prop_map(|(vertices, edges, direction)| Described {
        vertices,
        edges,
        direction,
        is_weighted: true,
    })
}

fn path(vertices: u32) -> Vec<(u32, u32)> {
    (1..vertices).map(|vertex| (vertex - 1, vertex)).collect()
}

fn grid(side: u32) -> Vec<(u32, u32)> {
    let right = (0..side * side).filter(|at| at % side != side - 1).map(|at| (at, at + 1));
    let down = (0..side * (side - 1)).map(|at| (at, at + side));
    right.chain(down).collect()
}

/// Many edges between vertices that look random, and vertices without any.
fn scattered(vertices: u32, edges: u32) -> Vec<(u32, u32)> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state % u64::from(vertices)).expect("a vertex") / 2 * 2
    };
    (0..edges).map(|_| (next(), next())).collect()
}

/// A name, the number of vertices, and edges.
type Shape = (&'static str, u32, Vec<(u32, u32)>);

/// Graphs of known shapes, in both directions.
fn shapes() -> Vec<(&'static str, Described)> {
    let complete = (0..40).flat_map(|from| (0..40).map(move |to| (from, to)));
    let pairs: Vec<Shape> = vec![
        ("one vertex", 1, Vec::new()),
        ("isolated vertices", 300, Vec::new()),
        ("a path", 3000, path(3000)),
        ("a path backwards", 500, path(500).into_iter().map(|(from, to)| (to, from)).collect()),
        ("a cycle", 100, path(100).into_iter().chain([(99, 0)]).collect()),
        ("a star", 5000, (1..5000).map(|leaf| (0, leaf)).collect()),
        ("a star inwards", 5000, (0..4999).map(|leaf| (leaf, 4999)).collect()),
        ("a complete graph", 40, complete.collect()),
        ("two paths", 200, path(200).into_iter().filter(|(from, _)| *from != 99).collect()),
        ("a grid", 80 * 80, grid(80)),
        ("scattered edges", 50_000, scattered(50_000, 150_000)),
        ("many scattered edges", 20_000, scattered(20_000, 400_000)),
    ];
    let both = |(name, vertices, pairs): (&'static str, u32, Vec<(u32, u32)>)| {
        [Direction::Directed, Direction::Undirected]
            .map(|direction| (name, Described::new(vertices, direction, pairs.clone())))
    };
    pairs.into_iter().flat_map(both).collect()
}

/// The edges of a graph from each vertex to others.
fn edges_of(graph: &Graph) -> impl Iterator<Item = (Vertex, Vertex, u32)> {
    let vertices = Vertex::try_from(graph.vertices()).expect("a number of vertices");
    (0..vertices).flat_map(|from| {
        let outgoing = graph.outgoing();
        let each = outgoing.neighbors(from).iter().zip(outgoing.weights(from));
        each.map(move |(to, weight)| (from, *to, *weight))
    })
}

fn in_petgraph(graph: &Graph) -> DiGraph<(), u64, u32> {
    let mut other = DiGraph::default();
    (0..graph.vertices()).for_each(|_| {
        other.add_node(());
    });
    for (from, to, weight) in edges_of(graph) {
        other.add_edge(NodeIndex::from(from), NodeIndex::from(to), u64::from(weight));
    }
    other
}

/// The number of edges from the source to each vertex.
fn naive_depths(graph: &Graph, source: Vertex) -> Vec<u32> {
    let mut depths = vec![NONE; graph.vertices()];
    depths[source as usize] = 0;
    let mut queue = VecDeque::from([source]);
    while let Some(vertex) = queue.pop_front() {
        for neighbor in graph.outgoing().neighbors(vertex) {
            if depths[*neighbor as usize] == NONE {
                depths[*neighbor as usize] = depths[vertex as usize] + 1;
                queue.push_back(*neighbor);
            }
        }
    }
    depths
}

/// The number of steps from each vertex to the source, by way of parents.
fn depths_by_parents(source: Vertex, parents: &[Vertex]) -> Vec<u32> {
    let depth = |vertex: usize| {
        let (mut at, mut steps) = (vertex, 0);
        while at != source as usize {
            if parents[at] == NONE || steps as usize > parents.len() {
                return NONE;
            }
            (at, steps) = (parents[at] as usize, steps + 1);
        }
        steps
    };
    (0..parents.len()).map(depth).collect()
}

/// Runs a search on all pools and compares it with the model.
fn check_bfs(graph: &Graph, source: Vertex) -> std::result::Result<(), TestCaseError> {
    let expected = naive_depths(graph, source);
    let reached: Vec<_> = expected.iter().filter(|depth| **depth != NONE).collect();
    let deepest = reached.iter().copied().max().copied();
    let search = || {
        let mut parents = vec![7; graph.vertices()];
        let found = bfs::run(graph, source, &mut parents).expect("a search");
        (found, parents)
    };
    for (found, parents) in on_all_pools(search) {
        prop_assert_eq!((found.reached, Some(found.depth)), (reached.len() as u64, deepest));
        prop_assert!(found.top_down + found.bottom_up >= found.depth);
        prop_assert_eq!(bfs::verify(graph, source, &parents), Ok(()));
        if expected.len() < 5000 {
            prop_assert_eq!(&depths_by_parents(source, &parents), &expected);
        }
    }
    Ok(())
}

fn check_sssp(graph: &Graph, source: Vertex, delta: u32) -> std::result::Result<(), TestCaseError> {
    let other = in_petgraph(graph);
    let distances =
        petgraph::algo::dijkstra(&other, NodeIndex::from(source), None, |edge| *edge.weight());
    let expected = |vertex| {
        let distance = distances.get(&NodeIndex::from(vertex));
        distance.and_then(|distance| u32::try_from(*distance).ok()).unwrap_or(NONE)
    };
    let expected: Vec<u32> = (0..).take(graph.vertices()).map(expected).collect();
    let search = || {
        let mut distances = vec![7; graph.vertices()];
        let found = sssp::run(graph, source, delta, &mut distances).expect("a search");
        (found, distances)
    };
    for (found, distances) in on_all_pools(search) {
        prop_assert_eq!(&distances, &expected);
        let reached = expected.iter().filter(|distance| **distance != NONE).count() as u64;
        prop_assert_eq!(found.reached, reached);
        prop_assert!(found.rounds > 0);
        prop_assert_eq!(sssp::verify(graph, source, &distances), Ok(()));
    }
    Ok(())
}

/// The least vertex of each component, by passing the least along edges until nothing changes.
fn naive_components(graph: &Graph) -> Vec<Vertex> {
    let mut components: Vec<Vertex> = (0..).take(graph.vertices()).collect();
    loop {
        let mut changed = false;
        for (from, to, _) in edges_of(graph) {
            let least = components[from as usize].min(components[to as usize]);
            for vertex in [from, to] {
                changed |= components[vertex as usize] != least;
                components[vertex as usize] = least;
            }
        }
        if !changed {
            return components;
        }
    }
}

fn check_components(graph: &Graph) -> std::result::Result<(), TestCaseError> {
    let expected = naive_components(graph);
    let mut sizes = BTreeMap::new();
    expected.iter().for_each(|component| *sizes.entry(*component).or_insert(0_u64) += 1);
    let search = || {
        let mut found = vec![7; graph.vertices()];
        (components::run(graph, &mut found).expect("components"), found)
    };
    for (found, components) in on_all_pools(search) {
        prop_assert_eq!(&components, &expected);
        prop_assert_eq!(found.components, sizes.len() as u64);
        prop_assert_eq!(
            found.components,
            petgraph::algo::connected_components(&in_petgraph(graph)) as u64
        );
        prop_assert_eq!(Some(found.largest), sizes.values().max().copied());
        prop_assert_eq!(components::verify(graph, &components), Ok(()));
    }
    Ok(())
}

/// The scores, by iterations in which all vertices read old scores.
fn naive_scores(graph: &Graph) -> Vec<f64> {
    let vertices = graph.vertices();
    let edges: Vec<_> = edges_of(graph).collect();
    let mut scores = vec![1.0 / vertices as f64; vertices];
    for _ in 0..200 {
        let mut next = vec![0.15 / vertices as f64; vertices];
        for (from, to, _) in &edges {
            next[*to as usize] +=
                0.85 * scores[*from as usize] / graph.outgoing().degree(*from) as f64;
        }
        scores = next;
    }
    scores
}

fn distance(scores: &[f32], others: &[f64]) -> f64 {
    scores.iter().zip(others).map(|(score, other)| (f64::from(*score) - other).abs()).sum()
}

fn ranked(graph: &Graph, options: pagerank::Options) -> (pagerank::PageRank, Vec<f32>) {
    let mut scores = vec![7.0; graph.vertices()];
    let mut contributions = vec![f32::NAN; graph.vertices()];
    let found = pagerank::run(graph, options, &mut scores, &mut contributions).expect("scores");
    for ((score, own), vertex) in scores.iter().zip(&contributions).zip(0..) {
        let degree = graph.outgoing().degree(vertex);
        let expected = if degree == 0 { 0.0 } else { score / degree as f32 };
        assert!((own - expected).abs() <= expected * 1e-6, "vertex {vertex} contributes {own}");
    }
    (found, scores)
}

fn check_pagerank(graph: &Graph) -> std::result::Result<(), TestCaseError> {
    let exact = naive_scores(graph);
    let close = pagerank::Options { iterations: 200, tolerance: 1e-5 };
    for (found, scores) in on_all_pools(|| ranked(graph, close)) {
        prop_assert!(found.error < 1e-5 && found.iterations < 200, "{:?}", found);
        prop_assert!(distance(&scores, &exact) < 2e-4, "{}", distance(&scores, &exact));
        prop_assert_eq!(pagerank::verify(graph, 1e-5, &scores), Ok(()));
    }
    for (found, scores) in on_all_pools(|| ranked(graph, pagerank::Options::default())) {
        prop_assert!(found.iterations <= 20);
        prop_assert!(found.error < 1e-4 || found.iterations == 20);
        prop_assert_eq!(pagerank::verify(graph, found.error.max(1e-4), &scores), Ok(()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn searches_find_what_the_model_finds(described in described(), source: u32) {
        check_bfs(&described.graph(), source % described.vertices)?;
    }

    #[test]
    fn distances_are_those_of_petgraph(
        described in described(),
        source: u32,
        delta in prop_oneof![1..10_u32, 1..=u32::MAX],
    ) {
        check_sssp(&described.graph(), source % described.vertices, delta)?;
    }

    #[test]
    fn components_are_those_of_the_model_and_of_petgraph(described in described()) {
        check_components(&described.graph())?;
    }

    #[test]
    fn scores_are_those_of_the_model(described in described()) {
        check_pagerank(&described.graph())?;
    }

    #[test]
    fn a_wrong_parent_is_found(described in described(), source: u32, at: u32, parent: u32, near: bool) {
        let graph = described.graph();
        let source = source % described.vertices;
        let at = (at % described.vertices) as usize;
        let parent = if near { parent % (described.vertices + 2) } else { parent };
        let mut parents = vec![0; graph.vertices()];
        bfs::run(&graph, source, &mut parents).expect("a search");
        parents[at] = parent;
        let depths = naive_depths(&graph, source);
        let is_right = if at == source as usize || depths[at] == NONE {
            parent == if at == source as usize { source } else { NONE }
        } else {
            depths.get(parent as usize).is_some_and(|depth| *depth != NONE && depth + 1 == depths[at])
                && graph.incoming().neighbors(u32::try_from(at).expect("a vertex")).contains(&parent)
        };
        prop_assert_eq!(bfs::verify(&graph, source, &parents).is_ok(), is_right);
    }

    #[test]
    fn a_wrong_distance_is_found(described in described(), source: u32, at: u32, change in 1..=u32::MAX) {
        let graph = described.graph();
        let source = source % described.vertices;
        let mut distances = vec![0; graph.vertices()];
        sssp::run(&graph, source, 3, &mut distances).expect("a search");
        let at = (at % described.vertices) as usize;
        distances[at] = distances[at].wrapping_add(change);
        prop_assert!(sssp::verify(&graph, source, &distances).is_err());
    }

    #[test]
    fn a_wrong_component_is_found(described in described(), at: u32, change in 1..=u32::MAX, near: bool) {
        let graph = described.graph();
        let mut found = vec![0; graph.vertices()];
        components::run(&graph, &mut found).expect("components");
        let at = (at % described.vertices) as usize;
        let before = found[at];
        found[at] = before.wrapping_add(change);
        if near {
            found[at] %= described.vertices;
        }
        prop_assert_eq!(components::verify(&graph, &found).is_ok(), found[at] == before);
    }

    #[test]
    fn a_wrong_score_is_found(
        described in described(),
        at: u32,
        change in prop_oneof![
            1e-4..1.0_f32, -1.0..-1e-4_f32, Just(f32::NAN), Just(f32::INFINITY), Just(f32::MAX), Just(f32::MIN),
        ],
    ) {
        let graph = described.graph();
        let options = pagerank::Options { iterations: 200, tolerance: 1e-6 };
        let (found, mut scores) = ranked(&graph, options);
        prop_assert!(found.error < 1e-6);
        scores[(at % described.vertices) as usize] += change;
        prop_assert!(pagerank::verify(&graph, 1e-6, &scores).is_err());
    }

    #[test]
    fn verifiers_do_not_panic_on_rubbish(described in described(), rubbish: Vec<u32>, source: u32) {
        let graph = described.graph();
        let floats: Vec<f32> = rubbish.iter().map(|bits| f32::from_bits(*bits)).collect();
        for length in [rubbish.len(), graph.vertices()] {
            let mut rubbish = rubbish.clone();
            rubbish.resize(length, NONE - 1);
            let mut floats = floats.clone();
            floats.resize(length, f32::NAN);
            let _ = bfs::verify(&graph, source, &rubbish);
            let _ = bfs::verify(&graph, source % described.vertices, &rubbish);
            let _ = sssp::verify(&graph, source % described.vertices, &rubbish);
            let _ = components::verify(&graph, &rubbish);
            let _ = pagerank::verify(&graph, 1e-4, &floats);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn scores_are_near_those_of_petgraph(pairs in vec((0..300_u32, 0..300_u32), 0..400), direction in direction()) {
        // Petgraph spreads the score of vertices without edges out of them, so all have some here; and nobody jumps from a
        // vertex to its neighbors there, so these must be few of all vertices.
        let cycle = path(300).into_iter().chain([(299, 0)]);
        let graph = Described::new(300, direction, cycle.chain(pairs)).graph();
        let theirs = petgraph::algo::page_rank(&in_petgraph(&graph), 0.85, 60);
        let (_, scores) = ranked(&graph, pagerank::Options { iterations: 200, tolerance: 1e-6 });
        prop_assert!(distance(&scores, &theirs) < 5e-3, "{}", distance(&scores, &theirs));
    }
}

#[test]
fn shapes_are_searched_right() {
    for (name, described) in shapes() {
        let graph = described.graph();
        for source in [0, described.vertices / 2, described.vertices - 1] {
            check_bfs(&graph, source).unwrap_or_else(|why| panic!("{name} from {source}: {why}"));
        }
    }
}

#[test]
fn shapes_have_the_right_distances() {
    for (name, described) in shapes() {
        let graph = described.graph();
        for (source, delta) in
            [(0, 1), (described.vertices / 2, 20), (described.vertices - 1, NONE)]
        {
            check_sssp(&graph, source, delta)
                .unwrap_or_else(|why| panic!("{name} from {source}: {why}"));
        }
    }
}

#[test]
fn shapes_have_the_right_components() {
    for (name, described) in shapes() {
        check_components(&described.graph()).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn shapes_have_the_right_scores() {
    for (name, described) in shapes() {
        check_pagerank(&described.graph()).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn long_edges_need_no_bucket_each() {
    let weights = [i32::MAX as u32, 1, i32::MAX as u32 - 5, 3, 2, i32::MAX as u32];
    let edges =
        weights.iter().zip(0..).map(|(weight, from)| Edge { from, to: from + 1, weight: *weight });
    let edges = edges.chain([Edge { from: 0, to: 1, weight: 2_000_000_000 }]).collect();
    let described =
        Described { vertices: 7, edges, direction: Direction::Directed, is_weighted: true };
    check_sssp(&described.graph(), 0, 1).unwrap_or_else(|why| panic!("{why}"));
    let mut distances = vec![0; 7];
    sssp::run(&described.graph(), 0, 1, &mut distances).expect("a search");
    assert_eq!(distances[..5], [0, 2_000_000_000, 2_000_000_001, 4_147_483_643, 4_147_483_646]);
    assert_eq!(distances[5..], [4_147_483_648, NONE]);
}

#[test]
fn many_bottom_up_rounds_alternate_with_rounds_top_down() {
    // Complete graphs in a row, joined by long paths, so that frontiers grow and shrink again and again.
    let mut pairs = Vec::new();
    for begin in (0..6000).step_by(200) {
        let size = 60;
        pairs
            .extend((0..size).flat_map(|from| (0..from).map(move |to| (begin + to, begin + from))));
        pairs.extend((size..200).map(|at| (begin + at - 1, begin + at)));
        pairs.push((begin + 199, (begin + 200) % 6000));
    }
    for direction in [Direction::Directed, Direction::Undirected] {
        let graph = Described::new(6000, direction, pairs.clone()).graph();
        check_bfs(&graph, 0).unwrap_or_else(|why| panic!("{why}"));
        let mut parents = vec![0; 6000];
        let found = bfs::run(&graph, 0, &mut parents).expect("a search");
        assert!(found.top_down > 100 && found.bottom_up > 5, "{found:?}");
    }
}

#[test]
fn on_one_thread_scores_are_always_the_same() {
    let graph = Described::new(20_000, Direction::Directed, scattered(20_000, 100_000)).graph();
    let run = || ranked(&graph, pagerank::Options::default());
    assert_eq!(POOLS[0].install(run), POOLS[0].install(run));
}

#[test]
fn an_empty_graph_has_components_and_scores() {
    let graph = Described::new(0, Direction::Undirected, []).graph();
    assert_eq!(components::run(&graph, &mut []).expect("none"), components::Components::default());
    assert_eq!(components::verify(&graph, &[]), Ok(()));
    assert_eq!(
        ranked(&graph, pagerank::Options::default()),
        (pagerank::PageRank::default(), Vec::new())
    );
    assert_eq!(pagerank::verify(&graph, 1e-4, &[]), Ok(()));
    assert!(matches!(bfs::run(&graph, 0, &mut []), Err(Error::Usage(_))));
    assert!(matches!(sssp::run(&graph, 0, 1, &mut []), Err(Error::Usage(_))));
    assert!(bfs::verify(&graph, 0, &[]).is_err() && sssp::verify(&graph, 0, &[]).is_err());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let described = Described::new(3, Direction::Undirected, path(3));
    let graph = described.graph();
    let is_usage = |error: Option<Error>| matches!(error, Some(Error::Usage(_)));
    for length in [0, 2, 4] {
        let (mut wrong, mut floats) = (vec![0; length], vec![0.0; length]);
        let options = pagerank::Options::default();
        assert!(is_usage(bfs::run(&graph, 0, &mut wrong).err()));
        assert!(is_usage(sssp::run(&graph, 0, 1, &mut wrong).err()));
        assert!(is_usage(components::run(&graph, &mut wrong).err()));
        assert!(is_usage(pagerank::run(&graph, options, &mut floats, &mut [0.0; 3]).err()));
        assert!(is_usage(pagerank::run(&graph, options, &mut [0.0; 3], &mut floats).err()));
        assert!(
            bfs::verify(&graph, 0, &wrong).is_err() && sssp::verify(&graph, 0, &wrong).is_err()
        );
        assert!(
            components::verify(&graph, &wrong).is_err()
                && pagerank::verify(&graph, 1.0, &floats).is_err()
        );
    }
    let (mut right, mut floats) = ([0; 3], [[0.0; 3]; 2]);
    assert!(is_usage(bfs::run(&graph, 3, &mut right).err()));
    assert!(is_usage(sssp::run(&graph, NONE, 1, &mut right).err()));
    assert!(is_usage(sssp::run(&graph, 0, 0, &mut right).err()));
    let [scores, contributions] = &mut floats;
    for (iterations, tolerance) in [(0, 1e-4), (1, -1.0), (1, f64::NAN)] {
        let options = pagerank::Options { iterations, tolerance };
        assert!(is_usage(pagerank::run(&graph, options, scores, contributions).err()));
    }
    let plain = Described { is_weighted: false, ..described }.graph();
    assert!(matches!(sssp::run(&plain, 0, 1, &mut right), Err(Error::NoWeights { .. })));
    assert!(sssp::verify(&plain, 0, &right).is_err());
}
