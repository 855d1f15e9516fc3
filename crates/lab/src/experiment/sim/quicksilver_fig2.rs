//! `quicksilver-fig2`: how much of a compiler's growing heap is mapped by superpages (Quicksilver,
//! Figure 2).

use super::support_quicksilver::{Frag, HEAP_STEP, machine, populate};
use super::{
    COLUMNS, Constant, Constants, Experiment, On, Progress, Quantity, Report, Rests, Result,
    Setting, Table,
};
use superpage_sim::units::Hertz;
use superpage_sim::workload::{Part, Phase, VmaShape, Workload};
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-fig2",
    source: "Quicksilver, Figure 2",
    summary: "Memory mapped by superpages while gcc's heap grows, in three compilations",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const POLICIES: [&str; 5] =
    ["linux", "linux-nokhugepaged", "freebsd", "quicksilver-sync-1", "quicksilver-sync-64"];
const COMPILATIONS: usize = 3; // not a Constant: as in the figure
/// The share of memory that stands for "few" (less) and "most" (more).
const HALF: f64 = 0.5; // not a Constant: what the words few and most mean
/// Points in each compilation at which is looked.
const LOOKS: usize = 4; // not a Constant: how often is looked

static SOURCE: Constant<Bytes> = Constant::assumed(
    "quicksilver.gcc-source",
    Bytes::from_mib(32),
    "what gcc reads at once before its heap grows; not said",
);
static HEAP: Constant<Bytes> = Constant::assumed(
    "quicksilver.gcc-heap",
    Bytes::from_gib(1),
    "what gcc's heap grows to; not said",
);
static SECONDS: Constant<f64> = Constant::assumed(
    "quicksilver.gcc-seconds",
    100.0,
    "seconds in which gcc's heap grows, evenly; not said",
);

/// A compilation: a source is read at once, then the heap grows, a page at a time.
fn gcc(constants: &Constants, frequency: Hertz) -> Workload {
    let (source, heap) = (constants.get(&SOURCE), constants.get(&HEAP));
    let step = constants.get(&HEAP_STEP).bytes();
    let cycles = constants.get(&SECONDS) * frequency.0 as f64 / heap.to_base_pages().0 as f64;
    let mut phases = vec![
        Phase::Map(VmaShape::fixed(source)),
        Phase::Map(VmaShape::heap(heap)),
        populate(Part::whole(0), Bytes::ZERO, 1, 0.0),
    ];
    let border = |look: usize| look as f64 / LOOKS as f64;
    let parts = (0..LOOKS).map(|at| Part { vma: 1, from: border(at), to: border(at + 1) });
    phases.extend(parts.map(|part| populate(part, step, 1, cycles)));
    Workload { name: "gcc".to_owned(), threads: 1, phases }
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    for policy in POLICIES {
        progress(policy)?;
        let constants = Constants::of(setting);
        let mut run = machine(policy, Frag::Zero, setting, &constants)?;
        let workload = gcc(&constants, run.hardware().profile.cpu.frequency.value);
        let rests = constants.rests();
        for compilation in 1..=COMPILATIONS {
            let key = run.start(workload.clone());
            let mut found = Vec::new();
            for look in 1..=LOOKS {
                run.until_left(LOOKS - look)?;
                let footprint = run.machine().process(key).map(|process| process.footprint());
                let footprint = footprint.unwrap_or_default();
                let huge = footprint.huge.bytes();
                let case = format!("compilation {compilation}, {} %", 100 * look / LOOKS);
                let quantity =
                    Quantity { case: &case, policy, name: "mapped by superpages", unit: "MiB" };
                let mib = huge.0 as f64 / Bytes::from_mib(1).0 as f64;
                found.push((mib, huge.share_of(footprint.total().bytes()).get()));
                table.add(quantity, None, mib, &rests)?;
            }
            run.machine_mut().exit(key);
            add_said(&mut table, policy, compilation, &found, &rests)?;
        }
    }
    table.note(
        "The figure is not in our copy, and its text has no number: Linux maps few superpages early \
         in each compilation and creates no more as the heap grows, khugepaged adds to them slowly, \
         and FreeBSD has most of the memory quickly mapped by superpages. The paper's column has \
         bounds that stand for these words: half of the memory for \"few\" and \"most\", and more \
         than nothing for what khugepaged adds. The heap's size and pace are assumed.",
    );
    Ok(table.report)
}

/// Rows for what the paper says in words; `found` has the MiB and the share of memory that superpages
/// map at each look.
fn add_said(
    table: &mut Table,
    policy: &str,
    compilation: usize,
    found: &[(f64, f64)],
    rests: &Rests,
) -> Result<()> {
    let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(()) };
    let case = format!("compilation {compilation}");
    let of = |name, unit| Quantity { case: &case, policy, name, unit };
    match policy {
        "linux-nokhugepaged" => {
            let quantity = of("by superpages at its end (paper: less than)", "of memory");
            table.add(quantity, Some(HALF), last.1, rests)
        }
        "linux" => {
            let quantity = of("more by superpages at its end than early (paper: more than)", "MiB");
            table.add(quantity, Some(0.0), last.0 - first.0, rests)
        }
        "freebsd" => {
            let quantity = of("by superpages early (paper: more than)", "of memory");
            table.add(quantity, Some(HALF), first.1, rests)
        }
        _ => Ok(()),
    }
}
