//! Which pages of the file are taken, by the program and by those children of its forks that have a pager of their own.
//!
//! They all write to one file. What each of them needs of it is a bitmap in memory that they share, and a page of the file is
//! free if no member of the family has its bit. So a reference is a bit, and a fork copies a bitmap. A member sets and clears
//! no bits but its own: it takes a page by setting its bit and then looking at those of the others, and where two do so at
//! once both give way. No lock is shared, so nobody waits for a process that was stopped or killed.
//!
//! A member lives as long as a byte of the file is locked (`F_SETLK`), which is that of its number. The kernel drops such a
//! lock when the table of descriptors goes through which it was taken: at the end of the process, also by SIGKILL, and when it
//! executes another program. The table is that of the library's threads, so it is never shared with another process.
//!
//! The memory that they share is a part of a file of `superpage run`, behind its counters. So the program that a member becomes
//! (execve) finds it: the member has ended then, and the new program becomes another one beside the children that go on.
//!
//! The file has room for all that each member may write. It grows before a member maps more, and at a fork. It never shrinks.

#![expect(unsafe_code, reason = "shares memory between processes, and locks bytes of a file")]

use super::PER_RANGE;
use crate::sys::{self, Descriptor, Errno, Mmap, PAGE, Result, Span};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use superpage_launch::SPARE;
use superpage_units::{Bytes, HUGE_PAGE_BYTES, Nanos};
use syscalls::{Sysno, syscall};

/// The processes that may be members at a time; the next fork has all of the heap brought into memory. A bitmap is made for each, of
/// a file with room for all: 32 of them are 32 MiB of addresses for each GiB of the heap, 64 would be 128 MiB.
const MEMBERS: usize = 32;

/// The time that a child has between the fork and its first lock. A child of a program with 800 MiB in a heap ran 5 ms after its
/// fork at the latest, and 30 ms where four others wanted the two CPUs; one that is stopped in between loses its pages after this.
const PATIENCE: Nanos = Nanos(60_000_000_000);

/// The pages of the file that a word of a bitmap is about.
pub(super) const PER_WORD: usize = 64;

/// The kinds of a member, in the lowest bits of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Life {
    /// Nobody is this member. All zero bytes are this.
    Free = 0,
    /// The child of a fork, which has not locked its byte yet.
    Expected = 1,
    /// A process that has its byte locked.
    Locked = 2,
}

/// No member.
const NOBODY: usize = usize::MAX;

/// The generation of a member is counted in the bits above its [`Life`].
const GENERATION: u64 = 4;

/// The entry of a member in the memory that all share. All zero bytes are an entry without a process.
#[derive(Debug)]
#[repr(C)]
struct Member {
    state: AtomicU64,
    /// When its fork began, on the monotonic clock.
    since: AtomicU64,
    /// The pages that it may have in the file.
    room: AtomicU64,
}

/// The memory that all members share, but for the bitmaps.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shared {
    /// The pages of the file that may be taken, and the last one.
    pages: AtomicU64,
    /// The length of the file; zero of a device.
    length: AtomicU64,
    /// Changed when a bitmap has been copied.
    copies: AtomicU32,
    /// Whether a child has found memory changed before its pager was there.
    is_unsafe: AtomicBool,
    members: [Member; MEMBERS],
}

/// A member that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    member: usize,
    state: u64,
}

/// The family, as a member sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    shared: &'static Shared,
    bits: &'static [AtomicU64],
    /// The pages that each member may ever need.
    share: usize,
    /// The words of a bitmap.
    words: usize,
    me: usize,
}

impl Family {
    /// The family whose memory lies in this file, behind the first page: each may come to need this much of the heap's file. The
    /// process is none of its members yet.
    ///
    /// # Errors
    /// ENOMEM where there is no address space to share, and what the kernel says.
    pub(super) fn new(shared: &Descriptor, size: Bytes) -> Result<Self> {
        let share = sys::to_usize(size.0 / HUGE_PAGE_BYTES) * PER_RANGE;
        let words = MEMBERS * share / PER_WORD;
        let header = size_of::<Shared>().next_multiple_of(PAGE);
        let length = (header + MEMBERS * words * size_of::<u64>()).next_multiple_of(PAGE);
        sys::make_longer(shared, (PAGE + length) as u64)?;
        let asked = Mmap {
            address: 0,
            length,
            protection: libc::PROT_READ | libc::PROT_WRITE,
            flags: libc::MAP_SHARED | libc::MAP_NORESERVE,
            descriptor: shared.0,
            offset: PAGE as i64,
        };
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { sys::mmap(asked) }?;
        sys::leave_out_of_dumps(Span { start, length });
        // SAFETY: it was just mapped, is never unmapped, and any bytes are the values of both.
        let (shared, bits) = unsafe {
            let bits = (start + header) as *const AtomicU64;
            (&*(start as *const Shared), core::slice::from_raw_parts(bits, MEMBERS * words))
        };
        Ok(Self { shared, bits, share, words, me: NOBODY })
    }

    /// Becomes a member that has nothing in the heap's file yet, and room there for the pages of [`SPARE`].
    ///
    /// # Errors
    /// EAGAIN or EACCES where another process has a lock of the file, which is none of the family's: it is that one's heap. ENOMEM
    /// where the family is as large as it may be, EIO of a file that was truncated, and what else the kernel says. On a file system
    /// without locks nobody can fork with a pager.
    pub(super) fn begin(self, file: &Descriptor) -> Result<Self> {
        let (shared, length) = (self.shared, sys::file_length(file)?);
        // A device has all the room that there will be.
        let pages = match length {
            0 => self.share,
            length => {
                (sys::to_usize(length) / PAGE).min(MEMBERS * self.share) / PER_WORD * PER_WORD
            }
        };
        let is_new = shared.pages.compare_exchange(0, pages as u64, SeqCst, SeqCst).is_ok();
        if is_new {
            shared.length.store(length, SeqCst);
            match lock(file, 0) {
                Ok(()) if (0..MEMBERS).any(|at| is_locked(file, at)) => return Err(Errno::EAGAIN),
                Err(errno @ (Errno::EAGAIN | Errno::EACCES)) => return Err(errno),
                Ok(()) | Err(_) => {}
            }
        } else if length < shared.length.load(SeqCst) {
            return Err(Errno::EIO);
        }
        self.reap(file);
        let claim = self.claim().ok_or(Errno::ENOMEM)?;
        let member = Self { me: claim.member, ..self };
        // The process that was this member before may have left pages taken.
        (0..member.pages().div_ceil(PER_WORD)).for_each(|word| member.free(word, u64::MAX));
        member.make_room(0, file).inspect_err(|_| member.retract(claim))?;
        match member.join(claim, file) {
            // Without locks there are no other members, who do not see what this one has.
            Err(errno) if !matches!(errno, Errno::EAGAIN | Errno::EACCES) => {
                member.retract(claim);
                Ok(member)
            }
            joined => joined,
        }
    }

    /// Makes room in the file for `pages`, and for the pages of [`SPARE`], with which pages are written to fresh places while all
    /// others are in use. Where that fails, the member keeps the room that it had.
    ///
    /// # Errors
    /// ENOSPC of a device, EIO of a file that was truncated, and what the kernel says.
    pub(super) fn make_room(&self, pages: usize, file: &Descriptor) -> Result<()> {
        let Some(member) = self.shared.members.get(self.me) else { return Err(Errno::ENOLCK) };
        let wanted = (pages + sys::to_usize(SPARE.0) / PAGE).min(self.share) as u64;
        let before = member.room.fetch_max(wanted, SeqCst);
        self.reap(file);
        self.grow(file).inspect_err(|_| {
            // Another thread may have made more room meanwhile.
            let _ = member.room.compare_exchange(wanted, before, SeqCst, SeqCst);
        })
    }

    /// Makes room for the pages of [`SPARE`] more. The pager writes ranges as a whole, also the parts of them that the program has
    /// not mapped.
    ///
    /// # Errors
    /// As of [`Family::make_room`], and ENOSPC where the member has its share.
    pub(super) fn make_more_room(&self, file: &Descriptor) -> Result<()> {
        let member = self.shared.members.get(self.me).ok_or(Errno::ENOLCK)?;
        let room = sys::to_usize(member.room.load(SeqCst));
        if room >= self.share { Err(Errno::ENOSPC) } else { self.make_room(room, file) }
    }

    /// Takes a page that nobody uses, whoever has it besides.
    pub(super) fn take_for_nobody(&self, page: usize) {
        if let Some(own) = self.bit_of(self.me, page / PER_WORD) {
            own.fetch_or(1 << (page % PER_WORD), SeqCst);
        }
    }

    /// The length that the file has; zero of a device.
    pub(super) fn length(&self) -> &'static AtomicU64 {
        &self.shared.length
    }

    /// The pages that the file has, the first and the last of which are never used.
    pub(super) fn pages(&self) -> usize {
        sys::to_usize(self.shared.pages.load(SeqCst))
    }

    /// Asserts that the file has room for all members, and that none of them has pages that the file has not. Nobody joins or
    /// forks meanwhile.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let (pages, length) = (self.pages(), self.shared.length.load(SeqCst));
        let mut needed = 0;
        for (at, member) in self.shared.members.iter().enumerate() {
            let life = life(member.state.load(SeqCst));
            assert!(life <= Life::Locked as u64, "{life} is no life");
            if life == Life::Free as u64 {
                continue;
            }
            let room = member.room.load(SeqCst);
            assert!(room <= self.share as u64, "no member has more than its share");
            needed += room;
            for word in pages / PER_WORD..self.words {
                let bits = self.bit_of(at, word).map(|bits| bits.load(SeqCst));
                assert_eq!(bits, Some(0), "pages behind the end of the file");
            }
        }
        assert!(needed <= pages as u64, "each member has the room that it was given");
        assert!(pages <= self.words * PER_WORD, "each page has a bit");
        assert!(length == 0 || length >= (pages * PAGE) as u64, "the file is that long");
    }

    /// The number of this member.
    #[cfg(test)]
    pub(super) const fn number(&self) -> usize {
        self.me
    }

    /// As the end of this member's process is found by another one.
    #[cfg(test)]
    pub(super) fn end(&self) {
        let state = self.shared.members[self.me].state.load(SeqCst);
        assert!(self.turn(self.me, state, Life::Free));
    }

    /// Notes that no child may have a pager any more.
    pub(super) fn give_up(&self) {
        self.shared.is_unsafe.store(true, SeqCst);
    }

    /// The pages of a word that are this member's.
    pub(super) fn own(&self, word: usize) -> u64 {
        self.bit_of(self.me, word).map_or(u64::MAX, |bits| bits.load(SeqCst))
    }

    /// The pages of a word that are somebody's.
    pub(super) fn taken(&self, word: usize) -> u64 {
        self.own(word) | self.others(word)
    }

    /// Takes pages of a word, which are not this member's; whether nobody else has one of them.
    pub(super) fn take(&self, word: usize, pages: u64) -> bool {
        let Some(own) = self.bit_of(self.me, word) else { return false };
        own.fetch_or(pages, SeqCst);
        loop {
            let copies = self.shared.copies.load(SeqCst);
            let is_taken = self.others(word) & pages != 0;
            // A bitmap that was copied in between may have been looked at before, and the one it was copied from after its
            // bits were cleared.
            if copies != self.shared.copies.load(SeqCst) {
                continue;
            }
            if is_taken {
                own.fetch_and(!pages, SeqCst);
            }
            return !is_taken;
        }
    }

    /// Gives pages of a word back.
    pub(super) fn free(&self, word: usize, pages: u64) {
        if let Some(own) = self.bit_of(self.me, word) {
            own.fetch_and(!pages, SeqCst);
        }
    }

    fn bit_of(&self, member: usize, word: usize) -> Option<&AtomicU64> {
        self.bits.get(member.checked_mul(self.words)?..)?.get(..self.words)?.get(word)
    }

    fn others(&self, word: usize) -> u64 {
        let lives = |member: &Member| life(member.state.load(SeqCst)) != Life::Free as u64;
        let others = self.shared.members.iter().enumerate().filter(|(at, _)| *at != self.me);
        others
            .filter(|(_, member)| lives(member))
            .filter_map(|(at, _)| self.bit_of(at, word))
            .fold(0, |all, bits| all | bits.load(SeqCst))
    }

    /// Has a member expected that begins with the pages of this one, of which none may be taken or given back meanwhile, and
    /// with room in the file for all that it will write.
    ///
    /// # Errors
    /// ENOMEM where the family is as large as it may be, EIO of a file that was truncated, and what the kernel says.
    pub(super) fn expect(&self, file: &Descriptor) -> Result<Claim> {
        let length = self.shared.length.load(SeqCst);
        let is_whole = sys::file_length(file)? >= length;
        if self.shared.is_unsafe.load(SeqCst) || !is_whole {
            return Err(Errno::EIO);
        }
        let me = self.shared.members.get(self.me);
        if me.is_none_or(|me| life(me.state.load(SeqCst)) != Life::Locked as u64) {
            return Err(Errno::ENOLCK);
        }
        if length == 0 {
            return Err(Errno::ENOSPC); // what a device has is the first member's
        }
        self.reap(file);
        self.expect_one_more(file)
    }

    /// As [`Family::expect`], where that is possible so far.
    pub(super) fn expect_one_more(&self, file: &Descriptor) -> Result<Claim> {
        let claim = self.claim().ok_or(Errno::ENOMEM)?;
        let room = |member: usize| self.shared.members.get(member).map(|member| &member.room);
        if let (Some(own), Some(childs)) = (room(self.me), room(claim.member)) {
            childs.store(own.load(SeqCst), SeqCst);
        }
        self.grow(file).inspect_err(|_| self.retract(claim))?;
        for word in 0..self.pages().div_ceil(PER_WORD) {
            if let Some(bits) = self.bit_of(claim.member, word) {
                bits.store(self.own(word), SeqCst);
            }
        }
        self.shared.copies.fetch_add(1, SeqCst);
        Ok(claim)
    }

    fn claim(&self) -> Option<Claim> {
        let all = self.shared.members.iter().enumerate();
        all.filter(|(at, _)| *at != self.me).find_map(|(member, entry)| {
            let before = entry.state.load(SeqCst);
            if life(before) != Life::Free as u64 {
                return None;
            }
            // A process that was stopped here for long must not make the claim of another look old.
            entry.since.fetch_max(sys::now().0, SeqCst);
            let state = before + GENERATION + Life::Expected as u64;
            let claimed = entry.state.compare_exchange(before, state, SeqCst, SeqCst).is_ok();
            claimed.then(|| {
                entry.room.store(0, SeqCst);
                Claim { member, state }
            })
        })
    }

    /// The file grows, so that there is room for what all members may write.
    fn grow(&self, file: &Descriptor) -> Result<()> {
        let counts = |(at, member): &(usize, &Member)| {
            *at == self.me || life(member.state.load(SeqCst)) != Life::Free as u64
        };
        let members = self.shared.members.iter().enumerate().filter(counts);
        let pages: u64 = members.map(|(_, member)| member.room.load(SeqCst)).sum();
        let pages = pages.next_multiple_of(PER_RANGE as u64);
        if pages <= self.shared.pages.load(SeqCst) {
            return Ok(());
        }
        let (length, before) = (pages * PAGE as u64, self.shared.length.load(SeqCst));
        if before == 0 || u32::try_from(pages).is_err() {
            return Err(Errno::ENOSPC); // a device does not grow
        }
        // A file that was truncated must not be made long again: what was lost would read as zeroes.
        if sys::file_length(file)? < before {
            return Err(Errno::EIO);
        }
        // A file system that finds it has too little keeps what it took for the file until then.
        let more = length.saturating_sub(before);
        if sys::available_for(file)? < more {
            return Err(Errno::ENOSPC);
        }
        // SAFETY: it changes nothing of what the file holds.
        unsafe { syscall!(Sysno::fallocate, file.0, 0, before, more) }?;
        self.shared.length.fetch_max(length, SeqCst);
        self.shared.pages.fetch_max(pages, SeqCst);
        Ok(())
    }

    /// The member is expected no more: there was no fork.
    pub(super) fn retract(&self, claim: Claim) {
        self.turn(claim.member, claim.state, Life::Free);
    }

    /// The family as the member sees it that was expected, which it is from now on.
    ///
    /// # Errors
    /// ESRCH where it was given up, and what the kernel says.
    pub(super) fn join(&self, claim: Claim, file: &Descriptor) -> Result<Self> {
        lock(file, claim.member)?;
        if !self.turn(claim.member, claim.state, Life::Locked) {
            return Err(Errno::ESRCH);
        }
        Ok(Self { me: claim.member, ..*self })
    }

    fn turn(&self, member: usize, from: u64, to: Life) -> bool {
        let to = from - life(from) + to as u64;
        let member = self.shared.members.get(member);
        member.is_some_and(|member| member.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok())
    }

    /// Frees the pages of members whose processes have ended.
    pub(super) fn reap(&self, file: &Descriptor) {
        for (at, member) in self.shared.members.iter().enumerate() {
            let state = member.state.load(SeqCst);
            let since = member.since.load(SeqCst);
            let is_gone = if life(state) == Life::Locked as u64 {
                at != self.me && !is_locked(file, at)
            } else {
                life(state) == Life::Expected as u64 && sys::now() > Nanos(since + PATIENCE.0)
            };
            if is_gone {
                self.turn(at, state, Life::Free);
            }
        }
    }
}

const fn life(state: u64) -> u64 {
    state % GENERATION
}

/// The kind of a lock that nobody else may have as well.
const WRITES: i16 = 1; // F_WRLCK

/// The byte of a member.
fn byte_of(member: usize) -> libc::flock {
    // SAFETY: zero bytes are a lock.
    let mut byte: libc::flock = unsafe { core::mem::zeroed() };
    byte.l_type = WRITES;
    byte.l_start = member as i64;
    byte.l_len = 1;
    byte
}

fn lock(file: &Descriptor, member: usize) -> Result<()> {
    let byte = byte_of(member);
    // SAFETY: the kernel reads the lock.
    unsafe { syscall!(Sysno::fcntl, file.0, libc::F_SETLK, &raw const byte) }.map(|_| ())
}

/// Whether another process has the byte of a member locked; where the kernel does not say, it has.
fn is_locked(file: &Descriptor, member: usize) -> bool {
    let mut byte = byte_of(member);
    // SAFETY: the kernel reads and writes the lock.
    let done = unsafe { syscall!(Sysno::fcntl, file.0, libc::F_GETLK, &raw mut byte) };
    done.is_err() || i32::from(byte.l_type) != libc::F_UNLCK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Family {
        let shared = file(PAGE as u64);
        let family = Family::new(&shared, Bytes(2 * HUGE_PAGE_BYTES)).expect("there is memory");
        family.shared.pages.store(family.share as u64, SeqCst);
        family.shared.members[0].state.store(Life::Locked as u64, SeqCst);
        family.shared.members[0].room.store(family.share as u64, SeqCst);
        Family { me: 0, ..family }
    }

    fn child_of(parent: &Family) -> Family {
        let claim = parent.claim().expect("there is room");
        for word in 0..parent.words {
            let bits = parent.bit_of(claim.member, word).expect("it is in the bitmap");
            bits.store(parent.own(word), SeqCst);
        }
        parent.shared.copies.fetch_add(1, SeqCst);
        assert!(parent.turn(claim.member, claim.state, Life::Locked));
        Family { me: claim.member, ..*parent }
    }

    #[test]
    fn a_page_is_taken_while_any_member_has_it() {
        let parent = first();
        assert!(parent.take(0, 0b111));
        let child = child_of(&parent);
        parent.free(0, 0b11);
        assert!(!parent.take(0, 0b1) && parent.own(0) == 0b100);
        assert!(!parent.take(0, 0b1_0001) && parent.own(0) == 0b100, "of two pages one is taken");
        assert!(parent.take(0, 0b1000) && !child.take(0, 0b1000));
        child.free(0, 0b1);
        assert!(parent.take(0, 0b1));
        assert_eq!((parent.taken(0), child.own(0)), (0b1111, 0b110));
    }

    #[test]
    fn a_member_that_was_given_up_is_another() {
        let parent = first();
        let first = parent.claim().expect("there is room");
        parent.retract(first);
        let second = parent.claim().expect("there is room");
        assert_eq!(first.member, second.member);
        assert!(!parent.turn(first.member, first.state, Life::Locked));
        assert!(parent.turn(second.member, second.state, Life::Locked));
    }

    #[test]
    fn a_family_has_an_end() {
        let parent = first();
        let claims: alloc::vec::Vec<_> = core::iter::from_fn(|| parent.claim()).collect();
        assert_eq!(claims.len(), MEMBERS - 1);
    }

    /// A file in memory, of this length.
    fn file(length: u64) -> Descriptor {
        // SAFETY: the name is a text.
        let file = Descriptor(unsafe { libc::memfd_create(c"heap".as_ptr(), libc::MFD_CLOEXEC) });
        set_length(&file, length);
        file
    }

    fn set_length(file: &Descriptor, length: u64) {
        let length = i64::try_from(length).expect("it is short");
        // SAFETY: nobody has mapped the file.
        assert_eq!(unsafe { libc::ftruncate(file.0, length) }, 0);
    }

    #[test]
    fn a_fork_is_refused_where_the_file_was_truncated_or_memory_was_changed() {
        let file = file(2 * HUGE_PAGE_BYTES);
        let shared = self::file(PAGE as u64);
        let parent = Family::new(&shared, Bytes(2 * HUGE_PAGE_BYTES)).expect("there is memory");
        assert_eq!(parent.expect(&file), Err(Errno::ENOLCK), "it has not begun");
        let parent = parent.begin(&file).expect("nobody else has the file");
        let claim = parent.expect(&file).expect("the file grows");
        assert_eq!(sys::file_length(&file), Ok(4 * HUGE_PAGE_BYTES));
        set_length(&file, 4 * HUGE_PAGE_BYTES - 1);
        assert_eq!(parent.expect(&file), Err(Errno::EIO));
        set_length(&file, 4 * HUGE_PAGE_BYTES);
        let child = parent.join(claim, &file).expect("it is expected");
        assert_eq!(parent.join(claim, &file).map(|_| ()), Err(Errno::ESRCH), "it has joined");
        child.give_up();
        assert_eq!(parent.expect(&file), Err(Errno::EIO));
        parent.check();
    }

    #[test]
    fn the_program_that_a_member_becomes_leaves_the_pages_of_the_others_alone() {
        let file = file(2 * HUGE_PAGE_BYTES);
        let shared = self::file(PAGE as u64);
        let family = || Family::new(&shared, Bytes(2 * HUGE_PAGE_BYTES)).expect("there is memory");
        let parent = family().begin(&file).expect("nobody else has the file");
        assert!(parent.me == 0 && parent.take(0, 0b110));
        // The kernel does not tell of the child's lock in this process: it is another member all the same.
        let child = child_of(&parent);
        child.shared.members[child.me].state.store(Life::Expected as u64, SeqCst);
        child.shared.members[child.me].since.store(sys::now().0, SeqCst);
        let next = family().begin(&file).expect("it is one more of the family");
        assert_eq!((next.me, next.own(0), next.taken(0)), (0, 0, 0b110));
        assert!(!next.take(0, 0b100) && next.take(0, 0b1000) && !child.take(0, 0b1000));
    }

    #[test]
    fn a_device_has_no_room_for_one_more() {
        let parent = first();
        let device = file(0);
        assert_eq!(parent.expect(&device), Err(Errno::ENOSPC));
        parent.check();
        assert_eq!(parent.claim().map(|claim| claim.member), Some(1), "the claim was taken back");
    }

    #[test]
    fn the_file_grows_with_what_is_mapped() {
        let (file, shared) = (file(SPARE.0), self::file(PAGE as u64));
        let size = Bytes(SPARE.0 + 10 * HUGE_PAGE_BYTES);
        let family = Family::new(&shared, size).expect("there is memory");
        let family = family.begin(&file).expect("nobody else has the file");
        assert_eq!(sys::file_length(&file), Ok(SPARE.0));
        family.make_room(2 * PER_RANGE, &file).expect("there is memory");
        assert_eq!(sys::file_length(&file), Ok(SPARE.0 + 2 * HUGE_PAGE_BYTES));
        family.make_room(1, &file).expect("it has more");
        assert_eq!(sys::file_length(&file), Ok(SPARE.0 + 2 * HUGE_PAGE_BYTES));
        set_length(&file, SPARE.0);
        assert_eq!(family.make_room(3 * PER_RANGE, &file), Err(Errno::EIO), "it was truncated");
        set_length(&file, SPARE.0 + 2 * HUGE_PAGE_BYTES);
        let claim = family.expect(&file).expect("there is memory");
        assert_eq!(
            sys::file_length(&file),
            Ok(2 * (SPARE.0 + 2 * HUGE_PAGE_BYTES)),
            "a child has as much"
        );
        family.retract(claim);
        family.make_room(100 * PER_RANGE, &file).expect("it has no more than its share");
        assert_eq!(family.pages(), 2 * (sys::to_usize(SPARE.0) / PAGE + 2 * PER_RANGE));
        family.check();
    }

    #[test]
    fn members_whose_processes_have_ended_are_free_and_others_are_not() {
        let file = file(2 * HUGE_PAGE_BYTES);
        let parent = first();
        // The kernel says of this process's own locks what it says of none.
        let ended = child_of(&parent);
        let late = parent.claim().expect("there is room");
        let expected = parent.claim().expect("there is room");
        parent.shared.members[late.member].since.store(0, SeqCst);
        let lives = || {
            let members = parent.shared.members.iter();
            let states = members.map(|member| life(member.state.load(SeqCst)));
            states.take(4).collect::<alloc::vec::Vec<_>>()
        };
        let [free, waits, locked] = [Life::Free, Life::Expected, Life::Locked].map(|it| it as u64);
        assert!(sys::now() > PATIENCE, "the machine has run for longer than that");
        assert_eq!(lives(), [locked, locked, waits, waits]);
        parent.reap(&file);
        assert_eq!(lives(), [locked, free, free, waits]);
        assert!(ended.take(0, 0b1) && parent.take(0, 0b1), "what it has is nobody's");
        assert!(!parent.turn(late.member, late.state, Life::Locked), "it comes too late");
        assert!(parent.turn(expected.member, expected.state, Life::Locked));
    }
}
