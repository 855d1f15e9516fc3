//! Numbers that several threads write to at a time: the one file of this crate with unsafe code.

#![expect(unsafe_code, reason = "sees numbers as atomic ones")]

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Numbers as atomic ones, which several threads may write to.
pub(crate) fn shared(numbers: &mut [u32]) -> &[AtomicU32] {
    // SAFETY: both have the same size and, on 64-bit machines, alignment; the numbers are borrowed for as long, so that nobody
    // else sees them as plain ones meanwhile.
    unsafe { &*(std::ptr::from_mut(numbers) as *const [AtomicU32]) }
}

/// As [`shared`], for 64-bit numbers.
pub(crate) fn shared_large(numbers: &mut [u64]) -> &[AtomicU64] {
    // SAFETY: as in `shared`.
    unsafe { &*(std::ptr::from_mut(numbers) as *const [AtomicU64]) }
}
