//! A Cargo manifest by sections and keys, with line numbers. Not a TOML parser: it reads the
//! plain form that this repository's manifests keep to.

/// One key of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// `workspace.dependencies`, without brackets.
    pub(crate) section: &'a str,
    /// `serde`, of `serde.workspace = true` too.
    pub(crate) key: &'a str,
    /// What is after the `=`.
    pub(crate) value: &'a str,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Entry<'_> {
    /// Is it a dependency that users get, rather than tests?
    pub(crate) fn is_shipped_dependency(&self) -> bool {
        ["dependencies", "build-dependencies"].iter().any(|kind| self.is_in(kind))
    }

    /// Is it a dependency of any kind?
    pub(crate) fn is_dependency(&self) -> bool {
        self.is_shipped_dependency() || self.is_in("dev-dependencies")
    }

    /// In the section `kind`, or in that of one target: `target.'cfg(unix)'.dependencies`.
    fn is_in(&self, kind: &str) -> bool {
        let of_target = self.section.strip_prefix("target.");
        self.section == kind
            || of_target
                .is_some_and(|rest| rest.strip_suffix(kind).is_some_and(|r| r.ends_with('.')))
    }
}

/// The keys of the manifest `text`. `[dependencies.serde]` counts as the key it stands for.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    (1..).zip(text.lines()).filter_map(move |(line, text)| {
        let text = text.trim();
        if let Some(header) = text.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = header;
            let (parent, key) = header.rsplit_once('.')?;
            return parent.ends_with("dependencies").then_some(Entry {
                section: parent,
                key,
                value: "",
                line,
            });
        }
        let (key, value) = text.split_once('=').filter(|_| !text.starts_with('#'))?;
        let key = key.split('.').next()?.trim().trim_matches('"');
        Some(Entry { section, key, value: value.trim(), line })
    })
}

/// The string at `key` of `section`.
pub(crate) fn value(text: &str, section: &str, key: &str) -> Option<String> {
    entries(text)
        .find(|entry| entry.section == section && entry.key == key)
        .map(|entry| entry.value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Entry, entries, value};

    #[test]
    fn keys_are_read_with_their_section_and_line() {
        let text = "[package]\nname = \"a\"\n\n# x = 1\n[dependencies]\nserde.workspace = true\n";
        let found: Vec<_> = entries(text).collect();
        assert_eq!(
            found,
            [
                Entry { section: "package", key: "name", value: "\"a\"", line: 2 },
                Entry { section: "dependencies", key: "serde", value: "true", line: 6 },
            ]
        );
        assert_eq!(value(text, "package", "name").as_deref(), Some("a"));
        assert_eq!(value(text, "package", "version"), None);
    }

    #[test]
    fn every_way_to_write_a_dependency_is_one() {
        let text = "[dependencies.a]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\nb = \"1\"\n\
                    [dev-dependencies]\nc = \"1\"\n[features]\nd = []\n";
        let names = |wanted: &dyn Fn(&Entry<'_>) -> bool| {
            entries(text).filter(wanted).map(|entry| entry.key).collect::<Vec<_>>()
        };
        assert_eq!(names(&|entry| entry.is_dependency()), ["a", "b", "c"]);
        assert_eq!(names(&|entry| entry.is_shipped_dependency()), ["a", "b"]);
    }
}
