//! Reading the kernel's small text files as bytes: whole files, lines, `key value` pairs.
//!
//! Names in `/proc` need not be UTF-8, so nothing here asks for it.

use crate::error::{Error, Result};
use std::path::Path;

/// The whole file at `path`.
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Failed`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::from_io(&error, "read", path))
}

/// The lines of `text` with their numbers, counted from 1; empty lines are left out.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.is_empty())
}

/// The words of `line`, split at spaces and tabs.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty())
}

/// A decimal number that fills all of `word` and fits.
#[must_use]
pub fn decimal(word: &[u8]) -> Option<u64> {
    number(word, 10)
}

/// A hexadecimal number without prefix that fills all of `word` and fits.
#[must_use]
pub fn hexadecimal(word: &[u8]) -> Option<u64> {
    number(word, 16)
}

fn number(word: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain { u64::from_str_radix(text, radix).ok() } else { None }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_whole_word_or_nothing() {
        assert_eq!(decimal(b"42"), Some(42));
        assert_eq!(decimal(b"+42"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"99999999999999999999"), None);
        assert_eq!(hexadecimal(b"7fff"), Some(0x7fff));
        assert_eq!(hexadecimal(b"0x7f"), None);
    }

    #[test]
    fn lines_are_numbered_and_words_split() {
        let all: Vec<_> = lines(b"a  b\n\nc\n").collect();
        assert_eq!(all, [(1, &b"a  b"[..]), (3, &b"c"[..])]);
        assert_eq!(words(b" a \tb").count(), 2);
    }
}
