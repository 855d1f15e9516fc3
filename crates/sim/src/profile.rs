//! What a machine costs: one profile for each machine of the papers, every number with its source.
//!
//! A profile is a TOML file of numbers, each a table with its value, its unit, where it comes from
//! and on what basis. Those of the papers' machines are compiled in; others, such as a calibrated
//! one, come as text: this crate opens no files. What follows from the numbers is in
//! [`crate::costs`].

mod number;

pub use number::{Basis, LineShape, Number, Quantity, Shape};

use crate::translation::{Geometry, Latencies, ReadLatencies, WalkGeometry};
use crate::units::{BytesPerSecond, Count, Cycles, Hertz};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use superpage_units::{Bytes, Nanos};

/// The profiles of the papers' machines.
const BUILT_IN: [(&str, &str); 5] = [
    ("emd", include_str!("profiles/emd.toml")),
    ("graph", include_str!("profiles/graph.toml")),
    ("quicksilver", include_str!("profiles/quicksilver.toml")),
    ("trident", include_str!("profiles/trident.toml")),
    ("xheap", include_str!("profiles/xheap.toml")),
];

/// A machine and what things cost on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// Which machine, in words.
    pub machine: String,
    /// Which of the devices is swapped to.
    pub swap: String,
    /// Its processors.
    pub cpu: Cpu,
    /// Its memory.
    pub memory: Memory,
    /// Its TLBs.
    pub tlb: Tlb,
    /// What its page walks use.
    pub walk: Walk,
    /// What the kernel does in a page fault, but for zeroing.
    pub fault: Faults,
    /// What the kernel does to change mappings.
    pub mapping: Mapping,
    /// What the kernel does in the background.
    pub background: Background,
    /// What a hypervisor does for a guest.
    pub guest: Guest,
    /// Its storage devices, by name.
    pub device: BTreeMap<String, Device>,
}

/// Processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Cycles per second.
    pub frequency: Number<Hertz>,
    /// Hardware threads of all sockets.
    pub hardware_threads: Number<Count>,
    /// Sockets.
    pub sockets: Number<Count>,
}

/// Memory, as one thread sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// All of it.
    pub size: Number<Bytes>,
    /// Of a read that no cache serves.
    pub latency: Number<Nanos>,
    /// The rate at which the kernel zeroes.
    pub zeroing: Number<BytesPerSecond>,
    /// The rate at which the kernel copies.
    pub copying: Number<BytesPerSecond>,
}

/// TLBs of a hardware thread; what is left out is not there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// First level, base pages.
    pub first_base: Option<Shape>,
    /// First level, huge pages.
    pub first_huge: Option<Shape>,
    /// First level, gigantic pages.
    pub first_gigantic: Option<Shape>,
    /// Second level, base and huge pages.
    pub second_shared: Option<Shape>,
    /// Second level, gigantic pages.
    pub second_gigantic: Option<Shape>,
    /// What a hit in the second level costs more than one in the first.
    pub second_level_hit: Number<Cycles>,
}

/// What page walks use; what is left out is not there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walk {
    /// Cached page-directory entries.
    pub pd_entries: Option<Shape>,
    /// Cached entries of the level above.
    pub pdpt_entries: Option<Shape>,
    /// Cached entries of the top level.
    pub pml4_entries: Option<Shape>,
    /// Page-table lines in the second-level data cache.
    pub near_lines: Option<LineShape>,
    /// Page-table lines in the last-level data cache.
    pub far_lines: Option<LineShape>,
    /// Reading an entry from the second-level data cache.
    pub near_read: Number<Cycles>,
    /// Reading an entry from the last-level data cache.
    pub far_read: Number<Cycles>,
}

/// A page fault without the zeroing, by the size of the page that is mapped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// A base page.
    pub base: Number<Nanos>,
    /// A huge page.
    pub huge: Number<Nanos>,
    /// A gigantic page.
    pub gigantic: Number<Nanos>,
}

/// Changing mappings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Promoting to one larger page, without what is copied and zeroed.
    pub promotion: Number<Nanos>,
    /// Telling another CPU to forget a translation.
    pub shootdown_per_cpu: Number<Nanos>,
    /// Writing a page-table entry.
    pub entry_update: Number<Nanos>,
    /// Splitting a huge page, without what is freed.
    pub split: Number<Nanos>,
    /// Freeing a base page.
    pub free_page: Number<Nanos>,
}

/// What is done in the background.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Looking at a base page, for khugepaged or compaction.
    pub scan_page: Number<Nanos>,
}

/// What a hypervisor does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Going there and back.
    pub hypercall: Number<Nanos>,
    /// In a hypercall that exchanges what backs pages: what is done once for all of them.
    pub exchange_call: Number<Nanos>,
    /// In it: what is done for each pair of pages.
    pub exchange_page: Number<Nanos>,
}

/// A storage device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Of a small read.
    pub read_latency: Number<Nanos>,
    /// Of a small write.
    pub write_latency: Number<Nanos>,
    /// Of large reads.
    pub read_bandwidth: Number<BytesPerSecond>,
    /// Of large writes.
    pub write_bandwidth: Number<BytesPerSecond>,
    /// Requests that it serves at the same time.
    pub queue_depth: Number<Count>,
    /// CPU time of a request: asking, the interrupt, and switching to another thread and back.
    pub request: Number<Nanos>,
}

/// Why there is no such profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No machine of a paper has that name.
    #[error("there is no machine {0:?}; choose one of {known}", known = names())]
    Unknown(String),
    /// The text is not a profile.
    #[error("{}{what}", place(*line))]
    Malformed {
        /// The line, from 1, where it is known.
        line: Option<usize>,
        /// What is wrong.
        what: String,
    },
}

fn names() -> String {
    Profile::names().collect::<Vec<_>>().join(", ")
}

fn place(line: Option<usize>) -> String {
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

impl Profile {
    /// The names of the papers' machines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// The profile of a paper's machine.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] with the names that there are.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let (_, text) = BUILT_IN
            .into_iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| ProfileError::Unknown(name.to_owned()))?;
        Self::from_toml(text)
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] with the line and one sentence.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError::Malformed {
            line: error.span().map(|span| 1 + text[..span.start].matches('\n').count()),
            what: error.message().replace('\n', " "),
        })?;
        match profile.contradiction() {
            Some(what) => Err(ProfileError::Malformed { line: None, what }),
            None => Ok(profile),
        }
    }

    /// Writes it in the form in which the papers' profiles are written: a number on a line.
    #[must_use]
    pub fn to_toml(&self) -> String {
        number::lines(self)
    }

    /// What cannot be, although each number by itself could.
    fn contradiction(&self) -> Option<String> {
        let rates = [&self.memory.zeroing, &self.memory.copying].map(|rate| ("memory", rate));
        let of_devices = self.device.iter().flat_map(|(name, device)| {
            [&device.read_bandwidth, &device.write_bandwidth].map(|rate| (name.as_str(), rate))
        });
        if let Some((name, _)) = rates.into_iter().chain(of_devices).find(|(_, r)| r.value.0 == 0) {
            return Some(format!("a bandwidth of {name} is 0, and nothing would ever be done"));
        }
        if self.cpu.frequency.value.0 == 0 || self.cpu.hardware_threads.value.0 == 0 {
            return Some("cpu: a machine needs a frequency and hardware threads".to_owned());
        }
        if let Some((name, _)) = self.device.iter().find(|(_, d)| d.queue_depth.value.0 == 0) {
            return Some(format!("device {name}: a queue depth of 0, and nothing would be served"));
        }
        let known = self.device.contains_key(&self.swap);
        (!known).then(|| format!("swap is {:?}, and there is no such device", self.swap))
    }

    /// The device that is swapped to.
    ///
    /// # Panics
    /// Never for a profile that was read: that it exists was checked. One put together by hand
    /// must name one of its devices.
    #[must_use]
    pub fn swap_device(&self) -> &Device {
        &self.device[&self.swap]
    }

    /// The translation hardware.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let shape = |shape: &Option<Shape>| shape.as_ref().map(|shape| shape.geometry);
        let lines = |lines: &Option<LineShape>| lines.as_ref().map(|lines| lines.geometry);
        let (tlb, walk) = (&self.tlb, &self.walk);
        Geometry {
            first: [&tlb.first_base, &tlb.first_huge, &tlb.first_gigantic].map(shape),
            second_shared: shape(&tlb.second_shared),
            second_gigantic: shape(&tlb.second_gigantic),
            walk: WalkGeometry {
                pd_entries: shape(&walk.pd_entries),
                pdpt_entries: shape(&walk.pdpt_entries),
                pml4_entries: shape(&walk.pml4_entries),
                near_lines: lines(&walk.near_lines),
                far_lines: lines(&walk.far_lines),
            },
        }
    }

    /// What translation costs.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        Latencies {
            second_level_hit: self.tlb.second_level_hit.value,
            read: ReadLatencies {
                near: self.walk.near_read.value,
                far: self.walk.far_read.value,
                memory: self.cpu.frequency.value.cycles(self.memory.latency.value),
            },
        }
    }
}

#[cfg(test)]
mod tests;
