"""The kernels of `superpage graph run` against NetworkX, on real networks and on shapes. SUPERPAGE_PROGRAM names the program."""

import os
import subprocess

import numpy
import pytest

networkx = pytest.importorskip("networkx")

PROGRAM = os.environ.get("SUPERPAGE_PROGRAM")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="SUPERPAGE_PROGRAM does not name the program `superpage`")

#: A parent or a distance that is none.
NONE = 2**32 - 1

GRAPHS = {
    "Zachary's karate club": networkx.karate_club_graph,
    "Les Misérables": networkx.les_miserables_graph,
    "Florentine families": networkx.florentine_families_graph,
    "Southern women": networkx.davis_southern_women_graph,
    "Frucht graph": networkx.frucht_graph,
    "grid": lambda: networkx.grid_2d_graph(9, 7),
    "star": lambda: networkx.star_graph(40),
    "two cliques": lambda: networkx.disjoint_union(networkx.complete_graph(5), networkx.complete_graph(9)),
}


@pytest.fixture(params=GRAPHS, ids=str)
def graph(request):
    """A graph with vertices by number, and whole weights."""
    graph = networkx.convert_node_labels_to_integers(GRAPHS[request.param]())
    for at, (_, _, edge) in enumerate(graph.edges(data=True)):
        edge["weight"] = int(edge.get("weight", at % 7 + 1))
    return graph


def run(kernel, graph, directory, dtype, *words):
    """The result of a kernel, verified, on a file of the graph."""
    ending = "wel" if kernel == "sssp" else "el"
    file, result = directory / f"graph.{ending}", directory / "result"
    with open(file, "w") as lines:
        for one, other, weight in graph.edges(data="weight"):
            print(one, other, *([weight] if kernel == "sssp" else []), file=lines)
    command = [PROGRAM, "graph", "run", kernel, file, "--edges", "undirected", "--output", result, "--verify"]
    subprocess.run([*command, "--repeat", "1", "--pages", "base", "--json", *words], check=True, stdout=subprocess.DEVNULL)
    return numpy.fromfile(result, dtype)


def test_breadth_first_search(graph, tmp_path):
    parents = run("bfs", graph, tmp_path, "<u4", "--source", "0")
    depths = networkx.single_source_shortest_path_length(graph, 0)
    assert parents[0] == 0
    for vertex, parent in enumerate(parents.tolist()):
        if vertex == 0:
            continue
        if parent == NONE:
            assert vertex not in depths
        else:
            assert graph.has_edge(parent, vertex) and depths[parent] + 1 == depths[vertex]


def test_shortest_paths(graph, tmp_path):
    distances = run("sssp", graph, tmp_path, "<u4", "--source", "0")
    expected = networkx.single_source_dijkstra_path_length(graph, 0)
    assert distances.tolist() == [expected.get(vertex, NONE) for vertex in range(len(graph))]


def test_components(graph, tmp_path):
    found = run("cc", graph, tmp_path, "<u4")
    members = {}
    for vertex, component in enumerate(found.tolist()):
        members.setdefault(component, set()).add(vertex)
    expected = sorted(map(sorted, networkx.connected_components(graph)))
    assert sorted(map(sorted, members.values())) == expected


def test_page_rank(graph, tmp_path):
    scores = run("pr", graph, tmp_path, "<f4")
    expected = networkx.pagerank(graph, alpha=0.85, tol=1e-12, max_iter=1000, weight=None)
    expected = numpy.array([expected[vertex] for vertex in range(len(graph))])
    # A change of less than 1e-4 in the last iteration leaves scores at most 1e-4 * 0.85 / 0.15 away, and they have 24 bits.
    assert numpy.abs(scores - expected).sum() < 1e-4 * 0.85 / 0.15 + 1e-5
