//! Where `unsafe` may be: in `kernel`, in `runtime`, and in a file that says so of `array`, its bindings for C and Python, `lab`,
//! `launch`, `malloc` or `uapi`, and in one of `graph`.

use super::source;
use super::tree::{Tree, Violation};

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.texts(|path| path.ends_with(".rs"))
        .filter(|(path, text)| !may(path, text))
        .flat_map(|(path, text)| {
            source::lines(text)
                .into_iter()
                .filter(|line| line.words().any(|(word, _)| word == "unsafe"))
                .map(move |line| {
                    let message = "`unsafe`, move it to a file of crates/kernel";
                    Violation::new(path, line.number, message)
                })
        })
        .collect()
}

/// The places in which a file may say that it needs unsafe code.
const HOMES: [&str; 8] = [
    "crates/array/",
    "crates/array_c/",
    "crates/graph/src/atomic.rs",
    "crates/lab/",
    "crates/launch/",
    "crates/malloc/",
    "crates/uapi/",
    "python/",
];

fn may(path: &str, text: &str) -> bool {
    // rustfmt breaks a long attribute into lines.
    let opts_in = || text.split_whitespace().collect::<String>().contains("#![expect(unsafe_code");
    path.starts_with("crates/kernel/")
        || path.starts_with("crates/runtime/")
        || (HOMES.iter().any(|home| path.starts_with(home)) && opts_in())
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    const BLOCK: &str = "//! A.\nfn f() { unsafe { g() } }\n";

    #[test]
    fn unsafe_is_for_the_kernel_boundary() {
        assert!(say(check, &[("crates/kernel/src/a.rs", BLOCK)]).is_empty());
        let said = say(check, &[("crates/policy/src/a.rs", BLOCK)]);
        assert_eq!(
            said,
            ["crates/policy/src/a.rs:2: `unsafe`, move it to a file of crates/kernel"]
        );
    }

    #[test]
    fn a_workload_opts_in() {
        let text = format!("//! A.\n#![expect(unsafe_code, reason = \"mmap\")]\n{BLOCK}");
        assert!(say(check, &[("crates/lab/src/a.rs", &text)]).is_empty());
        assert_eq!(say(check, &[("crates/lab/src/a.rs", BLOCK)]).len(), 1);
        assert_eq!(say(check, &[("crates/cli/src/a.rs", &text)]).len(), 1);
    }

    #[test]
    fn the_word_in_a_comment_or_a_name_is_nothing() {
        let text = "//! Nothing unsafe.\n#![deny(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";\n";
        assert!(say(check, &[("crates/cli/src/a.rs", text)]).is_empty());
    }
}
