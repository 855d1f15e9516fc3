//! Which processes a list lets through: an include and an exclude list, by number, command, user and
//! memory cgroup. [`crate::find`] tells who a process is.
//!
//! Where a list names cgroups and nobody can tell which one a process is in, the process is let through
//! by none.

use crate::nodes::Allowed;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use superpage_kernel::status::Uid;
use superpage_units::Pid;

/// Describes processes; one that matches any entry matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Process numbers.
    pub pids: Vec<Pid>,
    /// Commands, as `ps -o comm` shows them (the first 15 bytes).
    pub commands: Vec<String>,
    /// Effective user ids.
    pub users: Vec<Uid>,
    /// Directories of memory cgroups; processes in groups below count too.
    pub cgroups: Vec<PathBuf>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it matches this process; `None` if that depends on its cgroup, and that is not known.
    fn matches(&self, identity: &Identity) -> Option<bool> {
        let is_in = |group: &Path| self.cgroups.iter().any(|wanted| group.starts_with(wanted));
        let is_named = self.pids.contains(&identity.pid)
            || self.commands.contains(&identity.command)
            || self.users.contains(&identity.user);
        match &identity.cgroup {
            _ if is_named => Some(true),
            _ if self.cgroups.is_empty() => Some(false),
            Membership::Known(group) => Some(is_in(group)),
            Membership::Unknown => None,
        }
    }
}

/// Who a process is: all that lists go by, and where it may have memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: Pid,
    /// Its command, as `ps -o comm` shows it.
    pub command: String,
    /// Its effective user.
    pub user: Uid,
    /// Its memory cgroup.
    pub cgroup: Membership,
    /// The nodes that its cpuset lets it use; `None` on a machine with one.
    pub nodes: Option<Allowed>,
}

/// What is known of a process's memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Its directory.
    Known(Arc<Path>),
    /// It cannot be told: no cgroups are mounted here, or the process's cgroup lies outside what is, or outside our cgroup
    /// namespace.
    Unknown,
}

impl Membership {
    /// Its directory, if that is known.
    pub(crate) fn path(&self) -> Option<&Arc<Path>> {
        match self {
            Self::Known(group) => Some(group),
            Self::Unknown => None,
        }
    }
}

impl Identity {
    /// The identity of a program that no list names.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let cgroup = Membership::Known(Path::new("/").into());
        Self { pid: Pid(1), command: "program".to_owned(), user: Uid(0), cgroup, nodes: None }
    }

    /// The directory of its memory cgroup, if that is known.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Path> {
        self.cgroup.path().map(AsRef::as_ref)
    }

    /// The first of `rules` that is about it; `None` if there is none.
    ///
    /// # Errors
    /// [`CannotTell`] if that depends on its cgroup, and that is not known.
    pub fn first_of<'r, R>(
        &self,
        rules: &'r [R],
        who: impl Fn(&R) -> &Filter,
    ) -> Result<Option<&'r R>, CannotTell> {
        for rule in rules {
            match who(rule).matches(self) {
                Some(true) => return Ok(Some(rule)),
                Some(false) => {}
                None => return Err(CannotTell),
            }
        }
        Ok(None)
    }
}

/// A list or rule names cgroups, and nobody can tell which one a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotTell;

/// An include and an exclude list. An empty include list lets everything through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these, if any are given.
    pub include: Filter,
    /// None of these, also if they are included.
    pub exclude: Filter,
    /// Only processes in this memory cgroup (its directory) or in groups below it.
    pub within: Option<PathBuf>,
}

impl Selection {
    /// Whether it lets this process through.
    #[must_use]
    pub fn admits(&self, identity: &Identity) -> bool {
        let included = self.include.is_empty() || self.include.matches(identity) == Some(true);
        let within = match (&self.within, identity.cgroup()) {
            (Some(wanted), Some(group)) => group.starts_with(wanted),
            (Some(_), None) => false,
            (None, _) => true,
        };
        within && included && self.exclude.matches(identity) == Some(false)
    }

    /// Whether it may let a process through and later not any more: by all but its number.
    #[must_use]
    pub fn may_change(&self) -> bool {
        let changes = |filter: &Filter| !filter.commands.is_empty() || !filter.users.is_empty();
        self.asks_for_cgroups() || changes(&self.include) || changes(&self.exclude)
    }

    /// Whether it lets processes through by their cgroups.
    #[must_use]
    pub fn asks_for_cgroups(&self) -> bool {
        let filters = [&self.include, &self.exclude];
        self.within.is_some() || filters.iter().any(|filter| !filter.cgroups.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cgroup: Membership) -> Identity {
        Identity { cgroup, ..Identity::for_tests() }
    }

    fn selection(include: &Filter, exclude: &Filter) -> Selection {
        Selection { include: include.clone(), exclude: exclude.clone(), within: None }
    }

    #[test]
    fn exclusion_wins_over_inclusion() {
        let us = Filter { pids: vec![Pid(1)], ..Filter::default() };
        let nobody = Filter::default();
        let other = Filter { commands: vec!["no such command".into()], ..Filter::default() };
        let is_admitted =
            |include, exclude| selection(include, exclude).admits(&Identity::for_tests());
        assert!(is_admitted(&nobody, &nobody));
        assert!(is_admitted(&us, &other));
        assert!(!is_admitted(&other, &nobody));
        assert!(!is_admitted(&us, &us));
    }

    #[test]
    fn where_cgroups_cannot_be_told_lists_that_name_some_let_nobody_through() {
        let unknown = identity(Membership::Unknown);
        let group = Filter { cgroups: vec!["/sys/fs/cgroup/a".into()], ..Filter::default() };
        let named = Filter { pids: vec![Pid(1)], ..group.clone() };
        let none = Filter::default();
        assert!(selection(&none, &none).admits(&unknown), "no list names cgroups");
        assert!(!selection(&none, &group).admits(&unknown));
        assert!(!selection(&group, &none).admits(&unknown));
        assert!(selection(&named, &none).admits(&unknown), "its number is on the list");
        let within = Some("/sys/fs/cgroup/a".into());
        assert!(!Selection { within, ..Selection::default() }.admits(&unknown));
        // Of rules, those before the one that names cgroups still count.
        let first =
            |rules: &[Filter]| unknown.first_of(rules, |rule| rule).map(|rule| rule.is_some());
        assert_eq!(first(std::slice::from_ref(&group)), Err(CannotTell));
        assert_eq!(first(&[named, group]), Ok(true));
        assert_eq!(first(&[none]), Ok(false));
    }
}
