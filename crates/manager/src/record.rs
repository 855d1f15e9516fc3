//! Recording a live process: what it has mapped, from time to time, as a
//! [trace](superpage_trace) that can be replayed under other policies.
//!
//! Looking changes nothing and stops nobody: VMAs, page tables and counters are read through
//! `/proc`, contents through `process_vm_readv` a few pages at a time, and never what the process
//! shares with another, what is registered with a userfaultfd, or what `superpage run` manages: that counts as
//! data. Only private anonymous memory that can be accessed is recorded; files,
//! shared memory and reserved address space are not, though the resident size counts them.
//!
//! Contents are looked at where something changed, and everywhere at every tenth sample at the
//! latest, always at the same base pages, so that an estimate changes only when contents do.

use crate::budget::CpuBudget;
use crate::exclude::Excluded;
use crate::process::{ManagedProcess, Purpose, is_about_one_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::pagemap::{Pagemap, Populated};
use superpage_kernel::process::Process;
use superpage_kernel::sample::{Content, Sampler};
use superpage_kernel::smaps_flags::{self, Flags};
use superpage_kernel::status::{self, Stat};
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{Error, maps};
use superpage_policy::sampling::SAMPLE;
use superpage_trace::{Contents, Header, Memory, RangeState, Usage, Writer};
use superpage_units::{
    Advice, BASE_PAGE_BYTES, BasePages, Bytes, Growth, Mapping, Nanos, PmdRange, VirtAddr, Vma,
    VmaKind,
};

/// Samples after which contents are looked at again. Chosen: contents that change while nothing is
/// mapped or unmapped are seen within ten intervals.
const REVISIT: u64 = 10;
/// How long to wait at a time before looking whether to stop.
const NAP: Duration = Duration::from_millis(100);
/// Which base pages are sampled follows from this and the range; any number would do.
const SEED: u64 = 1;

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// From one sample to the next.
    pub interval: Duration,
    /// For how long; without it, until the process exits.
    pub duration: Option<Duration>,
    /// How to look at contents.
    pub contents: Contents,
    /// The CPU time that it may take; samples are further apart if it needs more.
    pub budget: CpuBudget,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The process exited.
    Exited,
    /// The time was over.
    Elapsed,
    /// Somebody asked for it.
    Stopped,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Samples taken.
    pub samples: usize,
    /// Resident memory of the process.
    pub resident: Bytes,
    /// Size of the trace.
    pub written: Bytes,
}

/// What was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// Why it ended.
    pub ended: Ended,
    /// How much there is of it.
    pub progress: Progress,
    /// How long it took.
    pub time: Duration,
    /// CPU time that it took us.
    pub cpu: Nanos,
}

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel refused something, or the process exited before the first sample.
    #[error(transparent)]
    Kernel(#[from] Error),
    /// What is to be written to is something else than a file.
    #[error("{0} is not a regular file; give -o a file name")]
    NotAFile(PathBuf),
    /// The file could not be written.
    #[error("{path} could not be written: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Records `managed` into the file `path`, which is there only once the recording is whole, until
/// the process exits, the time is over, or `stop` is raised.
///
/// # Errors
/// [`RecordError`]; nothing is left behind then.
pub fn record(
    managed: &ManagedProcess,
    path: &Path,
    options: &Options,
    stop: &AtomicBool,
    mut progress: impl FnMut(&Progress),
) -> Result<Recording, RecordError> {
    let part = Part::create(path)?;
    let header = Header {
        command: managed.command().to_owned(),
        interval: Nanos::from_secs_f64(options.interval.as_secs_f64()),
        contents: options.contents,
    };
    let failed = |error| RecordError::Write { path: path.to_owned(), error };
    let mut writer = Writer::new(BufWriter::new(&part.file), &header).map_err(failed)?;
    let mut observer = Observer::new(managed, options.contents);
    let (began, cpu) = (Instant::now(), CpuTime::of_thread());
    let end = options.duration.map(|duration| began + duration);
    let mut resident = Bytes::ZERO;
    let ended = loop {
        let (before, worked) = (Instant::now(), CpuTime::of_thread());
        match observer.look() {
            Ok((usage, memory)) => {
                resident = usage.resident;
                writer.sample(nanos(before - began), usage, memory).map_err(failed)?;
            }
            Err(error) if is_about_one_process(&error) && writer.samples() > 0 => {
                break Ended::Exited;
            }
            Err(error) => return Err(error.into()),
        }
        progress(&Progress { samples: writer.samples(), resident, written: writer.written() });
        let took = nanos(before.elapsed());
        let pause = options.budget.pause(CpuTime::of_thread().since(worked), took);
        let next = (before + options.interval).max(Instant::now() + pause);
        if let Some(why) = wait(&managed.process, next, end, stop) {
            break why;
        }
    };
    let (samples, written) = (writer.samples(), writer.written());
    writer.finish().map_err(failed)?;
    part.keep().map_err(failed)?;
    Ok(Recording {
        ended,
        progress: Progress { samples, resident, written },
        time: began.elapsed(),
        cpu: CpuTime::of_thread().since(cpu),
    })
}

/// Waits for the time of the next sample, which is the last if it is at the end; says why there is
/// no next one.
fn wait(
    process: &Process,
    next: Instant,
    end: Option<Instant>,
    stop: &AtomicBool,
) -> Option<Ended> {
    if end.is_some_and(|end| Instant::now() >= end) {
        return Some(Ended::Elapsed);
    }
    let until = end.map_or(next, |end| end.min(next));
    loop {
        if stop.load(Ordering::Relaxed) {
            return Some(Ended::Stopped);
        }
        if !process.is_alive() {
            return Some(Ended::Exited);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::sleep(left.min(NAP));
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A file under another name until it is whole.
#[derive(Debug)]
struct Part {
    file: File,
    path: PathBuf,
    destination: PathBuf,
    is_kept: bool,
}

impl Part {
    fn create(path: &Path) -> Result<Self, RecordError> {
        // Behind a link, the file is replaced and not the link.
        let destination = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if destination.exists() && !destination.is_file() {
            return Err(RecordError::NotAFile(path.to_owned()));
        }
        let mut name = std::ffi::OsString::from(".");
        let Some(own) = destination.file_name() else {
            return Err(RecordError::NotAFile(path.to_owned()));
        };
        name.push(own);
        name.push(format!(".{}.part", std::process::id()));
        let hidden = destination.with_file_name(name);
        let file = File::create(&hidden)
            .map_err(|error| RecordError::Write { path: path.to_owned(), error })?;
        Ok(Self { file, path: hidden, destination, is_kept: false })
    }

    fn keep(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, &self.destination)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_kept {
            // It may be gone, and nobody is there to be told.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Looks at a process again and again.
#[derive(Debug)]
struct Observer<'a> {
    managed: &'a ManagedProcess,
    process: &'a Process,
    contents: Contents,
    sampler: Sampler,
    looks: u64,
    vmas: BTreeMap<VirtAddr, Vma>,
    flags: BTreeMap<VirtAddr, Flags>,
    known: BTreeMap<PmdRange, (Populated, RangeState)>,
    stat: Option<Stat>,
}

impl<'a> Observer<'a> {
    fn new(managed: &'a ManagedProcess, contents: Contents) -> Self {
        Self {
            managed,
            process: &managed.process,
            contents,
            sampler: Sampler::new(),
            looks: 0,
            vmas: BTreeMap::new(),
            flags: BTreeMap::new(),
            known: BTreeMap::new(),
            stat: None,
        }
    }

    /// What the process has mapped now.
    fn look(&mut self) -> Result<(Usage, Memory), Error> {
        let usage = self.usage()?;
        let mut vmas = maps::of(self.process)?;
        let excluded = self.managed.excluded(&vmas, Purpose::Read)?;
        vmas.retain(|vma| {
            let can_be_accessed = vma.permissions.read || vma.permissions.write;
            vma.is_private_anonymous() && can_be_accessed
        });
        self.take_in(&vmas)?;
        // Opened each time: after an `execve` the old one shows memory that is gone.
        let pagemap = Pagemap::open(self.process)?;
        let mut ranges = BTreeMap::new();
        for (at, populated) in (0..).zip(pagemap.populated(&vmas)?) {
            let is_due = (self.looks + at).is_multiple_of(REVISIT);
            let known = self.known.get(&populated.range);
            let unchanged = known.filter(|(before, _)| *before == populated && !is_due);
            let state = match unchanged {
                Some((_, state)) => *state,
                None => self.look_into(&pagemap, &populated, &excluded)?,
            };
            ranges.insert(populated.range, (populated, state));
        }
        self.looks += 1;
        self.known = ranges;
        // What was read of a process that exited meanwhile is not to be believed.
        self.process.check_alive()?;
        let ranges = self.known.iter().map(|(range, (_, state))| (*range, *state)).collect();
        Ok((usage, Memory { vmas: self.vmas.clone(), ranges }))
    }

    fn usage(&mut self) -> Result<Usage, Error> {
        let stat = status::stat_of(self.process)?;
        let resident = status::of(self.process)?.rss.unwrap_or_default();
        let now = &stat;
        let before = self.stat.as_ref().unwrap_or(now);
        let usage = Usage {
            resident,
            minor_faults: now.minor_faults.saturating_sub(before.minor_faults),
            major_faults: now.major_faults.saturating_sub(before.major_faults),
            cpu: now.cpu.time().saturating_sub(before.cpu.time()),
        };
        self.stat = Some(stat);
        Ok(usage)
    }

    /// Takes in the list of VMAs.
    fn take_in(&mut self, vmas: &[maps::Vma]) -> Result<(), Error> {
        let are_same = vmas.len() == self.vmas.len()
            && vmas.iter().all(|vma| self.vmas.contains_key(&vma.start));
        if !are_same {
            let flagged = smaps_flags::of(self.process)?.into_iter();
            self.flags = flagged.map(|vma| (vma.start, vma.flags)).collect();
        }
        let taken = vmas.iter().map(|vma| (vma.start, self.vma(vma)));
        self.vmas = taken.collect();
        Ok(())
    }

    fn vma(&self, vma: &maps::Vma) -> Vma {
        let before = self.vmas.get(&vma.start);
        let has_grown = before.is_some_and(|b| b.growth == Growth::Up || b.end < vma.end);
        let is_heap = vma.name == b"[heap]";
        Vma {
            start: vma.start,
            end: vma.end,
            kind: if vma.name.starts_with(b"[stack") { VmaKind::Stack } else { VmaKind::Anonymous },
            growth: if is_heap || has_grown { Growth::Up } else { Growth::Fixed },
            advice: match self.flags.get(&vma.start).copied().unwrap_or_default() {
                flags if flags.contains(Flags::HUGE) => Advice::Huge,
                flags if flags.contains(Flags::NO_HUGE) => Advice::NoHuge,
                _ => Advice::None,
            },
        }
    }

    fn look_into(
        &mut self,
        pagemap: &Pagemap,
        populated: &Populated,
        excluded: &Excluded,
    ) -> Result<RangeState, Error> {
        let present = populated.pages.count();
        let mapping = if populated.is_huge { Mapping::Huge } else { Mapping::Base };
        let range = populated.range;
        let share = match excluded.overlaps(range.start(), range.end()) {
            true => None,
            false => self.share_of_data(pagemap, populated)?,
        };
        let data = match (share, self.known.get(&populated.range)) {
            (Some(share), _) => scaled(present, share),
            // Not to be read, or gone: what was known, or all.
            (None, Some((_, known))) => known.data.min(present),
            (None, None) => present,
        };
        Ok(RangeState { mapping, present, data })
    }

    /// The share of the base pages read that hold data; `None` if none may or can be read.
    fn share_of_data(
        &mut self,
        pagemap: &Pagemap,
        populated: &Populated,
    ) -> Result<Option<f64>, Error> {
        let range = populated.range;
        // What is shared, as after a fork, is never read: that would copy it.
        let ours = pagemap.exclusive(range)?.and(populated.pages);
        let pages: Vec<u16> = ours.iter().collect();
        let addresses: Vec<VirtAddr> =
            self.chosen(range, &pages).into_iter().map(|page| range.base_page(page)).collect();
        if addresses.is_empty() {
            return Ok(None);
        }
        let page = Bytes(BASE_PAGE_BYTES);
        let contents = self.sampler.contents(self.process, &addresses, page)?;
        let count = |what| contents.iter().filter(|content| **content == what).count();
        let (used, zero) = (count(Content::Used), count(Content::Zero));
        Ok((used + zero > 0).then(|| used as f64 / (used + zero) as f64))
    }

    /// Which of `pages` to read.
    fn chosen(&self, range: PmdRange, pages: &[u16]) -> Vec<u16> {
        if self.contents == Contents::Exact || pages.len() <= usize::from(SAMPLE.pages()) {
            return pages.to_vec();
        }
        let all = usize::try_from(superpage_units::BASE_PAGES_PER_HUGE_PAGE).unwrap_or(1);
        let at = |position: u16| usize::from(position) * pages.len() / all;
        let mut chosen: Vec<u16> =
            SAMPLE.positions(range, SEED).filter_map(|p| pages.get(at(p)).copied()).collect();
        chosen.dedup();
        chosen
    }
}

fn scaled(pages: BasePages, share: f64) -> BasePages {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the pages of a range"
    )]
    BasePages((pages.0 as f64 * share).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use superpage_trace::{Partial, read};
    use superpage_units::Pid;

    const QUICK: Options = Options {
        interval: Duration::from_millis(20),
        duration: Some(Duration::from_millis(200)),
        contents: Contents::Sampled,
        budget: CpuBudget::UNLIMITED,
    };

    /// Records a process that sleeps, into `path`.
    fn sleeping(
        seconds: &str,
        path: &Path,
        options: &Options,
        stop: &AtomicBool,
    ) -> Result<Recording, RecordError> {
        let child = Command::new("sleep").arg(seconds).stdout(Stdio::null()).spawn();
        let mut child = child.expect("sleep runs");
        let child_process = crate::find::hold(Pid(child.id())).expect("it is ours");
        let recording = record(&child_process, path, options, stop, |_| {});
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        recording
    }

    /// Whether this kernel lacks what recording takes.
    fn is_unsupported(recording: &Result<Recording, RecordError>) -> bool {
        matches!(recording, Err(RecordError::Kernel(Error::Unsupported { .. })))
    }

    #[test]
    fn a_recording_is_whole_however_it_ends() {
        let directory = tempfile::tempdir().expect("a place");
        let path = directory.path().join("a.trace");
        std::fs::write(&path, "before").expect("written");
        let stopped = AtomicBool::new(true);
        let go_on = AtomicBool::new(false);
        let for_ever = Options { duration: None, ..QUICK };
        for (seconds, options, stop, ended) in [
            ("10", &QUICK, &go_on, Ended::Elapsed),
            ("0.3", &for_ever, &go_on, Ended::Exited),
            ("10", &for_ever, &stopped, Ended::Stopped),
        ] {
            let recording = sleeping(seconds, &path, options, stop);
            if is_unsupported(&recording) {
                return;
            }
            let recording = recording.expect("recorded");
            assert_eq!(recording.ended, ended);
            let bytes = std::fs::read(&path).expect("there");
            let trace = read(&bytes, Partial::Refused).expect("whole");
            assert_eq!(trace.samples.len(), recording.progress.samples);
            assert_eq!(trace.header.command, "sleep");
            let left: Vec<_> = std::fs::read_dir(directory.path()).expect("lists").collect();
            assert_eq!(left.len(), 1, "{left:?}");
        }
    }

    #[test]
    fn what_is_no_file_is_left_alone() {
        let stop = AtomicBool::new(false);
        for path in ["/dev/null", "/", "/tmp"] {
            let refused = sleeping("5", Path::new(path), &QUICK, &stop);
            assert!(matches!(refused, Err(RecordError::NotAFile(_))), "{path}: {refused:?}");
        }
        let nowhere = sleeping("5", Path::new("/nonexistent/a"), &QUICK, &stop);
        assert!(matches!(nowhere, Err(RecordError::Write { .. })), "{nowhere:?}");
    }
}
