//! The `CPUID` instruction: what the processor says of its TLBs and caches.
//!
//! Read from leaves 0x8000_0005, 0x8000_0006, 0x8000_0019 and 0x8000_001D on AMD's processors, and
//! from 0x18 and 4 on Intel's. Older processors of Intel's describe their TLBs by the byte codes of
//! leaf 2 only; those are not decoded. What can go wrong: a hypervisor hides or zeroes leaves, and
//! other architectures have no such instruction; then there is nothing to read.
//! AMD64 Architecture Programmer's Manual, volume 3, appendix E; Intel Software Developer's Manual,
//! volume 2A, CPUID.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "older versions of Rust count the instruction as unsafe")
)]

/// Entries and ways of a TLB. Fully associative is one set of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// All entries.
    pub entries: u32,
    /// Entries of a set.
    pub ways: u32,
}

/// What the processor says; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caches {
    /// First-level data TLB, base pages.
    pub first_base: Option<Ways>,
    /// First-level data TLB, huge pages.
    pub first_huge: Option<Ways>,
    /// First-level data TLB, giant pages.
    pub first_giant: Option<Ways>,
    /// Second-level TLB, base pages.
    pub second_base: Option<Ways>,
    /// Second-level TLB, giant pages.
    pub second_giant: Option<Ways>,
    /// Bytes of the second-level data cache.
    pub second_level_bytes: Option<u64>,
    /// Bytes of the third-level data cache.
    pub third_level_bytes: Option<u64>,
}

/// The four registers that the instruction fills: eax, ebx, ecx, edx.
type Registers = [u32; 4];

/// What this processor says.
#[must_use]
pub fn caches() -> Caches {
    decode(&instruction)
}

#[cfg(target_arch = "x86_64")]
fn instruction(leaf: u32, subleaf: u32) -> Registers {
    #[allow(unused_unsafe, reason = "safe in newer versions of Rust")]
    // SAFETY: every processor that runs this program has the instruction, and it only reads.
    let found = unsafe { core::arch::x86_64::__cpuid_count(leaf, subleaf) };
    [found.eax, found.ebx, found.ecx, found.edx]
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction(_leaf: u32, _subleaf: u32) -> Registers {
    [0; 4]
}

/// The first leaf of the extended range; it says which the last one is.
const EXTENDED: u32 = 0x8000_0000;

fn decode(read: &dyn Fn(u32, u32) -> Registers) -> Caches {
    let [last, b, c, d] = read(0, 0);
    let vendor: Vec<u8> = [b, d, c].into_iter().flat_map(u32::to_le_bytes).collect();
    let last_extended = read(EXTENDED, 0)[0];
    // A leaf that is not there reads as the last one that is.
    let checked = |leaf: u32, subleaf: u32| {
        let end = if leaf < EXTENDED { last } else { last_extended };
        if leaf <= end { read(leaf, subleaf) } else { [0; 4] }
    };
    match vendor.as_slice() {
        b"AuthenticAMD" | b"HygonGenuine" => amd(&checked),
        b"GenuineIntel" => intel(&checked),
        _ => Caches::default(),
    }
}

fn amd(read: &dyn Fn(u32, u32) -> Registers) -> Caches {
    let first = read(0x8000_0005, 0);
    let second = read(0x8000_0006, 0);
    let giant = read(0x8000_0019, 0);
    Caches {
        first_base: amd_first(first[1]),
        first_huge: amd_first(first[0]),
        first_giant: amd_coded(giant[0]),
        second_base: amd_coded(second[1]),
        second_giant: amd_coded(giant[1]),
        ..data_caches(&|subleaf| read(0x8000_001d, subleaf))
    }
}

/// The upper half of a register of leaf 0x8000_0005: ways, then entries; 255 ways mean all.
fn amd_first(register: u32) -> Option<Ways> {
    let (ways, entries) = (register >> 24, (register >> 16) & 0xff);
    ways_of(entries, if ways == 0xff { entries } else { ways })
}

/// The upper half of a register of the later leaves: a code for the ways, then entries.
fn amd_coded(register: u32) -> Option<Ways> {
    let entries = (register >> 16) & 0xfff;
    let ways = match register >> 28 {
        code @ 1..=4 => code,
        5 => 6,
        6 => 8,
        8 => 16,
        10 => 32,
        11 => 48,
        12 => 64,
        13 => 96,
        14 => 128,
        15 => entries,
        _ => return None,
    };
    ways_of(entries, ways)
}

fn ways_of(entries: u32, ways: u32) -> Option<Ways> {
    (entries > 0 && ways > 0).then_some(Ways { entries, ways })
}

/// Subleaves of leaf 0x18 that are looked at; no processor has so many.
const TLB_SUBLEAVES: u32 = 64;

fn intel(read: &dyn Fn(u32, u32) -> Registers) -> Caches {
    let mut caches = data_caches(&|subleaf| read(4, subleaf));
    let last = read(0x18, 0)[0].min(TLB_SUBLEAVES);
    for [_, b, sets, d] in (0..=last).map(|subleaf| read(0x18, subleaf)) {
        let (kind, level) = (d & 0x1f, (d >> 5) & 0x7);
        let ways = b >> 16;
        let found = ways_of(ways.saturating_mul(sets), ways);
        let holds = |bit: u32| b & (1 << bit) != 0;
        let is_data = matches!(kind, DATA | UNIFIED | LOADS);
        let take = |slot: &mut Option<Ways>| *slot = slot.or(found);
        match level {
            1 if is_data && holds(0) => take(&mut caches.first_base),
            1 if is_data && holds(1) => take(&mut caches.first_huge),
            1 if is_data && holds(3) => take(&mut caches.first_giant),
            2 if is_data && holds(0) => take(&mut caches.second_base),
            2 if is_data && holds(3) => take(&mut caches.second_giant),
            _ => {}
        }
    }
    caches
}

/// Kinds of a TLB in leaf 0x18.
const DATA: u32 = 1;
const UNIFIED: u32 = 3;
const LOADS: u32 = 4;

/// Subleaves of the leaf that describes caches; no processor has so many.
const CACHE_SUBLEAVES: u32 = 16;

/// The data caches of levels 2 and 3, from the leaf that both vendors lay out alike.
fn data_caches(read: &dyn Fn(u32) -> Registers) -> Caches {
    let mut caches = Caches::default();
    for [a, b, c, _] in (0..CACHE_SUBLEAVES).map(read).take_while(|found| found[0] & 0x1f != 0) {
        let part = |shift: u32, bits: u32| u64::from((b >> shift) & ((1 << bits) - 1)) + 1;
        let bytes = part(22, 10) * part(12, 10) * part(0, 12) * (u64::from(c) + 1);
        match ((a >> 5) & 0x7, a & 0x1f) {
            (2, DATA | UNIFIED) => caches.second_level_bytes = Some(bytes),
            (3, DATA | UNIFIED) => caches.third_level_bytes = Some(bytes),
            _ => {}
        }
    }
    caches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(entries: u32, ways: u32) -> Option<Ways> {
        Some(Ways { entries, ways })
    }

    /// A fourth-generation EPYC in a virtual machine that hides leaf 0x8000_0019.
    #[test]
    fn an_epyc_is_understood() {
        let read = |leaf, subleaf| match (leaf, subleaf) {
            (0, _) => [0x1c, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
            (EXTENDED, _) => [0x8000_0021, 0, 0, 0],
            (0x8000_0005, _) => [0xff48_ff40, 0xff48_ff40, 0x2008_0140, 0x2008_0140],
            (0x8000_0006, _) => [0x5c00_2200, 0x6c00_4200, 0x0400_6140, 0x0a00_9140],
            (0x8000_001d, 0) => [0x121, 0x01c0_003f, 0x3f, 0],
            (0x8000_001d, 1) => [0x122, 0x01c0_003f, 0x3f, 0],
            (0x8000_001d, 2) => [0x143, 0x01c0_003f, 0x7ff, 2],
            (0x8000_001d, 3) => [0x4163, 0x03c0_003f, 0x7fff, 1],
            _ => [0; 4],
        };
        let expected = Caches {
            first_base: ways(72, 72),
            first_huge: ways(72, 72),
            second_base: ways(3072, 8),
            second_level_bytes: Some(1 << 20),
            third_level_bytes: Some(32 << 20),
            ..Caches::default()
        };
        assert_eq!(decode(&read), expected);
    }

    /// Leaf 0x18 as the manual lays it out, with the numbers of an Ice Lake server.
    #[test]
    fn a_processor_of_intel_is_understood() {
        let read = |leaf, subleaf| match (leaf, subleaf) {
            (0, _) => [0x1b, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
            (0x18, 0) => [4, 0, 0, 0],
            (0x18, 1) => [0, 4 << 16 | 1, 16, 1 << 5 | DATA],
            (0x18, 2) => [0, 4 << 16 | 2, 8, 1 << 5 | DATA],
            (0x18, 3) => [0, 8 << 16 | 8, 1, 1 << 5 | DATA],
            (0x18, 4) => [0, 8 << 16 | 3, 128, 2 << 5 | UNIFIED],
            (4, 0) => [0x121, 0x02c0_003f, 0x3f, 0],
            (4, 1) => [0x143, 0x04c0_003f, 0x3ff, 0],
            _ => [0; 4],
        };
        let expected = Caches {
            first_base: ways(64, 4),
            first_huge: ways(32, 4),
            first_giant: ways(8, 8),
            second_base: ways(1024, 8),
            second_level_bytes: Some(5 << 18),
            ..Caches::default()
        };
        assert_eq!(decode(&read), expected);
    }

    #[test]
    fn others_and_old_ones_say_nothing() {
        assert_eq!(decode(&|_, _| [0; 4]), Caches::default());
        let old = |leaf, _| match leaf {
            0 => [2, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
            // What is beyond the last leaf reads as anything.
            _ => [u32::MAX >> 1; 4],
        };
        assert_eq!(decode(&old), Caches::default());
    }

    #[test]
    fn this_processor_answers_without_contradiction() {
        let caches = caches();
        let tlbs = [caches.first_base, caches.first_huge, caches.second_base];
        for Ways { entries, ways } in tlbs.into_iter().flatten() {
            assert!(ways <= entries, "{caches:?}");
        }
    }
}
