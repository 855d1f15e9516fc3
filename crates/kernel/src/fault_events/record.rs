//! The records in a ring, as bytes: understood, skipped, or found to be none.

use super::Counts;
use std::borrow::Cow;
use superpage_units::{Nanos, VirtAddr};

/// What happened in a process that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A page fault; it stands for as many as the period says.
    Fault {
        /// Its process.
        pid: u32,
        /// Its thread.
        tid: u32,
        /// The address that was touched, not rounded.
        address: VirtAddr,
        /// When, on CLOCK_MONOTONIC.
        time: Nanos,
    },
    /// A process began (a new thread is not told).
    Fork {
        /// Who forked.
        parent: u32,
        /// The new process.
        pid: u32,
    },
    /// The first thread of a process ended: nearly always the process (ask its pidfd), unless
    /// other threads go on or one of them did an exec.
    Exit {
        /// The process.
        pid: u32,
    },
    /// A process runs another program from now on: all it had mapped is gone.
    Exec {
        /// The process.
        pid: u32,
    },
}

/// Bytes of a ring, in two parts where they wrap around its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    /// To the ring's end.
    pub(super) first: &'a [u8],
    /// From the ring's beginning.
    pub(super) rest: &'a [u8],
}

impl<'a> Span<'a> {
    fn len(self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// The `length` bytes from `start` on; copied only where they wrap.
    fn get(self, start: usize, length: usize) -> Option<Cow<'a, [u8]>> {
        let end = start.checked_add(length)?;
        if end <= self.first.len() {
            return Some(Cow::Borrowed(self.first.get(start..end)?));
        }
        let Some(over) = start.checked_sub(self.first.len()) else {
            let mut whole = self.first.get(start..)?.to_vec();
            whole.extend_from_slice(self.rest.get(..end - self.first.len())?);
            return Some(Cow::Owned(whole));
        };
        Some(Cow::Borrowed(self.rest.get(over..end - self.first.len())?))
    }
}

/// `struct perf_event_header`: kind, flags and size.
const HEADER: usize = 8;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
/// The flag of a `COMM` that is due to an exec.
const COMM_EXEC: u16 = 1 << 13;

/// Hands on all records of `span` and counts the ones about the ring itself. What cannot be a
/// record ends it: where the next one would begin is unknown then.
pub(super) fn take(span: Span<'_>, counts: &mut Counts, each: &mut impl FnMut(Event)) {
    let mut at = 0;
    while at < span.len() {
        let Some((record, length)) = next(span, at) else {
            counts.unreadable += 1;
            return;
        };
        at += length;
        match record {
            Record::Event(event) => {
                counts.seen += u64::from(matches!(event, Event::Fault { .. }));
                each(event);
            }
            Record::Lost(number) => counts.lost = counts.lost.saturating_add(number),
            Record::Throttled => counts.throttled += 1,
            Record::Other => {}
        }
    }
}

enum Record {
    Event(Event),
    Lost(u64),
    Throttled,
    Other,
}

/// The record at `at` and its length.
fn next(span: Span<'_>, at: usize) -> Option<(Record, usize)> {
    let header = span.get(at, HEADER)?;
    let length = usize::from(short(&header, 6)?);
    if length < HEADER {
        return None;
    }
    let bytes = span.get(at, length)?;
    let record = understand(word(&header, 0)?, short(&header, 4)?, &bytes[HEADER..])?;
    Some((record, length))
}

/// The record of this kind with these flags and this body; `None` if the body is too short.
fn understand(kind: u32, flags: u16, body: &[u8]) -> Option<Record> {
    let event = match kind {
        SAMPLE => Event::Fault {
            pid: word(body, 0)?,
            tid: word(body, 4)?,
            time: Nanos(long(body, 8)?),
            address: VirtAddr(long(body, 16)?),
        },
        // pid, ppid, tid, ptid, time: a thread has its process's number as pid.
        FORK if word(body, 0)? == word(body, 8)? => {
            Event::Fork { pid: word(body, 0)?, parent: word(body, 4)? }
        }
        EXIT if word(body, 0)? == word(body, 8)? => Event::Exit { pid: word(body, 0)? },
        COMM if flags & COMM_EXEC != 0 => Event::Exec { pid: word(body, 0)? },
        // id, lost.
        LOST => return Some(Record::Lost(long(body, 8)?)),
        LOST_SAMPLES => return Some(Record::Lost(long(body, 0)?)),
        THROTTLE => return Some(Record::Throttled),
        _ => return Some(Record::Other),
    };
    Some(Record::Event(event))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, flags: u16, words: &[u32]) -> Vec<u8> {
        let length = u16::try_from(HEADER + 4 * words.len()).expect("short");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn fault(number: u32) -> Vec<u8> {
        record(SAMPLE, 2, &[7, number, 99, 0, number << 12, 1])
    }

    fn fault_event(number: u32) -> Event {
        let address = VirtAddr(1 << 32 | u64::from(number) << 12);
        Event::Fault { pid: 7, tid: number, address, time: Nanos(99) }
    }

    fn taken(first: &[u8], rest: &[u8]) -> (Vec<Event>, Counts) {
        let (mut events, mut counts) = (Vec::new(), Counts::default());
        take(Span { first, rest }, &mut counts, &mut |event| events.push(event));
        (events, counts)
    }

    #[test]
    fn every_kind_is_understood() {
        let ring = [
            fault(3),
            record(FORK, 0, &[20, 7, 20, 8, 0, 0]),
            record(FORK, 0, &[7, 7, 21, 8, 0, 0]), // a thread
            record(COMM, COMM_EXEC, &[20, 20, 0x6c73, 0]),
            record(COMM, 0, &[20, 20, 0x6c73, 0]), // only a new name
            record(EXIT, 0, &[7, 1, 21, 1, 0, 0]), // a thread
            record(EXIT, 0, &[20, 7, 20, 7, 0, 0]),
            record(LOST, 0, &[1, 0, 5, 0]),
            record(LOST_SAMPLES, 0, &[6, 0]),
            record(THROTTLE, 0, &[0; 6]),
        ]
        .concat();
        let (events, counts) = taken(&ring, &[]);
        let expected = [
            fault_event(3),
            Event::Fork { parent: 7, pid: 20 },
            Event::Exec { pid: 20 },
            Event::Exit { pid: 20 },
        ];
        assert_eq!(events, expected);
        assert_eq!(counts, Counts { seen: 1, lost: 11, throttled: 1, unreadable: 0 });
    }

    #[test]
    fn records_wrap_anywhere() {
        let ring = [fault(1), record(LOST, 0, &[1, 0, 5, 0]), fault(2)].concat();
        for cut in 0..=ring.len() {
            let (first, rest) = ring.split_at(cut);
            let (events, counts) = taken(first, rest);
            assert_eq!(events, [fault_event(1), fault_event(2)], "cut at {cut}");
            assert_eq!((counts.seen, counts.lost, counts.unreadable), (2, 5, 0));
        }
    }

    #[test]
    fn unknown_kinds_are_skipped_by_their_size() {
        let ring = [record(77, 9, &[1, 2, 3, 4]), fault(1), record(1 << 20, 0, &[])].concat();
        let (events, counts) = taken(&ring, &[]);
        assert_eq!((events.as_slice(), counts.unreadable), (&[fault_event(1)][..], 0));
    }

    #[test]
    fn what_is_no_record_ends_it_and_is_counted() {
        let mut empty = record(SAMPLE, 0, &[]);
        empty[6] = 0;
        let too_short = record(SAMPLE, 2, &[7, 1, 99, 0]);
        let cut_off = fault(2)[..20].to_vec();
        let half_a_header = fault(2)[..5].to_vec();
        for bad in [empty, too_short, cut_off, half_a_header] {
            let ring = [fault(1), bad].concat();
            let (events, counts) = taken(&ring, &[]);
            assert_eq!((events.as_slice(), counts.unreadable), (&[fault_event(1)][..], 1));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_loop(bytes: Vec<u8>, cut: prop::sample::Index) {
            let (first, rest) = bytes.split_at(cut.index(bytes.len() + 1));
            let (events, counts) = taken(first, rest);
            prop_assert!(events.len() <= bytes.len() / HEADER && counts.unreadable <= 1);
        }
    }
}
