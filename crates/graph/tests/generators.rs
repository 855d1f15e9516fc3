//! The generators make the graphs that they say, the same on any number of threads, and other numbers of vertices
//! change nothing but numbers.

mod common;

use common::{Listed, made};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use superpage_graph::build::{self, Direction, Edge};
use superpage_graph::generate::{BlockModel, Generator, Kronecker, Uniform, Weights};
use superpage_graph::order::{self, Order};
use superpage_graph::{Adjacency, Error, Graph, GraphPages, Progress, Vertex, Weight};
use superpage_policy::grouping;
use superpage_units::Share;

fn renumbered(graph: &Graph, numbers: &[Vertex]) -> Graph {
    order::renumber(graph, numbers, GraphPages::default(), &Progress::default()).expect("a graph")
}

fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads").install(work)
}

/// The arrays of one direction.
type Arrays = (Vec<u64>, Vec<Vertex>, Option<Vec<Weight>>);

fn arrays(adjacency: &Adjacency) -> Arrays {
    let weights = adjacency.all_weights().map(<[_]>::to_vec);
    (adjacency.offsets().to_vec(), adjacency.all_neighbors().to_vec(), weights)
}

/// The arrays of both directions.
fn all_arrays(graph: &Graph) -> [Arrays; 2] {
    [arrays(graph.outgoing()), arrays(graph.incoming())]
}

fn ids(graph: &Graph) -> std::ops::Range<Vertex> {
    0..Vertex::try_from(graph.vertices()).expect("a small graph")
}

/// The edges of one direction with their weights, or 0.
fn edge_set(adjacency: &Adjacency) -> BTreeSet<(Vertex, Vertex, Weight)> {
    let vertices = Vertex::try_from(adjacency.vertices()).expect("a small graph");
    let of = |vertex| {
        let weight = move |at| adjacency.weights(vertex).get(at).copied().unwrap_or_default();
        let neighbors = adjacency.neighbors(vertex).iter().enumerate();
        neighbors.map(move |(at, neighbor)| (vertex, *neighbor, weight(at)))
    };
    (0..vertices).flat_map(of).collect()
}

/// What orders a vertex.
fn degree(graph: &Graph, vertex: Vertex) -> u64 {
    let incoming = if graph.is_directed() { graph.incoming().degree(vertex) } else { 0 };
    graph.outgoing().degree(vertex) + incoming
}

fn is_permutation(numbers: &[Vertex]) -> bool {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.iter().enumerate().all(|(at, number)| *number as usize == at)
}

/// Each generator at a scale.
fn generators(scale: u32, seed: u64, weights: Weights) -> [Generator; 4] {
    let model = BlockModel { seed, weights, ..BlockModel::new(scale) };
    [
        Generator::Kronecker(Kronecker { seed, weights, ..Kronecker::new(scale) }),
        Generator::Uniform(Uniform { seed, weights, ..Uniform::new(scale) }),
        Generator::BlockModel(model),
        Generator::BlockModel(BlockModel { exponent: 1.9, ..model }),
    ]
}

#[test]
fn the_same_seed_gives_the_same_graph_on_any_number_of_threads() {
    for generator in generators(11, 5, Weights::Uniform) {
        for direction in [Direction::Directed, Direction::Undirected] {
            let make =
                |threads| on_threads(threads, || all_arrays(&made(generator.source(), direction)));
            let one = make(1);
            assert!(one == make(2) && one == make(4), "{generator}");
            assert_eq!(one[0].0.len(), 2049);
        }
    }
}

#[test]
fn another_seed_gives_another_graph() {
    for (one, other) in
        generators(9, 5, Weights::None).into_iter().zip(generators(9, 6, Weights::None))
    {
        let [one, other] = [one, other]
            .map(|generator| edge_set(made(generator.source(), Direction::Directed).outgoing()));
        // Hot vertices have edges between them in any of these graphs.
        let common = one.intersection(&other).count();
        assert!(common < one.len() / 2, "{common} of {} edges are common", one.len());
    }
}

#[test]
fn weights_change_no_edge_and_are_the_same_both_ways() {
    let plain = generators(10, 5, Weights::None);
    for (plain, weighted) in plain.into_iter().zip(generators(10, 5, Weights::Uniform)) {
        let plain = made(plain.source(), Direction::Undirected);
        let weighted = made(weighted.source(), Direction::Undirected);
        assert!(!plain.is_weighted() && weighted.is_weighted());
        assert_eq!(plain.outgoing().all_neighbors(), weighted.outgoing().all_neighbors());
        let weights = weighted.outgoing().all_weights().expect("weights");
        assert_eq!((weights.iter().min(), weights.iter().max()), (Some(&1), Some(&255)));
        let edges = edge_set(weighted.outgoing());
        assert!(edges.iter().all(|(from, to, weight)| edges.contains(&(*to, *from, *weight))));
    }
}

#[test]
fn directed_and_undirected_graphs_have_the_same_edges() {
    for generator in generators(9, 5, Weights::None) {
        let directed = edge_set(made(generator.source(), Direction::Directed).outgoing());
        let both_ways: BTreeSet<_> =
            directed.iter().flat_map(|(u, v, w)| [(*u, *v, *w), (*v, *u, *w)]).collect();
        assert_eq!(edge_set(made(generator.source(), Direction::Undirected).outgoing()), both_ways);
    }
}

#[test]
fn kronecker_graphs_are_skewed_and_uniform_ones_are_not() {
    let fifth = Share::percent(20);
    let kronecker = made(&Kronecker::new(14), Direction::Undirected);
    let found = order::hottest_share(&kronecker, fifth);
    assert!(found.hottest > Share::percent(75), "{found:?}");
    // The hottest lie anywhere, until they are grouped.
    assert!(found.first > Share::percent(12) && found.first < Share::percent(28), "{found:?}");
    let grouped = renumbered(&kronecker, &order::numbers(&kronecker, Order::DegreeBased));
    let after = order::hottest_share(&grouped, fifth);
    assert_eq!(after.hottest, found.hottest);
    assert!(after.first.get() > 0.9 * after.hottest.get(), "{after:?}");
    let uniform = order::hottest_share(&made(&Uniform::new(14), Direction::Undirected), fifth);
    assert!(
        uniform.hottest < Share::percent(28) && uniform.first < Share::percent(21),
        "{uniform:?}"
    );
}

#[test]
fn uniform_graphs_have_the_degrees_that_chance_gives() {
    let graph = made(&Uniform::new(14), Direction::Undirected);
    let degrees: Vec<_> =
        ids(&graph).map(|vertex| graph.outgoing().degree(vertex) as f64).collect();
    let mean = degrees.iter().sum::<f64>() / degrees.len() as f64;
    let variance =
        degrees.iter().map(|degree| (degree - mean).powi(2)).sum::<f64>() / degrees.len() as f64;
    // A binomial distribution of 32 ends for each vertex.
    assert!((mean - 32.0).abs() < 0.2 && (variance / mean - 1.0).abs() < 0.1, "{mean} {variance}");
}

#[test]
fn block_models_have_communities() {
    for (within, communities) in [(0.8, 16), (0.5, 32)] {
        let model = BlockModel { within, communities, degree: 8, ..BlockModel::new(15) };
        let graph = made(&model, Direction::Undirected);
        let borders = model.borders();
        let community =
            |vertex: Vertex| borders.partition_point(|border| *border <= u64::from(vertex));
        let edges = edge_set(graph.outgoing());
        let inside =
            edges.iter().filter(|(from, to, _)| community(*from) == community(*to)).count();
        let found = inside as f64 / edges.len() as f64;
        let expected = within + (1.0 - within) / f64::from(communities);
        assert!((found - expected).abs() < 0.05, "{found} for {expected}");
    }
}

#[test]
fn block_models_have_degrees_by_a_power_law() {
    let model = BlockModel { communities: 8, ..BlockModel::new(16) };
    let graph = made(&model, Direction::Undirected);
    let share_from = |least| {
        ids(&graph).filter(|vertex| graph.outgoing().degree(*vertex) >= least).count() as f64
    };
    // What has a degree of a power of two more is less by the exponent less one: 2^-1.2 for each doubling.
    for least in [16, 32, 64] {
        let found = (share_from(least) / share_from(2 * least)).log2();
        assert!((found - 1.2).abs() < 0.15, "from {least} on: {found}");
    }
    let found = order::hottest_share(&graph, Share::percent(20));
    assert!(found.hottest > Share::percent(55), "{found:?}");
    // Vertices lie in no order of degrees.
    assert!(found.first > Share::percent(15) && found.first < Share::percent(25), "{found:?}");
}

#[test]
fn nonsense_is_refused_before_anything_is_made() {
    let refused = |generator: Generator| {
        let direction = Direction::Undirected;
        let found = build::graph(
            generator.source(),
            direction,
            GraphPages::default(),
            &Progress::default(),
        );
        let Err(Error::Usage(what)) = found else { panic!("{generator}: {found:?}") };
        let Err(Error::Usage(same)) = generator.check() else {
            panic!("{generator} passes the check")
        };
        assert_eq!(what, same);
    };
    for scale in [0, 32, 33, 63, 64, u32::MAX] {
        generators(scale, 1, Weights::None).into_iter().for_each(refused);
    }
    refused(Generator::Kronecker(Kronecker { degree: 0, ..Kronecker::new(5) }));
    refused(Generator::Uniform(Uniform { degree: 0, ..Uniform::new(5) }));
    refused(Generator::BlockModel(BlockModel { degree: 0, ..BlockModel::new(5) }));
    refused(Generator::BlockModel(BlockModel { within: 1.5, ..BlockModel::new(5) }));
    refused(Generator::BlockModel(BlockModel { exponent: 1.0, ..BlockModel::new(5) }));
    refused(Generator::BlockModel(BlockModel { communities: 33, ..BlockModel::new(5) }));
}

#[test]
fn the_smallest_graphs_can_be_made() {
    for scale in 1..4 {
        for generator in generators(scale, 1, Weights::Uniform) {
            let graph = made(generator.source(), Direction::Undirected);
            assert_eq!(graph.vertices() as u64, generator.vertices());
            let communities = 1 << scale;
            let model = BlockModel { communities, within: 1.0, ..BlockModel::new(scale) };
            assert_eq!(
                made(&model, Direction::Directed).edges(),
                0,
                "each vertex is a community of its own"
            );
        }
    }
}

fn edge() -> impl Strategy<Value = Edge> {
    // The first vertices have more edges.
    let end = || prop_oneof![0..40_u32, 0..6_u32, Just(1)];
    (end(), end(), 0..5_u32).prop_map(|(from, to, weight)| Edge { from, to, weight })
}

fn graph() -> impl Strategy<Value = Graph> {
    (proptest::collection::vec(edge(), 0..400), any::<bool>(), any::<bool>()).prop_map(
        |(edges, is_weighted, is_directed)| {
            let direction = if is_directed { Direction::Directed } else { Direction::Undirected };
            made(&Listed { edges, vertices: 40, is_weighted }, direction)
        },
    )
}

fn any_order() -> impl Strategy<Value = Order> {
    let random = any::<u64>().prop_map(Order::Random);
    prop_oneof![Just(Order::AsIs), Just(Order::DegreeBased), Just(Order::Degree), random]
}

/// The order that is asked, spelled out and slow: vertices sorted by what the order goes by.
fn sorted(graph: &Graph, order: Order) -> Vec<Vertex> {
    let mut vertices: Vec<_> = ids(graph).collect();
    let sum: u64 = ids(graph).map(|vertex| degree(graph, vertex)).sum();
    let mean = sum as f64 / vertices.len() as f64;
    match order {
        Order::AsIs | Order::Random(_) => {}
        Order::DegreeBased => {
            vertices.sort_by_key(|vertex| grouping::bin(degree(graph, *vertex) as f64, mean))
        }
        Order::Degree => vertices.sort_by_key(|vertex| Reverse(degree(graph, *vertex))),
    }
    vertices
}

fn follows(graph: &Graph, numbers: &[Vertex], order: Order) -> bool {
    let sorted = sorted(graph, order);
    sorted.iter().enumerate().all(|(place, vertex)| numbers[*vertex as usize] as usize == place)
}

proptest! {
    #[test]
    fn orders_are_permutations_by_what_they_say(graph in graph(), order in any_order()) {
        let numbers = order::numbers(&graph, order);
        prop_assert_eq!(numbers.len(), graph.vertices());
        prop_assert!(is_permutation(&numbers));
        prop_assert!(matches!(order, Order::Random(_)) || follows(&graph, &numbers, order));
    }

    #[test]
    fn other_numbers_make_the_same_graph(graph in graph(), order in any_order()) {
        let numbers = order::numbers(&graph, order);
        let after = renumbered(&graph, &numbers);
        prop_assert_eq!((after.is_directed(), after.is_weighted()), (graph.is_directed(), graph.is_weighted()));
        let mut old = vec![0; numbers.len()];
        for vertex in ids(&graph) {
            old[numbers[vertex as usize] as usize] = vertex;
        }
        for (before, after) in [(graph.outgoing(), after.outgoing()), (graph.incoming(), after.incoming())] {
            let back = |(from, to, weight): (Vertex, Vertex, Weight)| (old[from as usize], old[to as usize], weight);
            prop_assert_eq!(before.edges(), after.edges());
            prop_assert_eq!(edge_set(before), edge_set(after).into_iter().map(back).collect());
            prop_assert!((0..40).all(|vertex| after.neighbors(vertex).is_sorted()));
        }
        // And back again.
        prop_assert_eq!(all_arrays(&renumbered(&after, &old)), all_arrays(&graph));
    }

    #[test]
    fn the_hottest_part_is_the_slow_rules(graph in graph(), percent in 0..=100_u8) {
        let found = order::hottest_share(&graph, Share::percent(percent));
        let degrees: Vec<_> = ids(&graph).map(|vertex| degree(&graph, vertex)).collect();
        let mut hottest = degrees.clone();
        hottest.sort_unstable_by_key(|degree| Reverse(*degree));
        let count = (0..=40).find(|count| f64::from(*count) >= 40.0 * f64::from(percent) / 100.0).expect("a count");
        let of_all = |degrees: &[u64]| {
            let part: u64 = degrees.iter().take(count as usize).sum();
            part as f64 / degrees.iter().sum::<u64>().max(1) as f64
        };
        prop_assert!((found.first.get() - of_all(&degrees)).abs() < 1e-9);
        prop_assert!((found.hottest.get() - of_all(&hottest)).abs() < 1e-9);
    }
}

#[test]
fn orders_and_renumbering_are_the_same_on_any_number_of_threads() {
    let edges = Kronecker { weights: Weights::Uniform, ..Kronecker::new(15) };
    for direction in [Direction::Undirected, Direction::Directed] {
        let graph = made(&edges, direction);
        for order in [Order::AsIs, Order::DegreeBased, Order::Degree, Order::Random(3)] {
            let [one, two, four] =
                [1, 2, 4].map(|threads| on_threads(threads, || order::numbers(&graph, order)));
            assert!(one == two && one == four && is_permutation(&one), "{order}");
            assert!(matches!(order, Order::Random(_)) || follows(&graph, &one, order), "{order}");
            let [by_one, by_two] =
                [1, 2].map(|threads| on_threads(threads, || all_arrays(&renumbered(&graph, &one))));
            assert!(by_one == by_two, "{order}");
            if order == Order::AsIs {
                assert!(by_one == all_arrays(&graph));
            }
        }
    }
}

#[test]
fn grouping_is_the_policys() {
    let graph = made(&Kronecker::new(16), Direction::Undirected);
    let degrees: Vec<_> = ids(&graph).map(|vertex| degree(&graph, vertex)).collect();
    let expected = grouping::renumbered(&degrees);
    let found = order::numbers(&graph, Order::DegreeBased);
    assert!(found.iter().map(|number| u64::from(*number)).eq(expected));
}

#[test]
fn degrees_that_are_not_counted_are_sorted() {
    // Three hubs above the counted degrees, two of them alike, and one at each side of the border.
    let vertices = 70_000;
    let hubs =
        [(5_u32, 66_000_u32), (7, 69_000), (6, 69_000), (9, 65_536), (8, 65_535), (4, 65_534)];
    let rays = |(hub, count): (u32, u32)| {
        (1000..1000 + count).map(move |to| Edge { from: hub, to, weight: 0 })
    };
    let edges = hubs.into_iter().flat_map(rays).collect();
    let listed = Listed { edges, vertices, is_weighted: false };
    let graph = made(&listed, Direction::Undirected);
    let numbers = order::numbers(&graph, Order::Degree);
    assert_eq!([7, 6, 5, 9, 8, 4].map(|hub: usize| numbers[hub]), [1, 0, 2, 3, 4, 5]);
    assert!(is_permutation(&numbers) && follows(&graph, &numbers, Order::Degree));
}

#[test]
fn numbers_that_are_no_permutation_are_refused() {
    let graph = made(&Uniform::new(3), Direction::Undirected);
    let refusal = |numbers: &[Vertex]| match order::renumber(
        &graph,
        numbers,
        GraphPages::default(),
        &Progress::default(),
    ) {
        Err(Error::Usage(what)) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(&[0, 1, 2]), "there are 3 new numbers for 8 vertices");
    let twice = refusal(&[0, 1, 2, 3, 4, 5, 6, 6]);
    assert!(twice.starts_with("6 cannot be the new number of vertex"), "{twice}");
    let outside = refusal(&[0, 1, 2, 3, 4, 5, 6, 8]);
    assert_eq!(
        outside,
        "8 cannot be the new number of vertex 7: each from 0 to 7 is that of one vertex"
    );
}

#[test]
fn a_graph_without_vertices_or_edges_can_be_numbered() {
    for vertices in [0, 5] {
        let graph =
            made(&Listed { edges: Vec::new(), vertices, is_weighted: true }, Direction::Directed);
        for order in [Order::AsIs, Order::DegreeBased, Order::Degree, Order::Random(3)] {
            let numbers = order::numbers(&graph, order);
            assert!(is_permutation(&numbers));
            assert_eq!(renumbered(&graph, &numbers).vertices() as u64, vertices);
        }
        assert_eq!(order::hottest_share(&graph, Share::ALL).first, Share::NONE);
    }
}
