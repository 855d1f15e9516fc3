//! The algorithms ("kernels"), one file each: the parallel algorithm with its citation at the head, and its verifier, which
//! works another way and shares no code with it.
//!
//! A kernel works on the property arrays of its caller, which it fills first. `u32::MAX` stands for "none": no parent,
//! not reached. Frontier queues, bitmaps and buckets are ordinary heap memory, on whatever pages the system's THP
//! setting gives; bottom-up BFS reads its bitmap at random.

pub mod bfs;
pub mod components;
pub mod pagerank;
pub mod sssp;
mod support;
