//! What touches, releases, promotions and de-bloating do to a range, on any machine.

use crate::recorder::Recorder;
use crate::testbed::{Ended, PAGES, Pages, Place, Seen, Testbed, place};
use crate::{ensure, scripts};
use libtest_mimic::Failed;
use superpage_policy::compaction::Compaction;
use superpage_policy::debloat::Debloat;
use superpage_policy::debloat::emd::{self, EMD_EXACT};
use superpage_policy::promotion::linux::{Linux, Options};
use superpage_policy::promotion::{Act, Action, Cause, How, Outcome, Policy};
use superpage_sim::machine::Content;
use superpage_units::{BasePages, HugePages, Mapping, Page};

scripts! {
    a_first_touch_maps_one_base_page,
    promotion_keeps_data_and_adds_zero_filled_pages,
    nothing_is_promoted_where_nothing_is,
    debloating_frees_exactly_the_zero_filled_pages,
    a_huge_page_without_bloat_stays,
    a_huge_page_without_data_goes,
    what_was_freed_faults_again,
    a_huge_page_given_back_in_part_becomes_base_pages,
    what_is_given_back_whole_is_gone,
}

/// Base pages everywhere: what is made huge, the test makes huge.
pub(crate) fn base_pages() -> Box<dyn Policy> {
    Box::new(Linux::new(Options::NEVER))
}

fn start<M: Testbed>() -> Result<M, Failed> {
    M::start(&[HugePages(4)], base_pages())
}

/// EMD as published: what it frees does not depend on samples.
pub(crate) fn emd_exact() -> Box<dyn Debloat> {
    Box::new(Recorder::new((EMD_EXACT.build)(emd::Options::default())).0)
}

/// More than there ever is.
pub(crate) const ALL: BasePages = BasePages(u64::MAX / 2);

pub(crate) fn promotion<M: Testbed>(machine: &M, place: Place) -> Action {
    let page = Page::from(machine.range(place));
    let how = How::Copy(Some(Compaction::Sequential));
    let act = Act::Promote { process: M::key(place.program), page, how };
    Action { act, cause: Cause::Scanned(BasePages(1)) }
}

pub(crate) fn promote<M: Testbed>(machine: &mut M, place: Place) -> Result<Outcome, Failed> {
    machine.apply(&promotion(machine, place))
}

/// Fails unless the range looks like this.
#[track_caller]
fn expect<M: Testbed>(
    machine: &mut M,
    at: Place,
    mapping: Mapping,
    present: u64,
    data: &Pages,
) -> Ended {
    let expected = Seen { mapping, present: BasePages(present), data: data.clone() };
    let seen = machine.seen(at)?;
    let line = std::panic::Location::caller().line();
    ensure!(seen == expected, "line {line}: {seen:?} in {at:?}, and not {expected:?}");
    machine.check()
}

/// Every fifth base page, and the last.
fn some() -> Pages {
    (0..PAGES).step_by(5).chain([PAGES - 1]).collect()
}

const WHOLE: u64 = PAGES as u64;

fn count(pages: &Pages) -> u64 {
    pages.len() as u64
}

/// A huge page with data in [`some`] of its base pages.
fn bloated<M: Testbed>() -> Result<M, Failed> {
    let mut machine: M = start()?;
    machine.touch_all(place(1), some(), Content::Data)?;
    ensure!(promote(&mut machine, place(1))? == Outcome::Done, "it can be promoted");
    Ok(machine)
}

fn a_first_touch_maps_one_base_page<M: Testbed>() -> Ended {
    let mut machine: M = start()?;
    machine.touch(place(0), 7, Content::Data)?;
    machine.touch(place(2), 0, Content::Zeroes)?;
    machine.touch(place(2), PAGES - 1, Content::Zeroes)?;
    for _ in 0..2 {
        expect(&mut machine, place(0), Mapping::Base, 1, &[7].into())?;
        expect(&mut machine, place(1), Mapping::Empty, 0, &Pages::new())?;
        expect(&mut machine, place(2), Mapping::Base, 2, &Pages::new())?;
        // Again, which changes nothing; data is not lost by a touch that writes none.
        machine.touch(place(0), 7, Content::Zeroes)?;
        machine.touch(place(2), 0, Content::Zeroes)?;
    }
    machine.touch(place(2), 0, Content::Data)?;
    expect(&mut machine, place(2), Mapping::Base, 2, &[0].into())?;
    let footprint = machine.view()?.footprint(M::key(0));
    ensure!(footprint.base == BasePages(3) && footprint.huge.is_zero(), "{footprint:?}");
    Ok(())
}

fn promotion_keeps_data_and_adds_zero_filled_pages<M: Testbed>() -> Ended {
    let mut machine: M = start()?;
    machine.touch_all(place(1), some(), Content::Data)?;
    machine.touch_all(place(1), [1, 2, 3], Content::Zeroes)?;
    machine.touch(place(2), 0, Content::Data)?;
    expect(&mut machine, place(1), Mapping::Base, count(&some()) + 3, &some())?;
    ensure!(promote(&mut machine, place(1))? == Outcome::Done, "it can be promoted");
    expect(&mut machine, place(1), Mapping::Huge, WHOLE, &some())?;
    expect(&mut machine, place(2), Mapping::Base, 1, &[0].into())?;
    let zero_filled = machine.seen(place(1))?.zero_filled();
    ensure!(zero_filled == BasePages(WHOLE - count(&some())), "{zero_filled}");
    let footprint = machine.view()?.footprint(M::key(0));
    ensure!(footprint.huge == HugePages(1) && footprint.base == BasePages(1), "{footprint:?}");
    // What is written now is no bloat any more.
    machine.touch(place(1), 4, Content::Data)?;
    let mut more = some();
    more.insert(4);
    expect(&mut machine, place(1), Mapping::Huge, WHOLE, &more)
}

fn nothing_is_promoted_where_nothing_is<M: Testbed>() -> Ended {
    let mut machine: M = start()?;
    ensure!(promote(&mut machine, place(0))? == Outcome::Stale, "nothing is mapped");
    expect(&mut machine, place(0), Mapping::Empty, 0, &Pages::new())?;
    // Nor where everything was given back,
    machine.touch_all(place(1), 0..9, Content::Data)?;
    machine.release(place(1), 0, BasePages(9))?;
    ensure!(promote(&mut machine, place(1))? == Outcome::Stale, "nothing is mapped any more");
    expect(&mut machine, place(1), Mapping::Empty, 0, &Pages::new())?;
    // nor what is huge already,
    machine.touch(place(2), 3, Content::Data)?;
    ensure!(promote(&mut machine, place(2))? == Outcome::Done, "it can be promoted");
    ensure!(promote(&mut machine, place(2))? == Outcome::Stale, "it is huge");
    expect(&mut machine, place(2), Mapping::Huge, WHOLE, &[3].into())?;
    // nor beyond the VMA.
    ensure!(promote(&mut machine, place(4))? == Outcome::Stale, "it is not in the VMA");
    Ok(())
}

fn debloating_frees_exactly_the_zero_filled_pages<M: Testbed>() -> Ended {
    let mut machine: M = bloated()?;
    let bloat = BasePages(WHOLE - count(&some()));
    ensure!(machine.debloat(&mut *emd_exact(), ALL)? == bloat, "what was freed");
    expect(&mut machine, place(1), Mapping::Base, count(&some()), &some())?;
    ensure!(machine.debloat(&mut *emd_exact(), ALL)?.is_zero(), "nothing is left to free");
    // And back again.
    ensure!(promote(&mut machine, place(1))? == Outcome::Done, "it can be promoted again");
    expect(&mut machine, place(1), Mapping::Huge, WHOLE, &some())?;
    ensure!(machine.debloat(&mut *emd_exact(), ALL)? == bloat, "what was freed again");
    expect(&mut machine, place(1), Mapping::Base, count(&some()), &some())
}

fn a_huge_page_without_bloat_stays<M: Testbed>() -> Ended {
    let mut machine: M = start()?;
    let all: Pages = (0..PAGES).collect();
    machine.touch_all(place(3), 0..PAGES, Content::Data)?;
    expect(&mut machine, place(3), Mapping::Base, WHOLE, &all)?;
    ensure!(promote(&mut machine, place(3))? == Outcome::Done, "it can be promoted");
    ensure!(machine.debloat(&mut *emd_exact(), ALL)?.is_zero(), "there is nothing to free");
    expect(&mut machine, place(3), Mapping::Huge, WHOLE, &all)
}

fn a_huge_page_without_data_goes<M: Testbed>() -> Ended {
    let mut machine: M = start()?;
    machine.touch(place(0), 5, Content::Zeroes)?;
    ensure!(promote(&mut machine, place(0))? == Outcome::Done, "it can be promoted");
    expect(&mut machine, place(0), Mapping::Huge, WHOLE, &Pages::new())?;
    let freed = machine.debloat(&mut *emd_exact(), ALL)?;
    ensure!(freed == BasePages(WHOLE), "{freed}");
    expect(&mut machine, place(0), Mapping::Empty, 0, &Pages::new())?;
    ensure!(promote(&mut machine, place(0))? == Outcome::Stale, "nothing is populated");
    Ok(())
}

fn what_was_freed_faults_again<M: Testbed>() -> Ended {
    let mut machine: M = bloated()?;
    machine.debloat(&mut *emd_exact(), ALL)?;
    machine.touch(place(1), 1, Content::Zeroes)?;
    machine.touch(place(1), 2, Content::Data)?;
    let mut data = some();
    data.insert(2);
    expect(&mut machine, place(1), Mapping::Base, count(&some()) + 2, &data)?;
    ensure!(promote(&mut machine, place(1))? == Outcome::Done, "it can be promoted again");
    expect(&mut machine, place(1), Mapping::Huge, WHOLE, &data)
}

fn a_huge_page_given_back_in_part_becomes_base_pages<M: Testbed>() -> Ended {
    let mut machine: M = bloated()?;
    machine.release(place(1), 100, BasePages(200))?;
    let rest: Pages = some().into_iter().filter(|page| !(100..300).contains(page)).collect();
    // The zero-filled ones among those that stay are still there.
    expect(&mut machine, place(1), Mapping::Base, WHOLE - 200, &rest)?;
    ensure!(machine.debloat(&mut *emd_exact(), ALL)?.is_zero(), "no huge page is left");
    machine.touch(place(1), 150, Content::Data)?;
    let mut data = rest;
    data.insert(150);
    expect(&mut machine, place(1), Mapping::Base, WHOLE - 199, &data)?;
    ensure!(promote(&mut machine, place(1))? == Outcome::Done, "it can be promoted again");
    expect(&mut machine, place(1), Mapping::Huge, WHOLE, &data)
}

fn what_is_given_back_whole_is_gone<M: Testbed>() -> Ended {
    let mut machine: M = bloated()?;
    machine.touch_all(place(0), [0, 500], Content::Data)?;
    machine.touch_all(place(2), [9, 10, 11], Content::Data)?;
    // The end of one range, all of the next, the beginning of a third.
    machine.release(place(0), 500, BasePages(12 + WHOLE + 10))?;
    expect(&mut machine, place(0), Mapping::Base, 1, &[0].into())?;
    expect(&mut machine, place(1), Mapping::Empty, 0, &Pages::new())?;
    expect(&mut machine, place(2), Mapping::Base, 2, &[10, 11].into())?;
    // A fresh start: nothing of what was there comes back.
    machine.touch(place(1), 5, Content::Zeroes)?;
    ensure!(promote(&mut machine, place(1))? == Outcome::Done, "it can be promoted");
    expect(&mut machine, place(1), Mapping::Huge, WHOLE, &Pages::new())
}
