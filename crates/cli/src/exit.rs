//! Exit codes, and the one place where errors become one of them and a sentence.

use std::io::Write;
use std::process::ExitCode;
use superpage_kernel::Error;
use superpage_kernel::rights::Hindrance;
use superpage_manager::daemon::DaemonError;
use superpage_manager::find::Refusal;
use superpage_manager::record::RecordError;

/// The exit codes, as `--help` and the man page show them.
pub(crate) const TABLE: &str = "Exit codes:
  0  done
  1  failed: a process is not there or exited, the kernel refused something, a file could not
     be read or written, pages are not as their rows say (`superpage lab report`), there is no
     history because no daemon ever ran, or the daemon gave up after a mistake of its own
     (its promoter ended four times within ten minutes, or its main thread panicked)
  2  usage: an argument or the configuration makes no sense; nothing was changed, but what a
     daemon that was killed had changed is put back
  3  not possible here: the kernel or our rights lack something (see `superpage doctor`), or
     the record of changed settings cannot be read
`superpage run` ends as the program does: with its exit code, or by its signal; 126 and 127
where the program may not be run or was not found";

/// A failure, by exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// 1.
    #[error("{0:#}")]
    Failed(anyhow::Error),
    /// 2.
    #[error("{0}")]
    Usage(String),
    /// 3.
    #[error("{0}")]
    NotPossible(String),
    /// A program that could not be started, with the exit code that shells have for it.
    #[error("{why}")]
    Program {
        /// 126 or 127.
        code: u8,
        /// The message.
        why: String,
    },
}

/// A command's result.
pub(crate) type Outcome = Result<(), Failure>;

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied { .. } => Self::NotPossible(format!("{error}; {}", Hindrance::now())),
            Error::Unsupported { .. } => {
                Self::NotPossible(format!("{error}; `superpage doctor` says what is missing"))
            }
            // To try again is no help.
            Error::Journal { .. } | Error::OtherPages { .. } => {
                Self::NotPossible(error.to_string())
            }
            Error::Busy { pid } => DaemonError::Busy { pid }.into(),
            other => Self::Failed(other.into()),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Failed(error) => error.into(),
            Refusal::Denied { .. } => Self::NotPossible(refusal.to_string()),
            Refusal::KernelThread(_) | Refusal::Ourselves(_) => Self::Usage(refusal.to_string()),
            Refusal::Gone(_) => Self::Failed(refusal.into()),
        }
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::NotPossible(_) => Self::NotPossible(error.to_string()),
            DaemonError::Config(_) => Self::Usage(error.to_string()),
            DaemonError::Kernel(error) => error.into(),
            DaemonError::Busy { .. }
            | DaemonError::Wakeup(_)
            | DaemonError::PromoterEnds
            | DaemonError::Panicked => Self::Failed(error.into()),
        }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Kernel(error) => error.into(),
            RecordError::NotAFile(_) => Self::Usage(error.to_string()),
            RecordError::Write { .. } => Self::Failed(error.into()),
        }
    }
}

/// Says what went wrong, if anything did, and returns the exit code.
pub(crate) fn code(outcome: Outcome) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    if is_broken_pipe(&failure) {
        // Whoever read our output has had enough.
        return ExitCode::SUCCESS;
    }
    // Nobody may be reading there either, and then the exit code has to do.
    let _ = writeln!(std::io::stderr(), "superpage: {failure}");
    ExitCode::from(match failure {
        Failure::Failed(_) => 1,
        Failure::Usage(_) => 2,
        Failure::NotPossible(_) => 3,
        Failure::Program { code, .. } => code,
    })
}

fn is_broken_pipe(failure: &Failure) -> bool {
    let Failure::Failed(error) = failure else { return false };
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
