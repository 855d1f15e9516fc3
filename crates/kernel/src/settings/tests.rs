//! Tests of the settings gate, on trees that imitate the kernel's.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A tree that imitates the kernel's, and a state directory that does not exist yet.
struct World {
    root: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(root.path().join("sys")).expect("created");
        let world = Self { root };
        world.put("a", "511\n");
        world.put("selector", "always [madvise] never\n");
        world
    }

    fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    fn journal(&self) -> PathBuf {
        self.state().join(JOURNAL)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join("sys").join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("written");
    }

    fn value(&self, name: &str) -> String {
        read_value(&self.file(name)).expect("reads")
    }

    fn try_open(&self, mode: Mode) -> Result<(Settings, Repairs)> {
        Settings::open_under(&self.root.path().join("sys"), &self.state(), mode)
    }

    fn open(&self) -> (Settings, Repairs) {
        self.try_open(Mode::Apply).expect("opens")
    }

    /// Leaves everything as a process would that is killed while `settings` is open.
    fn crash(&self, mut settings: Settings) {
        settings.entries.clear();
    }

    fn outcomes(repairs: Repairs) -> Vec<Outcome> {
        repairs.into_iter().map(|repair| repair.outcome).collect()
    }
}

#[test]
fn hugetlb_pages_in_use_beyond_the_setting_do_not_count() {
    let world = World::new();
    world.put("surplus_hugepages", "0\n");
    world.put("nr_hugepages", "1\n");
    let (mut settings, _) = world.open();
    settings.change(&world.file("nr_hugepages"), "3").expect("changed");
    // As if it had been set to 1 while two more pages are in use.
    world.put("surplus_hugepages", "2\n");
    assert_eq!(world.value("nr_hugepages"), "1");
    let repairs = settings.restore().expect("restored");
    assert_eq!(World::outcomes(repairs), [Outcome::NothingToDo]);
}

#[test]
fn a_change_is_recorded_made_and_put_back() {
    let world = World::new();
    let (mut settings, repairs) = world.open();
    assert!(repairs.is_empty());
    let change = settings.change(&world.file("a"), "51").expect("changed");
    assert_eq!((change.from.as_str(), change.to.as_str()), ("511", "51"));
    assert_eq!(settings.held(), [change]);
    assert_eq!(world.value("a"), "51");
    assert!(world.journal().exists());
    let repairs = settings.restore().expect("restored");
    assert_eq!(World::outcomes(repairs), [Outcome::PutBack { ours: "51".into() }]);
    assert_eq!(world.value("a"), "511");
    assert!(!world.journal().exists());
    assert_eq!(settings.restore(), Ok(vec![]));
}

#[test]
fn the_first_original_is_kept_and_dropping_restores_it() {
    let world = World::new();
    let (mut settings, _) = world.open();
    for value in ["51", "102", "0"] {
        settings.change(&world.file("a"), value).expect("changed");
    }
    settings.change(&world.file("selector"), "never").expect("changed");
    assert_eq!(settings.held().len(), 2);
    assert_eq!(settings.held()[0].from, "511");
    drop(settings);
    assert_eq!((world.value("a"), world.value("selector")), ("511".into(), "madvise".into()));
}

#[test]
fn one_of_them_is_put_back_alone() {
    let world = World::new();
    let (mut settings, _) = world.open();
    settings.change(&world.file("a"), "51").expect("changed");
    settings.change(&world.file("selector"), "never").expect("changed");
    let repair = settings.put_back(&world.file("a")).expect("readable").expect("it was held");
    assert_eq!(repair.outcome, Outcome::PutBack { ours: "51".into() });
    assert_eq!((world.value("a"), world.value("selector")), ("511".into(), "never".into()));
    assert_eq!(settings.held().len(), 1);
    assert_eq!(settings.put_back(&world.file("a")), Ok(None));
    // A value that somebody else has set since stays.
    settings.change(&world.file("a"), "51").expect("changed");
    world.put("a", "7\n");
    let repair = settings.put_back(&world.file("a")).expect("readable").expect("it was held");
    assert_eq!(repair.outcome, Outcome::Theirs { found: "7".into() });
    assert_eq!(world.value("a"), "7");
}

#[test]
fn what_is_already_so_is_left_alone() {
    let world = World::new();
    let (mut settings, _) = world.open();
    let change = settings.change(&world.file("selector"), "madvise").expect("nothing to do");
    assert_eq!(change.from, change.to);
    assert!(settings.held().is_empty() && !world.journal().exists());
    assert_eq!(fs::read(world.file("selector")).expect("reads"), b"always [madvise] never\n");
}

#[test]
fn a_crash_is_repaired_at_the_next_start() {
    let world = World::new();
    let (mut settings, _) = world.open();
    settings.change(&world.file("a"), "51").expect("changed");
    settings.change(&world.file("selector"), "never").expect("changed");
    let left = || Settings::left_behind(&world.state()).expect("reads");
    assert!(left().is_empty(), "somebody has the gate open: {:?}", left());
    world.crash(settings);
    assert_eq!(world.value("a"), "51");
    let texts: Vec<_> =
        left().iter().map(|change| (change.from.clone(), change.to.clone())).collect();
    assert_eq!(texts, [("511".into(), "51".into()), ("madvise".into(), "never".into())]);
    let (settings, repairs) = world.open();
    // The last change first.
    let paths: Vec<_> = repairs.iter().map(|repair| repair.path.file_name()).collect();
    assert_eq!(paths, [Some("selector".as_ref()), Some("a".as_ref())]);
    assert_eq!((world.value("a"), world.value("selector")), ("511".into(), "madvise".into()));
    assert!(settings.held().is_empty() && !world.journal().exists());
    drop(settings);
    assert!(left().is_empty(), "all of it is put back");
}

#[test]
fn what_a_run_within_left_is_put_back_first() {
    let world = World::new();
    let (mut outer, _) = world.open();
    outer.change(&world.file("selector"), "always").expect("changed");
    let inner = Settings::open_under(
        &world.root.path().join("sys"),
        &world.state().join(INNER),
        Mode::Apply,
    );
    let mut inner = inner.expect("opens").0;
    inner.change(&world.file("selector"), "madvise").expect("changed");
    inner.change(&world.file("a"), "51").expect("changed");
    world.crash(inner);
    world.crash(outer);
    // What is as it was at first is not said to be left.
    let left = Settings::left_behind(&world.state()).expect("reads");
    assert_eq!(left.len(), 2, "{left:?}");
    let (_outer, repairs) = world.open();
    let values: Vec<_> = repairs.iter().map(|repair| repair.original.as_str()).collect();
    assert_eq!(values, ["511", "always", "madvise"]);
    assert_eq!((world.value("a"), world.value("selector")), ("511".into(), "madvise".into()));
    assert!(!world.journal().exists() && !world.state().join(INNER).join(JOURNAL).exists());
}

#[test]
fn a_crash_between_recording_and_writing_is_repaired_too() {
    let world = World::new();
    let (mut settings, _) = world.open();
    settings.change(&world.file("a"), "51").expect("changed");
    settings.record(&world.file("a"), "51", "102").expect("recorded");
    settings.record(&world.file("selector"), "madvise", "never").expect("recorded");
    world.crash(settings);
    let (_, repairs) = world.open();
    let expected = [Outcome::NothingToDo, Outcome::PutBack { ours: "51".into() }];
    assert_eq!(World::outcomes(repairs), expected);
    assert_eq!(world.value("a"), "511");
}

/// Found by [`whatever_happens_the_model_agrees`].
#[test]
fn a_value_that_was_ours_before_is_theirs_now() {
    use Event::{Crash, Ours, Theirs};
    play(&World::new(), &[Ours(2, 2), Ours(2, 0), Theirs(2, 2), Crash]);
}

#[test]
fn what_somebody_else_changed_since_is_theirs() {
    let world = World::new();
    let (mut settings, _) = world.open();
    settings.change(&world.file("a"), "51").expect("changed");
    world.crash(settings);
    world.put("a", "77\n");
    let (_, repairs) = world.open();
    assert!(repairs[0].to_string().contains("somebody set it to 77"), "{}", repairs[0]);
    assert_eq!(World::outcomes(repairs), [Outcome::Theirs { found: "77".into() }]);
    assert_eq!(world.value("a"), "77");
}

#[test]
fn a_journal_from_another_boot_is_void() {
    let world = World::new();
    let (mut settings, _) = world.open();
    settings.change(&world.file("a"), "51").expect("changed");
    world.crash(settings);
    let text = fs::read_to_string(world.journal()).expect("reads");
    let boot = boot_id(Path::new("/")).expect("reads");
    fs::write(world.journal(), text.replace(&boot, "another")).expect("written");
    assert_eq!(Settings::left_behind(&world.state()), Ok(Vec::new()));
    let (_, repairs) = world.open();
    assert_eq!(World::outcomes(repairs), [Outcome::OtherBoot]);
    assert_eq!(world.value("a"), "51");
    assert!(!world.journal().exists());
}

#[test]
fn a_file_that_vanished_is_reported() {
    let world = World::new();
    let (mut settings, _) = world.open();
    settings.change(&world.file("a"), "51").expect("changed");
    fs::remove_file(world.file("a")).expect("removed");
    let repairs = settings.restore().expect("restored");
    assert_eq!(World::outcomes(repairs), [Outcome::Vanished]);
    assert!(!world.journal().exists());
}

#[test]
fn what_cannot_be_put_back_is_tried_again() {
    let world = World::new();
    let (mut settings, _) = world.open();
    settings.change(&world.file("a"), "51").expect("changed");
    fs::remove_file(world.file("a")).expect("removed");
    fs::create_dir(world.file("a")).expect("created");
    let repairs = settings.restore().expect("restored");
    assert!(matches!(repairs[0].outcome, Outcome::Failed(_)), "{repairs:?}");
    assert!(world.journal().exists());
    fs::remove_dir(world.file("a")).expect("removed");
    world.put("a", "51\n");
    drop(settings);
    assert_eq!(world.value("a"), "511");
    assert!(!world.journal().exists());
}

#[test]
fn a_malformed_journal_is_named_and_not_acted_on() {
    let world = World::new();
    drop(world.open());
    let boot = boot_id(Path::new("/")).expect("reads");
    let path = world.file("a").display().to_string();
    let outside = format!(
        r#"{{"format":1,"boot_id":"{boot}","changes":[{{"path":"{}","original":"1","ours":["x"]}}]}}"#,
        world.journal().display()
    );
    for bad in [
        "",
        "{",
        "[]",
        r#"{"format":2,"boot_id":"x","changes":[]}"#,
        r#"{"format":1,"boot_id":"x"}"#,
        r#"{"format":1,"boot_id":"x","changes":[{"path":"/x"}]}"#,
        &format!(r#"{{"format":1,"boot_id":"{boot}","changes":[],"more":"{path}"}}"#),
        &outside,
    ] {
        fs::write(world.journal(), bad).expect("written");
        let error = world.try_open(Mode::Apply).expect_err(bad);
        let message = error.to_string();
        assert!(matches!(error, Error::Journal { .. }), "{bad}: {message}");
        assert!(message.contains(JOURNAL) && message.contains("delete it"), "{message}");
        assert_eq!(fs::read_to_string(world.journal()).expect("reads"), bad);
    }
}

#[test]
fn a_dry_run_touches_nothing() {
    let world = World::new();
    let (mut settings, _) = world.try_open(Mode::DryRun).expect("opens");
    let change = settings.change(&world.file("a"), "51").expect("described");
    assert_eq!((change.from.as_str(), change.to.as_str()), ("511", "51"));
    assert!(matches!(settings.act(&world.file("a"), "1"), Err(Error::Refused { .. })));
    drop(settings);
    assert_eq!(world.value("a"), "511");
    assert!(!world.state().exists());
}

#[test]
fn only_settings_may_be_written() {
    let world = World::new();
    let (mut settings, _) = world.open();
    let outside = world.root.path().join("outside");
    fs::write(&outside, "1").expect("written");
    std::os::unix::fs::symlink(&outside, world.file("link")).expect("linked");
    let dots = world.file("..").join("outside");
    for path in [&outside, &world.file("link"), &dots, &PathBuf::from("sys/a")] {
        let refused = settings.change(path, "2");
        assert!(matches!(refused, Err(Error::Refused { .. })), "{path:?} {refused:?}");
    }
    assert_eq!(fs::read(&outside).expect("reads"), b"1");
    let missing = settings.change(&world.file("none"), "2");
    assert!(matches!(missing, Err(Error::Missing { .. })));
    assert!(!world.file("none").exists());
}

#[test]
fn the_kernels_settings_are_told_from_other_files() {
    let (mut settings, _) = Settings::open(Path::new("/nonexistent"), Mode::DryRun).expect("opens");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    for path in [file.path(), Path::new("/proc/self/comm"), Path::new("/dev/null")] {
        let refused = settings.change(path, "x");
        assert!(matches!(refused, Err(Error::Refused { .. })), "{path:?} {refused:?}");
    }
    let swappiness = settings.change(Path::new("/proc/sys/vm/swappiness"), "1");
    assert!(swappiness.is_ok(), "{swappiness:?}");
}

#[test]
fn a_value_that_is_not_taken_is_an_error() {
    let ignored = write_and_check(Path::new("/dev/null"), "", "1");
    assert!(matches!(ignored, Err(Error::NotTaken { .. })), "{ignored:?}");
    assert_eq!(write_and_check(Path::new("/dev/null"), "other", "1"), Ok(String::new()));
}

#[test]
fn a_failed_change_leaves_no_record() {
    let world = World::new();
    let (mut settings, _) = world.open();
    let before = settings.entries.clone();
    settings.record(&world.file("a"), "511", "51").expect("recorded");
    settings.forget_failed(&world.file("a"), "511", before).expect("forgotten");
    assert!(settings.held().is_empty() && !world.journal().exists());
}

/// A child that has ended and was not waited for stands for a process of which only threads are left that hang.
#[test]
fn a_lock_is_taken_over_from_a_process_that_has_ended() {
    let world = World::new();
    let held = Lock::take(&world.state()).expect("it is free");
    let mut child = std::process::Command::new("true").spawn().expect("started");
    while !is_dying(Pid(child.id())) {
        std::thread::sleep(LOOK);
    }
    fs::write(world.state().join("daemon.lock"), child.id().to_string()).expect("written");
    let taken_over = Lock::take(&world.state()).expect("who held it does nothing any more");
    let pid = Some(crate::process::own_pid());
    assert_eq!(Lock::take(&world.state()).err(), Some(Error::Busy { pid }), "we live");
    drop((held, taken_over));
    child.wait().expect("it has ended");
    assert!(!is_dying(Pid(child.id())), "it is gone altogether");
}

#[test]
fn there_is_one_at_a_time() {
    let world = World::new();
    let (settings, _) = world.open();
    let pid = Some(crate::process::own_pid());
    assert_eq!(world.try_open(Mode::Apply).err(), Some(Error::Busy { pid }));
    assert!(world.try_open(Mode::DryRun).is_ok());
    let lock = Lock::take(&world.state()).expect("another lock than that of the settings");
    assert_eq!(Lock::take(&world.state()).err(), Some(Error::Busy { pid }));
    drop((settings, lock));
    assert!(world.try_open(Mode::Apply).is_ok());
    assert!(Lock::take(&world.state()).is_ok());
}

#[test]
fn the_state_directory_is_ours_alone() {
    let world = World::new();
    drop(world.open());
    let mode = |mode| fs::set_permissions(world.state(), fs::Permissions::from_mode(mode));
    let found = fs::metadata(world.state()).expect("exists").permissions().mode();
    assert_eq!(found & 0o777, 0o700);
    mode(0o777).expect("changed");
    assert!(matches!(world.try_open(Mode::Apply), Err(Error::Refused { .. })));
    mode(0o700).expect("changed");
    let link = world.root.path().join("link");
    std::os::unix::fs::symlink(world.state(), &link).expect("linked");
    assert!(matches!(Lock::take(&link), Err(Error::Refused { .. })));
}

/// Something that happens to one of three files.
#[derive(Clone, Debug)]
enum Event {
    Ours(usize, u8),
    Theirs(usize, u8),
    Restore,
    Crash,
    CrashBeforeWriting(usize, u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3_usize, 0..4_u8).prop_map(|(file, value)| Event::Ours(file, value)),
        2 => (0..3_usize, 0..4_u8).prop_map(|(file, value)| Event::Theirs(file, value)),
        1 => Just(Event::Restore),
        1 => Just(Event::Crash),
        1 => (0..3_usize, 0..4_u8).prop_map(|(f, v)| Event::CrashBeforeWriting(f, v)),
    ]
}

/// What should be true of one file, in the simplest way to say it.
#[derive(Clone, Default)]
struct Model {
    value: u8,
    /// The original and what we wrote, if we did.
    changed: Option<(u8, Vec<u8>)>,
}

impl Model {
    fn note(&mut self, value: u8) {
        let original = self.value;
        self.changed.get_or_insert((original, vec![])).1.push(value);
    }

    fn ours(&mut self, value: u8) {
        if self.value != value {
            self.note(value);
            self.value = value;
            if let Some((_, ours)) = &mut self.changed {
                *ours = vec![value];
            }
        }
    }

    fn restore(&mut self) {
        if let Some((original, ours)) = self.changed.take()
            && ours.contains(&self.value)
        {
            self.value = original;
        }
    }
}

fn play(world: &World, events: &[Event]) {
    let names = ["x", "y", "z"];
    let mut models = [(); 3].map(|()| Model::default());
    names.iter().for_each(|name| world.put(name, "0"));
    let mut settings = world.open().0;
    for event in events {
        match *event {
            Event::Ours(file, value) => {
                settings.change(&world.file(names[file]), &value.to_string()).expect("changed");
                models[file].ours(value);
            }
            Event::Theirs(file, value) => {
                world.put(names[file], &value.to_string());
                models[file].value = value;
            }
            Event::Restore => {
                settings.restore().expect("restored");
                models.iter_mut().for_each(Model::restore);
            }
            Event::Crash => {
                world.crash(settings);
                settings = world.open().0;
                models.iter_mut().for_each(Model::restore);
            }
            Event::CrashBeforeWriting(file, value) => {
                let from = world.value(names[file]);
                let record = settings.record(&world.file(names[file]), &from, &value.to_string());
                record.expect("recorded");
                world.crash(settings);
                models[file].note(value);
                settings = world.open().0;
                models.iter_mut().for_each(Model::restore);
            }
        }
        for (name, model) in names.iter().zip(&models) {
            assert_eq!(world.value(name), model.value.to_string(), "{name} after {event:?}");
        }
    }
}

proptest! {
    // Fewer than usual: every case syncs files to the disk.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_the_model_agrees(events in prop::collection::vec(event(), 0..30)) {
        play(&World::new(), &events);
    }

    #[test]
    fn random_journals_never_panic(text: Vec<u8>) {
        let world = World::new();
        drop(world.open());
        fs::write(world.journal(), text).expect("written");
        let _ = world.try_open(Mode::Apply);
        prop_assert_eq!(world.value("a"), "511");
    }

    #[test]
    fn damaged_journals_never_panic(at: prop::sample::Index, byte: u8) {
        let world = World::new();
        let (mut settings, _) = world.open();
        settings.change(&world.file("a"), "51").expect("changed");
        world.crash(settings);
        let mut text = fs::read(world.journal()).expect("reads");
        let at = at.index(text.len());
        text[at] = byte;
        fs::write(world.journal(), text).expect("written");
        let _ = world.try_open(Mode::Apply);
    }
}

proptest! {
    #[test]
    fn selectors_give_the_word_in_brackets(
        before in prop::collection::vec("[a-z_+]{1,8}", 0..4),
        chosen in "[a-z_+]{1,8}",
        after in prop::collection::vec("[a-z_+]{1,8}", 0..4),
    ) {
        let bracketed = format!("[{chosen}]");
        let words: Vec<_> = before.into_iter().chain([bracketed]).chain(after).collect();
        let text = words.join(" ");
        prop_assert_eq!(selected(text.as_bytes()), chosen.as_bytes());
    }

    #[test]
    fn random_text_never_panics(text: Vec<u8>) {
        let _ = selected(&text);
    }
}
