//! The kernel's compaction in the background: how eager it is (`vm.compaction_proactiveness`), and what it costs (the CPU time of
//! the threads that do it, `kcompactdN`, one for each node).
//!
//! A thread moves what lies in between together, node by node, until the share of free memory that is in pieces smaller than a
//! huge page is below what is left of 100 %. A write of any number but 0 has it begin at once; a lower one ends what is under
//! way where less than what is left of 100 % then is in pieces, and otherwise the thread goes on to the end of memory. It moves
//! pages of any process, locked ones too (`vm.compact_unevictable_allowed`). When to have it compact is not decided here.
//! [/proc/sys/vm](https://docs.kernel.org/admin-guide/sysctl/vm.html#compaction-proactiveness).

use crate::error::{Error, Result};
use crate::process::{self, Process};
use crate::settings;
use crate::status;
use std::path::{Path, PathBuf};
use superpage_units::{Nanos, Share};

/// The names of the kernel's compaction threads begin with this; the number of the node follows.
const NAME: &[u8] = b"kcompactd";

/// The file of the setting under `proc_root` (normally `/proc`), which holds percent.
#[must_use]
pub fn path(proc_root: &Path) -> PathBuf {
    proc_root.join("sys/vm/compaction_proactiveness")
}

/// How eager the kernel is, under `proc_root` (normally `/proc`).
///
/// # Errors
/// [`Error::Missing`] on a kernel without compaction, [`Error::Denied`], [`Error::Malformed`].
pub fn proactiveness(proc_root: &Path) -> Result<Share> {
    let path = path(proc_root);
    let text = settings::read_value(&path)?;
    let percent = text.parse().ok().filter(|percent| *percent <= 100);
    let expected = "a number of percent";
    percent.map(Share::percent).ok_or_else(|| Error::malformed(&path, 1, expected, text.as_bytes()))
}

/// The text that the setting is given for a share, in whole percent.
#[must_use]
pub fn to_text(proactiveness: Share) -> String {
    format!("{:.0}", 100.0 * proactiveness.get())
}

/// The kernel's threads that compact memory.
#[derive(Debug)]
pub struct Threads(Vec<Process>);

impl Threads {
    /// The compaction threads that `/proc` shows. A `/proc` of a PID namespace of its own shows none.
    ///
    /// # Errors
    /// As [`process::list`].
    pub fn find() -> Result<Self> {
        let is_one = |process: &Process| {
            status::stat_of(process)
                .is_ok_and(|stat| stat.is_kernel_thread() && stat.comm.starts_with(NAME))
        };
        let pids = process::list(Path::new("/proc"))?;
        let found = pids.into_iter().filter_map(|pid| Process::open(pid).ok()).filter(is_one);
        Ok(Self(found.collect()))
    }

    /// Whether `/proc` showed no compaction thread.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPU time that all compaction threads together have used since the machine's start, in steps of a clock tick.
    ///
    /// # Errors
    /// As [`status::stat_of`].
    pub fn cpu_time(&self) -> Result<Nanos> {
        self.0.iter().map(|thread| status::stat_of(thread).map(|stat| stat.cpu.time())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_are_a_share() {
        let root = tempfile::tempdir().expect("a directory");
        let file = path(root.path());
        assert!(matches!(proactiveness(root.path()), Err(Error::Missing { .. })));
        std::fs::create_dir_all(file.parent().expect("it has one")).expect("made");
        for (text, expected) in [
            ("20\n", Some(Share::percent(20))),
            ("100\n", Some(Share::ALL)),
            ("0\n", Some(Share::NONE)),
            ("101\n", None),
            ("-1\n", None),
            ("many\n", None),
        ] {
            std::fs::write(&file, text).expect("written");
            let found = proactiveness(root.path());
            assert_eq!(found.ok(), expected, "{text:?}");
        }
        assert_eq!(to_text(Share::percent(80)), "80");
    }

    #[test]
    fn no_process_can_pass_for_a_thread_of_the_kernel() {
        let sleeper = std::process::Command::new("sh")
            .args(["-c", "printf kcompactd7 > /proc/self/comm; exec 1>&-; read -r _"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut sleeper = sleeper.expect("sh runs");
        // The shell closes its output when it has its new name.
        std::io::Read::read_to_end(&mut sleeper.stdout.take().expect("piped"), &mut Vec::new())
            .expect("read");
        let threads = Threads::find().expect("/proc lists");
        let pids: Vec<u32> = threads.0.iter().map(|thread| thread.pid().0).collect();
        assert!(!pids.contains(&sleeper.id()), "{pids:?}");
        assert!(threads.cpu_time().is_ok());
        drop(sleeper.stdin.take());
        sleeper.wait().expect("it ends");
    }
}
