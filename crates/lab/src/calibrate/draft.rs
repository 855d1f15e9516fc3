//! The profile that follows from what was measured, and from another for the rest.
//!
//! Two faults, two collapses and two splits are each two sums of the same two parts, which are
//! solved for. Devices, hypercalls and interrupts cannot be measured from inside a program: those
//! numbers are another profile's, and say so.

use super::Measured;
use super::cpuid::{Caches, Ways};
use superpage_sim::profile::{
    Background, Basis, Cpu, Device, Faults, Guest, LineShape, Mapping, Memory, Number, Profile,
    Shape, Tlb, Walk,
};
use superpage_sim::translation::{LINE_WAYS, LineGeometry, TlbGeometry};
use superpage_sim::units::{BytesPerSecond, Count, Cycles, Hertz};
use superpage_units::{BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, Nanos};

/// The name of a profile made here.
const NAME: &str = "calibrated";
/// Bytes of a page-table line.
const LINE: u64 = 64;
/// Base pages of a huge page, and one less: what separates the two sums of a pair.
const PAGES: f64 = BASE_PAGES_PER_HUGE_PAGE as f64;
const OTHERS: f64 = PAGES - 1.0;

/// Nanoseconds that follow from what was measured.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// A fault, without zeroing.
    fault: f64,
    /// Zeroing a base page.
    zero: f64,
    /// Promoting, without copying and zeroing.
    promotion: Option<f64>,
    /// Copying a base page.
    copy: f64,
    /// Splitting, without freeing.
    split: Option<f64>,
    /// Freeing a base page.
    free: Option<f64>,
}

impl Measured {
    fn parts(&self) -> Parts {
        let pages = &self.pages;
        let zero = ((pages.huge_fault - pages.base_fault) / OTHERS).max(0.0);
        let fault = (pages.base_fault - zero).max(0.0);
        let Some(times) = pages.rebuilding else {
            let copy = pages.copy_page;
            return Parts { fault, zero, promotion: None, copy, split: None, free: None };
        };
        // One collapse copies 512 base pages, the other one and zeroes 511. Copying cannot cost
        // more than all of the first.
        let most = times.collapse_full / PAGES;
        let copy = zero + (times.collapse_full - times.collapse_single) / OTHERS;
        let copy = if copy > 0.0 { copy.min(most) } else { pages.copy_page.min(most) };
        Parts {
            fault,
            zero,
            promotion: Some(times.collapse_full - PAGES * copy),
            copy,
            split: Some(times.split_full),
            free: Some(((times.split_freeing - times.split_full) / OTHERS).max(0.0)),
        }
    }

    /// The profile; what was not measured is that of `rest`.
    pub(super) fn draft(&self, rest: &Profile) -> Profile {
        let from = Rest(&rest.name);
        let parts = self.parts();
        let cpu = self.cpu(rest, from);
        let scan = self.pages.scan_page;
        Profile {
            name: NAME.to_owned(),
            machine: self.machine(),
            swap: rest.swap.clone(),
            memory: self.memory(parts),
            tlb: self.tlb(cpu.frequency.value, rest, from),
            walk: self.walk(cpu.frequency.value, rest, from),
            cpu,
            fault: faults(parts),
            mapping: mapping(parts, &rest.mapping, from),
            background: Background {
                scan_page: from.unless(&rest.background.scan_page, scan, SCAN),
            },
            guest: from.guest(&rest.guest),
            device: rest.device.iter().map(|(k, v)| (k.clone(), from.device(v))).collect(),
        }
    }

    fn machine(&self) -> String {
        let model = self.cpu.model.as_deref().unwrap_or("a processor without a name");
        let kind = if self.cpu.is_guest { "virtual machine on " } else { "" };
        let (threads, memory) = (self.cpu.threads, self.memory);
        format!("{kind}{model}, {threads} hardware threads, {memory}")
    }

    fn cpu(&self, rest: &Profile, from: Rest<'_>) -> Cpu {
        let of_file = |number| calibrated(Count(number), "/proc/cpuinfo");
        Cpu {
            frequency: match self.cpu.mhz {
                Some(mhz) => calibrated(Hertz(whole(mhz * 1e6)), "/proc/cpuinfo"),
                None => from.number(&rest.cpu.frequency),
            },
            hardware_threads: of_file(self.cpu.threads.max(1)),
            sockets: self.cpu.sockets.map_or_else(|| from.number(&rest.cpu.sockets), of_file),
        }
    }

    fn memory(&self, parts: Parts) -> Memory {
        let copying = match self.pages.rebuilding {
            Some(_) => "measured: MADV_COLLAPSE of 512 base pages less that of one",
            None => "measured: copying in a program",
        };
        Memory {
            size: calibrated(self.memory, "/proc/meminfo"),
            latency: nanos(self.loads.huge, "measured: dependent random loads on huge pages"),
            zeroing: calibrated(
                page_rate(parts.zero),
                "measured: a fault on a huge page less one on a base page",
            ),
            copying: calibrated(page_rate(parts.copy), copying),
        }
    }

    fn tlb(&self, frequency: Hertz, rest: &Profile, from: Rest<'_>) -> Tlb {
        let caches = self.caches;
        let hit = cycles(self.loads.second_level_hit, frequency);
        let hit_source = "measured: dependent loads from pages within the second-level TLB";
        Tlb {
            first_base: from.shape(caches.first_base, rest.tlb.first_base.as_ref()),
            first_huge: from.shape(caches.first_huge, rest.tlb.first_huge.as_ref()),
            first_gigantic: from.shape(caches.first_gigantic, rest.tlb.first_gigantic.as_ref()),
            second_shared: from.shape(caches.second_base, rest.tlb.second_shared.as_ref()),
            second_gigantic: from.shape(caches.second_gigantic, rest.tlb.second_gigantic.as_ref()),
            second_level_hit: calibrated(hit, hit_source),
        }
    }

    fn walk(&self, frequency: Hertz, rest: &Profile, from: Rest<'_>) -> Walk {
        let (caches, loads, other) = (self.caches, self.loads, &rest.walk);
        let kept = |shape: &Option<Shape>| shape.as_ref().map(|shape| from.kept(shape));
        let read = |time: Option<f64>, number| match time {
            Some(time) => calibrated(cycles(time, frequency), "measured: dependent random loads"),
            None => from.number(number),
        };
        let near = "half of the second-level cache (CPUID), chosen, not measured";
        let far = "a third of the last-level cache (CPUID) or less, chosen, not measured";
        Walk {
            pd_entries: kept(&other.pd_entries),
            pdpt_entries: kept(&other.pdpt_entries),
            pml4_entries: kept(&other.pml4_entries),
            near_lines: from.lines(caches.second_level_bytes, 2, near, other.near_lines.as_ref()),
            far_lines: from.lines(caches.third_level_bytes, 3, far, other.far_lines.as_ref()),
            near_read: read(loads.near, &other.near_read),
            far_read: read(loads.far, &other.far_read),
        }
    }
}

const SCAN: &str = "measured: PAGEMAP_SCAN of our own memory, as a stand-in";

fn faults(parts: Parts) -> Faults {
    let solved = "measured: a fault on a base page, less zeroing it";
    let rest = "measured: as for a base page; the rest of a fault on a huge page counts as zeroing";
    let taken = "not measured; taken to be that of a base page";
    Faults {
        base: nanos(parts.fault, solved),
        huge: nanos(parts.fault, rest),
        gigantic: Number { basis: Basis::Assumed, ..nanos(parts.fault, taken) },
    }
}

fn mapping(parts: Parts, rest: &Mapping, from: Rest<'_>) -> Mapping {
    let collapse = "measured: MADV_COLLAPSE of 512 base pages, less copying them";
    let split = "measured: MADV_COLD on a part of a huge page in use";
    let free = "measured: the same where it frees 511 base pages, less the former";
    Mapping {
        promotion: from.unless(&rest.promotion, parts.promotion, collapse),
        shootdown_per_cpu: from.number(&rest.shootdown_per_cpu),
        entry_update: from.number(&rest.entry_update),
        split: from.unless(&rest.split, parts.split, split),
        free_page: from.unless(&rest.free_page, parts.free, free),
    }
}

/// The name of the profile that the rest is from.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn source(self, theirs: &str) -> String {
        format!("not measured; as in the profile {}: {theirs}", self.0)
    }

    fn number<T: Copy>(self, number: &Number<T>) -> Number<T> {
        let source = self.source(&number.source);
        Number { value: number.value, source, basis: Basis::Assumed }
    }

    /// What was measured, or the other profile's number.
    fn unless(self, number: &Number<Nanos>, time: Option<f64>, how: &str) -> Number<Nanos> {
        time.map_or_else(|| self.number(number), |time| nanos(time, how))
    }

    fn kept(self, shape: &Shape) -> Shape {
        let source = self.source(&shape.source);
        Shape { geometry: shape.geometry, source, basis: Basis::Assumed }
    }

    /// What the processor says, or the other profile's shape.
    fn shape(self, said: Option<Ways>, other: Option<&Shape>) -> Option<Shape> {
        let Some(geometry) = said.and_then(even) else {
            return other.map(|shape| self.kept(shape));
        };
        Some(Shape { geometry, source: "CPUID".to_owned(), basis: Basis::Calibrated })
    }

    /// As many lines as fit into one of `parts` of a cache, or the other profile's number.
    fn lines(
        self,
        cache: Option<u64>,
        parts: u64,
        how: &str,
        other: Option<&LineShape>,
    ) -> Option<LineShape> {
        let lines = cache.and_then(|bytes| (bytes / LINE / parts).checked_ilog2());
        let geometry =
            lines.and_then(|bits| LineGeometry::new(1u32.checked_shl(bits)?.max(LINE_WAYS)).ok());
        let Some(geometry) = geometry else {
            return other.map(|shape| {
                let source = self.source(&shape.source);
                LineShape { geometry: shape.geometry, source, basis: Basis::Assumed }
            });
        };
        Some(LineShape { geometry, source: how.to_owned(), basis: Basis::Assumed })
    }

    fn guest(self, guest: &Guest) -> Guest {
        Guest {
            hypercall: self.number(&guest.hypercall),
            exchange_call: self.number(&guest.exchange_call),
            exchange_page: self.number(&guest.exchange_page),
        }
    }

    fn device(self, device: &Device) -> Device {
        Device {
            read_latency: self.number(&device.read_latency),
            write_latency: self.number(&device.write_latency),
            read_bandwidth: self.number(&device.read_bandwidth),
            write_bandwidth: self.number(&device.write_bandwidth),
            queue_depth: self.number(&device.queue_depth),
            request: self.number(&device.request),
        }
    }
}

/// The TLBs that the processor tells of.
pub(super) fn tlbs(caches: Caches) -> impl Iterator<Item = (&'static str, TlbGeometry)> {
    let all = [
        ("first-level TLB, base pages", caches.first_base),
        ("first-level TLB, huge pages", caches.first_huge),
        ("first-level TLB, gigantic pages", caches.first_gigantic),
        ("second-level TLB, base and huge pages", caches.second_base),
        ("second-level TLB, gigantic pages", caches.second_gigantic),
    ];
    all.into_iter().filter_map(|(what, tlb)| Some((what, even(tlb?)?)))
}

/// A TLB whose sets are a power of two: with more ways than the processor says where they are not.
/// An EPYC says 3072 entries in 8 ways, which would be 384 sets; it becomes 128 sets of 24.
fn even(Ways { entries, ways }: Ways) -> Option<TlbGeometry> {
    let sets = entries / ways;
    let power_of_two = 1u32.checked_shl(sets.trailing_zeros())?;
    TlbGeometry::new(entries, entries / power_of_two).ok()
}

/// The rate at which base pages are done that take so many nanoseconds each.
pub(super) fn page_rate(nanos: f64) -> BytesPerSecond {
    /// Faster than any memory; what cannot be measured for its shortness.
    const MOST: BytesPerSecond = BytesPerSecond(1 << 40);
    let rate = BytesPerSecond(whole(BASE_PAGE_BYTES as f64 * 1e9 / nanos));
    rate.clamp(BytesPerSecond(1), MOST)
}

fn calibrated<T>(value: T, source: &str) -> Number<T> {
    Number { value, source: source.to_owned(), basis: Basis::Calibrated }
}

fn nanos(time: f64, source: &str) -> Number<Nanos> {
    calibrated(Nanos(whole(time)), source)
}

fn cycles(time: f64, frequency: Hertz) -> Cycles {
    Cycles(whole(time * frequency.0 as f64 / 1e9))
}

/// The nearest whole number; 0 for what is below, and for what is none.
fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, which is what is wanted here"
    )]
    let whole = number.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::super::Loads;
    use super::super::pages::{Pages, Rebuilding};
    use super::*;
    use superpage_kernel::cpuinfo::Cpuinfo;
    use superpage_sim::machine::work::Work;
    use superpage_units::{BasePages, Bytes};

    fn measured() -> Measured {
        let rebuilding = Rebuilding {
            split_full: 30_000.0,
            split_freeing: 81_100.0,
            collapse_full: 250_000.0,
            collapse_single: 120_000.0,
        };
        Measured {
            cpu: Cpuinfo { threads: 2, mhz: Some(2500.0), ..Cpuinfo::default() },
            caches: Caches {
                second_base: Some(Ways { entries: 3072, ways: 8 }),
                third_level_bytes: Some(32 << 20),
                ..Caches::default()
            },
            memory: Bytes::from_gib(24),
            pages: Pages {
                base_fault: 600.0,
                huge_fault: 102_800.0,
                rebuilding: Some(rebuilding),
                scan_page: None,
                copy_page: 700.0,
            },
            loads: Loads {
                near: Some(5.6),
                far: None,
                second_level_hit: 2.8,
                huge: 120.0,
                base: 150.0,
            },
        }
    }

    #[test]
    fn the_profile_gives_back_what_was_measured() {
        let rest = Profile::named("xheap").expect("built in");
        let profile = measured().draft(&rest);
        let near = |time: Nanos, nanos: f64| {
            assert!((time.0 as f64 / nanos - 1.0).abs() < 0.005, "{time:?}, measured {nanos}");
        };
        let fault = |faults, zeroed| Work { faults, zeroed: BasePages(zeroed), ..Work::default() };
        near(profile.price(&fault([1, 0, 0], 1)), 600.0);
        near(profile.price(&fault([0, 1, 0], 512)), 102_800.0);
        let collapse = |copied, zeroed| Work {
            promotions: 1,
            copied: BasePages(copied),
            zeroed: BasePages(zeroed),
            ..Work::default()
        };
        near(profile.price(&collapse(512, 0)), 250_000.0);
        near(profile.price(&collapse(1, 511)), 120_000.0);
        let split = |freed| Work { splits: 1, freed: BasePages(freed), ..Work::default() };
        near(profile.price(&split(0)), 30_000.0);
        near(profile.price(&split(511)), 81_100.0);
        assert_eq!(profile.tlb.second_level_hit.value, Cycles(7));
        assert_eq!(profile.walk.near_read.value, Cycles(14));
    }

    #[test]
    fn what_was_not_measured_is_the_other_profiles_and_says_so() {
        let rest = Profile::named("xheap").expect("built in");
        let profile = measured().draft(&rest);
        let read = &profile.device["nvme"].read_latency;
        assert_eq!(read.value, rest.device["nvme"].read_latency.value);
        assert_eq!(read.basis, Basis::Assumed);
        assert!(read.source.starts_with("not measured; as in the profile xheap: "));
        assert_eq!(profile.background.scan_page.basis, Basis::Assumed);
        assert_eq!(profile.walk.far_read.basis, Basis::Assumed);
        let shared = profile.tlb.second_shared.clone().expect("CPUID says so");
        assert_eq!((shared.geometry.sets(), shared.geometry.ways()), (128, 24));
        let far = profile.walk.far_lines.clone().expect("CPUID says so");
        assert_eq!(far.geometry.table().entries(), 131_072);
        assert_eq!(Profile::from_toml(&profile.to_toml()), Ok(profile));
    }

    #[test]
    fn a_machine_that_contradicts_itself_still_gives_a_profile() {
        let mut odd = measured();
        odd.pages.huge_fault = 0.0;
        odd.pages.rebuilding = None;
        odd.cpu.mhz = None;
        odd.caches.second_base = Some(Ways { entries: 7, ways: 2 });
        let profile = odd.draft(&Profile::named("emd").expect("built in"));
        assert_eq!(Profile::from_toml(&profile.to_toml()), Ok(profile));
    }
}
