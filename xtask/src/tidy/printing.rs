//! Only `cli` prints; every other crate gives values, and what is worth a line, to tracing.

use super::source;
use super::tree::{Tree, Violation};

const MACROS: [&str; 4] = ["print", "println", "eprint", "eprintln"];
const STREAMS: [&str; 2] = ["stdout", "stderr"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.texts(|path| {
        path.starts_with("crates/") && source::ships(path) && !path.starts_with("crates/cli/")
    })
    .flat_map(|(path, text)| {
        source::lines(text).into_iter().filter(|line| !line.test && !line.is_allowed()).filter_map(
            move |line| {
                let (word, _) = line.words().find(|(word, after)| prints(word, after))?;
                let message =
                    format!("`{word}`, return a value or an error: only crates/cli prints");
                Some(Violation::new(path, line.number, message))
            },
        )
    })
    .collect()
}

/// A printing macro, or `std::io::stdout()`; not `Command`'s method, which takes an argument.
fn prints(word: &str, after: &str) -> bool {
    (MACROS.contains(&word) && after.starts_with('!'))
        || (STREAMS.contains(&word) && after.starts_with("()"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    #[test]
    fn only_the_command_line_prints() {
        for line in ["println!(\"a\");", "eprint!();", "let out = io::stdout().lock();"] {
            let text = format!("//! A.\n{line}\n");
            assert_eq!(say(check, &[("crates/lab/src/a.rs", &text)]).len(), 1, "{line}");
            assert!(say(check, &[("crates/cli/src/a.rs", &text)]).is_empty(), "{line}");
            assert!(say(check, &[("crates/lab/tests/a.rs", &text)]).is_empty(), "{line}");
        }
    }

    #[test]
    fn what_does_not_print_is_fine() {
        for line in
            ["writeln!(f)?;", "command.stdout(Stdio::piped());", "// println!", "let print = 1;"]
        {
            let text = format!("//! A.\n{line}\n");
            assert!(say(check, &[("crates/lab/src/a.rs", &text)]).is_empty(), "{line}");
        }
    }
}
