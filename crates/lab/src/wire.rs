//! How the unit types travel as JSON: as bare integers. Nothing else.
//!
//! The units belong to a crate that knows no serialisation; a field names its module here with
//! `#[serde(with = "…")]`.

/// A module that writes one unit type as its integer and reads it back.
macro_rules! as_integer {
    ($module:ident, $unit:ident) => {
        pub(crate) mod $module {
            use serde::{Deserialize, Deserializer, Serializer};
            use superpage_units::$unit;

            pub(crate) fn serialize<S: Serializer>(
                value: &$unit,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                to.serialize_u64(value.0)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<$unit, D::Error> {
                u64::deserialize(from).map($unit)
            }
        }
    };
}

as_integer!(bytes, Bytes);
as_integer!(base_pages, BasePages);
as_integer!(huge_pages, HugePages);
as_integer!(nanos, Nanos);
