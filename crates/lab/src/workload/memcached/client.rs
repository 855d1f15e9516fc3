//! The client's side of memcached's text protocol: as much of it as loading and getting takes.
//! [protocol.txt](https://github.com/memcached/memcached/blob/master/doc/protocol.txt)

use super::{Error, Item, Result};
use crate::width::to_usize;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Client<S: Read + Write = std::os::unix::net::UnixStream> {
    input: BufReader<S>,
    output: BufWriter<S>,
    line: Vec<u8>,
    value: Vec<u8>,
}

/// Bytes read and written at a time: a batch of gets fits. Chosen, not measured.
const BUFFER: usize = 256 << 10;

impl Client {
    /// Speaks over a connected socket.
    pub(super) fn new(socket: std::os::unix::net::UnixStream) -> Result<Self> {
        let input = socket.try_clone().map_err(|error| lost(&error))?;
        Ok(Self::over(input, socket))
    }
}

impl<S: Read + Write> Client<S> {
    fn over(input: S, output: S) -> Self {
        Self {
            input: BufReader::with_capacity(BUFFER, input),
            output: BufWriter::with_capacity(BUFFER, output),
            line: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Stores `items` without waiting for an answer to each; [`Client::stored`] tells whether the
    /// server kept them.
    pub(super) fn store(&mut self, items: impl Iterator<Item = Item>) -> Result<()> {
        for item in items {
            self.write_set(item, " noreply").map_err(|error| lost(&error))?;
        }
        Ok(())
    }

    fn write_set(&mut self, item: Item, ending: &str) -> io::Result<()> {
        fill(&mut self.value, item);
        write!(self.output, "set k{:x} 0 0 {}{ending}\r\n", item.key, self.value.len())?;
        self.output.write_all(&self.value)?;
        self.output.write_all(b"\r\n")
    }

    /// Sends an item to be stored, and does not wait.
    pub(super) fn send_set(&mut self, item: Item) -> Result<()> {
        self.write_set(item, "").and_then(|()| self.output.flush()).map_err(|error| lost(&error))
    }

    /// Reads the answer to [`Client::send_set`].
    pub(super) fn receive_stored(&mut self) -> Result<()> {
        match self.read_line()? {
            b"STORED" => Ok(()),
            line => Err(unexpected("STORED", line)),
        }
    }

    /// How many items the server has, once it has worked off all that was sent.
    pub(super) fn stored(&mut self) -> Result<u64> {
        self.send(b"stats\r\n")?;
        let mut count = None;
        loop {
            let line = self.read_line()?;
            if line == b"END" {
                return count.ok_or(Error::Protocol {
                    expected: "STAT curr_items",
                    found: "no such line".into(),
                });
            }
            let Some(stat) = line.strip_prefix(b"STAT ") else {
                return Err(unexpected("STAT", line));
            };
            if let Some(number) = stat.strip_prefix(b"curr_items ") {
                count = Some(decimal(number).ok_or_else(|| unexpected("a number", line))?);
            }
        }
    }

    /// Asks for the values of `items`, and does not wait.
    pub(super) fn ask(&mut self, items: &[Item]) -> Result<()> {
        let mut request = b"get".to_vec();
        for item in items {
            write!(request, " k{:x}", item.key).map_err(|error| lost(&error))?;
        }
        request.extend(b"\r\n");
        self.send(&request)
    }

    /// Reads the answer to [`Client::ask`] and compares every value. Returns the sum of the
    /// values' words.
    pub(super) fn receive(&mut self, items: &[Item]) -> Result<u64> {
        let mut sum = 0_u64;
        for item in items {
            self.receive_value(*item)?;
            sum = sum.wrapping_add(u64::from_le_bytes(item.word()));
        }
        match self.read_line()? {
            b"END" => Ok(sum),
            line => Err(unexpected("END", line)),
        }
    }

    /// Reads `VALUE key flags length`, the value, and the end of its line.
    fn receive_value(&mut self, item: Item) -> Result<()> {
        let corrupt =
            |what: &str| Error::Corrupt { what: format!("{what} of key k{:x}", item.key) };
        let line = self.read_line()?;
        if line == b"END" {
            return Err(corrupt("the server has lost the value"));
        }
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(b"VALUE"), Some(key)) = (words.next(), words.next()) else {
            return Err(unexpected("VALUE", line));
        };
        let number = key.strip_prefix(b"k").and_then(hexadecimal);
        let length = words.nth(1).and_then(decimal);
        match (number, length) {
            (Some(key), Some(length)) if key == item.key && length == item.length.0 => {}
            (Some(_), Some(_)) => return Err(corrupt("another key or length instead of that")),
            _ => return Err(unexpected("VALUE key flags length", line)),
        }
        self.value.resize(to_usize(item.length.0) + 2, 0);
        self.input.read_exact(&mut self.value).map_err(|error| lost(&error))?;
        let word = item.word();
        match self.value.strip_suffix(b"\r\n") {
            Some(value) if is_made_of(value, word) => Ok(()),
            Some(_) => Err(corrupt("the value")),
            None => Err(corrupt("the end")),
        }
    }

    fn send(&mut self, request: &[u8]) -> Result<()> {
        self.output
            .write_all(request)
            .and_then(|()| self.output.flush())
            .map_err(|error| lost(&error))
    }

    /// The next line without its end. Lines are short: a long one is cut and will not be known.
    fn read_line(&mut self) -> Result<&[u8]> {
        const LONGEST: u64 = 4000;
        self.line.clear();
        let mut input = (&mut self.input).take(LONGEST);
        let read = input.read_until(b'\n', &mut self.line).map_err(|error| lost(&error))?;
        if read == 0 {
            return Err(lost(&io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(self.line.strip_suffix(b"\r\n").unwrap_or(&self.line))
    }
}

/// Makes `value` what is stored for `item`.
fn fill(value: &mut Vec<u8>, item: Item) {
    value.clear();
    value.extend(item.word().iter().cycle().take(to_usize(item.length.0)));
}

/// Whether `value` is `word` over and over.
fn is_made_of(value: &[u8], word: [u8; 8]) -> bool {
    let (words, rest) = value.as_chunks();
    words.iter().all(|found| *found == word) && rest == &word[..rest.len()]
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

fn lost(error: &io::Error) -> Error {
    Error::Server { what: "talk to memcached", detail: error.to_string() }
}

fn unexpected(expected: &'static str, line: &[u8]) -> Error {
    const KEPT: usize = 80;
    let found = String::from_utf8_lossy(&line[..line.len().min(KEPT)]).into_owned();
    Error::Protocol { expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use superpage_units::Bytes;

    /// A server that has said everything in advance.
    #[derive(Debug)]
    struct Tape {
        said: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Tape {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.said.read(buffer)
        }
    }

    impl Write for Tape {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(said: &[u8]) -> Client<Tape> {
        let tape = |said: &[u8]| Tape { said: io::Cursor::new(said.to_vec()), heard: Vec::new() };
        Client::over(tape(said), tape(b""))
    }

    fn item(key: u64, length: u64) -> Item {
        Item { key, length: Bytes(length) }
    }

    /// What a server answers that has `item`.
    fn answer(item: Item) -> Vec<u8> {
        let mut value = Vec::new();
        fill(&mut value, item);
        let head = format!("VALUE k{:x} 0 {}\r\n", item.key, value.len());
        [head.as_bytes(), &value, b"\r\n"].concat()
    }

    #[test]
    fn requests_are_as_the_protocol_says() {
        let mut client = client(b"");
        client.store(std::iter::once(item(0x1f, 3))).expect("stored");
        client.ask(&[item(1, 3), item(0xab, 3)]).expect("asked");
        let heard = &client.output.get_ref().heard;
        let word = item(0x1f, 3).word();
        let set = [b"set k1f 0 0 3 noreply\r\n", &word[..3], b"\r\n"].concat();
        assert_eq!(*heard, [&set[..], b"get k1 kab\r\n"].concat());
    }

    #[test]
    fn a_set_that_is_answered_is_stored_or_an_error() {
        let mut client = client(b"STORED\r\nNOT_STORED\r\n");
        client.send_set(item(0x1f, 3)).expect("sent");
        let word = item(0x1f, 3).word();
        let set = [b"set k1f 0 0 3\r\n", &word[..3], b"\r\n"].concat();
        assert_eq!(client.output.get_ref().heard, set);
        assert_eq!(client.receive_stored(), Ok(()));
        assert!(client.receive_stored().is_err());
    }

    #[test]
    fn good_answers_are_taken() {
        let items = [item(7, 8), item(8, 13)];
        let said = [answer(items[0]), answer(items[1]), b"END\r\n".to_vec()].concat();
        let sum =
            items.iter().fold(0_u64, |sum, item| sum.wrapping_add(u64::from_le_bytes(item.word())));
        assert_eq!(client(&said).receive(&items), Ok(sum));
        let stats = b"STAT pid 1\r\nSTAT curr_items 12\r\nEND\r\n";
        assert_eq!(client(stats).stored(), Ok(12));
    }

    #[test]
    fn bad_answers_are_told_apart() {
        let wanted = item(7, 8);
        let good = answer(wanted);
        let mut flipped = good.clone();
        flipped[14] ^= 1;
        let corrupt: [&[u8]; 4] = [b"END\r\n", &answer(item(8, 8)), &answer(item(7, 9)), &flipped];
        for said in corrupt {
            let found = client(said).receive(&[wanted]);
            assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
        }
        let protocol: [&[u8]; 3] =
            [b"ERROR\r\n", b"VALUE k7 0\r\n", &[&good[..], b"VALUE k7 0 8\r\n"].concat()];
        for said in protocol {
            let found = client(said).receive(&[wanted]);
            assert!(matches!(found, Err(Error::Protocol { .. })), "{found:?}");
        }
        for said in [&b""[..], &good[..20], &good] {
            let found = client(said).receive(&[wanted]);
            assert!(matches!(found, Err(Error::Server { .. })), "{found:?}");
        }
        assert!(client(b"END\r\n").stored().is_err());
        assert!(client(b"SERVER_ERROR out of memory storing object\r\n").stored().is_err());
        assert!(client(b"STAT curr_items many\r\n").stored().is_err());
    }

    proptest! {
        #[test]
        fn no_answer_makes_us_panic(said in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = client(&said).receive(&[item(7, 8)]);
            let _ = client(&said).stored();
        }
    }
}
