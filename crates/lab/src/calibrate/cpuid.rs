//! What the processor says of its TLBs and caches: the `CPUID` instruction.
//!
//! AMD's processors say it in leaves 0x8000_0005, 0x8000_0006, 0x8000_0019 and 0x8000_001D,
//! Intel's in 0x18 and 4. Older processors of Intel's describe their TLBs by the byte codes of
//! leaf 2 only; those are not decoded. A hypervisor may hide or zero leaves, and other
//! architectures have no such instruction: then there is nothing to read.

use raw_cpuid::{Associativity, CacheType, CpuId, CpuIdReader, CpuIdResult, DatType};

/// Entries and ways of a TLB. Fully associative is one set of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    /// All entries.
    pub(super) entries: u32,
    /// Entries of a set.
    pub(super) ways: u32,
}

/// What the processor says; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Caches {
    /// First-level data TLB, base pages.
    pub(super) first_base: Option<Ways>,
    /// First-level data TLB, huge pages.
    pub(super) first_huge: Option<Ways>,
    /// First-level data TLB, gigantic pages.
    pub(super) first_gigantic: Option<Ways>,
    /// Second-level TLB, base pages.
    pub(super) second_base: Option<Ways>,
    /// Second-level TLB, gigantic pages.
    pub(super) second_gigantic: Option<Ways>,
    /// Bytes of the second-level data cache.
    pub(super) second_level_bytes: Option<u64>,
    /// Bytes of the third-level data cache.
    pub(super) third_level_bytes: Option<u64>,
}

/// What this processor says.
pub(super) fn caches() -> Caches {
    #[cfg(target_arch = "x86_64")]
    let read = raw_cpuid::CpuIdReaderNative;
    #[cfg(not(target_arch = "x86_64"))]
    let read = |_, _| CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    decode(&read)
}

fn decode(read: &impl CpuIdReader) -> Caches {
    let cpu = CpuId::with_cpuid_reader(read.clone());
    let mut caches = Caches::default();
    amd(&cpu, read, &mut caches);
    intel(&cpu, &mut caches);
    for cache in cpu.get_cache_parameters().into_iter().flatten() {
        let lines = cache.sets() * cache.associativity() * cache.physical_line_partitions();
        let bytes = Some((lines * cache.coherency_line_size()) as u64);
        match (cache.level(), cache.cache_type()) {
            (2, CacheType::Data | CacheType::Unified) => caches.second_level_bytes = bytes,
            (3, CacheType::Data | CacheType::Unified) => caches.third_level_bytes = bytes,
            _ => {}
        }
    }
    caches
}

fn amd<R: CpuIdReader>(cpu: &CpuId<R>, read: &R, caches: &mut Caches) {
    // Only AMD's processors have this leaf; the next one has no TLBs on Intel's.
    let Some(first) = cpu.get_l1_cache_and_tlb_info() else { return };
    caches.first_base = tlb(first.dtlb_4k_size().into(), first.dtlb_4k_associativity());
    caches.first_huge = tlb(first.dtlb_2m_4m_size().into(), first.dtlb_2m_4m_associativity());
    if let Some(second) = cpu.get_l2_l3_cache_and_tlb_info() {
        caches.second_base = tlb(second.dtlb_4k_size().into(), second.dtlb_4k_associativity());
    }
    if let Some(gigantic) = cpu.get_tlb_1gb_page_info() {
        // Of these sizes raw-cpuid 11.6 returns the low eight bits of twelve.
        let CpuIdResult { eax, ebx, .. } = read.cpuid1(0x8000_0019);
        let [first, second] = [eax, ebx].map(|register| register >> 16 & 0xfff);
        caches.first_gigantic = tlb(first, gigantic.dtlb_l1_1gb_associativity());
        caches.second_gigantic = tlb(second, gigantic.dtlb_l2_1gb_associativity());
    }
}

/// A TLB as AMD's leaves describe it; one without entries is none.
fn tlb(entries: u32, ways: Associativity) -> Option<Ways> {
    let ways = match ways {
        Associativity::DirectMapped => 1,
        Associativity::NWay(ways) => ways.into(),
        Associativity::FullyAssociative => entries,
        Associativity::Disabled | Associativity::Unknown => return None,
    };
    ways_of(entries, ways)
}

fn ways_of(entries: u32, ways: u32) -> Option<Ways> {
    (entries > 0 && ways > 0).then_some(Ways { entries, ways })
}

fn intel<R: CpuIdReader>(cpu: &CpuId<R>, caches: &mut Caches) {
    let tlbs = cpu.get_deterministic_address_translation_info().into_iter().flatten();
    for tlb in tlbs {
        use DatType::{DataTLB, LoadOnly, UnifiedTLB};
        if !matches!(tlb.cache_type(), DataTLB | UnifiedTLB | LoadOnly) {
            continue;
        }
        let ways = u32::from(tlb.ways());
        let found = ways_of(ways.saturating_mul(tlb.sets()), ways);
        let take = |slot: &mut Option<Ways>| *slot = slot.or(found);
        match tlb.cache_level() {
            1 if tlb.has_4k_entries() => take(&mut caches.first_base),
            1 if tlb.has_2mb_entries() => take(&mut caches.first_huge),
            1 if tlb.has_1gb_entries() => take(&mut caches.first_gigantic),
            2 if tlb.has_4k_entries() => take(&mut caches.second_base),
            2 if tlb.has_1gb_entries() => take(&mut caches.second_gigantic),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers([eax, ebx, ecx, edx]: [u32; 4]) -> CpuIdResult {
        CpuIdResult { eax, ebx, ecx, edx }
    }

    fn ways(entries: u32, ways: u32) -> Option<Ways> {
        Some(Ways { entries, ways })
    }

    /// A fourth-generation EPYC in a virtual machine that hides leaf 0x8000_0019.
    #[test]
    fn an_epyc_is_understood() {
        let read = |leaf: u32, subleaf: u32| {
            registers(match (leaf, subleaf) {
                (0, _) => [0x1c, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
                (0x8000_0000, _) => [0x8000_0021, 0, 0, 0],
                (0x8000_0005, _) => [0xff48_ff40, 0xff48_ff40, 0x2008_0140, 0x2008_0140],
                (0x8000_0006, _) => [0x5c00_2200, 0x6c00_4200, 0x0400_6140, 0x0a00_9140],
                (0x8000_001d, 0) => [0x121, 0x01c0_003f, 0x3f, 0],
                (0x8000_001d, 1) => [0x122, 0x01c0_003f, 0x3f, 0],
                (0x8000_001d, 2) => [0x143, 0x01c0_003f, 0x7ff, 2],
                (0x8000_001d, 3) => [0x4163, 0x03c0_003f, 0x7fff, 1],
                _ => [0; 4],
            })
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
        let read = |leaf: u32, subleaf: u32| {
            registers(match (leaf, subleaf) {
                (0, _) => [0x1b, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
                (0x18, 0) => [4, 0, 0, 0],
                (0x18, 1) => [0, 4 << 16 | 1, 16, 1 << 5 | DatType::DataTLB as u32],
                (0x18, 2) => [0, 4 << 16 | 2, 8, 1 << 5 | DatType::DataTLB as u32],
                (0x18, 3) => [0, 8 << 16 | 8, 1, 1 << 5 | DatType::DataTLB as u32],
                (0x18, 4) => [0, 8 << 16 | 3, 128, 2 << 5 | DatType::UnifiedTLB as u32],
                (4, 0) => [0x121, 0x02c0_003f, 0x3f, 0],
                (4, 1) => [0x143, 0x04c0_003f, 0x3ff, 0],
                _ => [0; 4],
            })
        };
        let expected = Caches {
            first_base: ways(64, 4),
            first_huge: ways(32, 4),
            first_gigantic: ways(8, 8),
            second_base: ways(1024, 8),
            second_level_bytes: Some(5 << 18),
            ..Caches::default()
        };
        assert_eq!(decode(&read), expected);
    }

    #[test]
    fn others_and_old_ones_say_nothing() {
        assert_eq!(decode(&|_, _| registers([0; 4])), Caches::default());
        let old = |leaf: u32, _: u32| {
            registers(match leaf {
                0 => [2, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
                // What is beyond the last leaf reads as anything.
                _ => [u32::MAX >> 1; 4],
            })
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
