//! `superpage lab report`: the pages in the repository are as their rows say, and a page that is not is named.

use assert_cmd::Command;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn report(docs: &Path, arguments: &[&str]) -> (bool, String) {
    let results = root().join("results");
    let output = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(["lab", "report", "--results"])
        .arg(results)
        .arg("--docs")
        .arg(docs)
        .args(arguments)
        .output()
        .expect("the program starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).expect("it is text"))
}

#[test]
fn the_pages_are_as_their_rows_say() {
    let (is_done, said) = report(&root().join("docs"), &["--check"]);
    assert!(is_done, "{said}");
}

#[test]
fn each_experiment_of_a_paper_is_in_a_finding() {
    let text = std::fs::read_to_string(root().join("results/findings.toml")).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let findings = lines.collect::<Vec<_>>().join("\n");
    let papers = ["emd-", "quicksilver-", "trident-", "xheap-", "graph-"];
    // `graph-peers` compares with other systems, not with the paper.
    let others = ["graph-peers"];
    for name in superpage_lab::experiment::all().map(|experiment| experiment.name) {
        if papers.iter().any(|paper| name.starts_with(paper)) && !others.contains(&name) {
            assert!(findings.contains(&format!("rows = \"{name}\"")), "no finding has {name}");
        }
    }
}

#[test]
fn a_page_that_was_changed_by_hand_is_named_with_its_line() {
    let docs = tempfile::TempDir::new().unwrap();
    assert!(report(docs.path(), &[]).0);
    let page = docs.path().join("results/emd.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let changed: Vec<&str> =
        text.lines().enumerate().map(|(at, line)| if at == 1 { "# Other" } else { line }).collect();
    std::fs::write(&page, changed.join("\n")).unwrap();
    let (is_done, said) = report(docs.path(), &["--check"]);
    assert!(!is_done && said.contains("emd.md:2: not as the rows say"), "{said}");
}
