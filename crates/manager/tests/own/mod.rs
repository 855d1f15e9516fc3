//! The worked examples of CONTRIBUTING.md: a promotion policy and a de-bloater of one's own, each in one file, with
//! its line for the registry.

pub(crate) mod half;
pub(crate) mod hundred;

use superpage_policy::registry::Policies;

/// All published policies, and these two.
pub(crate) fn policies() -> Policies {
    let Policies { promotion, debloat } = Policies::published();
    Policies { promotion: promotion.with(hundred::ENTRY), debloat: debloat.with(half::ENTRY) }
}
