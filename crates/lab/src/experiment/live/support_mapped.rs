//! The pages that a process's memory lies on, by size, the kernel's pools (hugetlb) included.
//!
//! `Rss` and `smaps_rollup` know nothing of pages from the pools; `/proc/PID/smaps` does, VMA by VMA.
//! [proc_pid_smaps(5)](https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html).

use super::Result;
use super::support_bench::median;
use superpage_kernel::process::Process;
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, Pid};

/// A process's memory by the size of its pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) base: Bytes,
    pub(super) huge: Bytes,
    pub(super) gigantic: Bytes,
    /// The sum of all sizes, with gigantic pages that nobody uses yet.
    pub(super) all: Bytes,
}

/// The numbers in a VMA's lines.
#[derive(Clone, Copy, Debug, Default)]
struct Vma {
    page: Bytes,
    rss: Bytes,
    huge: Bytes,
    pool: Bytes,
    is_ready: bool,
}

impl Mapped {
    /// The memory of process `pid` now.
    pub(super) fn of(pid: Pid) -> Result<Self> {
        let text = Process::open(pid)?.read_file("smaps")?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// The median of each size and of the sum.
    pub(super) fn median(all: impl Iterator<Item = Self> + Clone) -> Self {
        let of = |size: fn(&Self) -> Bytes| {
            Bytes(1).scaled(median(all.clone().map(|mapped| size(&mapped).0 as f64)))
        };
        Self {
            base: of(|mapped| mapped.base),
            huge: of(|mapped| mapped.huge),
            gigantic: of(|mapped| mapped.gigantic),
            all: of(|mapped| mapped.all),
        }
    }

    /// Whether the memory on pages of one size, or in all, differs by so much.
    pub(super) fn differs(self, other: Self, by: Bytes) -> bool {
        let parts = |of: Self| [of.base, of.huge, of.gigantic, of.all];
        parts(self).iter().zip(parts(other)).any(|(one, other)| one.0.abs_diff(other.0) >= by.0)
    }

    fn parse(smaps: &str) -> Self {
        let (mut mapped, mut vma) = (Self::default(), Vma::default());
        for line in smaps.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(key), Some(value)) = (words.next(), words.next()) else { continue };
            let size = || Bytes::from_kib(value.parse().unwrap_or(0));
            match key {
                "KernelPageSize:" => vma.page = size(),
                "Rss:" => vma.rss = size(),
                "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => vma.huge += size(),
                "Private_Hugetlb:" | "Shared_Hugetlb:" => vma.pool += size(),
                // The last line of a VMA. The library's pages that are ready are not for children (`dc`,
                // MADV_DONTFORK); once the program uses them they are.
                "VmFlags:" => {
                    vma.is_ready = line.split_ascii_whitespace().any(|flag| flag == "dc");
                    mapped.add(std::mem::take(&mut vma));
                }
                _ => {}
            }
        }
        mapped
    }

    fn add(&mut self, vma: Vma) {
        self.all += vma.rss + vma.pool;
        self.base += vma.rss.saturating_sub(vma.huge);
        self.huge += vma.huge;
        match (vma.page.0 == GIGANTIC_PAGE_BYTES, vma.is_ready) {
            (true, true) => {}
            (true, false) => self.gigantic += vma.pool,
            (false, _) => self.huge += vma.pool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00400000-00600000 r-xp 00000000 00:00 0          /bin/program
KernelPageSize:        4 kB
Rss:                2052 kB
AnonHugePages:      2048 kB
Private_Hugetlb:       0 kB
VmFlags: rd ex mr mw me
40000000-80000000 rw-p 00000000 00:0f 1          /anon_hugepage (deleted)
KernelPageSize:  1048576 kB
Rss:                   0 kB
AnonHugePages:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb: 1048576 kB
VmFlags: rd wr mr mw me de ht
80000000-c0000000 rw-p 00000000 00:0f 2          /anon_hugepage (deleted)
KernelPageSize:  1048576 kB
Private_Hugetlb: 1048576 kB
VmFlags: rd wr mr mw me dc de ht
c0000000-c0200000 rw-p 00000000 00:0f 2          /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr mr mw me de ht
";

    #[test]
    fn pages_are_told_apart_by_size_and_those_that_are_ready_left_out() {
        let mapped = Mapped::parse(SMAPS);
        assert_eq!(mapped.base, Bytes::from_kib(4));
        assert_eq!(mapped.huge, Bytes::from_mib(4));
        assert_eq!(mapped.gigantic, Bytes::from_gib(1));
        let all = Bytes::from_gib(2) + Bytes::from_mib(4) + Bytes::from_kib(4);
        assert_eq!(mapped.all, all);
        assert_eq!(Mapped::parse("VmFlags:\nRss:\n x y"), Mapped::default());
        let none = Mapped::default();
        assert_eq!(Mapped::median([mapped, none, mapped].into_iter()), mapped);
        let demoted =
            Mapped { huge: mapped.huge + mapped.gigantic, gigantic: Bytes::ZERO, ..mapped };
        let (gib, more) = (Bytes::from_gib(1), Bytes(Bytes::from_gib(1).0 + 1));
        assert!(mapped.differs(demoted, gib) && !mapped.differs(demoted, more));
    }

    #[test]
    fn our_own_memory_is_found() {
        let own = Mapped::of(superpage_kernel::process::own_pid()).expect("it reads");
        assert!(own.base > Bytes::ZERO && own.all >= own.base, "{own:?}");
    }
}
