//! Processes that only have memory, each made for an experiment: they touch it, hold it, or look how
//! it is mapped. What is measured beyond that, and who promotes, is the experiment's to know.
//!
//! As with workloads the program starts itself again; the two exchange JSON lines.

mod filling;
mod fragmenter;
mod gigantic;
mod growing;
mod heap;
mod hog;
mod passes;
mod pauses;
mod pieces;
mod program;
mod refilling;
mod shared;
mod threads;
mod toucher;

pub(crate) use fragmenter::Held;
pub(crate) use passes::Pattern;
pub(crate) use pauses::{Pause, Paused};
pub(crate) use refilling::Fill;
pub(crate) use toucher::Threshold;

use crate::program::Program;
use crate::worker::protocol;
use crate::worker::{ChildError, Error, Launcher, Pipe, Result, tell};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use superpage_manager::plain;
use superpage_units::{Bytes, HugePages, Nanos, Pid, Share};

/// How a helper is started.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Casting {
    /// The pid of the process that starts it; 0 for whoever does, such as `superpage run`.
    pub(crate) parent: u32,
    pub(crate) part: Part,
}

/// What it is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "be", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Part {
    /// Memory of which every base page has been touched.
    Heap {
        #[serde(with = "plain")]
        size: HugePages,
    },
    /// A heap that grows when told to.
    Growing {
        by: Growth,
        #[serde(with = "plain")]
        size: HugePages,
        /// How long that takes.
        #[serde(with = "plain")]
        time: Nanos,
    },
    /// A program that touches its memory page by page while another thread of it is busy, and takes
    /// down when each range is mapped by a huge page.
    Toucher {
        #[serde(with = "plain")]
        size: HugePages,
        threshold: Threshold,
        /// How long it waits for the last ranges.
        #[serde(with = "plain")]
        patience: Nanos,
    },
    /// Memory that is in the way: all of some huge frames, a part of others.
    Fragmenter {
        #[serde(with = "plain")]
        ballast: HugePages,
        /// The number of huge frames of which a part is held.
        #[serde(with = "plain")]
        apart: HugePages,
        held: Held,
    },
    /// Memory that is held, locked: so much on huge pages, and so much on base pages.
    Hog {
        #[serde(with = "plain")]
        huge: HugePages,
        #[serde(with = "plain")]
        base: HugePages,
    },
    /// A program that touches, maps and unmaps memory all the time, and takes down where that takes long.
    Pauses {
        /// Of its heap.
        #[serde(with = "plain")]
        size: HugePages,
        /// How long it runs.
        #[serde(with = "plain")]
        time: Nanos,
    },
    /// A program that leaves free memory in pieces, and goes on to use what it has kept.
    Pieces {
        #[serde(with = "plain")]
        size: HugePages,
        /// How long it runs.
        #[serde(with = "plain")]
        time: Nanos,
    },
    /// A program that fills a share of its base pages.
    Filling {
        #[serde(with = "plain")]
        size: HugePages,
        #[serde(with = "plain")]
        touched: Share,
        /// The memory that it passes in a second; nothing: as fast as it can.
        #[serde(with = "plain")]
        pace: Option<Bytes>,
    },
    /// A program that has touched a share of its base pages, and fills the others while it reads.
    Refilling {
        #[serde(with = "plain")]
        size: HugePages,
        #[serde(with = "plain")]
        touched: Share,
        fill: Fill,
        /// How long that takes.
        #[serde(with = "plain")]
        time: Nanos,
    },
    /// A small program as it starts.
    Threads {
        threads: usize,
        /// The memory that each thread allocates.
        #[serde(with = "plain")]
        size: Bytes,
    },
    /// A memfd with something on every base page, mapped shared.
    Host {
        #[serde(with = "plain")]
        size: HugePages,
    },
    /// A program that touches a GiB for the first time, again and again.
    FirstTouch { from: Origin },
    /// A program that writes to a GiB while it is promoted.
    Written {
        threads: usize,
        /// Writes a second, of all threads together; 0 for reading as fast as possible, nothing for
        /// writing as fast as possible.
        writes: Option<u64>,
    },
    /// A program of a paper, on memory of malloc's.
    Program {
        program: Program,
        #[serde(with = "plain")]
        size: Bytes,
    },
    /// A program that fills its data and passes over it.
    Passes {
        pattern: Pattern,
        #[serde(with = "plain")]
        size: HugePages,
    },
    /// The memfd of another process, mapped too.
    Guest {
        #[serde(with = "plain")]
        of: Pid,
        fd: i32,
        #[serde(with = "plain")]
        size: HugePages,
    },
}

/// The memory from which a program maps a GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    /// The kernel's pool of gigantic pages.
    Pool,
    /// Ordinary memory.
    Ordinary,
}

/// By which system call a heap grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Growth {
    Brk,
    Mmap,
}

/// What a helper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Do what you are for.
    Go,
    /// Ask the kernel for huge pages in all of your memory (MADV_HUGEPAGE).
    Advise,
    /// Read so many words at random.
    Read { count: u64, seed: u64 },
    /// Pass over all of your data once.
    Pass { seed: u64 },
    /// Compare all of your data with what was written.
    Check,
    /// Do so many of the program's operations.
    Work { operations: u64, seed: u64 },
    /// End.
    End,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The helper has its memory. With the number of its memfd, if it made one.
    Ready { fd: Option<i32> },
    /// The request was served, and that took so long.
    Done { nanos: u64 },
    /// From a range's threshold to its huge page, for each range in the order of touching; none
    /// where there was no huge page in time.
    Mapped { nanos: Vec<Option<u64>> },
    /// The helper ran for its time.
    Paused(Paused),
    /// A GiB was promoted and demoted again.
    Promoted(Promoted),
    /// The operations were done, took so long, and have this result.
    Worked { nanos: u64, result: u64 },
    /// The request failed.
    Failed { message: String },
}

/// A promotion as the promoted program saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Promoted {
    /// The longest access from its beginning on.
    #[serde(with = "plain")]
    pub(crate) pause: Nanos,
    /// The time from the request to the end.
    #[serde(with = "plain")]
    pub(crate) took: Nanos,
    /// Accesses a second before it.
    pub(crate) accesses_per_s: f64,
    /// Accesses a second from the request to the end.
    pub(crate) accesses_per_s_meanwhile: f64,
    /// Words that were compared with what was written before.
    pub(crate) accesses: u64,
    /// Words among those that were wrong.
    pub(crate) wrong: u64,
}

/// What a part can do. Messages are in words: nobody but a reader needs to tell them apart.
trait Play {
    /// Obeys.
    fn obey(&mut self, order: Order) -> std::result::Result<Answer, String>;
}

/// A running helper. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Helper {
    pipe: Pipe,
    /// The number of its memfd.
    pub(crate) fd: Option<i32>,
}

impl Helper {
    /// Starts it and waits until it has its memory.
    pub(crate) fn start(launcher: &Launcher, part: Part) -> Result<Self> {
        Self::start_as(launcher, Casting { parent: std::process::id(), part })
    }

    /// As [`Helper::start`], by a launcher that starts the program that starts the helper.
    pub(crate) fn start_under(launcher: &Launcher, part: Part) -> Result<Self> {
        Self::start_as(launcher, Casting { parent: 0, part })
    }

    /// As [`Helper::start`], by the words of a command that starts the program given after them, such as
    /// `superpage run --`; without words, by us.
    pub(crate) fn start_by(launcher: &Launcher, words: &[String], part: Part) -> Result<Self> {
        let Some((first, rest)) = words.split_first() else { return Self::start(launcher, part) };
        let mut leading_args = rest.to_vec();
        leading_args.push(launcher.program.to_string_lossy().into_owned());
        leading_args.extend_from_slice(&launcher.leading_args);
        Self::start_under(&Launcher { program: first.into(), leading_args }, part)
    }

    fn start_as(launcher: &Launcher, casting: Casting) -> Result<Self> {
        let mut helper = Self { pipe: Pipe::spawn(launcher, &casting)?, fd: None };
        helper.fd = helper.expect("ready", |answer| match answer {
            Answer::Ready { fd } => Some(fd),
            _ => None,
        })?;
        Ok(helper)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid(self.pipe.id())
    }

    /// Tells it to do something, and does not wait.
    pub(crate) fn order(&mut self, order: Order) -> Result<()> {
        self.pipe.send(&order)
    }

    /// Waits until it has done what it was told. How long it took.
    pub(crate) fn done(&mut self) -> Result<Nanos> {
        self.expect("done", |answer| match answer {
            Answer::Done { nanos } => Some(Nanos(nanos)),
            _ => None,
        })
    }

    /// Waits until it was promoted.
    pub(crate) fn promoted(&mut self) -> Result<Promoted> {
        self.expect("promoted", |answer| match answer {
            Answer::Promoted(promoted) => Some(promoted),
            _ => None,
        })
    }

    /// Has it run for its time, and waits for what it has taken down.
    pub(crate) fn paused(&mut self) -> Result<Paused> {
        self.order(Order::Go)?;
        self.has_paused()
    }

    /// Waits until it has run for its time, and for what it has taken down.
    pub(crate) fn has_paused(&mut self) -> Result<Paused> {
        self.expect("paused", |answer| match answer {
            Answer::Paused(paused) => Some(paused),
            _ => None,
        })
    }

    /// Has it do what it is for, or check its data, and waits: how long that took.
    pub(crate) fn done_with(&mut self, order: Order) -> Result<Nanos> {
        self.order(order)?;
        self.done()
    }

    /// Has it do so many operations: how long they took, and their result.
    pub(crate) fn work(&mut self, operations: u64, seed: u64) -> Result<(Nanos, u64)> {
        self.order(Order::Work { operations, seed })?;
        self.worked()
    }

    /// Waits until it has worked: how long that took, and its result.
    pub(crate) fn worked(&mut self) -> Result<(Nanos, u64)> {
        self.expect("worked", |answer| match answer {
            Answer::Worked { nanos, result } => Some((Nanos(nanos), result)),
            _ => None,
        })
    }

    /// Ends it in good order, and whoever started it.
    pub(crate) fn end(mut self) -> Result<()> {
        self.order(Order::End)?;
        self.pipe.ended_well()
    }

    /// Waits for what it has taken down.
    pub(crate) fn mapped(&mut self) -> Result<Vec<Option<Nanos>>> {
        self.expect("mapped", |answer| match answer {
            Answer::Mapped { nanos } => Some(nanos.into_iter().map(|n| n.map(Nanos)).collect()),
            _ => None,
        })
    }

    fn expect<T>(&mut self, expected: &'static str, pick: fn(Answer) -> Option<T>) -> Result<T> {
        let line = self.pipe.line()?;
        match protocol::from_line(&line) {
            Ok(Answer::Failed { message }) => Err(Error::Failed { message }),
            Ok(answer) => pick(answer).ok_or_else(|| self.pipe.nonsense(expected, &line)),
            Err(_) => Err(self.pipe.nonsense(expected, &line)),
        }
    }
}

/// The child's side: plays `part` until the orders end.
pub(crate) fn play(
    part: Part,
    orders: impl BufRead,
    mut answers: impl Write,
) -> std::result::Result<(), ChildError> {
    let (mut player, ready) = match prepare(part) {
        Ok(prepared) => prepared,
        Err(message) => return tell(&mut answers, &Answer::Failed { message }),
    };
    tell(&mut answers, &ready)?;
    for line in orders.lines() {
        let line = line.map_err(|error| ChildError::Pipe { detail: error.to_string() })?;
        let order = protocol::from_line(line.as_bytes())
            .map_err(|error| ChildError::Message { detail: error.to_string() })?;
        if order == Order::End {
            break;
        }
        let answer = player.obey(order).unwrap_or_else(|message| Answer::Failed { message });
        tell(&mut answers, &answer)?;
    }
    Ok(())
}

fn prepare(part: Part) -> std::result::Result<(Box<dyn Play>, Answer), String> {
    let plain = Answer::Ready { fd: None };
    Ok(match part {
        Part::Heap { size } => (Box::new(heap::Heap::new(size)?), plain),
        Part::Growing { by, size, time } => (Box::new(growing::Growing { by, size, time }), plain),
        Part::Toucher { size, threshold, patience } => {
            (Box::new(toucher::Toucher::new(size, threshold, patience)?), plain)
        }
        Part::Fragmenter { ballast, apart, held } => {
            (Box::new(fragmenter::Fragmenter::new(ballast, apart, held)?), plain)
        }
        Part::Hog { huge, base } => (Box::new(hog::Hog::new(huge, base)?), plain),
        Part::Pauses { size, time } => (Box::new(pauses::Pauses::new(size, time)?), plain),
        Part::Pieces { size, time } => (Box::new(pieces::Pieces::new(size, time)?), plain),
        Part::Filling { size, touched, pace } => {
            (Box::new(filling::Filling::new(size, touched, pace)?), plain)
        }
        Part::Refilling { size, touched, fill, time } => {
            (Box::new(refilling::Refilling::new(size, touched, fill, time)?), plain)
        }
        Part::Threads { threads, size } => (Box::new(threads::Threads { threads, size }), plain),
        Part::Host { size } => {
            let (host, fd) = shared::Shared::create(size)?;
            (Box::new(host), Answer::Ready { fd: Some(fd) })
        }
        Part::FirstTouch { from } => (Box::new(gigantic::FirstTouch::new(from)?), plain),
        Part::Written { threads, writes } => {
            (Box::new(gigantic::Written::new(threads, writes)?), plain)
        }
        Part::Program { program, size } => (Box::new(program::Worker::new(program, size)), plain),
        Part::Passes { pattern, size } => (Box::new(passes::Passes::new(pattern, size)?), plain),
        Part::Guest { of, fd, size } => (Box::new(shared::Shared::join(of, fd, size)?), plain),
    })
}

/// The answer to an order that a part has no use for.
fn refused(order: Order) -> std::result::Result<Answer, String> {
    Err(format!("this helper cannot {order:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(part: Part, orders: &str) -> Vec<Answer> {
        let mut answers = Vec::new();
        play(part, orders.as_bytes(), &mut answers).expect("it plays");
        let lines = answers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| protocol::from_line(line).expect("an answer")).collect()
    }

    const SIZE: HugePages = HugePages(2);

    #[test]
    fn a_heap_is_advised_and_can_nothing_else() {
        let answers = talk(Part::Heap { size: SIZE }, "{\"do\":\"advise\"}\n{\"do\":\"go\"}\n");
        assert!(matches!(answers[1], Answer::Done { .. }), "{answers:?}");
        assert!(matches!(answers[2], Answer::Failed { .. }), "{answers:?}");
    }

    #[test]
    fn heaps_grow() {
        for by in [Growth::Brk, Growth::Mmap] {
            let time = Nanos(20_000_000);
            let answers = talk(Part::Growing { by, size: SIZE, time }, "{\"do\":\"go\"}\n");
            let [_, Answer::Done { nanos }] = answers[..] else { panic!("{answers:?}") };
            assert!((time.0..50 * time.0).contains(&nanos), "{nanos}");
        }
    }

    #[test]
    fn ranges_that_are_never_huge_are_told() {
        let part = Part::Toucher {
            size: SIZE,
            threshold: Threshold::Touches(64),
            patience: Nanos(10_000_000),
        };
        let answers = talk(part, "{\"do\":\"go\"}\n");
        assert!(matches!(&answers[1], Answer::Mapped { nanos } if nanos.len() == 2), "{answers:?}");
    }

    #[test]
    fn a_guest_reads_what_the_host_wrote() {
        let (mut host, fd) = shared::Shared::create(SIZE).expect("a memfd");
        let mut guest =
            shared::Shared::join(superpage_kernel::process::own_pid(), fd, SIZE).expect("joined");
        for reader in [&mut host, &mut guest] {
            let read = reader.obey(Order::Read { count: 1000, seed: 1 });
            assert!(matches!(read, Ok(Answer::Done { .. })), "{read:?}");
        }
        assert!(shared::Shared::join(superpage_kernel::process::own_pid(), 9999, SIZE).is_err());
    }

    #[test]
    fn a_program_works_and_tells_its_result() {
        let part = Part::Program { program: Program::Gups, size: SIZE.bytes() };
        let line = protocol::to_line(&Order::Work { operations: 100, seed: 1 });
        let answers = talk(part, &line);
        let [_, Answer::Worked { result, .. }] = answers[..] else { panic!("{answers:?}") };
        assert_ne!(result, 0);
    }

    #[test]
    fn data_is_passed_over_in_every_pattern() {
        for pattern in Pattern::ALL {
            let part = Part::Passes { pattern, size: SIZE };
            let pass = protocol::to_line(&Order::Pass { seed: 3 }) + "\n";
            let check = protocol::to_line(&Order::Check) + "\n";
            let answers = talk(part, &format!("{{\"do\":\"go\"}}\n{pass}{pass}{check}"));
            let is_done = |answer: &Answer| matches!(answer, Answer::Done { nanos: 1.. });
            assert!(answers.len() == 5 && answers[1..].iter().all(is_done), "{answers:?}");
        }
    }

    #[test]
    fn castings_survive_the_command_line_and_are_no_workloads() {
        let part = Part::Guest { of: Pid(3), fd: 4, size: SIZE };
        let line = protocol::to_line(&Casting { parent: 1, part });
        assert!(protocol::from_line::<Casting>(line.as_bytes()).is_ok(), "{line}");
        assert!(protocol::from_line::<protocol::Envelope>(line.as_bytes()).is_err());
    }
}
