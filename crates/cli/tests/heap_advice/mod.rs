//! Programs that say how they will use a heap (madvise), and mappings as large as the heap.

use super::common::machine::Test;
use super::common::{Ended, number, without};
use super::{report_of, was_paged, without_heap};
use crate::ensure;
use libtest_mimic::Failed;
use serde_json::Value;

pub(super) fn tests() -> Vec<Test> {
    let python = without_heap().or_else(|| without(&["python3", "-c", "pass"]));
    vec![
        ("what_is_touched_at_random_is_not_read_ahead", python.clone(), at_random),
        ("what_is_gone_through_in_order_is_read_ahead", python.clone(), in_order),
        ("what_will_be_needed_is_read_ahead", python.clone(), will_be_needed),
        ("advice_of_any_kind_changes_no_byte", python.clone(), of_any_kind),
        ("memory_that_is_mapped_anew_has_no_advice", python.clone(), mapped_anew),
        ("one_mapping_is_as_large_as_the_heap", python, as_large_as_the_heap),
    ]
}

/// Memory of a program that knows what each page of it holds.
const MEMORY: &str = "
import mmap, random, time
def memory(mib):
    return mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def fill(held):
    for at in range(0, len(held), 4096):
        held[at:at + 4] = (at >> 12).to_bytes(4, 'little')
def check(held, at):
    at &= ~4095
    assert held[at:at + 4] == (at >> 12).to_bytes(4, 'little'), at
";

/// The report on a program that goes on from [`MEMORY`].
fn report_on(script: &str) -> Result<Value, Failed> {
    report_of(&[], &["python3", "-c", &format!("{MEMORY}{script}")]).map(|(_, report)| report)
}

/// The heap's part of the report on a program that goes on from [`MEMORY`]. The program must have read and written more than the
/// heap's memory.
fn heap_of(script: &str) -> Result<Value, Failed> {
    let report = report_on(script)?;
    was_paged(&report)?;
    Ok(report["heap"].clone())
}

fn at_random() -> Ended {
    let heap = heap_of(
        "
held = memory(160)
held.madvise(mmap.MADV_RANDOM)
fill(held)
for at in range(0, len(held), 4096):
    check(held, at)
",
    )?;
    let ahead = number(&heap, "read_ahead")?;
    // Python's own memory is not advised, nor the ranges that the mapping has in part. It has 80 ranges, gone through in order.
    ensure!(ahead <= 16, "{ahead} ranges were read ahead: {heap}");
    Ok(())
}

/// Runs a program with this line in the place of `ADVICE` and without: more ranges must be read ahead with it.
fn reads_more_ahead(advice: &str, script: &str) -> Ended {
    let ahead = |line: &str| {
        let report = report_on(&script.replace("ADVICE", line))?;
        number(&report["heap"], "read_ahead")
    };
    let (advised, not) = (ahead(advice)?, ahead("")?);
    ensure!(advised > not, "{advised} ranges were read ahead with the advice, {not} without");
    Ok(())
}

fn in_order() -> Ended {
    reads_more_ahead(
        "held.madvise(mmap.MADV_SEQUENTIAL)",
        "
held = memory(160)
fill(held)
ADVICE
for first in range(0, 20):
    for at in range(first * 8 << 20, (first * 8 + 4) << 20, 4096):
        check(held, at)
",
    )
}

fn will_be_needed() -> Ended {
    reads_more_ahead(
        "held.madvise(mmap.MADV_WILLNEED)",
        "
held = memory(160)
fill(held)
held.madvise(mmap.MADV_RANDOM)
ADVICE
time.sleep(1)
for at in range(0, len(held), 1 << 21):
    check(held, at)
",
    )
}

fn of_any_kind() -> Ended {
    heap_of(
        "
held = memory(160)
fill(held)
kinds = [mmap.MADV_NORMAL, mmap.MADV_RANDOM, mmap.MADV_SEQUENTIAL, mmap.MADV_WILLNEED, 20, 21]
chosen = random.Random(1)
for _ in range(100):
    start = chosen.randrange(0, len(held) - 4096) & ~4095
    length = chosen.randrange(4096, min(len(held) - start, 32 << 20) + 1)
    held.madvise(chosen.choice(kinds), start, length)
    for _ in range(100):
        check(held, chosen.randrange(len(held)))
    for at in range(start, start + min(length, 4 << 20), 4096):
        check(held, at)
",
    )
    .map(|_| ())
}

fn mapped_anew() -> Ended {
    let heap = heap_of(
        "
held = memory(160)
held.madvise(mmap.MADV_RANDOM)
held.close()
held = memory(160)
fill(held)
for _ in range(2):
    for at in range(0, len(held), 4096):
        check(held, at)
",
    )?;
    let ahead = number(&heap, "read_ahead")?;
    ensure!(ahead > 0, "nothing was read ahead: {heap}");
    Ok(())
}

fn as_large_as_the_heap() -> Ended {
    let report = report_on(
        "
held = memory(1024)
for at in range(0, len(held), 1 << 18):
    held[at:at + 4] = (at >> 12).to_bytes(4, 'little')
for at in range(0, len(held), 1 << 18):
    check(held, at)
",
    )?;
    ensure!(number(&report["heap"], "outside_bytes")? == 0, "it has no room: {report}");
    Ok(())
}
