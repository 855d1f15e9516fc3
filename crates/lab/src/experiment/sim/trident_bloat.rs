//! `trident-bloat`: memory that Trident adds over THP, and what a de-bloater takes back (Trident, section
//! 7, "Memory bloat").

use super::support_trident_programs::{Backed, Program};
use super::support_trident_runs::{self, Case, Memory, THP};
use super::{
    COLUMNS, Constant, Constants, Experiment, On, Progress, Quantity, Report, Rests, Result,
    Setting, Table, gib,
};
use superpage_policy::debloat::emd;
use superpage_policy::debloat::hawkeye::HAWKEYE;
use superpage_sim::machine::work::Work;
use superpage_sim::run::Run;
use superpage_sim::workload::{Part, Phase, Populate, VmaShape, Workload};
use superpage_units::{Bytes, Growth, PageSize, ProcessKey};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-bloat",
    source: "Trident, section 7",
    summary: "Memory that Trident adds over Linux THP, and what HawkEye's de-bloater takes back of it",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const TRIDENT: &str = "trident";

static AT_ONCE: Constant<()> = Constant::assumed(
    "trident.bloat-at-once",
    (),
    "all memory is there at once: what Trident maps by 1 GiB pages in time, it does at once",
);
static BEHIND_PIECES: Constant<()> = Constant::assumed(
    "trident.bloat-behind-pieces",
    (),
    "memory that is not touched lies behind what is, of each piece that a program gets at a time",
);

/// Where memory lies that a program has and does not touch. The paper does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Untouched {
    /// Between touched pages, anywhere: as in the other tables.
    Anywhere,
    /// Behind what is touched of each piece that the program gets at a time.
    BehindPieces,
}

impl Untouched {
    const BOTH: [Self; 2] = [Self::Anywhere, Self::BehindPieces];

    const fn name(self) -> &'static str {
        match self {
            Self::Anywhere => "untouched pages anywhere",
            Self::BehindPieces => "untouched pages behind each piece",
        }
    }
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let of = |program, policy| Case::native(program, policy, Memory::Unfragmented);
    let cases = Program::SENSITIVE.iter().flat_map(|p| [of(*p, THP), of(*p, TRIDENT)]);
    support_trident_runs::make(&cases.collect::<Vec<Case>>(), setting, &mut *progress)?;
    for program in Program::SENSITIVE {
        let (trident, thp) = (of(program, TRIDENT), of(program, THP));
        let (trident, thp) = (trident.outcome(setting)?, thp.outcome(setting)?);
        let bloat = trident.mapped.iter().sum::<f64>() - thp.mapped.iter().sum::<f64>();
        let rests = Rests::all([&trident.rests, &thp.rests]);
        let name = "bloat over THP";
        let quantity = Quantity { case: program.name(), policy: TRIDENT, name, unit: "GiB" };
        table.add(quantity, Some(bloated(program)), bloat, &rests)?;
    }
    for program in [Program::Memcached, Program::Btree] {
        for untouched in Untouched::BOTH {
            progress(&format!("{}, {}", program.name(), untouched.name()))?;
            recover(&mut table, (program, untouched), setting)?;
        }
    }
    notes(&mut table);
    Ok(table.report)
}

/// GB over THP (section 7): "in two out of eight workloads".
const fn bloated(program: Program) -> f64 {
    match program {
        Program::Memcached => 38.0,
        Program::Btree => 13.0,
        _ => 0.0,
    }
}

/// Rows of one program with its untouched memory in one place: bloat, and what is left of it.
fn recover(
    table: &mut Table,
    (program, untouched): (Program, Untouched),
    setting: &Setting,
) -> Result<()> {
    let case = format!("{}, {}", program.name(), untouched.name());
    let of = |name, unit| Quantity { case: &case, policy: TRIDENT, name, unit };
    let (thp, key, of_thp) = filled(program, untouched, THP, setting)?;
    let thp = resident(&thp, key);
    let (mut run, key, of_trident) = filled(program, untouched, TRIDENT, setting)?;
    let both = Rests::all([&of_thp, &of_trident]);
    let before = resident(&run, key);
    table.add(of("bloat over THP", "GiB"), Some(bloated(program)), before - thp, &both)?;
    let mut work = Work::default();
    let mut policy = (HAWKEYE.build)(emd::Options::WORTHWHILE);
    let need = run.machine().bloat(key);
    let freed = run.machine_mut().debloat(policy.as_mut(), &[key], need, &mut work);
    table.add(of("taken back", "GiB"), None, gib(freed.bytes()), &of_trident)?;
    let left = resident(&run, key) - thp;
    table.add(of("bloat over THP left (paper: at most)", "GiB"), Some(0.0), left, &both)?;
    let gigantic = run.machine().process(key).and_then(|p| p.footprint().gigantic);
    let gigantic = PageSize::Gigantic.base_pages() * gigantic.unwrap_or_default();
    table.add(of("on 1 GiB pages afterwards", "GiB"), None, gib(gigantic.bytes()), &of_trident)?;
    let time = run.hardware().profile.price(&work);
    table.add(of("time of the de-bloater", "s"), None, time.as_secs_f64(), &of_trident)
}

/// A run whose program has filled its memory, and what it rests on.
fn filled(
    program: Program,
    untouched: Untouched,
    policy: &'static str,
    setting: &Setting,
) -> Result<(Run, ProcessKey, Rests)> {
    let constants = Constants::of(setting);
    let case = Case::native(program, policy, Memory::Unfragmented);
    let mut run = case.prepare(setting, &constants)?;
    let frequency = run.hardware().profile.cpu.frequency.value;
    let workload = program.workload(Backed::Asked, frequency, &constants);
    constants.get(&AT_ONCE);
    if untouched == Untouched::BehindPieces {
        constants.get(&BEHIND_PIECES);
    }
    let key = run.start(filling(workload, untouched));
    run.to_end()?;
    Ok((run, key, constants.rests()))
}

/// The workload without its main part, with its memory there at once.
fn filling(workload: Workload, untouched: Untouched) -> Workload {
    let mut limits = Vec::new();
    let mut phases = Vec::new();
    for phase in workload.phases {
        match phase {
            Phase::Map(shape) => {
                limits.push(shape.limit);
                let size = shape.limit;
                phases.push(Phase::Map(VmaShape { size, growth: Growth::Fixed, ..shape }));
            }
            Phase::Populate(populate) if untouched == Untouched::BehindPieces => {
                let limit = limits.get(populate.part.vma).copied().unwrap_or_default();
                phases.extend(pieces(populate, limit).into_iter().map(Phase::Populate));
            }
            Phase::Populate(populate) => phases.push(Phase::Populate(populate)),
            _ => {}
        }
    }
    Workload { phases, ..workload }
}

/// The same, with what is touched at the start of each piece.
fn pieces(populate: Populate, limit: Bytes) -> Vec<Populate> {
    if populate.density >= 1.0 || populate.step.is_zero() {
        return vec![populate];
    }
    let step = populate.step.share_of(limit).get();
    let count = limit.0.div_ceil(populate.step.0);
    let piece = |at: u64| {
        let from = at as f64 * step;
        let to = (from + step * populate.density).min(1.0);
        Populate { part: Part { from, to, ..populate.part }, density: 1.0, ..populate }
    };
    (0..count).map(piece).collect()
}

fn resident(run: &Run, key: ProcessKey) -> f64 {
    gib(run.machine().resident(key).bytes())
}

fn notes(table: &mut Table) {
    table.note(
        "The eight programs are those of the other tables, where untouched pages lie between touched \
         ones, anywhere; they have grown step by step when their bloat is taken. How much memory \
         Memcached and Btree have and do not touch follows from the paper's Tables 2 and 3 (58 and \
         14.5 GB); where it lies the paper does not say, and bloat over THP follows from that. So two \
         places are tried, of memory that is there at once: anywhere, which 2 MiB pages take in as 1 GiB \
         pages do, and behind what is touched of each piece of 64 MiB (Memcached) or 6 MiB (Btree) \
         that the program gets. The paper's 38 and 13 GB are taken as GiB, as in its Table 3; \
         0 for the six others is derived from \"in two out of eight workloads\".",
    );
    table.note(
        "The de-bloater is HawkEye's as the EMD paper describes it. A gigantic page is mapped by huge \
         pages before the first of them is split; pages that are all zero go, so it takes back THP's \
         bloat too, and less than nothing may be left over THP. The paper says \"we were able to \
         recover the bloat\": 0 is a bound. Its cost in walks is not measured: how much stays on \
         1 GiB pages is.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_sim::workload::Order;

    const MIB: u64 = 1 << 20;

    fn populate(density: f64) -> Populate {
        Populate {
            part: Part::whole(0),
            order: Order::Sequential,
            density,
            step: Bytes(64 * MIB),
            cycles_per_page: 1.0,
            threads: 1,
        }
    }

    #[test]
    fn pieces_touch_as_much_as_the_whole_did() {
        let pieces = pieces(populate(0.25), Bytes(1024 * MIB));
        assert_eq!(pieces.len(), 16);
        let touched: f64 = pieces.iter().map(|piece| piece.part.to - piece.part.from).sum();
        assert!((touched - 0.25).abs() < 1e-9, "{touched}");
        assert!(pieces.windows(2).all(|two| two[0].part.to < two[1].part.from));
    }

    #[test]
    fn what_is_touched_whole_stays_as_it_is() {
        assert_eq!(pieces(populate(1.0), Bytes(1024 * MIB)), [populate(1.0)]);
    }
}
