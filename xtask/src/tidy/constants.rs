//! The sizes of pages are written once, in `units`; everywhere else they have a name.

use super::source::{self, Line};
use super::tree::{Tree, Violation};

const HOME: &str = "crates/units/src/size.rs";
const NUMBERS: [&str; 3] = ["4096", "512", "2097152"];
const SHIFTS: [&str; 2] = ["12", "21"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.texts(|path| path.starts_with("crates/") && source::ships(path) && path != HOME)
        .flat_map(|(path, text)| {
            source::lines(text)
                .into_iter()
                .filter(|line| !line.test && !line.is_allowed())
                .filter_map(move |line| Some(violation(path, &line, &size(&line)?)))
        })
        .collect()
}

fn violation(path: &str, line: &Line<'_>, what: &str) -> Violation {
    let message = format!(
        "`{what}`, use the constants of superpage_units, \
         or end the line with `// tidy: allow(REASON)` if it is not the size of a page"
    );
    Violation::new(path, line.number, message)
}

/// The first number of a line that looks like a page's size.
fn size(line: &Line<'_>) -> Option<String> {
    let number_word = line
        .words()
        .map(|(word, _)| number(word))
        .find(|number| NUMBERS.contains(&number.as_str()));
    let shift = line.code.split("<<").skip(1).find_map(|after| {
        let by = after.trim_start_matches(['=', ' ']);
        let by = number(by.split(|c: char| !c.is_alphanumeric() && c != '_').next()?);
        SHIFTS.contains(&by.as_str()).then(|| format!("<< {by}"))
    });
    number_word.or(shift)
}

/// A number's digits without underscores and type: of `4_096_u64`, 4096. Other words as they are.
fn number(word: &str) -> String {
    let bare = word.replace('_', "");
    match bare.find(|c: char| !c.is_ascii_digit()) {
        Some(end) if end > 0 && bare[end..].starts_with(['u', 'i', 'f']) => bare[..end].to_owned(),
        _ => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    fn finds(line: &str) -> bool {
        let text = format!("//! A.\n{line}\n");
        !say(check, &[("crates/lab/src/a.rs", &text)]).is_empty()
    }

    #[test]
    fn sizes_of_pages_are_found_in_every_spelling() {
        for line in [
            "let a = 4096;",
            "let a = 4_096_u64;",
            "let a = b / 512.0;",
            "let a = [0u8; 512usize];",
            "let a = 2_097_152;",
            "let a = b << 12;",
            "let a = 1u64<<21;",
            "a <<= 12;",
        ] {
            assert!(finds(line), "{line}");
        }
    }

    #[test]
    fn other_numbers_and_words_about_them_are_fine() {
        for line in [
            "let a = 40960 + x4096 + 0x512;",
            "let a = 1 << 20;",
            "// 4096 bytes",
            "let a = \"512 base pages\";",
            "let a = 512; // tidy: allow(buckets of a histogram)",
            "#[cfg(test)]\nmod tests {\n    const A: u64 = 4096;\n}",
        ] {
            assert!(!finds(line), "{line}");
        }
    }

    #[test]
    fn their_home_and_tests_may_spell_them() {
        let text = "//! A.\nconst A: u64 = 4096;\n";
        for path in ["crates/units/src/size.rs", "crates/policy/tests/a.rs", "xtask/src/main.rs"] {
            assert!(say(check, &[(path, text)]).is_empty(), "{path}");
        }
    }
}
