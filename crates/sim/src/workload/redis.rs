//! What Redis does to its heap: inserting and deleting objects, through [`super::jemalloc`].
//!
//! Each function tells a listener which pages are touched and which are given back to the kernel, by
//! number from the start of the heap. Sizes and counts are the caller's.

use super::jemalloc::{Arena, Run};
use crate::random::Random;
use superpage_units::{BasePages, Bytes};

/// Something that happens to the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Redis writes these pages.
    Touch(Run),
    /// Redis gives these pages back (`madvise`).
    GiveBack(Run),
    /// An object was inserted or deleted.
    Request,
}

/// Hears of events; an error ends the program.
pub type Listener<'a, E> = &'a mut dyn FnMut(Event) -> Result<(), E>;

/// The memory that Redis takes beside its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Pages at the start of a chunk of the allocator that describe the others.
    pub header: BasePages,
    /// Bytes for each object: entry, key, header, slot of the table.
    pub entry: Bytes,
}

/// Values from this size on are read into a buffer that becomes the value (`PROTO_MBULK_BIG_ARG`).
const BIG_VALUE: Bytes = Bytes::from_kib(32);

/// Objects of one size, several of which fill a run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// Pages of a run.
    pub pages: BasePages,
    /// Objects in it.
    pub objects: u64,
}

impl Slab {
    /// Values of 4 KiB: with their header in the class of 5 KiB, four to five pages.
    pub const VALUE_4K: Self = Self { pages: BasePages(5), objects: 4 };
    /// Values of 8 KiB: with their header in the class of 10 KiB, two to five pages.
    pub const VALUE_8K: Self = Self { pages: BasePages(5), objects: 2 };
}

/// A heap of objects of one size.
#[derive(Debug)]
pub struct Equal {
    slab: Slab,
    entry: Bytes,
    arena: Arena,
    runs: Vec<Run>,
    /// Objects left in each run.
    left: Vec<u64>,
    inserted: u64,
    /// Bytes of the page that entries go to that are taken.
    entries: u64,
}

impl Equal {
    /// Nothing in it.
    #[must_use]
    pub fn new(slab: Slab, Overhead { header, entry }: Overhead) -> Self {
        let arena = Arena::new(header);
        Self { slab, entry, arena, runs: Vec::new(), left: Vec::new(), inserted: 0, entries: 0 }
    }

    /// Inserts so many objects.
    ///
    /// # Errors
    /// The listener's.
    pub fn insert<E>(&mut self, count: u64, listen: Listener<'_, E>) -> Result<(), E> {
        for _ in 0..count {
            let slot = self.inserted % self.slab.objects;
            if slot == 0 {
                self.runs.push(self.arena.run(self.slab.pages));
                self.left.push(0);
            }
            if let (Some(run), Some(left)) = (self.runs.last(), self.left.last_mut()) {
                *left += 1;
                let of = |object: u64| object * self.slab.pages.0 / self.slab.objects;
                let start = BasePages(run.start.0 + of(slot));
                let pages = BasePages((of(slot + 1) - of(slot)).max(1));
                listen(Event::Touch(Run { start, pages }))?;
            }
            insert_entry(&mut self.arena, self.entry, &mut self.entries, listen)?;
            self.inserted += 1;
            listen(Event::Request)?;
        }
        Ok(())
    }

    /// Deletes this share (0 to 1) of the objects, at random.
    ///
    /// # Errors
    /// The listener's.
    pub fn delete<E>(
        &mut self,
        share: f64,
        random: &mut Random,
        listen: Listener<'_, E>,
    ) -> Result<(), E> {
        for (run, left) in self.runs.iter().zip(&mut self.left) {
            let before = *left;
            for _ in 0..before {
                if random.share() < share {
                    *left -= 1;
                    listen(Event::Request)?;
                }
            }
            if before > 0 && *left == 0 {
                self.arena
                    .free(*run)
                    .into_iter()
                    .try_for_each(|run| listen(Event::GiveBack(run)))?;
            }
        }
        Ok(())
    }
}

/// An entry of the table: they fill pages densely.
fn insert_entry<E>(
    arena: &mut Arena,
    size: Bytes,
    taken: &mut u64,
    listen: Listener<'_, E>,
) -> Result<(), E> {
    let page = BasePages(1).bytes().0;
    if *taken == 0 || *taken + size.0 > page {
        *taken = 0;
        listen(Event::Touch(arena.run(BasePages(1))))?;
    }
    *taken += size.0;
    Ok(())
}

/// Values of random sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// How many.
    pub count: u64,
    /// The smallest and the largest; all alike in between.
    pub between: (Bytes, Bytes),
    /// The share (0 to 1) of the large ones that keep the buffer they were read into, which is
    /// twice as long (`sdsMakeRoomFor`): a large value that comes alone takes its buffer over, one
    /// with others behind it is copied.
    pub keep_buffer: f64,
}

/// Inserts values of random sizes.
///
/// # Errors
/// The listener's.
pub fn insert_random<E>(
    sizes: Sizes,
    overhead: Overhead,
    random: &mut Random,
    listen: Listener<'_, E>,
) -> Result<(), E> {
    let mut arena = Arena::new(overhead.header);
    let mut entries = 0;
    for _ in 0..sizes.count {
        let (least, most) = sizes.between;
        let size = Bytes(least.0 + random.below(most.0 - least.0));
        let keeps = size >= BIG_VALUE && random.share() < sizes.keep_buffer;
        let room = if keeps { size * 2 } else { size };
        let run = arena.large(room);
        listen(Event::Touch(Run { pages: size.to_base_pages(), ..run }))?;
        insert_entry(&mut arena, overhead.entry, &mut entries, listen)?;
        listen(Event::Request)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const OVERHEAD: Overhead = Overhead { header: BasePages(13), entry: Bytes(96) };

    /// Pages left after all events.
    fn collect(pages: &mut BTreeSet<u64>, event: Event) -> Result<(), ()> {
        let of = |run: Run| run.start.0..run.start.0 + run.pages.0;
        match event {
            Event::Touch(run) => pages.extend(of(run)),
            Event::GiveBack(run) => of(run).for_each(|page| {
                pages.remove(&page);
            }),
            Event::Request => {}
        }
        Ok(())
    }

    #[test]
    fn runs_go_back_when_all_their_objects_are_gone() {
        let mut pages = BTreeSet::new();
        let mut listen = |event| collect(&mut pages, event);
        let mut heap = Equal::new(Slab::VALUE_8K, OVERHEAD);
        heap.insert(10_000, &mut listen).unwrap();
        heap.delete(0.7, &mut Random::new(1), &mut listen).unwrap();
        // 49 % of the runs are free; an eighth of what is in use stays mapped for now.
        let values = 5000.0 * 5.0 * 0.51;
        let entries = 10_000.0 * 96.0 / 4032.0;
        let expected = (values + entries) * 1.125;
        let share = pages.len() as f64 / expected;
        assert!((share - 1.0).abs() < 0.02, "{} pages, not {expected}", pages.len());
    }

    #[test]
    fn kept_buffers_leave_half_of_the_memory_untouched() {
        let between = (Bytes(256), Bytes::from_mib(1));
        let touched_share = |keep_buffer: f64| {
            let mut pages = BTreeSet::new();
            let mut listen = |event| collect(&mut pages, event);
            let sizes = Sizes { count: 2000, between, keep_buffer };
            insert_random(sizes, OVERHEAD, &mut Random::new(1), &mut listen).unwrap();
            let last = pages.last().copied().unwrap_or(0) + 1;
            pages.len() as f64 / last as f64
        };
        let [none, all] = [0.0, 1.0].map(touched_share);
        assert!((0.85..0.95).contains(&none) && (0.4..0.5).contains(&all), "{none} {all}");
    }
}
