//! The translator against a slow, obvious model, and what is known about it beforehand.

use super::lines::{Line, LineCache};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use superpage_units::{BASE_PAGE_BYTES, GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES};

const LATENCIES: Latencies = Latencies {
    second_level_hit: Cycles(9),
    read: ReadLatencies { near: Cycles(14), far: Cycles(70), memory: Cycles(200) },
};

fn shape(entries: u32, ways: u32) -> Option<TlbGeometry> {
    Some(TlbGeometry::new(entries, ways).expect("possible"))
}

fn lines(lines: u32) -> Option<LineGeometry> {
    Some(LineGeometry::new(lines).expect("possible"))
}

/// The TLBs of Trident's Table 1, with page-walk caches and page-table lines.
fn skylake() -> Geometry {
    Geometry {
        first: [shape(64, 4), shape(32, 4), shape(4, 4)],
        second_shared: shape(1536, 12),
        second_gigantic: shape(16, 4),
        walk: WalkGeometry {
            pd_entries: shape(32, 4),
            pdpt_entries: shape(4, 4),
            pml4_entries: shape(4, 4),
            near_lines: lines(8192),
            far_lines: lines(1 << 16),
        },
    }
}

/// No caches for walks at all.
fn bare() -> Geometry {
    Geometry { walk: WalkGeometry::default(), ..skylake() }
}

/// Splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn reads(stats: &Stats) -> u64 {
    stats.reads.count.iter().chain(&stats.host_reads.count).sum()
}

#[test]
fn walks_read_as_many_entries_as_trident_says() {
    for (size, native, nested) in
        [(PageSize::Base, 4, 24), (PageSize::Huge, 3, 15), (PageSize::Gigantic, 2, 8)]
    {
        let mut translator = Translator::new(&bare(), &LATENCIES);
        let cost = translator.access(VirtAddr(0x7f12_3456_7000), size);
        assert_eq!((reads(&translator.stats()), cost), (native, Cycles(native * 200)));
        let mut translator = Translator::new(&bare(), &LATENCIES);
        let cost = translator.translate(VirtAddr(0x7f12_3456_7000), size, Some(size)).cycles;
        assert_eq!((reads(&translator.stats()), cost), (nested, Cycles(nested * 200)));
        assert_eq!(translator.stats().total(), cost);
    }
}

#[test]
fn mixed_sizes_in_a_guest_cost_what_both_levels_cost() {
    for (guest, host, expected) in [
        (PageSize::Base, PageSize::Huge, 4 * 4 + 3),
        (PageSize::Huge, PageSize::Base, 3 * 5 + 4),
        (PageSize::Gigantic, PageSize::Base, 2 * 5 + 4),
    ] {
        let mut translator = Translator::new(&bare(), &LATENCIES);
        translator.translate(VirtAddr(0), guest, Some(host));
        assert_eq!(reads(&translator.stats()), expected);
        // The TLB entry is as large as the smaller of the two.
        let smaller = guest.min(host);
        let inside = VirtAddr(smaller.bytes().0 - 1);
        assert_eq!(translator.translate(inside, guest, Some(host)).cycles, Cycles::ZERO);
        let beyond = VirtAddr(smaller.bytes().0);
        assert_ne!(translator.translate(beyond, guest, Some(host)).cycles, Cycles::ZERO);
    }
}

#[test]
fn the_page_walk_caches_leave_one_read() {
    let mut translator = Translator::new(&skylake(), &LATENCIES);
    translator.access(VirtAddr(0), PageSize::Base);
    assert_eq!(translator.stats().reads.count, [1, 1, 1, 1]);
    // The next base page: same table, and the entry's line has been read before.
    let cost = translator.access(VirtAddr(BASE_PAGE_BYTES), PageSize::Base);
    assert_eq!((translator.stats().reads.count, cost), ([2, 1, 1, 1], Cycles(14)));
    // The next huge page shares what leads to the tables of its level.
    let cost = translator.access(VirtAddr(HUGE_PAGE_BYTES), PageSize::Huge);
    assert_eq!((translator.stats().reads.count, cost), ([2, 2, 1, 1], Cycles(14)));
    let cost = translator.translate(VirtAddr(8 << 30), PageSize::Base, Some(PageSize::Base)).cycles;
    assert!(reads(&translator.stats()) < 6 + 24 && cost < Cycles(24 * 200));
    translator.check();
}

#[test]
fn a_sequence_misses_once_per_page() {
    for size in PageSize::ALL {
        let mut translator = Translator::new(&skylake(), &LATENCIES);
        let pages = 64;
        let step = size.bytes().0 / 16;
        for i in 0..pages * 16 {
            translator.access(VirtAddr(i * step), size);
        }
        let stats = translator.stats();
        let index = size.index();
        assert_eq!(stats.accesses[index], pages * 16);
        assert_eq!((stats.first_misses[index], stats.second_misses[index]), (pages, pages));
        translator.check();
    }
}

#[test]
fn what_fits_a_level_stays_in_it() {
    let mut translator = Translator::new(&skylake(), &LATENCIES);
    let mut round = |pages: u64| {
        let before = translator.stats();
        (0..pages).for_each(|page| {
            translator.access(VirtAddr(page * BASE_PAGE_BYTES), PageSize::Base);
        });
        let [first, second] = [before, translator.stats()]
            .map(|stats| (stats.first_misses[0], stats.second_misses[0]));
        (second.0 - first.0, second.1 - first.1)
    };
    round(64);
    assert_eq!(round(64), (0, 0));
    round(1536);
    assert_eq!(round(1536), (1536, 0));
    round(4 * 1536);
    assert_eq!(round(4 * 1536), (4 * 1536, 4 * 1536));
}

#[test]
fn larger_pages_cost_less_when_access_is_random() {
    let cost = |size| {
        let mut translator = Translator::new(&skylake(), &LATENCIES);
        let mut state = 7;
        for _ in 0..100_000 {
            translator.access(VirtAddr(random(&mut state) % (32 << 30)), size);
        }
        translator.check();
        translator.stats()
    };
    let [base, huge, gigantic] = PageSize::ALL.map(cost);
    // 1536 entries for 8 Mi base pages; for 16 Ki huge pages; 16 for 32 gigantic pages.
    assert!(base.second_misses[0] > 99_900, "{base:?}");
    let share = huge.second_misses[1] as f64 / 100_000.0;
    assert!((share - (1.0 - 1536.0 / 16384.0)).abs() < 0.02, "{share}");
    let share = gigantic.second_misses[2] as f64 / 100_000.0;
    assert!((share - 0.5).abs() < 0.02, "{share}");
    assert!(base.total() > huge.total() && huge.total() > gigantic.total());
    // Hardly anything is a hit in the second level.
    assert!(base.total().0 - base.walk_cycles().0 < 100 * 9);
}

#[test]
fn without_a_second_level_for_gigantic_pages_every_miss_walks() {
    let haswell = Geometry { second_gigantic: None, ..skylake() };
    let mut translator = Translator::new(&haswell, &LATENCIES);
    for _ in 0..2 {
        for page in 0..8 {
            translator.access(VirtAddr(page * GIGANTIC_PAGE_BYTES), PageSize::Gigantic);
        }
    }
    let stats = translator.stats();
    assert_eq!((stats.first_misses[2], stats.second_misses[2]), (16, 16));
}

#[test]
fn a_translation_of_another_size_is_not_found() {
    let mut translator = Translator::new(&skylake(), &LATENCIES);
    for size in PageSize::ALL {
        assert_ne!(translator.access(VirtAddr(0), size), Cycles::ZERO);
        assert_eq!(translator.access(VirtAddr(0), size), Cycles::ZERO);
    }
    translator.check();
}

#[test]
fn the_same_accesses_give_the_same_counts() {
    let run = || {
        let mut translator = Translator::new(&skylake(), &LATENCIES);
        let mut state = 1;
        for _ in 0..50_000 {
            let x = random(&mut state);
            let size = PageSize::ALL[(x % 3) as usize];
            translator.translate(VirtAddr(x >> 30), size, Some(PageSize::ALL[(x % 2) as usize]));
        }
        translator.stats()
    };
    assert_eq!(run(), run());
}

/// The same machine, slow and obvious: every cache a list, the one used last in front.
#[derive(Default)]
struct Model {
    caches: BTreeMap<String, Cache>,
}

/// Its sets, each a list of levels and numbers.
type Cache = Vec<Vec<(usize, u64)>>;

impl Model {
    fn touch(&mut self, name: &str, shape: Option<TlbGeometry>, what: (usize, u64)) -> bool {
        let Some(shape) = shape else { return false };
        let empty = || vec![vec![]; shape.sets() as usize];
        let sets = self.caches.entry(name.to_owned()).or_insert_with(empty);
        let count = sets.len() as u64;
        let set = &mut sets[(what.1 % count) as usize];
        let found = set.iter().position(|held| *held == what).map(|at| set.remove(at)).is_some();
        set.insert(0, what);
        set.truncate(shape.ways() as usize);
        found
    }

    /// Lines are told apart as the cache tells them apart; that has its own test.
    fn touch_line(&mut self, name: &str, shape: Option<LineGeometry>, line: Line) -> bool {
        let Some(shape) = shape else { return false };
        let (set, tag) = LineCache::new(shape).place(line);
        self.touch(name, Some(shape.table()), (usize::from(tag), set as u64))
    }

    fn access(&mut self, geometry: &Geometry, address: u64, size: PageSize) -> u64 {
        let leaf = size.index();
        let page = (leaf, address / size.bytes().0);
        if self.touch(&format!("first {leaf}"), geometry.first[leaf], page) {
            return 0;
        }
        let (name, shape) = match size {
            PageSize::Gigantic => ("second gigantic", geometry.second_gigantic),
            _ => ("second shared", geometry.second_shared),
        };
        if self.touch(name, shape, page) {
            return 9;
        }
        self.walk(&geometry.walk, address, leaf)
    }

    fn walk(&mut self, geometry: &WalkGeometry, address: u64, leaf: usize) -> u64 {
        let number = |level: usize| address / [1 << 12, 1 << 21, 1 << 30, 1 << 39][level];
        let shapes = [geometry.pd_entries, geometry.pdpt_entries, geometry.pml4_entries];
        let known = (leaf..3)
            .find(|level| {
                let name = format!("upper {level}");
                self.touch(&name, shapes[*level], (*level, number(level + 1)))
            })
            .unwrap_or(3);
        let mut cost = 0;
        for level in (leaf..=known).rev() {
            let line = Line { number: number(level) / 8, kind: level };
            cost += if self.touch_line("near", geometry.near_lines, line) {
                14
            } else if self.touch_line("far", geometry.far_lines, line) {
                70
            } else {
                200
            };
        }
        cost
    }
}

fn as_lines(shape: TlbGeometry) -> LineGeometry {
    LineGeometry::new(shape.sets() * LINE_WAYS).expect("the sets are a power of two")
}

/// Small tables, so that short random programs fill them.
fn small() -> impl Strategy<Value = Geometry> {
    let shapes = prop_oneof![
        1 => Just(None),
        4 => prop_oneof![Just((4, 4)), Just((4, 1)), Just((6, 3)), Just((16, 2))]
            .prop_map(|(entries, ways)| shape(entries, ways)),
    ];
    prop::array::uniform10(shapes).prop_map(|s| Geometry {
        first: [s[0], s[1], s[2]],
        second_shared: s[3],
        second_gigantic: s[4],
        walk: WalkGeometry {
            pd_entries: s[5],
            pdpt_entries: s[6],
            pml4_entries: s[7],
            near_lines: s[8].map(as_lines),
            far_lines: s[9].map(as_lines),
        },
    })
}

proptest! {
    #[test]
    fn it_costs_what_the_slow_model_says(
        geometry in small(),
        accesses in prop::collection::vec((0..64u64, 0..3usize, 0..3usize), 0..300),
    ) {
        let mut translator = Translator::new(&geometry, &LATENCIES);
        let mut model = Model::default();
        let mut total = 0;
        for (page, of, size) in accesses {
            // Neighbours at each of the levels.
            let address = page * PageSize::ALL[of].bytes().0 * [1, 1, 64][of];
            let size = PageSize::ALL[size];
            let expected = model.access(&geometry, address, size);
            total += expected;
            prop_assert_eq!(translator.access(VirtAddr(address), size), Cycles(expected));
            translator.check();
        }
        prop_assert_eq!(translator.stats().total(), Cycles(total));
    }
}
