//! The interface that the tests are written against: programs that touch and give back memory, on the
//! simulated machine or on the real one.
//!
//! Both run programs of one VMA each, with one policy in charge. The machine that the policy sees
//! and acts on, and the driver between them, are those that ship: `superpage_sim::machine::Machine` and
//! `superpage_manager::promote::machine::LiveMachine`, both a `superpage_policy::promotion::Machine`.
//!
//! Where the real kernel, driven from user space, differs from the simulated machine. The tests
//! hold for all the rest:
//!
//! - **The promoter hears of no fault.** Its `LiveMachine` counts each range that is mapped by base pages as
//!   reserved. Here each fault is told (`LiveMachine::told_of_faults`); `--test scheduler` and
//!   `--test live_promoter` hold the promoter's way.
//! - **Faults come first.** The kernel serves a fault with a base page before anybody is asked. The
//!   policy is asked just before the touch, which the test orders, so the fault it hears of is the
//!   same; a huge page that it wants is made right after, by MADV_COLLAPSE.
//! - **A reservation is a note.** No frame can be set aside from outside. Base pages that are
//!   populated "in place" lie anywhere, and the promotion copies them. What is mapped is the same.
//! - **Nothing is evacuated** from outside: the live machine refuses it, the simulated one does it.
//!   No script asks for it.
//! - **Memory is plentiful on both.** The real machine is used by others too, so its free memory cannot
//!   be part of a script: the view says that there is enough. Nothing compacts or zeroes ahead of
//!   time, and nothing is evicted: there is no swap.
//! - **The clock is the script's** on both.
//! - **Accesses cannot be seen** from outside: the simulated machine is told not to show them either.
//! - **Huge pages are made on request only.** The programs hold the kernel's own rules off
//!   ([`superpage_kernel::own_thp`]): neither first touches nor khugepaged make huge pages.
//! - **No gigantic pages**, and no pools: no VMA is large enough, and nothing is set aside.
//! - **Reading.** On Linux, reading a page that is not there maps the shared zero page, which takes
//!   no memory and counts as nothing here; de-bloating leaves such pages too. Programs here only
//!   write, zeroes if not data.
//! - **Memory given back in part** of a huge page is free at once on the simulated machine. The
//!   kernel unmaps it, and frees it when memory is short; only what is mapped is compared.

use crate::recorder::Log;
use libtest_mimic::Failed;
use std::collections::BTreeSet;
use std::fmt;
use superpage_policy::debloat::Debloat;
use superpage_policy::promotion::{Action, Outcome, Policy, View};
use superpage_sim::machine::Content;
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, HUGE_PAGE_BYTES, HugePages, Mapping, PmdRange, ProcessKey,
    Time, VirtAddr,
};

/// How a test ends.
pub(crate) type Ended = Result<(), Failed>;

/// Ends the test with the message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        let holds: bool = $holds;
        if !holds {
            return Err(format!($($message)+).into());
        }
    };
}

/// A failure, and what it is about.
pub(crate) fn about(name: &str, why: &Failed) -> Failed {
    format!("{name}: {}", why.message().unwrap_or("failed")).into()
}

/// Base pages of a range, by index.
pub(crate) type Pages = BTreeSet<u16>;

/// Base pages in a range.
pub(crate) const PAGES: u16 = 512;
const _: () = assert!(PAGES as u64 == BASE_PAGES_PER_HUGE_PAGE);

/// A range of one of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Which program, from 0.
    pub(crate) program: usize,
    /// Which range of its VMA, from 0.
    pub(crate) range: u64,
}

/// A range of the first program.
pub(crate) const fn place(range: u64) -> Place {
    Place { program: 0, range }
}

/// What is in a range.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) mapping: Mapping,
    pub(crate) present: BasePages,
    /// The base pages with data in them.
    pub(crate) data: Pages,
}

impl Seen {
    /// Base pages that are populated and hold only zeroes.
    pub(crate) fn zero_filled(&self) -> BasePages {
        self.present.saturating_sub(BasePages(self.data.len() as u64))
    }
}

/// `Base 3, data in 0-1 511`.
impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}, data in", self.mapping, self.present)?;
        let holds = |page: u16| self.data.contains(&page);
        for first in self.data.iter().filter(|page| **page == 0 || !holds(**page - 1)) {
            let last = (*first..).take_while(|page| holds(*page)).last().unwrap_or(*first);
            write!(f, " {first}")?;
            if last > *first {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

/// Whether background work goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worked {
    Yes,
    Rests,
}

/// Programs on a machine, simulated or real.
pub(crate) trait Testbed: Sized {
    /// A machine with programs of so many ranges each, all untouched, and this policy in charge.
    fn start(programs: &[HugePages], policy: Box<dyn Policy>) -> Result<Self, Failed>;

    /// Puts another policy in charge. What the old one mapped stays.
    fn change_policy(&mut self, policy: Box<dyn Policy>);

    /// The first address of a program's VMA.
    fn vma(&self, program: usize) -> VirtAddr;

    /// Sets the time.
    fn set_time(&mut self, now: Time);

    /// What the policy sees now.
    fn view(&mut self) -> Result<&mut dyn View, Failed>;

    /// Which base pages of a range hold data.
    fn data(&mut self, place: Place) -> Result<Pages, Failed>;

    /// The program touches a base page.
    fn touch(&mut self, place: Place, page: u16, content: Content) -> Ended;

    /// The program gives base pages back, from this one on, perhaps beyond the range's end.
    fn release(&mut self, place: Place, first: u16, count: BasePages) -> Ended;

    /// The policy does one thing in the background.
    fn step(&mut self) -> Result<Worked, Failed>;

    /// Carries an action out, tells the policy, and says what became of it.
    fn apply(&mut self, action: &Action) -> Result<Outcome, Failed>;

    /// Lets a policy reclaim bloat until so much is freed; says how much was.
    fn debloat(&mut self, policy: &mut dyn Debloat, need: BasePages) -> Result<BasePages, Failed>;

    /// Fails if the machine is not in order, or if a program does not find what it wrote.
    fn check(&mut self) -> Ended;

    /// A program's name towards policies.
    fn key(program: usize) -> ProcessKey {
        ProcessKey(program as u64 + 1)
    }

    /// A range by its address.
    fn range(&self, place: Place) -> PmdRange {
        PmdRange::containing(VirtAddr(self.vma(place.program).0 + place.range * HUGE_PAGE_BYTES))
    }

    /// What is in a range.
    fn seen(&mut self, place: Place) -> Result<Seen, Failed> {
        let (mapping, present) = self.mapping(place)?;
        Ok(Seen { mapping, present, data: self.data(place)? })
    }

    /// How a range is mapped, and how many of its base pages are populated.
    fn mapping(&mut self, place: Place) -> Result<(Mapping, BasePages), Failed> {
        let range = self.range(place);
        let view = self.view()?.range(Self::key(place.program), range);
        Ok((view.mapping, view.present))
    }

    /// The program touches several base pages.
    fn touch_all(
        &mut self,
        place: Place,
        pages: impl IntoIterator<Item = u16>,
        content: Content,
    ) -> Ended {
        pages.into_iter().try_for_each(|page| self.touch(place, page, content))
    }

    /// Background work until it rests.
    fn settle(&mut self) -> Ended {
        for _ in 0..10_000 {
            if self.step()? == Worked::Rests {
                return Ok(());
            }
        }
        Err("the background does not come to rest".into())
    }

    /// What was said, in words in which addresses are places.
    fn words(&self, log: &Log) -> Vec<String> {
        log.words(|key| usize::try_from(key.0 - 1).map_or(VirtAddr(0), |program| self.vma(program)))
    }
}
