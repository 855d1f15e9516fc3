//! The pages of the areas that are the program's: where a new mapping goes, and whether a slot is full.
//!
//! The areas are one reservation, cut into slots of 1 GiB. Mappings of the program are packed into slots,
//! because only a slot that is full of plain memory can be mapped by a gigantic page. This is a bitmap
//! and says nothing of what the kernel has mapped.

use crate::sys::{GIGANTIC, PAGE, Span};
use core::ops::Range;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Base pages in a slot.
pub(crate) const PAGES: usize = GIGANTIC / PAGE;
const WORDS: usize = PAGES / 64;
/// The free pages that a slot may have when it is promoted: holes that mappings of the program have left. A sixteenth is memory that the
/// gigantic page takes for nothing. A program that had given back every twentieth of its blocks of 3 MB got 2 GiB on gigantic pages with
/// this, and none without; with a quarter, one that went on to map and unmap had 4 GiB promoted, of which 3 were demoted again.
const MOST_FREE: usize = PAGES / 16;

/// The use that the program has of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing: it may be given to a new mapping.
    Free,
    /// Private anonymous memory that nobody may read or write (PROT_NONE), and that never could be: it holds nothing.
    Reserved,
    /// Private anonymous memory that may hold something, with a protection other than [`Use::Plain`].
    Protected,
    /// Private anonymous memory that may be read and written, with nothing special asked of it.
    Plain,
    /// Anything else, such as a file, until it is unmapped.
    Special,
}

impl Use {
    /// The two bits that a page has of it, beside the one that tells what is reserved from what is protected.
    const fn bits(self) -> (bool, bool) {
        match self {
            Self::Free => (false, false),
            Self::Reserved | Self::Protected => (true, false),
            Self::Plain => (true, true),
            Self::Special => (false, true),
        }
    }
}

/// The pages of a span that get another use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// All of them.
    All,
    /// All but the special ones.
    AllButSpecial,
    /// All but the special and the reserved ones.
    Used,
}

/// The pages of a slot.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SlotPages {
    /// Set for private anonymous memory.
    anonymous: [u64; WORDS],
    /// Set for plain memory, and, of what is not anonymous, for special memory.
    marked: [u64; WORDS],
    /// Set for what is reserved.
    reserved: [u64; WORDS],
    taken_count: u32,
    plain_count: u32,
    reserved_count: u32,
    /// The pages that were emptied in place, counted each time.
    emptied_count: AtomicUsize,
    /// Whether the program may have touched memory in it since the slot was wholly free.
    may_hold: bool,
}

/// A set of pages of a slot, by the two bits of a page.
type Pages = fn(u64, u64) -> u64;

const TAKEN: Pages = |anonymous, marked| anonymous | marked;
const FREE: Pages = |anonymous, marked| !(anonymous | marked);
const PLAIN: Pages = |anonymous, marked| anonymous & marked;
const NOT_PLAIN: Pages = |anonymous, marked| !(anonymous & marked);

impl SlotPages {
    /// Whether no page of it is the program's.
    pub(crate) fn is_free(&self) -> bool {
        self.taken_count == 0
    }

    /// Whether all of it is the program's plain memory.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain_count as usize == PAGES
    }

    /// Whether a gigantic page may map it: nothing in it is other than plain or free, and little of it is free.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.taken_count == self.plain_count && self.plain_count as usize >= PAGES - MOST_FREE
    }

    /// Sets the use of pages.
    fn set(&mut self, pages: Range<usize>, used: Use, which: Which) {
        // A slot that becomes plain in one step is asked for by `Space::take_untouched` before the program
        // hears of it.
        self.may_hold |= match used {
            Use::Free | Use::Reserved => false,
            Use::Plain => pages.len() < PAGES,
            Use::Protected | Use::Special => true,
        };
        let (anonymous, marked) = used.bits();
        for (index, mask) in masks(pages) {
            let words = (&mut self.anonymous, &mut self.marked, &mut self.reserved);
            let (Some(a), Some(m), Some(r)) =
                (words.0.get_mut(index), words.1.get_mut(index), words.2.get_mut(index))
            else {
                continue;
            };
            let mask = match which {
                Which::All => mask,
                Which::AllButSpecial => mask & !(!*a & *m),
                Which::Used => mask & !(!*a & *m) & !*r,
            };
            let before = [TAKEN(*a, *m), PLAIN(*a, *m), *r].map(u64::count_ones);
            *a = if anonymous { *a | mask } else { *a & !mask };
            *m = if marked { *m | mask } else { *m & !mask };
            *r = match (used, which) {
                (Use::Reserved, Which::All) => *r | mask,
                // A page that is protected so may hold something, unless it was reserved before.
                (Use::Reserved, Which::AllButSpecial | Which::Used) => *r,
                _ => *r & !mask,
            };
            let after = [TAKEN(*a, *m), PLAIN(*a, *m), *r].map(u64::count_ones);
            self.taken_count = self.taken_count + after[0] - before[0];
            self.plain_count = self.plain_count + after[1] - before[1];
            self.reserved_count = self.reserved_count + after[2] - before[2];
        }
        self.may_hold &= !self.is_free();
    }

    /// The first page of this kind among these.
    fn first(&self, which: Pages, pages: Range<usize>) -> Option<usize> {
        masks(pages).find_map(|(index, mask)| {
            let found = which(*self.anonymous.get(index)?, *self.marked.get(index)?) & mask;
            (found != 0).then(|| index * 64 + found.trailing_zeros() as usize)
        })
    }

    /// The free pages at its end.
    fn free_at_end(&self) -> usize {
        let words = self.anonymous.iter().zip(&self.marked).rev();
        let taken = words.map(|(anonymous, marked)| TAKEN(*anonymous, *marked));
        let mut free = 0;
        for word in taken {
            free += word.leading_zeros() as usize;
            if word != 0 {
                break;
            }
        }
        free
    }

    /// Asserts that what is derived from the two bits of each page is what the bits say.
    #[cfg(test)]
    fn check(&self) {
        let (mut taken, mut plain) = (0, 0);
        for (anonymous, marked) in self.anonymous.iter().zip(&self.marked) {
            taken += (anonymous | marked).count_ones();
            plain += (anonymous & marked).count_ones();
        }
        assert_eq!(self.taken_count, taken, "the pages that are taken");
        assert_eq!(self.plain_count, plain, "the pages that are plain");
        let reserved = self.reserved.iter().map(|word| word.count_ones()).sum::<u32>();
        assert_eq!(self.reserved_count, reserved, "the pages that are reserved");
        let bits = self.anonymous.iter().zip(&self.marked).zip(&self.reserved);
        assert!(
            bits.into_iter().all(|((a, m), r)| r & !(a & !m) == 0),
            "what is reserved is so alone"
        );
        assert!(!self.may_hold || !self.is_free(), "a slot that is free holds nothing");
        let emptied = self.emptied_count.load(Relaxed);
        assert!(emptied < PAGES / 2, "the count of emptied pages begins anew at half a GiB");
    }

    /// The first run of so many free pages.
    fn find(&self, pages: usize) -> Option<usize> {
        if PAGES - (self.taken_count as usize) < pages {
            return None;
        }
        let mut start = 0;
        while start + pages <= PAGES {
            match self.first(TAKEN, start..start + pages) {
                None => return Some(start),
                Some(taken) => start = self.first(FREE, taken..PAGES)?,
            }
        }
        None
    }
}

/// The words that hold these bits, each with the mask of its part.
fn masks(bits: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = bits.start / 64..bits.end.div_ceil(64);
    words.map(move |word| {
        let low = bits.start.saturating_sub(word * 64).min(64);
        let high = (bits.end - word * 64).min(64);
        let below = |bit: usize| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
        (word, below(high) & !below(low))
    })
}

/// A slot that was given up.
static GIVEN_UP: SlotPages = SlotPages {
    anonymous: [0; WORDS],
    marked: [u64::MAX; WORDS],
    reserved: [0; WORDS],
    taken_count: 0,
    plain_count: 0,
    reserved_count: 0,
    emptied_count: AtomicUsize::new(0),
    may_hold: true,
};

/// The areas, as the program's mappings fill them.
#[derive(Debug)]
pub(crate) struct Space {
    base: usize,
    slots: &'static mut [SlotPages],
    /// Behind `slots` the number of slots that were given up, and those behind them: of the former nothing is kept.
    given_up: usize,
    behind: &'static mut [SlotPages],
    /// Pages that are the program's, and those of them that are reserved.
    taken: usize,
    reserved: usize,
    is_closed: bool,
}

impl Space {
    /// Areas that begin at `base`, a multiple of 1 GiB, all free: the slots are all zero.
    pub(crate) fn new(base: usize, slots: &'static mut [SlotPages]) -> Self {
        Self { base, slots, given_up: 0, behind: &mut [], taken: 0, reserved: 0, is_closed: false }
    }

    /// Asserts that what is derived from the slots is what they say, and that each of them is sound.
    #[cfg(test)]
    fn check(&self) {
        let slots = || self.slots.iter().chain(self.behind.iter());
        slots().for_each(SlotPages::check);
        let taken: usize = slots().map(|slot| slot.taken_count as usize).sum();
        assert_eq!(self.taken, taken, "the pages that are taken");
        let reserved: usize = slots().map(|slot| slot.reserved_count as usize).sum();
        assert_eq!(self.reserved, reserved, "the pages that are reserved");
        assert!(self.base.is_multiple_of(GIGANTIC), "slots begin at multiples of 1 GiB");
        assert!(self.given_up > 0 || self.behind.is_empty(), "nothing lies behind nothing");
    }

    /// From now on nothing is placed.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Gives up the longest run of slots in which the program has nothing: these slots, and the place in memory of what was
    /// kept of them, in whole pages.
    pub(crate) fn give_up(&mut self) -> (Span, Span) {
        let mut longest = 0..0;
        let mut start = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            if !slot.is_free() {
                start = index + 1;
            } else if index + 1 - start > longest.len() {
                longest = start..index + 1;
            }
        }
        let given_up =
            Span { start: self.base + longest.start * GIGANTIC, length: longest.len() * GIGANTIC };
        if longest.is_empty() || self.given_up > 0 {
            return (Span { length: 0, ..given_up }, Span { start: 0, length: 0 });
        }
        let (before, rest) = core::mem::take(&mut self.slots).split_at_mut(longest.start);
        let (entries, behind) = rest.split_at_mut(longest.len());
        (self.slots, self.given_up, self.behind) = (before, longest.len(), behind);
        let entries = entries.as_ptr_range();
        let start = entries.start.addr().next_multiple_of(PAGE);
        let end = entries.end.addr() / PAGE * PAGE;
        (given_up, Span { start, length: end.saturating_sub(start) })
    }

    /// Whether nothing is placed any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// All of it.
    pub(crate) fn span(&self) -> Span {
        let count = self.slots.len() + self.given_up + self.behind.len();
        Span { start: self.base, length: count * GIGANTIC }
    }

    /// A slot.
    pub(crate) fn slot(&self, index: usize) -> Option<&SlotPages> {
        self.slots.get(index).or_else(|| {
            let index = index - self.slots.len();
            if index < self.given_up {
                Some(&GIVEN_UP)
            } else {
                self.behind.get(index - self.given_up)
            }
        })
    }

    /// As [`Space::slot`], to be changed; nothing of one that was given up, which stays so.
    fn slot_mut(&mut self, index: usize) -> Option<&mut SlotPages> {
        let behind = index.checked_sub(self.slots.len() + self.given_up);
        match behind {
            Some(index) => self.behind.get_mut(index),
            None => self.slots.get_mut(index),
        }
    }

    /// The slots that a span in the areas touches.
    pub(crate) fn slots_of(&self, span: Span) -> Range<usize> {
        (span.start - self.base) / GIGANTIC..(span.end() - self.base).div_ceil(GIGANTIC)
    }

    /// Notes that a part of a slot was emptied by writing zeroes; whether half a GiB has been by now, the same pages
    /// counted each time. It counts from the beginning then.
    pub(crate) fn note_emptied(&self, index: usize, part: Span) -> bool {
        let Some(slot) = self.slot(index) else { return false };
        let pages = part.length / PAGE;
        let is_half = slot.emptied_count.fetch_add(pages, Relaxed) + pages >= PAGES / 2;
        if is_half {
            self.forget_emptied(index);
        }
        is_half
    }

    /// Notes that a slot has lost its gigantic page.
    pub(crate) fn forget_emptied(&self, index: usize) {
        if let Some(slot) = self.slot(index) {
            slot.emptied_count.store(0, Relaxed);
        }
    }

    /// Whether the slot has just become the program's plain memory in one step, and holds nothing yet. It
    /// is told once: from then on the program may touch it.
    pub(crate) fn take_untouched(&mut self, index: usize) -> bool {
        let Some(slot) = self.slot_mut(index) else { return false };
        slot.is_plain() && !core::mem::replace(&mut slot.may_hold, true)
    }

    /// Room for a new mapping of so many bytes: at `hint` if that is free, else where it fits first. From
    /// 1 GiB on it begins with a slot, the last that are free; smaller ones are packed from the front, in slots
    /// that `may` have it.
    pub(crate) fn find(
        &self,
        length: usize,
        hint: usize,
        may: &dyn Fn(usize) -> bool,
    ) -> Option<Span> {
        if self.is_closed {
            return None;
        }
        let hinted = Span { start: hint, length };
        if self.is_free(hinted) && self.slots_of(hinted).all(may) {
            return Some(hinted);
        }
        let is_whole = length >= GIGANTIC;
        let start = if is_whole { self.whole(length) } else { self.packed(length, may) }?;
        Some(Span { start, length })
    }

    fn whole(&self, length: usize) -> Option<usize> {
        let wanted = length.div_ceil(GIGANTIC);
        let mut run = 0;
        for (index, slot) in self.slots.iter().enumerate().rev() {
            run = if slot.is_free() { run + 1 } else { 0 };
            if run == wanted {
                return Some(self.base + index * GIGANTIC);
            }
        }
        None
    }

    /// Side by side, without regard to huge pages: those lie across neighbours, and a hole between two would keep
    /// the slot from ever being full.
    fn packed(&self, length: usize, may: &dyn Fn(usize) -> bool) -> Option<usize> {
        let pages = length / PAGE;
        let found = |(index, slot): (usize, &SlotPages)| {
            let across = || {
                let free = slot.free_at_end();
                let next = self.slots.get(index + 1).filter(|_| free > 0)?;
                next.first(TAKEN, 0..pages - free).is_none().then_some(PAGES - free)
            };
            let page = slot.find(pages).or_else(across)?;
            let end = (index * PAGES + page + pages).div_ceil(PAGES);
            (index..end).all(may).then_some(self.base + index * GIGANTIC + page * PAGE)
        };
        self.slots.iter().enumerate().find_map(found)
    }

    /// Whether any page of a span in the areas is free, so that the program has nothing there.
    pub(crate) fn has_free(&self, span: Span) -> bool {
        self.parts(span).any(|(index, pages)| {
            self.slot(index).is_none_or(|slot| slot.first(FREE, pages).is_some())
        })
    }

    /// The first part of a span in the areas that the program has, without a hole in it.
    pub(crate) fn first_run(&self, span: Span) -> Option<Span> {
        let address = |(slot, page): (usize, usize)| self.base + slot * GIGANTIC + page * PAGE;
        let start = address(self.first(TAKEN, span)?);
        let rest = Span { start, length: span.end() - start };
        let end = self.first(FREE, rest).map_or(span.end(), address);
        Some(Span { start, length: end - start })
    }

    fn first(&self, which: Pages, span: Span) -> Option<(usize, usize)> {
        self.parts(span)
            .find_map(|(index, pages)| Some((index, self.slot(index)?.first(which, pages)?)))
    }

    /// Whether all of a span in the areas is the program's plain memory.
    pub(crate) fn is_plain(&self, span: Span) -> bool {
        self.parts(span).all(|(index, pages)| {
            self.slot(index).is_some_and(|slot| slot.first(NOT_PLAIN, pages).is_none())
        })
    }

    /// Whether all of a span lies in the areas and is free.
    pub(crate) fn is_free(&self, span: Span) -> bool {
        self.span().overlap(span) == Some(span)
            && self.parts(span).all(|(index, pages)| {
                self.slot(index).is_some_and(|slot| slot.first(TAKEN, pages).is_none())
            })
    }

    /// Whether the program has nothing in a slot but in this part of it.
    pub(crate) fn is_all_of(&self, index: usize, part: Span) -> bool {
        let slot = Span::gigantic(self.base + index * GIGANTIC);
        let others = [
            Span { start: slot.start, length: part.start - slot.start },
            Span { start: part.end(), length: slot.end() - part.end() },
        ];
        others.into_iter().all(|other| self.first(TAKEN, other).is_none())
    }

    /// The runs of free pages of a slot.
    pub(crate) fn free_runs(&self, index: usize) -> impl Iterator<Item = Span> {
        let base = self.base + index * GIGANTIC;
        let mut from = 0;
        core::iter::from_fn(move || {
            let slot = self.slot(index)?;
            let start = slot.first(FREE, from..PAGES)?;
            from = slot.first(TAKEN, start..PAGES).unwrap_or(PAGES);
            Some(Span { start: base + start * PAGE, length: (from - start) * PAGE })
        })
    }

    /// Notes what the program has of a span in the areas, which was mapped or unmapped.
    pub(crate) fn set(&mut self, span: Span, used: Use) {
        self.change(span, used, Which::All);
    }

    /// Notes that a span in the areas has another protection now. What is special stays so, and what is to be reserved is protected,
    /// unless it was reserved before: it may hold something.
    pub(crate) fn protect(&mut self, span: Span, used: Use) {
        self.change(span, used, Which::AllButSpecial);
    }

    /// Notes that something was asked of the kernel for a span in the areas. What is reserved still holds nothing.
    pub(crate) fn set_apart(&mut self, span: Span) {
        self.change(span, Use::Protected, Which::Used);
    }

    fn change(&mut self, span: Span, used: Use, which: Which) {
        for (index, pages) in self.parts(span) {
            if let Some(slot) = self.slot_mut(index) {
                let counts = |slot: &SlotPages| {
                    [slot.taken_count, slot.reserved_count].map(|it| it as usize)
                };
                let before = counts(slot);
                slot.set(pages, used, which);
                let after = counts(slot);
                self.taken = self.taken + after[0] - before[0];
                self.reserved = self.reserved + after[1] - before[1];
            }
        }
    }

    /// The slots that a span in the areas touches, and which of their pages.
    fn parts(&self, span: Span) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let first = (span.start - self.base) / PAGE;
        let last = (span.end() - self.base) / PAGE;
        self.slots_of(span).map(move |index| {
            let start = index * PAGES;
            (index, first.saturating_sub(start)..(last - start).min(PAGES))
        })
    }

    /// The bytes that are the program's.
    pub(crate) fn taken(&self) -> usize {
        self.taken * PAGE
    }

    /// The bytes that are the program's and reserved, so that they take no memory.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved * PAGE
    }

    /// The bytes of a span in the areas that are the program's and not only reserved.
    pub(crate) fn used_in(&self, span: Span) -> usize {
        let used = self.parts(span).filter_map(|(index, pages)| {
            let slot = self.slot(index)?;
            let words = masks(pages).filter_map(|(word, mask)| {
                let taken = TAKEN(*slot.anonymous.get(word)?, *slot.marked.get(word)?);
                Some((taken & !*slot.reserved.get(word)? & mask).count_ones() as usize)
            });
            Some(words.sum::<usize>())
        });
        used.sum::<usize>() * PAGE
    }
}

#[cfg(test)]
mod tests;
