//! A slow, obvious machine to run a policy on: free frames are counters, a range is the set of its
//! base pages. It is a [`Machine`] that panics where what a policy answers makes no sense: a
//! superpage outside its VMA, a promotion in place of what is not reserved, a frame that is not
//! there. What takes time or costs something is not here.

use super::drive::{self, Stepped};
use super::{
    AccessBits, Act, Action, Attempt, Carried, Fault, Footprint, How, Machine, Outcome, Policy,
    Pool, Pools, RangeView, Shortage, View, Zeroed,
};
use crate::compaction::Compaction;
use crate::free_memory::FreeMemory;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use superpage_units::{
    Advice, BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, GIGANTIC_PAGE_BYTES,
    Growth, HUGE_PAGE_BYTES, HugePages, Mapping, Nanos, Page, PageSize, PmdRange, ProcessKey,
    Share, Time, VirtAddr, Vma, VmaKind,
};

/// Base pages in a huge page, and in a gigantic page.
pub(super) const HUGE: u64 = BASE_PAGES_PER_HUGE_PAGE;
const GIGANTIC: u64 = HUGE * HUGE;

/// Where the first VMA of a process begins.
pub(super) const START: VirtAddr = VirtAddr(GIGANTIC_PAGE_BYTES);

/// The address of base page `page` of range `range`, counted from [`START`].
pub(super) fn address(range: u64, page: u64) -> VirtAddr {
    START.offset(Bytes(range * HUGE_PAGE_BYTES + page * BASE_PAGE_BYTES))
}

/// PmdRange `index`, counted from [`START`].
pub(super) fn range(index: u64) -> PmdRange {
    PmdRange::containing(address(index, 0))
}

/// `seconds` seconds.
pub(super) fn seconds(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

/// `seconds` seconds after the start.
pub(super) fn at_second(seconds: u64) -> Time {
    Time::ZERO + self::seconds(seconds)
}

/// What was promoted, in order.
pub(super) fn promoted(done: &[(Action, Outcome)]) -> Vec<(ProcessKey, Page)> {
    let promoted = done.iter().filter(|(_, outcome)| *outcome == Outcome::Done);
    promoted
        .filter_map(|(action, _)| match action.act {
            Act::Promote { process, page, .. } => Some((process, page)),
            _ => None,
        })
        .collect()
}

/// An anonymous VMA of this many ranges at [`START`], not growing, without advice.
pub(super) fn vma(ranges: u64) -> Vma {
    Vma {
        start: START,
        end: address(ranges, 0),
        kind: VmaKind::Anonymous,
        growth: Growth::Fixed,
        advice: Advice::None,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Base,
    Reserved,
    Huge,
}

#[derive(Clone, Debug, Default)]
struct Content {
    pages: BTreeSet<u64>,
    form: Form,
    accessed: BTreeSet<u64>,
    touched: Time,
    coverage: u64,
}

impl Content {
    /// The frames it takes.
    fn frames(&self) -> u64 {
        match self.form {
            Form::Base => self.pages.len() as u64,
            Form::Reserved | Form::Huge => HUGE,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Space {
    vmas: Vec<Vma>,
    ranges: BTreeMap<PmdRange, Content>,
    /// Gigantic pages by start, and whether they were accessed.
    gigantic_pages: BTreeMap<VirtAddr, bool>,
    walk_share: Share,
}

/// How a touch was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// It was mapped.
    Hit,
    /// By this attempt.
    By(Attempt),
    /// There was no memory.
    OutOfMemory,
}

/// The machine.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) now: Time,
    /// Whether compaction finds anything.
    pub(super) can_compact: bool,
    free_memory: FreeMemory,
    /// Free frames that nobody may have for now.
    hidden: [u64; 3],
    /// xHeap's base and huge pool.
    pools: Option<[Pool; 2]>,
    processes: Vec<ProcessKey>,
    spaces: BTreeMap<ProcessKey, Space>,
}

/// Looking.
impl View for Model {
    fn now(&self) -> Time {
        self.now
    }

    fn free_memory(&self) -> &FreeMemory {
        &self.free_memory
    }

    fn processes(&self) -> &[ProcessKey] {
        &self.processes
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        let Some(space) = self.spaces.get(&process) else {
            return Footprint::default();
        };
        let huge = space.ranges.values().filter(|content| content.form == Form::Huge).count();
        let base = space.ranges.values().filter(|content| content.form != Form::Huge);
        Footprint {
            base: BasePages(base.map(|content| content.pages.len() as u64).sum()),
            huge: HugePages(huge as u64),
            gigantic: Some(space.gigantic_pages.len() as u64),
            walk_share: Some(space.walk_share),
        }
    }

    fn vmas(&self, process: ProcessKey) -> &[Vma] {
        self.spaces.get(&process).map_or(&[], |space| &space.vmas)
    }

    fn range(&self, process: ProcessKey, range: PmdRange) -> RangeView {
        let Some(space) = self.spaces.get(&process) else {
            return RangeView::default();
        };
        if space.gigantic_pages.contains_key(&gigantic(range.start()).start()) {
            let present = BasePages(HUGE);
            return RangeView { mapping: Mapping::Gigantic, present, ..RangeView::default() };
        }
        let Some(content) = space.ranges.get(&range) else {
            return RangeView::default();
        };
        RangeView {
            mapping: match content.form {
                Form::Huge => Mapping::Huge,
                _ if content.pages.is_empty() => Mapping::Empty,
                _ => Mapping::Base,
            },
            present: BasePages(content.pages.len() as u64),
            // What was evicted is forgotten here: a later touch finds an empty page.
            swapped: BasePages::ZERO,
            shared: BasePages::ZERO,
            is_reserved: content.form == Form::Reserved,
            coverage: Some(BasePages(content.coverage)),
            idle: Some(self.now.since(content.touched)),
        }
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<PmdRange> {
        self.next_page(process, from)
            .map(|page| PmdRange::containing(VirtAddr(page.start().0.max(from.0))))
    }

    fn pools(&self) -> Option<Pools> {
        self.pools.map(|[base, huge]| Pools { base, huge })
    }

    fn access_bits(&mut self) -> Option<&mut dyn AccessBits> {
        Some(self)
    }
}

impl AccessBits for Model {
    fn next_page(&self, process: ProcessKey, from: VirtAddr) -> Option<Page> {
        let space = self.spaces.get(&process)?;
        let gigantic_pages = space
            .gigantic_pages
            .keys()
            .map(|start| gigantic(*start))
            .find(|page| page.end() > from);
        let ranges = space.ranges.iter().filter(|(range, _)| range.end() > from);
        let small = ranges.filter_map(|(range, content)| first_page(*range, content, from)).next();
        gigantic_pages.into_iter().chain(small).min_by_key(|page| page.start())
    }

    fn take_accessed(&mut self, process: ProcessKey, page: Page) -> bool {
        let space = self.spaces.get_mut(&process).expect("a process");
        if page.size() == PageSize::Gigantic {
            return space.gigantic_pages.get_mut(&page.start()).is_some_and(core::mem::take);
        }
        let content = space.ranges.get_mut(&PmdRange::containing(page.start())).expect("a range");
        match page.size() {
            PageSize::Base => content.accessed.remove(&index(page.start())),
            _ => !core::mem::take(&mut content.accessed).is_empty(),
        }
    }
}

/// The first mapped page of a range that ends after `from`.
fn first_page(range: PmdRange, content: &Content, from: VirtAddr) -> Option<Page> {
    if content.form == Form::Huge {
        return Some(range.into());
    }
    let base = |page: &u64| {
        Page::containing(range.start().offset(Bytes(page * BASE_PAGE_BYTES)), PageSize::Base)
    };
    content.pages.iter().map(base).find(|page| page.end() > from)
}

fn gigantic(address: VirtAddr) -> Page {
    Page::containing(address, PageSize::Gigantic)
}

/// Which base page of its range an address lies in.
fn index(address: VirtAddr) -> u64 {
    address.0 / BASE_PAGE_BYTES % HUGE
}

/// Frames.
impl Model {
    /// A machine with free memory in so many gigantic chunks, huge chunks and scattered base pages.
    pub(super) fn new(gigantic: u64, huge: u64, base: u64) -> Self {
        let mut free_memory = FreeMemory {
            total: BasePages(gigantic * GIGANTIC + huge * HUGE + base),
            ..FreeMemory::NONE
        };
        (free_memory.chunks[18], free_memory.chunks[9], free_memory.chunks[0]) =
            (gigantic, huge, base);
        Self {
            now: Time::ZERO,
            can_compact: true,
            free_memory,
            hidden: [0; 3],
            pools: None,
            processes: Vec::new(),
            spaces: BTreeMap::new(),
        }
    }

    /// A machine with two pools and no other memory.
    pub(super) fn with_pools(base: u64, huge: u64) -> Self {
        let pools = [base, huge].map(|size| Pool { free: size, size });
        Self { pools: Some(pools), ..Self::new(0, 0, 0) }
    }

    fn free(&mut self, size: PageSize) -> &mut u64 {
        match &mut self.pools {
            Some(pools) => &mut pools.get_mut(size.index()).expect("a pool").free,
            None => &mut self.free_memory.chunks[usize::from(size.order())],
        }
    }

    /// Takes a free chunk, splitting a larger one if there is none.
    fn take(&mut self, size: PageSize) -> bool {
        let larger = match size {
            PageSize::Base => Some(PageSize::Huge),
            PageSize::Huge => Some(PageSize::Gigantic),
            PageSize::Gigantic => None,
        };
        if *self.free(size) == 0 {
            let Some(larger) = larger.filter(|_| self.pools.is_none()) else {
                return false;
            };
            if !self.take(larger) {
                return false;
            }
            *self.free(size) += HUGE;
        }
        *self.free(size) -= 1;
        self.free_memory.zeroed_huge = self.free_memory.zeroed_huge.min(self.free_memory.chunks[9]);
        self.free_memory.zeroed_gigantic =
            self.free_memory.zeroed_gigantic.min(self.free_memory.chunks[18]);
        true
    }

    fn give(&mut self, size: PageSize, count: u64) {
        *self.free(size) += count;
    }

    fn take_or_compact(&mut self, size: PageSize, compaction: Option<Compaction>) -> bool {
        self.take(size) || compaction.is_some() && self.compact(size) && self.take(size)
    }

    /// Makes one more free chunk of this size from smaller ones.
    fn compact(&mut self, size: PageSize) -> bool {
        assert!(self.pools.is_none(), "pools need no compaction");
        let [base, huge] = [self.free_memory.chunks[0] / HUGE, self.free_memory.chunks[9]];
        let (from_base, from_huge) = match size {
            PageSize::Base => panic!("nothing to compact"),
            PageSize::Huge => (1, 0),
            PageSize::Gigantic => (base.min(HUGE), HUGE - base.min(HUGE)),
        };
        if !self.can_compact || base < from_base || huge < from_huge {
            return false;
        }
        self.free_memory.chunks[0] -= from_base * HUGE;
        self.free_memory.chunks[9] -= from_huge;
        self.free_memory.zeroed_huge = self.free_memory.zeroed_huge.min(self.free_memory.chunks[9]);
        self.give(size, 1);
        true
    }

    /// Hides all free superpages, so that only base pages can be had; and all that are hidden
    /// return with [`Self::show`].
    pub(super) fn hide(&mut self) {
        for size in [PageSize::Huge, PageSize::Gigantic] {
            self.hidden[size.index()] += core::mem::take(self.free_if_any(size));
        }
        self.free_memory.zeroed_huge = 0;
        self.free_memory.zeroed_gigantic = 0;
    }

    /// Undoes [`Self::hide`].
    pub(super) fn show(&mut self) {
        for size in [PageSize::Huge, PageSize::Gigantic] {
            let hidden = core::mem::take(&mut self.hidden[size.index()]);
            *self.free_if_any(size) += hidden;
        }
    }

    fn free_if_any(&mut self, size: PageSize) -> &mut u64 {
        if self.pools.is_some() && size == PageSize::Gigantic {
            return &mut self.hidden[0]; // no pool, and nothing hidden there
        }
        self.free(size)
    }

    /// Splits all free superpages into base pages.
    pub(super) fn fragment(&mut self) {
        if self.pools.is_none() {
            let free = self.free_memory.free().0;
            self.free_memory.chunks = FreeMemory::NONE.chunks;
            self.free_memory.chunks[0] = free;
            self.free_memory.zeroed_huge = 0;
            self.free_memory.zeroed_gigantic = 0;
        }
    }

    pub(super) fn chunks(&self, size: PageSize) -> u64 {
        self.free_memory.chunks[usize::from(size.order())]
    }
}

/// Processes.
impl Model {
    /// A process with these VMAs.
    pub(super) fn spawn(&mut self, vmas: &[Vma]) -> ProcessKey {
        let key = ProcessKey(self.processes.last().map_or(1, |last| last.0 + 1));
        self.processes.push(key);
        self.spaces.insert(key, Space { vmas: vmas.to_vec(), ..Space::default() });
        key
    }

    fn space(&mut self, process: ProcessKey) -> &mut Space {
        self.spaces.get_mut(&process).expect("a process")
    }

    pub(super) fn set_walk_share(&mut self, process: ProcessKey, share: Share) {
        self.space(process).walk_share = share;
    }

    pub(super) fn set_coverage(&mut self, process: ProcessKey, range: PmdRange, pages: u64) {
        if let Some(content) = self.space(process).ranges.get_mut(&range) {
            content.coverage = pages;
        }
    }

    /// Moves the end of a VMA, not into the next one.
    pub(super) fn grow(&mut self, process: ProcessKey, vma: usize, to: VirtAddr) {
        let vmas = &mut self.space(process).vmas;
        let most = vmas.get(vma + 1).map_or(to, |next| next.start);
        let end = &mut vmas[vma].end;
        *end = (*end).max(to.min(most));
    }

    /// The process ends, and its memory is free.
    pub(super) fn exit(&mut self, process: ProcessKey) {
        let space = self.spaces.remove(&process).expect("a process");
        self.processes.retain(|key| *key != process);
        for _ in space.gigantic_pages {
            self.give(PageSize::Gigantic, 1);
        }
        for content in space.ranges.into_values() {
            match content.form {
                Form::Base => self.give(PageSize::Base, content.frames()),
                Form::Reserved | Form::Huge => self.give(PageSize::Huge, 1),
            }
        }
    }

    /// A huge page is split and so many of its base pages are freed, as de-bloating does. The huge
    /// pages of a pool are not split.
    pub(super) fn split(&mut self, process: ProcessKey, range: PmdRange, freed: u64) {
        if self.pools.is_some() {
            return;
        }
        let content = self.space(process).ranges.get_mut(&range);
        let Some(content) = content.filter(|content| content.form == Form::Huge) else {
            return;
        };
        content.form = Form::Base;
        content.pages = (freed.min(HUGE - 1)..HUGE).collect();
        self.give(PageSize::Base, freed.min(HUGE - 1));
    }

    /// What a fault at this address would look like.
    pub(super) fn fault_at(&self, process: ProcessKey, address: VirtAddr) -> Fault {
        let gigantic = gigantic(address);
        let mut ranges = self.spaces[&process].ranges.iter();
        let is_in_use = ranges.any(|(range, content)| {
            gigantic.start() <= range.start()
                && range.start() < gigantic.end()
                && (content.form == Form::Reserved || !content.pages.is_empty())
        });
        let fault = Fault::at(self, process, address).expect("a VMA there");
        Fault { gigantic_is_empty: Some(!is_in_use), ..fault }
    }

    fn is_mapped(&self, process: ProcessKey, address: VirtAddr) -> bool {
        let page = self.next_page(process, Page::containing(address, PageSize::Base).start());
        page.is_some_and(|page| page.start() <= address)
    }

    /// The program touches this address.
    pub(super) fn touch(
        &mut self,
        policy: &mut dyn Policy,
        process: ProcessKey,
        address: VirtAddr,
    ) -> Served {
        let mut served = Served::Hit;
        if !self.is_mapped(process, address) {
            let fault = self.fault_at(process, address);
            served = match drive::serve(policy, self, &fault) {
                Some(by) => Served::By(by.attempt),
                None => Served::OutOfMemory,
            };
        }
        if served != Served::OutOfMemory {
            self.access(process, address);
        }
        served
    }

    /// Takes a base page; if there is none, asks for room until there is one.
    fn take_base(&mut self, policy: &mut dyn Policy) -> bool {
        let shortage = Shortage { size: PageSize::Base, pages: 1 };
        for _ in 0..10_000 {
            if self.take(PageSize::Base) {
                return true;
            }
            if drive::relieve(policy, self, shortage).is_none() {
                return false;
            }
        }
        panic!("the pressure does not come to an end");
    }

    fn access(&mut self, process: ProcessKey, address: VirtAddr) {
        let now = self.now;
        let space = self.space(process);
        if let Some(accessed) = space.gigantic_pages.get_mut(&gigantic(address).start()) {
            *accessed = true;
        } else {
            let content = space.ranges.get_mut(&PmdRange::containing(address)).expect("mapped");
            content.accessed.insert(index(address));
            content.touched = now;
        }
    }

    /// Touches the first `count` base pages of a range, one after the other.
    pub(super) fn fill(
        &mut self,
        policy: &mut dyn Policy,
        process: ProcessKey,
        range: u64,
        count: u64,
    ) {
        for page in 0..count {
            let served = self.touch(policy, process, address(range, page));
            assert_ne!(served, Served::OutOfMemory);
        }
    }
}

impl Machine for Model {
    fn attempt(
        &mut self,
        fault: &Fault,
        attempt: Attempt,
        policy: &mut dyn Policy,
    ) -> Option<PageSize> {
        let range = PmdRange::containing(fault.address);
        let now = self.range(fault.process, range);
        let (size, is_done) = match attempt {
            Attempt::Base => {
                assert!(!now.is_reserved || fault.vma.start > range.start(), "{range} in place");
                let has_frame = self.take_base(policy);
                (PageSize::Base, has_frame && self.populate(fault, Form::Base))
            }
            Attempt::Map { size, compaction, zeroed } => {
                (size, self.map(fault, size, compaction, zeroed))
            }
            Attempt::Reserve => {
                assert_eq!((now.present, now.is_reserved), (BasePages(0), false), "{range}");
                assert!(fault.vma.start <= range.start(), "{range} begins before its VMA");
                assert!(
                    range.end() <= fault.vma.end || fault.vma.growth == Growth::Up,
                    "{range} ends beyond its VMA"
                );
                let has_frame = self.take(PageSize::Huge);
                (PageSize::Base, has_frame && self.populate(fault, Form::Reserved))
            }
            Attempt::InPlace => {
                assert!(now.is_reserved, "{range} is not reserved");
                (PageSize::Base, self.populate(fault, Form::Reserved))
            }
            Attempt::Complete => {
                assert!(now.is_reserved, "{range} is not reserved");
                assert!(fault.vma.holds(range.into()), "{range} is not in its VMA");
                (PageSize::Huge, self.make_huge(fault.process, range))
            }
        };
        is_done.then_some(size)
    }

    fn carry_out(&mut self, action: &Action) -> Carried {
        let is_done = self.apply(action.act);
        Carried::Now(if is_done { Outcome::Done } else { Outcome::NoFrame })
    }
}

/// Carrying out.
impl Model {
    fn populate(&mut self, fault: &Fault, form: Form) -> bool {
        let ranges = &mut self.space(fault.process).ranges;
        let content = ranges.entry(PmdRange::containing(fault.address)).or_default();
        content.form = form;
        assert!(content.pages.insert(index(fault.address)), "{} is mapped", fault.address);
        true
    }

    fn map(
        &mut self,
        fault: &Fault,
        size: PageSize,
        compaction: Option<Compaction>,
        zeroed: Zeroed,
    ) -> bool {
        let page = fault.page(size);
        assert!(fault.is_mappable(size), "{page} has no room");
        let zeroed_gigantic = self.free_memory.zeroed_gigantic;
        if zeroed == Zeroed::Required && (size != PageSize::Gigantic || zeroed_gigantic == 0) {
            return false;
        }
        if !self.take_or_compact(size, compaction) {
            return false;
        }
        match size {
            PageSize::Base => panic!("a base page is no superpage"),
            PageSize::Huge => self.make_huge(fault.process, PmdRange::containing(fault.address)),
            PageSize::Gigantic => {
                self.free_memory.zeroed_gigantic = zeroed_gigantic.saturating_sub(1);
                self.make_gigantic(fault.process, page)
            }
        }
    }

    fn make_huge(&mut self, process: ProcessKey, range: PmdRange) -> bool {
        let content = self.space(process).ranges.entry(range).or_default();
        content.form = Form::Huge;
        content.pages = (0..HUGE).collect();
        true
    }

    fn make_gigantic(&mut self, process: ProcessKey, page: Page) -> bool {
        let space = self.space(process);
        space.ranges.retain(|range, _| gigantic(range.start()) != page);
        space.gigantic_pages.insert(page.start(), true).is_none()
    }

    fn apply(&mut self, act: Act) -> bool {
        match act {
            Act::Promote { process, page, how } => {
                let vma = super::scan::vma_holding(self, process, page);
                assert!(vma.is_some(), "{page} is not in a VMA");
                match page.size() {
                    PageSize::Base => panic!("a base page is no superpage"),
                    PageSize::Huge => self.promote_huge(process, page, how),
                    PageSize::Gigantic => self.promote_gigantic(process, page, how),
                }
            }
            Act::Zero(size) => self.zero(size),
            Act::Compact(size, _) => self.compact(size),
            Act::Unreserve { process, range } => self.unreserve(process, range),
            Act::Evacuate { process, range } => self.evacuate(process, range),
            Act::Evict { process, page } => self.evict(process, page),
        }
    }

    fn promote_huge(&mut self, process: ProcessKey, page: Page, how: How) -> bool {
        let range = PmdRange::containing(page.start());
        let seen = self.range(process, range);
        assert_eq!(seen.mapping, Mapping::Base, "{page}");
        assert_eq!(seen.is_reserved, how == How::InPlace, "{page} and its reservation");
        assert_eq!(self.pools.is_some(), how == How::Read, "{page} and the pools");
        let has_frame = match how {
            How::InPlace => return self.make_huge(process, range),
            How::Copy(compaction) | How::Exchange(_, compaction) => {
                self.take_or_compact(PageSize::Huge, compaction)
            }
            How::Read => self.take(PageSize::Huge),
        };
        if has_frame {
            self.give(PageSize::Base, seen.present.0);
            self.make_huge(process, range);
        }
        has_frame
    }

    fn promote_gigantic(&mut self, process: ProcessKey, page: Page, how: How) -> bool {
        let (How::Copy(compaction) | How::Exchange(_, compaction)) = how else {
            panic!("{page} by {how:?}");
        };
        let space = self.space(process);
        assert!(!space.gigantic_pages.contains_key(&page.start()), "{page} is mapped");
        let inside = space.ranges.iter().filter(|(range, _)| gigantic(range.start()) == page);
        let inside: Vec<_> = inside.map(|(_, content)| (content.form, content.frames())).collect();
        assert!(inside.iter().any(|(_, frames)| *frames > 0), "{page} is empty");
        if !self.take_or_compact(PageSize::Gigantic, compaction) {
            return false;
        }
        for (form, frames) in inside {
            match form {
                Form::Base => self.give(PageSize::Base, frames),
                Form::Huge => self.give(PageSize::Huge, 1),
                Form::Reserved => panic!("{page} holds a reservation"),
            }
        }
        self.make_gigantic(process, page)
    }

    fn zero(&mut self, size: PageSize) -> bool {
        let free = self.chunks(size);
        let zeroed = match size {
            PageSize::Base => panic!("not a superpage"),
            PageSize::Huge => &mut self.free_memory.zeroed_huge,
            PageSize::Gigantic => &mut self.free_memory.zeroed_gigantic,
        };
        let can = *zeroed < free;
        *zeroed += u64::from(can);
        can
    }

    fn unreserve(&mut self, process: ProcessKey, range: PmdRange) -> bool {
        let content = self.space(process).ranges.get_mut(&range).expect("a range");
        assert_eq!(content.form, Form::Reserved, "{range}");
        content.form = Form::Base;
        let freed = HUGE - content.frames();
        self.give(PageSize::Base, freed);
        true
    }

    fn evacuate(&mut self, process: ProcessKey, range: PmdRange) -> bool {
        let free = self.chunks(PageSize::Base);
        let content = self.space(process).ranges.get_mut(&range).expect("a range");
        assert_ne!(content.form, Form::Base, "{range}");
        let moved = content.pages.len() as u64;
        if free < moved {
            return false;
        }
        content.form = Form::Base;
        *self.free(PageSize::Base) -= moved;
        self.give(PageSize::Huge, 1);
        true
    }

    fn evict(&mut self, process: ProcessKey, page: Page) -> bool {
        assert_eq!(self.next_page(process, page.start()), Some(page), "{page} is not mapped so");
        let space = self.space(process);
        match page.size() {
            PageSize::Gigantic => assert!(space.gigantic_pages.remove(&page.start()).is_some()),
            PageSize::Huge => {
                let gone = space.ranges.remove(&PmdRange::containing(page.start()));
                assert_eq!(gone.map(|content| content.form), Some(Form::Huge));
            }
            PageSize::Base => {
                let ranges = &mut space.ranges;
                let content = ranges.get_mut(&PmdRange::containing(page.start())).expect("mapped");
                assert!(content.pages.remove(&index(page.start())));
                content.accessed.remove(&index(page.start()));
                if content.form == Form::Reserved {
                    return true;
                }
            }
        }
        self.give(page.size(), 1);
        true
    }

    /// Lets the policy prepare what it wants ahead of time, and then the background work until it rests, at most `limit` steps. What
    /// was done, and until when the background rests.
    pub(super) fn work(
        &mut self,
        policy: &mut dyn Policy,
        limit: usize,
    ) -> (Vec<(Action, Outcome)>, Option<Time>) {
        let mut done = Vec::new();
        for _ in 0..limit {
            if let Stepped::Acted(action, Carried::Now(outcome)) = drive::prepare(policy, self) {
                done.push((action, outcome));
                continue;
            }
            match drive::step(policy, self) {
                Stepped::Acted(action, Carried::Now(outcome)) => done.push((action, outcome)),
                Stepped::Acted(action, Carried::Later) => panic!("{action:?} is carried out now"),
                Stepped::Scanned(pages) => assert!(!pages.is_zero(), "a scan of nothing"),
                Stepped::Rests(until) => {
                    assert!(until.is_none_or(|until| until > self.now), "no rest at all");
                    return (done, until);
                }
            }
        }
        panic!("{policy:?} does not rest within {limit} steps; it did {done:?}");
    }

    /// Lets the background work, and time pass up to its next rest, so many times.
    pub(super) fn work_and_wait(
        &mut self,
        policy: &mut dyn Policy,
        rests: usize,
    ) -> Vec<(Action, Outcome)> {
        let mut all = Vec::new();
        for _ in 0..rests {
            let (done, until) = self.work(policy, 20_000);
            all.extend(done);
            self.now = until.unwrap_or(self.now + seconds(1));
        }
        all
    }

    /// Panics unless no frame is lost or there twice, and everything lies in a VMA.
    pub(super) fn check(&self) {
        let contents = self.spaces.values().flat_map(|space| space.ranges.values());
        let gigantic_pages: u64 =
            self.spaces.values().map(|space| space.gigantic_pages.len() as u64).sum();
        if let Some(pools) = self.pools {
            let huge = contents.clone().filter(|content| content.form != Form::Base).count() as u64;
            let base = contents.filter(|content| content.form == Form::Base);
            let base: u64 = base.map(Content::frames).sum();
            assert_eq!((base + pools[0].free, gigantic_pages), (pools[0].size, 0));
            assert_eq!(huge + pools[1].free + self.hidden[1], pools[1].size);
        } else {
            let hidden = self.hidden[1] * HUGE + self.hidden[2] * GIGANTIC;
            let used: u64 = contents.map(Content::frames).sum::<u64>() + gigantic_pages * GIGANTIC;
            assert_eq!(BasePages(used + hidden) + self.free_memory.free(), self.free_memory.total);
        }
        for (process, space) in &self.spaces {
            self.check_space(*process, space);
        }
    }

    fn check_space(&self, process: ProcessKey, space: &Space) {
        let holding = |page| super::scan::vma_holding(self, process, page);
        for start in space.gigantic_pages.keys() {
            assert!(holding(gigantic(*start)).is_some(), "{start} outside its VMA");
        }
        for (range, content) in &space.ranges {
            assert!(
                !space.gigantic_pages.contains_key(&gigantic(range.start()).start()),
                "mapped twice"
            );
            if content.form == Form::Huge {
                assert!(holding((*range).into()).is_some(), "{range} outside its VMA");
            }
            for page in &content.pages {
                let start = range.start().offset(Bytes(page * BASE_PAGE_BYTES));
                let page = Page::containing(start, PageSize::Base);
                assert!(holding(page).is_some(), "{page} outside every VMA");
            }
        }
    }
}
