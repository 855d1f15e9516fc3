//! Experiments on the simulated machine: the papers' machines, programs and sizes.
//!
//! Every number is a row of its own ([`Row`]), with the paper's beside it and on what it rests:
//! [`Basis`]. Constants come from the papers' hardware tables, from calibration, or from at most one
//! row of the table at hand.

use super::{Content, Error, Experiment, On, Picture, Progress, Report, Result, Setting};
use serde::Serialize;

/// All of them, in the order of the papers.
pub const ALL: &[&Experiment] = &[];

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

/// On what a number rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// It follows from the model and from constants that do not come from this table.
    Predicted,
    /// A constant was chosen so that this row comes out as in the paper.
    Fitted,
    /// The paper does not say what it would take; a note says what was assumed.
    Assumed,
}

/// One number.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    experiment: &'static str,
    machine: &'static str,
    case: &'a str,
    policy: &'a str,
    quantity: &'a str,
    unit: &'a str,
    paper: Option<f64>,
    measured: f64,
    basis: Basis,
}
