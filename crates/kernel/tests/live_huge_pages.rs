//! Live tests of finding, looking into, splitting and rebuilding huge pages, on memory of our own.

#![expect(clippy::print_stdout, reason = "says why a test is skipped")]

use libtest_mimic::{Arguments, Failed, Trial};
use superpage_kernel::own_child::OwnChild;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::pagemap::{Mapping, Pagemap};
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::process::Process;
use superpage_kernel::sample::{Content, Sampler};
use superpage_kernel::{maps, process_madvise, smaps_flags};
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HugePages, PmdRange,
};

/// Fails the test with `$what` unless `$holds`.
macro_rules! ensure {
    ($holds:expr, $what:expr) => {
        if !$holds {
            return Err(Failed::from($what));
        }
    };
}

type Test = fn(Subject) -> Result<(), Failed>;

const TESTS: [(&str, Test); 7] = [
    ("huge_pages_are_found_and_read", found_and_read),
    ("a_split_frees_exactly_the_zero_pages", frees_exactly),
    ("a_long_walk_counts_nothing_twice", counts_nothing_twice),
    ("collapse_brings_the_bloat_back", collapse_brings_back),
    ("locked_memory_is_refused_by_range", locked_is_refused),
    ("what_a_child_shares_stays_whole", shared_stays_whole),
    ("whether_tracked_writes_survive_a_split_is_told", tracked_writes_are_told),
];

fn main() {
    let mut arguments = Arguments::from_args();
    // A fork in one test would share the memory of all others.
    arguments.test_threads = Some(1);
    let missing = [Ability::FindHugePages, Ability::SplitAndFree, Ability::Collapse]
        .map(probe::probe)
        .into_iter()
        .find(|finding| finding.answer != Answer::Yes);
    let trial = |(name, test): (&'static str, Test)| {
        if let Some(finding) = &missing {
            println!("skipped {name}: {}", finding.why);
        }
        Trial::test(name, move || test(Subject::new()?)).with_ignored_flag(missing.is_some())
    };
    libtest_mimic::run(&arguments, TESTS.into_iter().map(trial).collect()).exit();
}

/// Some huge pages of our own; in each, every fifth base page holds something.
struct Subject {
    me: Process,
    memory: OwnMemory,
    ranges: Vec<PmdRange>,
}

const HUGE_PAGES: u64 = 16;
const USED: u64 = BASE_PAGES_PER_HUGE_PAGE.div_ceil(5);
const ZERO: BasePages = BasePages(BASE_PAGES_PER_HUGE_PAGE - USED);

fn is_used(page: u64) -> bool {
    page.is_multiple_of(5)
}

impl Subject {
    fn new() -> Result<Self, Failed> {
        let mut memory = OwnMemory::map(HugePages(HUGE_PAGES), Wish::HugePages)?;
        let page = usize::try_from(BASE_PAGE_BYTES)?;
        for (index, bytes) in (0..).zip(memory.bytes_mut().chunks_exact_mut(page)) {
            // A write to every page: a huge page where the kernel gives one.
            bytes[100] = u8::from(is_used(index % BASE_PAGES_PER_HUGE_PAGE));
        }
        let me = Process::current()?;
        let ranges: Vec<PmdRange> = memory.ranges().collect();
        process_madvise::collapse(&me, &ranges)?;
        Ok(Self { me, memory, ranges })
    }

    fn split(&self) -> Result<Vec<process_madvise::Refusal>, Failed> {
        let spots: Vec<_> = self.ranges.iter().map(|range| range.base_page(1)).collect();
        Ok(process_madvise::split(&self.me, &spots)?)
    }

    fn mappings(&self) -> Result<Vec<Mapping>, Failed> {
        Ok(Pagemap::open(&self.me)?.mappings(&self.ranges)?)
    }

    fn check_contents(&self) -> Result<(), Failed> {
        let page = usize::try_from(BASE_PAGE_BYTES)?;
        for (index, bytes) in (0..).zip(self.memory.bytes().chunks_exact(page)) {
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            ensure!(sum == u64::from(is_used(index % BASE_PAGES_PER_HUGE_PAGE)), "contents");
        }
        Ok(())
    }
}

fn found_and_read(subject: Subject) -> Result<(), Failed> {
    let found = Pagemap::open(&subject.me)?.huge_pages(&maps::of(&subject.me)?)?;
    let all = subject.ranges.iter().all(|range| found.contains(range));
    ensure!(all, "all of our huge pages are found");
    let mut sampler = Sampler::new();
    for range in &subject.ranges {
        let zero = sampler.zero_pages(&subject.me, *range)?.ok_or("readable")?;
        ensure!(u64::from(zero.count) == ZERO.0 && zero.first == Some(1), "zero pages are counted");
        let contents = sampler.contents(
            &subject.me,
            &[range.base_page(5), range.base_page(6)],
            Bytes(BASE_PAGE_BYTES),
        )?;
        ensure!(contents == [Content::Used, Content::Zero], "pages are judged");
    }
    Ok(())
}

fn frees_exactly(subject: Subject) -> Result<(), Failed> {
    ensure!(subject.split()?.is_empty(), "nothing is refused");
    let expected = Mapping::Split { zero_pages: ZERO };
    let mappings = subject.mappings()?;
    ensure!(mappings.iter().all(|found| *found == expected), &format!("{mappings:?}"));
    subject.check_contents()
}

/// 16 PMD ranges of about 200 runs of pages each: more than one call returns, and where the kernel's own
/// buffer is full in the middle.
fn counts_nothing_twice(subject: Subject) -> Result<(), Failed> {
    subject.split()?;
    let pagemap = Pagemap::open(&subject.me)?;
    for length in 1..=subject.ranges.len() {
        let mappings = pagemap.mappings(&subject.ranges[..length])?;
        let expected = vec![Mapping::Split { zero_pages: ZERO }; length];
        ensure!(mappings == expected, &format!("{length} ranges: {mappings:?}"));
    }
    Ok(())
}

fn collapse_brings_back(subject: Subject) -> Result<(), Failed> {
    subject.split()?;
    let refusals = process_madvise::collapse(&subject.me, &subject.ranges)?;
    ensure!(refusals.is_empty(), "nothing is refused");
    let mappings = subject.mappings()?;
    ensure!(mappings.iter().all(|found| *found == Mapping::Huge), "huge again");
    subject.check_contents()
}

/// One locked range in the middle: it is refused, the ones around it are split.
fn locked_is_refused(subject: Subject) -> Result<(), Failed> {
    let middle = subject.ranges.len() / 2;
    let huge_page = usize::try_from(HugePages(1).bytes().0)?;
    let part = &subject.memory.bytes()[middle * huge_page..][..huge_page];
    lock(part)?;
    let refusals = subject.split()?;
    ensure!(refusals.len() == 1 && refusals[0].index == middle, &format!("{refusals:?}"));
    let mappings = subject.mappings()?;
    for (index, mapping) in mappings.iter().enumerate() {
        ensure!((*mapping == Mapping::Huge) == (index == middle), "only the locked one is whole");
    }
    subject.check_contents()
}

/// The call succeeds and does nothing, which is why it is always verified.
fn shared_stays_whole(subject: Subject) -> Result<(), Failed> {
    let child = OwnChild::fork()?;
    ensure!(subject.split()?.is_empty(), "nothing is refused");
    ensure!(subject.mappings()?.iter().all(|found| *found == Mapping::Huge), "shared and whole");
    let pagemap = Pagemap::open(&subject.me)?;
    let shared = |range: &PmdRange| pagemap.is_exclusive(range.start()) == Ok(Some(false));
    ensure!(subject.ranges.iter().all(shared), "it shows that they are shared");
    drop(child);
    ensure!(!subject.ranges.iter().any(shared), "they are ours alone again");
    frees_exactly(subject)
}

#[expect(unsafe_code, reason = "locking memory has no safe wrapper")]
fn lock(part: &[u8]) -> Result<(), Failed> {
    let start = part.as_ptr().cast_mut().cast();
    // SAFETY: `part` is mapped for as long as it is borrowed; locking changes no contents.
    Ok(unsafe { rustix::mm::mlock(start, part.len()) }?)
}

/// Whether they do is the kernel's affair; that we can tell is ours.
fn tracked_writes_are_told(_: Subject) -> Result<(), Failed> {
    let finding = probe::probe(Ability::KeepTracking);
    let is_told = finding.answer != Answer::CouldNotTell;
    ensure!(is_told, finding.why);
    let tells_soft_dirty = !finding.why.contains("soft-dirty bit not tried");
    ensure!(tells_soft_dirty == smaps_flags::kernel_has_soft_dirty(), finding.why);
    Ok(())
}
