//! Enumerations that an atomic word holds.

/// An enumeration without data, whose variants are numbered from 0 in their order.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        $visible:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        $visible enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// The variant of this number; nothing if there is none.
            $visible fn of(number: u32) -> Option<Self> {
                [$(Self::$variant),*].into_iter().find(|variant| *variant as u32 == number)
            }
        }
    };
}

pub(crate) use numbered;
