//! Experiments on the simulated machine: the papers' machines, programs and sizes.
//!
//! Every number is a row of its own, with the paper's beside it and on what it rests: [`Basis`], which
//! follows from the constants that were read to make it (`support_provenance`).

mod emd_fig10;
mod emd_fig13;
mod emd_fig8;
mod emd_table1;
mod emd_table3;
mod graph_fig1;
mod graph_fig10;
mod graph_fig11;
mod graph_fig5;
mod graph_fig6;
mod graph_fig9;
mod graph_orders;
mod graph_oversubscribed;
mod quicksilver_fig2;
mod quicksilver_sparse;
mod quicksilver_table2;
mod quicksilver_table3;
mod quicksilver_table4;
mod quicksilver_table5;
mod quicksilver_table6;
mod sensitivity;
mod superpage_table1;
mod support_emd;
mod support_graph_constants;
mod support_graph_programs;
mod support_graph_rows;
mod support_graph_runs;
mod support_hardware;
mod support_parallel;
mod support_pictures;
mod support_provenance;
mod support_quicksilver;
mod support_trident_bars;
mod support_trident_constants;
mod support_trident_programs;
mod support_trident_runs;
mod support_trident_translation;
mod support_xheap;
mod support_xheap_programs;
mod trident_bloat;
mod trident_fig1;
mod trident_fig11;
mod trident_fig13;
mod trident_fig2;
mod trident_fig3;
mod trident_fig4;
mod trident_fig7;
mod trident_performance;
mod trident_pv_promotion;
mod trident_table3;
mod trident_table4;
mod trident_table5;
mod xheap;
mod xheap_fig3;

use super::{Error, Experiment, On, Progress, Report, Result, Run, Setting};
pub(super) use sensitivity::parts as parts_of_sensitivity;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superpage_policy::promotion::{Policy, list};
use superpage_units::Bytes;
pub(super) use support_pictures::pictures;
use support_provenance::{Cell, Constant, Constants, Given, Rests};
pub use support_provenance::{Factor, Scaled, Used};
pub(super) use trident_performance::{
    paper_of_fig9 as paper_of_trident_fig9, paper_of_fig10 as paper_of_trident_fig10,
};
pub(super) use trident_table3::paper_shares as paper_of_trident_table3;

/// All of them, in the order of the papers.
pub const ALL: &[&Experiment] = &[
    &emd_table1::EXPERIMENT,
    &emd_fig8::EXPERIMENT,
    &emd_fig10::EXPERIMENT,
    &emd_fig13::EXPERIMENT,
    &emd_table3::EXPERIMENT,
    &quicksilver_sparse::EXPERIMENT,
    &quicksilver_table2::EXPERIMENT,
    &quicksilver_fig2::EXPERIMENT,
    &quicksilver_table3::EXPERIMENT,
    &quicksilver_table4::EXPERIMENT,
    &quicksilver_table5::EXPERIMENT,
    &quicksilver_table6::EXPERIMENT,
    &trident_fig1::EXPERIMENT,
    &trident_fig2::EXPERIMENT,
    &trident_fig3::EXPERIMENT,
    &trident_fig4::EXPERIMENT,
    &trident_table3::EXPERIMENT,
    &trident_fig7::EXPERIMENT,
    &trident_table4::EXPERIMENT,
    &trident_table5::EXPERIMENT,
    &trident_performance::FIG9,
    &trident_performance::FIG10,
    &trident_fig11::EXPERIMENT,
    &trident_performance::FIG12,
    &trident_fig13::EXPERIMENT,
    &trident_pv_promotion::EXPERIMENT,
    &trident_bloat::EXPERIMENT,
    &xheap_fig3::EXPERIMENT,
    &xheap::FIG4,
    &xheap::FIG5,
    &xheap::FIG6,
    &graph_fig1::EXPERIMENT,
    &graph_fig5::EXPERIMENT,
    &graph_fig6::EXPERIMENT,
    &graph_oversubscribed::EXPERIMENT,
    &graph_orders::FIG7,
    &graph_orders::FIG8,
    &graph_fig9::EXPERIMENT,
    &graph_fig10::EXPERIMENT,
    &graph_fig11::EXPERIMENT,
    &superpage_table1::EXPERIMENT,
    &sensitivity::EXPERIMENT,
];

/// The share of translation cycles that a processor cannot hide: the model's, in which programs wait for all of translation.
const EXPOSED: f64 = 1.0; // not a Constant: the model's own

/// What to take from each row for the table on the screen.
const COLUMNS: &[(&str, &str)] = &[
    ("case", "case"),
    ("policy", "policy"),
    ("quantity", "quantity"),
    ("unit", "unit"),
    ("paper", "in the paper"),
    ("measured", "simulated"),
    ("basis", "basis"),
];

/// On what a number rests, in the order in which one hides another where numbers are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The number is 1, because the others of its case are over it.
    Reference,
    /// Each constant that was read is the paper's, immaterial, or fitted to another row. The model's own and the profile of the
    /// machine do not count.
    Predicted,
    /// A constant was chosen so that this row comes out as in the paper.
    Fitted,
    /// A constant that was read is not given by the paper.
    Assumed,
    /// A constant that was read was chosen with an outcome in view.
    Chosen,
}

/// One number.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    case: &'a str,
    policy: &'a str,
    quantity: &'a str,
    unit: &'a str,
    paper: Option<f64>,
    measured: f64,
    basis: Basis,
}

/// Collects the rows of one experiment.
struct Table {
    experiment: &'static str,
    report: Report,
}

/// What a number is about.
#[derive(Clone, Copy, Debug)]
struct Quantity<'a> {
    case: &'a str,
    policy: &'a str,
    name: &'a str,
    unit: &'a str,
}

impl Table {
    fn new(experiment: &'static str) -> Self {
        Self { experiment, report: Report::default() }
    }

    /// Adds a number, rounded to four significant digits or to whole ones, with what it rests on.
    ///
    /// # Errors
    /// [`Error::Row`] if it is there: who reads the rows must be able to tell them apart.
    fn add(
        &mut self,
        quantity: Quantity<'_>,
        paper: Option<f64>,
        measured: f64,
        rests: &Rests,
    ) -> Result<()> {
        for used in rests.used() {
            self.report.rest_on(used);
        }
        self.push(quantity, paper, measured, rests.basis(self.experiment, quantity))
    }

    /// Adds the number that the others of a case are over, which is 1 here and in the paper.
    ///
    /// # Errors
    /// As [`Table::add`].
    fn add_reference(&mut self, quantity: Quantity<'_>) -> Result<()> {
        self.push(quantity, Some(1.0), 1.0, Basis::Reference)
    }

    fn push(
        &mut self,
        quantity: Quantity<'_>,
        paper: Option<f64>,
        measured: f64,
        basis: Basis,
    ) -> Result<()> {
        let is_same = |row: &Value| {
            row["case"] == quantity.case
                && row["policy"] == quantity.policy
                && row["quantity"] == quantity.name
                && row["unit"] == quantity.unit
        };
        if self.report.rows.iter().any(is_same) {
            return Err(Error::Row(format!("{quantity:?} is there twice")));
        }
        self.report.push(&Row {
            case: quantity.case,
            policy: quantity.policy,
            quantity: quantity.name,
            unit: quantity.unit,
            paper: paper.map(significant),
            measured: significant(measured),
            basis,
        })
    }

    /// Says something that a reader must know.
    fn note(&mut self, note: &str) {
        self.report.notes.push(note.to_owned());
    }
}

/// A fresh policy of this name.
fn policy_named(name: &str) -> Result<Box<dyn Policy>> {
    let entry = list::find(name);
    entry.map(|entry| (entry.build)()).ok_or_else(|| {
        Error::Simulation(format!("there is no policy {name:?}; `superpage lab` has a fault"))
    })
}

/// So many bytes in GiB.
fn gib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / Bytes::from_gib(1).0 as f64
}

/// Four significant digits; numbers above that whole.
fn significant(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let digits = 3.0 - number.abs().log10().floor();
    let scale = 10_f64.powf(digits.max(0.0));
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::{Quantity, Rests, Table, significant};

    #[test]
    fn a_number_is_said_once() {
        let mut table = Table::new("trident-fig3");
        let quantity = Quantity { case: "SVM", policy: "any", name: "time", unit: "s" };
        assert!(table.add(quantity, None, 1.0, &Rests::NOTHING).is_ok());
        assert!(table.add(quantity, None, 2.0, &Rests::NOTHING).is_err());
        let other = Quantity { policy: "linux", ..quantity };
        assert!(table.add(other, None, 2.0, &Rests::NOTHING).is_ok());
    }

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!(significant(0.123_456), 0.1235);
        assert_eq!(significant(123_456.7), 123_457.0);
        assert_eq!(significant(0.0), 0.0);
    }
}
