//! `quicksilver-table3`: what one fault takes that brings a whole superpage in, from memory and from
//! files (Quicksilver, Table 3).

use super::support_hardware;
use super::{
    COLUMNS, Cell, Constant, Constants, Error, Experiment, On, Progress, Quantity, Report, Result,
    Setting, Table,
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
    run: &run,
};

static MEMORY: Constant<Bytes> = Constant::immaterial(
    "quicksilver.table3-memory",
    Bytes::from_gib(4),
    "memory of a machine on which one page is mapped",
);
static ZEROING: Constant<()> = Constant::fitted(
    "quicksilver.rate-of-zeroing",
    (),
    &[Cell {
        experiment: "quicksilver-table3",
        case: "2.0 MiB page, anonymous",
        policy: "quicksilver-sync-1",
        quantity: "fault latency",
    }],
    "the machine's profile has the rate that follows from this number",
);
static NVME: Constant<()> = Constant::fitted(
    "quicksilver.rate-of-nvme",
    (),
    &[Cell {
        experiment: "quicksilver-table3",
        case: "2.0 MiB page, NVMe",
        policy: "quicksilver-sync-1",
        quantity: "fault latency",
    }],
    "the machine's profile has the rate that follows from this number",
);
static DISK: Constant<()> = Constant::fitted(
    "quicksilver.rate-of-disk",
    (),
    &[Cell {
        experiment: "quicksilver-table3",
        case: "1.0 GiB page, spinning disk",
        policy: "trident",
        quantity: "fault latency",
    }],
    "the machine's profile has the rate that follows from this number",
);

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

    /// The rate at which it comes, which the profile has.
    fn rate(self) -> &'static Constant<()> {
        match self {
            Self::Zeroes => &ZEROING,
            Self::Nvme => &NVME,
            Self::Disk => &DISK,
        }
    }

    fn hardware(self, constants: &Constants) -> Result<Hardware> {
        constants.get(self.rate());
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
            let constants = Constants::of(setting);
            let (policy, latency) = latency(from, size, setting, &constants)?;
            let quantity = Quantity { case: &case, policy, name: "fault latency", unit: "us" };
            let paper = Some(paper(from, size));
            table.add(quantity, paper, latency * 1e6, &constants.rests())?;
        }
    }
    table.note(
        "The paper estimates all but one of its numbers, by its text. Each device has one rate here, from the \
         row marked as fitted; for the spinning disk no one rate gives both of the paper's.",
    );
    table.note(
        "1 GiB pages are mapped by Trident, since no policy of this paper has them; 2 MiB pages by \
         Sync-1, which has them for files too.",
    );
    Ok(table.report)
}

/// Microseconds in the paper.
const fn paper(from: From, size: PageSize) -> f64 {
    match (from, size) {
        (From::Zeroes, PageSize::Gigantic) => 46_000.0,
        (From::Zeroes, _) => 91.0,
        (From::Nvme, PageSize::Gigantic) => 900_000.0,
        (From::Nvme, _) => 1700.0,
        (From::Disk, PageSize::Gigantic) => 7_700_000.0,
        (From::Disk, _) => 11_000.0,
    }
}

/// Who maps it, and the seconds that takes.
fn latency(
    from: From,
    size: PageSize,
    setting: &Setting,
    constants: &Constants,
) -> Result<(&'static str, f64)> {
    let policy = if size == PageSize::Gigantic { "trident" } else { "quicksilver-sync-1" };
    let entry = list::find(policy).ok_or_else(|| Error::Simulation(policy.to_owned()))?;
    let is_file = from != From::Zeroes;
    let setup = Setup {
        memory: constants.get(&MEMORY),
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
    let price = from.hardware(constants)?.profile;
    match machine.touch(process, start, Content::Data)? {
        Served::Fault { size: mapped, work } if mapped == size => {
            Ok((policy, price.price(&work).as_secs_f64()))
        }
        _ => Err(Error::Simulation(format!("{policy} did not map a page of {}", size.bytes()))),
    }
}
