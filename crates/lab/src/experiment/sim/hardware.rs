//! The papers' machines: processors, TLBs and what the kernel's work costs there.

use superpage_policy::page::PageSize;
use superpage_policy::units::Nanos;
use superpage_sim::machine::work::{Transfers, Work};
use superpage_sim::run::{Hardware, Price};
use superpage_sim::translation::{
    Geometry, GeometryError, Latencies, ReadLatencies, TlbGeometry, WalkGeometry,
};
use superpage_sim::units::{Cycles, Hertz};

/// Nanoseconds for each kind of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Entering the kernel for a fault and leaving it.
    pub(super) fault: f64,
    /// Zeroing a base page.
    pub(super) zero: f64,
    /// Copying a base page.
    pub(super) copy: f64,
    /// Writing a page-table entry.
    pub(super) entry: f64,
    /// Making other CPUs forget a translation.
    pub(super) shootdown: f64,
    /// Scanning a base page's entry or frame.
    pub(super) scan: f64,
    /// Reading a base page whole.
    pub(super) examine: f64,
    /// Exchanging the backing of two pages of a guest.
    pub(super) exchange: f64,
    /// A hypercall for that.
    pub(super) hypercall: f64,
    /// A request to the backing store, and each base page of it.
    pub(super) device: (f64, f64),
}

impl Costs {
    /// Costs that no paper here gives: of the order seen on current x86 servers. Assumed.
    const ASSUMED: Self = Self {
        fault: 600.0,
        zero: 180.0,
        copy: 400.0,
        entry: 15.0,
        shootdown: 4000.0,
        scan: 12.0,
        examine: 300.0,
        exchange: 980.0,
        hypercall: 300.0,
        device: (80_000.0, 1_200.0),
    };
}

impl Price for Costs {
    fn price(&self, work: &Work) -> Nanos {
        let device = |transfers: Transfers| {
            transfers.requests as f64 * self.device.0 + transfers.pages.0 as f64 * self.device.1
        };
        let scanned = work.scanned + work.compacted.scanned;
        let copied = work.copied + work.compacted.copied;
        let nanos = work.faults as f64 * self.fault
            + work.zeroed.0 as f64 * self.zero
            + copied.0 as f64 * self.copy
            + work.entries as f64 * self.entry
            + work.shootdowns as f64 * self.shootdown
            + scanned.0 as f64 * self.scan
            + work.examined.0 as f64 * self.examine
            + work.exchanged as f64 * self.exchange
            + work.hypercalls as f64 * self.hypercall
            + device(work.reads)
            + device(work.writes);
        Nanos::from_secs_f64(nanos / 1e9)
    }
}

/// A machine that a paper measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// EMD, section 5.1: AMD EPYC 7401, 2.0 GHz, 48 threads, 256 GB.
    Emd,
    /// Trident, Table 1: Xeon Gold 6140, 2.3 GHz, 72 threads, 384 GB.
    Trident,
    /// xHeap, section 3: Xeon E5-2630 v3, 2.4 GHz, 32 threads, 256 GB, four NVMe SSDs.
    XHeap,
    /// The graph paper, Table 1: Xeon E5-2667 v3, 3.2 GHz, 32 threads, 64 GB a socket.
    Graph,
    /// Quicksilver; the text at hand gives only fault latencies (Table 3). The rest is assumed.
    Quicksilver,
}

impl Machine {
    /// Its hardware.
    pub(super) fn hardware(self) -> Result<Hardware, GeometryError> {
        Ok(Hardware {
            cpus: self.cpus(),
            frequency: self.frequency(),
            geometry: self.geometry()?,
            latencies: self.latencies(),
            price: Box::new(self.costs()),
            host_pages: None,
        })
    }

    /// The same, reading files from a spinning disk (Quicksilver's Table 3).
    ///
    /// 29.4 us a base page from its 1 GiB in 7.7 s; half a turn at 7200 a minute before that,
    /// assumed. The table's 11 ms for 2 MiB would need a faster disk than its 7.7 s.
    pub(super) fn with_disk(self) -> Result<Hardware, GeometryError> {
        let costs = Costs { device: (4_200_000.0, 29_360.0), ..self.costs() };
        Ok(Hardware { price: Box::new(costs), ..self.hardware()? })
    }

    /// The same, for programs whose own threads read files ahead: nobody waits for the device.
    pub(super) fn reading_ahead(self) -> Result<Hardware, GeometryError> {
        let costs = Costs { device: (0.0, 0.0), ..self.costs() };
        Ok(Hardware { price: Box::new(costs), ..self.hardware()? })
    }

    /// The same, as a guest whose memory the host maps by pages of this size.
    pub(super) fn guest(self, host: PageSize) -> Result<Hardware, GeometryError> {
        Ok(Hardware { host_pages: Some(host), ..self.hardware()? })
    }

    const fn cpus(self) -> u32 {
        match self {
            Self::Emd => 48,
            Self::Trident => 72,
            Self::XHeap | Self::Graph => 32,
            Self::Quicksilver => 8,
        }
    }

    const fn frequency(self) -> Hertz {
        Hertz(match self {
            Self::Emd => 2_000_000_000,
            Self::Trident => 2_300_000_000,
            Self::XHeap => 2_400_000_000,
            Self::Graph | Self::Quicksilver => 3_200_000_000,
        })
    }

    /// TLBs: EMD section 5.1, Trident Table 1, graph paper Table 1; xHeap's is the same generation
    /// as the graph paper's (Haswell). The walk caches are assumed, in all of them.
    fn geometry(self) -> Result<Geometry, GeometryError> {
        let table = |entries, ways| TlbGeometry::new(entries, ways).map(Some);
        let (shared, giant) = match self {
            Self::Emd | Self::Trident | Self::Quicksilver => (table(1536, 12)?, table(16, 4)?),
            Self::XHeap | Self::Graph => (table(1024, 8)?, None),
        };
        // Share of the data caches that page tables get: a quarter. Assumed.
        let (near, far) = match self {
            Self::Emd => (table(2048, 8)?, table(32_768, 16)?),
            Self::Trident => (table(4096, 16)?, table(131_072, 16)?),
            Self::XHeap | Self::Graph | Self::Quicksilver => (table(1024, 8)?, table(65_536, 16)?),
        };
        Ok(Geometry {
            first: [table(64, 4)?, table(32, 4)?, table(4, 4)?],
            second_shared: shared,
            second_giant: giant,
            walk: WalkGeometry {
                pd_entries: table(32, 4)?,
                pdpt_entries: table(4, 4)?,
                pml4_entries: table(2, 2)?,
                near_lines: near,
                far_lines: far,
            },
        })
    }

    /// Assumed: usual latencies of such processors.
    const fn latencies(self) -> Latencies {
        let _ = self;
        Latencies {
            second_level_hit: Cycles(7),
            read: ReadLatencies { near: Cycles(14), far: Cycles(50), memory: Cycles(220) },
        }
    }

    const fn costs(self) -> Costs {
        match self {
            Self::Emd | Self::Graph => Costs::ASSUMED,
            // Section 5.1.2: a 2 MiB fault takes 850 us, a 1 GiB fault 400 ms (1.5 to 1.7 us a base
            // page) and 2.7 ms if zeroed ahead. Section 6: 600 ms to copy 512 huge pages, 0.5 ms
            // to exchange them in one hypercall, 30 ms in 512.
            Self::Trident => Costs {
                zero: 1_560.0,
                copy: 2_280.0,
                exchange: 970.0,
                hypercall: 57_000.0,
                ..Costs::ASSUMED
            },
            // Table 3: 91 us for a 2 MiB fault, 46 ms for 1 GiB: 175 ns a base page. NVMe: 1.7 ms
            // for 2 MiB.
            Self::Quicksilver => Costs {
                fault: 1000.0,
                zero: 175.0,
                copy: 350.0,
                device: (80_000.0, 3_200.0),
                ..Costs::ASSUMED
            },
            // Four drives of 3.5 GB/s: 0.3 us a base page; latency assumed.
            Self::XHeap => Costs { device: (80_000.0, 300.0), ..Costs::ASSUMED },
        }
    }
}
