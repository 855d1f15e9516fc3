//! Edges of a list, of which tests make graphs.

use rayon::prelude::*;
use superpage_graph::build::{self, Direction, Edge, Edges};
use superpage_graph::{Graph, GraphPages, Progress, Result};

/// Edges of a list, which come in blocks on all threads.
pub(crate) struct Listed {
    pub(crate) edges: Vec<Edge>,
    pub(crate) vertices: u64,
    pub(crate) is_weighted: bool,
}

impl Edges for Listed {
    fn vertices(&self) -> Option<u64> {
        Some(self.vertices)
    }

    fn is_weighted(&self) -> bool {
        self.is_weighted
    }

    fn pass(&self, _: &Progress, each: &(dyn Fn(&[Edge]) + Sync)) -> Result<()> {
        self.edges.par_chunks(64).for_each(each);
        Ok(())
    }
}

/// The graph of edges, on base pages.
pub(crate) fn made(edges: &dyn Edges, direction: Direction) -> Graph {
    build::graph(edges, direction, GraphPages::default(), &Progress::default()).expect("a graph")
}
