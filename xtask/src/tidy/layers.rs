//! Which crate may know which: ARCHITECTURE.md's table, held.

use super::manifest;
use super::source;
use super::tree::{Tree, Violation};

/// Each crate and the crates of the workspace that it may use. What is not here is not allowed.
const LAYERS: [(&str, &[&str]); 15] = [
    ("units", &[]),
    ("uapi", &["units"]),
    ("launch", &["units"]),
    ("trace", &["units"]),
    ("policy", &["units"]),
    ("kernel", &["units", "uapi"]),
    ("sim", &["units", "policy", "trace"]),
    ("manager", &["units", "policy", "kernel", "trace"]),
    ("runtime", &["units", "uapi", "policy", "launch"]),
    ("malloc", &["units", "launch"]),
    ("array", &["units", "kernel"]),
    ("array_c", &["array"]),
    ("graph", &["units", "policy", "kernel", "array"]),
    ("lab", &["units", "policy", "kernel", "trace", "sim", "manager", "runtime", "array", "graph"]),
    (
        "cli",
        &[
            "units", "policy", "kernel", "launch", "trace", "sim", "manager", "array", "graph",
            "lab",
        ],
    ),
];

/// The crates that are pure: `no_std`, and of other packages only what is named here. `libm` is the
/// mathematics that `core` leaves to `std`. `uapi` makes system calls, but nothing else is outside of it.
const PURE: [(&str, &[&str]); 4] = [
    ("units", &[]),
    ("uapi", &["superpage-units", "bitflags", "linux-raw-sys", "rustix"]),
    ("launch", &["superpage-units"]),
    ("policy", &["superpage-units", "libm"]),
];

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
    if let Some((_, pure)) = PURE.iter().find(|(crate_name, _)| *crate_name == name) {
        return (!pure.contains(&dependency)).then(|| {
            format!("{name} depends on nothing but core, alloc and {pure:?}, remove {dependency}")
        });
    }
    let layer = dependency.strip_prefix("superpage-")?;
    (!allowed.contains(&layer))
        .then(|| format!("{name} must not know {layer}, move the code to a crate that may"))
}

/// What the source of a pure crate may not name: the standard library.
fn uses(path: &str, text: &str) -> Vec<Violation> {
    let name = path.split('/').nth(1).unwrap_or_default();
    if !PURE.iter().any(|(pure, _)| *pure == name) {
        return Vec::new();
    }
    source::lines(text)
        .iter()
        .filter(|line| !line.test)
        .filter(|line| line.words().any(|(word, after)| word == "std" && after.starts_with("::")))
        .map(|line| {
            let message = format!(
                "`std::` in {name}, use core or alloc, and take what the system knows as an argument"
            );
            Violation::new(path, line.number, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    #[test]
    fn pure_crates_depend_on_little() {
        let text = "[dependencies]\nserde.workspace = true\nlibm = \"1\"\n[dev-dependencies]\nproptest = \"1\"\n";
        assert_eq!(
            say(check, &[("crates/policy/Cargo.toml", text)]),
            [
                "crates/policy/Cargo.toml:2: policy depends on nothing but core, alloc and [\"superpage-units\", \"libm\"], remove serde"
            ]
        );
    }

    #[test]
    fn crates_use_only_the_layers_below() {
        let text =
            "[dependencies]\nlibc = \"1\"\nsuperpage-units = \"1\"\nsuperpage-policy = \"1\"\n";
        assert_eq!(
            say(check, &[("crates/kernel/Cargo.toml", text)]),
            [
                "crates/kernel/Cargo.toml:4: kernel must not know policy, move the code to a crate that may"
            ]
        );
        assert!(say(check, &[("crates/lab/Cargo.toml", text)]).is_empty());
    }

    #[test]
    fn a_new_crate_needs_a_layer() {
        assert_eq!(say(check, &[("crates/new/Cargo.toml", "[package]\n")]).len(), 1);
    }

    #[test]
    fn pure_crates_do_not_name_the_standard_library() {
        let text = "//! Not std::fs.\nuse core::fmt;\nuse std::fmt;\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\n";
        let said = say(check, &[("crates/policy/src/a.rs", text)]);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("crates/policy/src/a.rs:3: `std::` in policy"));
        assert_eq!(say(check, &[("crates/units/src/a.rs", text)]).len(), 1);
        assert!(say(check, &[("crates/manager/src/a.rs", text)]).is_empty());
    }
}
