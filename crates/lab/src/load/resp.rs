//! Redis's protocol, RESP2: as much of it as loading and asking takes.
//! [Redis serialization protocol](https://redis.io/docs/latest/develop/reference/protocol-spec/).

use crate::workload::{Error, Result};

/// Longest line that is no value. Redis's own error messages are shorter. Chosen.
const LONGEST_LINE: usize = 4000;

/// What the server says, not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// `+OK`.
    Simple(&'a [u8]),
    /// `-ERR …`.
    Failure(&'a [u8]),
    /// `:1`.
    Integer(i64),
    /// `$5`, a value.
    Bulk(&'a [u8]),
    /// `$-1`, no such key.
    Nothing,
}

/// Appends a command's head and all its words but the last, whose length is given: the caller
/// appends that word and [`END`].
pub(super) fn head(out: &mut Vec<u8>, words: &[&[u8]], last: usize) {
    out.extend(format!("*{}\r\n", words.len() + 1).bytes());
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(*word);
        out.extend(END);
    }
    out.extend(format!("${last}\r\n").bytes());
}

/// What ends a line, and a word.
pub(super) const END: &[u8] = b"\r\n";

/// The first reply in `said` and its length, or `None` if it has not come to its end.
///
/// # Errors
/// [`Error::Protocol`] for anything else.
pub(super) fn parse(said: &[u8]) -> Result<Option<(Reply<'_>, usize)>> {
    let Some(end) = said.iter().take(LONGEST_LINE).position(|byte| *byte == b'\r') else {
        return if said.len() < LONGEST_LINE { Ok(None) } else { Err(unexpected(said)) };
    };
    let Some((kind, line)) = said[..end].split_first() else { return Err(unexpected(said)) };
    let next = end + END.len();
    if said.len() < next {
        return Ok(None);
    }
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let reply = match kind {
        b'+' => Reply::Simple(line),
        b'-' => Reply::Failure(line),
        b':' => Reply::Integer(number().ok_or_else(|| unexpected(said))?),
        b'$' => match number() {
            Some(-1) => Reply::Nothing,
            Some(length) => return bulk(said, next, length),
            None => return Err(unexpected(said)),
        },
        _ => return Err(unexpected(said)),
    };
    Ok(Some((reply, next)))
}

/// The value of `length` bytes that begins at `start`.
fn bulk(said: &[u8], start: usize, length: i64) -> Result<Option<(Reply<'_>, usize)>> {
    /// What Redis takes at most, 512 MB.
    const LONGEST: i64 = 512 << 20; // tidy: allow(megabytes, not base pages)
    let length = usize::try_from(length).ok().filter(|_| length <= LONGEST);
    let end = start + length.ok_or_else(|| unexpected(said))?;
    let whole = end + END.len();
    if said.len() < whole {
        return Ok(None);
    }
    if said[end..whole] != *END {
        return Err(unexpected(said));
    }
    Ok(Some((Reply::Bulk(&said[start..end]), whole)))
}

fn unexpected(said: &[u8]) -> Error {
    const KEPT: usize = 80;
    let found = String::from_utf8_lossy(&said[..said.len().min(KEPT)]).into_owned();
    Error::Protocol { expected: "a RESP reply", found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_command_is_as_the_protocol_says() {
        let mut out = Vec::new();
        head(&mut out, &[b"SET", b"k1"], 3);
        out.extend(b"abc\r\n");
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n$3\r\nabc\r\n");
    }

    #[test]
    fn replies_are_told_apart() {
        let cases: [(&[u8], Reply<'_>); 6] = [
            (b"+OK\r\n", Reply::Simple(b"OK")),
            (b"-ERR no\r\n", Reply::Failure(b"ERR no")),
            (b":-12\r\n", Reply::Integer(-12)),
            (b"$3\r\na\r\n\r\n", Reply::Bulk(b"a\r\n")),
            (b"$0\r\n\r\n", Reply::Bulk(b"")),
            (b"$-1\r\n", Reply::Nothing),
        ];
        for (said, reply) in cases {
            assert_eq!(parse(said), Ok(Some((reply, said.len()))));
            for part in 0..said.len() {
                assert_eq!(parse(&said[..part]), Ok(None), "{part} bytes of {said:?}");
            }
        }
        assert_eq!(parse(b":1\r\n+OK\r\n"), Ok(Some((Reply::Integer(1), 4))));
    }

    #[test]
    fn nonsense_is_an_error() {
        let cases: [&[u8]; 7] = [
            b"\r\n",
            b"OK\r\n",
            b":x\r\n",
            b"$\r\n",
            b"$-2\r\n",
            b"$1\r\nabc",
            b"$99999999999\r\n",
        ];
        for said in cases {
            assert!(matches!(parse(said), Err(Error::Protocol { .. })), "{said:?}");
        }
        assert!(parse(&[b'+'; LONGEST_LINE]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_us_panic(said in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&said);
        }
    }
}
