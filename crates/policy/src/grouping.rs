//! Degree-based grouping: the vertices of a graph by how many neighbours they have, in eight bins,
//! hottest first, so that what is accessed most lies together (section 5.1.2 of "The Implications
//! of Page Size Management on Graph Analytics"; from Faldu et al., "A Closer Look at Lightweight
//! Graph Reordering", IISWC 2019).
//!
//! Within a bin vertices keep their order, which the paper leaves open. Not here: graphs, files,
//! and the renaming of what edges lead to.

use alloc::vec::Vec;

/// The bins.
pub const BINS: usize = 8;
/// The least degree of each bin, over the mean degree.
const LEAST: [f64; BINS] = [32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.0];

/// The bin of a vertex with this degree, 0 the hottest; below [`BINS`].
#[must_use]
pub fn bin(degree: f64, mean: f64) -> usize {
    LEAST.iter().position(|least| degree >= least * mean).unwrap_or(BINS - 1)
}

/// The place of the first vertex of each bin, from how many vertices each has.
#[must_use]
pub fn starts(sizes: [u64; BINS]) -> [u64; BINS] {
    let mut next = 0;
    sizes.map(|size| {
        let start = next;
        next += size;
        start
    })
}

/// The new number of each vertex, from the degrees of all.
#[must_use]
pub fn renumbered(degrees: &[u64]) -> Vec<u64> {
    let total: u64 = degrees.iter().sum();
    let mean = total as f64 / degrees.len().max(1) as f64;
    let bin_of = |degree: &u64| bin(*degree as f64, mean);
    let mut sizes = [0; BINS];
    for degree in degrees {
        sizes[bin_of(degree)] += 1;
    }
    let mut next = starts(sizes);
    let place = |degree: &u64| {
        let next = &mut next[bin_of(degree)];
        *next += 1;
        *next - 1
    };
    degrees.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// The paper's rule, spelled out and slow: for each vertex, count those that come before it.
    fn model(degrees: &[u64]) -> Vec<u64> {
        let mean = degrees.iter().sum::<u64>() as f64 / degrees.len() as f64;
        let bin = |degree: u64| match degree as f64 / mean {
            d if d >= 32.0 => 0,
            d if d >= 16.0 => 1,
            d if d >= 8.0 => 2,
            d if d >= 4.0 => 3,
            d if d >= 2.0 => 4,
            d if d >= 1.0 => 5,
            d if d >= 0.5 => 6,
            _ => 7,
        };
        let before = |at: usize| {
            let own = (bin(degrees[at]), at);
            (0..degrees.len()).filter(|other| (bin(degrees[*other]), *other) < own).count() as u64
        };
        (0..degrees.len()).map(before).collect()
    }

    proptest! {
        #[test]
        fn it_does_what_the_slow_rule_does(
            degrees in prop::collection::vec(prop_oneof![0..4u64, 0..60u64, 0..4000u64], 1..120),
        ) {
            prop_assume!(degrees.iter().sum::<u64>() > 0);
            prop_assert_eq!(renumbered(&degrees), model(&degrees));
        }
    }

    #[test]
    fn borders_belong_to_the_hotter_bin() {
        let mean = 4.0;
        let degrees = [128.0, 127.0, 64.0, 32.0, 16.0, 8.0, 4.0, 3.9, 2.0, 1.9, 0.0];
        let bins = degrees.map(|degree| bin(degree, mean));
        assert_eq!(bins, [0, 1, 1, 2, 3, 4, 5, 6, 6, 7, 7]);
    }

    #[test]
    fn a_hub_comes_first_and_the_rest_keep_their_order() {
        let mut degrees = vec![1; 99];
        degrees[60] = 4000;
        let renumbered = renumbered(&degrees);
        assert_eq!(renumbered[60], 0);
        let rest = (0..99).filter(|vertex| *vertex != 60).map(|vertex| renumbered[vertex]);
        assert!(rest.eq(1..99));
    }

    #[test]
    fn a_graph_without_edges_stays_as_it_is() {
        assert_eq!(renumbered(&[0, 0, 0]), [0, 1, 2]);
        assert!(renumbered(&[]).is_empty());
        assert_eq!(starts([3, 0, 2, 0, 0, 0, 0, 7]), [0, 3, 3, 5, 5, 5, 5, 5]);
    }
}
