//! What promotion and de-bloating policies make of the same programs, on any machine.
//!
//! What comes of it is small enough to be read off the policies' descriptions. All that is asked and
//! answered on the way is the same on both machines.

use crate::contract::{ALL, base_pages, promote};
use crate::recorder::Recorder;
use crate::testbed::{Ended, PAGES, Place, Testbed, about, place};
use crate::{dialogues, ensure, scripts};
use libtest_mimic::Failed;
use superpage_policy::debloat::Debloat;
use superpage_policy::debloat::emd::{self, EMD_EXACT};
use superpage_policy::debloat::hawkeye::HawkEye;
use superpage_policy::promotion::linux::{self, Khugepaged, Linux};
use superpage_policy::promotion::{Act, Action, Cause, Outcome, Policy};
use superpage_policy::promotion::{hawkeye, list};
use superpage_sim::machine::Content;
use superpage_units::{BasePages, HugePages, Mapping, Nanos, Time};

scripts! {
    khugepaged_promotes_what_misses_no_more_than_it_may,
    a_reservation_lasts_until_it_is_given_back,
}

dialogues! {
    each_policy_makes_the_same_ranges_huge,
    emd_goes_in_the_papers_order,
    hawkeye_goes_by_address_one_process_after_the_other,
    debloating_stops_when_enough_is_freed,
}

/// What was said, line by line.
type Said = Result<Vec<String>, Failed>;

/// Every configuration that asks for nothing but base and huge pages; left out are those of gigantic
/// pages (`trident`) and of pages set aside before (`hugetlb`, `xheap`).
pub(crate) const POLICIES: [&str; 17] = [
    "linux",
    "linux-madvise",
    "linux-nokhugepaged",
    "linux-defrag-madvise",
    "linux-4k",
    "freebsd",
    "ingens",
    "ingens-star",
    "hawkeye",
    "hawkeye-star",
    "hawkeye-first-touch",
    "quicksilver-sync-1",
    "quicksilver-sync-64",
    "quicksilver-async-64",
    "quicksilver-async-256",
    "superpage",
    "selective",
];

/// A fresh policy by its name. HawkEye zeroes nothing ahead of time: that cannot be done from
/// outside.
pub(crate) fn policy_named(name: &str) -> Result<Box<dyn Policy>, Failed> {
    use hawkeye::{HawkEye, Options};
    let hawkeye = |options| -> Box<dyn Policy> {
        Box::new(HawkEye::new(Options { zeroed: HugePages::ZERO, ..options }))
    };
    Ok(match name {
        "hawkeye" => hawkeye(Options::PUBLISHED),
        "hawkeye-star" => hawkeye(Options::STAR),
        "hawkeye-first-touch" => hawkeye(Options::FIRST_TOUCH),
        _ => (list::find(name).ok_or("no such policy")?.build)(),
    })
}

/// How many base pages are touched of each range of the program that all policies get. The last
/// range stays untouched.
const TOUCHED: [u16; 6] = [1, 64, 256, 460, PAGES, 0];

/// Which of those ranges are huge in the end: read off `docs/policies.md`.
fn huge_in_the_end(name: &str) -> &[u64] {
    match name {
        "linux-madvise" | "linux-4k" | "selective" => &[],
        "freebsd" => &[4],
        "ingens" => &[3, 4],
        "quicksilver-async-256" => &[2, 3, 4],
        "quicksilver-sync-64" | "quicksilver-async-64" => &[1, 2, 3, 4],
        _ => &[0, 1, 2, 3, 4],
    }
}

fn each_policy_makes_the_same_ranges_huge<M: Testbed>() -> Said {
    let asks_for_more =
        |name: &str| ["trident", "hugetlb", "xheap"].iter().any(|policy| name.starts_with(policy));
    let listed = list::ALL.iter().map(|entry| entry.name).filter(|name| !asks_for_more(name));
    ensure!(listed.eq(POLICIES), "every policy of base and huge pages is tried");
    let each = |name| touch_and_settle::<M>(name).map_err(|why| about(name, &why));
    Ok(POLICIES.map(each).into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// The program; what was said to the policy.
fn touch_and_settle<M: Testbed>(name: &str) -> Said {
    let (policy, log) = Recorder::new(policy_named(name)?);
    let mut machine = M::start(&[HugePages(TOUCHED.len() as u64)], Box::new(policy))?;
    for (range, pages) in (0..).zip(TOUCHED) {
        machine.touch_all(place(range), 0..pages, Content::Data)?;
    }
    machine.settle()?;
    machine.check()?;
    for (range, pages) in (0..).zip(TOUCHED) {
        let seen = machine.seen(place(range))?;
        let is_huge = seen.mapping == Mapping::Huge;
        ensure!(is_huge == huge_in_the_end(name).contains(&range), "range {range}: {seen:?}");
        ensure!(seen.data == (0..pages).collect(), "range {range} holds {seen:?}");
        let expected = if is_huge { PAGES } else { pages };
        ensure!(seen.present == BasePages(u64::from(expected)), "range {range}: {seen:?}");
    }
    Ok(machine.words(&log))
}

/// The threshold is one of the base pages that are touched; a new policy finds what an old one left.
fn khugepaged_promotes_what_misses_no_more_than_it_may<M: Testbed>() -> Ended {
    for (missing, huge) in [(256, vec![2, 3, 4]), (255, vec![3, 4]), (511, vec![0, 1, 2, 3, 4])] {
        let mut machine = M::start(&[HugePages(TOUCHED.len() as u64)], base_pages())?;
        for (range, pages) in (0..).zip(TOUCHED) {
            machine.touch_all(place(range), 0..pages, Content::Data)?;
        }
        let max_missing = BasePages(missing);
        let khugepaged = Some(Khugepaged { max_missing, ..Khugepaged::DEFAULT });
        let options = linux::Options { khugepaged, ..linux::Options::ALWAYS };
        machine.change_policy(Box::new(Linux::new(options)));
        machine.settle()?;
        ensure!(huge_ranges(&mut machine)? == huge, "{missing}: {:?}", huge_ranges(&mut machine)?);
        // What the program touches meanwhile is found ten seconds later.
        machine.touch_all(place(5), 0..PAGES - 1, Content::Zeroes)?;
        machine.settle()?;
        let mut later = huge;
        ensure!(huge_ranges(&mut machine)? == [later.clone(), vec![5]].concat(), "a first touch");
        machine.release(place(4), 511, BasePages(1))?;
        machine.settle()?;
        later.retain(|range| *range != 4);
        later.push(5);
        ensure!(huge_ranges(&mut machine)? == later, "it sleeps");
        machine.set_time(Time(10_000_000_000));
        machine.settle()?;
        later.insert(later.len() - 1, 4);
        ensure!(huge_ranges(&mut machine)? == later, "{:?}", huge_ranges(&mut machine)?);
        machine.check()?;
    }
    Ok(())
}

fn huge_ranges<M: Testbed>(machine: &mut M) -> Result<Vec<u64>, Failed> {
    let mut huge = Vec::new();
    for range in 0..TOUCHED.len() as u64 {
        if machine.seen(place(range))?.mapping == Mapping::Huge {
            huge.push(range);
        }
    }
    Ok(huge)
}

fn a_reservation_lasts_until_it_is_given_back<M: Testbed>() -> Ended {
    let mut machine = M::start(&[HugePages(4)], policy_named("quicksilver-async-64")?)?;
    for range in 0..4 {
        machine.touch_all(place(range), 0..63, Content::Data)?;
    }
    machine.settle()?;
    ensure!(reserved(&mut machine)? == [0, 1, 2, 3], "each is reserved, and below the threshold");
    let process = M::key(0);
    for range in [0, 1] {
        let act = Act::Unreserve { process, range: machine.range(place(range)) };
        let give_back = Action { act, cause: Cause::Idle(Nanos::ZERO) };
        ensure!(machine.apply(&give_back)? == Outcome::Done, "it can be given back");
        ensure!(machine.apply(&give_back)? == Outcome::Stale, "once");
    }
    machine.release(place(2), 0, BasePages(63))?;
    ensure!(
        reserved(&mut machine)? == [3],
        "nor is one for nothing: {:?}",
        reserved(&mut machine)?
    );
    // One base page more is the threshold, but only of what is reserved.
    for range in [0, 1, 3] {
        machine.touch(place(range), 63, Content::Data)?;
    }
    machine.settle()?;
    for (range, mapping) in
        [Mapping::Base, Mapping::Base, Mapping::Empty, Mapping::Huge].into_iter().enumerate()
    {
        let seen = machine.seen(place(range as u64))?;
        ensure!(seen.mapping == mapping, "range {range}: {seen:?}");
    }
    ensure!(reserved(&mut machine)?.is_empty(), "a huge page is no reservation");
    machine.check()
}

fn reserved<M: Testbed>(machine: &mut M) -> Result<Vec<u64>, Failed> {
    let ranges: Vec<_> = (0..4).map(|range| machine.range(place(range))).collect();
    let view = machine.view()?;
    let seen = (0..).zip(ranges).map(|(index, range)| (index, view.range(M::key(0), range)));
    Ok(seen.filter(|(_, seen)| seen.is_reserved).map(|(index, _)| index).collect())
}

/// EMD's example (section 4.3), as in the policy's own tests: zero-filled base pages by process.
const EXAMPLE: [&[u16]; 3] = [&[480, 420, 370, 320], &[470, 410, 430, 360], &[500, 440, 405]];

/// Processes with a huge page for each of these bloat densities, which are below 512.
fn bloated<M: Testbed>(densities: &[&[u16]]) -> Result<M, Failed> {
    let sizes: Vec<_> = densities.iter().map(|of| HugePages(of.len() as u64)).collect();
    let mut machine = M::start(&sizes, base_pages())?;
    for (program, densities) in densities.iter().enumerate() {
        for (range, density) in (0..).zip(*densities) {
            let at = Place { program, range };
            machine.touch_all(at, (*density + 1..PAGES).chain([0]), Content::Data)?;
            ensure!(promote(&mut machine, at)? == Outcome::Done, "{at:?} can be promoted");
        }
    }
    Ok(machine)
}

/// De-bloats until so much is freed; says what was freed, and what was said.
fn debloat<M: Testbed>(
    policy: Box<dyn Debloat>,
    densities: &[&[u16]],
    need: BasePages,
) -> Result<(BasePages, Vec<String>), Failed> {
    let mut machine: M = bloated(densities)?;
    let (mut policy, log) = Recorder::new(policy);
    let freed = machine.debloat(&mut policy, need)?;
    machine.check()?;
    Ok((freed, machine.words(&log)))
}

fn emd_by(quantum: HugePages) -> Box<dyn Debloat> {
    (EMD_EXACT.build)(emd::Options { quantum, ..emd::Options::default() })
}

/// The ranges that were split, in order, as `process:range`, from 1 and 0.
fn split(words: &[String]) -> Vec<&str> {
    words
        .iter()
        .filter_map(|line| Some(line.strip_prefix("split ")?.split_once(": ")?.0))
        .flat_map(|places| places.split(' '))
        .filter_map(|place| place.strip_suffix("+0"))
        .collect()
}

fn all(densities: &[&[u16]]) -> BasePages {
    densities.iter().flat_map(|of| *of).map(|density| BasePages(u64::from(*density))).sum()
}

fn emd_goes_in_the_papers_order<M: Testbed>() -> Said {
    let (freed, words) = debloat::<M>(emd_by(HugePages(100)), &EXAMPLE, all(&EXAMPLE))?;
    ensure!(freed == all(&EXAMPLE), "{freed} freed");
    // A1 B1 C1 A2 B2 B3 C2 C3 A3 B4 A4
    let order = ["1:0", "2:0", "3:0", "1:1", "2:1", "2:2", "3:1", "3:2", "1:2", "2:3", "1:3"];
    ensure!(split(&words) == order, "{words:#?}");
    Ok(words)
}

fn hawkeye_goes_by_address_one_process_after_the_other<M: Testbed>() -> Said {
    let hawkeye = Box::new(HawkEye);
    let densities: [&[u16]; 3] = [&[100, 500, 3], &[511, 1], &[0, 250]];
    let (freed, words) = debloat::<M>(hawkeye, &densities, ALL)?;
    ensure!(freed == all(&densities), "{freed} freed");
    ensure!(split(&words) == ["1:0", "1:1", "1:2", "2:0", "2:1", "3:1"], "{words:#?}");
    Ok(words)
}

fn debloating_stops_when_enough_is_freed<M: Testbed>() -> Said {
    let (freed, words) = debloat::<M>(emd_by(HugePages(1)), &EXAMPLE, BasePages(1451))?;
    ensure!(split(&words) == ["1:0", "2:0", "3:0", "1:1"], "{words:#?}");
    ensure!(freed == BasePages(480 + 470 + 500 + 420), "{freed} freed");
    let hawkeye = Box::new(HawkEye);
    let (freed, more) = debloat::<M>(hawkeye, &EXAMPLE, BasePages(900))?;
    ensure!(split(&more) == ["1:0", "1:1"], "{more:#?}");
    ensure!(freed == BasePages(900), "{freed} freed");
    Ok([words, more].concat())
}
