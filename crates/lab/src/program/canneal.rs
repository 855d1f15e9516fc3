//! Canneal: random swaps of a netlist's elements that shorten its wires.
//!
//! After canneal of [PARSEC](https://parsec.cs.princeton.edu) (Bienia and others, PACT 2008), one thread:
//! each step draws two elements and asks, by the places of all neighbours of both, what an exchange of their
//! places would cost; it is made if wires get shorter, or else with the probability exp(-cost / temperature).
//! As there an element's neighbours are lists of its own (malloc), and places a table of their own.
//!
//! Unlike it, the netlist is drawn and not read from a file, and the temperature does not fall: every step
//! reads the same, whether it exchanges or not.

use super::Work;
use crate::workload::rng::{Rng, mix};
use superpage_units::Bytes;

/// The wires into each element. Chosen.
const WIRES: usize = 4;
/// The temperature that the original begins with.
const TEMPERATURE: f64 = 2000.0;
/// The allocations of an element in glibc's malloc: 56 bytes of its own, a list of the wires into it (32), one
/// of those out of it (32 to 64), and a place.
const ELEMENT: Bytes = Bytes(136);

#[derive(Default)]
struct Element {
    place: u32,
    /// Elements from which wires come.
    wires_in: Vec<u32>,
    /// Elements to which wires go.
    wires_out: Vec<u32>,
}

pub(super) struct Canneal {
    elements: Vec<Element>,
    places: Vec<[i32; 2]>,
}

fn at<T>(table: &[T], index: u32) -> &T {
    &table[index as usize]
}

impl Canneal {
    pub(super) fn build(size: Bytes) -> Self {
        let count = u32::try_from(size.0 / ELEMENT.0).unwrap_or(u32::MAX);
        let mut rng = Rng::new(count.into());
        let width = count.isqrt().max(1);
        let coordinate = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let places = (0..count).map(|n| [coordinate(n % width), coordinate(n / width)]).collect();
        let mut elements: Vec<Element> = Vec::with_capacity(count as usize);
        elements.extend((0..count).map(|place| Element { place, ..Element::default() }));
        for to in 0..count {
            let wires: Vec<u32> = (0..WIRES).map(|_| draw(&mut rng, count)).collect();
            for from in &wires {
                elements[*from as usize].wires_out.push(to);
            }
            elements[to as usize].wires_in = wires;
        }
        Self { elements, places }
    }

    /// The length of an element's wires, were it at `place`, as the sum of both distances.
    fn length(&self, element: &Element, place: [i32; 2]) -> i64 {
        let wires = element.wires_in.iter().chain(&element.wires_out);
        wires.fold(0, |sum, other| {
            let other = at(&self.places, at(&self.elements, *other).place);
            let [x, y] = [0, 1].map(|axis| i64::from(place[axis].abs_diff(other[axis])));
            sum + x + y
        })
    }

    /// The length that all wires would gain if both changed places. Wires between the two are
    /// taken as if one of them stayed, as in the original.
    fn cost(&self, a: u32, b: u32) -> i64 {
        let [a, b] = [a, b].map(|element| at(&self.elements, element));
        let [at_a, at_b] = [a, b].map(|element| *at(&self.places, element.place));
        self.length(a, at_b) - self.length(a, at_a) + self.length(b, at_a) - self.length(b, at_b)
    }

    fn swap(&mut self, a: u32, b: u32) {
        let (a, b) = (a as usize, b as usize);
        let place = self.elements[a].place;
        self.elements[a].place = std::mem::replace(&mut self.elements[b].place, place);
    }
}

fn draw(rng: &mut Rng, below: u32) -> u32 {
    u32::try_from(rng.below(below.into())).unwrap_or_default()
}

impl Work for Canneal {
    fn work(&mut self, operations: u64, seed: u64) -> u64 {
        let mut rng = Rng::new(mix(seed));
        let count = u32::try_from(self.elements.len()).unwrap_or(u32::MAX);
        let mut length = 0_i64;
        for _ in 0..operations {
            let (a, b) = (draw(&mut rng, count), draw(&mut rng, count));
            let cost = self.cost(a, b);
            let chance = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64;
            if cost < 0 || chance < (-(cost as f64) / TEMPERATURE).exp() {
                self.swap(a, b);
                length += cost;
            }
        }
        length.cast_unsigned()
    }

    /// Every place is taken once, and every wire known at both its ends.
    #[cfg(test)]
    fn check(&mut self) -> Result<(), String> {
        let mut places: Vec<u32> = self.elements.iter().map(|element| element.place).collect();
        places.sort_unstable();
        if !places.into_iter().eq((0..).take(self.elements.len())) {
            return Err("a place is taken twice".into());
        }
        let wires = |list: fn(&Element) -> &Vec<u32>| {
            self.elements.iter().map(|element| list(element).len()).sum::<usize>()
        };
        let (into, out) = (wires(|one| &one.wires_in), wires(|one| &one.wires_out));
        let is_known = |(to, element): (u32, &Element)| {
            element.wires_in.iter().all(|from| at(&self.elements, *from).wires_out.contains(&to))
        };
        let right = into == out && (0..).zip(&self.elements).all(is_known);
        if right { Ok(()) } else { Err("a wire".into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of all wires, each from both its ends.
    fn total(netlist: &Canneal) -> i64 {
        let place = |element: &Element| *at(&netlist.places, element.place);
        netlist.elements.iter().map(|element| netlist.length(element, place(element))).sum()
    }

    #[test]
    fn what_a_swap_costs_is_what_it_adds_unless_both_are_neighbours() {
        let mut netlist = Canneal::build(Bytes::from_kib(64));
        let mut rng = Rng::new(1);
        let count = u32::try_from(netlist.elements.len()).expect("few");
        for _ in 0..100 {
            let (a, b) = (draw(&mut rng, count), draw(&mut rng, count));
            let of_a = at(&netlist.elements, a);
            let joined = of_a.wires_in.contains(&b) || of_a.wires_out.contains(&b);
            // A wire from an element to itself has no length, wherever it is.
            let to_itself = |one: u32| at(&netlist.elements, one).wires_in.contains(&one);
            if a == b || joined || to_itself(a) || to_itself(b) {
                continue;
            }
            let (before, cost) = (total(&netlist), netlist.cost(a, b));
            netlist.swap(a, b);
            assert_eq!(total(&netlist), before + 2 * cost);
        }
    }

    #[test]
    fn wires_get_shorter() {
        let mut netlist = Canneal::build(Bytes::from_mib(1));
        let before = total(&netlist);
        netlist.work(200_000, 1);
        assert!(total(&netlist) < before);
    }
}
