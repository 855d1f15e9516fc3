//! `quicksilver-table3`: what one fault takes that brings a whole superpage in, from memory and from
//! files (Quicksilver, Table 3).

use super::support_hardware;
use super::{
    Basis, COLUMNS, Error, Experiment, On, Progress, Quantity, Report, Result, Setting, Table,
};
use superpage_policy::promotion::list;
use superpage_sim::machine::{Backing, Content, Machine, Served, Setup};
use superpage_sim::run::Hardware;
use superpage_units::{Advice, Bytes, Growth, PageSize, VirtAddr, Vma, VmaKind};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-table3",
    source: "Quicksilver, Table 3",
    summary: "Latency of a fault that maps a 2 MiB or a 1 GiB page: anonymous, from NVMe, from disk",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

/// Where the memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Zeroes,
    Nvme,
    Disk,
}

impl From {
    const ALL: [Self; 3] = [Self::Zeroes, Self::Nvme, Self::Disk];

    const fn name(self) -> &'static str {
        match self {
            Self::Zeroes => "anonymous",
            Self::Nvme => "NVMe",
            Self::Disk => "spinning disk",
        }
    }

    fn hardware(self) -> Result<Hardware> {
        Ok(match self {
            Self::Zeroes | Self::Nvme => support_hardware::of("quicksilver")?,
            Self::Disk => support_hardware::with_device("quicksilver", "disk")?,
        })
    }
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for from in From::ALL {
        for size in [PageSize::Huge, PageSize::Gigantic] {
            let case = format!("{} page, {}", size.bytes(), from.name());
            progress(&case)?;
            let (policy, latency) = latency(from, size, setting)?;
            let (paper, basis) = paper(from, size);
            let quantity = Quantity { case: &case, policy, name: "fault latency", unit: "us" };
            table.add(quantity, Some(paper), latency * 1e6, basis)?;
        }
    }
    table.note(
        "The paper estimates all but two of its numbers. Each device has one rate here, from the \
         row marked as fitted; for the spinning disk no one rate gives both of the paper's.",
    );
    table.note(
        "1 GiB pages are mapped by Trident, since no policy of this paper has them; 2 MiB pages by \
         Sync-1, which has them for files too.",
    );
    Ok(table.report)
}

/// Microseconds in the paper, and whether this number gave a constant.
const fn paper(from: From, size: PageSize) -> (f64, Basis) {
    match (from, size) {
        (From::Zeroes, PageSize::Gigantic) => (46_000.0, Basis::Predicted),
        (From::Zeroes, _) => (91.0, Basis::Fitted),
        (From::Nvme, PageSize::Gigantic) => (900_000.0, Basis::Predicted),
        (From::Nvme, _) => (1700.0, Basis::Fitted),
        (From::Disk, PageSize::Gigantic) => (7_700_000.0, Basis::Fitted),
        (From::Disk, _) => (11_000.0, Basis::Predicted),
    }
}

/// Who maps it, and the seconds that takes.
fn latency(from: From, size: PageSize, setting: &Setting) -> Result<(&'static str, f64)> {
    let policy = if size == PageSize::Gigantic { "trident" } else { "quicksilver-sync-1" };
    let entry = list::find(policy).ok_or_else(|| Error::Simulation(policy.to_owned()))?;
    let is_file = from != From::Zeroes;
    let setup = Setup {
        memory: Bytes::from_gib(4),
        pools: None,
        backing: if is_file { Backing::File } else { Backing::None },
        seed: setting.seed,
    };
    let mut machine = Machine::new(setup, (entry.build)());
    let process = machine.spawn();
    let start = VirtAddr(1 << 35);
    let (growth, advice) = (Growth::Fixed, Advice::None);
    let kind = VmaKind::Anonymous;
    let end = start.offset(size.bytes());
    machine.map(process, Vma { start, end, kind, growth, advice });
    let price = from.hardware()?.profile;
    match machine.touch(process, start, Content::Data)? {
        Served::Fault { size: mapped, work } if mapped == size => {
            Ok((policy, price.price(&work).as_secs_f64()))
        }
        _ => Err(Error::Simulation(format!("{policy} did not map a page of {}", size.bytes()))),
    }
}
