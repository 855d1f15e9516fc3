//! Promotion by "full stop": all accesses to a slot are held while its pages are copied to a gigantic page.
//!
//! The slot's pages are first moved to a place that nobody else knows (`UFFDIO_MOVE`), and copied from there.
//! The kernel refuses to move a page that a device or another process is writing to without the page tables,
//! and once the pages are moved nobody can begin to. So no write is lost but one that the kernel makes for a thread
//! that is ending, which cannot wait: stacks that the program chose itself stay on smaller pages for that. The
//! price is a pause as long as the copy for every thread that touches the slot.
//!
//! | step | held | where it fails |
//! |---|---|---|
//! | the slot is registered | first touches | unregistered |
//! | its pages are moved away | all accesses | moved back |
//! | they are copied, the gigantic page is moved over the slot | all accesses | moved back |

#![expect(unsafe_code, reason = "moves and copies memory and replaces mappings")]

use super::demote::{self, Staging};
use super::page::GiganticPage;
use super::promote::{Failed, Held};
use crate::pins;
use crate::room;
use crate::sys::{self, Errno, GIGANTIC, HUGE, PAGE, Pagemap, Span};
use crate::uffd::Userfaultfd;
use core::sync::atomic::AtomicU32;
use superpage_launch::Cause;
use superpage_units::{Bytes, Nanos};

/// Puts a gigantic page in the place of a slot's smaller pages.
pub(super) fn promote(uffd: &Userfaultfd, slot: Span, page: GiganticPage) -> Held {
    match allowed(slot) {
        Ok((staging, pagemap)) => {
            let begun = sys::now();
            let hold = Hold { uffd, pagemap, slot, staging: staging.span() };
            Held { done: hold.promote(page), begun: Some(begun), staging: Some(staging) }
        }
        Err(cause) => Held { done: Err((cause, Some(page))), begun: None, staging: None },
    }
}

/// A place to move the slot's pages to, and the page tables.
fn allowed(slot: Span) -> Result<(Staging, Pagemap), Cause> {
    let pagemap = Pagemap::open().map_err(|_| Cause::Kernel)?;
    populate_zeroes(&pagemap, slot)?;
    let staging = Staging::map().ok_or(Cause::NoMemory)?;
    // The kernel may lock and populate all that is mapped (mlockall).
    if pagemap.is_empty(staging.span()) != Ok(true) {
        return Err(Cause::Kernel);
    }
    // A child would keep what it inherits of it for ever.
    // SAFETY: the memory is the library's, and holds nothing yet.
    let _ = unsafe { sys::madvise(staging.span(), libc::MADV_DONTFORK) };
    Ok((staging, pagemap))
}

/// Gives memory to the huge pages that the program has only read: the kernel's one huge page of zeroes should
/// not be moved (kernels before 2026 do so wrongly). What is swapped out comes back when it is copied, so there
/// must be memory for both.
fn populate_zeroes(pagemap: &Pagemap, slot: Span) -> Result<(), Cause> {
    const HUGE_ZERO: u64 = sys::ZERO | sys::HUGE_PAGE;
    let mut needed = 0;
    let count = pagemap.scan(slot, sys::ZERO | sys::SWAPPED, |found| {
        if found.is(HUGE_ZERO) || found.is(sys::SWAPPED) {
            needed += found.span().length;
        }
    });
    count.map_err(|_| Cause::Kernel)?;
    if needed > 0 && !room::is_enough(room::available(), Bytes(needed as u64)) {
        return Err(Cause::NoMemory);
    }
    let mut populated = Ok(0);
    let scanned = pagemap.scan(slot, sys::ZERO, |found| {
        if found.is(HUGE_ZERO) && populated.is_ok() {
            // SAFETY: the advice keeps what is there.
            populated = unsafe { sys::madvise(found.span(), libc::MADV_POPULATE_WRITE) };
        }
    });
    scanned.and(populated).map(|_| ()).map_err(|_| Cause::Kernel)
}

/// A slot whose pages are moved away, and where they are moved to.
struct Hold<'a> {
    uffd: &'a Userfaultfd,
    pagemap: Pagemap,
    slot: Span,
    staging: Span,
}

impl Hold<'_> {
    fn promote(&self, page: GiganticPage) -> Result<(), Failed> {
        let Self { uffd, slot, staging, .. } = *self;
        if uffd.register(slot).and_then(|()| uffd.register(staging)).is_err() {
            return Err((Cause::Kernel, Some(page)));
        }
        // From here on no huge page of zeroes can come.
        let mut has_zeroes = false;
        let scanned = self.pagemap.scan(slot, sys::ZERO, |found| {
            has_zeroes |= found.is(sys::ZERO | sys::HUGE_PAGE);
        });
        if scanned.is_err() || has_zeroes {
            return Err((Cause::Kernel, Some(page)));
        }
        if let Err(cause) = self.move_away() {
            self.move_back();
            return Err((cause, Some(page)));
        }
        for offset in (0..GIGANTIC).step_by(HUGE) {
            // SAFETY: both are mapped, and nobody else knows where.
            unsafe { demote::copy(staging.start + offset, page.start() + offset) };
        }
        // SAFETY: everything that the slot held has been copied.
        if unsafe { page.move_over(slot) }.is_err() {
            self.move_back();
            return Err((Cause::Kernel, None));
        }
        Ok(())
    }

    fn move_away(&self) -> Result<(), Cause> {
        move_pages(self.uffd, self.slot, self.staging).map_err(|errno| match errno {
            Errno::EBUSY | Errno::EAGAIN => Cause::Pinned,
            _ => Cause::Kernel,
        })?;
        // Some file systems write by other means than pins.
        if pins::may_be(sys::process()) {
            return Err(Cause::MayPin);
        }
        // Reading what is missing there would wait for a thread of ours. The call also waits for writes by
        // `/proc/PID/mem` that are under way.
        self.uffd.unregister(self.staging).map_err(|_| Cause::Kernel)?;
        match self.pagemap.is_empty(self.slot) {
            Ok(true) => Ok(()),
            _ => Err(Cause::Kernel),
        }
    }

    /// Moves back what was moved away, however often the kernel has to be asked: it is the program's memory.
    fn move_back(&self) {
        /// The kernel's timer slack, by which any wait is longer. To yield would not do: whoever holds a page may have a lower priority.
        const MOMENT: Nanos = Nanos(50_000);
        let nobody = AtomicU32::new(0);
        loop {
            // Run by run: where nothing was moved away, the slot may hold a huge page, over which the kernel
            // moves nothing, not even a hole.
            let scanned = self.pagemap.scan(self.staging, sys::PRESENT | sys::SWAPPED, |found| {
                self.move_run_back(found.span());
            });
            if scanned.is_ok() && self.pagemap.is_empty(self.staging) == Ok(true) {
                return;
            }
            sys::futex_wait_for(&nobody, 0, MOMENT);
        }
    }

    fn move_run_back(&self, run: Span) {
        let place = Span { start: self.slot.start + (run.start - self.staging.start), ..run };
        match move_pages(self.uffd, run, place) {
            Ok(()) | Err(Errno::EAGAIN) => return,
            Err(_) => {}
        }
        // The memory was locked meanwhile, or its pages are merged: its page tables move instead. Where a part of
        // the run has come back, the next look tells the rest as a run of its own.
        if self.pagemap.is_empty(place) == Ok(true) {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
            // SAFETY: nothing is in that place, from where the pages were moved away.
            let _ = unsafe { sys::mremap(run, run.length, flags, place.start) };
            // SAFETY: advice that keeps what is there.
            let _ = unsafe { sys::madvise(place, libc::MADV_DOFORK) };
        }
    }
}

/// Moves all pages of a span to another, which must be registered and hold none of them. What is missing stays
/// so.
///
/// # Errors
/// EBUSY for a page that is pinned, shared with a child or merged; EAGAIN for one that the kernel is using.
/// Some pages have moved then.
fn move_pages(uffd: &Userfaultfd, from: Span, to: Span) -> Result<(), Errno> {
    match uffd.move_pages(from, to.start) {
        // One call is about one VMA on each side; the borders of VMAs are not known here.
        Err(Errno::EINVAL) if from.length > PAGE => {
            let half = (from.length / 2).next_multiple_of(PAGE);
            for (start, length) in [(0, half), (half, from.length - half)] {
                let part = |span: Span| Span { start: span.start + start, length };
                move_pages(uffd, part(from), part(to))?;
            }
            Ok(())
        }
        done => done,
    }
}
