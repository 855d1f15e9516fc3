//! What rights we hold, and which one is missing when the kernel says no.
//!
//! Root by number is not always root: a container takes capabilities away, a user namespace makes
//! them worth nothing outside of it, and Yama can forbid everybody to look into processes. This is
//! for telling a person what to do; whether something is allowed is found out by doing it.
//! [capabilities(7)](https://man7.org/linux/man-pages/man7/capabilities.7.html),
//! [user_namespaces(7)](https://man7.org/linux/man-pages/man7/user_namespaces.7.html),
//! [Yama](https://docs.kernel.org/admin-guide/LSM/Yama.html).

use crate::error::{Error, Result};
use crate::meminfo::Fields;
use crate::status::{self, Uid};
use crate::text;
use std::fmt;
use std::path::Path;

/// What it takes to look into processes of other users and to advise them, by number.
const NEEDED: [(u32, &str); 3] =
    [(2, "CAP_DAC_READ_SEARCH"), (19, "CAP_SYS_PTRACE"), (23, "CAP_SYS_NICE")];

/// From this value of `ptrace_scope` on nobody may attach to any process, root included, and the
/// value can no longer be lowered.
const NO_ATTACH: u64 = 3;

/// The user namespace that the machine started with (PROC_USER_INIT_INO of the kernel).
const INITIAL_NAMESPACE: &str = "user:[4026531837]";

/// Our rights, as far as they matter for other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    user: Uid,
    capabilities: u64,
    namespace: Namespace,
    ptrace_scope: Option<u64>,
}

/// Which user namespace our capabilities are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Initial,
    Below,
}

/// The reason why the kernel says no; it reads as the advice what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// We are not root.
    NotRoot,
    /// We are root, but without these capabilities.
    Capabilities(Vec<&'static str>),
    /// Yama forbids everybody to attach to processes.
    PtraceScope,
    /// Our capabilities are those of a user namespace, and the process may be outside of it.
    Namespace,
    /// Nothing that can be seen from here.
    Unknown,
}

impl Hindrance {
    /// The reason why the kernel has just said no.
    #[must_use]
    pub fn now() -> Self {
        Rights::read(Path::new("/proc")).map_or(Self::Unknown, |rights| rights.hindrance())
    }
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => f.write_str("run as root (sudo)"),
            Self::Capabilities(missing) => write!(
                f,
                "root is without {0} here, as in many containers: give it {0}, or run outside",
                missing.join(", ")
            ),
            Self::PtraceScope => f.write_str(
                "/proc/sys/kernel/yama/ptrace_scope is 3, which forbids it to everybody until the \
                 machine is restarted with a lower value",
            ),
            Self::Namespace => f.write_str(
                "root is only root of a user namespace here (a rootless container), without power \
                 over processes outside of it: run outside",
            ),
            Self::Unknown => f.write_str(
                "no capability is missing, so a security module (SELinux, AppArmor, BPF) or the \
                 sandbox that this runs in forbids it: choose another process, or run outside",
            ),
        }
    }
}

impl Rights {
    /// Our rights according to `self/` and `sys/` in `proc_root` (normally `/proc`).
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
    pub fn read(proc_root: &Path) -> Result<Self> {
        let path = proc_root.join("self/status");
        let text = text::read(&path)?;
        let (line, set) = Fields::of(&text, &path).require("CapEff", "a line with capabilities")?;
        let capabilities = text::hexadecimal(set)
            .ok_or_else(|| Error::malformed(&path, line, "capabilities in hexadecimal", set))?;
        let namespace = proc_root.join("self/ns/user");
        let namespace = std::fs::read_link(&namespace)
            .map_err(|error| Error::from_io(&error, "read", &namespace))?;
        let is_initial = namespace == Path::new(INITIAL_NAMESPACE);
        let namespace = if is_initial { Namespace::Initial } else { Namespace::Below };
        // A kernel without Yama has no such file.
        let ptrace_scope = text::read_decimal(&proc_root.join("sys/kernel/yama/ptrace_scope")).ok();
        let user = status::parse(&text, &path)?.effective_uid;
        Ok(Self { user, capabilities, namespace, ptrace_scope })
    }

    /// The capabilities that we lack for reaching processes of other users.
    #[must_use]
    pub fn missing_capabilities(&self) -> Vec<&'static str> {
        let is_missing = |bit: u32| self.capabilities & (1 << bit) == 0;
        NEEDED.into_iter().filter(|(bit, _)| is_missing(*bit)).map(|(_, name)| name).collect()
    }

    /// What most likely stood in our way when the kernel said no.
    #[must_use]
    pub fn hindrance(&self) -> Hindrance {
        let missing = self.missing_capabilities();
        match (missing.is_empty(), self.user) {
            (false, Uid(0)) => Hindrance::Capabilities(missing),
            (false, _) => Hindrance::NotRoot,
            (true, _) if self.ptrace_scope.is_some_and(|scope| scope >= NO_ATTACH) => {
                Hindrance::PtraceScope
            }
            (true, _) if self.namespace == Namespace::Below => Hindrance::Namespace,
            (true, _) => Hindrance::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ALL: &str = "000001ffffffffff";

    /// Our rights in a `/proc` that says this.
    fn rights(
        uid: u32,
        capabilities: &str,
        namespace: &str,
        scope: Option<&str>,
    ) -> Result<Rights> {
        let root = tempfile::tempdir().expect("a temporary directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, text).expect("written");
        };
        let status = format!("Name:\tx\nTgid:\t7\nUid:\t0\t{uid}\t0\t0\nCapEff:\t{capabilities}\n");
        write("self/status", &status);
        fs::create_dir(root.path().join("self/ns")).expect("created");
        std::os::unix::fs::symlink(namespace, root.path().join("self/ns/user")).expect("made");
        if let Some(scope) = scope {
            write("sys/kernel/yama/ptrace_scope", scope);
        }
        Rights::read(root.path())
    }

    #[test]
    fn what_is_missing_is_named_and_not_root_where_we_are_root() {
        let hindrance = |uid, capabilities, namespace, scope| {
            rights(uid, capabilities, namespace, scope).expect("good").hindrance()
        };
        assert_eq!(hindrance(1000, "0", INITIAL_NAMESPACE, Some("1\n")), Hindrance::NotRoot);
        let docker = hindrance(0, "00000000a80425fb", INITIAL_NAMESPACE, None);
        let missing = vec!["CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_NICE"];
        assert_eq!(docker, Hindrance::Capabilities(missing));
        assert!(
            docker.to_string().contains("CAP_SYS_PTRACE") && !docker.to_string().contains("sudo")
        );
        assert_eq!(hindrance(0, ALL, INITIAL_NAMESPACE, Some("3\n")), Hindrance::PtraceScope);
        assert_eq!(hindrance(0, ALL, "user:[4026532000]", None), Hindrance::Namespace);
        assert_eq!(hindrance(0, ALL, INITIAL_NAMESPACE, Some("1\n")), Hindrance::Unknown);
        assert_eq!(hindrance(1000, ALL, INITIAL_NAMESPACE, None), Hindrance::Unknown);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(matches!(
            rights(0, "many", INITIAL_NAMESPACE, None),
            Err(Error::Malformed { line: 4, .. })
        ));
        assert!(matches!(Rights::read(Path::new("/nonexistent")), Err(Error::Missing { .. })));
    }
}
