//! Findings of the papers: what each paper says, which rows say it here, and the verdict that follows from their numbers.
//!
//! A finding *agrees* where each of its numbers is within a tenth of the paper's, or within its range or bound, and the effect is
//! at least half of the paper's and at most twice. It has the *size* wrong where the direction is the paper's; else it is not
//! found. The direction is that of each effect, the side of each bound, and the order of the
//! numbers among themselves, but for those that the paper has within 2 % of each other; numbers of ours that are as close have no order,
//! and one that is as close to no effect has no direction. Fitted numbers say nothing of a finding:
//! the verdict is on the others, and where there are none the finding was an input.

use super::errors;
use super::kept::Kept;
use crate::experiment::sim::Basis;
use serde::Deserialize;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// How far a number may be from the paper's.
const NEAR: f64 = 0.1;
/// How much of the paper's effect there must be, and how much there may be.
const EFFECT: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// A finding of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The paper, by its name in these documents.
    pub paper: String,
    /// The table, figure or section.
    pub place: String,
    /// The finding, in the paper's numbers.
    pub found: String,
    /// On the real machine.
    #[serde(default)]
    pub live: Side,
    /// On the simulated machine.
    #[serde(default)]
    pub sim: Side,
}

/// A finding on one of the machines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Side {
    /// The numbers that it rests on.
    pub numbers: Vec<Number>,
    /// Why they say nothing of the finding, or why there can be none here.
    pub cannot: Option<String>,
    /// Words behind the verdict.
    pub remark: Option<String>,
}

/// A number of a finding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The experiment that has the row.
    pub rows: String,
    /// The values that tell the row from others.
    pub of: BTreeMap<String, Value>,
    /// The number's key in the row; of several numbers with their place, from 0, as in `slowdowns.0`.
    #[serde(default = "measured")]
    pub key: String,
    /// Of a ratio within a row: the key of the number that this one is divided by.
    pub over_key: Option<String>,
    /// Of a ratio of rows: in which values the row differs that the number is divided by that of; `experiment` is one of them where the
    /// row is another experiment's. Each other value that is a text or a share of memory is the same in both rows, but for the basis.
    pub over: Option<BTreeMap<String, Value>>,
    /// The one number that stands for those of several rows.
    pub per: Option<Per>,
    /// The paper's number, if it is not in the row.
    pub paper: Option<f64>,
    /// The paper's bound or range, where it has no number.
    #[serde(default)]
    pub bound: Bound,
    /// The number of no effect, such as 1 for a speedup.
    pub neutral: Option<f64>,
    /// By how much the number is multiplied, before it is compared.
    #[serde(default = "one")]
    pub scale: f64,
    /// The unit, behind the number.
    #[serde(default)]
    pub unit: String,
}

fn measured() -> String {
    "measured".to_owned()
}

const fn one() -> f64 {
    1.0
}

/// A range that a paper gives, either end of which may be open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bound {
    /// The least.
    pub least: Option<f64>,
    /// The most.
    pub most: Option<f64>,
}

/// The one number that stands for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Their arithmetic mean.
    Mean,
    /// Their geometric mean.
    GeometricMean,
    /// The one in the middle.
    Median,
    /// The least.
    Least,
    /// The greatest.
    Most,
}

/// The verdict on a finding, by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The finding is found here.
    Agrees,
    /// The direction is the paper's, the size is not.
    Size,
    /// The finding is not found here.
    Not,
    /// Each of its numbers is an input: a constant was chosen so that it comes out.
    Input,
}

impl Verdict {
    /// The words for it in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Size => "✗ size",
            Self::Not => "✗",
            Self::Input => "cannot be had (an input)",
        }
    }
}

/// A number beside the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Ours.
    pub ours: f64,
    /// The paper's, where it gives one.
    pub paper: Option<f64>,
    /// The basis of ours; none of one that was measured.
    pub basis: Option<Basis>,
}

/// The basis that a row says; none of one of the real machine.
///
/// # Errors
/// There is no such basis.
pub(super) fn basis(row: &Value) -> Result<Option<Basis>, serde_json::Error> {
    Option::deserialize(&row["basis"])
}

/// A letter for a basis, behind numbers.
pub(super) const fn mark(basis: Option<Basis>) -> &'static str {
    match basis {
        None | Some(Basis::Reference | Basis::Predicted) => "",
        Some(Basis::Fitted) => " f",
        Some(Basis::Assumed) => " a",
        Some(Basis::Chosen) => " c",
    }
}

/// The basis of a ratio. A ratio to a fitted number is not fitted by that, but where it is the reference, which is 1, that is
/// divided; one of a fitted number to others is.
fn of_ratio(number: Option<Basis>, divisor: Option<Basis>) -> Option<Basis> {
    match (number, divisor) {
        (Some(Basis::Reference), Some(_)) => divisor,
        (_, Some(Basis::Fitted)) => number,
        _ => number.max(divisor),
    }
}

/// The findings in the text of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Finding>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        finding: Vec<Finding>,
    }
    toml::from_str(text).map(|file: File| file.finding).map_err(|error| error.to_string())
}

/// The verdict on numbers, each with what was found for it.
#[must_use]
pub fn verdict(numbers: &[(&Number, Pair)]) -> Verdict {
    let told = || numbers.iter().filter(|(_, pair)| pair.basis != Some(Basis::Fitted));
    if told().next().is_none() {
        return Verdict::Input;
    }
    if told().all(|(number, pair)| number.is_near(*pair) && number.has_effect(*pair)) {
        return Verdict::Agrees;
    }
    let is_towards = told().all(|(number, pair)| number.is_towards(*pair));
    if is_towards && is_in_order(numbers) { Verdict::Size } else { Verdict::Not }
}

/// Whether numbers of the same unit lie in the order of the paper's, fitted ones among themselves left out. Numbers that have neither
/// an effect nor a bound nor such an order have no direction.
fn is_in_order(numbers: &[(&Number, Pair)]) -> bool {
    let is_told = |number: &Number| number.neutral.is_some() || number.bound != Bound::default();
    let pairs = numbers.iter().enumerate().flat_map(|(at, one)| {
        numbers[at + 1..]
            .iter()
            .filter(|other| other.0.unit == one.0.unit)
            .map(move |two| (one.1, two.1))
    });
    let mut compared = pairs
        .filter(|(one, two)| one.basis != Some(Basis::Fitted) || two.basis != Some(Basis::Fitted))
        .filter_map(|(one, two)| {
            let papers = errors::order(one.paper?, two.paper?);
            (papers != Ordering::Equal).then(|| (errors::order(one.ours, two.ours), papers))
        })
        .peekable();
    (numbers.iter().any(|(number, _)| is_told(number)) || compared.peek().is_some())
        && compared.all(|(ours, papers)| ours == papers)
}

impl Number {
    fn is_near(&self, pair: Pair) -> bool {
        pair.paper.is_none_or(|paper| (pair.ours - paper).abs() <= NEAR * paper.abs())
            && self.is_within(pair)
    }

    /// Whether the number is within the bound.
    pub(super) fn is_within(&self, pair: Pair) -> bool {
        let Bound { least, most } = self.bound;
        least.is_none_or(|least| pair.ours >= least) && most.is_none_or(|most| pair.ours <= most)
    }

    /// Whether the effect is about as large as the paper's; so where it has none.
    fn has_effect(&self, pair: Pair) -> bool {
        let effects = self.neutral.zip(pair.paper);
        let Some((neutral, paper)) = effects.filter(|(neutral, paper)| neutral != paper) else {
            return true;
        };
        EFFECT.contains(&((pair.ours - neutral) / (paper - neutral)))
    }

    /// Whether the effect has the paper's direction; beyond a bound of the paper's it has not, nor where it is next to nothing beside
    /// the paper's number.
    fn is_towards(&self, pair: Pair) -> bool {
        let effects = self.neutral.zip(pair.paper);
        let is_towards = effects.is_none_or(|(neutral, paper)| {
            let papers = errors::order(paper, neutral);
            let is_none = (pair.ours - neutral).abs() <= errors::TIE * paper.abs();
            papers == Ordering::Equal || !is_none && errors::order(pair.ours, neutral) == papers
        });
        is_towards && self.is_within(pair)
    }

    /// The number in the rows of `runs` on this machine.
    ///
    /// # Errors
    /// In words: there is no such row, or more than one, or it has no such number.
    pub fn look_up(&self, runs: &[Kept], machine: &str) -> Result<Pair, String> {
        let on_it = || runs.iter().filter(|run| run.head.machine == machine);
        let rows: Vec<&Value> = on_it().flat_map(|run| &run.rows).collect();
        let its: Vec<&Value> = on_it()
            .filter(|run| run.head.experiment == self.rows)
            .flat_map(|run| &run.rows)
            .filter(|row| matches(row, &self.of))
            .collect();
        let say = |what: &str| {
            let of: Vec<String> =
                self.of.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            format!("{what} of {} ({machine}) with {}", self.rows, of.join(", "))
        };
        match (its.len(), self.per) {
            (0, _) => return Err(say("no row")),
            (2.., None) => return Err(say("more than one row")),
            _ => {}
        }
        let pairs: Vec<Pair> = its
            .iter()
            .map(|row| self.pair(row, &rows).map_err(|why| say(&why)))
            .collect::<Result<_, _>>()?;
        let ours = self.per_of(pairs.iter().map(|pair| pair.ours).collect());
        let papers: Vec<f64> = pairs.iter().filter_map(|pair| pair.paper).collect();
        let is_in_some = !papers.is_empty() && papers.len() < pairs.len();
        if self.paper.is_none() && self.bound == Bound::default() && is_in_some {
            return Err(say("some numbers of the paper's and not all in the rows"));
        }
        let from_rows =
            (self.bound == Bound::default() && !papers.is_empty()).then(|| self.per_of(papers));
        let paper = self.paper.or(from_rows.map(|paper| paper * self.scale));
        if paper.is_none() && self.bound == Bound::default() {
            return Err(say("neither a number nor a bound of the paper's in a row"));
        }
        // The one row that has the number says its basis, where there is one.
        let is_it = |pair: &&Pair| pair.ours.total_cmp(&ours) == Ordering::Equal;
        let basis = match self.per {
            None | Some(Per::Least | Per::Most) => pairs.iter().find(is_it).map(|pair| pair.basis),
            Some(_) => pairs.iter().map(|pair| pair.basis).max(),
        };
        let basis = basis.flatten();
        Ok(Pair { ours: ours * self.scale, paper, basis })
    }

    /// The number of one row, and the paper's in it; divided by those of another where it is a ratio.
    ///
    /// # Errors
    /// In words: the row has no such number or no basis that is known, or there is not one row that it is divided by.
    fn pair(&self, row: &Value, rows: &[&Value]) -> Result<Pair, String> {
        let number = |row: &Value, key: &str| {
            let number = value_at(row, key).and_then(Value::as_f64);
            number.ok_or_else(|| format!("no number {key:?} in a row"))
        };
        let of = |row: &Value| -> Result<(f64, Option<f64>), String> {
            let ours = number(row, &self.key)?;
            match &self.over_key {
                // A paper's number in the row is the numerator's, so that the ratio has none from there.
                Some(key) => Ok((ours / number(row, key)?, None)),
                None => Ok((ours, row["paper"].as_f64())),
            }
        };
        let based = |row: &Value| basis(row).map_err(|error| format!("a basis ({error}) in a row"));
        let ((ours, paper), its) = (of(row)?, based(row)?);
        let Some(over) = &self.over else { return Ok(Pair { ours, paper, basis: its }) };
        let mut others = rows.iter().filter(|other| is_alike(row, other, over));
        let (Some(other), None) = (others.next(), others.next()) else {
            return Err("no single row that `over` names for a row".to_owned());
        };
        let (divisor, of_paper) = of(other)?;
        let paper = paper.zip(of_paper).map(|(paper, divisor)| paper / divisor);
        Ok(Pair { ours: ours / divisor, paper, basis: of_ratio(its, based(other)?) })
    }

    fn per_of(&self, mut numbers: Vec<f64>) -> f64 {
        numbers.sort_by(f64::total_cmp);
        let count = numbers.len() as f64;
        match self.per {
            None | Some(Per::Least) => numbers.first().copied().unwrap_or(f64::NAN),
            Some(Per::Most) => numbers.last().copied().unwrap_or(f64::NAN),
            Some(Per::Mean) => numbers.iter().sum::<f64>() / count,
            Some(Per::GeometricMean) => {
                (numbers.iter().map(|number| number.ln()).sum::<f64>() / count).exp()
            }
            Some(Per::Median) => errors::median(&numbers),
        }
    }
}

/// The value of a row at a key: of several by its place, as in `slowdowns.0`.
fn value_at<'a>(row: &'a Value, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((key, place)) => row[key].get(place.parse::<usize>().ok()?),
        None => row.get(key),
    }
}

fn matches(row: &Value, of: &BTreeMap<String, Value>) -> bool {
    of.iter().all(|(key, value)| is_same(&row[key], value))
}

/// Whether two values are the same; whole numbers are, however they are written.
fn is_same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().is_some_and(|number| other.as_f64() == Some(number))
}

/// Whether `other` is the row that `row` is divided by: as `over` says, and else of the same names.
fn is_alike(row: &Value, other: &Value, over: &BTreeMap<String, Value>) -> bool {
    let names = row.as_object().into_iter().flatten();
    // A share of memory tells rows apart as their names do.
    let is_name = |key: &str, value: &Value| {
        value.is_string() && key != "basis" || matches!(key, "fraction" | "memory_percent")
    };
    matches(other, over)
        && names
            .filter(|(key, value)| is_name(key, value) && !over.contains_key(*key))
            .all(|(key, value)| is_same(&other[key], value))
}

#[cfg(test)]
mod tests {
    use super::{Basis, Kept, Pair, Verdict, basis, mark, of_ratio, parse, verdict};
    use crate::report::kept::Head;
    use serde_json::{Value, json};

    fn runs(rows: Vec<Value>) -> Vec<Kept> {
        let text = String::new;
        let head = Head {
            experiment: "emd-table1".into(),
            machine: "sim".into(),
            command: text(),
            tree: None,
            date: text(),
            host: text(),
            notes: Vec::new(),
            pictures: Vec::new(),
            constants: Vec::new(),
        };
        vec![Kept { head, rows }]
    }

    fn row(policy: &str, case: &str, measured: f64, paper: f64) -> Value {
        json!({"policy": policy, "case": case, "measured": measured, "paper": paper, "basis": "predicted"})
    }

    fn of(numbers: &str) -> super::Finding {
        let text = format!(
            "[[finding]]\npaper = \"EMD\"\nplace = \"Table 1\"\nfound = \"x\"\nsim.numbers = [{numbers}]\n"
        );
        parse(&text).unwrap().remove(0)
    }

    fn judged(numbers: &str, rows: Vec<Value>) -> Verdict {
        let finding = of(numbers);
        let runs = runs(rows);
        let look = |number: &super::Number| number.look_up(&runs, "sim").unwrap();
        let pairs: Vec<_> =
            finding.sim.numbers.iter().map(|number| (number, look(number))).collect();
        verdict(&pairs)
    }

    #[test]
    fn the_verdict_follows_from_numbers_effects_and_their_order() {
        let two = "{ rows = \"emd-table1\", of = { policy = \"a\" } }, { rows = \"emd-table1\", of = { policy = \"b\" } }";
        let rows = |a: f64, b: f64| vec![row("a", "L", a, 600.0), row("b", "L", b, 2000.0)];
        assert_eq!(judged(two, rows(610.0, 2100.0)), Verdict::Agrees);
        assert_eq!(judged(two, rows(610.0, 2500.0)), Verdict::Size);
        assert_eq!(judged(two, rows(2100.0, 610.0)), Verdict::Not);
        assert_eq!(judged(two, rows(1000.0, 1010.0)), Verdict::Not);
        let effect = "{ rows = \"emd-table1\", of = { policy = \"a\" }, neutral = 1.0 }";
        assert_eq!(judged(effect, vec![row("a", "L", 1.13, 1.1)]), Verdict::Agrees);
        // The number is within a tenth of the paper's, but less than half of the effect.
        assert_eq!(judged(effect, vec![row("a", "L", 1.03, 1.1)]), Verdict::Size);
        assert_eq!(judged(effect, vec![row("a", "L", 0.99, 1.1)]), Verdict::Not);
        // A number within 2 % of no effect has no direction, nor has one with little of a large effect.
        assert_eq!(judged(effect, vec![row("a", "L", 1.005, 1.1)]), Verdict::Not);
        assert_eq!(judged(effect, vec![row("a", "L", 1.05, 4.3)]), Verdict::Not);
        let share = effect.replace("1.0", "0");
        assert_eq!(judged(&share, vec![row("a", "L", 0.4, 62.0)]), Verdict::Not);
        assert_eq!(judged(&share, vec![row("a", "L", 4.0, 62.0)]), Verdict::Size);
        let bound = "{ rows = \"emd-table1\", of = { policy = \"a\" }, bound = { most = 1.02 } }";
        assert_eq!(judged(bound, vec![row("a", "L", 1.01, 1.0)]), Verdict::Agrees);
        assert_eq!(judged(bound, vec![row("a", "L", 1.04, 1.0)]), Verdict::Not);
        // The first would have the size wrong only.
        let both = format!("{effect}, {}", bound.replace("\"a\"", "\"b\""));
        assert_eq!(
            judged(&both, vec![row("a", "L", 1.3, 1.1), row("b", "L", 1.04, 1.0)]),
            Verdict::Not
        );
        assert_eq!(
            judged(&both, vec![row("a", "L", 1.3, 1.1), row("b", "L", 1.01, 1.0)]),
            Verdict::Size
        );
    }

    #[test]
    fn ratios_and_means_are_of_rows_that_belong_together() {
        let rows = vec![
            row("linux", "L", 10.0, 10.0),
            row("emd", "L", 20.0, 30.0),
            row("linux", "R", 10.0, 10.0),
            row("emd", "R", 40.0, 50.0),
        ];
        let ratio = |per: &str| {
            let text = format!(
                "{{ rows = \"emd-table1\", of = {{ policy = \"emd\" }}, over = {{ policy = \"linux\" }}, per = \"{per}\" }}"
            );
            of(&text).sim.numbers[0].look_up(&runs(rows.clone()), "sim").unwrap()
        };
        let basis = Some(Basis::Predicted);
        assert_eq!(ratio("mean"), Pair { ours: 3.0, paper: Some(4.0), basis });
        assert_eq!(ratio("most"), Pair { ours: 4.0, paper: Some(5.0), basis });
        let within = of(
            "{ rows = \"emd-table1\", of = { policy = \"emd\", case = \"R\" }, over_key = \"paper\", bound = { most = 1 } }",
        );
        let found = within.sim.numbers[0].look_up(&runs(rows.clone()), "sim").unwrap();
        assert_eq!(found, Pair { ours: 0.8, paper: None, basis });
        let several = of("{ rows = \"emd-table1\", of = { policy = \"emd\" } }");
        let others = rows.clone();
        let said = several.sim.numbers[0].look_up(&runs(rows), "sim").unwrap_err();
        assert_eq!(said, "more than one row of emd-table1 (sim) with policy = \"emd\"");
        let none = of(
            "{ rows = \"emd-table1\", of = { policy = \"emd\", case = \"R\" }, over = { policy = \"thp\" } }",
        );
        let said = none.sim.numbers[0].look_up(&runs(others), "sim").unwrap_err();
        assert!(
            said.starts_with("no single row that `over` names for a row of emd-table1"),
            "{said}"
        );
    }

    #[test]
    fn a_fitted_number_says_nothing_of_a_finding() {
        let with = |policy: &str, measured: f64, paper: f64, basis: &str| {
            let mut row = row(policy, "L", measured, paper);
            row["basis"] = basis.into();
            row
        };
        let one = "{ rows = \"emd-table1\", of = { policy = \"a\" } }";
        let two = format!("{one}, {}", one.replace("\"a\"", "\"b\""));
        let fitted = || with("a", 611.0, 611.0, "fitted");
        assert_eq!(judged(one, vec![fitted()]), Verdict::Input);
        let both = |measured: f64| judged(&two, vec![fitted(), with("b", measured, 2.0, "chosen")]);
        assert_eq!((both(2.0), both(3.0)), (Verdict::Agrees, Verdict::Size));
        let ratio = |one: &str, other: &str| {
            let of = |text: &str| basis(&json!({ "basis": text })).unwrap();
            mark(of_ratio(of(one), of(other)))
        };
        assert_eq!([ratio("predicted", "fitted"), ratio("assumed", "chosen")], ["", " c"]);
        assert_eq!([ratio("fitted", "fitted"), ratio("reference", "fitted")], [" f", " f"]);
        assert!(basis(&json!({ "basis": "guessed" })).is_err());
        // A tie with a fitted number is not the paper's order.
        let rows = |one: f64| vec![with("a", 1.79, 1.78, "fitted"), with("b", one, 2.13, "chosen")];
        assert_eq!(judged(&two, rows(1.79)), Verdict::Not);
        assert_eq!(judged(&two, rows(1.85)), Verdict::Size);
        let guessed = with("a", 1.0, 1.0, "guessed");
        let said = of(one).sim.numbers[0].look_up(&runs(vec![guessed]), "sim").unwrap_err();
        assert!(said.starts_with("a basis (unknown variant `guessed`"), "{said}");
    }

    #[test]
    fn two_numbers_of_different_units_have_no_order() {
        let one = "{ rows = \"emd-table1\", of = { policy = \"a\" }, unit = \"ms\" }";
        let two = format!("{one}, {}", one.replace("\"a\"", "\"b\"").replace("ms", "GB/s"));
        let rows = vec![row("a", "L", 9.0, 1.0), row("b", "L", 9.0, 2.0)];
        assert_eq!(judged(&two, rows), Verdict::Not);
    }

    #[test]
    fn the_row_that_has_the_number_says_its_basis() {
        let number = "{ rows = \"emd-table1\", of = { case = \"L\" }, per = \"most\" }";
        let mut rows = vec![row("a", "L", 2.0, 2.0), row("b", "L", 1.0, 2.0)];
        rows[0]["basis"] = "predicted".into();
        rows[1]["basis"] = "chosen".into();
        let found = of(number).sim.numbers[0].look_up(&runs(rows), "sim").unwrap();
        assert_eq!((found.ours, found.basis), (2.0, Some(Basis::Predicted)));
    }

    #[test]
    fn a_word_that_is_not_known_is_refused() {
        let text = "[[finding]]\npaper = \"EMD\"\nplace = \"a\"\nfound = \"x\"\nseen = 1\n";
        assert!(parse(text).unwrap_err().contains("seen"));
    }
}
