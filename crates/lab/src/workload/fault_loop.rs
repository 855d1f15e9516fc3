//! A program that does nothing but fault: it touches its base pages one after the other, gives
//! them all back, and begins again.
//!
//! All of its memory was touched once before it is timed, so a host below us has backed it.

use super::{Checked, Error, Result, Timing, Workload, clock};
use crate::width::to_usize;
use rustix::io::Errno;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::process::own_pid;
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, Pid};

/// The program, its memory touched and given back.
#[derive(Debug)]
pub struct FaultLoop {
    memory: OwnMemory,
}

impl FaultLoop {
    /// Maps `size` on base pages and touches all of it once.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn populate(size: Bytes) -> Result<Self> {
        let memory = OwnMemory::map(size.to_huge_pages(), Wish::BasePages).map_err(|_| {
            Error::Memory { what: "map the workload's memory", errno: Errno::NOMEM }
        })?;
        let mut program = Self { memory };
        program.touch(program.pages().0);
        program.give_back()?;
        Ok(program)
    }

    fn pages(&self) -> BasePages {
        self.memory.size().to_base_pages()
    }

    /// Touches the first `count` base pages.
    fn touch(&mut self, count: u64) {
        let pages = self.memory.bytes_mut().chunks_exact_mut(to_usize(BASE_PAGE_BYTES));
        for first in pages.take(to_usize(count)).filter_map(|page| page.first_mut()) {
            *first = 1;
        }
    }

    fn give_back(&mut self) -> Result<()> {
        let all = self.pages();
        self.memory.discard(BasePages::ZERO, all).map_err(|_| Error::Memory {
            what: "give the workload's memory back",
            errno: Errno::INVAL,
        })
    }
}

impl Workload for FaultLoop {
    fn pid(&self) -> Pid {
        own_pid()
    }

    /// Between two runs it has nothing.
    fn memory(&self) -> (Bytes, BasePages) {
        (self.memory.size(), BasePages::ZERO)
    }

    /// An operation is a fault. Giving back what was touched is part of the time.
    fn run(&mut self, operations: u64, _seed: u64) -> Result<Timing> {
        let watch = clock::Stopwatch::start(own_pid())?;
        let mut left = operations;
        while left > 0 {
            let count = left.min(self.pages().0);
            self.touch(count);
            self.give_back()?;
            left -= count;
        }
        watch.stop(operations, 0)
    }

    fn check(&mut self) -> Result<Checked> {
        let holds_something = self.memory.bytes().iter().any(|byte| *byte != 0);
        if holds_something {
            return Err(Error::Corrupt { what: "memory that was given back".to_owned() });
        }
        self.give_back()?;
        Ok(Checked { items: self.pages().0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_a_fault() {
        let mut program = FaultLoop::populate(Bytes::from_mib(64)).expect("64 MiB");
        let faults = minor_faults;
        let before = faults();
        let timing = program.run(40_000, 0).expect("it runs");
        let taken = faults() - before;
        assert_eq!(timing.operations, 40_000);
        assert!((40_000..42_000).contains(&taken), "{taken} faults");
        assert_eq!(program.check().expect("all given back").items, 16_384);
    }

    /// Minor faults of this thread so far (field 10 of its `stat`).
    fn minor_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("we have /proc");
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        fields.split_whitespace().nth(7).expect("minflt").parse().expect("a number")
    }
}
