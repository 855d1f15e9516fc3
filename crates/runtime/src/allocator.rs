//! The memory that the library itself uses: mapped by the library, for its own threads.
//!
//! The program's allocator may be waiting for the library, so the library has its own. Only the library's
//! threads and its beginning use it: a thread of the program could be stopped by a fault while it holds
//! the heap's lock, and the fault could only be served by somebody who needs the heap.

#![expect(unsafe_code, reason = "is the allocator")]

use crate::lock::RawLock;
use crate::sys::{self, Mmap, PAGE};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use dlmalloc::{Allocator, Dlmalloc};

/// The allocator of Rust's collections in the library.
#[derive(Debug)]
pub(crate) struct Ours {
    lock: RawLock,
    inner: UnsafeCell<Inner>,
}

struct Inner(Dlmalloc<Mapped>);

impl core::fmt::Debug for Inner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Dlmalloc")
    }
}

impl Ours {
    pub(crate) const fn new() -> Self {
        Self {
            lock: RawLock::new(),
            inner: UnsafeCell::new(Inner(Dlmalloc::new_with_allocator(Mapped))),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc<Mapped>) -> T) -> T {
        self.lock.take();
        // SAFETY: the lock is held.
        let done = work(unsafe { &mut (*self.inner.get()).0 });
        self.lock.give_back();
        done
    }
}

// SAFETY: the inner allocator is used with the lock held only.
unsafe impl Sync for Ours {}

// SAFETY: the inner allocator keeps this contract.
unsafe impl GlobalAlloc for Ours {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|inner| unsafe { inner.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        self.with(|inner| unsafe { inner.free(pointer, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|inner| unsafe { inner.realloc(pointer, layout.size(), layout.align(), size) })
    }
}

/// Fresh memory of the kernel, of which the allocator gives none back.
#[derive(Clone, Copy, Debug)]
struct Mapped;

// SAFETY: what is handed out is fresh memory of the kernel that nothing else uses.
unsafe impl Allocator for Mapped {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unused place.
        match unsafe { sys::mmap(Mmap::anywhere(size, protection, 0)) } {
            Ok(address) => (address as *mut u8, size, 0),
            Err(_) => (core::ptr::null_mut(), 0, 0),
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        core::ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}
