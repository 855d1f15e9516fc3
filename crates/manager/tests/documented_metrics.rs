//! The metrics, their labels and kinds are those of the table in docs/operate.md, both ways, and the
//! dashboard asks for no others.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use superpage_manager::history::{Entry, What};
use superpage_manager::metrics::Metrics;
use superpage_manager::status::{Memory, Status};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md");

/// What a metric is and which labels it has.
type Shapes = BTreeMap<String, (String, BTreeSet<String>)>;

/// All metrics that there are, made by counting one of everything.
fn exported() -> Shapes {
    let metrics = Metrics::new();
    for what in What::ALL {
        let policy = Some("emd".to_owned());
        metrics.take(&Entry { policy, ..Entry::new(1, what, "kind", "a cause") });
    }
    let watches = vec![Memory { name: "machine".to_owned(), ..Memory::default() }];
    let policies = vec![("ingens".to_owned(), 1)];
    metrics.set(&Status { watches, policies, ..Status::default() });
    shapes(&metrics.encode())
}

fn shapes(text: &str) -> Shapes {
    let mut found = Shapes::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            found.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, rest)) = line.split_once('{') {
            let Some((_, labels)) = found.get_mut(name) else { continue };
            let (inside, _) = rest.split_once('}').expect("the brace is closed");
            labels.extend(inside.split(',').map(|l| l.split('=').next().unwrap_or(l).to_owned()));
        }
    }
    found
}

/// The rows of the table: | `name{label,label}` | kind | what it is |
fn documented() -> Shapes {
    let text = std::fs::read_to_string(DOCUMENT).expect("docs/operate.md is there");
    let rows = text.lines().filter(|line| line.starts_with("| `superpage_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let series = cells[1].trim_matches('`');
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.trim_end_matches('}').split(',').filter(|l| !l.is_empty());
        (name.to_owned(), (cells[2].to_owned(), labels.map(str::to_owned).collect()))
    })
    .collect()
}

#[test]
fn the_documentation_has_these_metrics_and_no_others() {
    let (documented, exported) = (documented(), exported());
    assert!(exported.len() > 20, "{exported:?}");
    for (name, shape) in &exported {
        assert_eq!(documented.get(name), Some(shape), "{name} as docs/operate.md has it");
    }
    for name in documented.keys() {
        assert!(exported.contains_key(name), "{name} is documented and not exported");
    }
}

const DASHBOARD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/superpage.json");

/// All strings under this key, wherever they are.
fn strings<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| strings(value, key, found));
        }
        Value::Array(values) => values.iter().for_each(|value| strings(value, key, found)),
        _ => {}
    }
}

/// The metrics that a query names; those of a histogram by the histogram's name.
fn named(query: &str, exported: &Shapes) -> Vec<String> {
    let words = query.split(|c: char| !c.is_alphanumeric() && c != '_');
    let metric = |word: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.iter().find_map(|part| word.strip_suffix(part));
        let is_histogram = |name: &&str| exported.get(*name).is_some_and(|s| s.0 == "histogram");
        histogram.filter(is_histogram).unwrap_or(word).to_owned()
    };
    words.filter(|word| word.starts_with("superpage_")).map(metric).collect()
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_there_and_shows_all_of_them() {
    let text = std::fs::read_to_string(DASHBOARD).expect("the dashboard is there");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    assert!(dashboard["schemaVersion"].as_u64() >= Some(36), "Grafana 10 and later read it");
    let exported = exported();
    let mut queries = Vec::new();
    strings(&dashboard, "expr", &mut queries);
    strings(&dashboard, "definition", &mut queries);
    assert!(queries.len() > 20, "{queries:?}");
    let used: BTreeSet<String> = queries.iter().flat_map(|query| named(query, &exported)).collect();
    let all: BTreeSet<String> = exported.keys().cloned().collect();
    assert_eq!(used, all);
    // A name that is misspelt in front would not be seen above.
    for query in queries {
        assert!(!named(query, &exported).is_empty(), "{query} asks for none of our metrics");
    }
}

#[test]
fn the_dashboard_groups_by_labels_that_are_there() {
    let text = std::fs::read_to_string(DASHBOARD).expect("the dashboard is there");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let exported = exported();
    let panels = dashboard["panels"].as_array().expect("panels");
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array()).flatten() {
        let (query, legend) = (&target["expr"], &target["legendFormat"]);
        let metrics = named(query.as_str().expect("a query"), &exported);
        let known: BTreeSet<&str> = metrics
            .iter()
            .flat_map(|name| exported[name].1.iter().map(String::as_str))
            .chain(["le", "instance"])
            .collect();
        for label in legend.as_str().expect("a legend").split("{{").skip(1) {
            let label = label.split("}}").next().unwrap_or(label);
            assert!(known.contains(label), "{label} in the legend of {query}");
        }
    }
}
