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
mod graph_dbg_cost;
mod graph_fig1;
mod graph_fig10;
mod graph_fig11;
mod graph_fig2;
mod graph_fig5;
mod graph_fig6;
mod graph_fig7;
mod graph_fig8;
mod graph_fig9;
mod graph_oversubscribed;
mod graph_peers;
mod growing_heap;
mod guest_memory;
mod heap_compressed;
mod heap_fits;
mod heap_random;
mod heap_redis;
mod heap_streams;
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
mod three_sizes;
mod trident_bloat;
mod trident_fig10;
mod trident_fig9;
mod trident_table3;
mod xheap_fig4;
mod xheap_fig5;
mod xheap_fig6;

use super::{Content, Error, Experiment, Line, On, Picture, Progress, Report, Result, Setting};

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
    &three_sizes::EXPERIMENT,
    &trident_fig9::EXPERIMENT,
    &trident_fig10::EXPERIMENT,
    &trident_table3::EXPERIMENT,
    &trident_bloat::EXPERIMENT,
    &xheap_fig4::EXPERIMENT,
    &xheap_fig5::EXPERIMENT,
    &xheap_fig6::EXPERIMENT,
    &heap_streams::EXPERIMENT,
    &heap_compressed::EXPERIMENT,
    &heap_fits::EXPERIMENT,
    &heap_random::EXPERIMENT,
    &heap_redis::EXPERIMENT,
    &graph_fig1::EXPERIMENT,
    &graph_fig2::EXPERIMENT,
    &graph_fig5::EXPERIMENT,
    &graph_fig6::EXPERIMENT,
    &graph_fig7::EXPERIMENT,
    &graph_fig8::EXPERIMENT,
    &graph_fig9::EXPERIMENT,
    &graph_fig10::EXPERIMENT,
    &graph_fig11::EXPERIMENT,
    &graph_dbg_cost::EXPERIMENT,
    &graph_oversubscribed::EXPERIMENT,
    &graph_peers::EXPERIMENT,
    &array_numpy::EXPERIMENT,
];
