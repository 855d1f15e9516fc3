//! The kernel's small text files as bytes: lines, words, numbers.
//!
//! Names in `/proc` need not be UTF-8, so nothing here asks for it.

use superpage_units::Bytes;

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
    let text = core::str::from_utf8(word).ok()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain { u64::from_str_radix(text, radix).ok() } else { None }
}

/// What follows the colon of a line `key: value`, without surrounding space.
#[must_use]
pub fn value<'a>(line: &'a [u8], key: &str) -> Option<&'a [u8]> {
    Some(line.strip_prefix(key.as_bytes())?.strip_prefix(b":")?.trim_ascii())
}

/// A size such as `12 kB`.
#[must_use]
pub fn kibibytes(value: &[u8]) -> Option<Bytes> {
    decimal(value.strip_suffix(b" kB")?.trim_ascii()).map(Bytes::from_kib)
}

/// The number of a line `name number`.
#[must_use]
pub fn statistic(line: &[u8], name: &str) -> Option<u64> {
    decimal(line.strip_prefix(name.as_bytes())?.strip_prefix(b" ")?.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

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

    #[test]
    fn a_name_is_no_longer_name() {
        assert_eq!(value(b"MemFree:  3 kB", "MemFree").and_then(kibibytes), Some(Bytes(3072)));
        assert_eq!(value(b"MemFree:  3 kB", "Mem"), None);
        assert_eq!(kibibytes(b"3 MB"), None);
        assert_eq!(statistic(b"active_file 5", "active_file"), Some(5));
        assert_eq!(statistic(b"active_file_x 5", "active_file"), None);
        assert_eq!(statistic(b"active_file", "active_file"), None);
    }
}
