//! No byte of a program's memory is another than without the library, whatever is done at once: `program/integrity.c`, and
//! a Redis that saves while it is written to.

mod redis;

use super::{report_of, take_gigantic, without, without_library, without_two_gigantic};
use crate::common::Ended;
use crate::common::machine::{self, Test};
use crate::ensure;
use std::collections::BTreeMap;

pub(super) fn tests() -> Vec<Test> {
    let able = without_library().or_else(machine::without_settings).or_else(without_two_gigantic);
    let redis = able.clone().or_else(|| without(&["redis-server", "--version"]));
    vec![
        ("all_at_once_leaves_no_wrong_byte", able, all_at_once_leaves_no_wrong_byte),
        ("redis_saves_what_it_holds", redis, redis::saves_what_it_holds),
    ]
}

/// A process promotes nothing for a while after it has forked, so the minute is made of several processes, each of which forks at its
/// end.
const PROCESSES: usize = 6;
const SECONDS: &str = "10";

fn all_at_once_leaves_no_wrong_byte() -> Ended {
    let _taken = take_gigantic(2)?;
    let mut made: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..PROCESSES {
        let (said, report) = report_of("integrity", &["--promote", "safe"], &[SECONDS])?;
        let said = said.done()?;
        for line in said.out.lines() {
            let (kind, count) = line.split_once(' ').ok_or("no count")?;
            *made.entry(kind.to_owned()).or_default() += count.parse::<u64>()?;
        }
        for kind in ["promotions", "demotions"] {
            *made.entry(kind.to_owned()).or_default() += report[kind].as_u64().unwrap_or_default();
        }
    }
    println!("{made:?}");
    ensure!(made.len() > 2 && made.values().all(|count| *count > 0), "never made: {made:?}");
    Ok(())
}
