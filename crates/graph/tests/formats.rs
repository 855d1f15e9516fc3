//! Reading and writing files of all formats: what is written is read again, what others write is understood, what is
//! wrong is refused with a sentence, and nothing makes a reader panic.

mod common;

use common::{Listed, made};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use superpage_graph::format::{self, Format, Read, ReadOptions, Weights};
use superpage_graph::{Adjacency, Direction, Edge, Error, Graph, Progress};

const ALL: [Format; 5] = [
    Format::EdgeList,
    Format::WeightedEdgeList,
    Format::MatrixMarket,
    Format::Serialized,
    Format::WeightedSerialized,
];

/// All that there is to know of an adjacency: its vertices, its edges, and whether it has weights.
fn all(adjacency: &Adjacency) -> (usize, Vec<(u32, u32, u32)>, bool) {
    let of = |from: u32| {
        let weights = adjacency.weights(from);
        let neighbors = adjacency.neighbors(from).iter().enumerate();
        neighbors.map(move |(at, to)| (from, *to, weights.get(at).copied().unwrap_or_default()))
    };
    let vertices = adjacency.vertices();
    let edges = (0..u32::try_from(vertices).expect("vertices")).flat_map(of).collect();
    (vertices, edges, adjacency.all_weights().is_some())
}

fn edges(graph: &Graph) -> Vec<(u32, u32, u32)> {
    all(graph.outgoing()).1
}

fn without_weights(edges: Vec<(u32, u32, u32)>) -> Vec<(u32, u32, u32)> {
    edges.into_iter().map(|(from, to, _)| (from, to, 0)).collect()
}

fn same(one: &Graph, other: &Graph) -> bool {
    one.is_directed() == other.is_directed()
        && all(one.outgoing()) == all(other.outgoing())
        && all(one.incoming()) == all(other.incoming())
}

fn has_weights(format: Format) -> bool {
    matches!(format, Format::WeightedEdgeList | Format::WeightedSerialized)
}

fn direction(graph: &Graph) -> Direction {
    if graph.is_directed() { Direction::Directed } else { Direction::Undirected }
}

/// A file of some name in a directory that goes when it does.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn of(&self, format: Format) -> PathBuf {
        self.path(&format!("graph{}", format.ending()))
    }

    fn written(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

fn read(path: &Path, direction: Option<Direction>) -> superpage_graph::Result<Graph> {
    read_with(path, ReadOptions { direction, ..ReadOptions::default() }).map(|read| read.graph)
}

fn read_with(path: &Path, options: ReadOptions) -> superpage_graph::Result<Read> {
    format::read(path, options, &Progress::default())
}

fn write(graph: &Graph, path: &Path, format: Format) {
    format::write(graph, path, format, &Progress::default()).expect("written");
}

/// What is said of a file, without its name.
fn refused(name: &str, content: impl AsRef<[u8]>) -> String {
    let place = Place::new();
    let path = place.written(name, content);
    let error = read(&path, None).map(|_| ()).expect_err("refused").to_string();
    let path = path.display().to_string();
    error.strip_prefix(&path).map(str::to_owned).unwrap_or(error)
}

fn some_edges(vertices: u32) -> impl Strategy<Value = Vec<Edge>> {
    let weight = prop_oneof![4 => 0..9_u32, 1 => Just(i32::MAX.unsigned_abs())];
    let edge =
        (0..vertices, 0..vertices, weight).prop_map(|(from, to, weight)| Edge { from, to, weight });
    prop::collection::vec(edge, 0..120)
}

fn graph() -> impl Strategy<Value = Graph> {
    let direction = prop_oneof![Just(Direction::Directed), Just(Direction::Undirected)];
    (1..30_u32, any::<bool>(), direction).prop_flat_map(|(vertices, is_weighted, direction)| {
        some_edges(vertices).prop_map(move |edges| {
            made(&Listed { edges, vertices: u64::from(vertices), is_weighted }, direction)
        })
    })
}

proptest! {
    #[test]
    fn edge_lists_come_back(graph in graph()) {
        let place = Place::new();
        for format in [Format::EdgeList, Format::WeightedEdgeList] {
            let is_weighted = format == Format::WeightedEdgeList;
            if is_weighted && !graph.is_weighted() {
                continue;
            }
            let path = place.of(format);
            write(&graph, &path, format);
            let expected = if is_weighted { edges(&graph) } else { without_weights(edges(&graph)) };
            for wanted in [None, Some(direction(&graph))] {
                let found = read(&path, wanted);
                if expected.is_empty() {
                    let is_refused = matches!(found, Err(Error::Broken { .. }));
                    prop_assert!(is_refused);
                    continue;
                }
                let found = found.expect("a graph");
                prop_assert_eq!(found.is_directed(), wanted != Some(Direction::Undirected));
                prop_assert_eq!(found.is_weighted(), is_weighted);
                let largest = expected.iter().map(|(from, to, _)| from.max(to)).max().copied();
                prop_assert_eq!(found.vertices(), largest.map_or(0, |largest| largest as usize + 1));
                prop_assert_eq!(edges(&found), expected.clone());
            }
        }
    }

    #[test]
    fn matrices_and_serialized_graphs_come_back_as_they_were(graph in graph()) {
        let place = Place::new();
        let format = if graph.is_weighted() { Format::WeightedSerialized } else { Format::Serialized };
        for format in [format, Format::MatrixMarket] {
            let path = place.of(format);
            write(&graph, &path, format);
            let found = read(&path, None).expect("a graph");
            prop_assert!(same(&graph, &found), "{:?}", format);
            prop_assert_eq!(format::vertices(&path).expect("read"), Some(graph.vertices() as u64));
            let again = place.path("again");
            write(&found, &again, format);
            prop_assert!(std::fs::read(&path).expect("read") == std::fs::read(&again).expect("read"));
        }
    }

    #[test]
    fn formats_without_weights_leave_them_out(graph in graph()) {
        let place = Place::new();
        let path = place.of(Format::Serialized);
        write(&graph, &path, Format::Serialized);
        let found = read(&path, None).expect("a graph");
        prop_assert!(!found.is_weighted());
        prop_assert_eq!(edges(&found), without_weights(edges(&graph)));
    }

    #[test]
    fn the_caller_may_want_another_direction(graph in graph()) {
        let place = Place::new();
        let format = if graph.is_weighted() { Format::WeightedSerialized } else { Format::Serialized };
        let list = edges(&graph).into_iter().map(|(from, to, weight)| Edge { from, to, weight }).collect();
        let listed = Listed { edges: list, vertices: graph.vertices() as u64, is_weighted: graph.is_weighted() };
        for format in [format, Format::MatrixMarket] {
            let path = place.of(format);
            write(&graph, &path, format);
            for wanted in [Direction::Directed, Direction::Undirected] {
                let found = read(&path, Some(wanted)).expect("a graph");
                prop_assert!(same(&found, &made(&listed, wanted)), "{:?}, {:?}", format, wanted);
            }
        }
    }
}

/// The matrix of an edge list, as a map: the least value of each place.
fn model(entries: impl IntoIterator<Item = (u32, u32, u32)>) -> Vec<(u32, u32, u32)> {
    let mut least = BTreeMap::new();
    for (from, to, weight) in entries {
        let kept = least.entry((from, to)).or_insert(weight);
        *kept = weight.min(*kept);
    }
    least.into_iter().map(|((from, to), weight)| (from, to, weight)).collect()
}

proptest! {
    #[test]
    fn what_sprs_writes_is_read(list in some_edges(12)) {
        let place = Place::new();
        let (mut whole, mut real) = (sprs::TriMat::<i64>::new((12, 12)), sprs::TriMat::<f64>::new((12, 12)));
        for Edge { from, to, weight } in &list {
            whole.add_triplet(*from as usize, *to as usize, i64::from(*weight));
            real.add_triplet(*from as usize, *to as usize, f64::from(*weight));
        }
        let entries = || list.iter().map(|edge| (edge.from, edge.to, edge.weight));
        let (integers, reals) = (place.path("integer.mtx"), place.path("real.mtx"));
        sprs::io::write_matrix_market(&integers, &whole).expect("written");
        sprs::io::write_matrix_market(&reals, &real).expect("written");
        for path in [integers, reals] {
            let found = read(&path, None).expect("a graph");
            prop_assert_eq!((found.vertices(), found.is_directed(), found.is_weighted()), (12, true, true));
            prop_assert_eq!(edges(&found), model(entries()));
        }
        let symmetric = place.path("symmetric.mtx");
        sprs::io::write_matrix_market_sym(&symmetric, &whole, sprs::io::SymmetryMode::Symmetric).expect("written");
        let found = read(&symmetric, None).expect("a graph");
        let upper = || entries().filter(|(from, to, _)| from <= to);
        let both = upper().chain(upper().map(|(from, to, weight)| (to, from, weight)));
        prop_assert!(!found.is_directed());
        prop_assert_eq!(edges(&found), model(both));
    }

    #[test]
    fn sprs_reads_what_is_written(graph in graph()) {
        let place = Place::new();
        let path = place.of(Format::MatrixMarket);
        write(&graph, &path, Format::MatrixMarket);
        let number = |index: usize| u32::try_from(index).expect("a vertex");
        let (shape, mut found): (_, Vec<_>) = if graph.is_weighted() {
            let matrix = sprs::io::read_matrix_market::<i64, usize, _>(&path).expect("read");
            let entry = |(value, (row, column)): (&i64, _)| {
                (number(row), number(column), u32::try_from(*value).expect("a weight"))
            };
            (matrix.shape(), matrix.triplet_iter().map(entry).collect())
        } else {
            let matrix = sprs::io::read_matrix_market::<sprs::num_kinds::Pattern, usize, _>(&path).expect("read");
            let entry = |(_, (row, column))| (number(row), number(column), 0);
            (matrix.shape(), matrix.triplet_iter().map(entry).collect())
        };
        found.sort_unstable();
        prop_assert_eq!(shape, (graph.vertices(), graph.vertices()));
        prop_assert_eq!(found, edges(&graph));
    }
}

/// Numbers as a serialized graph has them.
fn bytes(first: u8, counts: [i64; 2], adjacencies: &[(&[i64], &[i32])]) -> Vec<u8> {
    let mut bytes = vec![first];
    counts.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    for (offsets, numbers) in adjacencies {
        offsets.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    }
    bytes
}

/// The edges 0 → 1, 0 → 2 and 2 → 1, with the weights 5, 0 and 7 where `format` has weights.
fn triangle(direction: Direction, format: Format) -> Graph {
    let edges =
        [(0, 1, 5), (0, 2, 0), (2, 1, 7)].map(|(from, to, weight)| Edge { from, to, weight });
    made(
        &Listed { edges: edges.to_vec(), vertices: 3, is_weighted: has_weights(format) },
        direction,
    )
}

#[test]
fn serialized_graphs_are_byte_for_byte_those_of_gapbs() {
    #[rustfmt::skip]
    let by_hand = [
        1,
        3, 0, 0, 0, 0, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0,  2, 0, 0, 0,  1, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0,  2, 0, 0, 0,  0, 0, 0, 0,
    ];
    let directed = bytes(1, [3, 3], &[(&[0, 2, 2, 3], &[1, 2, 1]), (&[0, 0, 2, 3], &[0, 2, 0])]);
    assert_eq!(directed, by_hand);
    let undirected = bytes(0, [6, 3], &[(&[0, 2, 4, 6], &[1, 2, 0, 2, 0, 1])]);
    let weighted = bytes(
        1,
        [3, 3],
        &[(&[0, 2, 2, 3], &[1, 5, 2, 0, 1, 7]), (&[0, 0, 2, 3], &[0, 5, 2, 7, 0, 0])],
    );
    let both = bytes(0, [6, 3], &[(&[0, 2, 4, 6], &[1, 5, 2, 0, 0, 5, 2, 7, 0, 0, 1, 7])]);
    let expected = [
        (directed, Direction::Directed, Format::Serialized),
        (undirected, Direction::Undirected, Format::Serialized),
        (weighted, Direction::Directed, Format::WeightedSerialized),
        (both, Direction::Undirected, Format::WeightedSerialized),
    ];
    let place = Place::new();
    for (content, direction, format) in expected {
        let graph = triangle(direction, format);
        let path = place.of(format);
        write(&graph, &path, format);
        assert_eq!(std::fs::read(&path).expect("read"), content, "{direction:?}, {format:?}");
        assert!(same(&read(&path, None).expect("a graph"), &graph));
    }
}

#[test]
fn text_is_written_as_others_read_it() {
    let place = Place::new();
    let written = |graph: &Graph, format: Format| {
        write(graph, &place.of(format), format);
        std::fs::read_to_string(place.of(format)).expect("read")
    };
    let (directed, undirected) = (
        triangle(Direction::Directed, Format::WeightedEdgeList),
        triangle(Direction::Undirected, Format::EdgeList),
    );
    assert_eq!(written(&directed, Format::EdgeList), "0 1\n0 2\n2 1\n");
    assert_eq!(written(&directed, Format::WeightedEdgeList), "0 1 5\n0 2 0\n2 1 7\n");
    assert_eq!(written(&undirected, Format::EdgeList), "0 1\n0 2\n1 0\n1 2\n2 0\n2 1\n");
    let head = "%%MatrixMarket matrix coordinate";
    let expected = format!("{head} integer general\n3 3 3\n1 2 5\n1 3 0\n3 2 7\n");
    assert_eq!(written(&directed, Format::MatrixMarket), expected);
    let expected = format!("{head} pattern symmetric\n3 3 3\n2 1\n3 1\n3 2\n");
    assert_eq!(written(&undirected, Format::MatrixMarket), expected);
}

#[test]
fn files_of_snap_are_read() {
    let place = Place::new();
    let content = "# Directed graph\n# Nodes: 4 Edges: 5\r\n% FromNodeId\tToNodeId\r\n\
                   0\t1\r\n\n  3  1 \n1 1\n0\t1\n2\t3";
    let path = place.written("snap.txt", content);
    let found = read(&path, None).expect("a graph");
    assert_eq!((found.vertices(), found.is_directed(), found.is_weighted()), (4, true, false));
    assert_eq!(
        edges(&found),
        [(0, 1, 0), (1, 1, 0), (2, 3, 0), (3, 1, 0)],
        "with the loop, and once what is there twice"
    );
    assert_eq!(format::vertices(&path).expect("an edge list"), None);
    let path = place.written("least.wel", "0 1 7\n0 1 3\n0 1 5\n");
    assert_eq!(edges(&read(&path, None).expect("a graph")), [(0, 1, 3)]);
}

#[test]
fn formats_are_known_by_the_end_of_the_name() {
    for format in ALL {
        assert_eq!(
            Format::of(Path::new("a.b").join(format!("x{}", format.ending())).as_path())
                .expect("known"),
            format
        );
        assert!(format::ENDINGS.contains(format.ending()));
    }
    assert_eq!(Format::of(Path::new("soc-LiveJournal1.TXT")).expect("known"), Format::EdgeList);
    for name in ["graph", "graph.gz", ".el", "el", "graph.el.gz", ""] {
        let found = Format::of(Path::new(name)).map(|_| ()).expect_err("unknown").to_string();
        assert_eq!(
            found,
            format!(
                "{name}: the end of its name is none of .el, .wel, .txt, .mtx, .sg and .wsg: convert it to one of \
                 these formats, or end its name as its format does"
            )
        );
    }
}

/// The answer that is expected of a weight.
const WEIGHT: &str = "a weight that is a whole number from 0 to 2147483647 (.el and .sg files, bfs, pr and cc need no weights)";

#[test]
fn bad_edge_lists_are_refused_with_one_sentence() {
    let vertex = "a vertex from 0 to 4294967294";
    let bad = [
        ("", ": there are no edges in it".to_owned()),
        ("# only a comment\n\n", ": there are no edges in it".to_owned()),
        ("0 1\n1\n", ":2: expected two vertices, found \"1\"".to_owned()),
        ("0 1\n\n0 1 2\n", ":3: expected two vertices, found \"0 1 2\"".to_owned()),
        ("0 1\n0 one\n", format!(":2: expected {vertex}, found \"one\"")),
        ("0 1\n-1 0\n", format!(":2: expected {vertex}, found \"-1\"")),
        ("0 4294967295\n", format!(":1: expected {vertex}, found \"4294967295\"")),
        (
            "0 18446744073709551617\n",
            format!(":1: expected {vertex}, found \"18446744073709551617\""),
        ),
    ];
    for (content, expected) in bad {
        assert_eq!(refused("a.el", content), expected);
        assert_eq!(refused("a.txt", content), expected);
    }
    let three = "two vertices and a weight";
    let weight = WEIGHT;
    let bad = [
        ("", ": there are no edges in it".to_owned()),
        ("0 1 2\n0 1\n", format!(":2: expected {three}, found \"0 1\"")),
        ("0 1 2 3 4\n", format!(":1: expected {three}, found \"0 1 2 3 4\"")),
        (
            "0 1 2 3\n0 1 2\n",
            ":2: expected two vertices, a weight and a number, as on the first line, found \"0 1 2\"".to_owned(),
        ),
        ("0 1 -2\n", format!(":1: expected {weight}, found \"-2\"")),
        ("0 1 2147483648\n", format!(":1: expected {weight}, found \"2147483648\"")),
        ("0 1 0.5\n", format!(":1: expected {weight}, found \"0.5\"")),
        ("0 1 heavy\n", format!(":1: expected {weight}, found \"heavy\"")),
    ];
    for (content, expected) in bad {
        assert_eq!(refused("a.wel", content), expected);
    }
}

/// The edges of a text file where nobody needs its weights, and what of each line is not read.
fn unweighted(name: &str, content: &str) -> (Vec<(u32, u32, u32)>, usize) {
    let place = Place::new();
    let path = place.written(name, content);
    let of = |weights| {
        let read = read_with(&path, ReadOptions { weights, ..ReadOptions::default() });
        read.unwrap_or_else(|error| panic!("{content:?}: {error}"))
    };
    let (unread, unseen) = (of(Weights::Unread), of(Weights::Unseen));
    assert!(!unread.graph.is_weighted(), "{content:?}");
    assert_eq!(edges(&unread.graph), without_weights(edges(&unseen.graph)), "{content:?}");
    (edges(&unread.graph), unread.unread_columns)
}

#[test]
fn matrices_of_all_values_and_symmetries_are_read_where_weights_do_not_matter() {
    let kinds = [
        ("real general", "1 2 0.25\n3 3 -1D-3\n", vec![(0, 1, 0), (2, 2, 0)]),
        ("real symmetric", "2 1 1.5\n3 3 nan\n", vec![(0, 1, 0), (1, 0, 0), (2, 2, 0)]),
        (
            "integer skew-symmetric",
            "2 1 7\n3 1 -7\n",
            vec![(0, 1, 0), (0, 2, 0), (1, 0, 0), (2, 0, 0)],
        ),
        ("complex general", "1 2 1.0 -2.0\n3 3 0 0\n", vec![(0, 1, 0), (2, 2, 0)]),
        ("complex hermitian", "2 1 1.0 2.0d0\n3 3 1 0\n", vec![(0, 1, 0), (1, 0, 0), (2, 2, 0)]),
    ];
    for (kind, entries, expected) in kinds {
        for mark in ["%%", "%"] {
            let content = format!("{mark}MatrixMarket matrix coordinate {kind}\n3 3 2\n{entries}");
            assert_eq!(unweighted("a.mtx", &content), (expected.clone(), 0), "{kind}");
            let refusal = refused("a.mtx", &content);
            assert!(refusal.contains("bfs, pr and cc need no weights"), "{refusal}");
        }
    }
    let bad = refused("a.mtx", "%%MatrixMarket matrix array real general\n1 1\n0\n");
    assert_eq!(bad, ":1: expected coordinate, for a sparse matrix, found \"array\"");
}

#[test]
fn columns_behind_the_edge_are_told_of_and_not_read() {
    let two = vec![(0, 1, 0), (2, 0, 0)];
    let lists = [
        ("a.el", "0 1\n2 0\n", 0),
        ("a.txt", "0\t1\t1082040961\n2\t0\t-1.5\n", 1),
        ("a.el", "% sym posweighted\n0 1 1 1082040961\n2 0\t0.5 7\n", 2),
        ("a.el", "0,1,3\n2, 0, 1e-3\n", 1),
        ("a.el", "0;1;0\n2;0;4 # c\n", 1),
        ("a.el", "0 1 {'weight': 3.0}\n2 0 {'weight': 1}\n", 1),
        ("a.el", "0 1 {}\r\n2 0 {}\r\n", 0),
        ("a.wel", "0 1 5\n2 0 0.5\n", 0),
        ("a.wel", "0 1 5 1082040961\n2 0 1 0\n", 1),
    ];
    for (name, content, unread) in lists {
        assert_eq!(unweighted(name, content), (two.clone(), unread), "{content:?}");
    }
    // A list of neighbors is none of edges.
    for list in ["0 1 2 3 4\n1 0 2 3 4\n", "0 1 2\n1 0\n", "0 1\n1 0 2\n", "0 1 x\n"] {
        assert!(refused("a.el", list).contains("expected "), "{list:?}");
    }
}

#[test]
fn duplicates_are_counted_and_loops_are_kept() {
    let place = Place::new();
    let path = place.written("a.wel", "0 1 5\n0 1 3\n1 0 9\n2 2 1\n2 2 4\n0 1 3\n");
    let of = |direction| {
        let options = ReadOptions { direction: Some(direction), ..ReadOptions::default() };
        let read = read_with(&path, options).expect("a graph");
        (edges(&read.graph), read.duplicates, read.graph.loops())
    };
    assert_eq!(of(Direction::Directed), (vec![(0, 1, 3), (1, 0, 9), (2, 2, 1)], 3, 1));
    // An edge and the same backwards are one.
    assert_eq!(of(Direction::Undirected), (vec![(0, 1, 3), (1, 0, 3), (2, 2, 1)], 4, 1));
}

#[test]
fn what_is_no_plain_text_is_refused_with_one_sentence() {
    let bad: [(&[u8], &str); 5] = [
        (b"\x1f\x8b\x08\0", ": it is compressed by gzip: unpack it first"),
        (b"\xfd7zXZ\0", ": it is compressed by xz: unpack it first"),
        (b"PK\x03\x04", ": it is a zip archive: unpack it first"),
        (b"\xef\xbb\xbf0 1\n", ": it begins with a byte order mark: write it as UTF-8 without one"),
        (b"\xff\xfe0\0 \0", ": it is UTF-16: write it as ASCII or UTF-8"),
    ];
    for (content, expected) in bad {
        for name in ["a.el", "a.txt", "a.wel", "a.mtx"] {
            assert_eq!(refused(name, content), expected);
        }
    }
    let header =
        ":2: expected a number, because vertices are numbered and a line with names begins with #";
    assert_eq!(
        refused("a.txt", "\nsource,target\n0,1\n"),
        format!("{header}, found \"source,target\"")
    );
}

#[test]
fn bad_matrices_are_refused_with_one_sentence() {
    let of = |kind: &str, rest: &str| {
        refused(
            "a.mtx",
            format!("%%MatrixMarket matrix coordinate {kind} general\n% a comment\n{rest}"),
        )
    };
    let index = "a row or column from 1 to the size of the matrix";
    let pair = "a row and a column";
    let triple = "a row, a column and a value";
    assert_eq!(of("pattern", "3 3 2\n1 2\n0 1\n"), format!(":5: expected {index}, found \"0\""));
    assert_eq!(of("pattern", "3 3 2\n1 2\n3 4\n"), format!(":5: expected {index}, found \"4\""));
    assert_eq!(of("pattern", "3 3 2\n1 -2\n"), format!(":4: expected {index}, found \"-2\""));
    assert_eq!(of("pattern", "3 3 2\n1 2 3\n"), format!(":4: expected {pair}, found \"1 2 3\""));
    assert_eq!(of("integer", "3 3 2\n1 2\n"), format!(":4: expected {triple}, found \"1 2\""));
    assert_eq!(of("integer", "3 3 2\n1 2 1.5\n"), format!(":4: expected {WEIGHT}, found \"1.5\""));
    assert_eq!(of("real", "3 3 2\n1 2 1.5\n"), format!(":4: expected {WEIGHT}, found \"1.5\""));
    assert_eq!(of("real", "3 3 2\n1 2 -1\n"), format!(":4: expected {WEIGHT}, found \"-1\""));
    assert_eq!(
        of("real", "3 3 2\n1 2 1\n"),
        ": there are 1 entries in it, and its size line says 2"
    );
    assert_eq!(
        of("real", "3 3 0\n1 2 1\n"),
        ": there are 1 entries in it, and its size line says 0"
    );
    assert_eq!(of("real", "3 2 0\n"), ":3: expected as many rows as columns, found \"3 2 0\"");
    assert_eq!(
        of("real", ""),
        ":3: expected the rows, the columns and the entries of the matrix, found \"\""
    );
    let banner = "%%MatrixMarket matrix coordinate, then pattern, integer, real or complex, then general, symmetric, \
                  skew-symmetric or hermitian";
    assert_eq!(refused("a.mtx", ""), format!(":1: expected {banner}, found \"\""));
    assert_eq!(
        of("complex", "1 1 0"),
        ":1: expected a general or symmetric matrix of integer or real values, which can be weights (.el and .sg files, \
         bfs, pr and cc need no weights), found \"complex\""
    );
    let found = of("pattern", "9999999999 9999999999 1\n1 1");
    assert_eq!(found, "9999999999 vertices are more than there can be (4294967295)");
}

#[test]
fn bad_serialized_graphs_are_refused_with_one_sentence() {
    let good = bytes(0, [2, 2], &[(&[0, 1, 2], &[1, 0])]);
    let sized = |length: usize| {
        format!(
            ": it has {length} bytes, and an undirected .sg file of 2 vertices and 2 edges has 49"
        )
    };
    assert_eq!(refused("a.sg", &good[..48]), sized(48));
    assert_eq!(refused("a.sg", [&good[..], &[0]].concat()), sized(50));
    assert_eq!(refused("a.sg", ""), ": it has 0 bytes, and the head of a .sg file alone has 17");
    assert_eq!(
        refused("a.wsg", &good[..16]),
        ": it has 16 bytes, and the head of a .wsg file alone has 17"
    );
    let vertices: (&[i64], &[i32]) = (&[0, 1, 2], &[1, 0]);
    let bad = [
        (
            bytes(7, [2, 2], &[vertices]),
            ": its first byte is 7, and should be 0 (undirected) or 1 (directed)",
        ),
        (bytes(0, [-2, 2], &[vertices]), ": it says that it has -2 edges"),
        (bytes(0, [2, -1], &[vertices]), ": it says that it has -1 vertices"),
        (
            bytes(0, [2, 1 << 40], &[vertices]),
            "1099511627776 vertices are more than there can be (4294967295)",
        ),
        (
            bytes(0, [i64::MAX, 2], &[vertices]),
            ": it has 49 bytes, and an undirected .sg file of 2 vertices and 9223372036854775807 edges has \
             36893488147419103269",
        ),
        (
            bytes(1, [2, 2], &[vertices]),
            ": it has 49 bytes, and a directed .sg file of 2 vertices and 2 edges has 81",
        ),
        (
            bytes(0, [2, 2], &[(&[0, 1, 3], &[1, 0])]),
            ": the vertex array does not go from 0 to 2 edges",
        ),
        (
            bytes(0, [2, 2], &[(&[1, 1, 2], &[1, 0])]),
            ": the vertex array does not go from 0 to 2 edges",
        ),
        (
            bytes(0, [2, 2], &[(&[0, 3, 2], &[1, 0])]),
            ": the neighbors of vertex 1 end before they begin",
        ),
        (
            bytes(0, [2, 2], &[(&[0, -1, 2], &[1, 0])]),
            ": the neighbors of vertex 1 end before they begin",
        ),
        (bytes(0, [2, 2], &[(&[0, 1, 2], &[2, 0])]), ": 2 is no vertex: there are 2"),
        (bytes(0, [2, 2], &[(&[0, 1, 2], &[-5, 0])]), ": the number of a neighbor is negative: -5"),
        (
            bytes(0, [2, 2], &[(&[0, 0, 2], &[1, 0])]),
            ": the neighbors of vertex 1 are not ascending, each there once",
        ),
        (
            bytes(0, [2, 2], &[(&[0, 2, 2], &[1, 1])]),
            ": the neighbors of vertex 0 are not ascending, each there once",
        ),
        (
            bytes(1, [2, 2], &[vertices, (&[0, 2, 2], &[1, 0])]),
            ": the neighbors of vertex 0 are not ascending, each there once",
        ),
    ];
    for (content, expected) in bad {
        assert_eq!(refused("a.sg", content), expected);
    }
}

#[test]
fn negative_numbers_of_weighted_graphs_are_refused_with_one_sentence() {
    let negative = bytes(0, [2, 2], &[(&[0, 1, 2], &[1, 4, 0, -4])]);
    assert_eq!(refused("a.wsg", negative), ": the weight of an edge is negative: -4");
    let content = bytes(0, [2, 2], &[(&[0, 1, 2], &[1, 4, -1, 4])]);
    assert_eq!(refused("a.wsg", content), ": the number of a neighbor is negative: -1");
}

#[test]
fn what_is_no_file_is_refused_with_one_sentence() {
    let place = Place::new();
    for format in ALL {
        let path = place.of(format);
        let error = read(&path, None).map(|_| ()).expect_err("refused").to_string();
        assert_eq!(
            error,
            format!("{}: could not open: No such file or directory (os error 2)", path.display())
        );
        std::fs::create_dir(&path).expect("a directory");
        let error = read(&path, None).map(|_| ()).expect_err("refused").to_string();
        assert_eq!(
            error,
            format!("{} is a directory, and a graph is read from a file, twice", path.display())
        );
        std::fs::remove_dir(&path).expect("removed");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let error = read(&path, None).map(|_| ()).expect_err("refused").to_string();
        assert_eq!(
            error,
            format!("{} is a pipe, and a graph is read from a file, twice", path.display())
        );
    }
}

#[test]
fn a_graph_that_cannot_be_written_leaves_what_was_there() {
    let place = Place::new();
    for format in [Format::WeightedEdgeList, Format::WeightedSerialized] {
        let path = place.written("old", "old");
        let graph = triangle(Direction::Directed, Format::EdgeList);
        let error = format::write(&graph, &path, format, &Progress::default())
            .expect_err("refused")
            .to_string();
        let who = format!("a {} file needs weights, and the graph has none", format.ending());
        assert!(error.starts_with(&who), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "old");
    }
    let edges = vec![Edge { from: 0, to: 1, weight: 1 << 31 }];
    let graph = made(&Listed { edges, vertices: 2, is_weighted: true }, Direction::Directed);
    for format in ALL {
        let error = format::write(&graph, &place.path("old"), format, &Progress::default())
            .expect_err("refused");
        assert_eq!(error.to_string(), "a weight of 2147483648 is more than files have: 2147483647");
    }
    let entries: Vec<_> = std::fs::read_dir(place.path("")).expect("a directory").collect();
    assert_eq!(entries.len(), 1);
}

/// A graph whose files have several pieces, with weights where `format` has them.
fn large(format: Format) -> Graph {
    let vertices = 400_000;
    let mut state = 1_u64;
    let mut next = |below: u32| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % u64::from(below)).expect("a number")
    };
    let mut edge = |_| Edge { from: next(vertices), to: next(vertices), weight: next(256) };
    let edges = (0..1_500_000).map(&mut edge).collect();
    let is_weighted = has_weights(format);
    made(&Listed { edges, vertices: u64::from(vertices), is_weighted }, Direction::Directed)
}

#[test]
fn files_of_several_pieces_come_back() {
    let place = Place::new();
    let (plain, weighted) = (large(Format::Serialized), large(Format::WeightedSerialized));
    let cases = [
        (&plain, Format::Serialized),
        (&weighted, Format::WeightedSerialized),
        (&weighted, Format::MatrixMarket),
        (&plain, Format::MatrixMarket),
    ];
    for (graph, format) in cases {
        let path = place.of(format);
        write(graph, &path, format);
        assert!(std::fs::metadata(&path).expect("a file").len() > 2 << 22, "several pieces");
        for threads in [1, 4] {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let progress = Progress::default();
            let found = pool
                .install(|| format::read(&path, ReadOptions::default(), &progress))
                .expect("a graph")
                .graph;
            assert!(same(&found, graph), "{format:?}, {threads} threads");
            let (done, all) = progress.now();
            assert!(done > 0 && done <= all, "{done} of {all}");
        }
    }
}

/// What is nearly a text file: no number of it makes a graph large.
fn nearly_text() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        12 => (0..20_u32).prop_map(|number| number.to_string().into_bytes()),
        1 => prop::sample::select(vec!["-1", "4294967295", "99999999999999999999999", "1.0", "0.5", "x", "%", "#", ""])
            .prop_map(|field| field.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>().prop_filter("no digit", |byte| !byte.is_ascii_digit()), 0..4),
    ];
    let end = prop_oneof![
        4 => Just(&b" "[..]),
        4 => Just(&b"\n"[..]),
        1 => prop::sample::select(vec![&b"\t"[..], b"\r\n", b"\r", b"  ", b"\0", b","]),
    ];
    prop::collection::vec((field, end), 0..60).prop_map(|fields| {
        fields.into_iter().flat_map(|(field, end)| [field, end.to_vec()].concat()).collect()
    })
}

/// What is nearly a serialized graph.
fn nearly_serialized() -> impl Strategy<Value = Vec<u8>> {
    let count = || prop_oneof![8 => 0..6_i64, 1 => any::<i64>()];
    let offsets = prop::collection::vec(prop_oneof![9 => 0..6_i64, 1 => any::<i64>()], 0..14);
    let numbers = prop::collection::vec(prop_oneof![9 => 0..5_i32, 1 => any::<i32>()], 0..24);
    (0..3_u8, count(), count(), offsets, numbers).prop_map(
        |(first, edges, vertices, mut offsets, mut numbers)| {
            // Most have the right length.
            if let (Ok(edges), Ok(vertices)) = (usize::try_from(edges), usize::try_from(vertices)) {
                offsets.resize(offsets.len().min(vertices.saturating_add(1)), 0);
                offsets.sort_unstable();
                numbers.truncate(edges);
            }
            let adjacency: (&[i64], &[i32]) = (&offsets, &numbers);
            bytes(first, [edges, vertices], &[adjacency, adjacency][..1 + usize::from(first == 1)])
        },
    )
}

/// Reads bytes as each format: there is a graph or an error, and a graph is one.
fn survives(content: &[u8]) {
    let place = Place::new();
    let written = place.written("content", content);
    for format in ALL {
        let path = place.of(format);
        std::fs::hard_link(&written, &path).expect("a second name");
        for direction in [None, Some(Direction::Directed), Some(Direction::Undirected)] {
            if let Ok(graph) = read(&path, direction) {
                let (vertices, edges, _) = all(graph.outgoing());
                assert!(edges.iter().all(|(from, to, _)| (*from.max(to) as usize) < vertices));
                assert!(
                    edges.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1))
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_make_no_reader_panic(content in prop::collection::vec(any::<u8>(), 0..200)) {
        survives(&content);
    }

    #[test]
    fn what_is_nearly_text_makes_no_reader_panic(content in nearly_text()) {
        survives(&content);
    }

    #[test]
    fn what_is_nearly_a_matrix_makes_no_reader_panic(
        kind in "(pattern|integer|real|x) (general|symmetric|y)",
        size in "(%\n){0,2}[0-9]{1,2} [0-9]{1,2} [0-9]",
        same: bool,
        rest in nearly_text(),
    ) {
        let size = if same { "7 7 3".to_owned() } else { size };
        let mut content = format!("%%MatrixMarket matrix coordinate {kind}\n{size}\n").into_bytes();
        content.extend(rest);
        survives(&content);
    }

    #[test]
    fn what_is_nearly_serialized_makes_no_reader_panic(content in nearly_serialized()) {
        survives(&content);
    }

    #[test]
    fn a_changed_byte_and_a_missing_end_make_no_reader_panic(
        graph in graph(),
        at: prop::sample::Index,
        byte in any::<u8>().prop_filter("no digit, so that numbers stay small", |byte| !byte.is_ascii_digit()),
        length: prop::sample::Index,
    ) {
        let place = Place::new();
        for format in ALL {
            let path = place.of(format);
            if format::write(&graph, &path, format, &Progress::default()).is_err() {
                continue;
            }
            let mut content = std::fs::read(&path).expect("read");
            let end = length.index(content.len() + 1);
            survives(&content[..end]);
            if !content.is_empty() {
                let at = at.index(content.len());
                content[at] = byte;
            }
            survives(&content);
        }
    }
}
