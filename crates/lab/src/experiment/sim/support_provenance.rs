//! Where the numbers of simulated experiments come from, as types: a number that a run needs and that no
//! profile of a machine has is a [`Constant`]; a run reads it through [`Constants`], which keeps what was
//! read; and a row is made of a number and of what it rests on ([`Rests`]), from which its
//! [`Basis`](super::Basis) follows. Numbers of profiles (`crates/sim/src/profiles`) have their sources there
//! and do not count here: the paper's hardware is the same for all rows.

use super::super::Setting;
use super::{Basis, Quantity};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use superpage_units::{BasePages, Bytes, HugePages, Nanos, Share};

/// A number that a run needs, with where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constant<T> {
    value: T,
    about: About,
}

/// A constant without its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// The name of the constant: the paper, and the thing that the number is of. No two constants have the same.
    pub(super) name: &'static str,
    /// The origin of the value.
    pub(super) origin: Origin,
    /// The place in the paper or in its published programs, or why it was assumed or chosen.
    pub(super) source: &'static str,
}

/// The origin of a constant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// The paper says so, or the programs that were published with it.
    Paper,
    /// The constant was chosen so that these numbers of the paper come out.
    Fitted(&'static [Cell]),
    /// The paper does not say, and the constant was not chosen by what comes out.
    Assumed,
    /// The paper does not say, and the constant was chosen with this outcome in view.
    Chosen(&'static str),
    /// The rows do not depend on it, such as the length of a run of which only ratios are told.
    Immaterial,
}

/// A number of the paper that a constant was fitted to: the row that has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) experiment: &'static str,
    pub(super) case: &'static str,
    pub(super) policy: &'static str,
    pub(super) quantity: &'static str,
}

impl<T> Constant<T> {
    /// A number that the paper or its published programs give; `source` says where.
    pub(super) const fn paper(name: &'static str, value: T, source: &'static str) -> Self {
        Self { value, about: About { name, origin: Origin::Paper, source } }
    }

    /// A number that was chosen so that `cells` come out; `source` says how.
    pub(super) const fn fitted(
        name: &'static str,
        value: T,
        cells: &'static [Cell],
        source: &'static str,
    ) -> Self {
        Self { value, about: About { name, origin: Origin::Fitted(cells), source } }
    }

    /// A number that the paper does not say; `source` says why this one.
    pub(super) const fn assumed(name: &'static str, value: T, source: &'static str) -> Self {
        Self { value, about: About { name, origin: Origin::Assumed, source } }
    }

    /// A number that rows do not depend on; `source` says why not.
    pub(super) const fn immaterial(name: &'static str, value: T, source: &'static str) -> Self {
        Self { value, about: About { name, origin: Origin::Immaterial, source } }
    }

    /// A number that was chosen with the outcome `in_view`; `source` says why this one.
    pub(super) const fn chosen(
        name: &'static str,
        value: T,
        in_view: &'static str,
        source: &'static str,
    ) -> Self {
        Self { value, about: About { name, origin: Origin::Chosen(in_view), source } }
    }
}

/// A constant that is changed, to see what depends on it, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scaled {
    /// The name of the constant.
    pub name: String,
    /// The change.
    pub factor: Factor,
}

/// A change of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Factor {
    /// The constant becomes half of what it is.
    Half,
    /// The constant becomes twice what it is.
    Double,
}

impl Factor {
    const fn number(self) -> f64 {
        match self {
            Self::Half => 0.5,
            Self::Double => 2.0,
        }
    }
}

/// A type of constants, of which there is a half and a double.
pub(super) trait Scale: Copy {
    /// The value multiplied by `factor`, and at least 1 of a whole number above 0; a choice that is no number as it is.
    fn times(self, factor: f64) -> Self;

    /// The value with its unit; `None` for a choice that is no number.
    fn text(self) -> Option<String>;
}

/// Implements [`Scale`] for types around a `u64`, each with the text of a value.
macro_rules! scale_whole {
    ($($name:ident: $text:expr),+ $(,)?) => {$(
        impl Scale for $name {
            fn times(self, factor: f64) -> Self {
                Self(self.0.times(factor))
            }

            fn text(self) -> Option<String> {
                let text: fn(Self) -> String = $text;
                Some(text(self))
            }
        }
    )+};
}

scale_whole! {
    BasePages: |pages| format!("{} base pages", pages.0),
    HugePages: |pages| format!("{} huge pages", pages.0),
    Bytes: |bytes| bytes.to_string(),
    Nanos: |time| format!("{} s", time.as_secs_f64()),
}

impl Scale for u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "half or twice a constant of an experiment, which is far below 2^53"
    )]
    fn times(self, factor: f64) -> Self {
        ((self as f64 * factor).round() as Self).max(u64::from(self > 0))
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Scale for u32 {
    fn times(self, factor: f64) -> Self {
        Self::try_from(u64::from(self).times(factor)).unwrap_or(self)
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Scale for usize {
    fn times(self, factor: f64) -> Self {
        Self::try_from((self as u64).times(factor)).unwrap_or(self)
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Scale for f64 {
    fn times(self, factor: f64) -> Self {
        self * factor
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Scale for Share {
    fn times(self, factor: f64) -> Self {
        Self::clamped(self.get() * factor)
    }

    fn text(self) -> Option<String> {
        Some(self.get().to_string())
    }
}

/// A choice that is no number, such as an order of accesses.
impl Scale for () {
    fn times(self, _: f64) -> Self {}

    fn text(self) -> Option<String> {
        None
    }
}

/// Reads the constants of a run, and keeps which were read. A run has one of its own.
#[derive(Debug, Default)]
pub(super) struct Constants {
    scaled: Option<Scaled>,
    read: RefCell<Rests>,
}

impl Constants {
    /// The constants as this setting has them.
    pub(super) fn of(setting: &Setting) -> Self {
        Self { scaled: setting.scaled.clone(), read: RefCell::default() }
    }

    /// The number, which the run rests on from now on.
    pub(super) fn get<T: Scale>(&self, constant: &Constant<T>) -> T {
        let Constant { value, about } = *constant;
        let known = Known { about, value: value.text() };
        self.read.borrow_mut().0.insert(about.name, known);
        match self.scaled.as_ref().filter(|scaled| scaled.name == about.name) {
            Some(scaled) => value.times(scaled.factor.number()),
            None => value,
        }
    }

    /// The constants that were read until now.
    pub(super) fn rests(&self) -> Rests {
        self.read.borrow().clone()
    }
}

/// All that the outcome of a run depends on beside its case: the seed, and the constant that is changed.
pub(super) type Given = (u64, Option<Scaled>);

impl Setting {
    /// The part of the setting that outcomes of runs depend on.
    pub(super) fn given(&self) -> Given {
        (self.seed, self.scaled.clone())
    }
}

/// The constants that were read to make a number, on which the number rests.
#[derive(Clone, Debug, Default)]
pub(super) struct Rests(BTreeMap<&'static str, Known>);

/// A constant that was read.
#[derive(Clone, Debug)]
struct Known {
    about: About,
    value: Option<String>,
}

/// A constant that rows rest on, for a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Used {
    /// The name of the constant.
    pub name: String,
    /// The number with its unit; empty for a choice that is no number.
    pub value: String,
    /// `paper`, `fitted`, `assumed`, `chosen` or `immaterial`.
    pub origin: String,
    /// The place in the paper, or the reason for the value; of a fitted constant with the rows, of a chosen one with the outcome in view.
    pub source: String,
}

impl Rests {
    /// No constant: the number rests on the model and the profile of the machine alone.
    pub(super) const NOTHING: Self = Self(BTreeMap::new());

    /// All constants of these together.
    pub(super) fn all<'a>(of: impl IntoIterator<Item = &'a Self>) -> Self {
        let known = of.into_iter().flat_map(|rests| rests.0.iter());
        Self(known.map(|(name, known)| (*name, known.clone())).collect())
    }

    /// Whether the constant was read.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The basis of a row of `experiment` that is made of such a number.
    pub(super) fn basis(&self, experiment: &str, quantity: Quantity<'_>) -> Basis {
        let is_this = |cell: &Cell| {
            cell.experiment == experiment
                && cell.case == quantity.case
                && cell.policy == quantity.policy
                && cell.quantity == quantity.name
        };
        let any = |is: &dyn Fn(Origin) -> bool| self.0.values().any(|known| is(known.about.origin));
        if any(&|origin| matches!(origin, Origin::Fitted(cells) if cells.iter().any(is_this))) {
            Basis::Fitted
        } else if any(&|origin| matches!(origin, Origin::Chosen(_))) {
            Basis::Chosen
        } else if any(&|origin| matches!(origin, Origin::Assumed)) {
            Basis::Assumed
        } else {
            Basis::Predicted
        }
    }

    /// The constants, for a reader.
    pub(super) fn used(&self) -> impl Iterator<Item = Used> {
        self.0.values().map(|Known { about, value }| {
            let (origin, source) = match about.origin {
                Origin::Paper => ("paper", about.source.to_owned()),
                Origin::Fitted(cells) => ("fitted", format!("{}; {}", about.source, listed(cells))),
                Origin::Assumed => ("assumed", about.source.to_owned()),
                Origin::Immaterial => ("immaterial", about.source.to_owned()),
                Origin::Chosen(in_view) => {
                    ("chosen", format!("{}; chosen with {in_view} in view", about.source))
                }
            };
            let (name, value) = (about.name.to_owned(), value.clone().unwrap_or_default());
            Used { name, value, origin: origin.to_owned(), source }
        })
    }
}

/// The numbers that a constant was fitted to: the first, and how many there are.
fn listed(cells: &[Cell]) -> String {
    let Some(Cell { experiment, case, policy, quantity }) = cells.first() else {
        return String::new();
    };
    let others = match cells.len() - 1 {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    format!("fitted to {quantity} of {case}, {policy} ({experiment}){others}")
}

#[cfg(test)]
mod tests {
    use super::*;

    static PAPERS: Constant<Bytes> = Constant::paper("memory", Bytes::from_gib(2), "Table 1");
    static ASSUMED: Constant<u64> = Constant::assumed("threads", 1, "not said");
    static FITTED: Constant<f64> = Constant::fitted("cycles", 3.0, &[CELL], "so that it comes out");
    static CHOSEN: Constant<Share> =
        Constant::chosen("part", Share::percent(50), "row 3", "not said");
    const CELL: Cell = Cell { experiment: "e", case: "a", policy: "p", quantity: "time" };

    fn setting(name: &str, factor: Factor) -> Setting {
        Setting { scaled: Some(Scaled { name: name.to_owned(), factor }), ..Setting::of_test() }
    }

    #[test]
    fn the_basis_follows_from_what_was_read() {
        let constants = Constants::of(&Setting::of_test());
        let time = Quantity { case: "a", policy: "p", name: "time", unit: "s" };
        let basis = |quantity| constants.rests().basis("e", quantity);
        assert_eq!(basis(time), Basis::Predicted);
        constants.get(&PAPERS);
        assert_eq!(basis(time), Basis::Predicted);
        constants.get(&FITTED);
        assert_eq!(basis(time), Basis::Fitted);
        assert_eq!(basis(Quantity { case: "b", ..time }), Basis::Predicted);
        constants.get(&ASSUMED);
        assert_eq!(basis(Quantity { case: "b", ..time }), Basis::Assumed);
        constants.get(&CHOSEN);
        assert_eq!(basis(Quantity { case: "b", ..time }), Basis::Chosen);
        assert_eq!(basis(time), Basis::Fitted);
        assert!(constants.rests().has("part") && !constants.rests().has("other"));
    }

    #[test]
    fn one_constant_is_changed_and_no_other() {
        let half = Constants::of(&setting("memory", Factor::Half));
        assert_eq!(half.get(&PAPERS), Bytes::from_gib(1));
        assert!((half.get(&FITTED) - 3.0).abs() < f64::EPSILON);
        let twice = Constants::of(&setting("part", Factor::Double));
        assert_eq!(twice.get(&CHOSEN), Share::ALL);
    }

    #[test]
    fn half_of_one_is_no_nothing() {
        let half = Constants::of(&setting("threads", Factor::Half));
        assert_eq!(half.get(&ASSUMED), 1);
    }

    #[test]
    fn a_reader_is_told_what_was_fitted_and_in_view() {
        let constants = Constants::default();
        constants.get(&CHOSEN);
        constants.get(&FITTED);
        let used: Vec<Used> = constants.rests().used().collect();
        assert!(used[0].source.ends_with("; fitted to time of a, p (e)"), "{used:?}");
        assert_eq!((used[1].origin.as_str(), used[1].value.as_str()), ("chosen", "0.5"));
        assert!(used[1].source.ends_with("chosen with row 3 in view"), "{used:?}");
    }
}
