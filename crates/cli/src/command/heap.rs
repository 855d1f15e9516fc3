//! `superpage heap`: how the heap of a program under `superpage run --heap` stands, and how much of it is in memory from now on.

use super::run::heap::enough;
use crate::args::{Heap, Memory};
use crate::exit::{Failure, Outcome};
use crate::heap::{HeapState, NoHeap, RunningHeap};
use crate::show;
use anyhow::anyhow;
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_kernel::{meminfo, status};
use superpage_manager::find;
use superpage_manager::process::ManagedProcess;
use superpage_units::{Bytes, Share};

/// The library takes a new size within a second, unless its threads are busy or stopped. Chosen, not measured.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks whether it has.
const NAP: Duration = Duration::from_millis(20);

/// Shows the heap, or changes its memory.
pub(super) fn run(arguments: &Heap) -> Outcome {
    let asked = find::hold(arguments.pid)?;
    let (heap, name) = match RunningHeap::of(&asked.process) {
        Ok(heap) => (heap, named(&asked)),
        Err(NoHeap::Ordinary) => of_program(&asked)?,
        Err(why) => return Err(no_heap(&asked, why)),
    };
    let state = match arguments.memory {
        Some(memory) => set(&heap, &name, memory)?,
        None => heap.look()?,
    };
    if arguments.json {
        return show::print(&format!("{}\n", state.as_json()));
    }
    show::print(&match arguments.memory {
        Some(_) => taken_in_words(&name, &state),
        None => in_words(&name, &state),
    })
}

fn named(process: &ManagedProcess) -> String {
    format!("{} ({})", show::printable(process.command()), process.pid())
}

/// The heap of the program that a `superpage run` has started, and the program's name.
fn of_program(asked: &ManagedProcess) -> Result<(RunningHeap, String), Failure> {
    let found = RunningHeap::program_of(&asked.process)
        .and_then(|program| Ok((RunningHeap::of(&program)?, program)));
    let (heap, program) = found.map_err(|why| no_heap(asked, why))?;
    let command = status::comm(&program)?;
    Ok((
        heap,
        format!("{} ({})", show::printable(&String::from_utf8_lossy(&command)), program.pid()),
    ))
}

fn no_heap(process: &ManagedProcess, why: NoHeap) -> Failure {
    match why {
        NoHeap::Failed(error) => error.into(),
        NoHeap::Ordinary => Failure::Usage(format!("{} has no heap: {why}", named(process))),
        NoHeap::OtherVersion => Failure::Failed(anyhow!("{} is left alone: {why}", named(process))),
    }
}

/// Has the heap take this much memory, and waits until the library knows.
fn set(heap: &RunningHeap, name: &str, memory: Memory) -> Result<HeapState, Failure> {
    let memory = enough(memory, meminfo::read(Path::new("/proc"))?.total)?;
    let state = heap.look()?;
    if memory > state.size {
        return Err(Failure::Usage(format!(
            "--memory {memory} is more than the {} that {name} may have in its heap: give at most as much",
            state.size
        )));
    }
    heap.want(memory);
    let end = Instant::now() + PATIENCE;
    loop {
        let state = heap.look()?;
        // Before the heap holds anything, nobody has to take the size.
        if state.most.is_zero() {
            return Ok(HeapState { memory, most: memory, ..state });
        }
        if state.most == memory {
            return Ok(state);
        }
        if Instant::now() > end {
            return Err(Failure::Failed(anyhow!(
                "{name} has not taken the new size yet: it is stopped, or has ended; once it goes on, it will"
            )));
        }
        std::thread::sleep(NAP);
    }
}

fn taken_in_words(name: &str, state: &HeapState) -> String {
    let now = state.huge + state.base;
    let then = match now > state.memory {
        true => ", and what is too much leaves memory as it is written",
        false => "",
    };
    format!(
        "{name}: {} of its heap may be in memory{}; {now} are{then}\n",
        state.memory,
        because(state)
    )
}

/// The reason why less may be in memory than the heap was given.
fn because(state: &HeapState) -> String {
    match state.memory < state.most {
        true => format!(" instead of {}, because memory is short", state.most),
        false => String::new(),
    }
}

fn in_words(name: &str, state: &HeapState) -> String {
    if state.memory.is_zero() {
        return format!("{name}: its heap of {} holds nothing yet\n", state.size);
    }
    let share = |share: Option<Share>| share.map_or(String::new(), |share| format!(" ({share})"));
    let by_size = |huge: Bytes, base: Bytes| format!("{huge} by huge pages, {base} by base pages");
    let outside: String =
        state.outside_in_words().map(|said| format!("outside     {said}\n")).collect();
    let errors = match state.errors {
        0 => "none".to_owned(),
        errors => format!("{errors} reads or writes of the file failed"),
    };
    format!(
        "{name}: {} of its heap of {} may be in memory{}\n\
         in memory   {} on huge pages, {} on base pages\n\
         faults      {} served by huge pages, {} by base pages, 99 of 100 within {}; {} found their page still \
         in memory{}\n\
         waited      {}\n\
         promoted    {} ranges\n\
         read ahead  {} ranges, {} of them touched before they left memory{}{}\n\
         read        {}\n\
         written     {}; {} huge pages left without being written, {} pages would not leave\n\
         {outside}errors      {errors}\n",
        state.memory,
        state.size,
        because(state),
        state.huge,
        state.base,
        state.huge_faults,
        state.base_faults,
        show::time(state.p99),
        state.soft_faults,
        share(state.found()),
        state.waited_in_words(),
        state.promotions,
        state.read_ahead,
        state.ahead_used,
        share(state.used_of_ahead()),
        state.ahead_in_words(),
        by_size(state.read_huge, state.read_base),
        by_size(state.written_huge, state.written_base),
        state.reclaimed_clean,
        state.stuck,
    )
}
