//! XSBench: lookups of macroscopic cross sections in a unionised energy grid.
//!
//! After [XSBench](https://github.com/ANL-CESAR/XSBench) (Tramm and others, PHYSOR 2014), event-based, `-G
//! unionized`: a lookup draws an energy and a material, finds the energy among those of all nuclides by
//! binary search, and for each nuclide of the material reads from the row found where that energy is in
//! the nuclide's own grid, and interpolates between the two points there. 355 nuclides as in its sizes
//! from "large" up; grid points for each nuclide as many as the size asks for (it has 11,303 at 5.6 GB).
//!
//! Unlike it, which nuclides a material is made of is drawn, and concentrations are all 1.

use super::Work;
use crate::width::to_usize;
use crate::workload::rng::{Rng, mix};
use superpage_units::Bytes;

/// From "large" up.
const NUCLIDES: usize = 355;
/// Energy and five cross sections.
type Point = [f64; 6];
/// For each material (the first is fuel): the nuclides in it, from "large" up, and the share of lookups in
/// thousandths. From the source, `Materials.c`.
const MATERIALS: [(usize, u64); 12] = [
    (321, 140),
    (5, 52),
    (4, 275),
    (4, 134),
    (27, 154),
    (21, 64),
    (21, 66),
    (21, 55),
    (21, 8),
    (21, 15),
    (9, 25),
    (9, 13),
];
/// The bytes of a point of a nuclide: itself, its energy in the unionised grid, and a row of indices there.
const POINT: usize = size_of::<Point>() + size_of::<f64>() + NUCLIDES * size_of::<u32>();

pub(super) struct Xsbench {
    points: usize,
    /// The points of each nuclide in ascending order of energy, nuclide after nuclide.
    nuclides: Vec<Point>,
    /// The energies of all points, in ascending order.
    energies: Vec<f64>,
    /// For each of those energies and each nuclide the last of its points that is not above.
    indices: Vec<u32>,
    materials: Vec<Vec<usize>>,
}

/// Uniform in 0 to 1.
fn share(rng: &mut Rng) -> f64 {
    (rng.next() >> 11) as f64 / (1_u64 << 53) as f64
}

impl Xsbench {
    pub(super) fn build(size: Bytes) -> Self {
        let points = (to_usize(size.0) / POINT / NUCLIDES).max(2);
        let mut rng = Rng::new(points as u64);
        let mut nuclides: Vec<Point> =
            (0..points * NUCLIDES).map(|_| [(); 6].map(|()| share(&mut rng))).collect();
        for nuclide in nuclides.chunks_mut(points) {
            nuclide.sort_by(|a, b| a[0].total_cmp(&b[0]));
        }
        let mut union: Vec<(f64, usize)> =
            nuclides.iter().enumerate().map(|(at, point)| (point[0], at / points)).collect();
        union.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut indices = Vec::with_capacity(union.len() * NUCLIDES);
        // The index of a nuclide is 0 before its first point too.
        let (mut row, mut seen) = ([0_u32; NUCLIDES], [false; NUCLIDES]);
        for (_, nuclide) in &union {
            row[*nuclide] += u32::from(std::mem::replace(&mut seen[*nuclide], true));
            indices.extend_from_slice(&row);
        }
        let energies = union.into_iter().map(|(energy, _)| energy).collect();
        let drawn = |(count, _)| sample(&mut rng, count);
        let materials = MATERIALS.into_iter().map(drawn).collect();
        Self { points, nuclides, energies, indices, materials }
    }

    /// The macroscopic cross sections of a material.
    fn look_up(&self, energy: f64, material: usize) -> [f64; 5] {
        let above = self.energies.partition_point(|point| *point <= energy);
        let row = &self.indices[above.saturating_sub(1) * NUCLIDES..][..NUCLIDES];
        let mut sums = [0.0; 5];
        for nuclide in &self.materials[material] {
            let low = (row[*nuclide] as usize).min(self.points - 2);
            let [low, high] = [0, 1].map(|next| &self.nuclides[nuclide * self.points + low + next]);
            let share = (high[0] - energy) / (high[0] - low[0]);
            for (sum, (low, high)) in sums.iter_mut().zip(low[1..].iter().zip(&high[1..])) {
                *sum += high - share * (high - low);
            }
        }
        sums
    }
}

/// Draws so many nuclides, none twice.
fn sample(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..NUCLIDES).collect();
    (0..count).map(|_| left.swap_remove(to_usize(rng.below(left.len() as u64)))).collect()
}

fn draw_material(rng: &mut Rng) -> usize {
    let mut left = rng.below(MATERIALS.iter().map(|(_, share)| share).sum());
    let is_it = |(_, share): &(usize, u64)| {
        let is_it = left < *share;
        left = left.saturating_sub(*share);
        is_it
    };
    MATERIALS.iter().position(is_it).unwrap_or_default()
}

impl Work for Xsbench {
    /// As in the original, a lookup counts by which of the cross sections is the greatest.
    fn work(&mut self, operations: u64, seed: u64) -> u64 {
        let mut rng = Rng::new(mix(seed));
        (0..operations).fold(0, |sum: u64, _| {
            let (energy, material) = (share(&mut rng), draw_material(&mut rng));
            let found = self.look_up(energy, material);
            let greatest = (0..5).max_by(|a, b| found[*a].total_cmp(&found[*b])).unwrap_or(0);
            sum.wrapping_mul(5).wrapping_add(greatest as u64)
        })
    }

    /// The indices of some energies, by a search in each nuclide's own points.
    #[cfg(test)]
    fn check(&mut self) -> Result<(), String> {
        assert!(self.energies.is_sorted());
        for (at, row) in self.indices.chunks(NUCLIDES).enumerate().step_by(97) {
            for (nuclide, points) in self.nuclides.chunks(self.points).enumerate() {
                let not_above = points.partition_point(|point| point[0] <= self.energies[at]);
                if row[nuclide] as usize != not_above.saturating_sub(1) {
                    return Err(format!("row {at}, nuclide {nuclide}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_sections_lie_between_those_of_the_points_around() {
        // Enough points that all nuclides have some on both sides.
        let grid = Xsbench::build(Bytes::from_mib(64));
        let mut rng = Rng::new(3);
        for _ in 0..1000 {
            // Inside of all nuclides' grids.
            let energy = 0.25 + share(&mut rng) / 2.0;
            for (material, nuclides) in grid.materials.iter().enumerate() {
                let found = grid.look_up(energy, material);
                let (mut least, mut most) = ([0.0; 5], [0.0; 5]);
                for nuclide in nuclides {
                    let points = &grid.nuclides[nuclide * grid.points..][..grid.points];
                    let above = points.partition_point(|point| point[0] <= energy);
                    for section in 0..5 {
                        let ends = [points[above - 1][section + 1], points[above][section + 1]];
                        least[section] += ends[0].min(ends[1]);
                        most[section] += ends[0].max(ends[1]);
                    }
                }
                for section in 0..5 {
                    let (least, most) = (least[section] - 1e-9, most[section] + 1e-9);
                    assert!((least..=most).contains(&found[section]), "{material} {section}");
                }
            }
        }
    }

    #[test]
    fn materials_are_drawn_by_their_shares() {
        let mut rng = Rng::new(5);
        let mut counts = [0_u64; MATERIALS.len()];
        (0..1_000_000).for_each(|_| counts[draw_material(&mut rng)] += 1);
        let sum: u64 = MATERIALS.iter().map(|(_, share)| share).sum();
        for (count, (_, share)) in counts.into_iter().zip(MATERIALS) {
            let expected = 1_000_000 * share / sum;
            assert!(count.abs_diff(expected) < 2_500, "{count} of {expected}");
        }
        assert_eq!(
            sample(&mut rng, 321).into_iter().collect::<std::collections::BTreeSet<_>>().len(),
            321
        );
    }
}
