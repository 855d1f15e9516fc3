//! Pressure stall information: how long tasks waited for memory, and a wake-up when it is long.
//!
//! For the whole machine `/proc/pressure/memory`, for a v2 cgroup `memory.pressure`. A
//! [`Trigger`] lives as long as its file descriptor and changes nothing for anybody else, so it
//! does not pass the gate for settings.
//! [PSI](https://docs.kernel.org/accounting/psi.html).

use crate::error::{Error, Result};
use crate::text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, write};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use superpage_units::{Nanos, Share};

const NANOS_PER_MICRO: u64 = 1000;
/// The shortest and the longest window that the kernel takes.
const WINDOWS: std::ops::RangeInclusive<u64> = 500_000_000..=10_000_000_000;

/// Multiples of this are windows that anybody may have who may write the file.
const FREE_WINDOW: u64 = 2_000_000_000;

/// The share of time that tasks stalled, lately and altogether.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// Over the last 10 seconds.
    pub avg10: Share,
    /// Over the last minute.
    pub avg60: Share,
    /// Over the last 5 minutes.
    pub avg300: Share,
    /// Since the start, as time; microseconds are what the kernel counts.
    pub total: Nanos,
}

/// The memory pressure of the machine or of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// Time in which at least one task waited.
    pub some: Stall,
    /// Time in which all tasks waited; some kernels do not say.
    pub full: Option<Stall>,
}

/// The pressure according to the file at `path`, such as `/proc/pressure/memory`.
///
/// # Errors
/// [`Error::Unsupported`] if the kernel was built or started without PSI, [`Error::Missing`] if
/// there is no such file otherwise, [`Error::Denied`], [`Error::Malformed`].
pub fn read(path: &Path) -> Result<Pressure> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut text));
    read.map_err(|error| explain(Errno::from_io_error(&error).unwrap_or(Errno::IO), "read", path))?;
    parse(&text, path)
}

/// Understands the text of a pressure file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`] with the line.
pub fn parse(text: &[u8], path: &Path) -> Result<Pressure> {
    let find = |kind: &str| {
        text::lines(text).find_map(|(number, line)| {
            let rest = line.strip_prefix(kind.as_bytes())?.strip_prefix(b" ")?;
            let expected = "'avg10=0.00 avg60=0.00 avg300=0.00 total=0'";
            Some(stall(rest).ok_or_else(|| Error::malformed(path, number, expected, line)))
        })
    };
    let none = || Error::malformed(path, 0, "a line that begins with 'some'", text);
    Ok(Pressure { some: find("some").ok_or_else(none)??, full: find("full").transpose()? })
}

fn stall(line: &[u8]) -> Option<Stall> {
    let find = |key: &str| {
        text::words(line).find_map(|word| word.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
    };
    let micros = text::decimal(find("total")?)?;
    Some(Stall {
        avg10: percent(find("avg10")?)?,
        avg60: percent(find("avg60")?)?,
        avg300: percent(find("avg300")?)?,
        total: Nanos(micros.saturating_mul(NANOS_PER_MICRO)),
    })
}

/// A plain decimal fraction of a hundred; the kernel never writes anything else.
fn percent(word: &[u8]) -> Option<Share> {
    let plain = word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(word).ok().filter(|_| plain)?;
    text.parse().ok().map(|percent: f64| Share::clamped(percent / 100.0))
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Tasks stalled for longer than the trigger allows.
    Pressure,
    /// The time was up.
    TimedOut,
}

/// A request to be woken when tasks stall for memory; withdrawn when dropped.
#[derive(Debug)]
pub struct Trigger {
    file: OwnedFd,
}

impl Trigger {
    /// Arms the pressure file at `path` to wake us when some task has waited for `stall` in all
    /// within any `window`, at most once in each window.
    ///
    /// A window is 0.5 to 10 seconds; without CAP_SYS_RESOURCE it is a multiple of 2 seconds.
    ///
    /// # Errors
    /// [`Error::Refused`] if `stall` and `window` make no sense, [`Error::Denied`] if we may not
    /// write the file or may not have such a window, [`Error::Unsupported`] if the kernel was
    /// built or started without PSI, [`Error::Missing`], [`Error::Failed`].
    pub fn arm(path: &Path, stall: Nanos, window: Nanos) -> Result<Self> {
        check_window(path, stall, window)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| explain(errno, "open", path))?;
        let micros = |time: Nanos| time.0 / NANOS_PER_MICRO;
        let request = format!("some {} {}\0", micros(stall), micros(window));
        write(&file, request.as_bytes()).map_err(|errno| match errno {
            Errno::INVAL if !window.0.is_multiple_of(FREE_WINDOW) => Error::Denied {
                what: "watch memory pressure in windows of other than 2, 4, 6, 8 or 10 seconds \
                       without CAP_SYS_RESOURCE"
                    .into(),
                errno,
            },
            errno => explain(errno, "arm a trigger on", path),
        })?;
        Ok(Self { file })
    }

    /// Waits until it goes off, or until `timeout` is over; for ever without one.
    ///
    /// # Errors
    /// [`Error::Failed`]: EINTR when a signal came, ENODEV when the cgroup was removed.
    pub fn wait(&self, timeout: Option<Nanos>) -> Result<Wake> {
        let fail = |errno| Error::from_errno(errno, "wait for memory pressure");
        let timeout = timeout.map(timespec);
        let mut fds = [PollFd::new(&self.file, PollFlags::PRI)];
        if poll(&mut fds, timeout.as_ref()).map_err(fail)? == 0 {
            return Ok(Wake::TimedOut);
        }
        // The kernel answers POLLERR once the cgroup that the file belonged to is gone.
        if fds[0].revents().contains(PollFlags::ERR) {
            return Err(fail(Errno::NODEV));
        }
        Ok(Wake::Pressure)
    }
}

/// To poll it with others, for POLLPRI.
impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn timespec(time: Nanos) -> Timespec {
    const SECOND: u64 = 1_000_000_000;
    Timespec {
        tv_sec: i64::try_from(time.0 / SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(time.0 % SECOND).unwrap_or(0),
    }
}

fn check_window(path: &Path, stall: Nanos, window: Nanos) -> Result<()> {
    let refuse = |reason| Err(Error::Refused { path: path.to_owned(), reason });
    if !WINDOWS.contains(&window.0) {
        return refuse("a pressure window is 0.5 to 10 seconds");
    }
    if stall.0 < NANOS_PER_MICRO || stall > window {
        return refuse("the stall that triggers lies between a microsecond and the window");
    }
    Ok(())
}

/// The error for `errno` while doing `what`; says what to do where PSI is off.
fn explain(errno: Errno, what: &str, path: &Path) -> Error {
    let pressure = path.parent().is_some_and(|directory| directory.ends_with("pressure"));
    match errno {
        Errno::OPNOTSUPP => Error::Unsupported {
            what: "tell memory pressure: it was started without; add psi=1 to its command line"
                .into(),
            errno,
        },
        Errno::NOENT if pressure => Error::Unsupported {
            what: "tell memory pressure: it was built without CONFIG_PSI".into(),
            errno,
        },
        Errno::NOENT => Error::Missing { path: path.to_owned() },
        other => Error::from_errno(other, format!("{what} {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/proc/pressure/memory");

    fn parsed(text: &[u8]) -> Result<Pressure> {
        parse(text, Path::new("memory"))
    }

    #[test]
    fn a_real_file_reads() {
        let pressure = parsed(GOOD).expect("the fixture is good");
        assert_eq!(pressure.some.avg10, Share::clamped(1.53 / 100.0));
        assert_eq!(pressure.some.total, Nanos(12_345_678_000));
        assert_eq!(pressure.full.map(|full| full.avg300), Share::new(0.07 / 100.0));
    }

    #[test]
    fn full_may_be_missing_and_some_not() {
        let line = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parsed(line).map(|pressure| pressure.full), Ok(None));
        assert!(matches!(parsed(b""), Err(Error::Malformed { line: 0, .. })));
        for bad in ["some", "some avg10=1", "some avg10=inf avg60=0 avg300=0 total=0"] {
            assert!(matches!(parsed(bad.as_bytes()), Err(Error::Malformed { .. })), "{bad}");
        }
    }

    #[test]
    fn a_kernel_without_psi_is_told_from_a_wrong_path() {
        let without = read(Path::new("/nonexistent/pressure/memory"));
        assert!(matches!(without, Err(Error::Unsupported { .. })));
        let wrong = read(Path::new("/nonexistent/memory.pressure"));
        assert!(matches!(wrong, Err(Error::Missing { .. })));
        let off = explain(Errno::OPNOTSUPP, "read", Path::new("/proc/pressure/memory"));
        assert!(off.to_string().contains("psi=1"), "{off}");
    }

    #[test]
    fn senseless_triggers_are_refused() {
        let path = Path::new("/nonexistent/pressure/memory");
        let second = 1_000_000_000;
        for (stall, window) in
            [(1, second), (second, second / 4), (0, second), (second, 60 * second)]
        {
            let refused = Trigger::arm(path, Nanos(stall), Nanos(window)).err();
            assert!(matches!(refused, Some(Error::Refused { .. })), "{stall} {window}");
        }
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(cents in prop::array::uniform3(0..=10_000_u32), total: u32) {
            let percents = cents.map(|cents| f64::from(cents) / 100.0);
            let [a, b, c] = percents;
            let text = format!("some avg10={a:.2} avg60={b:.2} avg300={c:.2} total={total}\n");
            let some = parsed(text.as_bytes()).expect("good").some;
            let shares = percents.map(|percent| Share::clamped(percent / 100.0));
            prop_assert_eq!([some.avg10, some.avg60, some.avg300], shares);
            prop_assert_eq!(some.total, Nanos(u64::from(total) * NANOS_PER_MICRO));
        }
    }
}
