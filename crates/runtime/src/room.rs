//! The ordinary memory that the program can still have: the machine's, and what the limits of its cgroups leave by
//! [the rule of `uapi`](superpage_uapi::cgroup#the-rule). Nothing here allocates, because threads of the program ask.

use superpage_launch::KEPT;
use superpage_uapi::file::File;
use superpage_uapi::{cgroup, meminfo};
use superpage_units::Bytes;

/// Memory that is left free beside what is copied. Chosen, not measured.
pub(crate) const MARGIN: Bytes = Bytes(256 << 20);

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
