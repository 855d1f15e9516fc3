//! The metrics, their labels and kinds are those of the table in docs/operate.md, both ways, and the
//! dashboard asks for no others.

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
