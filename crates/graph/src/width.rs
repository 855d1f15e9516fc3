//! The one place where 64-bit numbers become `usize`: this crate is for 64-bit machines only.

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "64-bit machines only");

/// `number` as a `usize`; nothing is lost on a 64-bit machine.
#[expect(clippy::cast_possible_truncation, reason = "asserted above")]
pub(crate) const fn to_usize(number: u64) -> usize {
    number as usize
}
