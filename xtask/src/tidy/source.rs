//! Rust source, line by line, with what is only said (comments, strings) apart from what is done.
//!
//! Not a parser: it knows where comments and literals begin and end, and which lines belong to
//! an item under `#[cfg(test)]`. That is all the checks need.

/// One line of a source file.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// Counted from 1.
    pub(crate) number: usize,
    /// As it is written.
    pub(crate) text: &'a str,
    /// With comments and the insides of strings and characters blanked out.
    pub(crate) code: String,
    /// Does it belong to an item that only tests compile?
    pub(crate) test: bool,
}

impl Line<'_> {
    /// The identifiers, keywords and numbers of the code, each with what follows it.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.code.as_str();
        std::iter::from_fn(move || {
            rest = &rest[rest.find(is_word)?..];
            let (word, after) = rest.split_at(word_length(rest));
            rest = after;
            Some((word, after))
        })
    }

    /// Does the line ask to be let off, and give a reason?
    pub(crate) fn is_allowed(&self) -> bool {
        let asked = self.text.trim_end().rsplit_once("// tidy: allow(");
        asked
            .and_then(|(_, reason)| reason.strip_suffix(')'))
            .is_some_and(|reason| !reason.trim().is_empty())
    }
}

/// The lines of a source file.
pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    let code = blank(text);
    let tests = test_lines(&code);
    text.lines()
        .zip(code.lines())
        .enumerate()
        .map(|(index, (text, code))| Line {
            number: index + 1,
            text,
            code: code.to_owned(),
            test: tests.iter().any(|range| range.contains(&index)),
        })
        .collect()
}

/// Is the file at `path` compiled into what ships? Tests, benches and examples are not.
pub(crate) fn ships(path: &str) -> bool {
    let aside = ["/tests/", "/benches/", "/examples/"];
    path.ends_with(".rs")
        && path.contains("/src/")
        && !path.ends_with("/tests.rs")
        && !aside.iter().any(|part| path.contains(part))
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word_length(text: &str) -> usize {
    text.find(|character| !is_word(character)).unwrap_or(text.len())
}

/// `text` with everything that is not code turned into spaces; lines stay where they are.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (length, is_code) = token(rest);
        let (token, after) = rest.split_at(length);
        if is_code {
            out.push_str(token);
        } else {
            out.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    out
}

/// The length of the first token of `text`, which is not empty, and whether it is code.
fn token(text: &str) -> (usize, bool) {
    if text.starts_with("//") {
        return (text.find('\n').unwrap_or(text.len()), false);
    }
    if text.starts_with("/*") {
        return (block_comment(text), false);
    }
    if let Some(length) = raw_string(text) {
        return (length, false);
    }
    match text.chars().next() {
        Some('"') => (quoted(text, '"'), false),
        Some('\'') => match character(text) {
            Some(length) => (length, false),
            None => (1, true),
        },
        Some(first) if is_word(first) => (word_length(text), true),
        Some(first) => (first.len_utf8(), true),
        None => (0, true),
    }
}

/// The length of the block comment that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of the raw string that `text` begins with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        text.starts_with(&format!("{prefix}\"")) || text.starts_with(&format!("{prefix}#"))
    })?;
    let hashes = text[prefix.len()..].chars().take_while(|c| *c == '#').count();
    let open = prefix.len() + hashes;
    // `r#name` is an identifier.
    let inside = text[open..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&close).map_or(inside.len(), |at| at + close.len());
    Some(open + 1 + end)
}

/// The length of the literal between two `quote`s that `text` begins with.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            found if found == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the character literal that `text` begins with; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut characters = text.chars().skip(1);
    let first = characters.next()?;
    (first == '\\' || characters.next() == Some('\'')).then(|| quoted(text, '\''))
}

/// The lines, counted from 0, of the items under `#[cfg(test)]`.
fn test_lines(code: &str) -> Vec<std::ops::Range<usize>> {
    let line_at = |at: usize| code[..at].matches('\n').count();
    code.match_indices("#[cfg(test)]")
        .map(|(start, attribute)| {
            let from = start + attribute.len();
            line_at(start)..line_at(from + item_length(&code[from..])) + 1
        })
        .collect()
}

/// How far the item at the start of `code` goes: to its `;`, or to the end of its braces.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth <= 1 => return at,
            '}' => depth -= 1,
            ';' if depth == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::{blank, lines, ships};

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(blank("a /* b /* c */ d */ e // f\ng"), "a                   e     \ng");
        assert_eq!(blank(r#"f("a\"b", 'c', '\'', b'x')"#), "f(      ,    ,     , b   )");
        assert_eq!(blank("r#\"a\"b\"# c r#type"), "         c r#type");
    }

    #[test]
    fn lifetimes_are_code() {
        assert_eq!(blank("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
    }

    #[test]
    fn every_line_keeps_its_place() {
        let text = "let a = \"x\ny\nz\"; // é\nb();\n";
        assert_eq!(blank(text).lines().count(), text.lines().count());
        assert_eq!(lines(text)[3].code, "b();");
    }

    #[test]
    fn test_items_are_marked_to_their_last_brace() {
        let text = "a();\n#[cfg(test)]\nmod tests {\n fn f() { \"}\"; }\n}\nb();\n#[cfg(test)]\nuse c;\nd();\n";
        let marked: Vec<_> = lines(text).iter().map(|line| line.test).collect();
        assert_eq!(marked, [false, true, true, true, true, false, true, true, false]);
    }

    #[test]
    fn leave_needs_a_reason() {
        let allowed = |text| lines(text)[0].is_allowed();
        assert!(allowed("f(); // tidy: allow(a table of the paper)"));
        assert!(!allowed("f(); // tidy: allow()"));
        assert!(!allowed("f(); // tidy: allow"));
    }

    #[test]
    fn words_come_with_what_follows() {
        let found = lines("unsafe { x_1(2) }");
        let words: Vec<_> = found[0].words().map(|(word, _)| word).collect();
        assert_eq!(words, ["unsafe", "x_1", "2"]);
        assert_eq!(found[0].words().nth(1), Some(("x_1", "(2) }")));
    }

    #[test]
    fn only_sources_outside_tests_ship() {
        assert!(ships("crates/policy/src/bloat.rs"));
        assert!(!ships("crates/policy/tests/model.rs"));
        assert!(!ships("crates/policy/src/debloat/tests.rs"));
        assert!(!ships("crates/policy/src/notes.md"));
    }
}
