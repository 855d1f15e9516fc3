//! Experiments on this machine: real programs, real memory, the stock kernel.

mod array_numpy;
mod at_rest;
mod compaction;
mod emd_fig10;
mod emd_fig13;
mod emd_fig15;
mod emd_fig2;
mod emd_fig4;
mod emd_fig7;
mod emd_fig8;
mod emd_table1;
mod emd_table3;
mod emd_table4;
mod fill_and_read;
mod gigantic_fault;
mod gigantic_promotion;
mod gigantic_supply;
mod graph;
mod graph_oversubscribed;
mod graph_peers;
mod growing_heap;
mod guest_memory;
mod heap_fits;
mod heap_numpy;
mod jvm_pretouch;
mod mixed_load;
mod pareto;
mod pause;
mod promotion_latency;
mod quicksilver_table2;
mod quicksilver_table5;
mod refault;
mod support_bench;
mod support_daemon;
mod support_disk;
mod support_fairness;
mod support_figure;
mod support_fragments;
mod support_graph;
mod support_heap;
mod support_heap_trial;
mod support_mapped;
mod support_mix;
mod support_pages;
mod support_programs;
mod support_python;
mod support_redis;
mod support_regime;
mod support_run;
mod support_served;
mod support_sweep;
mod support_told;
mod survive;
mod trident;
mod trident_bloat;
mod trident_table3;
mod xheap;

use super::{
    Content, Error, Experiment, Line, On, Picture, Progress, Report, Result, Run, Setting,
};

/// The parts of this experiment that can be run by themselves.
pub(super) fn parts(name: &str) -> Vec<&'static str> {
    let all = [
        (&pareto::EXPERIMENT, pareto::parts as fn() -> Vec<&'static str>),
        (&emd_fig10::EXPERIMENT, emd_fig10::parts),
    ];
    all.iter().find(|(e, _)| e.name == name).map(|(_, parts)| parts()).unwrap_or_default()
}

/// All of them, in the order of the papers.
pub const ALL: &[&Experiment] = &[
    &emd_fig2::EXPERIMENT,
    &emd_table1::EXPERIMENT,
    &emd_fig4::EXPERIMENT,
    &emd_fig7::EXPERIMENT,
    &emd_fig8::EXPERIMENT,
    &emd_fig10::EXPERIMENT,
    &emd_fig13::EXPERIMENT,
    &emd_table3::EXPERIMENT,
    &emd_table4::EXPERIMENT,
    &emd_fig15::EXPERIMENT,
    &quicksilver_table2::EXPERIMENT,
    &quicksilver_table5::EXPERIMENT,
    &promotion_latency::EXPERIMENT,
    &growing_heap::EXPERIMENT,
    &guest_memory::EXPERIMENT,
    &mixed_load::EXPERIMENT,
    &fill_and_read::EXPERIMENT,
    &jvm_pretouch::EXPERIMENT,
    &at_rest::EXPERIMENT,
    &pause::EXPERIMENT,
    &compaction::EXPERIMENT,
    &survive::EXPERIMENT,
    &refault::EXPERIMENT,
    &pareto::EXPERIMENT,
    &gigantic_fault::EXPERIMENT,
    &gigantic_promotion::EXPERIMENT,
    &gigantic_supply::EXPERIMENT,
    &trident::THREE_SIZES,
    &trident::FIG9,
    &trident::FIG10,
    &trident_table3::EXPERIMENT,
    &trident_bloat::EXPERIMENT,
    &xheap::FIG4,
    &xheap::FIG5,
    &xheap::FIG6,
    &xheap::STREAMS,
    &heap_fits::EXPERIMENT,
    &heap_numpy::EXPERIMENT,
    &xheap::RANDOM,
    &xheap::REDIS,
    &graph::FIG1,
    &graph::FIG2,
    &graph::FIG5,
    &graph::FIG6,
    &graph::FIG7,
    &graph::FIG8,
    &graph::FIG9,
    &graph::FIG10,
    &graph::FIG11,
    &graph::DBG_COST,
    &graph_oversubscribed::EXPERIMENT,
    &graph_peers::EXPERIMENT,
    &array_numpy::EXPERIMENT,
];
