//! How much real memory a large machine takes: one of 384 GB, all but written full, is to fit in 4 GiB.
//!
//! A quarter of it unless `SUPERPAGE_FULL` is set: what it takes grows with the machine. It has a
//! process of its own, because the most that a process ever had is what counts.

use superpage_policy::promotion::list;
use superpage_sim::machine::{Backing, Content, Machine, Setup};
use superpage_units::{Advice, BasePages, Bytes, Growth, VirtAddr, Vma, VmaKind};

/// The most that this process had in memory so far.
fn peak() -> Option<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok().map(Bytes::from_kib)
}

#[test]
fn a_machine_of_384_gb_fits_in_four() {
    let parts = if std::env::var_os("SUPERPAGE_FULL").is_some() { 1 } else { 4 };
    let memory = Bytes(Bytes::from_gib(384).0 / parts);
    let build = list::find("linux-4k").unwrap().build;
    let setup = Setup { memory, pools: None, backing: Backing::None, seed: 1 };
    let mut machine = Machine::new(setup, build());
    let key = machine.spawn();
    let start = VirtAddr(1 << 40);
    let written = memory.scaled(0.9).to_base_pages();
    let (end, kind) = (start.offset(written.bytes()), VmaKind::Anonymous);
    machine.map(key, Vma { start, end, kind, growth: Growth::Fixed, advice: Advice::None });
    for page in 0..written.0 {
        machine.touch(key, start.offset(BasePages(page).bytes()), Content::Data).unwrap();
    }
    assert_eq!(machine.resident(key), written);
    let peak = peak().unwrap();
    println!("{} in base pages took {peak} at most", written.bytes());
    assert!(peak < Bytes(Bytes::from_gib(4).0 / parts), "{peak}");
}
