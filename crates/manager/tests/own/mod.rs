//! The worked examples of CONTRIBUTING.md: a system and a de-bloater of one's own, each in one file, with
//! its line for the registry.

pub(crate) mod half;
pub(crate) mod hundred;

use superpage_policy::registry::Policies;

/// All published policies, and these two.
pub(crate) fn policies() -> Policies {
    let Policies { systems, debloaters } = Policies::published();
    Policies { systems: systems.with(hundred::ENTRY), debloaters: debloaters.with(half::ENTRY) }
}
