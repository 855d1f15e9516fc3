//! What the graph paper is about, on a small machine: under memory pressure Linux's huge pages go to
//! the edges, which gain little, and a few for the property array, hottest part first, gain most.

use superpage_policy::promotion::linux::{self, Linux};
use superpage_policy::promotion::selective::{self, Selective};
use superpage_policy::promotion::{Policy, View};
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Hardware, Report, Run};
use superpage_sim::workload::graph::{Degrees, Graph, VertexOrder, Vertices};
use superpage_sim::workload::{
    Access, Counting, Order, Part, Pattern, Phase, Populate, Stream, Target, VmaShape, Workload,
};
use superpage_units::{Bytes, HugePages, Share};

const GRAPH: Graph =
    Graph { vertices: 1 << 24, edges: 30 << 20, degrees: Degrees::Kronecker { scale: 24 } };
const ITEM: Bytes = Bytes(8);
const EDGES: usize = 0;
const PROPERTY: usize = 1;

/// Edges read one after the other, and the property at the end of each; the edges are loaded first.
fn program(order: VertexOrder) -> Workload {
    let sizes = [ITEM * GRAPH.edges, ITEM * GRAPH.vertices];
    let fill = |vma| {
        Phase::Populate(Populate {
            part: Part::whole(vma),
            order: Order::Sequential,
            density: 1.0,
            step: Bytes::ZERO,
            cycles_per_page: 0.0,
            threads: 1,
        })
    };
    let stream =
        |vma, pattern| Stream { part: Part::whole(vma), pattern, target: Target::Any, weight: 1.0 };
    let edges = Pattern::Runs { accesses: u64::MAX, step: ITEM };
    let property = Pattern::Vertices(Vertices { graph: GRAPH, order, item: ITEM });
    let mut phases: Vec<Phase> =
        sizes.iter().map(|size| Phase::Map(VmaShape::fixed(*size))).collect();
    phases.extend([fill(EDGES), fill(PROPERTY)]);
    phases.push(Phase::Access(Access {
        streams: vec![stream(EDGES, edges), stream(PROPERTY, property)],
        count: 1e8,
        cycles: 20.0,
        exposed: 1.0,
        counting: Counting::Sampled,
    }));
    Workload { name: "graph".to_owned(), threads: 1, phases }
}

/// Which pages a run gets.
#[derive(Clone, Copy)]
enum Pages {
    Base,
    Linux,
    /// A share of the property array.
    Selective(Share),
}

/// A run on a machine with 64 MiB beyond what the program needs, half of what is free fragmented;
/// what came of it, and how much the program had on huge pages.
fn run(pages: Pages, order: VertexOrder) -> (Report, HugePages) {
    let program = program(order);
    let needed = ITEM * (GRAPH.edges + GRAPH.vertices);
    let memory = Bytes::from_gib(1);
    let policy: Box<dyn Policy> = match pages {
        Pages::Base | Pages::Selective(_) => Box::new(Linux::new(linux::Options::NEVER)),
        Pages::Linux => Box::new(Linux::new(linux::Options::DEFRAG_MADVISE)),
    };
    let setup = Setup { memory, pools: None, backing: Backing::None, seed: 1 };
    let mut machine = Machine::new(setup, policy);
    machine.prepare(|physical, _| {
        physical.hog(memory.saturating_sub(needed + Bytes::from_mib(64)));
        physical.pin_blocks(Share::percent(50));
    });
    let mut run = Run::new(machine, Hardware::native(Profile::named("graph").expect("built in")));
    let phases = program.phases.len();
    let process = run.start(program);
    run.until_left(phases - 2).expect("mapping takes no memory");
    if let Pages::Selective(share) = pages {
        let vma = run.machine().vmas(process)[PROPERTY];
        let ranges = vec![selective::Range { process, start: vma.start, end: vma.end }];
        let options = selective::Options { ranges, share, ..selective::Options::default() };
        run.machine_mut().change_policy(Box::new(Selective::new(options)));
    }
    run.to_end().expect("there is memory to spare");
    run.machine().check();
    (run.report(process).expect("it ran"), run.machine().footprint(process).huge)
}

fn seconds(report: &Report) -> f64 {
    report.phases.last().expect("it ended").as_secs_f64()
}

#[test]
fn a_few_chosen_huge_pages_beat_many_that_linux_spends_on_edges() {
    let (base, none) = run(Pages::Base, VertexOrder::Scattered);
    let (linux, many) = run(Pages::Linux, VertexOrder::Scattered);
    let (chosen, few) = run(Pages::Selective(Share::ALL), VertexOrder::Scattered);
    assert_eq!(none, HugePages::ZERO);
    assert_eq!(few, (ITEM * GRAPH.vertices).to_huge_pages());
    assert!(many.0 > few.0 * 3 / 2, "{many} for {few}");
    assert!(seconds(&base) / seconds(&linux) < 1.05);
    assert!(seconds(&base) / seconds(&chosen) > 1.3, "{}", seconds(&base) / seconds(&chosen));
    assert!(
        chosen.miss_rate() < linux.miss_rate()
            && chosen.walk_rate() < Share::clamped(linux.walk_rate().get() / 10.0)
    );
}

#[test]
fn grouping_makes_a_fifth_of_the_array_enough() {
    let speedup = |share, order| {
        let (base, _) = run(Pages::Base, VertexOrder::Scattered);
        seconds(&base) / seconds(&run(Pages::Selective(share), order).0)
    };
    let whole = speedup(Share::ALL, VertexOrder::Grouped);
    let fifth = speedup(Share::percent(20), VertexOrder::Grouped);
    let any_fifth = speedup(Share::percent(20), VertexOrder::Scattered);
    assert!(fifth > 1.0 + (whole - 1.0) * 0.7, "{fifth} of {whole}");
    assert!(any_fifth < 1.0 + (fifth - 1.0) * 0.7, "{any_fifth} against {fifth}");
}

#[test]
fn misses_are_a_share_of_accesses_and_walks_a_share_of_those() {
    let (report, _) = run(Pages::Base, VertexOrder::Scattered);
    assert!(report.walks > 0.0 && report.walks <= report.first_misses);
    assert!(report.first_misses <= report.accesses);
    // Half of all accesses go to a property array of 128 MiB; the other half is sequential.
    let expected = Share::percent(30)..Share::percent(52);
    assert!(expected.contains(&report.miss_rate()), "{}", report.miss_rate());
}
