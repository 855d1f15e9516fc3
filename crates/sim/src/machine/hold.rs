//! Fragmentation as Quicksilver's authors make it (Frag-50, Frag-100): a program fills memory, gives
//! back all but a little of every huge frame, and then touches nothing any more.
//!
//! What it holds is anonymous and can be moved. A policy that finds idle, partly used huge frames
//! gets them back for the price of a few copied pages. Their program is `fragment_level.c` in the
//! public repository rice-systems/quicksilver: 64 KiB at the end of each huge frame.

use super::{Content, Machine, OutOfMemory};
use superpage_units::{
    Advice, BasePages, Growth, HUGE_PAGE_BYTES, HugePages, PageSize, PmdRange, ProcessKey,
    VirtAddr, Vma, VmaKind,
};

/// Where its VMA begins: at a border of a gigantic page. Anything but zero would do.
const START: VirtAddr = VirtAddr(1 << 40);

impl Machine {
    /// Starts a program that holds the last `kept` base pages of huge page after huge page, until
    /// only `leave` huge frames are free whole.
    ///
    /// Under a policy that maps no superpages its base pages lie side by side, and fragment
    /// nothing.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn hold_parts(
        &mut self,
        leave: HugePages,
        kept: BasePages,
    ) -> Result<ProcessKey, OutOfMemory> {
        let process = self.spawn();
        let most = self.physical.total().bytes().to_huge_pages();
        self.map(
            process,
            Vma {
                start: START,
                end: START.offset(most.bytes()),
                kind: VmaKind::Anonymous,
                growth: Growth::Fixed,
                advice: Advice::None,
            },
        );
        for at in 0..most.0 {
            if self.free_memory().huge_pages() <= leave {
                break;
            }
            let range = PmdRange::containing(VirtAddr(START.0 + at * HUGE_PAGE_BYTES));
            let border = PageSize::Huge.base_pages().saturating_sub(kept);
            let held = range.start().offset(border.bytes());
            for page in 0..kept.0 {
                self.touch(process, held.offset(BasePages(page).bytes()), Content::Data)?;
            }
            self.discard_lazily(process, range.start(), held);
        }
        // kswapd's work so far belongs to the machine's making, not to a run.
        self.take_reclaimed();
        Ok(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Backing, Setup};
    use superpage_policy::compaction::Compaction;
    use superpage_policy::promotion::Policy;
    use superpage_policy::promotion::linux::{Linux, Options};
    use superpage_policy::promotion::quicksilver::{self, Quicksilver};
    use superpage_units::{Bytes, Nanos, Share, Time};

    fn machine(policy: Box<dyn Policy>) -> Machine {
        let memory = Bytes::from_mib(512);
        let mut machine =
            Machine::new(Setup { memory, pools: None, backing: Backing::None, seed: 1 }, policy);
        machine.prepare(|physical, _| physical.pin_blocks(Share::percent(10)));
        machine
    }

    fn linux() -> Box<dyn Policy> {
        Box::new(Linux::new(Options::NO_KHUGEPAGED))
    }

    #[test]
    fn huge_frames_are_held_by_little_and_split_when_memory_is_short() {
        let mut machine = machine(linux());
        let holder = machine.hold_parts(HugePages(8), BasePages(16)).unwrap();
        machine.check();
        assert_eq!(machine.free_memory().huge_pages(), HugePages(8));
        let held = machine.process(holder).unwrap().footprint().huge;
        assert!(held > HugePages(200), "{held}");
        let process = machine.spawn();
        let vma = Vma {
            start: VirtAddr(1 << 35),
            end: VirtAddr((1 << 35) + (200 << 20)),
            kind: VmaKind::Anonymous,
            growth: Growth::Fixed,
            advice: Advice::None,
        };
        machine.map(process, vma);
        for page in 0..Bytes::from_mib(200).to_base_pages().0 {
            let address = vma.start.offset(BasePages(page).bytes());
            machine.touch(process, address, Content::Data).unwrap();
        }
        machine.check();
        // Eight huge pages, what compaction made at first, and base pages of those that were split.
        let footprint = machine.process(process).unwrap().footprint();
        assert!(footprint.huge >= HugePages(8) && footprint.base > BasePages(10_000));
        assert!(machine.process(holder).unwrap().footprint().huge < held);
    }

    #[test]
    fn compaction_needs_room_above_the_low_watermark() {
        let mut machine = machine(linux());
        assert!(machine.may_compact(PageSize::Huge, Compaction::Sequential));
        machine.prepare(|physical, _| physical.hog(Bytes::from_mib(508)));
        assert!(!machine.may_compact(PageSize::Huge, Compaction::Sequential));
        assert!(machine.may_compact(PageSize::Huge, Compaction::Smart));
    }

    #[test]
    fn quicksilver_gets_held_frames_back_by_itself() {
        for options in [quicksilver::Options::SYNC_1, quicksilver::Options::ASYNC_64] {
            let mut machine = machine(Box::new(Quicksilver::new(options)));
            machine.hold_parts(HugePages(0), BasePages(16)).unwrap();
            assert_eq!(machine.free_memory().huge_pages(), HugePages::ZERO);
            for second in 1..30 {
                machine.at(Time::ZERO + Nanos::from_secs_f64(f64::from(second)));
                while let super::super::Stepped::Worked(_) = machine.step() {}
            }
            machine.check();
            let whole = machine.free_memory().huge_pages().base_pages();
            assert!(whole.share_of(machine.physical().total()) >= Share::percent(10));
        }
    }
}
