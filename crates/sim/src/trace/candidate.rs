//! What a trace is replayed under: a promotion policy, alone or with a de-bloater plugged into it, by name:
//! `linux`, `linux+emd`.

use superpage_policy::debloat;
use superpage_policy::promotion::life::Deallocation;
use superpage_policy::promotion::list;
use superpage_policy::registry::Policies;
use superpage_policy::watermark::{LowNotBelowHigh, Watermarks};
use superpage_units::Share;

/// A promotion policy, and what reclaims bloat under it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The policy.
    pub policy: list::Entry,
    /// The de-bloater, if there is one.
    pub debloater: Option<Plugged>,
}

/// A de-bloater, and when it starts and stops.
#[derive(Clone, Copy, Debug)]
pub struct Plugged {
    /// Which.
    pub entry: debloat::list::Entry,
    /// When.
    pub marks: Watermarks,
}

/// Why a name is none of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// There is none.
    #[error("empty name; give policies with one comma between two")]
    Empty,
    /// There is no such policy.
    #[error(
        "there is no such policy; choose from {policies}, or all; {debloaters} can be plugged in, as \
         in linux+emd"
    )]
    Policy {
        /// The names of promotion policies.
        policies: String,
        /// The names of de-bloaters.
        debloaters: String,
    },
    /// There is no such de-bloater; here are those that there are.
    #[error("there is no such de-bloater; choose from {0} after the plus sign")]
    Debloater(String),
    /// There are several plus signs; here are the de-bloaters that there are.
    #[error("one de-bloater each; choose one of {0}")]
    Several(String),
    /// The policy's superpages cannot be split.
    #[error(
        "the superpages of {0} are set aside and stay whole, so no bloat can be reclaimed from \
         them; choose another policy before the plus sign"
    )]
    Whole(&'static str),
}

impl Candidate {
    /// The policy alone.
    #[must_use]
    pub const fn alone(policy: &list::Entry) -> Self {
        Self { policy: *policy, debloater: None }
    }

    /// The candidate with this name; blanks around it do not count.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn named(name: &str) -> Result<Self, BadName> {
        Self::named_with(name, &Policies::published())
    }

    /// As [`Self::named`], of these policies.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn named_with(name: &str, policies: &Policies) -> Result<Self, BadName> {
        let debloaters = || policies.debloat.names().join(", ");
        let mut parts = name.split('+').map(str::trim);
        let (policy, debloater) = (parts.next().unwrap_or_default(), parts.next());
        if policy.is_empty() && debloater.is_none() {
            return Err(BadName::Empty);
        }
        if parts.next().is_some() {
            return Err(BadName::Several(debloaters()));
        }
        let policy = policies.promotion.entry(policy).ok_or_else(|| BadName::Policy {
            policies: policies.promotion.names().join(", "),
            debloaters: debloaters(),
        })?;
        let Some(debloater) = debloater else { return Ok(Self::alone(&policy)) };
        let debloater =
            policies.debloat.entry(debloater).ok_or_else(|| BadName::Debloater(debloaters()))?;
        match (policy.build)().life().deallocation {
            // Pages set aside before, and pools: no base pages can come of them.
            Deallocation::OnlyWhenUnmapped | Deallocation::Clock => {
                Err(BadName::Whole(policy.name))
            }
            _ => {
                let plugged = Plugged { entry: debloater, marks: debloater.watermarks() };
                Ok(Self { policy, debloater: Some(plugged) })
            }
        }
    }

    /// The same, with a de-bloater that starts above the share `high` of memory in use and stops at
    /// `low`; where nothing is said, as it does by itself.
    ///
    /// # Errors
    /// [`LowNotBelowHigh`].
    pub fn between(self, high: Option<Share>, low: Option<Share>) -> Result<Self, LowNotBelowHigh> {
        let Some(plugged) = self.debloater else { return Ok(self) };
        let [own_high, own_low] = plugged.entry.marks;
        let marks = Watermarks::new(high.unwrap_or(own_high), low.unwrap_or(own_low))?;
        Ok(Self { debloater: Some(Plugged { marks, ..plugged }), ..self })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        match self.debloater {
            Some(plugged) => format!("{}+{}", self.policy.name, plugged.entry.name),
            None => self.policy.name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_as_it_is_written() {
        let mut plugged = 0;
        for policy in list::ALL {
            let alone = Candidate::named(policy.name).expect("it is in the list");
            assert!(alone.name() == policy.name && alone.debloater.is_none());
            for debloater in debloat::list::ALL {
                let name = format!("{}+{}", policy.name, debloater.name);
                match Candidate::named(&name) {
                    Ok(candidate) => {
                        assert_eq!(candidate.name(), name);
                        plugged += 1;
                    }
                    Err(error) => assert_eq!(error, BadName::Whole(policy.name)),
                }
            }
        }
        // All but xHeap and the two that are set aside before.
        assert_eq!(plugged, (list::ALL.len() - 3) * debloat::list::ALL.len());
    }

    #[test]
    fn a_name_that_is_none_says_which_are() {
        let said = |name| Candidate::named(name).map(|c| c.name()).unwrap_err().to_string();
        assert!(said("").contains("empty name") && said(" ").contains("empty name"));
        assert!(said("linux+emd+hawkeye").contains("one de-bloater each"));
        assert_eq!(Candidate::named(" linux + emd ").map(|c| c.name()), Ok("linux+emd".to_owned()));
        for name in ["windows", "+emd", "windows+emd"] {
            assert!(said(name).contains("linux-4k, freebsd") && said(name).contains("linux+emd"));
        }
        for name in ["linux+", "linux+ksm", "linux+emd+hawkeye", "linux+linux"] {
            assert!(said(name).contains("emd, emd-exact, hawkeye, underused"), "{}", said(name));
        }
        assert!(said("hugetlb-2m+emd").contains("hugetlb-2m"));
        assert!(said("xheap+hawkeye").contains("xheap"));
    }

    #[test]
    fn watermarks_are_the_de_bloaters_own_unless_somebody_says_otherwise() {
        let marks = |name, high, low| {
            let candidate = Candidate::named(name).expect("it exists").between(high, low)?;
            Ok(candidate.debloater.map(|plugged| [plugged.marks.high(), plugged.marks.low()]))
        };
        assert_eq!(marks("linux+hawkeye", None, None), Ok(Some([85, 70].map(Share::percent))));
        assert_eq!(
            marks("linux+emd", Some(Share::percent(90)), None),
            Ok(Some([90, 65].map(Share::percent)))
        );
        assert_eq!(marks("linux", Some(Share::percent(90)), Some(Share::percent(95))), Ok(None));
        assert_eq!(marks("linux+emd", Some(Share::percent(60)), None), Err(LowNotBelowHigh));
    }
}
