//! Live tests of arrays on chosen pages: on this kernel, with memory of our own, seen by the kernel's own account.

#![expect(clippy::print_stdout, reason = "says why a test is skipped")]
#![expect(unsafe_code, reason = "forks")]

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use superpage_array::{
    Error, PageArray, Pages, Placement, Request, Shortfall, collapse, collapse_at,
};
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::process::Process;
use superpage_kernel::process_madvise;
use superpage_kernel::procmap_query::OwnMaps;
use superpage_kernel::{hugetlb, meminfo};
use superpage_manager::hugetlb_pool::HugetlbPool;
use superpage_units::{
    BASE_PAGE_BYTES, Bytes, GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES, PageSize, PmdRange, VirtAddr,
};

/// Fails the test with `$what` unless `$holds`.
macro_rules! ensure {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(Failed::from(format!($($what)*)));
        }
    };
}

type Ended = Result<(), Failed>;

/// A test by name, and the reason why it cannot run here.
type Test<'a> = (&'static str, &'a Option<String>, fn() -> Ended);

const HUGE: usize = 1 << 21;
const WORDS: usize = HUGE / size_of::<u64>();

fn main() {
    let mut arguments = Arguments::from_args();
    // A fork in one test would share the memory of all others.
    arguments.test_threads = Some(1);
    let huge = without(Ability::Collapse);
    let gigantic = huge.clone().or_else(without_gigantic);
    let tests: [Test; 11] = [
        ("arrays_begin_where_they_are_asked_to", &None, begins_where_it_is_asked_to),
        ("the_asked_part_is_on_huge_pages", &huge, the_asked_part_is_huge),
        ("the_rest_is_not_there_and_stays_on_base_pages", &huge, the_rest_stays_on_base_pages),
        ("a_shorter_array_gives_memory_back", &huge, a_shorter_array_gives_memory_back),
        ("base_pages_are_collapsed_when_asked", &huge, base_pages_are_collapsed),
        ("what_any_memory_is_on_is_told", &huge, what_any_memory_is_on),
        ("empty_and_small_arrays_work", &huge, empty_and_small),
        ("what_cannot_be_had_is_refused", &None, what_cannot_be_had),
        ("gigantic_pages_come_first_then_huge_ones", &gigantic, gigantic_then_huge),
        ("a_child_has_its_own_copy_of_gigantic_pages", &gigantic, a_child_has_its_own_copy),
        ("children_of_children_have_theirs", &gigantic, children_of_children),
    ];
    let trial = |(name, missing, test): Test| {
        if let Some(why) = missing {
            println!("skipped {name}: {why}");
        }
        Trial::test(name, test).with_ignored_flag(missing.is_some())
    };
    libtest_mimic::run(&arguments, tests.into_iter().map(trial).collect()).exit();
}

fn without(ability: Ability) -> Option<String> {
    let finding = probe::probe(ability);
    (finding.answer != Answer::Yes).then_some(finding.why)
}

/// Gigantic pages of the kernel's, given back when dropped.
struct Pool {
    _pool: HugetlbPool,
    _state: tempfile::TempDir,
}

impl Pool {
    fn of(pages: u64) -> Result<Self, Failed> {
        let state = tempfile::tempdir()?;
        let (mut pool, _) = HugetlbPool::open(state.path(), PageSize::Gigantic)?;
        let there = pool.look()?;
        let wanted = there.used + pages;
        if there.size < wanted {
            pool.set(wanted)?;
        }
        let found = pool.look()?.free;
        ensure!(found >= pages, "the kernel has found {found} gigantic pages");
        Ok(Self { _pool: pool, _state: state })
    }
}

/// The reason why no gigantic pages can be had: the same that the tests ask for is tried.
fn without_gigantic() -> Option<String> {
    Pool::of(2)
        .err()
        .map(|why| why.message().unwrap_or("the kernel has no gigantic pages").to_owned())
}

fn parsed(text: &str) -> Result<Pages, Failed> {
    Ok(text.parse()?)
}

fn the_asked_part_is_huge() -> Ended {
    for (text, expected) in [("huge", 40), ("huge:20%", 8), ("huge:1%", 1), ("base", 0)] {
        let mut array = PageArray::<u64>::zeroed(40 * WORDS, parsed(text)?)?;
        let placed = array.placement()?;
        ensure!(placed.huge == Bytes(expected * HUGE_PAGE_BYTES), "{text}: {placed}");
        ensure!(placed.absent + placed.huge == array.size(), "{text}: {placed}");
        ensure!(array.iter().all(|word| *word == 0), "{text}: not zero");
        array.iter_mut().enumerate().for_each(|(index, word)| *word = index as u64);
        ensure!(
            array.iter().enumerate().all(|(index, word)| *word == index as u64),
            "{text}: wrong"
        );
        let placed = array.placement()?;
        ensure!(placed.base + placed.huge == array.size(), "{text}: {placed}");
        ensure!(placed.huge == Bytes(expected * HUGE_PAGE_BYTES), "{text}: {placed}");
    }
    Ok(())
}

/// The kernel refuses huge pages there also when it is asked later, as khugepaged and the daemon do.
fn the_rest_stays_on_base_pages() -> Ended {
    let array = PageArray::<u64>::copy_of(&vec![7; 10 * WORDS], parsed("huge:50%")?)?;
    let me = Process::current()?;
    let start = VirtAddr(array.as_ptr().addr() as u64);
    let ranges: Vec<PmdRange> = PmdRange::within(start, start.offset(array.size())).collect();
    let refused = process_madvise::collapse(&me, &ranges)?.len();
    ensure!(refused == 5, "the kernel refused huge pages for {refused} ranges of 10");
    let placed = array.placement()?;
    ensure!(placed.huge == Bytes(5 * HUGE_PAGE_BYTES), "{placed}");
    Ok(())
}

fn a_shorter_array_gives_memory_back() -> Ended {
    let mut array = PageArray::<u64>::copy_of(&vec![7; 10 * WORDS], parsed("huge:50%")?)?;
    array.truncate(2 * WORDS + 1);
    let placed = array.placement()?;
    ensure!(placed.huge == Bytes(3 * HUGE_PAGE_BYTES) && placed.total() == placed.huge, "{placed}");
    ensure!(array.len() == 2 * WORDS + 1 && array.iter().all(|word| *word == 7), "it is not right");
    array.truncate(0);
    ensure!(array.is_empty() && array.placement()?.huge == Bytes(HUGE_PAGE_BYTES), "{array:?}");
    Ok(())
}

fn base_pages_are_collapsed() -> Ended {
    let mut array = PageArray::<u64>::copy_of(&vec![3; 6 * WORDS], Pages::BASE)?;
    ensure!(array.placement()?.huge.is_zero(), "{}", array.placement()?);
    // The first and the last range do not lie in it as a whole.
    let inner = array.len() - 2;
    collapse(&mut array[1..=inner])?;
    let placed = array.placement()?;
    ensure!(placed.huge == Bytes(4 * HUGE_PAGE_BYTES), "{placed}");
    ensure!(array.iter().all(|word| *word == 3), "it holds something else");
    Ok(())
}

fn what_any_memory_is_on() -> Ended {
    let memory = vec![1_u8; 3 * HUGE];
    let placed = Placement::of(&memory)?;
    let least = Bytes(memory.len() as u64);
    ensure!(placed.total() >= least && placed.absent.is_zero(), "{placed}");
    let part = Placement::of(&memory[10..20])?;
    ensure!(part.total() == Bytes(BASE_PAGE_BYTES), "{part}");
    Ok(())
}

fn empty_and_small() -> Ended {
    for text in ["base", "huge", "gigantic", "huge:20%"] {
        let array = PageArray::<u64>::zeroed(0, parsed(text)?)?;
        ensure!(
            array.is_empty() && array.placement()? == Placement::default(),
            "{text}: something"
        );
    }
    let small = PageArray::<u8>::from_fn(5, Pages::HUGE, |index| index.to_le_bytes()[0])?;
    ensure!(*small == [0, 1, 2, 3, 4], "{small:?}");
    ensure!(small.placement()?.huge == Bytes(HUGE_PAGE_BYTES), "{}", small.placement()?);
    let none = PageArray::<()>::zeroed(7, Pages::HUGE)?;
    ensure!(none.len() == 7, "{none:?}");
    Ok(())
}

fn begins_where_it_is_asked_to() -> Ended {
    for pages in [Pages::BASE, Pages::DEFAULT, Pages::HUGE] {
        for alignment in [1, 8192, 4 * HUGE] {
            let mut array = PageArray::<u64>::aligned(1000, pages, Bytes(alignment as u64))?;
            ensure!(array.as_ptr().addr().is_multiple_of(alignment), "{pages} {alignment}");
            array.fill(7);
            ensure!(array.iter().all(|word| *word == 7), "{pages} {alignment}");
        }
    }
    for alignment in [Bytes(0), Bytes(48)] {
        let refused = PageArray::<u64>::aligned(1, Pages::BASE, alignment);
        ensure!(matches!(refused, Err(Error::Alignment(_))), "{refused:?}");
    }
    Ok(())
}

fn what_cannot_be_had() -> Ended {
    let free = hugetlb::read(Path::new("/sys"), PageSize::Gigantic).map_or(0, |pool| pool.free);
    let length = usize::try_from((free + 1) * GIGANTIC_PAGE_BYTES)?;
    let request = Request { pages: Pages::GIGANTIC, shortfall: Shortfall::Refused };
    // More than is free, in a process that may have hardly any memory.
    let refused = PageArray::<u8>::zeroed(length.min(1 << 30), request);
    if free == 0 {
        ensure!(matches!(refused, Err(Error::Missing { .. })), "{refused:?}");
    }
    for address in [usize::MAX - 4000, 1 << 60] {
        let beyond = (Placement::at(address, 100), collapse_at(address, 100));
        ensure!(
            matches!(beyond, (Err(Error::Memory { .. }), Err(Error::Memory { .. }))),
            "{beyond:?}"
        );
    }
    // More than there is in memory and swap, but for what hardly anybody will touch.
    let more = usize::try_from(meminfo::read(Path::new("/proc"))?.total.0)? * 4;
    let counted = PageArray::<u8>::zeroed(more, Pages::BASE);
    let huge = PageArray::<u8>::zeroed(more, Pages::HUGE);
    ensure!(matches!((&counted, &huge), (Err(_), Err(_))), "{counted:?} {huge:?}");
    ensure!(PageArray::<u8>::sparse(more)?[more - 1] == 0, "it is not zero");
    let too_large = PageArray::<u64>::zeroed(usize::MAX / 2, Pages::BASE);
    ensure!(matches!(too_large, Err(Error::TooLarge { .. })), "{too_large:?}");
    let no_room = PageArray::<u8>::zeroed(1 << 60, Pages::HUGE);
    ensure!(matches!(no_room, Err(Error::Memory { .. })), "{no_room:?}");
    Ok(())
}

const GIGANTIC_WORDS: usize = WORDS << 9;

fn gigantic_then_huge() -> Ended {
    let _pool = Pool::of(1)?;
    let mut array = PageArray::<u64>::zeroed(GIGANTIC_WORDS + WORDS, Pages::GIGANTIC)?;
    let placed = array.placement()?;
    ensure!(placed.gigantic >= Bytes(GIGANTIC_PAGE_BYTES), "{placed}");
    // The rest of the last gigantic page has no memory.
    let is_all = placed.gigantic == Bytes(2 * GIGANTIC_PAGE_BYTES);
    ensure!(is_all || placed.huge == Bytes(HUGE_PAGE_BYTES), "{placed}");
    let vma = OwnMaps::open()?.vma_from(VirtAddr(array.as_ptr().addr() as u64))?;
    ensure!(vma.is_some_and(|vma| vma.page_size == Bytes(GIGANTIC_PAGE_BYTES)), "{vma:?}");
    array[GIGANTIC_WORDS] = 5;
    ensure!(array[GIGANTIC_WORDS] == 5 && array[0] == 0, "it holds something else");
    Ok(())
}

/// Whether a child of a fork finds the array as it was, and can change its own copy.
fn child_of(array: &mut [u64], then: impl FnOnce(&mut [u64]) -> bool) -> Result<bool, Failed> {
    // SAFETY: the child does nothing but look at memory and end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_right = then(array);
        // SAFETY: it ends at once.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    ensure!(child > 0, "no fork");
    let mut status = 0;
    // SAFETY: a child of ours, and room for its end.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    ensure!(ended == child, "no child");
    Ok(status == 0)
}

fn changed(array: &mut [u64]) -> bool {
    let is_right = array.iter().step_by(509).enumerate().all(|(at, word)| *word == 509 * at as u64);
    array.fill(1);
    is_right
}

fn a_child_has_its_own_copy() -> Ended {
    // The pool has one page: a copy of it as a whole would find none.
    let _pool = Pool::of(1)?;
    let mut array = PageArray::<u64>::zeroed(GIGANTIC_WORDS, Pages::GIGANTIC)?;
    array.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64);
    ensure!(child_of(&mut array, changed)?, "the child found something else, or died");
    let placed = array.placement()?;
    ensure!(placed.gigantic == Bytes(GIGANTIC_PAGE_BYTES), "{placed}");
    ensure!(
        array.iter().enumerate().all(|(at, word)| *word == at as u64),
        "the child has changed it"
    );
    Ok(())
}

fn children_of_children() -> Ended {
    let _pool = Pool::of(1)?;
    let mut array = PageArray::<u64>::zeroed(GIGANTIC_WORDS, Pages::GIGANTIC)?;
    array.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64);
    let is_right = child_of(&mut array, |array| {
        array[509] = 509;
        child_of(array, changed).unwrap_or(false) && array[0] == 0
    })?;
    ensure!(is_right, "a child found something else, or died");
    Ok(())
}
