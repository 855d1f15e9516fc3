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

#[test]
fn where_there_are_no_results_the_message_says_what_to_do() {
    let nowhere = tempfile::TempDir::new().unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(["lab", "report"])
        .current_dir(nowhere.path())
        .assert();
    let said = program.code(2).get_output().stderr.clone();
    assert!(String::from_utf8(said).unwrap().contains("results is not a directory; run this in"));
}

#[test]
fn a_page_that_no_report_makes_is_named() {
    let docs = tempfile::TempDir::new().unwrap();
    assert!(report(docs.path(), &[]).0);
    std::fs::write(docs.path().join("other.md"), "").unwrap();
    assert!(report(docs.path(), &["--check"]).0);
    std::fs::write(docs.path().join("results/old.md"), "").unwrap();
    let (is_done, said) = report(docs.path(), &["--check"]);
    assert!(!is_done && said.contains("results/old.md: the report has no such page"), "{said}");
}

/// Each constant that may be changed and is read by an experiment was changed in it, so that each number has its range.
#[test]
fn sensitivity_was_run_for_each_simulated_experiment() {
    let heads = std::fs::read_dir(root().join("results/rows")).unwrap().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.unwrap().path()).ok()?;
        serde_json::from_str::<serde_json::Value>(text.lines().next()?).ok()
    });
    let heads: Vec<_> = heads.filter(|head| head["machine"] == "sim").collect();
    let ran: Vec<&str> = heads
        .iter()
        .filter_map(|head| head["command"].as_str()?.split_once("sensitivity --on sim --only "))
        .flat_map(|(_, names)| names.split(','))
        .collect();
    let is_open = |one: &serde_json::Value| one["origin"] != "paper" && one["value"] != "";
    let open = heads.iter().filter(|head| head["experiment"] != "sensitivity").filter(|head| {
        head["constants"].as_array().is_some_and(|constants| constants.iter().any(is_open))
    });
    let mut count = 0;
    for name in open.filter_map(|head| head["experiment"].as_str()) {
        assert!(ran.contains(&name), "no sensitivity of {name}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}
