//! Relative links in Markdown lead to tracked files or directories, and to headings that are there. Files in `results/` are parts
//! of pages in `docs/`, where their links are followed.

use super::tree::{Tree, Violation};

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.texts(|path| path.ends_with(".md") && !path.starts_with("results/"))
        .flat_map(|(path, text)| {
            links(text).into_iter().filter(move |(_, link)| !leads_somewhere(tree, path, link)).map(
                move |(line, link)| {
                    let message =
                        format!("the link {link} leads nowhere, correct it or add the file");
                    Violation::new(path, line, message)
                },
            )
        })
        .collect()
}

/// The targets of `[text](target)` and `[name]: target`, with their lines; code is left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if !fenced {
            let targets = inline(line).into_iter().chain(definition(line));
            found.extend(targets.map(|target| (number, target)));
        }
    }
    found
}

/// The targets in the parts of a line that are not between backquotes.
fn inline(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (start, open) in line.match_indices("](") {
        let in_code = line[..start].matches('`').count() % 2 == 1;
        let target = line[start + open.len()..].split([')', ' ']).next();
        found.extend(target.filter(|_| !in_code));
    }
    found
}

/// The target of a line like `[name]: target`.
fn definition(line: &str) -> Option<&str> {
    let (_, target) = line.strip_prefix('[')?.split_once("]: ")?;
    target.split_whitespace().next()
}

/// Is `link`, in the file at `path`, to somewhere else in the world, or to something tracked and a heading in it?
fn leads_somewhere(tree: &Tree, path: &str, link: &str) -> bool {
    let link = link.trim_matches(['<', '>']);
    if link.contains("://") || link.starts_with("mailto:") {
        return true;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
    target.is_some_and(|target| tree.has(&target) && has_heading(tree, &target, heading))
}

/// Whether there is a heading with this anchor in the file, if that is Markdown.
fn has_heading(tree: &Tree, path: &str, anchor: &str) -> bool {
    let text = tree.text(path).filter(|_| path.ends_with(".md") && !anchor.is_empty());
    text.is_none_or(|text| {
        text.lines().filter(|line| line.starts_with('#')).any(|line| anchor_of(line) == anchor)
    })
}

/// The anchor that a heading is given where Markdown is shown: in lower case, without punctuation, spaces as hyphens.
fn anchor_of(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let kept = heading.trim_start_matches('#').trim().chars().filter(is_kept);
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// The path that `link` means in the file at `path`; `None` if it leaves the repository.
fn resolve(path: &str, link: &str) -> Option<String> {
    let mut parts: Vec<_> = path.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::say;
    use super::check;

    fn say_about(text: &str) -> Vec<String> {
        let files = [
            ("docs/a.md", text),
            ("docs/b.md", "# `A` part: one\n"),
            ("README.md", ""),
            ("src/c.rs", ""),
        ];
        say(check, &files)
    }

    #[test]
    fn links_to_what_is_there_pass() {
        let text = "[b](b.md) [b](./b.md#a-part-one) [r](../README.md \"title\") [s](../src) [t](../)\n[c]: ../src/c.rs\n";
        assert!(say_about(text).is_empty());
    }

    #[test]
    fn links_elsewhere_are_not_followed() {
        assert!(
            say_about("## Here\n[w](https://a.example/b#c) [m](mailto:a@b.example) [h](#here)\n")
                .is_empty()
        );
    }

    #[test]
    fn a_dead_link_is_named() {
        assert_eq!(
            say_about("\n[x](c.md) and ![p](../p.svg)\n"),
            [
                "docs/a.md:2: the link c.md leads nowhere, correct it or add the file",
                "docs/a.md:2: the link ../p.svg leads nowhere, correct it or add the file",
            ]
        );
        assert_eq!(say_about("[x](../../etc)\n").len(), 1);
        assert_eq!(say_about("[x]: y.md\n").len(), 1);
        assert_eq!(
            say_about("[x](b.md#part) [y](#here)\n"),
            [
                "docs/a.md:1: the link b.md#part leads nowhere, correct it or add the file",
                "docs/a.md:1: the link #here leads nowhere, correct it or add the file",
            ]
        );
    }

    #[test]
    fn code_has_no_links() {
        assert!(say_about("`a[0](x.md)`\n```\n[x](y.md)\n```\n").is_empty());
    }
}
