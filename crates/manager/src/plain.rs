//! Units in files as plain numbers: what `#[serde(with = "plain")]` calls.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use superpage_units::{BasePages, Bytes, HugePages, Nanos, Pid, Share};

/// A unit that files have as a plain number.
pub trait Plain: Sized {
    /// The number's type.
    type Number;

    /// The number.
    fn number(&self) -> Self::Number;

    /// The unit with this number, if there is one.
    fn from_number(number: Self::Number) -> Option<Self>;
}

impl Plain for Share {
    type Number = f64;

    fn number(&self) -> f64 {
        self.get()
    }

    fn from_number(number: f64) -> Option<Self> {
        Self::new(number)
    }
}

/// Units that every number is one of.
macro_rules! any_number {
    ($($unit:ident: $number:ty),+) => {$(
        impl Plain for $unit {
            type Number = $number;

            fn number(&self) -> $number {
                self.0
            }

            fn from_number(number: $number) -> Option<Self> {
                Some(Self(number))
            }
        }
    )+};
}

any_number!(Pid: u32, Bytes: u64, BasePages: u64, HugePages: u64, Nanos: u64);

impl<T: Plain> Plain for Option<T> {
    type Number = Option<T::Number>;

    fn number(&self) -> Option<T::Number> {
        self.as_ref().map(T::number)
    }

    fn from_number(number: Option<T::Number>) -> Option<Self> {
        match number {
            Some(number) => T::from_number(number).map(Some),
            None => Some(None),
        }
    }
}

/// Writes the unit's number.
///
/// # Errors
/// The serializer's.
pub fn serialize<T: Plain<Number: Serialize>, S: Serializer>(
    unit: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    unit.number().serialize(serializer)
}

/// Reads the unit's number.
///
/// # Errors
/// The deserializer's, and one for a number that no unit has.
pub fn deserialize<'de, T: Plain<Number: Deserialize<'de>>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let number = T::Number::deserialize(deserializer)?;
    T::from_number(number).ok_or_else(|| D::Error::custom("a number that is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, serde::Serialize, Deserialize)]
    struct Used {
        #[serde(with = "super")]
        share: Share,
        #[serde(with = "super", default, skip_serializing_if = "Option::is_none")]
        pid: Option<Pid>,
    }

    #[test]
    fn a_unit_is_written_and_read_as_its_number() {
        let used = Used { share: Share::percent(25), pid: Some(Pid(7)) };
        let text = serde_json::to_string(&used).expect("it is a number");
        assert_eq!(text, r#"{"share":0.25,"pid":7}"#);
        assert_eq!(serde_json::from_str::<Used>(&text).expect("it was written so"), used);
        let nobody = serde_json::from_str::<Used>(r#"{"share":0.5}"#).expect("no pid is said");
        assert_eq!(nobody.pid, None);
        assert!(serde_json::from_str::<Used>(r#"{"share":1.5}"#).is_err());
    }
}
