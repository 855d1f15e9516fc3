//! The ordinary memory that the program can still have: the machine's, and what the limits of its cgroups leave by
//! [the rule of `uapi`](superpage_uapi::cgroup#the-rule). Nothing here allocates, because threads of the program ask.

use crate::sys;
use superpage_launch::KEPT;
use superpage_uapi::file::File;
use superpage_uapi::{cgroup, meminfo};
use superpage_units::Bytes;

/// Memory that copying takes beside the pages and their page tables: twice what it took. In a cgroup with room for 2 GiB and 4 MiB a fork
/// that copied 2 GiB was killed, with 16 MiB it was not, page tables of 4 MiB included (three rounds of three).
const MARGIN: Bytes = Bytes(24 << 20);

/// Whether `available` memory is enough to copy pages of `needed` bytes.
pub(crate) fn is_enough(available: Bytes, needed: Bytes) -> bool {
    let page_tables = needed.0 / sys::PAGE as u64 * size_of::<u64>() as u64;
    available.0 >= needed.0 + page_tables + MARGIN.0
}

/// Memory that can be had without taking it from anybody.
pub(crate) fn available() -> Bytes {
    let [_, mut least] = meminfo::total_and_available();
    let _ = File::directory(c"/").and_then(|root| {
        cgroup::own_limits(&root, Bytes::ZERO, |group| least = least.min(group.left))
    });
    least
}

/// Whether memory is short on the machine: less than its [`KEPT`] part is available. Gigantic pages are no charge to the
/// process's cgroup, whose limit does not count here.
pub(crate) fn is_short() -> bool {
    let [total, available] = meminfo::total_and_available();
    available.0 < total.0 / KEPT
}

/// The memory of the machine.
pub(crate) fn total() -> Bytes {
    let [total, _] = meminfo::total_and_available();
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_for_a_test() {
        assert!(available() > Bytes(1 << 20) && total() > available());
    }
}
