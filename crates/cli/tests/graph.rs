//! `superpage graph` as people and scripts meet it: a graph is made, read, renumbered, and kernels run on it; bad input gets one
//! sentence. Nothing here needs huge pages or root.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_superpage");

fn superpage(words: &[&str]) -> Output {
    assert_cmd::Command::new(PROGRAM).args(words).output().expect("it starts")
}

/// The output of a command that must end well.
fn said(words: &[&str]) -> String {
    let output = superpage(words);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {message}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Asserts that a command was refused with this exit code and one sentence that has all of `parts` in it, and wrote nothing.
fn refused(words: &[&str], code: i32, parts: &[&str]) {
    let output = superpage(words);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {message}");
    assert!(
        message.starts_with("superpage: ") && message.matches('\n').count() == 1,
        "{message:?}"
    );
    assert!(parts.iter().all(|part| message.contains(part)), "{message:?} lacks one of {parts:?}");
    assert!(output.stdout.is_empty(), "{words:?}");
}

/// A directory, and files in it by name.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("there is room"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    fn write(&self, name: &str, content: &str) -> String {
        std::fs::write(self.0.path().join(name), content).expect("there is room");
        self.path(name)
    }

    fn names(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.path()).expect("it is there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

#[test]
fn two_commands_lead_to_a_table() {
    let files = Files::new();
    let file = files.path("graph.sg");
    let made = said(&["graph", "generate", "kronecker", &file, "--scale", "12"]);
    assert!(made.starts_with(&format!("Wrote {file}: Kronecker, scale 12")), "{made}");
    let table = said(&["graph", "run", "bfs", &file, "--repeat", "2"]);
    for part in ["base", "huge:20%", "huge", "median", "speed", "property", "vertex", "edge"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn all_kernels_run_and_are_verified_in_every_order() {
    let files = Files::new();
    for kind in ["kronecker", "uniform", "block-model"] {
        let file = files.path(&format!("{kind}.wsg"));
        said(&["graph", "generate", kind, &file, "--scale", "11"]);
        let mut results = std::collections::BTreeMap::<&str, String>::new();
        for group in ["none", "dbg", "degree", "random"] {
            for kernel in ["bfs", "sssp", "pr", "cc"] {
                let words = [
                    "graph", "run", kernel, &file, "--group", group, "--verify", "--json",
                    "--repeat", "2",
                ];
                let sources: &[&str] =
                    if matches!(kernel, "bfs" | "sssp") { &["--sources", "2"] } else { &[] };
                let lines = said(&[&words[..], sources, &["--pages", "base,huge"]].concat());
                assert_eq!(lines.lines().count(), 2, "{lines}");
                for line in lines.lines().map(json) {
                    assert_eq!(
                        line["seconds"].as_array().map(Vec::len),
                        Some(trials(kernel)),
                        "{line}"
                    );
                    let result = line["result"].as_str().expect("a result").to_owned();
                    // PageRank's last change depends on the order.
                    if kernel != "pr" {
                        assert_eq!(
                            *results.entry(kernel).or_insert_with(|| result.clone()),
                            result,
                            "{line}"
                        );
                    }
                }
            }
        }
    }
}

/// Two rounds, from two sources where a kernel begins at one.
fn trials(kernel: &str) -> usize {
    if matches!(kernel, "bfs" | "sssp") { 4 } else { 2 }
}

#[test]
fn pagerank_makes_as_many_iterations_as_are_wanted() {
    let files = Files::new();
    let file = files.path("a.sg");
    said(&["graph", "generate", "kronecker", "--scale", "8", &file]);
    let words = ["graph", "run", "pr", &file, "--json", "--pages", "base", "--repeat", "1"];
    let row = json(&said(&[&words[..], &["--iterations", "3"]].concat()));
    let result = row["result"].as_str().expect("words");
    assert!(result.starts_with("3 iterations"), "{result}");
    let without = json(&said(&[&words[..], &["--cached"]].concat()));
    assert!(!without["result"].as_str().expect("words").starts_with("3 "), "{without}");
}

#[test]
fn the_property_array_may_come_first() {
    let files = Files::new();
    let file = files.path("graph.sg");
    said(&["graph", "generate", "uniform", &file, "--scale", "10"]);
    for when in ["first", "last"] {
        said(&["graph", "run", "cc", &file, "--property", when, "--verify", "--pages", "default"]);
    }
    let text = files.path("graph.el");
    said(&["graph", "convert", &file, &text]);
    refused(&["graph", "run", "cc", &text, "--property", "first"], 2, &["graph convert"]);
}

#[test]
fn a_result_has_a_number_for_each_vertex() {
    let files = Files::new();
    let graph = files.write("graph.wel", "0 1 5\n1 2 7\n4 4 1\n");
    let result = files.path("result");
    let run = |kernel: &str, more: &[&str]| -> Vec<[u8; 4]> {
        let words = ["graph", "run", kernel, &graph, "--edges", "undirected", "--output", &result];
        said(&[&words[..], more].concat());
        let bytes = std::fs::read(&result).expect("it was written");
        bytes.as_chunks().0.to_vec()
    };
    let integers = |kernel, more: &[&str]| -> Vec<u32> {
        run(kernel, more).into_iter().map(u32::from_le_bytes).collect()
    };
    assert_eq!(integers("sssp", &["--source", "0"]), [0, 5, 12, u32::MAX, u32::MAX]);
    assert_eq!(integers("bfs", &["--source", "2"]), [1, 2, 2, u32::MAX, u32::MAX]);
    assert_eq!(integers("cc", &[]), [0, 0, 0, 3, 4]);
    let scores: Vec<f32> = run("pr", &[]).into_iter().map(f32::from_le_bytes).collect();
    assert!(scores.len() == 5 && scores[1] > scores[0] && scores[0] > scores[3], "{scores:?}");
    let grouped = superpage(&["graph", "run", "cc", &graph, "--group", "dbg", "--output", &result]);
    assert_eq!(grouped.status.code(), Some(2));
    refused(&["graph", "run", "cc", &graph, "--output", "/nonexistent/a"], 1, &["/nonexistent"]);
}

#[test]
fn formats_are_converted_and_mean_the_same() {
    let files = Files::new();
    let first = files.path("graph.wsg");
    said(&["graph", "generate", "block-model", &first, "--scale", "9", "--communities", "8"]);
    let info = |file: &str, more: &[&str]| {
        let mut found = json(&said(&[&["graph", "info", file, "--json"], more].concat()));
        ["file", "reading_s", "grouping_s"].into_iter().for_each(|key| found[key] = Value::Null);
        found
    };
    let expected = info(&first, &[]);
    assert_eq!(
        (expected["vertices"].as_u64(), expected["weighted"].as_bool()),
        (Some(512), Some(true))
    );
    let mut from = first;
    for name in ["graph.wel", "graph.mtx", "again.wsg"] {
        let to = files.path(name);
        // Both directions are in a list of edges.
        said(&["graph", "convert", &from, &to, "--edges", "undirected"]);
        from = to;
    }
    // Vertices behind the last one with an edge are lost in a list of edges.
    let found = info(&from, &["--edges", "undirected"]);
    assert_eq!(found["edges"], expected["edges"]);
    assert_eq!(found["degree"]["most"], expected["degree"]["most"]);
    assert_eq!(found["weighted"], expected["weighted"]);
}

#[test]
fn degree_based_grouping_brings_the_hottest_together() {
    let files = Files::new();
    let file = files.path("graph.sg");
    said(&["graph", "generate", "kronecker", &file, "--scale", "14"]);
    let share = |group: &str| {
        let found = json(&said(&["graph", "info", &file, "--json", "--group", group]));
        let of = found["hottest"].as_array().expect("shares").iter();
        let fifth =
            of.clone().find(|share| share["vertices_share"] == 0.2).expect("a fifth").clone();
        (fifth["accesses_as_numbered"].as_f64(), fifth["accesses_by_degree"].as_f64())
    };
    let (Some(before), Some(best)) = share("none") else { panic!("no shares") };
    let (Some(after), Some(still)) = share("dbg") else { panic!("no shares") };
    assert!(
        before < 0.3 && after > 0.8 && after <= best && best == still,
        "{before} {after} {best}"
    );
}

#[test]
fn what_cannot_be_read_is_refused_in_a_sentence() {
    let files = Files::new();
    let run = |file: &str, parts: &[&str]| refused(&["graph", "info", file], 2, parts);
    run(&files.write("a.el", "0 1\n1 x\n"), &["a.el:2", "expected", "found \"x\""]);
    run(&files.write("b.el", "0 1\n-1 2\n"), &["b.el:2"]);
    run(&files.write("c.el", "0 4294967295\n"), &["c.el:1"]);
    run(&files.write("d.wel", "0 1\n"), &["d.wel:1", "weight"]);
    run(&files.write("e.el", ""), &["e.el", "no edges"]);
    run(&files.write("f.sg", "short"), &["f.sg"]);
    run(&files.write("g.txt", "0 1 2 3 4\n"), &["g.txt:1"]);
    run(&files.write("h.xyz", "0 1\n"), &["h.xyz", ".el"]);
    let directory = files.path("directory.el");
    std::fs::create_dir(&directory).expect("there is room");
    run(&directory, &["directory"]);
    refused(&["graph", "info", &files.path("missing.el")], 1, &["missing.el"]);
    refused(&["graph", "convert", &files.path("a.el"), &files.path("to.xyz")], 2, &["to.xyz"]);
    assert!(!Path::new(&files.path("to.xyz")).exists());
}

#[test]
fn weights_are_asked_for_only_where_they_matter() {
    let files = Files::new();
    let head = "%%MatrixMarket matrix coordinate";
    let inputs = [
        files.write("a.wel", "0 1 0.5\n1 2 1e-3\n2 0 -7\n"),
        files.write("real.mtx", &format!("{head} real general\n3 3 3\n1 2 0.5\n2 3 1D-3\n3 1 2\n")),
        files.write("skew.mtx", &format!("{head} real skew-symmetric\n3 3 2\n2 1 1\n3 1 2\n")),
        files.write("complex.mtx", &format!("{head} complex hermitian\n3 3 2\n2 1 1 0\n3 1 2 1\n")),
    ];
    for input in &inputs {
        for to in ["to.el", "to.sg"] {
            said(&["graph", "convert", input, &files.path(to)]);
        }
        for kernel in ["bfs", "pr", "cc"] {
            said(&["graph", "run", kernel, input, "--verify", "--repeat", "1", "--pages", "base"]);
        }
        let found = json(&said(&["graph", "info", input, "--json"]));
        assert_eq!(found["weighted"].as_bool(), Some(true), "{found}");
        let what_to_do = [".el and .sg files, bfs, pr and cc need no weights"];
        refused(&["graph", "run", "sssp", input], 2, &what_to_do);
        for to in ["to.wel", "to.wsg", "to.mtx"] {
            refused(&["graph", "convert", input, &files.path(to)], 2, &what_to_do);
            assert!(!Path::new(&files.path(to)).exists(), "{to}");
        }
    }
}

#[test]
fn what_is_left_out_of_a_graph_is_said() {
    let files = Files::new();
    let noted = |input: &str, more: &[&str]| {
        let to = files.path("to.el");
        let words = [&["graph", "convert", input, &to], more].concat();
        let output = superpage(&words);
        assert!(output.status.success(), "{output:?}");
        let list = std::fs::read_to_string(&to).expect("it was written");
        (String::from_utf8(output.stderr).expect("text"), list)
    };
    let input = files.write("a.txt", "0 1 7\n0 1 8\n2 2 9\n1 0 3\n");
    let (note, list) = noted(&input, &[]);
    assert_eq!(
        note,
        format!(
            "superpage: {input}: duplicate edges were left out: 1; each edge is in the graph once\n\
             superpage: {input}: what follows the two vertices on each line was not read\n"
        )
    );
    assert_eq!(list, "0 1\n1 0\n2 2\n");
    let (note, _) = noted(&input, &["--edges", "undirected", "--group", "dbg"]);
    assert!(note.contains("left out: 2;"), "{note}");
    let found = json(&said(&["graph", "info", &input, "--json"]));
    assert_eq!((&found["duplicates"], &found["loops"]), (&Value::from(1), &Value::from(1)));
    let run = said(&["graph", "run", "cc", &input, "--json", "--repeat", "1", "--pages", "base"]);
    assert_eq!(json(&run)["duplicates"], Value::from(1));
    let weighted = files.write("a.wel", "0 1 7\n0 1 8\n");
    let output = superpage(&["graph", "info", &weighted]);
    let note = String::from_utf8(output.stderr).expect("text");
    assert!(note.ends_with("once, with the least of their weights\n"), "{note}");
    let (note, _) = noted(&files.write("b.el", "0 1\n1 0\n"), &[]);
    assert_eq!(note, "");
}

/// Graphs whose memory is of different kinds: vertices without edges, edges both ways, weights, and a vertex with all edges.
fn shapes(files: &Files) -> Vec<String> {
    let head = "%%MatrixMarket matrix coordinate";
    let mut state = 1_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let lines = |count: u64, line: &mut dyn FnMut(u64) -> String| -> String {
        (0..count).map(|at| line(at) + "\n").collect()
    };
    let dense = lines(4_000_000, &mut |at| format!("{} {}", at / 2000, at % 2000));
    let symmetric = lines(4_000_000, &mut |at| format!("{} {}", at / 2000 + 2001, at % 2000 + 1));
    let weighted =
        lines(3_000_000, &mut |at| format!("{} {} {}", at / 30, next(100_000), next(256)));
    let star = lines(1_500_000, &mut |at| format!("0 {} 5", at + 1));
    vec![
        files.write("wide.el", "0 5000000\n"),
        files.write("wide.mtx", &format!("{head} pattern general\n5000000 5000000 1\n1 2\n")),
        files.write(
            "symmetric.mtx",
            &format!("{head} pattern symmetric\n4000 4000 4000000\n{symmetric}"),
        ),
        files.write("dense.el", &dense),
        files.write("weighted.wel", &weighted),
        files.write("star.wel", &star),
    ]
}

/// The bytes that a size such as `12.3 MiB` before `end` stands for.
fn bytes_before(message: &str, end: &str) -> f64 {
    let before = message.split(end).next().expect("a message");
    let mut words = before.split(' ').rev();
    let unit = match words.next() {
        Some("KiB") => 1024.0,
        Some("MiB") => 1_048_576.0,
        Some("GiB") => 1_073_741_824.0,
        _ => panic!("no size: {message}"),
    };
    words.next().and_then(|number| number.parse::<f64>().ok()).expect("a number") * unit
}

/// The most memory of its own that a command had, as the kernel says while it runs: without the pages of its files.
fn peak(words: &[&str]) -> f64 {
    let mut child = std::process::Command::new(PROGRAM)
        .args(words)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak: f64 = 0.0;
    while child.try_wait().expect("it can be waited for").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let size = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok())
        };
        if let (Some(all), Some(files)) = (size("VmHWM:"), size("RssFile:")) {
            peak = peak.max((all - files) * 1024.0);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(child.wait().expect("it ended").success(), "{words:?}");
    peak
}

/// The memory that a command is refused for, where it may have 40 MiB of it.
fn counted(words: &[&str]) -> f64 {
    let script = "ulimit -d 40960; exec \"$0\" \"$@\"";
    let words = [&["-c", script, PROGRAM], words].concat();
    let output = assert_cmd::Command::new("sh").args(&words).output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words:?}: {message}");
    assert!(
        message.contains("RLIMIT_DATA leaves") && message.matches('\n').count() == 1,
        "{message}"
    );
    bytes_before(&message, " more memory at its peak")
}

#[test]
fn what_is_counted_is_what_is_taken() {
    let files = Files::new();
    let to = files.path("to.el");
    let mut wrong = Vec::new();
    for file in shapes(&files) {
        let mut commands = vec![
            vec!["graph", "convert", &file, &to],
            vec!["graph", "convert", &file, &to, "--group", "dbg"],
            vec!["graph", "info", &file],
        ];
        // What kernels take depends on vertices, of which these two have most.
        let kernels: &[_] = match file.rsplit('/').next() {
            Some("wide.el") => &["bfs", "pr", "cc"],
            Some("star.wel") => &["bfs", "pr", "cc", "sssp"],
            _ => &[],
        };
        for kernel in kernels {
            let run = ["graph", "run", kernel, &file, "--repeat", "1", "--threads", "2"];
            commands.push(run.to_vec());
            commands.push([&run[..], &["--verify"]].concat());
        }
        for words in commands {
            let (taken, counted) = (peak(&words), counted(&words));
            let ratio = counted / taken;
            let line = format!("{words:?}: {taken:.3e} taken, {ratio:.3} times as much counted");
            println!("{line}");
            if !(1.0..1.3).contains(&ratio) {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_vertex_with_a_large_number_is_refused_before_memory_is_taken() {
    let files = Files::new();
    let head = "%%MatrixMarket matrix coordinate pattern general";
    let matrix = format!("{head}\n4000000000 4000000000 1\n1 2\n");
    for file in [files.write("wide.el", "0 4000000000\n"), files.write("wide.mtx", &matrix)] {
        let script = "ulimit -d 1048576; exec \"$0\" \"$@\"";
        let words = ["-c", script, PROGRAM, "graph", "info", &file];
        let output = assert_cmd::Command::new("sh").args(words).output().expect("it starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(message.contains(": number the vertices from 0 on without gaps"), "{message}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_a_sentence() {
    let files = Files::new();
    let file = files.write("a.el", "0 1\n1 2\n5 5\n");
    refused(&["graph", "run", "bfs", &file, "--source", "6"], 2, &["vertex 6", "6 vertices"]);
    refused(&["graph", "run", "cc", &file, "--source", "1"], 2, &["cc", "--source"]);
    refused(&["graph", "run", "bfs", &file, "--delta", "1"], 2, &["bfs", "--delta"]);
    refused(&["graph", "run", "cc", &file, "--iterations", "1"], 2, &["cc", "--iterations"]);
    refused(&["graph", "run", "cc", &file, "--output", &file], 2, &["replace the graph"]);
    refused(&["graph", "run", "cc", &file, "--output", &files.path(".")], 2, &["no regular file"]);
    let made = files.path("made.sg");
    refused(&["graph", "generate", "uniform", &made, "--within", "50%"], 2, &["block-model"]);
    refused(&["graph", "generate", "uniform", "/nonexistent/a.sg"], 1, &["/nonexistent"]);
    refused(&["graph", "run", "sssp", &file], 2, &["weights"]);
    refused(&["graph", "convert", &file, &files.path("b.wsg")], 2, &["weights"]);
    let head = "%%MatrixMarket matrix coordinate pattern general";
    let empty = files.write("empty.mtx", &format!("{head}\n3 3 0\n"));
    refused(&["graph", "run", "bfs", &empty], 2, &["no vertex has neighbors"]);
    // The kernel has gigantic pages only where somebody has reserved some.
    let free =
        std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages");
    if free.is_ok_and(|free| free.trim() == "0") {
        refused(
            &["graph", "run", "cc", &file, "--pages", "gigantic", "--require"],
            3,
            &["gigantic"],
        );
    }
    let before = files.names().len();
    let output = superpage(&["graph", "run", "bfs", &file, "--pages", "4k"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("huge:20%"));
    assert_eq!(files.names().len(), before);
}
