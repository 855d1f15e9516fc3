//! What the view shows of a fixture, key by key, as snapshots (`snapshots/`).

use super::draw;
use super::model::{Effect, Key, Model, Pace, View};
use super::recording::Recording;
use super::snapshot::{
    Ask, FreeHuge, Map, Moved, Origin, Row, RowHeap, SeenRange, Size, Snapshot, Source,
};
use super::{frame, text};
use crate::heap::HeapState;
use insta::assert_snapshot;
use ratatui::layout::Rect;
use ratatui::style::Color;
use superpage_manager::history::{Entry, What};
use superpage_manager::status::{Memory, Status};
use superpage_trace::{Partial, read};
use superpage_units::{
    BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, Nanos, Pid, PmdRange, Share, VirtAddr,
};

/// The length of a second and the time of the fixture, in milliseconds.
const NOW: u64 = 1_700_000_000_000;

fn entry(age_s: u64, what: What, kind: &str, pid: Pid, command: &str, pages: [u64; 2]) -> Entry {
    Entry {
        policy: Some(
            if what == What::Debloated { "emd" } else { "quicksilver-sync-64" }.to_owned(),
        ),
        pid: Some(pid),
        command: Some(command.to_owned()),
        huge_pages: HugePages(pages[0]),
        base_pages: BasePages(pages[1]),
        ..Entry::new(NOW - age_s * 1000, what, kind, "as the fixture says")
    }
}

fn process(pid: Pid, command: &str, mib: [u64; 3]) -> Row {
    let [resident, huge, bloat] = mib.map(Bytes::from_mib);
    let (base, gigantic) = (resident - huge, Bytes::ZERO);
    let (command, pool_huge) = (command.to_owned(), Bytes::ZERO);
    let bloat = Some(bloat);
    Row { pid, command, resident, base, huge, pool_huge, gigantic, bloat, heap: None }
}

/// Two stretches: a heap of huge and mixed ranges, and one that is thinly used.
fn map() -> Map {
    let seen = |at: u64, size, used| SeenRange {
        range: PmdRange::containing(VirtAddr(at * HUGE_PAGE_BYTES)),
        size,
        used: Some(used),
    };
    let heap = (1000..1100).map(|at| {
        let size = if at % 10 < 7 { Size::Huge } else { Size::Base };
        seen(at, size, if size == Size::Huge { 512 } else { (at % 4) * 128 + 1 })
    });
    // Not looked into yet.
    let new = (3000..3004).map(|at| SeenRange { used: None, ..seen(at, Size::Huge, 0) });
    let heap = heap.chain(new);
    Map { ranges: heap.chain((5000..5020).map(|at| seen(at, Size::Base, 3))).collect() }
}

fn snapshot() -> Snapshot {
    let memory = Memory {
        name: "machine".to_owned(),
        used: Bytes::from_gib(18),
        total: Bytes::from_gib(24),
        high: Share::percent(80),
        low: Share::percent(65),
    };
    Snapshot {
        of: "this machine".to_owned(),
        at: "2023-11-14 22:13:20Z".to_owned(),
        now_ms: NOW,
        origin: Origin::Daemon(Box::new(Status {
            pid: Pid(77),
            surveys: 12_345,
            waiting: 3,
            pause_ms: 2.0,
            resident: Bytes::from_mib(9),
            ..Status::default()
        })),
        memory: vec![memory],
        free_memory: Some(FreeHuge { huge: HugePages(2100), fragmentation: Share::clamped(0.123) }),
        processes: vec![
            process(Pid(42), "redis-server", [4000, 3600, 100]),
            process(Pid(43), "memcached", [2000, 1800, 900]),
            process(Pid(7), "bad\u{1b}[2Jname", [10, 0, 0]),
            Row { bloat: None, ..process(Pid(99), "postgres", [500, 200, 0]) },
        ],
        denied: 2,
        actions: vec![
            entry(50, What::Promoted, "threshold", Pid(42), "redis-server", [40, 300]),
            entry(20, What::Promoted, "growing", Pid(42), "redis-server", [80, 0]),
            entry(6, What::Debloated, "densest", Pid(43), "memcached", [100, 45_000]),
            entry(4, What::LeftAlone, "shared", Pid(43), "memcached", [3, 0]),
            entry(3, What::Promoted, "threshold", Pid(42), "redis-server", [25, 1000]),
        ],
        map: Some(map()),
    }
}

fn model() -> Model {
    Model::new(snapshot(), Pace::Running)
}

fn drawn(model: &mut Model, width: u16, height: u16) -> String {
    text(&frame(model, Rect::new(0, 0, width, height)))
}

fn press(model: &mut Model, keys: &str) {
    for key in keys.chars() {
        model.press(if key == '\n' { Key::Enter } else { Key::Char(key) });
    }
}

fn order(model: &Model) -> Vec<Pid> {
    model.rows().iter().map(|(row, _)| row.pid).collect()
}

#[test]
fn the_machine_with_a_daemon() {
    assert_snapshot!(drawn(&mut model(), 110, 24));
}

#[test]
fn gigantic_pages_get_columns_of_their_own() {
    let mut snapshot = snapshot();
    let managed = process(Pid(50), "graph", [300, 40, 0]);
    snapshot.processes.push(Row { gigantic: Bytes::from_gib(12), bloat: None, ..managed });
    let mut model = Model::new(snapshot, Pace::Running);
    assert_snapshot!(drawn(&mut model, 120, 12));
    press(&mut model, "\n");
    let shown = drawn(&mut model, 120, 12);
    assert!(shown.contains("in 1 GiB pages 12.0 GiB"), "{shown}");
}

/// A heap that was looked at twice, two seconds apart.
fn heap() -> RowHeap {
    let before = HeapState {
        size: Bytes::from_gib(8),
        memory: Bytes::from_gib(2),
        huge: Bytes::from_mib(1900),
        base: Bytes::from_mib(30),
        huge_faults: 1000,
        base_faults: 5000,
        read_huge: Bytes::from_gib(3),
        ..HeapState::default()
    };
    let now = HeapState {
        huge_faults: 1100,
        base_faults: 5300,
        soft_faults: 100,
        waited_huge: Nanos(240_000_000),
        promotions: 6,
        read_ahead: 40,
        ahead_used: 30,
        read_huge: before.read_huge + Bytes::from_mib(400),
        read_base: Bytes::from_kib(1200),
        written_huge: Bytes::from_mib(100),
        written_base: Bytes::from_kib(16),
        ..before.clone()
    };
    RowHeap::after(Some((&before, Nanos::from_secs_f64(2.0))), now)
}

#[test]
fn heaps_larger_than_memory_are_below_the_processes() {
    let mut snapshot = snapshot();
    let paged = process(Pid(51), "dedup", [2000, 1900, 0]);
    snapshot.processes.push(Row { heap: Some(heap()), ..paged.clone() });
    // This heap was looked at once.
    let first = RowHeap::after(None, heap().now);
    snapshot.processes.push(Row { heap: Some(first), pid: Pid(52), ..paged });
    let mut model = Model::new(snapshot, Pace::Running);
    assert_snapshot!(drawn(&mut model, 100, 28));
    model.press(Key::Down);
    press(&mut model, "\n");
    let shown = drawn(&mut model, 100, 28);
    assert!(shown.contains("heap on huge + base pages: 1.9 GiB + 30.0 MiB of 2.0 GiB"), "{shown}");
}

#[test]
fn the_machine_without_a_daemon_says_so() {
    let origin = Origin::Alone("no daemon runs".to_owned());
    let snapshot = Snapshot { origin, actions: Vec::new(), ..snapshot() };
    let shown = drawn(&mut Model::new(snapshot, Pace::Running), 110, 24);
    assert_eq!(shown.matches("no daemon runs").count(), 3, "{shown}");
}

#[test]
fn a_tiny_terminal_still_shows_what_matters() {
    assert_snapshot!(drawn(&mut model(), 40, 10));
    for (width, height) in [(1, 1), (2, 3), (10, 4), (300, 2), (0, 0)] {
        for keys in ["", "?", "\n", "/x"] {
            let mut model = model();
            press(&mut model, keys);
            drawn(&mut model, width, height);
        }
    }
}

#[test]
fn sorting_goes_round_and_can_be_reversed() {
    let mut model = model();
    assert_eq!(order(&model), [42, 43, 99, 7].map(Pid), "by huge pages");
    press(&mut model, "s");
    assert_eq!(order(&model), [43, 42, 7, 99].map(Pid), "by bloat, unknown last");
    press(&mut model, "r");
    assert_eq!(order(&model), [99, 7, 42, 43].map(Pid));
    press(&mut model, "rsss");
    assert_eq!(order(&model)[0], Pid(43), "by de-bloats");
    press(&mut model, "s");
    assert_eq!(order(&model), [7, 42, 43, 99].map(Pid), "by number");
    assert_snapshot!(drawn(&mut model, 100, 12));
    press(&mut model, "ss");
    assert_eq!(order(&model), [42, 43, 99, 7].map(Pid));
}

#[test]
fn the_filter_takes_keys_until_it_is_left() {
    let mut model = model();
    press(&mut model, "/REDq");
    assert!(order(&model).is_empty(), "q is a letter here");
    assert_snapshot!(drawn(&mut model, 100, 12));
    model.press(Key::Backspace);
    press(&mut model, "\n");
    assert_eq!(order(&model), [42].map(Pid));
    assert!(drawn(&mut model, 100, 12).contains("/ filter [RED]"));
    press(&mut model, "/");
    model.press(Key::Esc);
    assert_eq!(order(&model).len(), 4);
}

#[test]
fn pause_is_shown_and_ends() {
    let mut model = model();
    press(&mut model, "p");
    assert_eq!(model.pace, Pace::Paused);
    assert!(drawn(&mut model, 100, 24).contains("[paused]"));
    press(&mut model, "p");
    assert!(!drawn(&mut model, 100, 24).contains("[paused]"));
    assert_eq!(model.press(Key::Char('q')), Effect::Quit);
}

#[test]
fn a_process_opens_as_a_map() {
    let mut model = model();
    model.press(Key::Down);
    model.press(Key::Up);
    assert_eq!(model.press(Key::Enter), Effect::Look);
    assert_eq!(model.ask().open, Some(Pid(42)));
    assert_snapshot!(drawn(&mut model, 80, 24));
    model.press(Key::Esc);
    assert_eq!(model.view, View::All);
}

#[test]
fn the_maps_colours_say_how_memory_is_mapped() {
    let mut model = model();
    press(&mut model, "\n");
    let buffer = frame(&mut model, Rect::new(0, 0, 80, 24));
    let row = (0..24).find(|y| {
        let line: String = (0..20).map(|x| buffer[(x, *y)].symbol()).collect();
        line.contains("0x7d000000")
    });
    let row = row.expect("the heap's first line");
    let colours: Vec<Color> = (16..26).map(|x| buffer[(x, row)].fg).collect();
    assert_eq!(colours[..7], [Color::Green; 7]);
    assert_eq!(colours[7..], [Color::Blue; 3]);
    assert_eq!(draw::mapped(Share::percent(50)), Color::Yellow);
}

#[test]
fn a_map_scrolls_no_further_than_it_goes() {
    let mut model = model();
    press(&mut model, "\n");
    drawn(&mut model, 30, 12);
    for _ in 0..100 {
        model.press(Key::PageDown);
    }
    let shown = drawn(&mut model, 30, 12);
    assert!(shown.contains("0x271000000"), "the last stretch is there: {shown}");
    let View::One { scroll, .. } = model.view else { panic!("it is open") };
    assert!(scroll < 30, "{scroll}");
}

#[test]
fn a_process_that_exited_says_so() {
    let mut model = model();
    press(&mut model, "\n");
    model.snapshot.processes.clear();
    model.snapshot.map = None;
    let shown = drawn(&mut model, 80, 24);
    assert!(shown.contains("Process 42 is not there any more."), "{shown}");
}

#[test]
fn help_lists_every_key() {
    let mut model = model();
    press(&mut model, "?");
    assert_snapshot!(drawn(&mut model, 80, 24));
    press(&mut model, "x");
    assert!(!drawn(&mut model, 80, 24).contains("quit\n"), "any key closes it");
}

const TRACE: &[u8] = br#"{"superpage":"trace","version":2,"command":"redis-server","base_page":4096,"interval":1000000000,"contents":"sampled"}
{"at":0,"resident":12582912,"minor":0,"major":0,"cpu":0,"vmas":[["0x7f0000000000","0x7f0000800000","anonymous","fixed","none"]],"ranges":[["0x7f0000000000",2,"huge",512,300],["0x7f0000400000",2,"base",128,128]]}
{"at":1000000000,"resident":14582912,"minor":12,"major":0,"cpu":250000000,"ranges":[["0x7f0000400000",2,"huge",512,128]]}
{"at":2000000000,"resident":10485760,"minor":0,"major":1,"cpu":900000000,"ranges":[["0x7f0000000000",1,"base",300,300]]}
{"samples":3}
"#;

#[test]
fn a_recording_is_stepped_through() {
    let mut recording = Recording::new(read(TRACE, Partial::Refused).expect("it is good"));
    let ask = Ask::default();
    let first = recording.look(&ask).expect("a sample");
    assert_eq!(first.processes[0].huge, Bytes::from_mib(4));
    assert_eq!(first.processes[0].bloat, Some(Bytes(2 * 212 * 4096)));
    assert_eq!(first.actions, []);
    assert_eq!(recording.step(-1), Moved::No);
    assert_eq!(
        (recording.step(1), recording.step(1), recording.step(1)),
        (Moved::Yes, Moved::Yes, Moved::No)
    );
    let mut model = Model::new(recording.look(&ask).expect("a sample"), Pace::Paused);
    assert_snapshot!(drawn(&mut model, 100, 20));
    assert_eq!(recording.step(-1), Moved::Yes);
    model.snapshot = recording.look(&ask).expect("a sample");
    let shown = drawn(&mut model, 100, 20);
    assert!(shown.contains("sample 2 of 3") && shown.contains("made 2 huge pages"), "{shown}");
    assert_eq!(model.press(Key::Right), Effect::Step(1));
    press(&mut model, " ");
    assert_eq!((model.pace, super::due(&model)), (Pace::Running, Effect::Step(1)));
    press(&mut model, "\n");
    assert!(drawn(&mut model, 100, 20).contains("0x7f0000000000"), "its map is there");
}
