//! A number that a simulated experiment takes in says by its type where it comes from.

use super::source;
use super::tree::{Tree, Violation};

const EXPERIMENTS: &str = "crates/lab/src/experiment/sim/";
/// The types of a bare number.
const NUMBERS: [&str; 10] =
    ["f64", "u16", "u32", "u64", "usize", "Bytes", "Nanos", "BasePages", "HugePages", "Share"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.texts(|path| path.starts_with(EXPERIMENTS))
        .flat_map(|(path, text)| {
            let lines = source::lines(text).into_iter();
            lines.filter(|line| !line.test && !line.is_allowed()).filter_map(move |line| {
                let name = bare(&line.code)?;
                let message = format!(
                    "`{name}` does not say where it comes from, make it a `Constant`, \
                     or end the line with `// tidy: allow(REASON)` if no run takes it in"
                );
                Some(Violation::new(path, line.number, message))
            })
        })
        .collect()
}

/// The name of a constant that is a bare number. Several at once are the axis of a figure, or what a paper found.
fn bare(code: &str) -> Option<&str> {
    let (_, after) = code.split_once("const ").or_else(|| code.split_once("static "))?;
    let (name, after) = after.split_once(": ")?;
    let (kind, _) = after.split_once('=')?;
    (!name.contains('(') && NUMBERS.contains(&kind.trim())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    fn finds(line: &str) -> usize {
        let text = format!("//! A.\n{line}\n");
        say(check, &[("crates/lab/src/experiment/sim/emd_fig1.rs", &text)]).len()
    }

    #[test]
    fn a_bare_number_is_found() {
        assert_eq!(finds("const MEMORY: Bytes = Bytes::from_gib(32);"), 1);
        assert_eq!(finds("    pub(super) const CYCLES: f64 = 3.0;"), 1);
    }

    #[test]
    fn what_says_where_it_comes_from_is_none() {
        assert_eq!(finds("static MEMORY: Constant<Bytes> ="), 0);
        assert_eq!(finds("const NAME: &str = \"a\";"), 0);
        assert_eq!(finds("const fn cycles(self) -> f64 {"), 0);
        assert_eq!(finds("const FRACTIONS: [f64; 2] = [0.2, 0.4];"), 0);
        assert_eq!(finds("const FASTER: f64 = 1.15; // tidy: allow(the paper's number)"), 0);
    }
}
