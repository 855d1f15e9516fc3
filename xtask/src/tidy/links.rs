//! Relative links in Markdown lead to tracked files or directories.

use super::tree::{Tree, Violation};

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.texts(|path| path.ends_with(".md"))
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

/// Is `link`, in the file at `path`, to somewhere else in the world, or to something tracked?
fn leads_somewhere(tree: &Tree, path: &str, link: &str) -> bool {
    let link = link.trim_matches(['<', '>']);
    let file = link.split('#').next().unwrap_or_default();
    let is_elsewhere = link.contains("://") || link.starts_with("mailto:");
    is_elsewhere || file.is_empty() || resolve(path, file).is_some_and(|target| tree.has(&target))
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
        say(check, &[("docs/a.md", text), ("docs/b.md", ""), ("README.md", ""), ("src/c.rs", "")])
    }

    #[test]
    fn links_to_what_is_there_pass() {
        let text = "[b](b.md) [b](./b.md#part) [r](../README.md \"title\") [s](../src) [t](../)\n[c]: ../src/c.rs\n";
        assert!(say_about(text).is_empty());
    }

    #[test]
    fn links_elsewhere_are_not_followed() {
        assert!(
            say_about("[w](https://a.example/b) [m](mailto:a@b.example) [h](#here)\n").is_empty()
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
    }

    #[test]
    fn code_has_no_links() {
        assert!(say_about("`a[0](x.md)`\n```\n[x](y.md)\n```\n").is_empty());
    }
}
