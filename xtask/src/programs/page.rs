//! The page of the programs, and the table on the terminal: both from rows, nothing else.

use super::compared::Outcome;
use super::declared::Way;
use super::rows::{Row, parse};
use anyhow::Result;
use std::fmt::Write;

/// The page.
pub(crate) const PAGE: &str = "docs/programs.md";

const HEAD: &str = "\
<!-- `cargo xtask test-programs --page` makes this page from results/programs/rows.jsonl; change nothing here. -->
# Programs with and without Superpage

`make test-programs` runs each of these programs twice without Superpage and once in each way below, and compares what it
prints, its exit code or signal, and whether Superpage had something to say. The programs are declared in
[programs/](../programs); those that nobody here wrote come from Debian and the registries of languages, the others are of kinds
that have gone wrong. A part of them runs in `make test`. This is about sameness, not speed.

| way | is |
|---|---|
| run | `superpage run` |
| keep | `superpage run --malloc keep` |
| children | `superpage run --children` |
| heap | `superpage run --heap DIRECTORY --memory 128M --heap-size 2G`, or larger where the program needs it |

";

/// The page that these rows give.
pub(crate) fn markdown(rows: &str) -> Result<String> {
    let rows = parse(rows)?;
    let mut page = HEAD.to_owned();
    page += &summary(&rows);
    page += "\n| program | what it does | version |";
    Way::ALL.iter().for_each(|way| page += &format!(" {way} |"));
    page += "\n|---|---|---|";
    page += &"---|".repeat(Way::ALL.len());
    page.push('\n');
    for first in programs(&rows).filter(|row| row.outcome != Outcome::Skipped) {
        let (name, about, version) = (&first.program, cell(&first.about), cell(&first.version));
        write!(page, "| {name} | {about} | {version} |")?;
        for way in Way::ALL {
            write!(page, " {} |", outcome(&rows, name, way))?;
        }
        page.push('\n');
    }
    page += &list(&rows, "What differs", |outcome| outcome.is_failure());
    page +=
        &list(&rows, "What differs for a known reason", |outcome| outcome == Outcome::Explained);
    page += &list(&rows, "What was not run", |outcome| outcome == Outcome::Skipped);
    Ok(page)
}

/// The first row of each program.
fn programs(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let is_first = |at: &usize| *at == 0 || rows[at - 1].program != rows[*at].program;
    (0..rows.len()).filter(is_first).map(|at| &rows[at])
}

/// How many of what, and of which trees, days and machines.
fn summary(rows: &[Row]) -> String {
    let count = |wanted: fn(Outcome) -> bool| rows.iter().filter(|row| wanted(row.outcome)).count();
    let ran = count(|outcome| outcome != Outcome::Skipped);
    let mut from: Vec<String> = rows
        .iter()
        .map(|row| format!("{} of {} on {}", row.origin.tree, row.origin.date, row.origin.machine))
        .collect();
    from.sort();
    from.dedup();
    format!(
        "{} programs, {ran} comparisons: {} the same, {} differ for a known reason, {} differ; {} programs could not be run. Built \
         and run: {}.\n",
        programs(rows).count(),
        count(|outcome| outcome == Outcome::Same),
        count(|outcome| outcome == Outcome::Explained),
        count(Outcome::is_failure),
        count(|outcome| outcome == Outcome::Skipped),
        from.join("; ")
    )
}

/// The text in a program's column of one way.
fn outcome(rows: &[Row], program: &str, way: Way) -> String {
    let name = way.to_string();
    let is_it = |row: &&Row| row.program == program && (row.way == name || row.way == "all");
    rows.iter().find(is_it).map_or("".to_owned(), |row| row.outcome.to_string())
}

/// The reasons of the rows whose outcome is meant, each once.
fn list(rows: &[Row], title: &str, is_meant: fn(Outcome) -> bool) -> String {
    let mut lines: Vec<(String, Vec<&str>, &str)> = Vec::new();
    for row in rows.iter().filter(|row| is_meant(row.outcome)) {
        match lines.iter_mut().find(|(name, _, why)| *name == row.program && *why == row.why) {
            Some((_, ways, _)) => ways.push(&row.way),
            None => lines.push((row.program.clone(), vec![&row.way], &row.why)),
        }
    }
    if lines.is_empty() {
        return format!("\n## {title}\n\nNothing.\n");
    }
    let line = |(name, ways, why): &(String, Vec<&str>, &str)| {
        let ways = ways.join(", ");
        let ways = if ways == "all" { String::new() } else { format!(" ({ways})") };
        format!("- **{name}**{ways}: {}\n", cell(why))
    };
    format!("\n## {title}\n\n{}", lines.iter().map(line).collect::<String>())
}

/// A text in a table: without what would end the cell or the line, or look like a tag.
fn cell(text: &str) -> String {
    let lines: Vec<&str> = text.split_whitespace().collect();
    lines.join(" ").replace('|', "\\|").replace('<', "&lt;").replace("](", "] (")
}

/// The table on the terminal, and below it what has to be looked at.
pub(crate) fn terminal(rows: &[Row]) -> String {
    let mut text = format!("\n{:<24}", "program");
    Way::ALL.iter().for_each(|way| text += &format!("{way:<11}"));
    text.push('\n');
    for first in programs(rows) {
        text += &format!("{:<24}", first.program);
        Way::ALL.iter().for_each(|way| {
            text += &format!("{:<11}", outcome(rows, &first.program, *way));
        });
        text = text.trim_end().to_owned() + "\n";
    }
    for row in rows.iter().filter(|row| row.outcome != Outcome::Same) {
        text += &format!("{} {} ({}): {}\n", row.outcome, row.program, row.way, row.why);
    }
    let count = |wanted: fn(Outcome) -> bool| rows.iter().filter(|row| wanted(row.outcome)).count();
    text + &format!(
        "{} the same, {} explained, {} differ, {} skipped\n",
        count(|outcome| outcome == Outcome::Same),
        count(|outcome| outcome == Outcome::Explained),
        count(Outcome::is_failure),
        count(|outcome| outcome == Outcome::Skipped)
    )
}

#[cfg(test)]
mod tests {
    use super::markdown;

    const ROW: &str = r#"{"program":"a","about":"b","version":"1","way":"run","outcome":"same","seconds":1.0,"native_seconds":1.0,"date":"2026-01-01","machine":"m","tree":"t"}"#;

    #[test]
    fn a_page_has_each_program_once_and_each_reason() {
        let other = ROW.replace("\"run\"", "\"heap\"").replace("same", "explained");
        let other = other.replace("\"seconds\"", "\"why\":\"w|x\",\"seconds\"");
        let page = markdown(&format!("{ROW}\n{other}\n")).unwrap();
        assert!(page.contains("| a | b | 1 | same |  |  | explained |\n"), "{page}");
        assert!(page.contains("- **a** (heap): w\\|x\n"), "{page}");
        assert!(page.contains("1 programs, 2 comparisons: 1 the same"), "{page}");
    }
}
