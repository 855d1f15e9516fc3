//! The threads that carry promotions out, several at once, and what became of each.
//!
//! A call waits for every processor to hand over its batches of pages, and for memory; one thread
//! alone would let all others wait with it. In one process there is one at a time
//! ([`Turns`](super::pace::Turns)): they would wait for each other.

use super::limits::Refusal;
use super::pace::Haste;
use super::tenant::{Held, Memory};
use rustix::io::Errno;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_kernel::pagemap::Survey;
use superpage_kernel::process_madvise;
use superpage_kernel::usage::CpuTime;
use superpage_policy::system::Action;
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages, Nanos, ProcessKey, Region};

/// Why something is promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its kind in a word.
    pub kind: &'static str,
    /// In words.
    pub words: String,
}

/// Neighbouring regions of one process to be promoted.
#[derive(Clone, Debug)]
pub struct Job {
    /// Whose.
    pub key: ProcessKey,
    /// What it is held by.
    pub held: Arc<Held>,
    /// The first region.
    pub first: Region,
    /// How many.
    pub count: HugePages,
    /// What kind of memory it is.
    pub memory: Memory,
    /// Why.
    pub reason: Reason,
    /// The time (CLOCK_MONOTONIC) of the page fault that called for it.
    pub since: Option<Nanos>,
    /// The action of a policy that it carries out.
    pub action: Option<Action>,
    /// How often it was tried before, while the kernel was using a page.
    pub tries: u32,
}

impl Job {
    /// Whether its process has to wait for it.
    #[must_use]
    pub fn haste(&self) -> Haste {
        if self.since.is_some() { Haste::Now } else { Haste::Whenever }
    }

    /// Its regions.
    pub fn regions(&self) -> impl Iterator<Item = Region> + use<> {
        Region::within(self.first.start(), self.first.start().offset(self.count.bytes()))
    }
}

/// What became of a job.
#[derive(Debug)]
pub struct Done {
    /// The job.
    pub job: Job,
    /// What became of each region: so many base pages were filled with zeroes, or why it was not
    /// promoted. Those are left out that were huge already.
    pub became: Vec<(Region, Result<BasePages, Refusal>)>,
    /// How long the kernel took for each huge page, in the slowest call.
    pub took: Duration,
    /// How long it took in all calls together.
    pub held_up: Duration,
    /// CPU time it cost.
    pub cpu: Nanos,
}

/// The threads.
#[derive(Debug)]
pub struct Crew {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    busy: usize,
}

impl Crew {
    /// So many threads, which write to `wake` whenever they are done with a job. No more than half
    /// of the processors: the programs that are promoted need some too.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn new(threads: usize, wake: &UnixStream) -> std::io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = threads.min(processors.div_ceil(2));
        let (jobs, queue) = mpsc::channel();
        let (tell, done) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let start = |number: usize| {
            let (queue, tell, wake) = (Arc::clone(&queue), tell.clone(), wake.try_clone()?);
            std::thread::Builder::new()
                .name(format!("promote-{number}"))
                .spawn(move || work(&queue, &tell, wake))
        };
        let threads = (0..threads).map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { jobs: Some(jobs), done, threads, busy: 0 })
    }

    /// Whether somebody is free.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.busy < self.threads.len()
    }

    /// Gives somebody a job.
    pub fn give(&mut self, job: Job) {
        if let Some(jobs) = &self.jobs
            && jobs.send(job).is_ok()
        {
            self.busy += 1;
        }
    }

    /// A job that is done, if there is one.
    pub fn take(&mut self) -> Option<Done> {
        match self.done.try_recv() {
            Ok(done) => {
                self.busy = self.busy.saturating_sub(1);
                Some(done)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

impl Crew {
    /// Takes no more jobs, and waits until what is under way is done; [`Crew::take`] still says
    /// what became of it.
    pub fn finish(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // What made it panic was said by the panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Crew {
    /// Waits until what is under way is done.
    fn drop(&mut self) {
        self.finish();
    }
}

fn work(queue: &Mutex<Receiver<Job>>, tell: &Sender<Done>, mut wake: UnixStream) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        if tell.send(carry_out(job)).is_err() {
            return;
        }
        // A full socket wakes as well as one byte more.
        let _ = wake.write(&[0]);
    }
}

/// Promotes, and looks what became of it.
#[must_use]
pub fn carry_out(job: Job) -> Done {
    let cpu = CpuTime::of_thread();
    let before: Vec<_> = job.regions().filter_map(|region| look(&job, region)).collect();
    let (mut took, mut held_up) = (Duration::ZERO, Duration::ZERO);
    let mut became = Vec::with_capacity(before.len());
    // What must be left alone parts a run.
    for run in before.chunk_by(|(_, one), (_, next)| one.is_ok() && next.is_ok()) {
        let Some((first, Ok(_))) = run.first() else {
            became
                .extend(run.iter().map(|(region, seen)| (*region, seen.map(|_| BasePages::ZERO))));
            continue;
        };
        let run: Vec<_> = run.iter().filter_map(|(r, seen)| Some((*r, seen.ok()?))).collect();
        let (all, time) = call(&job, *first, HugePages(run.len() as u64));
        took = took.max(time);
        held_up += time * u32::try_from(run.len()).unwrap_or(u32::MAX);
        for (region, seen) in &run {
            let mut result = outcome(&job, *region, *seen, all);
            // One that cannot be keeps the kernel from those behind it; the answer was about it.
            // Where there is no huge page, asking for each would only take long.
            if result.is_err() && run.len() > 1 && all != Some(Errno::NOMEM) {
                let (alone, time) = call(&job, *region, HugePages(1));
                took = took.max(time);
                held_up += time;
                result = outcome(&job, *region, *seen, alone);
            }
            became.push((*region, result));
        }
    }
    Done { job, became, took, held_up, cpu: CpuTime::of_thread().since(cpu) }
}

/// Asks the kernel for a run; what it answers, and how long that took for each region.
fn call(job: &Job, first: Region, count: HugePages) -> (Option<Errno>, Duration) {
    let began = Instant::now();
    let answer = process_madvise::collapse_run(&job.held.process, first, count);
    let each = u32::try_from(count.0).unwrap_or(u32::MAX).max(1);
    (answer.unwrap_or(Some(Errno::SRCH)), began.elapsed() / each)
}

/// What the region is like, if it may be promoted; `None` if somebody has done so meanwhile.
fn look(job: &Job, region: Region) -> Option<(Region, Result<Survey, Refusal>)> {
    let seen = job.held.pagemap.survey(region).map_err(|_| Refusal::Gone);
    let is_huge = seen.is_ok_and(|seen| seen.is_huge);
    (!is_huge).then(|| (region, seen.and_then(|seen| may(job, region, seen))))
}

/// Whether the region may be promoted.
fn may(job: &Job, region: Region, seen: Survey) -> Result<Survey, Refusal> {
    // Also after an exec: the page tables looked at are those of before.
    if seen.population.is_zero() {
        return Err(Refusal::NotPossible);
    }
    if job.memory == Memory::Shared {
        return Ok(seen);
    }
    let ours = job.held.pagemap.exclusive(region).map_err(|_| Refusal::Gone)?.count();
    if ours + seen.swapped < seen.population { Err(Refusal::Shared) } else { Ok(seen) }
}

/// What became of a region after the kernel was asked.
fn outcome(
    job: &Job,
    region: Region,
    before: Survey,
    refused: Option<Errno>,
) -> Result<BasePages, Refusal> {
    let after = job.held.pagemap.survey(region).map_err(|_| Refusal::Gone)?;
    if after.is_huge {
        return Ok(BasePages(BASE_PAGES_PER_HUGE_PAGE).saturating_sub(before.population));
    }
    Err(match refused {
        _ if after.population.is_zero() => Refusal::NotPossible,
        refused => meaning(refused),
    })
}

/// What the kernel's answer means for a region that did not become huge. The answer may be about a
/// neighbour; where there is none, something undid the huge page at once.
fn meaning(answer: Option<Errno>) -> Refusal {
    match answer {
        Some(Errno::NOMEM) => Refusal::NoHugePage,
        Some(Errno::BUSY) => Refusal::CgroupLimit,
        Some(Errno::SRCH) => Refusal::Gone,
        Some(Errno::AGAIN) | None => Refusal::Busy,
        Some(_) => Refusal::NotPossible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_kernel::own_memory::{OwnMemory, Wish};
    use superpage_kernel::pagemap::Pagemap;
    use superpage_kernel::process::Process;
    use superpage_units::VirtAddr;

    fn job(first: Region, count: u64) -> Job {
        let process = Process::current().expect("we run");
        let pagemap = Pagemap::open(&process).expect("ours");
        Job {
            key: ProcessKey(1),
            held: Arc::new(Held { process, pagemap, command: "me".into() }),
            first,
            count: HugePages(count),
            memory: Memory::Private,
            reason: Reason { kind: "threshold", words: "test".into() },
            since: None,
            action: None,
            tries: 0,
        }
    }

    #[test]
    fn answers_of_the_kernel_are_told_apart() {
        for (answer, meant) in [
            (Some(Errno::NOMEM), Refusal::NoHugePage),
            (Some(Errno::BUSY), Refusal::CgroupLimit),
            (Some(Errno::AGAIN), Refusal::Busy),
            (Some(Errno::INVAL), Refusal::NotPossible),
            (Some(Errno::SRCH), Refusal::Gone),
            (None, Refusal::Busy),
        ] {
            assert_eq!(meaning(answer), meant);
        }
    }

    #[test]
    fn where_nothing_is_nothing_is_done() {
        let done = carry_out(job(Region::containing(VirtAddr(1 << 40)), 1));
        assert_eq!(done.became[0].1, Err(Refusal::NotPossible));
    }

    #[test]
    fn jobs_come_back_from_several_threads_and_say_what_was_filled() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut crew = Crew::new(2, &theirs).expect("threads");
        let mut memory = OwnMemory::map(HugePages(3), Wish::Nothing).expect("6 MiB");
        let regions: Vec<Region> = memory.regions().collect();
        for (index, pages) in [(0, 100), (1, 512)] {
            let start = index * 512 * 4096;
            memory.bytes_mut()[start..start + pages * 4096].fill(1);
        }
        let job = job(regions[0], 3);
        if job.held.pagemap.survey(regions[0]).is_ok_and(|seen| seen.is_huge) {
            return println!("skipped jobs: huge pages come at first touches, none is to be made");
        }
        crew.give(job);
        let done = loop {
            let _ = std::io::Read::read(&mut &ours, &mut [0]);
            if let Some(done) = crew.take() {
                break done;
            }
        };
        assert!(crew.is_free());
        assert_eq!(done.became[2], (regions[2], Err(Refusal::NotPossible)), "it is empty");
        // Another test may fork for a moment, and its child shares these pages.
        let filled: Vec<_> = done.became[..2].iter().map(|(_, became)| *became).collect();
        let possible = [Ok(BasePages(412)), Err(Refusal::Shared), Err(Refusal::NoHugePage)];
        assert!(possible.contains(&filled[0]), "{filled:?}");
        if filled[0].is_ok() {
            assert_eq!(memory.bytes()[100 * 4096 - 1..100 * 4096 + 1], [1, 0]);
        }
    }
}
