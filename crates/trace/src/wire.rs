//! The lines of a trace as JSON has them, and the way from and to them. Everything that comes in
//! is an allegation: [`Line`] becomes a [`Sample`] only if it can be true.

use super::{Changes, Contents, Header, RangeState, Run, Sample, Usage, VERSION};
use serde::{Deserialize, Serialize};
use superpage_units::{
    Advice, BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, Growth, HUGE_PAGE_BYTES,
    HugePages, Mapping, Nanos, PmdRange, VirtAddr, Vma, VmaKind,
};

/// What the first line has under `superpage`.
pub(super) const MAGIC: &str = "trace";
/// The end of the address space with five levels of page tables.
const LAST_ADDRESS: u64 = 1 << 57;
/// The longest VMA: all that a program has with four levels.
const LONGEST_AREA: u64 = 1 << 47;
/// The ranges that a sample may speak of: 16 TiB, more than a simulated machine can have.
const MOST_REGIONS: u64 = 1 << 23;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct First {
    superpage: String,
    version: u64,
    command: String,
    base_page: u64,
    interval: u64,
    contents: Looked,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Looked {
    Sampled,
    Exact,
}

impl First {
    pub(super) fn new(header: &Header) -> Self {
        Self {
            superpage: MAGIC.to_owned(),
            version: VERSION,
            command: header.command.clone(),
            base_page: BASE_PAGE_BYTES,
            interval: header.interval.0,
            contents: match header.contents {
                Contents::Sampled => Looked::Sampled,
                Contents::Exact => Looked::Exact,
            },
        }
    }

    pub(super) fn header(self) -> Result<Header, String> {
        if self.base_page != BASE_PAGE_BYTES {
            let (found, ours) = (Bytes(self.base_page), Bytes(BASE_PAGE_BYTES));
            return Err(format!("its base pages have {found}, and only {ours} can be replayed"));
        }
        Ok(Header {
            command: self.command,
            interval: Nanos(self.interval),
            contents: match self.contents {
                Looked::Sampled => Contents::Sampled,
                Looked::Exact => Contents::Exact,
            },
        })
    }
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Last {
    pub(super) samples: usize,
}

/// A sample.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    at: u64,
    resident: u64,
    minor: u64,
    major: u64,
    cpu: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vmas: Vec<(Address, Address, Kind, Grows, Asked)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unmapped: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<(Address, u64, Mapped, u64, u64)>,
}

impl Line {
    pub(super) fn new(sample: &Sample) -> Self {
        let vma = |vma: &Vma| {
            let (start, end) = (Address(vma.start.0), Address(vma.end.0));
            (start, end, vma.kind.into(), vma.growth.into(), vma.advice.into())
        };
        let run = |run: &Run| {
            let state = run.state;
            let start = Address(run.first.start().0);
            (start, run.count.0, state.mapping.into(), state.present.0, state.data.0)
        };
        Self {
            at: sample.at.0,
            resident: sample.usage.resident.0,
            minor: sample.usage.minor_faults,
            major: sample.usage.major_faults,
            cpu: sample.usage.cpu.0,
            vmas: sample.changes.vmas.iter().map(vma).collect(),
            unmapped: sample.changes.unmapped.iter().map(|start| Address(start.0)).collect(),
            ranges: sample.changes.runs.iter().map(run).collect(),
        }
    }

    pub(super) fn sample(self) -> Result<Sample, String> {
        let runs: Vec<Run> = self.ranges.into_iter().map(run).collect::<Result<_, _>>()?;
        let ranges = runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.count.0));
        if ranges > MOST_REGIONS {
            let most = HugePages(MOST_REGIONS).bytes();
            return Err(format!("its ranges come to more than {most}"));
        }
        Ok(Sample {
            at: Nanos(self.at),
            usage: Usage {
                resident: Bytes(self.resident),
                minor_faults: self.minor,
                major_faults: self.major,
                cpu: Nanos(self.cpu),
            },
            changes: Changes {
                vmas: self.vmas.into_iter().map(vma).collect::<Result<_, _>>()?,
                unmapped: self.unmapped.into_iter().map(|start| VirtAddr(start.0)).collect(),
                runs,
            },
        })
    }
}

fn vma(
    (start, end, kind, growth, advice): (Address, Address, Kind, Grows, Asked),
) -> Result<Vma, String> {
    let (start, end) = (VirtAddr(start.0), VirtAddr(end.0));
    let is_aligned =
        start.0.is_multiple_of(BASE_PAGE_BYTES) && end.0.is_multiple_of(BASE_PAGE_BYTES);
    let fits = end.0 <= LAST_ADDRESS && end.0.saturating_sub(start.0) <= LONGEST_AREA;
    if start >= end || !is_aligned || !fits {
        return Err(format!("no VMA can go from {start} to {end}"));
    }
    Ok(Vma { start, end, kind: kind.into(), growth: growth.into(), advice: advice.into() })
}

fn run(
    (start, count, mapping, present, data): (Address, u64, Mapped, u64, u64),
) -> Result<Run, String> {
    let first = VirtAddr(start.0);
    let first = PmdRange::new(first).ok_or_else(|| format!("no range begins at {first}"))?;
    let bytes = count.saturating_mul(HUGE_PAGE_BYTES);
    if count == 0 || first.start().0.saturating_add(bytes) > LAST_ADDRESS {
        return Err(format!("{count} ranges from {} on cannot be", first.start()));
    }
    let mapping = Mapping::from(mapping);
    let can_be = match mapping {
        Mapping::Empty => present == 0,
        Mapping::Base => (1..=BASE_PAGES_PER_HUGE_PAGE).contains(&present),
        Mapping::Huge | Mapping::Gigantic => present == BASE_PAGES_PER_HUGE_PAGE,
    };
    if !can_be || data > present {
        return Err(format!(
            "a range at {} cannot have {present} base pages and data in {data}",
            first.start()
        ));
    }
    let state = RangeState { mapping, present: BasePages(present), data: BasePages(data) };
    Ok(Run { first, count: HugePages(count), state })
}

/// An address: hexadecimal text, because not every reader of JSON keeps 57 bits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Address(u64);

impl From<Address> for String {
    fn from(address: Address) -> Self {
        VirtAddr(address.0).to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no address, such as \"0x7f0000200000\""))
    }
}

/// An enum as the trace spells it, and the policies' enum that it stands for.
macro_rules! words {
    ($name:ident for $theirs:ty { $($word:ident),+ }) => {
        #[derive(Clone, Copy, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum $name { $($word),+ }

        impl From<$theirs> for $name {
            fn from(theirs: $theirs) -> Self {
                match theirs { $(<$theirs>::$word => Self::$word),+ }
            }
        }

        impl From<$name> for $theirs {
            fn from(ours: $name) -> Self {
                match ours { $($name::$word => Self::$word),+ }
            }
        }
    };
}

words!(Kind for VmaKind { Anonymous, Stack, File });
words!(Grows for Growth { Fixed, Up });
words!(Asked for Advice { None, Huge, NoHuge });
words!(Mapped for Mapping { Empty, Base, Huge, Gigantic });
