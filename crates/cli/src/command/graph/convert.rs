//! `superpage graph convert`: another format, another order.

use super::{Use, check_target, load, shown};
use crate::args::graph::Convert;
use crate::exit::Outcome;
use crate::show;
use superpage_graph::format::{self, Format, Weights};
use superpage_graph::{Beside, GraphPages};

/// Reads the one file and writes the other.
pub(super) fn run(arguments: &Convert) -> Outcome {
    let format = Format::of(&arguments.to)?;
    check_target(&arguments.to)?;
    // A format without weights leaves them out, whatever they are.
    let weights = match format {
        Format::EdgeList | Format::Serialized => Weights::Unread,
        Format::WeightedEdgeList | Format::MatrixMarket | Format::WeightedSerialized => {
            Weights::Needed
        }
    };
    let wanted = Use { pages: GraphPages::default(), weights, beside: Beside::default() };
    let loaded = load(&arguments.input, wanted)?;
    let graph = &loaded.graph;
    shown("writing", |progress| format::write(graph, &arguments.to, format, progress)).0?;
    let (vertices, edges) = (graph.vertices(), graph.edges());
    show::print(&format!("Wrote {}: {vertices} vertices, {edges} edges.\n", arguments.to.display()))
}
