//! Graphs on chosen pages: "The Implications of Page Size Management on Graph Analytics" (IISWC 2022), on real memory.
//!
//! A [`Graph`] is what the paper's section 2.1.1 has: a vertex array, an edge array and a values array in compressed sparse
//! rows, each on the pages that were asked for ([`superpage_array`]). [`mod@format`] reads and writes files, [`generate`] makes
//! graphs, [`build`] makes compressed rows of either, [`order`] renumbers vertices so that those that are touched most lie
//! together, [`kernel`] has the algorithms. The property array, which a kernel touches at random, is the caller's, who makes
//! it before the graph to give it huge pages first (section 5.1.1).
//!
//! Building, reading, renumbering and kernels run on the caller's rayon pool; reading adds one thread that waits for
//! the disk. Writers and verifiers are serial. Nothing prints.

mod atomic;
pub mod build;
mod direct;
pub mod error;
pub mod format;
pub mod generate;
pub mod graph;
pub mod kernel;
mod need;
pub mod order;
mod progress;
mod width;

pub use build::{Direction, Edge, Edges};
pub use direct::PageCache;
pub use error::{Error, Result};
pub use graph::{Adjacency, Graph, GraphPages, Vertex, Weight};
pub use need::Beside;
pub use progress::Progress;
