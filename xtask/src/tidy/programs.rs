//! Every program that is declared has rows that are kept, every source of theirs is used, and the page is what the rows say.

use super::tree::{Tree, Violation};
use crate::programs::{DIRECTORY, PAGE, Program, ROWS, markdown, parse};

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let rows = tree.text(ROWS).unwrap_or_default();
    let mut found = Vec::new();
    let mut used = String::new();
    for (path, text) in tree.texts(is_declaration) {
        match parse(text) {
            Err(error) => found.push(Violation::new(path, 1, format!("{error:#}"))),
            Ok(programs) => found.extend(without_rows(path, &programs, rows)),
        }
        used += text;
    }
    let sources = tree.paths().filter_map(|path| Some((path, path.strip_prefix("programs/src/")?)));
    for (path, name) in sources.filter(|(_, name)| !used.contains(&format!("$SRC/{name}"))) {
        let message = format!("no program is declared with $SRC/{name}, remove it");
        found.push(Violation::new(path, 1, message));
    }
    let is_page = markdown(rows).is_ok_and(|page| tree.text(PAGE) == Some(page.as_str()));
    if !used.is_empty() && !is_page {
        let message = format!("not what {ROWS} says, run `cargo xtask test-programs --page`");
        found.push(Violation::new(PAGE, 1, message));
    }
    found
}

fn is_declaration(path: &str) -> bool {
    let name = path.strip_prefix(DIRECTORY).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| name.ends_with(".toml") && !name.contains('/'))
}

fn without_rows(path: &str, programs: &[Program], rows: &str) -> Vec<Violation> {
    let is_without =
        |program: &&Program| !rows.contains(&format!("{{\"program\":\"{}\",", program.name));
    let violation = |program: &Program| {
        let name = &program.name;
        let message =
            format!("no rows of {name} in {ROWS}, run `cargo xtask test-programs --keep {name}`");
        Violation::new(path, 1, message)
    };
    programs.iter().filter(is_without).map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::{PAGE, ROWS, check, markdown};

    const DECLARED: (&str, &str) = (
        "programs/a.toml",
        "[[program]]\nname = \"a\"\nabout = \"b\"\ncommand = \"$SP $SRC/c.sh\"\n",
    );
    const ROW: &str = r#"{"program":"a","about":"b","version":"1","way":"run","outcome":"same","seconds":1.0,"native_seconds":1.0,"date":"2026-01-01","machine":"m","tree":"t"}"#;

    #[test]
    fn rows_and_page_that_are_there_pass() {
        let page = markdown(ROW).unwrap();
        let files = [DECLARED, (ROWS, ROW), (PAGE, &page), ("programs/src/c.sh", "")];
        assert!(say(check, &files).is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        let page = markdown(ROW).unwrap();
        let said = say(check, &[DECLARED, (PAGE, &page), ("programs/src/d.c", "")]);
        assert_eq!(
            said,
            [
                "programs/a.toml:1: no rows of a in results/programs/rows.jsonl, run `cargo xtask test-programs --keep a`",
                "programs/src/d.c:1: no program is declared with $SRC/d.c, remove it",
                "docs/programs.md:1: not what results/programs/rows.jsonl says, run `cargo xtask test-programs --page`",
            ]
        );
    }
}
