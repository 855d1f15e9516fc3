//! `/proc/PID/cgroup`: the path of a process's group in each hierarchy, as our cgroup namespace shows it.
//!
//! The path of a process outside that namespace begins with `/..`, and is no path below any mount.
//! [cgroup_namespaces(7)](https://man7.org/linux/man-pages/man7/cgroup_namespaces.7.html).

use super::Version;
use crate::error::{Error, Result};
use crate::text;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// A line of the file.
struct Membership<'a> {
    hierarchy: u64,
    controllers: &'a [u8],
    group: &'a Path,
}

impl<'a> Membership<'a> {
    /// `number:controllers:/path`; there may be colons in the path.
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let hierarchy = text::decimal(parts.next()?)?;
        let controllers = parts.next()?;
        let group = Path::new(OsStr::from_bytes(parts.next()?));
        group.is_absolute().then_some(Self { hierarchy, controllers, group })
    }

    /// Whether this is the line about the memory hierarchy, if that has `version`.
    fn is_in(&self, version: Version) -> bool {
        match version {
            Version::V1 => self.controllers.split(|byte| *byte == b',').any(|c| c == b"memory"),
            Version::V2 => self.hierarchy == 0 && self.controllers.is_empty(),
        }
    }
}

/// The path of the group in the memory hierarchy of `version`, by the text of the file at `path`; `None` if there is no line
/// about that hierarchy.
///
/// # Errors
/// [`Error::Malformed`].
pub(super) fn group<'a>(text: &'a [u8], path: &Path, version: Version) -> Result<Option<&'a Path>> {
    for (number, line) in text::lines(text) {
        let membership = Membership::of(line)
            .ok_or_else(|| Error::malformed(path, number, "'number:controllers:/path'", line))?;
        if membership.is_in(version) {
            return Ok(Some(membership.group));
        }
    }
    Ok(None)
}

/// Whether a group lies outside our cgroup namespace, by its path.
pub(super) fn leaves_namespace(group: &Path) -> bool {
    group.components().any(|part| part == Component::ParentDir)
}
