//! A queue that holds each item once.

use alloc::collections::{BTreeSet, VecDeque};

/// First in, first out, without duplicates.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    order: VecDeque<T>,
    members: BTreeSet<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), members: BTreeSet::new() }
    }
}

impl<T: Copy + Ord> Queue<T> {
    /// Adds it at the end, unless it is in already.
    pub(super) fn push_back(&mut self, item: T) {
        if self.members.insert(item) {
            self.order.push_back(item);
        }
    }

    /// Puts it first, unless it is in already.
    pub(super) fn push_front(&mut self, item: T) {
        if self.members.insert(item) {
            self.order.push_front(item);
        }
    }

    /// Takes the first.
    pub(super) fn pop_front(&mut self) -> Option<T> {
        let item = self.order.pop_front()?;
        self.members.remove(&item);
        Some(item)
    }

    /// Takes all others out.
    pub(super) fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.order.retain(&stays);
        self.members.retain(&stays);
    }

    /// How many are in.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_in_once_and_comes_out_in_order() {
        let mut queue = Queue::default();
        for item in [3, 1, 3, 2] {
            queue.push_back(item);
        }
        queue.push_front(1);
        queue.push_front(4);
        assert_eq!(queue.len(), 4);
        let order: alloc::vec::Vec<_> = core::iter::from_fn(|| queue.pop_front()).collect();
        assert_eq!(order, [4, 3, 1, 2]);
        queue.push_back(3);
        queue.push_back(4);
        queue.push_back(5);
        queue.retain(|item| *item != 4);
        assert_eq!((queue.len(), queue.pop_front(), queue.pop_front()), (2, Some(3), Some(5)));
    }
}
