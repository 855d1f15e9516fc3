//! Carrying a collapse request out on the real kernel, and seeing what became of it.

use super::event::{Collapse, Collapsed};
use super::range::Refusal;
use crate::process::{ManagedProcess, Memory};
use rustix::io::Errno;
use std::time::Instant;
use superpage_kernel::pagemap::Survey;
use superpage_kernel::process_madvise;
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages, Nanos, PmdRange};

/// A range, and what it is like if it may be promoted.
type Looked = (PmdRange, Result<Survey, Refusal>);

/// Makes the ranges of a request huge pages, those that may be, and looks what became of each.
#[must_use]
pub fn carry_out(process: &ManagedProcess, request: &Collapse) -> Collapsed {
    let seen = request.ranges().filter_map(|range| look(process, request, range));
    let seen: Vec<Looked> = seen.collect();
    let mut done = Collapsed::default();
    // A range that must be left alone parts a run.
    let goes_on = |one: &Looked, next: &Looked| {
        one.1.is_ok() && next.1.is_ok() && one.0.end() == next.0.start()
    };
    for run in seen.chunk_by(goes_on) {
        let possible = run.iter().filter_map(|(range, seen)| Some((*range, seen.ok()?)));
        let possible: Vec<(PmdRange, Survey)> = possible.collect();
        let refused = run.iter().filter_map(|(range, seen)| Some((*range, seen.err()?)));
        done.became.extend(refused.map(|(range, why)| (range, Err(why))));
        if let Some((first, _)) = possible.first() {
            let all = call(process, *first, HugePages(possible.len() as u64), &mut done);
            for (range, before) in &possible {
                let became = verified(process, *range, *before, all, possible.len(), &mut done);
                done.became.push((*range, became));
            }
        }
    }
    done
}

/// Asks the kernel for neighbours; what it answers.
fn call(
    process: &ManagedProcess,
    first: PmdRange,
    count: HugePages,
    done: &mut Collapsed,
) -> Option<Errno> {
    let began = Instant::now();
    let answer = process_madvise::collapse_run(&process.process, first, count);
    let took = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    done.held += took;
    done.slowest = done.slowest.max(Nanos(took.0 / count.0.max(1)));
    answer.unwrap_or(Some(Errno::SRCH))
}

/// What the range is like, if it may be promoted; `None` if it is huge by now.
fn look(process: &ManagedProcess, request: &Collapse, range: PmdRange) -> Option<Looked> {
    let seen = process.pagemap.survey(range).map_err(|_| Refusal::Gone);
    let is_huge = seen.is_ok_and(|seen| seen.is_huge);
    (!is_huge).then(|| (range, seen.and_then(|seen| may(process, request, range, seen))))
}

/// Whether the range may be promoted.
fn may(
    process: &ManagedProcess,
    request: &Collapse,
    range: PmdRange,
    seen: Survey,
) -> Result<Survey, Refusal> {
    // Also after an `execve`: the page tables looked at are those of before.
    if seen.present.is_zero() {
        return Err(Refusal::NotPossible);
    }
    if seen.present < request.least {
        return Err(Refusal::Changed);
    }
    if request.memory == Memory::Shared {
        return Ok(seen);
    }
    let ours = process.pagemap.exclusive(range).map_err(|_| Refusal::Gone)?.count();
    if ours + seen.swapped < seen.present { Err(Refusal::Shared) } else { Ok(seen) }
}

/// What became of a range after the kernel was asked for it and its neighbours.
fn verified(
    process: &ManagedProcess,
    range: PmdRange,
    before: Survey,
    answer: Option<Errno>,
    neighbours: usize,
    done: &mut Collapsed,
) -> Result<BasePages, Refusal> {
    let became = outcome(process, range, before, answer);
    // The answer may be about a neighbour, and one that cannot be keeps the kernel from those behind
    // it. Where there is no huge page, asking for each would only take long.
    if became.is_ok() || neighbours == 1 || answer == Some(Errno::NOMEM) {
        return became;
    }
    let alone = call(process, range, HugePages(1), done);
    outcome(process, range, before, alone)
}

fn outcome(
    process: &ManagedProcess,
    range: PmdRange,
    before: Survey,
    answer: Option<Errno>,
) -> Result<BasePages, Refusal> {
    let after = process.pagemap.survey(range).map_err(|_| Refusal::Gone)?;
    if after.is_huge {
        return Ok(BasePages(BASE_PAGES_PER_HUGE_PAGE).saturating_sub(before.present));
    }
    Err(match answer {
        _ if after.present.is_zero() => Refusal::NotPossible,
        answer => meaning(answer),
    })
}

/// What the kernel's answer means for a range that did not become huge. Without a refusal something
/// undid the huge page at once.
fn meaning(answer: Option<Errno>) -> Refusal {
    match answer {
        Some(Errno::NOMEM) => Refusal::NoHugePage,
        Some(Errno::BUSY) => Refusal::CgroupLimit,
        Some(Errno::SRCH) => Refusal::Gone,
        Some(Errno::AGAIN) | None => Refusal::Busy,
        Some(_) => Refusal::NotPossible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Identity;
    use superpage_kernel::own_memory::{OwnMemory, Wish};
    use superpage_kernel::process::Process;
    use superpage_units::{ProcessKey, VirtAddr};

    fn ourselves() -> ManagedProcess {
        let me = Process::current().expect("we run");
        ManagedProcess::new(ProcessKey(1), me, Identity::for_tests()).expect("readable")
    }

    fn request(first: PmdRange, count: u64) -> Collapse {
        let (process, count) = (ProcessKey(1), HugePages(count));
        Collapse { process, first, count, memory: Memory::Private, least: BasePages(1) }
    }

    #[test]
    fn answers_of_the_kernel_are_told_apart() {
        for (answer, meant) in [
            (Some(Errno::NOMEM), Refusal::NoHugePage),
            (Some(Errno::BUSY), Refusal::CgroupLimit),
            (Some(Errno::AGAIN), Refusal::Busy),
            (Some(Errno::INVAL), Refusal::NotPossible),
            (Some(Errno::SRCH), Refusal::Gone),
            (None, Refusal::Busy),
        ] {
            assert_eq!(meaning(answer), meant);
        }
    }

    #[test]
    fn where_nothing_is_mapped_nothing_is_done() {
        let done = carry_out(&ourselves(), &request(PmdRange::containing(VirtAddr(1 << 40)), 1));
        assert_eq!(done.became[0].1, Err(Refusal::NotPossible));
    }

    #[test]
    fn neighbours_become_huge_and_holes_are_filled() {
        // First touches may give huge pages here, but not to memory that is advised against them.
        let mut memory = OwnMemory::map(HugePages(3), Wish::BasePages).expect("6 MiB");
        let ranges: Vec<PmdRange> = memory.ranges().collect();
        for (index, pages) in [(0, 100), (1, 512)] {
            let start = index * 512 * 4096;
            memory.bytes_mut()[start..start + pages * 4096].fill(1);
        }
        let all = memory.size().to_base_pages();
        memory.wish(BasePages::ZERO, all, Wish::HugePages).expect("it is ours");
        let process = ourselves();
        let done = carry_out(&process, &request(ranges[0], 3));
        let of = |index: usize| done.became.iter().find(|one| one.0 == ranges[index]);
        assert_eq!(of(2).map(|one| one.1), Some(Err(Refusal::NotPossible)), "it is empty");
        // Another test may fork for a moment, and its child shares these pages. khugepaged may have
        // been there before; a range that is huge by now is not named.
        let possible = [Ok(BasePages(412)), Err(Refusal::Shared), Err(Refusal::NoHugePage)];
        let first = of(0).map(|one| one.1);
        let is_huge = process.pagemap.survey(ranges[0]).is_ok_and(|now| now.is_huge);
        assert!(first.map_or(is_huge, |first| possible.contains(&first)), "{done:?}");
        if is_huge {
            assert_eq!(memory.bytes()[100 * 4096 - 1..100 * 4096 + 1], [1, 0]);
        }
    }
}
