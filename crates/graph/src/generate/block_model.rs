//! Graphs with hot vertices and communities: the degree-corrected stochastic block model of Karrer and Newman,
//! "Stochastic Blockmodels and Community Structure in Networks" (Physical Review E 2011).
//!
//! - Each vertex has an expected degree by a power law. Its least degree follows from the mean, its largest is the
//!   square root of all degrees' sum, above which two such vertices would expect more than one edge between them (Chung
//!   and Lu, "Connected Components in Random Graphs with Given Expected Degree Sequences", Annals of Combinatorics
//!   2002).
//! - Vertices of a community are numbered next to each other, in no order of degrees. So the graph has locality, which
//!   the Kronecker graph lacks, and which grouping by degree may destroy.
//! - The paper's synthetic networks mix a planted and a random model by a parameter λ, here [`BlockModel::within`]: so
//!   large a share of the edges has both ends in one community, chosen by its degrees; the others have ends
//!   anywhere, now and then in one community as well. Each end is a vertex of its community by the expected degrees.
//!
//! The builder leaves out loops and what is there twice, of which small communities with hot vertices have many: there
//! the hottest degrees, and the share within, come out lower than was asked.
//!
//! Memory: 8 bytes for each vertex while edges are drawn, and up to 8 more (for the communities that threads are at)
//! while that table is made, in each pass anew. The table is gone when the pass is over.

use super::alias::{self, Entry};
use super::random::{Stream, Use, fraction};
use super::{DEGREE, Drawn, SEED, WeightSource, Weights, check_size, vertex, vertices};
use crate::build::Edge;
use crate::error::{Error, Result};
use crate::width::to_usize;
use rayon::prelude::*;
use std::fmt;

/// The power law's exponent where nobody says another one. Chosen: those of large social and web graphs are mostly from
/// 2 to 2.5.
pub const EXPONENT: f64 = 2.2;
/// The share of edges within communities where nobody says another one. Chosen, not measured.
pub const WITHIN: f64 = 0.8;

/// A block model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockModel {
    /// There are 2^scale vertices.
    pub scale: u32,
    /// Edges that are drawn for each vertex.
    pub degree: u32,
    /// The same seed gives the same graph.
    pub seed: u64,
    /// Whether edges have weights.
    pub weights: Weights,
    /// The exponent of the power law of degrees: more than 1.
    pub exponent: f64,
    /// The number of communities.
    pub communities: u32,
    /// The share of the edges that stay within a community, from 0 to 1.
    pub within: f64,
}

impl BlockModel {
    /// A model with GAPBS's degree, and 2^(scale / 2) communities, the exponent rounded down.
    #[must_use]
    pub fn new(scale: u32) -> Self {
        Self {
            scale,
            degree: DEGREE,
            seed: SEED,
            weights: Weights::None,
            exponent: EXPONENT,
            communities: 1_u32.checked_shl(scale / 2).unwrap_or(1),
            within: WITHIN,
        }
    }

    /// Fails where its parameters make no graph.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self) -> Result<()> {
        check_size(self.scale, self.degree)?;
        let Self { exponent, communities, within, .. } = self;
        let vertices = vertices(self.scale);
        let what = if !(exponent.is_finite() && *exponent > 1.0) {
            format!(
                "a power law with exponent {exponent} has no degrees: the exponent is more than 1"
            )
        } else if *communities == 0 || u64::from(*communities) > vertices {
            format!(
                "{vertices} vertices cannot be in {communities} communities: there are from 1 to {vertices}"
            )
        } else if !(0.0..=1.0).contains(within) {
            format!("{within} is no share of the edges within communities: a share is from 0 to 1")
        } else {
            return Ok(());
        };
        Err(Error::Usage(what))
    }

    /// The first vertex of each community, and behind them the number of vertices. Each community has one vertex at
    /// least.
    #[must_use]
    pub fn borders(&self) -> Vec<u64> {
        let (vertices, communities) = (vertices(self.scale), u64::from(self.communities));
        (0..=communities).map(|before| before * vertices / communities).collect()
    }

    /// The power law of its degrees.
    fn law(&self) -> PowerLaw {
        // An undirected edge counts for both of its ends.
        let mean = 2.0 * f64::from(self.degree);
        PowerLaw::new(self.exponent, mean, (mean * vertices(self.scale) as f64).sqrt())
    }
}

impl fmt::Display for BlockModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scale, degree, seed, weights, exponent, communities, within } = self;
        let percent = (within * 1e4).round() / 1e2;
        write!(f, "block model, scale {scale}, degree {degree}, exponent {exponent}, ")?;
        write!(
            f,
            "{communities} communities of equal sizes with {percent}% of the edges within, {weights}, seed {seed}"
        )
    }
}

impl Drawn for BlockModel {
    fn size(&self) -> (u32, u32, Weights) {
        (self.scale, self.degree, self.weights)
    }

    fn check_all(&self) -> Result<()> {
        self.check()
    }

    fn drawing(&self) -> impl Fn(u64) -> Edge + Sync {
        let drawing = Drawing::new(self);
        move |edge| drawing.edge(edge)
    }
}

/// A power law of degrees with a least and a largest one: a bounded Pareto distribution. Degrees are shares of the
/// largest.
#[derive(Clone, Copy, Debug)]
struct PowerLaw {
    /// The exponent of the share of degrees above one: one less than that of their density.
    tail: f64,
    /// The logarithm of the largest degree over the least.
    width: f64,
}

/// The widest that a power law is. A wider one would come of an exponent next to 1 only, where most vertices have no
/// edge.
const WIDEST: f64 = 100.0;
/// Steps until a width is exact to the bit.
const STEPS: u32 = 64;

impl PowerLaw {
    /// The law whose mean is `mean` and whose largest degree is `most`; all degrees are alike where that is less.
    fn new(exponent: f64, mean: f64, most: f64) -> Self {
        let tail = exponent - 1.0;
        // The wider a law, the less is its mean beside the largest degree.
        let (mut narrow, mut wide) = (0.0, WIDEST);
        for _ in 0..STEPS {
            let width = (narrow + wide) / 2.0;
            let law = Self { tail, width };
            if law.mean() * most > mean {
                narrow = width;
            } else {
                wide = width;
            }
        }
        Self { tail, width: narrow }
    }

    /// The mean degree, as a share of the largest.
    fn mean(self) -> f64 {
        let Self { tail, width } = self;
        let slope = (1.0 - tail) * width;
        let integral = if slope.abs() < 1e-9 { width } else { slope.exp_m1() / (1.0 - tail) };
        (-width).exp() * tail * integral / self.span()
    }

    /// The degree that a share of all degrees, from 0 to 1, is less than: the inverse of the distribution.
    fn at(self, share: f64) -> f64 {
        let over_least = -(-share * self.span()).ln_1p() / self.tail;
        (over_least - self.width).exp()
    }

    /// The probability that an unbounded Pareto variable is within the bounds.
    fn span(self) -> f64 {
        -(-self.tail * self.width).exp_m1()
    }
}

/// Random numbers for each edge.
const DRAWS: u64 = 5;

/// The tables and streams that edges are drawn from.
struct Drawing {
    borders: Vec<u64>,
    /// Communities by their degrees' sums.
    communities: Vec<Entry>,
    /// Vertices by their degrees, for each community a table of its own.
    vertices: Vec<Entry>,
    within: f64,
    ends: Stream,
    weights: WeightSource,
}

impl Drawing {
    fn new(of: &BlockModel) -> Self {
        let borders = of.borders();
        let mut vertices = vec![Entry::default(); to_usize(vertices(of.scale))];
        let sums = fill(of, &borders, &mut vertices);
        let mut communities = vec![Entry::default(); sums.len()];
        alias::fill(&mut communities, &sums);
        Self {
            borders,
            communities,
            vertices,
            within: of.within,
            ends: Stream::new(of.seed, Use::Ends),
            weights: WeightSource::new(of.weights, of.seed),
        }
    }

    #[inline]
    fn edge(&self, edge: u64) -> Edge {
        let first = edge.wrapping_mul(DRAWS);
        let random = |draw| self.ends.at(first.wrapping_add(draw));
        let community = alias::draw(&self.communities, random(0));
        let anywhere = alias::draw(&self.communities, random(2));
        let other =
            std::hint::select_unpredictable(fraction(random(1)) < self.within, community, anywhere);
        let (from, to) = (self.member(community, random(3)), self.member(other, random(4)));
        Edge { from: vertex(from), to: vertex(to), weight: self.weights.of(edge) }
    }

    /// A vertex of a community.
    #[inline]
    fn member(&self, community: u64, random: u64) -> u64 {
        let at = to_usize(community);
        let (first, end) = (self.borders[at], self.borders[at + 1]);
        first + alias::draw(&self.vertices[to_usize(first)..to_usize(end)], random)
    }
}

/// Makes the table of each community. Returns the sums of their expected degrees.
fn fill(of: &BlockModel, borders: &[u64], entries: &mut [Entry]) -> Vec<f64> {
    let mut rest = entries;
    let mut tables = Vec::with_capacity(borders.len());
    for ends in borders.windows(2) {
        let (table, others) = std::mem::take(&mut rest).split_at_mut(to_usize(ends[1] - ends[0]));
        tables.push((ends[0], table));
        rest = others;
    }
    let law = of.law();
    let random = Stream::new(of.seed, Use::Degrees);
    let fill_one = |degrees: &mut Vec<f64>, (first, table): (u64, &mut [Entry])| {
        let end = first + table.len() as u64;
        degrees.clear();
        degrees.extend((first..end).map(|vertex| law.at(fraction(random.at(vertex)))));
        alias::fill(table, degrees);
        degrees.iter().sum()
    };
    tables.into_par_iter().map_init(Vec::new, fill_one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::edges;
    use super::*;
    use proptest::prelude::*;

    fn refusal(of: &BlockModel) -> String {
        match of.check() {
            Err(Error::Usage(what)) => what,
            other => panic!("{of:?}: {other:?}"),
        }
    }

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        let usual = BlockModel::new(10);
        assert!(usual.check().is_ok());
        for exponent in [1.0, 0.5, -2.2, f64::NAN, f64::INFINITY] {
            let what = refusal(&BlockModel { exponent, ..usual });
            assert_eq!(
                what,
                format!(
                    "a power law with exponent {exponent} has no degrees: the exponent is more than 1"
                )
            );
        }
        for within in [-0.1, 1.1, f64::NAN] {
            let what = refusal(&BlockModel { within, ..usual });
            assert!(what.ends_with("a share is from 0 to 1"), "{what}");
        }
        for communities in [0, 1025] {
            let what = refusal(&BlockModel { communities, ..usual });
            assert_eq!(
                what,
                format!(
                    "1024 vertices cannot be in {communities} communities: there are from 1 to 1024"
                )
            );
        }
        assert!(refusal(&BlockModel::new(0)).starts_with("a graph of scale 0"));
        assert!(refusal(&BlockModel { degree: 0, ..usual }).starts_with("a graph of degree 0"));
    }

    proptest! {
        #[test]
        fn each_vertex_has_a_community(scale in 1..12_u32, part in 0..4096_u32) {
            let vertices = 1_u64 << scale;
            let communities = 1 + (part >> (12 - scale));
            let borders = BlockModel { communities, ..BlockModel::new(scale) }.borders();
            prop_assert_eq!(borders.len(), communities as usize + 1);
            prop_assert_eq!((borders.first(), borders.last()), (Some(&0), Some(&vertices)));
            let found: Vec<_> = borders.windows(2).map(|ends| ends[1] - ends[0]).collect();
            prop_assert!(borders.is_sorted() && found.iter().all(|size| *size >= 1));
            let (least, most) = (found.iter().min(), found.iter().max());
            prop_assert!(most <= least.map(|least| least + 1).as_ref());
        }

        #[test]
        fn a_law_has_the_mean_that_was_asked(
            exponent in 1.2..4.0_f64,
            mean in 1.0..100.0_f64,
            over in 2.0..1000.0_f64,
        ) {
            let law = PowerLaw::new(exponent, mean, mean * over);
            prop_assume!(law.width < WIDEST * 0.99);
            // Without the formula: the middle of each of many shares.
            let parts = 200_000;
            let sum: f64 = (0..parts).map(|part| law.at((f64::from(part) + 0.5) / f64::from(parts))).sum();
            let found = sum / f64::from(parts) * mean * over;
            prop_assert!((found / mean - 1.0).abs() < 0.02, "{found} for {mean}");
        }
    }

    #[test]
    fn a_law_goes_from_the_least_to_the_largest() {
        for exponent in [1.5, 2.0, 2.2, 3.0] {
            let law = PowerLaw::new(exponent, 32.0, 4096.0);
            let (least, most) = (law.at(0.0) * 4096.0, law.at(1.0) * 4096.0);
            assert!(
                least > 0.1 && least < 32.0 && (most / 4096.0 - 1.0).abs() < 1e-6,
                "{exponent}: {least} {most}"
            );
            // The density of degrees falls by the power that the exponent says.
            let density = |degree: f64| {
                let share_below = |degree: f64| {
                    let (mut low, mut high) = (0.0, 1.0);
                    for _ in 0..50 {
                        let middle = (low + high) / 2.0;
                        if law.at(middle) * 4096.0 < degree { low = middle } else { high = middle }
                    }
                    low
                };
                (share_below(degree * 1.01) - share_below(degree)) / (degree * 0.01)
            };
            let found = (density(50.0) / density(500.0)).log10();
            assert!((found - exponent).abs() < 0.01, "{found} for {exponent}");
        }
        let alike = PowerLaw::new(2.2, 32.0, 8.0);
        assert_eq!([alike.at(0.0), alike.at(0.99)], [1.0, 1.0]);
    }

    #[test]
    fn ends_follow_the_expected_degrees() {
        let model = BlockModel { degree: 64, communities: 4, ..BlockModel::new(10) };
        let drawing = Drawing::new(&model);
        let mut counts = vec![0_u32; 1024];
        let all = edges(model.scale, model.degree);
        for edge in 0..all {
            let Edge { from, to, .. } = drawing.edge(edge);
            counts[from as usize] += 1;
            counts[to as usize] += 1;
        }
        let (law, random) = (model.law(), Stream::new(model.seed, Use::Degrees));
        let expected: Vec<_> =
            (0..1024).map(|vertex| law.at(fraction(random.at(vertex)))).collect();
        let sum: f64 = expected.iter().sum();
        for (count, expected) in counts.iter().zip(expected) {
            let expected = expected / sum * 2.0 * all as f64;
            let deviation = expected.sqrt();
            assert!(
                (f64::from(*count) - expected).abs() < 6.0 * deviation,
                "{count} for {expected}"
            );
        }
    }

    #[test]
    fn edges_stay_within_communities_as_often_as_they_should() {
        for (within, communities) in [(0.8, 16), (0.3, 64), (0.0, 64), (1.0, 64)] {
            let model = BlockModel { within, communities, ..BlockModel::new(12) };
            let drawing = Drawing::new(&model);
            let borders = model.borders();
            let community =
                |vertex: u32| borders.partition_point(|border| *border <= u64::from(vertex));
            let is_within = |edge: &u64| {
                let Edge { from, to, .. } = drawing.edge(*edge);
                community(from) == community(to)
            };
            let all = edges(model.scale, model.degree);
            let found = (0..all).filter(is_within).count() as f64 / all as f64;
            // Some of the edges that may go anywhere stay in a community, too.
            let sums = fill(&model, &borders, &mut vec![Entry::default(); 1 << 12]);
            let sum: f64 = sums.iter().sum();
            let by_chance: f64 = sums.iter().map(|own| (own / sum).powi(2)).sum();
            let expected = within + (1.0 - within) * by_chance;
            assert!((found - expected).abs() < 0.01, "{found} for {expected}");
        }
    }
}
