//! Which crate may know which: ARCHITECTURE.md's table, held.

use super::manifest;
use super::source;
use super::tree::{Tree, Violation};

/// Each crate and the crates of the workspace that it may use. What is not here is not allowed.
const LAYERS: [(&str, &[&str]); 8] = [
    ("policy", &[]),
    ("kernel", &["policy"]),
    ("sim", &["policy"]),
    // Of `sim` it uses the trace format: it writes what a simulated machine replays.
    ("manager", &["policy", "kernel", "sim"]),
    ("runtime", &["policy", "kernel"]),
    ("graph", &["policy", "kernel"]),
    ("lab", &["policy", "kernel", "sim", "manager", "runtime", "graph"]),
    ("cli", &["policy", "kernel", "sim", "manager", "runtime", "graph", "lab"]),
];

/// What `policy` may depend on: the mathematics that `core` leaves to `std`, itself pure.
const PURE: [&str; 1] = ["libm"];

/// The modules of `policy` that `kernel` may use: the words, not the decisions.
const WORDS: [&str; 2] = ["units", "region"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let manifests = tree.texts(|path| path.starts_with("crates/") && path.ends_with("/Cargo.toml"));
    let sources = tree.texts(|path| path.starts_with("crates/") && source::ships(path));
    manifests
        .flat_map(|(path, text)| dependencies(path, text))
        .chain(sources.flat_map(|(path, text)| uses(path, text)))
        .collect()
}

/// What the manifest of a crate may not ask for.
fn dependencies(path: &str, text: &str) -> Vec<Violation> {
    let name = path.split('/').nth(1).unwrap_or_default();
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        let message = format!("crate {name} has no layer, give it one in xtask/src/tidy/layers.rs");
        return vec![Violation::new(path, 1, message)];
    };
    manifest::entries(text)
        .filter(manifest::Entry::is_shipped_dependency)
        .filter_map(|entry| Some((entry.line, refusal(name, allowed, entry.key)?)))
        .map(|(line, message)| Violation::new(path, line, message))
        .collect()
}

/// Why crate `name` may not depend on `dependency`, if it may not.
fn refusal(name: &str, allowed: &[&str], dependency: &str) -> Option<String> {
    if name == "policy" {
        return (!PURE.contains(&dependency)).then(|| {
            format!("policy depends on nothing but core, alloc and {PURE:?}, remove {dependency}")
        });
    }
    let layer = dependency.strip_prefix("superpage-")?;
    (!allowed.contains(&layer))
        .then(|| format!("{name} must not know {layer}, move the code to a crate that may"))
}

/// What the source of a crate may not name.
fn uses(path: &str, text: &str) -> Vec<Violation> {
    let rule = match path.split('/').nth(1) {
        Some("policy") => standard_library,
        Some("kernel") => decisions,
        _ => return Vec::new(),
    };
    source::lines(text)
        .iter()
        .filter(|line| !line.test)
        .filter(|line| line.words().any(|(word, after)| rule(word, after).is_some()))
        .filter_map(|line| {
            let message = line.words().find_map(|(word, after)| rule(word, after))?;
            Some(Violation::new(path, line.number, message))
        })
        .collect()
}

fn standard_library(word: &str, after: &str) -> Option<&'static str> {
    (word == "std" && after.starts_with("::")).then_some(
        "`std::` in policy, use core or alloc, and take what the system knows as an argument",
    )
}

fn decisions(word: &str, after: &str) -> Option<&'static str> {
    let module = after.strip_prefix("::").unwrap_or_default();
    let module = module.split(|c: char| !c.is_alphanumeric() && c != '_').next();
    (word == "superpage_policy" && !module.is_some_and(|module| WORDS.contains(&module)))
        .then_some("kernel knows only superpage_policy::units and ::region, name one of them or decide elsewhere")
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    #[test]
    fn policy_depends_on_nothing() {
        let text = "[dependencies]\nserde.workspace = true\nlibm = \"1\"\n[dev-dependencies]\nproptest = \"1\"\n";
        assert_eq!(
            say(check, &[("crates/policy/Cargo.toml", text)]),
            [
                "crates/policy/Cargo.toml:2: policy depends on nothing but core, alloc and [\"libm\"], remove serde"
            ]
        );
    }

    #[test]
    fn crates_use_only_the_layers_below() {
        let text =
            "[dependencies]\nlibc = \"1\"\nsuperpage-policy = \"1\"\nsuperpage-manager = \"1\"\n";
        assert_eq!(
            say(check, &[("crates/kernel/Cargo.toml", text)]),
            [
                "crates/kernel/Cargo.toml:4: kernel must not know manager, move the code to a crate that may"
            ]
        );
        assert!(say(check, &[("crates/lab/Cargo.toml", text)]).is_empty());
    }

    #[test]
    fn a_new_crate_needs_a_layer() {
        assert_eq!(say(check, &[("crates/new/Cargo.toml", "[package]\n")]).len(), 1);
    }

    #[test]
    fn policy_does_not_name_the_standard_library() {
        let text = "//! Not std::fs.\nuse core::fmt;\nuse std::fmt;\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\n";
        let said = say(check, &[("crates/policy/src/a.rs", text)]);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("crates/policy/src/a.rs:3: `std::` in policy"));
        assert!(say(check, &[("crates/manager/src/a.rs", text)]).is_empty());
    }

    #[test]
    fn kernel_uses_the_words_and_not_the_decisions() {
        let finds = |line: &str| {
            let text = format!("//! A.\n{line}\n");
            !say(check, &[("crates/kernel/src/a.rs", &text)]).is_empty()
        };
        assert!(!finds("use superpage_policy::units::Bytes;"));
        assert!(!finds("pub use superpage_policy::region;"));
        assert!(finds("use superpage_policy::debloat::Emd;"));
        assert!(finds("use superpage_policy::{units::Bytes, debloat::Emd};"));
        assert!(finds("use superpage_policy as policy;"));
    }
}
