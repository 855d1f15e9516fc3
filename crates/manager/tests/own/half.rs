//! A de-bloater: huge pages that are half zero-filled or more, in address order, one after the other.

use superpage_policy::bloat::{BloatDensity, Knowledge};
use superpage_policy::debloat::list::Entry;
use superpage_policy::debloat::{
    BloatMaps, Debloat, Decision, Depth, DoneCause, LookCause, SplitCause,
};
use superpage_units::{BasePages, Share};

/// The line of the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "half",
    summary: "In address order, huge pages that are half zero-filled or more.",
    source: "CONTRIBUTING.md",
    marks: [Share::percent(50), Share::percent(40)],
    build: |_| Box::new(Half),
};

const FLOOR: BloatDensity = BloatDensity::new(256);

/// The maps say where it is.
#[derive(Debug)]
struct Half;

impl Debloat for Half {
    fn decide(&mut self, maps: &BloatMaps, need: BasePages) -> Decision {
        if need.is_zero() {
            return Decision::Done(DoneCause::NeedMet);
        }
        for (process, map) in maps {
            for (range, known) in map.by_address() {
                let (process, ranges) = (*process, vec![range]);
                match known {
                    Knowledge::Exact(density) if density < FLOOR => {}
                    Knowledge::Exact(_) => {
                        let cause = SplitCause::FirstInOrder;
                        return Decision::Split { process, ranges, cause };
                    }
                    Knowledge::Unknown | Knowledge::PreSampled(_) | Knowledge::Sampled(_) => {
                        let (depth, cause) = (Depth::Exact, LookCause::Unknown);
                        return Decision::Look { process, ranges, depth, cause };
                    }
                }
            }
        }
        Decision::Done(DoneCause::NothingLeft)
    }

    fn floor(&self) -> BloatDensity {
        FLOOR
    }
}
