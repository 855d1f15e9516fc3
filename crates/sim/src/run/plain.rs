//! A plain server: round numbers, for when no machine was measured.
//!
//! Translation is that of Trident's Table 1 (Xeon Gold 6140): 64, 32 and 4 first-level entries,
//! 1536 and 16 second-level ones. The prices are chosen, not measured: of the order that the
//! papers' machines have, so that systems compare; do not read a single time as a prediction.

use super::{Hardware, Price};
use crate::machine::work::Work;
use crate::translation::{
    Geometry, GeometryError, Latencies, ReadLatencies, TlbGeometry, WalkGeometry,
};
use crate::units::{BytesPerSecond, Cycles, Hertz};
use superpage_policy::units::{BasePages, Bytes, Nanos};

/// Its name on the command line.
pub const NAME: &str = "plain";

/// Its frequency.
pub const FREQUENCY: Hertz = Hertz(2_500_000_000);

/// Hardware threads.
const CPUS: u32 = 16;

/// What each unit of work takes.
const FAULT: Nanos = Nanos(500);
const ENTRY: Nanos = Nanos(20);
const SHOOTDOWN: Nanos = Nanos(2_000);
const HYPERCALL: Nanos = Nanos(2_000);
const EXCHANGE: Nanos = Nanos(200);
const SCAN: Nanos = Nanos(10);
const DROP: Nanos = Nanos(100);
const REQUEST: Nanos = Nanos(80_000);
const ZEROING: BytesPerSecond = BytesPerSecond(10_000_000_000);
const COPYING: BytesPerSecond = BytesPerSecond(5_000_000_000);
const DEVICE: BytesPerSecond = BytesPerSecond(2_000_000_000);

/// The plain server.
///
/// # Errors
/// None: the geometry is possible.
pub fn hardware() -> Result<Hardware, GeometryError> {
    let shape = |entries, ways| TlbGeometry::new(entries, ways).map(Some);
    let geometry = Geometry {
        first: [shape(64, 4)?, shape(32, 4)?, shape(4, 4)?],
        second_shared: shape(1536, 12)?,
        second_giant: shape(16, 4)?,
        walk: WalkGeometry {
            pd_entries: shape(32, 4)?,
            pdpt_entries: shape(4, 4)?,
            pml4_entries: shape(4, 4)?,
            near_lines: shape(1 << 13, 16)?,
            far_lines: shape(3 << 16, 12)?,
        },
    };
    let read = ReadLatencies { near: Cycles(14), far: Cycles(70), memory: Cycles(200) };
    Ok(Hardware {
        cpus: CPUS,
        frequency: FREQUENCY,
        geometry,
        latencies: Latencies { second_level_hit: Cycles(9), read },
        price: Box::new(Plain),
        host_pages: None,
    })
}

/// Its prices.
#[derive(Clone, Copy, Debug)]
struct Plain;

impl Price for Plain {
    fn price(&self, work: &Work) -> Nanos {
        let copied = work.copied + work.compacted.copied;
        let scanned = work.scanned + work.compacted.scanned;
        let moved = work.reads.pages + work.writes.pages;
        let times = [
            FAULT * work.faults,
            ENTRY * work.entries,
            SHOOTDOWN * work.shootdowns,
            HYPERCALL * work.hypercalls,
            EXCHANGE * work.exchanged,
            SCAN * scanned.0,
            DROP * work.dropped.0,
            REQUEST * (work.reads.requests + work.writes.requests),
            bytes(ZEROING, work.zeroed + work.examined),
            bytes(COPYING, copied),
            bytes(DEVICE, moved),
        ];
        times.into_iter().sum()
    }
}

fn bytes(rate: BytesPerSecond, pages: BasePages) -> Nanos {
    let size: Bytes = pages.bytes();
    rate.time(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_takes_hundreds_of_times_as_long_to_fault_in() {
        let hardware = hardware().expect("possible");
        let fault = |zeroed| Work { faults: 1, entries: 1, zeroed, ..Work::default() };
        let base = hardware.price.price(&fault(BasePages(1)));
        let huge = hardware.price.price(&fault(BasePages(512)));
        assert_eq!((base, huge), (Nanos(930), Nanos(210_235)));
        assert_eq!(hardware.price.price(&Work::default()), Nanos::ZERO);
    }
}
