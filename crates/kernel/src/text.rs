//! Reading the kernel's small text files as bytes: whole files, lines, `key value` pairs.
//!
//! Names in `/proc` need not be UTF-8, so nothing here asks for it.

use crate::error::{Error, Result};
use std::path::Path;

pub use superpage_uapi::text::{decimal, hexadecimal, kibibytes, lines, value, words};

/// The whole file at `path`.
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Failed`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::from_io(&error, "read", path))
}

/// A small file that holds one decimal number.
///
/// # Errors
/// As [`read`], or [`Error::Malformed`].
pub fn read_decimal(path: &Path) -> Result<u64> {
    let text = read(path)?;
    decimal(text.trim_ascii())
        .ok_or_else(|| Error::malformed(path, 1, "a decimal number", text.trim_ascii()))
}

#[cfg(test)]
pub(crate) mod fuzz {
    //! What every parser of the kernel's texts has to bear.

    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    /// Random bytes, and `good` with any one byte of it changed, do not make `parse` panic.
    pub(crate) fn never_panics<T>(good: &[u8], parse: impl Fn(&[u8]) -> T) {
        let damaged = (0..good.len(), any::<u8>()).prop_map(|(at, byte)| {
            let mut text = good.to_vec();
            text[at] = byte;
            text
        });
        try_all(any::<Vec<u8>>(), &parse);
        try_all(damaged, &parse);
    }

    fn try_all<T>(texts: impl Strategy<Value = Vec<u8>>, parse: impl Fn(&[u8]) -> T) {
        // The text that failed is in the message; there is no source file to keep it beside.
        let config = Config { failure_persistence: None, ..Config::default() };
        let tried = TestRunner::new(config).run(&texts, |text| {
            parse(&text);
            Ok(())
        });
        if let Err(error) = tried {
            panic!("{error}");
        }
    }
}
