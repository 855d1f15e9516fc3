//! How evenly de-bloating hurts: the fairness score of the EMD paper (section 5.3.1).

/// One minus the coefficient of variation of the slowdowns: 1 when all are hurt alike, lower the
/// more some are hurt than others.
///
/// A slowdown is the time with de-bloating over the time without, so 1 means unhurt. `None` if
/// there are no slowdowns or one is not a positive number.
///
/// The standard deviation is the population's (divided by N), as in the paper.
#[must_use]
pub fn fairness(slowdowns: &[f64]) -> Option<f64> {
    if slowdowns.is_empty() || slowdowns.iter().any(|s| !s.is_finite() || *s <= 0.0) {
        return None;
    }
    let count = slowdowns.len() as f64;
    let mean = slowdowns.iter().sum::<f64>() / count;
    let variance = slowdowns.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / count;
    Some(1.0 - libm::sqrt(variance) / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_slowdowns_are_perfectly_fair() {
        assert_eq!(fairness(&[1.7, 1.7, 1.7]), Some(1.0));
        assert_eq!(fairness(&[1.2]), Some(1.0));
    }

    /// Worked by hand: mean 1.5, deviation 0.5.
    #[test]
    fn one_hurt_and_one_spared() {
        let score = fairness(&[1.0, 2.0]).unwrap();
        assert!((score - (1.0 - 0.5 / 1.5)).abs() < 1e-12);
    }

    #[test]
    fn nonsense_has_no_score() {
        assert_eq!(fairness(&[]), None);
        assert_eq!(fairness(&[1.0, 0.0]), None);
        assert_eq!(fairness(&[f64::NAN]), None);
    }
}
