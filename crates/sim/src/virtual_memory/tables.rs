//! The upper part of a page table: which gibibytes of virtual memory have a table of slots.
//!
//! Simulated programs lay their VMAs close together, so tables stand in a row and are found by
//! their number; a program spread over the whole address space would need a real upper level.

use super::slot::{PAGES, Slot};

/// Slots in a table.
pub(super) const SLOTS: usize = PAGES as usize;

/// 1 GiB of virtual memory: one gigantic page, or 512 slots.
pub(super) type Table = Box<[Slot; SLOTS]>;

/// The tables of a process, by the number of their gibibyte.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    first: u64,
    tables: Vec<Option<Table>>,
}

impl Tables {
    fn position(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&Table> {
        self.tables.get(self.position(number)?)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Table> {
        let at = self.position(number)?;
        self.tables.get_mut(at)?.as_mut()
    }

    /// The table with this number, made if there is none.
    pub(super) fn make(&mut self, number: u64) -> &mut Table {
        if self.tables.is_empty() {
            self.first = number;
        }
        if number < self.first {
            let before = (number..self.first).map(|_| None);
            self.tables.splice(0..0, before);
            self.first = number;
        }
        let at = self.position(number).unwrap_or_default();
        if at >= self.tables.len() {
            self.tables.resize_with(at + 1, || None);
        }
        self.tables[at].get_or_insert_with(|| Box::new(std::array::from_fn(|_| Slot::default())))
    }

    /// All slots.
    pub(super) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.tables.iter_mut().flatten().flat_map(|table| table.iter_mut())
    }

    /// The tables from `number` on, with their numbers.
    pub(super) fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Table)> {
        let skip = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let numbered = (self.first..).zip(&self.tables).skip(skip);
        numbered.filter_map(|(number, table)| Some((number, table.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agree_with_an_ordered_set(
            made in prop::collection::vec(20u64..60, 0..20),
            probes in prop::collection::vec(0u64..80, 0..20)
        ) {
            let mut tables = Tables::default();
            let mut model = BTreeSet::new();
            for number in made {
                tables.make(number);
                model.insert(number);
            }
            for probe in probes {
                prop_assert_eq!(tables.get(probe).is_some(), model.contains(&probe));
                prop_assert_eq!(tables.get_mut(probe).is_some(), model.contains(&probe));
                let found: Vec<u64> = tables.from(probe).map(|(number, _)| number).collect();
                let expected: Vec<u64> = model.range(probe..).copied().collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
