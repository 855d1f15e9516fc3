//! Tests of the pages of the areas, by name and by random programs against a list of stretches.

use super::*;
use crate::sys::HUGE;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const BASE: usize = 7 * GIGANTIC;
const ANYWHERE: &dyn Fn(usize) -> bool = &|_| true;

fn space(slots: usize) -> Space {
    let empty = || SlotPages {
        anonymous: [0; WORDS],
        marked: [0; WORDS],
        reserved: [0; WORDS],
        taken_count: 0,
        plain_count: 0,
        reserved_count: 0,
        emptied_count: AtomicUsize::new(0),
        may_hold: false,
    };
    let slots: Vec<SlotPages> = std::iter::repeat_with(empty).take(slots).collect();
    Space::new(BASE, slots.leak())
}

fn take(space: &mut Space, length: usize) -> Span {
    let span = space.find(length, 0, ANYWHERE).expect("there is room");
    space.set(span, Use::Plain);
    span
}

#[test]
fn slots_that_were_given_up_are_nobodys() {
    let mut space = space(6);
    let first = take(&mut space, HUGE);
    let last = take(&mut space, GIGANTIC);
    assert_eq!(last.start, BASE + 5 * GIGANTIC);
    let (given_up, entries) = space.give_up();
    assert_eq!(given_up, Span { start: BASE + GIGANTIC, length: 4 * GIGANTIC });
    assert!(entries.length > 3 * size_of::<SlotPages>());
    assert_eq!(space.span().length, 6 * GIGANTIC);
    assert_eq!(space.taken(), HUGE + GIGANTIC);
    assert!(space.is_plain(first) && space.is_plain(last) && !space.is_free(given_up));
    space.set(given_up, Use::Free);
    assert!(!space.is_free(given_up) && !space.is_plain(given_up));
    space.set(last, Use::Free);
    assert_eq!((space.taken(), space.give_up().0.length), (HUGE, 0), "it is given up once");
}

#[test]
fn small_mappings_fill_a_slot_and_large_ones_begin_one() {
    let mut space = space(4);
    let first = take(&mut space, HUGE);
    let second = take(&mut space, HUGE + PAGE);
    assert_eq!((first.start, second.start), (BASE, BASE + HUGE));
    let large = take(&mut space, 2 * GIGANTIC);
    assert_eq!(large.start, BASE + 2 * GIGANTIC);
    assert!(space.take_untouched(2) && space.take_untouched(3) && !space.take_untouched(0));
    assert!(!space.take_untouched(2), "it is told once");
    assert_eq!(take(&mut space, HUGE).start, second.end());
}

#[test]
fn a_slot_with_few_holes_is_nearly_full_and_the_holes_are_told() {
    let mut space = space(2);
    let slot = Span::gigantic(BASE);
    space.set(slot, Use::Plain);
    let holes = [
        Span { start: BASE, length: HUGE },
        Span { start: BASE + 70 * PAGE + HUGE, length: PAGE },
        Span { start: slot.end() - 3 * PAGE, length: 3 * PAGE },
    ];
    for hole in holes {
        space.set(hole, Use::Free);
    }
    assert!(space.slot(0).is_some_and(SlotPages::is_nearly_full));
    assert_eq!(space.free_runs(0).collect::<Vec<_>>(), holes);
    let not_here = |slot| slot != 0;
    assert_eq!(space.find(PAGE, 0, &not_here).map(|span| span.start), Some(BASE + GIGANTIC));
    for used in [Use::Reserved, Use::Special] {
        space.set(holes[1], used);
        assert!(!space.slot(0).is_some_and(SlotPages::is_nearly_full), "{used:?}");
    }
    space.set(slot, Use::Free);
    assert_eq!(space.free_runs(0).collect::<Vec<_>>(), [slot]);
    assert!(!space.slot(0).is_some_and(SlotPages::is_nearly_full));
}

#[test]
fn a_small_mapping_may_lie_in_two_slots() {
    let mut space = space(3);
    take(&mut space, GIGANTIC - 5 * PAGE);
    let across = take(&mut space, 7 * PAGE);
    assert_eq!(across.start, BASE + GIGANTIC - 5 * PAGE);
    assert!(space.slot(0).is_some_and(SlotPages::is_plain) && !space.take_untouched(0));
    space.set(across, Use::Free);
    space.set(Span { start: BASE + GIGANTIC, length: PAGE }, Use::Special);
    assert_eq!(take(&mut space, 6 * PAGE).start, BASE + GIGANTIC + PAGE);
    assert_eq!(take(&mut space, 5 * PAGE).start, across.start);
}

#[test]
fn a_hole_before_the_last_pages_of_a_slot_is_not_counted_with_the_free_ones_at_its_end() {
    let mut space = space(2);
    let slot = Span::gigantic(BASE);
    space.set(slot, Use::Plain);
    // The hole ends where a word of the bitmaps does.
    space.set(Span { start: slot.end() - 66 * PAGE, length: 2 * PAGE }, Use::Free);
    space.set(Span { start: slot.end() - 3 * PAGE, length: 3 * PAGE }, Use::Free);
    assert_eq!(take(&mut space, 5 * PAGE).start, slot.end() - 3 * PAGE);
    space.check();
}

#[test]
fn a_slot_that_was_filled_in_parts_may_hold_something() {
    let mut space = space(1);
    for _ in 0..2 {
        take(&mut space, GIGANTIC / 2);
    }
    assert!(space.slot(0).is_some_and(SlotPages::is_plain) && !space.take_untouched(0));
    space.set(space.span(), Use::Free);
    take(&mut space, GIGANTIC);
    assert!(space.take_untouched(0));
}

#[test]
fn memory_that_was_reserved_first_is_untouched_and_what_was_plain_before_is_not() {
    let mut space = space(1);
    let all = space.span();
    space.set(all, Use::Reserved);
    assert!(!space.take_untouched(0));
    space.set(all, Use::Plain);
    assert!(space.take_untouched(0));
    for used in [Use::Reserved, Use::Protected] {
        space.protect(all, used);
        space.protect(all, Use::Plain);
        assert!(!space.take_untouched(0), "it may hold what was written before");
    }
}

#[test]
fn what_is_special_stays_so_until_it_is_mapped_anew() {
    let mut space = space(1);
    let all = space.span();
    let file = Span { start: BASE + HUGE, length: PAGE };
    space.set(all, Use::Plain);
    space.set(file, Use::Special);
    space.protect(all, Use::Plain);
    assert!(!space.is_plain(all) && !space.has_free(all));
    space.set(file, Use::Plain);
    assert!(space.is_plain(all));
}

#[test]
fn a_span_is_free_plain_or_neither() {
    let mut space = space(2);
    let across = Span { start: BASE + GIGANTIC - PAGE, length: 2 * PAGE };
    let second = Span { start: BASE + GIGANTIC, length: PAGE };
    assert!(space.is_free(across) && space.has_free(across) && !space.is_plain(across));
    space.set(across, Use::Plain);
    assert!(!space.is_free(across) && !space.has_free(across) && space.is_plain(across));
    space.set(second, Use::Special);
    assert!(!space.has_free(across) && !space.is_plain(across));
}

#[test]
fn a_hint_is_followed_where_it_is_free() {
    let mut space = space(2);
    let hint = BASE + GIGANTIC - HUGE;
    let span = space.find(2 * HUGE, hint, ANYWHERE).expect("there is room");
    assert_eq!(span.start, hint);
    space.set(span, Use::Special);
    assert_eq!(space.find(PAGE, hint, ANYWHERE).map(|span| span.start), Some(BASE));
    assert_eq!(space.find(3 * GIGANTIC, 0, ANYWHERE), None);
    assert!(!space.is_free(Span { start: BASE - PAGE, length: PAGE }));
}

/// Slots of the areas that random programs use.
const SLOTS: usize = 4;

/// The areas as a list of stretches of pages, each with one use. No stretch reaches into two slots; neighbours may have the same
/// use.
#[derive(Debug)]
struct Model {
    /// The first page of each stretch, which reaches to the next one.
    stretches: BTreeMap<usize, Use>,
    /// Whether the program may have touched each slot since it was free.
    touched: [bool; SLOTS],
    /// The pages of each slot that were emptied in place.
    emptied: [usize; SLOTS],
    /// The slots that were given up.
    given_up: Range<usize>,
    is_closed: bool,
}

const NOT_FREE: fn(usize, Use) -> bool = |_, used| used != Use::Free;
const ONLY_FREE: fn(usize, Use) -> bool = |_, used| used == Use::Free;

impl Model {
    fn new() -> Self {
        Self {
            stretches: (0..SLOTS).map(|slot| (slot * PAGES, Use::Free)).collect(),
            touched: [false; SLOTS],
            emptied: [0; SLOTS],
            given_up: 0..0,
            is_closed: false,
        }
    }

    fn set(&mut self, pages: &Range<usize>, used: Use, which: Which) {
        for cut in [pages.start, pages.end] {
            if cut < SLOTS * PAGES {
                let (_, before) = self.stretches.range(..=cut).next_back().expect("0 is a start");
                let before = *before;
                self.stretches.insert(cut, before);
            }
        }
        let given_up = self.given_up.clone();
        for (page, of_page) in self.stretches.range_mut(pages.clone()) {
            let stays = which != Which::All && *of_page == Use::Special
                || which == Which::Used && *of_page == Use::Reserved;
            if !stays && !given_up.contains(&(page / PAGES)) {
                *of_page = match (which, used, *of_page) {
                    (Which::AllButSpecial, Use::Reserved, Use::Reserved) => Use::Reserved,
                    (Which::AllButSpecial, Use::Reserved, _) => Use::Protected,
                    _ => used,
                };
            }
        }
        for slot in pages.start / PAGES..pages.end.div_ceil(PAGES) {
            let all = slot * PAGES..(slot + 1) * PAGES;
            let in_one_step = pages.start <= all.start && all.end <= pages.end;
            self.touched[slot] |= match used {
                Use::Free | Use::Reserved => false,
                Use::Plain => !in_one_step,
                Use::Protected | Use::Special => true,
            };
            self.touched[slot] &= !self.runs(&all, NOT_FREE).is_empty();
        }
    }

    /// The longest runs of pages among these whose slot and use are wanted.
    fn runs(&self, pages: &Range<usize>, wanted: impl Fn(usize, Use) -> bool) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let starts: Vec<usize> = self.stretches.keys().copied().collect();
        let ends = starts.iter().skip(1).copied().chain([SLOTS * PAGES]);
        for (start, end) in starts.iter().copied().zip(ends) {
            let (from, to) = (start.max(pages.start), end.min(pages.end));
            if from >= to || !wanted(start / PAGES, self.stretches[&start]) {
                continue;
            }
            match runs.last_mut().filter(|run| run.end == from) {
                Some(run) => run.end = to,
                None => runs.push(from..to),
            }
        }
        runs
    }

    fn find(&self, pages: usize, hint: usize, may: impl Fn(usize) -> bool) -> Option<usize> {
        let hinted = hint..hint + pages;
        let slots = hint / PAGES..hinted.end.div_ceil(PAGES);
        if self.is_closed {
            None
        } else if hinted.end <= SLOTS * PAGES
            && self.runs(&hinted, NOT_FREE).is_empty()
            && slots.clone().all(&may)
        {
            Some(hint)
        } else if pages >= PAGES {
            let wanted = pages.div_ceil(PAGES);
            let begins = |slot: &usize| {
                self.runs(&(slot * PAGES..(slot + wanted) * PAGES), NOT_FREE).is_empty()
            };
            (0..(SLOTS + 1).saturating_sub(wanted)).rfind(begins).map(|slot| slot * PAGES)
        } else {
            let runs = self.runs(&(0..SLOTS * PAGES), |slot, used| used == Use::Free && may(slot));
            runs.iter().find(|run| run.len() >= pages).map(|run| run.start)
        }
    }

    /// As of memory that must stop being placed: the slots that have been given up then.
    fn give_up(&mut self) -> Range<usize> {
        self.is_closed = true;
        let is_free =
            |slot: usize| self.runs(&(slot * PAGES..(slot + 1) * PAGES), NOT_FREE).is_empty();
        let all = (0..SLOTS).flat_map(|start| (start..=SLOTS).map(move |end| start..end));
        let free = all.filter(|run| run.clone().all(is_free));
        let longest =
            free.fold(0..0, |longest, run| if run.len() > longest.len() { run } else { longest });
        if !self.given_up.is_empty() {
            return 0..0;
        }
        self.set(&(longest.start * PAGES..longest.end * PAGES), Use::Special, Which::All);
        self.given_up = longest.clone();
        longest
    }

    fn taken(&self) -> usize {
        let taken = self.runs(&(0..SLOTS * PAGES), |slot, used| {
            used != Use::Free && !self.given_up.contains(&slot)
        });
        taken.iter().map(Range::len).sum()
    }

    fn reserved(&self) -> usize {
        let reserved = self.runs(&(0..SLOTS * PAGES), |_, used| used == Use::Reserved);
        reserved.iter().map(Range::len).sum()
    }

    /// The pages among these that are used.
    fn used_in(&self, pages: &Range<usize>) -> usize {
        let used = self.runs(pages, |_, used| !matches!(used, Use::Free | Use::Reserved));
        used.iter().map(Range::len).sum()
    }

    fn count(&self, slot: usize, wanted: impl Fn(Use) -> bool) -> usize {
        let pages = slot * PAGES..(slot + 1) * PAGES;
        self.runs(&pages, |_, used| wanted(used)).iter().map(Range::len).sum()
    }
}

fn span(pages: &Range<usize>) -> Span {
    Span { start: BASE + pages.start * PAGE, length: pages.len() * PAGE }
}

/// A step of a random program.
#[derive(Clone, Debug)]
enum Step {
    /// A mapping of so many pages that wants to lie at a page, in the slots whose bits are set.
    Map {
        pages: usize,
        hint: usize,
        used: Use,
        allowed: u8,
    },
    Set(Range<usize>, Use),
    Protect(Range<usize>, Use),
    SetApart(Range<usize>),
    TakeUntouched(usize),
    NoteEmptied(usize, usize),
    GiveUp,
}

fn page() -> impl Strategy<Value = usize> {
    let most = SLOTS * PAGES;
    let near = move |page: usize| (page.saturating_sub(70)..(page + 70).min(most)).boxed();
    prop_oneof![
        2 => 0..most,
        2 => (0..=SLOTS).prop_map(|slot| slot * PAGES),
        2 => (0..=SLOTS).prop_flat_map(move |slot| near(slot * PAGES)),
        1 => (0..most / 64).prop_flat_map(move |word| near(word * 64)),
    ]
    .prop_map(move |page| page.min(most))
}

fn pages() -> impl Strategy<Value = Range<usize>> {
    let some = (page(), 1_usize..300).prop_map(|(page, count)| {
        let page = page.min(SLOTS * PAGES - 1);
        page..(page + count).min(SLOTS * PAGES)
    });
    let between = (page(), page()).prop_map(|(one, other)| {
        let start = one.min(other).min(SLOTS * PAGES - 1);
        start..one.max(other).max(start + 1)
    });
    // A slot that is full but for a few pages has a neighbour that may take the rest of a mapping.
    let nearly_all = (0..SLOTS, 0_usize..9, 0_usize..140)
        .prop_map(|(slot, before, behind)| slot * PAGES + before..(slot + 1) * PAGES - behind);
    prop_oneof![3 => some, 2 => between, 2 => nearly_all]
}

fn used() -> impl Strategy<Value = Use> {
    let all = [Use::Free, Use::Reserved, Use::Protected, Use::Special];
    prop_oneof![3 => Just(Use::Plain), 2 => prop::sample::select(all.to_vec())]
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![
        4 => 1_usize..9,
        4 => 1_usize..300,
        2 => PAGES - 3..PAGES + 3,
        1 => 1..(SLOTS + 1) * PAGES,
        2 => (1..=SLOTS).prop_map(|slots| slots * PAGES),
    ];
    let map = (length, page(), used(), 0_u8..1 << SLOTS, any::<bool>());
    let map = map.prop_map(|(pages, hint, used, allowed, anywhere)| {
        let allowed = if anywhere { u8::MAX } else { allowed };
        Step::Map { pages, hint, used, allowed }
    });
    let not_free = used().prop_filter("protection is of what is there", |used| *used != Use::Free);
    prop_oneof![
        10 => map,
        10 => (pages(), used()).prop_map(|(pages, used)| Step::Set(pages, used)),
        3 => (0..SLOTS).prop_map(|slot| Step::Set(slot * PAGES..(slot + 1) * PAGES, Use::Free)),
        4 => (pages(), not_free).prop_map(|(pages, used)| Step::Protect(pages, used)),
        2 => pages().prop_map(Step::SetApart),
        3 => (0..SLOTS).prop_map(Step::TakeUntouched),
        3 => (0..SLOTS, 1..PAGES / 3).prop_map(|(slot, pages)| Step::NoteEmptied(slot, pages)),
        2 => Just(Step::GiveUp),
    ]
}

fn run(space: &mut Space, model: &mut Model, step: Step) {
    match step {
        Step::Map { pages, hint, used, allowed } => {
            let may = |slot: usize| allowed & 1 << slot != 0;
            let found = space.find(pages * PAGE, BASE + hint * PAGE, &may);
            let expected = model.find(pages, hint, may).map(|start| start..start + pages);
            assert_eq!(found, expected.as_ref().map(span));
            if let Some(pages) = expected {
                model.set(&pages, used, Which::All);
                space.set(span(&pages), used);
            }
        }
        Step::Set(pages, used) => {
            model.set(&pages, used, Which::All);
            space.set(span(&pages), used);
        }
        Step::Protect(pages, used) => {
            model.set(&pages, used, Which::AllButSpecial);
            space.protect(span(&pages), used);
        }
        Step::SetApart(pages) => {
            model.set(&pages, Use::Protected, Which::Used);
            space.set_apart(span(&pages));
        }
        Step::TakeUntouched(slot) => {
            let is_plain = model.count(slot, |used| used == Use::Plain) == PAGES;
            assert_eq!(space.take_untouched(slot), is_plain && !model.touched[slot]);
            model.touched[slot] |= is_plain;
        }
        Step::NoteEmptied(slot, _) if model.given_up.contains(&slot) => {}
        Step::NoteEmptied(slot, pages) => {
            model.emptied[slot] += pages;
            let is_half = model.emptied[slot] >= PAGES / 2;
            assert_eq!(space.note_emptied(slot, span(&(0..pages))), is_half);
            if is_half {
                model.emptied[slot] = 0;
            }
        }
        Step::GiveUp => {
            space.close();
            let (slots, _) = space.give_up();
            let expected = model.give_up();
            assert_eq!(slots.length, expected.len() * GIGANTIC);
            if !expected.is_empty() {
                assert_eq!(slots.start, BASE + expected.start * GIGANTIC);
            }
        }
    }
}

/// Compares what the two say of these pages.
fn compare_pages(space: &Space, model: &Model, pages: &Range<usize>) {
    let whole = span(pages);
    let taken = model.runs(pages, NOT_FREE);
    assert_eq!(space.is_free(whole), taken.is_empty());
    assert_eq!(space.has_free(whole), !model.runs(pages, ONLY_FREE).is_empty());
    assert_eq!(space.is_plain(whole), model.runs(pages, |_, used| used != Use::Plain).is_empty());
    assert_eq!(space.first_run(whole), taken.first().map(span));
    assert_eq!(space.used_in(whole), model.used_in(pages) * PAGE);
    let slot = pages.start / PAGES;
    let part = pages.start..pages.end.min((slot + 1) * PAGES);
    let in_part: usize = model.runs(&part, NOT_FREE).iter().map(Range::len).sum();
    let in_slot = model.count(slot, |used| used != Use::Free);
    assert_eq!(space.is_all_of(slot, span(&part)), in_part == in_slot);
}

/// Compares what the two say of a slot that is still there.
fn compare_slot(space: &Space, model: &Model, slot: usize) {
    let pages = space.slot(slot).expect("there is such a slot");
    let plain = model.count(slot, |used| used == Use::Plain);
    let free = model.count(slot, |used| used == Use::Free);
    assert_eq!((pages.is_free(), pages.is_plain()), (free == PAGES, plain == PAGES));
    assert_eq!(pages.is_nearly_full(), plain + free == PAGES && free <= PAGES / 16);
    assert_eq!(pages.may_hold, model.touched[slot]);
    let runs = model.runs(&(slot * PAGES..(slot + 1) * PAGES), ONLY_FREE);
    assert_eq!(
        space.free_runs(slot).collect::<Vec<_>>(),
        runs.iter().map(span).collect::<Vec<_>>()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_random_program_finds_the_areas_as_a_list_of_stretches_has_them(
        steps in prop::collection::vec((step(), pages()), 1..40),
    ) {
        let (mut space, mut model) = (space(SLOTS), Model::new());
        for (step, looked_at) in steps {
            run(&mut space, &mut model, step);
            space.check();
            assert_eq!(space.taken(), model.taken() * PAGE);
            assert_eq!(space.reserved(), model.reserved() * PAGE);
            assert_eq!(space.is_closed(), model.is_closed);
            assert_eq!(space.span(), span(&(0..SLOTS * PAGES)));
            compare_pages(&space, &model, &looked_at);
            compare_pages(&space, &model, &(0..SLOTS * PAGES));
            for slot in (0..SLOTS).filter(|slot| !model.given_up.contains(slot)) {
                compare_slot(&space, &model, slot);
            }
        }
    }
}
