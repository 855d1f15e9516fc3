//! `trident-pv-promotion`: how long a guest takes to promote 512 huge pages to a gigantic one, by
//! copying and by exchanging what backs them (Trident, section 6).

use super::support_hardware;
use super::{
    COLUMNS, Cell, Constant, Constants, Error, Experiment, On, Progress, Quantity, Report, Result,
    Setting, Table, policy_named,
};
use superpage_policy::promotion::View;
use superpage_sim::machine::{Backing, Content, Machine, Setup, Stepped};
use superpage_sim::run::Hardware;
use superpage_units::{
    Advice, Bytes, GIGANTIC_PAGE_BYTES, Growth, Nanos, Page, PageSize, VirtAddr, Vma, VmaKind,
};

/// A guest that has not promoted after so many steps does not.
const MOST_STEPS: u32 = 1_000_000; // not a Constant: where a run that has no end is given up

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-pv-promotion",
    source: "Trident, section 6",
    summary: "Promoting 512 huge pages of a guest to one gigantic page: copied, and exchanged one by \
              one or in one hypercall",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

/// Policy, what it does, milliseconds in the paper.
const CASES: [(&str, &str, f64); 3] = [
    (COPIED, "copied", 600.0),
    ("trident-pv-single", "exchanged one by one", 30.0),
    ("trident-pv", "exchanged in one hypercall", 0.5),
];
const COPIED: &str = "trident";

static MEMORY: Constant<Bytes> = Constant::immaterial(
    "trident.pv-memory",
    Bytes::from_gib(4),
    "of the guest: more than the 2 GiB that a promotion takes",
);
/// The number is in the profile, whose source says that it is calibrated.
static EXCHANGE_CALL: Constant<()> = Constant::fitted(
    "trident.exchange-call",
    (),
    &[Cell {
        experiment: "trident-pv-promotion",
        case: "exchanged one by one",
        policy: "trident-pv-single",
        quantity: "promotion to 1 GiB",
    }],
    "the profile's exchange_call: what a hypercall costs with its locks and flushes",
);
/// The number is in the profile.
static COPYING: Constant<()> = Constant::chosen(
    "trident.copying",
    (),
    "the 600 ms of section 6, to which an earlier number was calibrated,",
    "the profile's copying: two thirds of zeroing",
);
/// The number is in the profile.
static EXCHANGE_PAGE: Constant<()> = Constant::chosen(
    "trident.exchange-page",
    (),
    "the 0.5 ms of section 6, to which an earlier number was calibrated,",
    "the profile's exchange_page: what an exchange costs beyond the hypercall",
);

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let hardware = support_hardware::guest_of("trident", PageSize::Gigantic)?;
    for (policy, case, paper) in CASES {
        progress(case)?;
        let constants = Constants::of(setting);
        let time = promotion(policy, setting.seed, &hardware, &constants)?;
        let quantity = Quantity { case, policy, name: "promotion to 1 GiB", unit: "ms" };
        table.add(quantity, Some(paper), time.as_secs_f64() * 1e3, &constants.rests())?;
    }
    table.note(
        "The copied case follows from the time to zero 1 GiB (section 5.1.2) and three lines moved \
         for two, which was taken when an earlier rate, calibrated to the 600 ms, was known. What a hypercall costs with its locks and flushes is fitted to the unbatched \
         case, for which the paper says \"less than 30 ms\"; of it, the paper has 300 ns for the \
         switch alone. What an exchange costs beyond that was calibrated to the 0.5 ms before it was taken as four words that miss and two entries.",
    );
    Ok(table.report)
}

/// Fills 1 GiB by huge pages, lets the policy promote it, and says how long that took.
fn promotion(policy: &str, seed: u64, hardware: &Hardware, constants: &Constants) -> Result<Nanos> {
    if policy == COPIED {
        constants.get(&COPYING);
    } else {
        constants.get(&EXCHANGE_CALL);
        constants.get(&EXCHANGE_PAGE);
    }
    let memory = constants.get(&MEMORY);
    let setup = Setup { memory, pools: None, backing: Backing::None, seed };
    let mut machine = Machine::new(setup, policy_named(policy)?);
    let process = machine.spawn();
    let start = VirtAddr(GIGANTIC_PAGE_BYTES);
    let (kind, growth, advice) = (VmaKind::Anonymous, Growth::Up, Advice::None);
    machine.map(process, Vma { start, end: start, kind, growth, advice });
    // The VMA grows by 2 MiB at a time, so no fault finds room for 1 GiB.
    for range in Page::containing(start, PageSize::Gigantic).ranges() {
        machine.resize(process, start, range.end());
        machine.touch(process, range.start(), Content::Data)?;
    }
    for _ in 0..MOST_STEPS {
        match machine.step() {
            Stepped::Worked(worked)
                if machine.counts().promotions[PageSize::Gigantic.index()] > 0 =>
            {
                return Ok(hardware.profile.price(&worked.work));
            }
            Stepped::Worked(_) => {}
            Stepped::Resting(Some(until)) if until > machine.now() => {
                machine.at(until);
            }
            Stepped::Resting(_) => break,
        }
    }
    Err(Error::Simulation(format!("{policy} does not promote")))
}
