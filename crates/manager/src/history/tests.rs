//! Tests of the history: what is added up, what survives a torn line, a rotation and a full disk.

use super::*;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use superpage_units::{BasePages, HugePages, Pid};
use tempfile::tempdir;

fn promoted(at_ms: u64, pid: Pid, huge_pages: u64) -> Entry {
    let entry = Entry::new(at_ms, What::Promoted, "threshold", "64 of 512 base pages are in use");
    Entry {
        policy: Some("quicksilver-sync-64".to_owned()),
        pid: Some(pid),
        command: Some("redis-server".to_owned()),
        huge_pages: HugePages(huge_pages),
        base_pages: BasePages(huge_pages * 10),
        ..entry
    }
}

#[test]
fn names_are_those_of_the_file() {
    for what in What::ALL {
        let written = serde_json::to_value(what).expect("a name");
        assert_eq!(written, what.name());
        assert_eq!(What::from_name(what.name()), Some(what));
    }
    assert_eq!(What::from_name("promote"), None);
}

#[test]
fn counts_are_plain_numbers_in_the_file_and_may_be_missing() {
    let text = r#"{"at_ms":5,"what":"debloated","kind":"densest","cause":"a cause","huge_pages":3,"base_pages":40}"#;
    let entry: Entry = serde_json::from_str(text).expect("an entry");
    assert_eq!((entry.huge_pages, entry.base_pages), (HugePages(3), BasePages(40)));
    assert_eq!(serde_json::to_string(&entry).expect("JSON"), text);
    let without = text.replace(r#","huge_pages":3,"base_pages":40"#, "");
    let entry: Entry = serde_json::from_str(&without).expect("an entry");
    assert_eq!((entry.huge_pages, entry.base_pages), (HugePages::ZERO, BasePages::ZERO));
}

#[test]
fn entries_of_a_kind_within_a_second_are_one() {
    let directory = tempdir().expect("a directory");
    let mut history = History::open(directory.path()).expect("it opens");
    for millisecond in 0..100 {
        history.record(promoted(5000 + millisecond, Pid(7), 1));
        history.record(promoted(5000 + millisecond, Pid(8), 2));
    }
    history.record(Entry { kind: "pressure".to_owned(), ..promoted(5100, Pid(7), 1) });
    history.record(promoted(5999, Pid(7), 1));
    history.record(promoted(6000, Pid(7), 50));
    history.flush(5999).expect("nothing is due");
    assert_eq!(read(directory.path(), 0).expect("it is there"), Entries::default());
    history.flush(6000).expect("two are due");
    let counts = || -> Vec<(Option<Pid>, u64, u64)> {
        let found = read(directory.path(), 0).expect("it is there");
        found.entries.iter().map(|e| (e.pid, e.huge_pages.0, e.base_pages.0)).collect()
    };
    assert_eq!(counts(), [(Some(Pid(7)), 101, 1010), (Some(Pid(8)), 200, 2000)]);
    drop(history);
    assert_eq!(counts()[2..], [(Some(Pid(7)), 1, 10), (Some(Pid(7)), 50, 500)]);
}

#[test]
fn settings_are_told_one_by_one() {
    let directory = tempdir().expect("a directory");
    let mut history = History::open(directory.path()).expect("it opens");
    for cause in
        ["enabled: always -> madvise", "defrag: always -> never", "defrag: always -> never"]
    {
        history.record(Entry::new(5000, What::Setting, "held", cause));
    }
    drop(history);
    assert_eq!(read(directory.path(), 0).expect("it is there").entries.len(), 2);
}

#[test]
fn a_clock_that_is_set_back_holds_nothing_up() {
    let directory = tempdir().expect("a directory");
    let mut history = History::open(directory.path()).expect("it opens");
    history.record(promoted(1_000_000, Pid(7), 1));
    history.flush(500).expect("it is written");
    assert_eq!(read(directory.path(), 0).expect("it is there").entries.len(), 1);
}

#[test]
fn since_leaves_out_what_is_older() {
    let directory = tempdir().expect("a directory");
    let mut history = History::open(directory.path()).expect("it opens");
    for second in 1..=5 {
        history.record(promoted(second * 1000, Pid(7), second));
    }
    history.finish().expect("it is written");
    let found = read(directory.path(), 4000).expect("it is there");
    assert_eq!(found.entries.iter().map(|e| e.at_ms).collect::<Vec<_>>(), [4000, 5000]);
}

#[test]
fn what_no_daemon_wrote_is_not_there() {
    let directory = tempdir().expect("a directory");
    let error = read(directory.path(), 0).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_torn_line_and_a_later_versions_are_skipped_and_counted() {
    let directory = tempdir().expect("a directory");
    let path = directory.path().join(FILE);
    let whole = serde_json::to_string(&promoted(1000, Pid(7), 1)).expect("JSON");
    let later = whole.replace("promoted", "teleported");
    let torn = &whole[..whole.len() / 2];
    fs::write(&path, format!("{whole}\n{later}\n{torn}")).expect("it is written");
    let found = read(directory.path(), 0).expect("it is there");
    assert_eq!((found.entries.len(), found.skipped), (1, 1), "a torn end may still become whole");

    let mut history = History::open(directory.path()).expect("it opens");
    history.record(promoted(2000, Pid(7), 2));
    drop(history);
    let found = read(directory.path(), 0).expect("it is there");
    assert_eq!(found.entries, [promoted(1000, Pid(7), 1), promoted(2000, Pid(7), 2)]);
    assert_eq!(found.skipped, 2);
}

#[test]
fn the_files_stay_within_their_bound_and_keep_the_newest() {
    const SMALL: u64 = 4000;
    let directory = tempdir().expect("a directory");
    let mut history = History::with_bound(directory.path(), SMALL).expect("it opens");
    for second in 0..200 {
        history.record(promoted(second * 1000, Pid(7), second));
        history.flush(second * 1000 + MERGED_MS).expect("it is written");
    }
    for file in [FILE, OLDER] {
        let length = fs::metadata(directory.path().join(file)).expect("it is there").len();
        assert!(length > 0 && length <= SMALL, "{file} has {length} bytes");
    }
    let found = read(directory.path(), 0).expect("it is there").entries;
    let pages: Vec<u64> = found.iter().map(|entry| entry.huge_pages.0).collect();
    let first = pages[0];
    assert!(pages.len() > 15 && pages.len() < 60, "{}", pages.len());
    assert_eq!(pages, (first..200).collect::<Vec<_>>(), "none is missing between");
}

#[test]
fn who_follows_sees_each_entry_once_while_the_files_change_places() {
    let directory = tempdir().expect("a directory");
    let mut tail = Tail::new(directory.path());
    assert_eq!(tail.more().expect_err("not yet").kind(), ErrorKind::NotFound);
    let mut history = History::with_bound(directory.path(), 2000).expect("it opens");
    let mut seen = Vec::new();
    for second in 0..300 {
        history.record(promoted(second * 1000, Pid(7), second));
        history.flush(second * 1000 + MERGED_MS).expect("it is written");
        // Some bursts are long enough that the files change places twice between two looks.
        if second % 7 == 0 || second > 250 {
            seen.extend(tail.more().expect("it is there").entries);
        }
    }
    let pages: Vec<u64> = seen.iter().map(|entry| entry.huge_pages.0).collect();
    assert_eq!(pages, (0..300).collect::<Vec<_>>());
    assert_eq!(tail.more().expect("it is there"), Entries::default());
}

#[test]
fn who_follows_waits_for_a_line_to_be_whole() {
    let directory = tempdir().expect("a directory");
    let path = directory.path().join(FILE);
    let line = serde_json::to_string(&promoted(1000, Pid(7), 1)).expect("JSON") + "\n";
    let (begin, end) = line.split_at(20);
    fs::write(&path, begin).expect("it is written");
    let mut tail = Tail::new(directory.path());
    assert_eq!(tail.more().expect("it is there"), Entries::default());
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("it opens");
    std::io::Write::write_all(&mut file, end.as_bytes()).expect("it is written");
    assert_eq!(tail.more().expect("it is there").entries, [promoted(1000, Pid(7), 1)]);
}

#[test]
fn a_full_disk_loses_entries_and_says_so_and_stops_nothing() {
    let directory = tempdir().expect("a directory");
    symlink("/dev/full", directory.path().join(FILE)).expect("a link");
    let mut history = History::open(directory.path()).expect("it opens");
    for (round, second) in (1..=3).zip([1000, 2000, 3000]) {
        history.record(promoted(second, Pid(7), 1));
        history.record(promoted(second, Pid(8), 1));
        let unwritten = history.flush(second + MERGED_MS).expect_err("the disk is full");
        assert_eq!(unwritten.error.kind(), ErrorKind::StorageFull);
        assert_eq!((unwritten.in_a_row, unwritten.lost), (round, 2 * round));
    }
    assert_eq!(history.lost(), 6);
}

#[test]
fn a_write_that_fails_in_the_middle_leaves_no_half_line() {
    let directory = tempdir().expect("a directory");
    let mut history = History::with_bound(directory.path(), 1).expect("it opens");
    history.record(promoted(1000, Pid(7), 1));
    history.finish().expect("it is written");
    // A directory is in the way of the rotation.
    fs::create_dir(directory.path().join(OLDER)).expect("a directory");
    history.record(promoted(2000, Pid(7), 2));
    let unwritten = history.finish().expect_err("it cannot change places");
    assert_eq!(unwritten.in_a_row, 1);
    fs::remove_dir(directory.path().join(OLDER)).expect("it is empty");
    history.record(promoted(3000, Pid(7), 3));
    history.finish().expect("it works again");
    let found = read(directory.path(), 0).expect("it is there");
    assert_eq!(found.entries, [promoted(1000, Pid(7), 1), promoted(3000, Pid(7), 3)]);
}
