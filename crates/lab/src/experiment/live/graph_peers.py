"""A kernel of a Python package on a graph in GAP's serialized format (.sg, .wsg), timed.

    graph_peers.py PEER KERNEL GRAPH RESULT TRIALS [SOURCE ...]

RESULT is what `superpage graph run --output` wrote for the last of the sources. The graph is read and built, and the kernel
runs once, before it is timed. Standard output gets one JSON object: the times, and whether the results are the same.
"""

import importlib.metadata
import json
import sys
import time

import numpy

DAMPING = 0.85
TOLERANCE = 1e-4
#: More than any kernel needs: PageRank ends by the tolerance.
ITERATIONS = 100
#: A parent or a distance that is none, as `superpage graph run` writes it.
NONE = 2**32 - 1


class File:
    """The arrays of an undirected graph's file: offsets, neighbors and, in a .wsg file, weights."""

    def __init__(self, path):
        head = 17
        with open(path, "rb") as file:
            if file.read(1) != b"\0":
                sys.exit(f"{path} has a directed graph")
        entries, self.vertices = (int(number) for number in numpy.fromfile(path, "<i8", 2, offset=1))
        self.offsets = numpy.fromfile(path, "<i8", self.vertices + 1, offset=head)
        head += 8 * (self.vertices + 1)
        if path.endswith(".wsg"):
            pairs = numpy.fromfile(path, "<i4", 2 * entries, offset=head).reshape(-1, 2)
            self.neighbors, self.weights = numpy.ascontiguousarray(pairs[:, 0]), pairs[:, 1].astype(float)
        else:
            self.neighbors, self.weights = numpy.fromfile(path, "<i4", entries, offset=head), None

    def entries(self):
        """Both vertices of each entry of the edge array."""
        degrees = numpy.diff(self.offsets)
        return numpy.repeat(numpy.arange(self.vertices, dtype="i4"), degrees), self.neighbors

    def edges(self):
        """Both vertices of each edge, which is in the file in both directions, and the weights."""
        row, column = self.entries()
        once = row <= column
        return row[once], column[once], None if self.weights is None else self.weights[once]


class Peer:
    """A package with the graph. A kernel's method returns what the package does; others make arrays of that, untimed."""

    def forget(self):
        """Drops what the package keeps of an earlier run of a kernel."""


class NetworKit(Peer):
    package = "networkit"

    def __init__(self, file):
        import networkit

        networkit.setNumberOfThreads(1)
        row, column, weights = file.edges()
        edges = (row, column) if weights is None else (weights, (row, column))
        self.graph = networkit.GraphFromCoo(edges, n=file.vertices, weighted=weights is not None)
        # PageRank takes two thirds of the time then, and the other kernels no more than before.
        self.graph.sortEdges()
        self.kit = networkit

    def bfs(self, source):
        return self.kit.distance.BFS(self.graph, source, storePaths=False).run()

    def sssp(self, source):
        return self.kit.distance.Dijkstra(self.graph, source, storePaths=False).run()

    def pr(self):
        ranking = self.kit.centrality.PageRank(self.graph, damp=DAMPING, tol=TOLERANCE)
        ranking.norm = self.kit.centrality.Norm.L1_NORM
        ranking.maxIterations = ITERATIONS
        return ranking.run()

    def cc(self):
        return self.kit.components.ConnectedComponents(self.graph).run()

    def distances(self, found):
        distances = numpy.array(found.getDistances())
        # The largest float stands for no distance.
        distances[distances > 1e300] = numpy.inf
        return distances

    def reached(self, found):
        return numpy.isfinite(self.distances(found))

    def scores(self, found):
        return numpy.array(found.scores())

    def labels(self, found):
        return numpy.array(found.getPartition().getVector())


class Igraph(Peer):
    package = "igraph"

    def __init__(self, file):
        import igraph

        row, column, self.weights = file.edges()
        self.graph = igraph.Graph(n=file.vertices, edges=numpy.column_stack([row, column]))
        if self.weights is not None:
            self.weights = self.weights.tolist()

    def bfs(self, source):
        return self.graph.distances(source)[0]

    def sssp(self, source):
        return self.graph.distances(source, weights=self.weights, algorithm="dijkstra")[0]

    def pr(self):
        return self.graph.pagerank(damping=DAMPING, implementation="prpack")

    def cc(self):
        return self.graph.connected_components()

    def forget(self):
        # igraph keeps whether a graph is connected, and would not search it again.
        getattr(self.graph, "__invalidate_cache")()

    def distances(self, found):
        return numpy.array(found, float)

    def reached(self, found):
        return numpy.isfinite(self.distances(found))

    def scores(self, found):
        return numpy.array(found)

    def labels(self, found):
        return numpy.array(found.membership)


class SciPy(Peer):
    package = "scipy"

    def __init__(self, file):
        from scipy.sparse import csgraph, csr_array

        # Floats: the functions would make a copy of other numbers at each call.
        weights = numpy.ones(len(file.neighbors)) if file.weights is None else file.weights
        shape = (file.vertices, file.vertices)
        self.matrix = csr_array((weights, file.neighbors, file.offsets.astype("i4")), shape=shape)
        self.csgraph = csgraph

    # Each edge is in the matrix in both directions, so that it is the matrix of a directed graph with the same paths.
    def bfs(self, source):
        return self.csgraph.breadth_first_order(self.matrix, source, directed=True, return_predecessors=False)

    def sssp(self, source):
        return self.csgraph.dijkstra(self.matrix, directed=True, indices=source)

    # For the same reason its strongly connected components are the components, and come without a transposed matrix.
    def cc(self):
        return self.csgraph.connected_components(self.matrix, directed=True, connection="strong")

    def distances(self, found):
        return found

    def reached(self, found):
        reached = numpy.zeros(self.matrix.shape[0], bool)
        reached[found] = True
        return reached

    def labels(self, found):
        return found[1]


class GraphMate(Peer):
    package = "graph-mate"

    def __init__(self, file):
        import graph_mate

        edges = numpy.column_stack(file.entries()).astype("u4")
        self.graph = graph_mate.DiGraph.from_numpy(edges, graph_mate.Layout.Sorted)
        self.vertices = file.vertices

    def pr(self):
        return self.graph.page_rank(max_iterations=ITERATIONS, tolerance=TOLERANCE, damping_factor=DAMPING)

    def cc(self):
        return self.graph.wcc()

    # The graph ends at the last vertex with an edge: those behind it have the score of a vertex without one, and each is a
    # component.
    def scores(self, found):
        scores = found.scores()
        missing = self.vertices - len(scores)
        return numpy.append(scores, numpy.full(missing, (1 - DAMPING) / len(scores)))

    def labels(self, found):
        labels = found.components().astype("i8")
        return numpy.append(labels, numpy.arange(len(labels), self.vertices))


def compare(kernel, ours, peer, found):
    """Whether the results are the same, and the peer's in a few words."""
    if kernel == "bfs":
        own, reached = ours.view("<u4") != NONE, peer.reached(found)
        return bool((own == reached).all()), f"{reached.sum()} reached"
    if kernel == "sssp":
        own, distances = ours.view("<u4").astype(float), peer.distances(found)
        own[own == NONE] = numpy.inf
        reached = distances[numpy.isfinite(distances)]
        return bool((own == distances).all()), f"{len(reached)} reached, distances sum up to {reached.sum():.0f}"
    if kernel == "cc":
        own, labels = ours.view("<u4").astype("i8"), peer.labels(found)
        count, counts = len(numpy.unique(labels)), len(numpy.unique(own))
        # As many pairs of labels as labels: each component of one is a component of the other.
        pairs = len(numpy.unique(own * (int(labels.max()) + 1) + labels))
        return count == counts == pairs, f"{count} components"
    return compare_scores(ours.view("<f4").astype(float), peer.scores(found))


def compare_scores(own, scores):
    """A peer may give the score of vertices without edges to all vertices, which multiplies all scores by one number: so both
    are divided by their sum. A change of less than the tolerance in the last iteration leaves scores at most tolerance * 0.85 /
    0.15 away from those that iterations end at, and dividing by the sum at most doubles that.
    """
    away = 2 * TOLERANCE * DAMPING / (1 - DAMPING) * (1 / own.sum() + 1 / scores.sum())
    distance = numpy.abs(own / own.sum() - scores / scores.sum()).sum()
    return bool(distance <= away), f"scores {distance:.1e} away in the L1 norm, {away:.1e} allowed"


PEERS = {"NetworKit": NetworKit, "igraph": Igraph, "SciPy": SciPy, "graph-mate": GraphMate}


def main(name, kernel, path, result, trials, *sources):
    begun = time.perf_counter()
    peer = PEERS[name](File(path))
    built = time.perf_counter() - begun
    arguments = [(int(source),) for source in sources] or [()] * int(trials)
    seconds = []
    for of in [arguments[0], *arguments]:
        peer.forget()
        begun = time.perf_counter()
        found = getattr(peer, kernel)(*of)
        seconds.append(time.perf_counter() - begun)
    same, words = compare(kernel, numpy.fromfile(result, "u1"), peer, found)
    version = importlib.metadata.version(peer.package)
    said = {"version": version, "built_s": built, "seconds": seconds[1:], "same": same, "result": words}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
