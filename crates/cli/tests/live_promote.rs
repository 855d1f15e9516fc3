//! Promotion through the binary: `superpage promote` once, and the daemon that does it in time, what
//! it tells, keeps and puts back. Only the tests' own processes are named.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;

use common::daemon::{Config, Daemon, Home, PATIENCE, says};
use common::machine::{self, Test};
use common::subject::{self, Subject, next_order, say};
use common::{Ended, Said, huge_from, number, superpage, wait_for};
use libtest_mimic::Failed;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use superpage_kernel::cgroup::{Hierarchy, Scratch};
use superpage_kernel::own_vma::OwnVma;
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::settings::{Mode, Settings};
use superpage_kernel::thp::{DEFRAG, Defrag, ENABLED, Enabled, Thp, Value as _};
use superpage_kernel::{Error, balloon, hugetlb, meminfo, own_thp};
use superpage_lab::load::{Items, Mix, Redis, Sizes, Window};
use superpage_manager::history::{self, Entry, What};
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, HugePages, PageSize, Pid, VirtAddr};

fn main() -> ExitCode {
    subject::main(tests, &[("toucher", be_toucher), ("refusing", be_refusing)])
}

fn tests() -> [Test; 11] {
    let missing = [Ability::Collapse].map(probe::probe);
    let missing = missing.into_iter().find(|finding| finding.answer != Answer::Yes);
    let able = machine::without_debloating().or(missing.map(|finding| finding.why));
    let daemon = able.clone().or_else(machine::without_daemon);
    let settings = daemon.clone().or_else(machine::without_settings);
    let redis = daemon.clone().or_else(|| {
        let missing = "redis-server is not installed (cargo xtask setup does it)";
        (!Redis::is_installed()).then(|| missing.to_owned())
    });
    [
        ("first_touches_are_given_back", settings.clone(), first_touches_are_given_back),
        (
            "first_touches_are_generous_while_memory_is_free",
            settings.clone(),
            first_touches_are_generous_while_memory_is_free,
        ),
        (
            "beside_a_large_pool_there_is_promoted",
            settings.clone().or_else(without_room_for_a_pool),
            beside_a_large_pool_there_is_promoted,
        ),
        ("under_never_nothing_is_promoted", settings, under_never_nothing_is_promoted),
        ("once_is_told_in_a_table_and_as_json", able.clone(), once_is_told_in_a_table_and_as_json),
        ("who_cannot_be_promoted_is_an_error", able.clone(), who_cannot_be_promoted_is_an_error),
        ("an_exit_in_the_middle_is_no_panic", able, an_exit_in_the_middle_is_no_panic),
        ("all_tell_the_same_story", daemon.clone(), all_tell_the_same_story),
        ("a_reload_forgets_nothing", daemon.clone(), a_reload_forgets_nothing),
        ("a_restart_forgets_nothing", daemon, a_restart_forgets_nothing),
        ("redis_loses_no_value", redis, redis_loses_no_value),
    ]
}

// ---------------------------------------------------------------- the processes

/// A process that fills base pages of VMAs when told to, and knows what is in them.
fn be_toucher() -> Ended {
    match own_thp::only_where_advised() {
        Ok(()) | Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut vmas: Vec<OwnVma> = Vec::new();
    say("ready")?;
    loop {
        let order = next_order()?;
        let words: Vec<&str> = order.split(' ').collect();
        let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        match (words[0], &numbers[..]) {
            // So many ranges, with so many base pages filled in each.
            ("map", [ranges, pages]) => {
                let mut vma = OwnVma::private(HugePages(*ranges))?;
                (0..*ranges).try_for_each(|range| fill(&mut vma, range, *pages))?;
                say(&vma.start().0.to_string())?;
                vmas.push(vma);
            }
            // Gives most of the first range of a VMA back, and fills it up to so many base pages again:
            // one that is seen empty would be new.
            ("again", [vma, pages]) => {
                let vma = vmas.get_mut(usize::try_from(*vma)?).ok_or("no such VMA")?;
                let kept = BasePages(64);
                vma.discard(kept, HugePages(1).base_pages().saturating_sub(kept))?;
                fill(vma, 0, *pages)?;
                say("done")?;
            }
            ("check", []) => say(&vmas.iter_mut().find_map(wrong).unwrap_or("intact".into()))?,
            _ => return Err(format!("no order {order:?}").into()),
        }
    }
}

fn page_size() -> usize {
    usize::try_from(BASE_PAGE_BYTES).unwrap_or(usize::MAX)
}

/// Never zero.
fn pattern(page: usize) -> u8 {
    page.to_le_bytes()[0] | 1
}

fn fill(vma: &mut OwnVma, range: u64, pages: u64) -> Ended {
    let first = usize::try_from(HugePages(range).base_pages().0)?;
    let size = page_size();
    for page in first..first + usize::try_from(pages)? {
        let bytes = vma.bytes_mut().get_mut(page * size..(page + 1) * size);
        bytes.ok_or("no such page")?.fill(pattern(page));
    }
    Ok(())
}

/// The first page that holds neither nothing nor what was written.
fn wrong(vma: &mut OwnVma) -> Option<String> {
    let mut pages = vma.bytes_mut().chunks(page_size()).enumerate();
    let is_right = |page, bytes: &[u8]| {
        let of = |value| bytes.iter().all(|byte| *byte == value);
        of(0) || of(pattern(page))
    };
    pages.find(|(page, bytes)| !is_right(*page, bytes)).map(|(page, _)| format!("page {page}"))
}

/// A process that forbade itself huge pages, with memory that would be promoted.
fn be_refusing() -> Ended {
    rustix::thread::disable_transparent_huge_pages(true)?;
    let mut vma = OwnVma::private(HugePages(2))?;
    fill(&mut vma, 0, 512)?; // tidy: allow(all base pages)
    say("ready")?;
    next_order()?;
    Ok(())
}

/// A VMA of a toucher as the test sees it.
#[derive(Debug)]
struct Memory {
    pid: Pid,
    start: VirtAddr,
    ranges: u64,
}

impl Memory {
    fn map(subject: &mut Subject, ranges: u64, pages: u64) -> Result<Self, Failed> {
        let start = subject.order(&format!("map {ranges} {pages}"))?;
        Ok(Self { pid: subject.pid(), start: VirtAddr(start.parse()?), ranges })
    }

    fn huge(&self) -> Result<u64, Failed> {
        Ok(huge_from(self.pid, self.start, HugePages(self.ranges))?.0)
    }

    fn wait_until_huge(&self) -> Ended {
        let all = || Ok((self.huge()? == self.ranges).then_some(()));
        wait_for("all to be huge", PATIENCE, all)
    }
}

fn is_intact(subject: &mut Subject) -> Ended {
    let said = subject.order("check")?;
    ensure!(said == "intact", "{said} is wrong");
    Ok(())
}

// ---------------------------------------------------------------- once

fn row_of(said: &Said) -> Result<Value, Failed> {
    let rows = said.rows()?;
    Ok(rows.into_iter().next().ok_or("no row")?)
}

fn once_is_told_in_a_table_and_as_json() -> Ended {
    let mut subject = Subject::start("toucher")?;
    let full = Memory::map(&mut subject, 6, 300)?;
    let sparse = Memory::map(&mut subject, 2, 20)?;
    let pid = subject.pid().to_string();
    let dry = row_of(&superpage(&["promote", &pid, "--json", "--dry-run"])?.done()?)?;
    ensure!(full.huge()? == 0 && sparse.huge()? == 0, "a dry run changed something");
    let done = row_of(&superpage(&["promote", &pid, "--json"])?.done()?)?;
    // It has other memory too.
    let promoted = number(&done, "promoted")?;
    ensure!(full.huge()? == 6 && promoted >= 6, "{done}");
    ensure!(sparse.huge()? == 0 && number(&done, "too_empty")? >= 2, "{done}");
    ensure!(number(&done, "filled_base_pages")? >= 6 * 212, "{done}");
    ensure!(dry["dry_run"] == true && done["dry_run"] == false, "{dry} {done}");
    ensure!(number(&dry, "promoted")? == promoted, "{dry} {done}");
    let table = superpage(&["promote", &pid, "--least", "1"])?.done()?.out;
    ensure!(table.contains(&pid) && table.contains("Promoted 2 PMD ranges"), "{table}");
    ensure!(sparse.huge()? == 2, "what was asked for was not done: {table}");
    is_intact(&mut subject)
}

fn who_cannot_be_promoted_is_an_error() -> Ended {
    // No process has this number: the kernel's limit is 2^22.
    let gone = superpage(&["promote", "4194305"])?;
    ensure!(gone.code == Some(1) && gone.err.contains("there is no process 4194305"), "{gone:?}");
    let mut refusing = Subject::start("refusing")?;
    let said = superpage(&["promote", &refusing.pid().to_string(), "--json"])?;
    ensure!(said.code == Some(1) && said.err.contains("PR_SET_THP_DISABLE"), "{said:?}");
    let row = row_of(&said)?;
    ensure!(row["refuses_huge_pages"] == true && number(&row, "promoted")? == 0, "{row}");
    drop(refusing.order("end"));
    Ok(())
}

/// The process is killed at different times of the work.
fn an_exit_in_the_middle_is_no_panic() -> Ended {
    for after in [0, 5, 20, 50, 100, 200] {
        let mut subject = Subject::start("toucher")?;
        Memory::map(&mut subject, 100, 300)?;
        let pid = subject.pid().to_string();
        let promoting = std::thread::spawn(move || {
            let said = superpage(&["promote", &pid, "--json"]);
            said.map_err(|error| error.message().unwrap_or_default().to_owned())
        });
        std::thread::sleep(Duration::from_millis(after));
        drop(subject);
        let said = promoting.join().map_err(|_| "the test panicked")??;
        let is_fine = match said.code {
            Some(0) => true,
            Some(1) => {
                said.err.contains("exited before") || said.err.contains("there is no process")
            }
            _ => false,
        };
        ensure!(is_fine && said.err.lines().count() <= 1, "{said:?}");
    }
    Ok(())
}

// ---------------------------------------------------------------- the daemon

/// A daemon that promotes these processes by this policy.
fn config(policy: &str, pids: &[Pid]) -> String {
    let pids: Vec<u32> = pids.iter().map(|pid| pid.0).collect();
    format!(
        "watermarks = {{ enabled = false }}\n\
         promotion = {{ policy = \"{policy}\", max_fragmentation = \"100%\" }}\n\
         budget = {{ promotion = \"100%\" }}\n\
         timing = {{ interval = \"100ms\" }}\n\
         thp = {{ first_touch = \"base-pages\" }}\n\
         processes = {{ include = {{ pids = {pids:?} }} }}\n\
         khugepaged = {{ max_ptes_none = \"keep\" }}\n"
    )
}

fn home(config: &str) -> Result<Home, Failed> {
    let home = Home::with(&Config::idle())?;
    home.configure(config)?;
    Ok(home)
}

fn status(home: &Home) -> Result<Value, Failed> {
    // It is not there before the first look.
    let text = std::fs::read_to_string(home.state().join("status.json")).unwrap_or_default();
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Waits until so many processes are under the policy.
fn wait_until_held(home: &Home, policy: &str, processes: u64) -> Ended {
    wait_for("the process to be held", PATIENCE, || {
        let wanted = serde_json::json!([[policy, processes]]);
        Ok((status(home)?["policies"] == wanted).then_some(()))
    })
}

fn entries(home: &Home) -> Result<Vec<Entry>, Failed> {
    Ok(history::read(&home.state(), 0)?.entries)
}

fn sum(entries: &[Entry], what: What) -> u64 {
    entries.iter().filter(|entry| entry.what == what).map(|entry| entry.huge_pages.0).sum()
}

/// The sum of a metric over its labels.
fn metric(home: &Home, name: &str) -> Result<f64, Failed> {
    let text = std::fs::read_to_string(home.state().join("metrics.prom")).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

fn all_tell_the_same_story() -> Ended {
    const POLICY: &str = "quicksilver-sync-64";
    let mut subject = Subject::start("toucher")?;
    let home = home(&config(POLICY, &[subject.pid()]))?;
    let daemon = home.start()?;
    wait_until_held(&home, POLICY, 1)?;
    let first = Memory::map(&mut subject, 6, 100)?;
    let second = Memory::map(&mut subject, 3, 63)?;
    let third = Memory::map(&mut subject, 5, 512)?; // tidy: allow(all base pages)
    first.wait_until_huge()?;
    third.wait_until_huge()?;
    ensure!(second.huge()? == 0, "63 base pages were enough");
    let name = "superpage_promoted_huge_pages_total{";
    let told = wait_for("it to be told", PATIENCE, || {
        let told = sum(&entries(&home)?, What::Promoted);
        Ok((told >= 11 && metric(&home, name)? >= told as f64).then_some(told))
    })?;
    // Besides these its program's own heap may have been promoted, but not much.
    ensure!((11..=13).contains(&told), "{told} told of: {:?}", entries(&home)?);
    let state = home.state();
    let state = state.to_str().ok_or("no path")?;
    let rows = superpage(&["log", "--json", "--state", state, "--what", "promoted"])?.done()?;
    let rows = rows.rows()?;
    let logged: u64 = rows.iter().map(|row| number(row, "huge_pages")).sum::<Result<_, _>>()?;
    ensure!(logged == told, "log {logged}, history {told}");
    let counted = metric(&home, name)?;
    ensure!((counted - told as f64).abs() < 0.5, "metrics {counted}, history {told}");
    let filled: u64 = rows.iter().map(|row| number(row, "base_pages")).sum::<Result<_, _>>()?;
    let counted = metric(&home, "superpage_promotion_filled_bytes_total{")?;
    let is_same = (counted - BasePages(filled).bytes().0 as f64).abs() < 0.5;
    ensure!(is_same, "metrics {counted} bytes filled, history {filled} base pages");
    ensure!(
        rows.iter().all(|row| row["pid"] == subject.pid().0 && row["policy"] == POLICY),
        "{rows:?}"
    );
    let surveys = number(&status(&home)?, "surveys")?;
    ensure!(surveys > 0, "no survey was made");
    is_intact(&mut subject)?;
    daemon.stop()?;
    Ok(())
}

/// What was huge and was given back is not promoted while it is sparse; a new range like it is.
fn knows_what_was_huge(home: &Home, subject: &mut Subject, known: &Memory) -> Ended {
    let before = entries(home)?.len();
    let said = subject.order("again 0 200")?;
    ensure!(said == "done", "{said}");
    Memory::map(subject, 1, 200)?.wait_until_huge()?;
    ensure!(known.huge()? == known.ranges - 1, "what was given back is bloated again");
    // The daemon leaves a range alone for 30 s after promoting it, and for 120 s after promoting it again.
    wait_for("the refusal to be told", 3 * PATIENCE, || {
        let entries = entries(home)?;
        let told = entries.iter().skip(before).any(|entry| entry.kind == "would-bloat-again");
        Ok(told.then_some(()))
    })?;
    is_intact(subject)
}

/// A toucher of which the daemon knows that its two ranges were huge.
fn known_to(policy: &str) -> Result<(Subject, Home, Daemon, Memory), Failed> {
    let mut subject = Subject::start("toucher")?;
    let home = home(&config(policy, &[subject.pid()]))?;
    let daemon = home.start()?;
    wait_until_held(&home, policy, 1)?;
    let memory = Memory::map(&mut subject, 2, 100)?;
    memory.wait_until_huge()?;
    Ok((subject, home, daemon, memory))
}

fn a_reload_forgets_nothing() -> Ended {
    let (mut subject, home, daemon, memory) = known_to("quicksilver-sync-64")?;
    let mark = daemon.mark();
    home.configure(&config("quicksilver-sync-128", &[subject.pid()]))?;
    daemon.signal(Signal::HUP)?;
    daemon.wait_since(mark, "it to read", |line| says(line, "configuration read again"))?;
    wait_until_held(&home, "quicksilver-sync-128", 1)?;
    // The other policy has another threshold.
    let below = Memory::map(&mut subject, 1, 127)?;
    knows_what_was_huge(&home, &mut subject, &memory)?;
    ensure!(below.huge()? == 0, "127 base pages were enough");
    daemon.stop()?;
    ensure!(entries(&home)?.iter().any(|entry| entry.what == What::Reloaded), "it was not told");
    Ok(())
}

fn a_restart_forgets_nothing() -> Ended {
    let (mut subject, home, daemon, memory) = known_to("quicksilver-sync-64")?;
    daemon.stop()?;
    ensure!(home.state().join("state.json").exists(), "nothing was kept");
    let daemon = home.start()?;
    wait_until_held(&home, "quicksilver-sync-64", 1)?;
    knows_what_was_huge(&home, &mut subject, &memory)?;
    daemon.stop()?;
    let entries = entries(&home)?;
    let started = entries.iter().filter(|entry| entry.what == What::Started).count();
    ensure!(started == 2, "the history begins anew: {entries:?}");
    Ok(())
}

/// `enabled` at a known value, and at its own again when this is dropped.
struct FirstTouch {
    settings: Settings,
    original: Enabled,
    _state: tempfile::TempDir,
}

impl FirstTouch {
    fn at(value: Enabled) -> Result<Self, Failed> {
        let state = tempfile::tempdir()?;
        let (settings, _) = Settings::open(state.path(), Mode::Apply)?;
        let first = Self { settings, original: Self::now()?, _state: state };
        first.write(value)?;
        Ok(first)
    }

    fn now() -> Result<Enabled, Failed> {
        Ok(Thp::under(Path::new("/sys")).get(ENABLED)?)
    }

    fn write(&self, value: Enabled) -> Ended {
        let path = Thp::under(Path::new("/sys")).path(ENABLED);
        Ok(self.settings.act(&path, &value.to_text())?)
    }
}

impl Drop for FirstTouch {
    fn drop(&mut self) {
        if let Err(error) = self.write(self.original) {
            println!("enabled was {:?} and is not again: {error:?}", self.original);
        }
    }
}

fn first_touches_are_given_back() -> Ended {
    let _first = FirstTouch::at(Enabled::Always)?;
    // No process has this number: the kernel's limit is 2^22.
    let home = home(&config("quicksilver-sync-64", &[Pid(4_194_305)]))?;
    let daemon = home.start()?;
    ensure!(FirstTouch::now()? == Enabled::Madvise, "it is not held");
    // By default it is left alone.
    home.configure(
        "[processes.include]\npids = [4194305]\n[khugepaged]\nmax_ptes_none = \"keep\"\n",
    )?;
    daemon.signal(Signal::HUP)?;
    let is_back = || Ok((FirstTouch::now()? == Enabled::Always).then_some(()));
    wait_for("it to be put back", PATIENCE, is_back)?;
    home.configure(&config("quicksilver-sync-64", &[Pid(4_194_305)]))?;
    daemon.signal(Signal::HUP)?;
    let is_held = || Ok((FirstTouch::now()? == Enabled::Madvise).then_some(()));
    wait_for("it to be held again", PATIENCE, is_held)?;
    daemon.stop()?;
    ensure!(FirstTouch::now()? == Enabled::Always, "it was not put back");
    home.start()?.kill()?;
    ensure!(FirstTouch::now()? == Enabled::Madvise, "a killed daemon cannot put anything back");
    // The next one puts it back, holds it again, and lets it go.
    let daemon = home.start()?;
    let log = daemon.log();
    let repaired = log.iter().any(|line| says(line, "an earlier run did not end well"));
    ensure!(repaired && FirstTouch::now()? == Enabled::Madvise, "{log:?}");
    // A policy that wants none of it has it put back while it runs.
    home.configure(&config("off", &[Pid(4_194_305)]))?;
    daemon.signal(Signal::HUP)?;
    wait_for("it to be put back", PATIENCE, is_back)?;
    daemon.stop()?;
    ensure!(FirstTouch::now()? == Enabled::Always, "it was not put back");
    ensure!(!home.journal().exists(), "the journal is still there");
    Ok(())
}

/// By default nothing is promoted where the administrator wants no huge pages.
fn under_never_nothing_is_promoted() -> Ended {
    let _first = FirstTouch::at(Enabled::Never)?;
    let mut subject = Subject::start("toucher")?;
    let memory = Memory::map(&mut subject, 4, 300)?;
    let config = config("superpage", &[subject.pid()]);
    let home = home(&config)?;
    let daemon = home.start()?;
    std::thread::sleep(Duration::from_secs(2));
    ensure!(memory.huge()? == 0, "something was promoted");
    home.configure(&config.replace("promotion = {", "promotion = { under_never = \"include\","))?;
    daemon.signal(Signal::HUP)?;
    memory.wait_until_huge()?;
    daemon.stop()?;
    ensure!(FirstTouch::now()? == Enabled::Never, "it was raised");
    is_intact(&mut subject)
}

/// The share of memory that is in a pool of huge pages, and watermarks that would be passed if that counted as used.
const POOL: f64 = 0.4;
const BELOW_POOL: &str = "watermarks = { high = \"30%\", low = \"25%\" }";

fn without_room_for_a_pool() -> Option<String> {
    let left = Bytes::from_gib(2);
    let memory = meminfo::read(Path::new("/proc")).ok()?;
    let pool = memory.total.scaled(POOL);
    (memory.available < pool + left).then(|| {
        let available = memory.available;
        format!("a pool of {pool} leaves less than {left} of the {available} that are available")
    })
}

/// A daemon counts the pages of a hugetlb pool as no used memory.
fn beside_a_large_pool_there_is_promoted() -> Ended {
    let state = tempfile::tempdir()?;
    let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
    let wanted = meminfo::read(Path::new("/proc"))?.total.scaled(POOL).to_huge_pages();
    let sys = Path::new("/sys");
    settings.change(&hugetlb::setting(sys, PageSize::Huge), &wanted.0.to_string())?;
    let pool = hugetlb::read(sys, PageSize::Huge)?;
    let found = HugePages(pool.size).bytes();
    ensure!(found >= wanted.bytes().scaled(0.9), "the kernel found {found} of {}", wanted.bytes());
    let mut subject = Subject::start("toucher")?;
    let text = config("superpage", &[subject.pid()]);
    let home = home(&text.replace("watermarks = { enabled = false }", BELOW_POOL))?;
    let daemon = home.start()?;
    wait_until_held(&home, "superpage", 1)?;
    let memory = Memory::map(&mut subject, 4, 64)?;
    memory.wait_until_huge()?;
    daemon.stop()?;
    is_intact(&mut subject)
}

/// No host is told of free memory until this is dropped: where one is, first touches are left as they are.
fn untold() -> Result<(Settings, tempfile::TempDir), Failed> {
    let state = tempfile::tempdir()?;
    let (mut settings, _) = Settings::open(state.path(), Mode::Apply)?;
    if balloon::unreported_below(Path::new("/sys"))?.is_some() {
        let order = Path::new("/sys/module/page_reporting/parameters/page_reporting_order");
        // The order is larger than any chunk's, or, where the kernel refuses that, a base page's.
        settings.change(order, "11").or_else(|_| settings.change(order, "0"))?;
    }
    Ok((settings, state))
}

/// First touches give huge pages below the low watermark and none above it, and none where nobody wants any.
fn first_touches_are_generous_while_memory_is_free() -> Ended {
    let first = FirstTouch::at(Enabled::Madvise)?;
    let _host = untold()?;
    let marks = |high: &str, low: &str| {
        format!(
            "watermarks = {{ high = \"{high}\", low = \"{low}\" }}\nthp = {{ first_touch = \"generous\" }}\n\
             debloat = {{ min_bloat = \"100%\" }}\ntiming = {{ interval = \"100ms\" }}\n\
             processes = {{ include = {{ pids = [4194305] }} }}\nkhugepaged = {{ max_ptes_none = \"keep\" }}\n"
        )
    };
    let home = home(&marks("99%", "98%"))?;
    let defrag = || Ok::<_, Failed>(Thp::under(Path::new("/sys")).get(DEFRAG)?);
    let before = defrag()?;
    let daemon = home.start()?;
    let is = |wanted| move || Ok((FirstTouch::now()? == wanted).then_some(()));
    wait_for("first touches to give huge pages", PATIENCE, is(Enabled::Always))?;
    ensure!(matches!(defrag()?, Defrag::Defer | Defrag::Never), "a fault may compact");
    home.configure(&marks("1%", "0.1%"))?;
    daemon.signal(Signal::HUP)?;
    wait_for("first touches to give base pages", PATIENCE, is(Enabled::Madvise))?;
    home.configure(&marks("99%", "98%"))?;
    daemon.signal(Signal::HUP)?;
    wait_for("first touches to give huge pages", PATIENCE, is(Enabled::Always))?;
    daemon.stop()?;
    ensure!(FirstTouch::now()? == Enabled::Madvise && defrag()? == before, "it was not put back");
    first.write(Enabled::Never)?;
    let daemon = home.start()?;
    std::thread::sleep(Duration::from_secs(1));
    ensure!(FirstTouch::now()? == Enabled::Never, "it was raised from never");
    daemon.stop()?;
    Ok(())
}

/// Promotion by its faults, and de-bloating that never rests, because its cgroup is said to be full.
fn redis_loses_no_value() -> Ended {
    const WINDOW: Window = Window { requests: 256, bytes: Bytes::from_mib(1) }; // tidy: allow(requests)
    const COUNT: u64 = 200_000;
    // So few that what they are on is promoted with most of it empty, and stays so until it is split.
    const FIRST: u64 = 4000;
    let time = Duration::from_secs(18);
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups are mounted")?;
    let group = Scratch::create(&hierarchy, &format!("superpage-redis-{}", std::process::id()))?;
    let limit = match group.group().version() {
        superpage_kernel::cgroup::Version::V1 => "memory.limit_in_bytes",
        superpage_kernel::cgroup::Version::V2 => "memory.max",
    };
    let path = group.group().path().to_owned();
    std::fs::write(path.join(limit), Bytes::from_gib(8).0.to_string())?;
    let sizes = Sizes { least: Bytes(50), most: Bytes(1500) };
    let (redis, mut client) = group.while_in(|| Redis::start(Items::new(sizes, 1)))??;
    let config = format!(
        "watermarks = {{ enabled = false }}\n\
         debloat = {{ name = \"hawkeye\" }}\n\
         promotion = {{ policy = \"quicksilver-sync-16\", max_fragmentation = \"100%\" }}\n\
         budget = {{ promotion = \"100%\", debloat = \"100%\" }}\n\
         timing = {{ interval = \"50ms\", back_off = \"50ms\", cool_down = \"100ms\" }}\n\
         thp = {{ first_touch = \"base-pages\" }}\n\
         processes = {{ include = {{ pids = [{}] }} }}\n\
         khugepaged = {{ max_ptes_none = \"keep\" }}\n\
         [[cgroup]]\npath = {path:?}\nhigh = \"0.2%\"\nlow = \"0.1%\"\n",
        redis.pid()
    );
    let home = home(&config)?;
    let daemon = home.start()?;
    let began = Instant::now();
    client.fill(FIRST, WINDOW)?;
    daemon.wait_since(0, "a split", |line| says(line, "split huge pages"))?;
    client.fill(COUNT - FIRST, WINDOW)?;
    for seed in 1.. {
        client.closed(Mix { reads: 0.5, seed }, WINDOW, Duration::from_millis(700))?;
        client.delete(0.4, seed, WINDOW)?;
        let missing = COUNT.saturating_sub(client.items().count() as u64);
        client.fill(missing, WINDOW)?;
        if began.elapsed() >= time {
            break;
        }
    }
    client.check(WINDOW)?;
    daemon.stop()?;
    client.check(WINDOW)?;
    let entries = entries(&home)?;
    let [promoted, split] = [What::Promoted, What::Debloated].map(|what| sum(&entries, what));
    println!("{promoted} promoted, {split} split, {} values", client.items().count());
    ensure!(promoted >= 20 && split >= 1, "{promoted} promoted, {split} split: {entries:?}");
    drop(redis);
    Ok(())
}
