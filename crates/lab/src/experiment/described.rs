//! By whose description Ingens and HawkEye are run. Their own papers were not at hand, so a table with a row
//! of theirs gets a note that says which of the five papers describes what was run, and where. What is
//! taken from each description stands at the head of `ingens.rs` and of the two `hawkeye.rs`.

use serde_json::Value;
use std::collections::BTreeSet;

const INGENS: &str = "Ingens is run as described by Quicksilver (Table 1; observations 2 and 4) and EMD (section 2.2.2); \
     its own paper was not at hand.";
const HAWKEYE: &str = "HawkEye is run as described by Quicksilver (Table 1; observation 2: base pages at faults) and EMD \
     (section 2.2.3), without its reclaiming of bloat unless +hawkeye is plugged in; its own paper was \
     not at hand.";
const FIRST_TOUCH: &str = "hawkeye-first-touch is HawkEye as described by Trident (sections 5.1.2 and 7: huge pages at faults \
     too), and where Trident says nothing by Quicksilver and EMD; its own paper was not at hand.";
const RECOVERY: &str = "HawkEye's reclaiming of bloat is run as described by EMD (sections 3.1 and 3.2); its own paper was \
     not at hand.";

/// The notes for these rows of a table from `source`.
pub(super) fn notes(source: &str, rows: &[Value]) -> Vec<String> {
    let names = rows.iter().filter_map(|row| row.get("policy")?.as_str());
    let notes: BTreeSet<&str> = names.flat_map(|name| note(source, name)).flatten().collect();
    notes.into_iter().map(str::to_owned).collect()
}

/// The notes on a promotion policy with this name, and on a de-bloater. EMD's tables name a de-bloater
/// alone; others plug it into a promotion policy with a `+`.
fn note(source: &str, name: &str) -> [Option<&'static str>; 2] {
    let (policy, debloater) = match name.split_once('+') {
        Some(both) => both,
        None if source.starts_with("EMD") => ("", name),
        None => (name, ""),
    };
    let policy = match policy {
        "ingens" | "ingens-star" => Some(INGENS),
        "hawkeye" | "hawkeye-star" => Some(HAWKEYE),
        "hawkeye-first-touch" => Some(FIRST_TOUCH),
        _ => None,
    };
    [policy, (debloater == "hawkeye").then_some(RECOVERY)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use superpage_policy::promotion::list;

    #[test]
    fn each_table_says_whose_description_its_rows_follow() {
        let of = |source: &str, names: &[&str]| {
            let rows: Vec<_> = names.iter().map(|name| json!({"policy": name})).collect();
            notes(source, &rows)
        };
        assert_eq!(
            of("Quicksilver, Table 4", &["ingens", "hawkeye", "ingens-star"]),
            [HAWKEYE, INGENS]
        );
        assert_eq!(of("Trident, Figure 9", &["trident", "hawkeye-first-touch"]), [FIRST_TOUCH]);
        assert_eq!(of("EMD, Table 1", &["emd", "hawkeye"]), [RECOVERY]);
        assert_eq!(of("Quicksilver, Table 1", &["hawkeye+hawkeye"]), [HAWKEYE, RECOVERY]);
        assert!(of("Quicksilver, Table 4", &["linux", "linux+emd", "freebsd"]).is_empty());
    }

    #[test]
    fn no_configuration_of_theirs_is_without_a_note() {
        for entry in list::ALL {
            let is_theirs = ["ingens", "hawkeye"].iter().any(|name| entry.name.starts_with(name));
            assert_eq!(note("", entry.name)[0].is_some(), is_theirs, "{}", entry.name);
        }
    }
}
