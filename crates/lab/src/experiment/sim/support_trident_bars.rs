//! What several of Trident's figures show alike: performance and walk cycles of each program under
//! some policies, against a baseline.

use super::support_trident_programs::Program;
use super::support_trident_runs::{self, Case, Outcome};
use super::{Progress, Quantity, Rests, Result, Setting, Table};

/// Performance of the policies over the baseline's, as the paper's text gives it.
#[derive(Clone, Copy)]
pub(super) struct Paper {
    /// Of one program under a policy.
    pub(super) performance: fn(Program, &str) -> Option<f64>,
    /// Mean over the programs that gain from gigantic pages.
    pub(super) mean: fn(&str) -> Option<f64>,
}

/// Bars of one figure.
pub(super) struct Bars<'a> {
    pub(super) programs: &'a [Program],
    /// Added to the name of each case.
    pub(super) suffix: &'a str,
    pub(super) paper: Paper,
}

impl Bars<'_> {
    /// Adds the rows of each of `policies`, each a name and the run that it stands for, against
    /// `baseline`.
    pub(super) fn add(
        &self,
        table: &mut Table,
        policies: &[&'static str],
        baseline: &dyn Fn(Program) -> Case,
        of: &dyn Fn(Program, &'static str) -> Case,
        (setting, progress): (&Setting, Progress<'_>),
    ) -> Result<()> {
        let mut cases: Vec<Case> = self.programs.iter().map(|program| baseline(*program)).collect();
        for program in self.programs {
            cases.extend(policies.iter().map(|policy| of(*program, policy)));
        }
        support_trident_runs::make(&cases, setting, progress)?;
        let mut found = vec![(Vec::new(), Vec::new()); policies.len()];
        for program in self.programs {
            let case = format!("{}{}", program.name(), self.suffix);
            let base = baseline(*program).outcome(setting)?;
            for (policy, (ratios, all)) in policies.iter().zip(&mut found) {
                let outcome = of(*program, policy).outcome(setting)?;
                let rests = Rests::all([&base.rests, &outcome.rests]);
                let runs = (&base, &outcome);
                ratios.push(self.add_one(table, (&case, policy), *program, runs, &rests)?);
                all.push(rests);
            }
        }
        for (policy, (ratios, all)) in policies.iter().zip(&found) {
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let case = format!("mean{}", self.suffix);
            let quantity = Quantity { case: &case, policy, name: "performance", unit: "ratio" };
            table.add(quantity, (self.paper.mean)(policy), mean, &Rests::all(all))?;
        }
        Ok(())
    }

    /// Performance and walk cycles of one program under one policy.
    fn add_one(
        &self,
        table: &mut Table,
        (case, policy): (&str, &str),
        program: Program,
        (base, outcome): (&Outcome, &Outcome),
        rests: &Rests,
    ) -> Result<f64> {
        let of = |name| Quantity { case, policy, name, unit: "ratio" };
        let performance = base.seconds / outcome.seconds;
        let paper = (self.paper.performance)(program, policy);
        table.add(of("performance"), paper, performance, rests)?;
        let walks = outcome.walk_share / base.walk_share;
        table.add(of("share of walk cycles"), None, walks, rests)?;
        Ok(performance)
    }
}

/// Says what the numbers rest on.
pub(super) fn note(table: &mut Table) {
    table.note(
        "Performance is the inverse of the time of the main part, 300 s without translation \
         (assumed). The paper does not say what programs do between two accesses that miss: GUPS's \
         cycles are fitted to its 47 % without fragmentation (Figure 9), the others' are assumed, \
         so their gains show an order and not a size. Contention between the background's copying \
         and programs is not modelled.",
    );
}
