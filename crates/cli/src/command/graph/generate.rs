//! `superpage graph generate`: makes a graph and writes it.

use super::{check_target, shown};
use crate::args::graph::{Generate, Kind};
use crate::exit::{Failure, Outcome};
use crate::show;
use superpage_graph::build;
use superpage_graph::format::{self, Format};
use superpage_graph::generate::{BlockModel, Generator, Kronecker, Uniform, Weights};
use superpage_graph::{Direction, GraphPages};
use superpage_units::Share;

/// Makes the graph. Edges get weights where the format has some.
pub(super) fn run(arguments: &Generate) -> Outcome {
    let format = Format::of(&arguments.file)?;
    let weights = match format {
        Format::WeightedEdgeList | Format::WeightedSerialized => Weights::Uniform,
        Format::EdgeList | Format::MatrixMarket | Format::Serialized => Weights::None,
    };
    let is_of_communities = arguments.communities.is_some() || arguments.within.is_some();
    if is_of_communities && arguments.kind != Kind::BlockModel {
        let why = "--communities and --within are for block-model; leave them out";
        return Err(Failure::Usage(why.to_owned()));
    }
    let generator = generator(arguments, weights);
    generator.check()?;
    check_target(&arguments.file)?;
    let (graph, took) = shown("generating", |progress| {
        let pages = GraphPages::default();
        build::graph(generator.source(), Direction::Undirected, pages, progress)
    });
    let graph = graph?;
    shown("writing", |progress| format::write(&graph, &arguments.file, format, progress)).0?;
    show::print(&format!(
        "Wrote {}: {generator}; {} vertices, {} edges, each in the file in both directions; made in {:.1} s.\n",
        arguments.file.display(),
        graph.vertices(),
        graph.edges() / 2,
        took.as_secs_f64(),
    ))
}

fn generator(arguments: &Generate, weights: Weights) -> Generator {
    let &Generate { scale, degree, seed, communities, within, .. } = arguments;
    let model = BlockModel::new(scale);
    match arguments.kind {
        Kind::Kronecker => Generator::Kronecker(Kronecker { scale, degree, seed, weights }),
        Kind::Uniform => Generator::Uniform(Uniform { scale, degree, seed, weights }),
        Kind::BlockModel => Generator::BlockModel(BlockModel {
            degree,
            seed,
            weights,
            communities: communities.unwrap_or(model.communities.min(1 << scale)),
            within: within.map_or(model.within, Share::get),
            ..model
        }),
    }
}
