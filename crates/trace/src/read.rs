//! Reading a trace. Nothing in it is believed before it is checked.

use super::wire::{First, Last, Line, MAGIC};
use super::{Error, Header, Sample, Trace, VERSION};
use serde_json::Value;
use superpage_units::Nanos;

/// The longest recording, and the most CPU time of one. Chosen: more can hardly be meant, and would
/// take minutes and more to replay.
const LONGEST: Nanos = Nanos(365 * 24 * 3600 * 1_000_000_000);

/// Whether a trace that was cut off is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partial {
    /// As far as it goes.
    Allowed,
    /// No.
    Refused,
}

/// Reads a trace.
///
/// # Errors
/// [`Error`].
pub fn read(bytes: &[u8], partial: Partial) -> Result<Trace, Error> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').zip(1..);
    let header = lines.next().map_or(Err(Error::NotATrace), |(line, _)| header(line))?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut last = None;
    let mut cpu = Nanos::ZERO;
    for (text, line) in lines {
        if last.is_some() {
            return Err(malformed(line, "the trace has ended on the line before"));
        }
        if let Ok(found) = serde_json::from_slice::<Last>(text) {
            last = Some((found.samples, line));
            continue;
        }
        let sample = match serde_json::from_slice::<Line>(text) {
            Ok(found) => found.sample().map_err(|what| malformed(line, &what))?,
            // What is cut off in the middle of a line has no end of line.
            Err(_) if !text.ends_with(b"\n") => break,
            Err(error) => return Err(malformed(line, &in_words(&error))),
        };
        if samples.last().is_some_and(|before| before.at >= sample.at) {
            return Err(malformed(line, "it is not later than the sample before"));
        }
        if sample.at > LONGEST {
            return Err(malformed(line, "it is more than a year after the recording began"));
        }
        cpu = Nanos(cpu.0.saturating_add(sample.usage.cpu.0));
        if cpu > LONGEST {
            return Err(malformed(line, "CPU time comes to more than a year"));
        }
        samples.push(sample);
    }
    match last {
        Some((count, line)) if count != samples.len() => {
            let what = format!("{count} samples were written and {} are here", samples.len());
            return Err(malformed(line, &what));
        }
        Some(_) if samples.is_empty() => return Err(Error::Empty),
        None if samples.is_empty() || partial == Partial::Refused => {
            return Err(Error::CutOff { samples: samples.len() });
        }
        _ => {}
    }
    Ok(Trace { header, samples, is_whole: last.is_some() })
}

fn header(line: &[u8]) -> Result<Header, Error> {
    let value: Value = serde_json::from_slice(line).map_err(|_| Error::NotATrace)?;
    if value["superpage"] != MAGIC {
        return Err(Error::NotATrace);
    }
    match value["version"].as_u64() {
        Some(VERSION) => {}
        Some(found) => return Err(Error::OtherVersion { found }),
        None => return Err(malformed(1, "it does not say its version")),
    }
    let first: First =
        serde_json::from_value(value).map_err(|error| malformed(1, &error.to_string()))?;
    let header = first.header().map_err(|what| malformed(1, &what))?;
    Ok(Header { command: printable(&header.command), ..header })
}

fn malformed(line: usize, what: &str) -> Error {
    Error::Malformed { line, what: printable(what) }
}

/// The text without what a terminal would obey: control characters are replaced.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// What is wrong, and where in the line.
fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    format!("{what}, at column {}", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Changes, Contents, Memory, RangeState, Run, Usage, write};
    use proptest::prelude::*;
    use superpage_units::{
        Advice, BasePages, Bytes, Growth, HugePages, Mapping, Nanos, PmdRange, VirtAddr, Vma,
        VmaKind,
    };

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/good.trace");
    const CUT_OFF: &[u8] = include_bytes!("../tests/fixtures/cut-off.trace");
    const MALFORMED: &[u8] = include_bytes!("../tests/fixtures/malformed.trace");
    const OTHER_VERSION: &[u8] = include_bytes!("../tests/fixtures/other-version.trace");

    fn says(bytes: &[u8]) -> String {
        read(bytes, Partial::Refused).expect_err("bad").to_string()
    }

    #[test]
    fn a_good_trace_is_understood() {
        let trace = read(GOOD, Partial::Refused).expect("good");
        assert!(trace.is_whole);
        assert_eq!(trace.header.command, "redis-server");
        assert_eq!(trace.header.contents, Contents::Sampled);
        assert_eq!((trace.samples.len(), trace.duration()), (3, Nanos(2_000_000_000)));
        let mut memory = Memory::default();
        trace.samples.iter().for_each(|sample| memory.apply(&sample.changes));
        let range = PmdRange::containing(VirtAddr(0x7f00_0020_0000));
        let state =
            RangeState { mapping: Mapping::Base, present: BasePages(17), data: BasePages(17) };
        assert_eq!(memory.ranges.get(&range), Some(&state));
        assert_eq!(memory.vmas.len(), 2);
        assert_eq!(memory.vmas.values().next().map(|vma| vma.growth), Some(Growth::Up));
    }

    #[test]
    fn what_is_cut_off_is_read_as_far_as_it_goes_if_that_is_wanted() {
        let said = says(CUT_OFF);
        assert!(said.contains("after 2 samples") && said.contains("--allow-partial"), "{said}");
        let trace = read(CUT_OFF, Partial::Allowed).expect("two samples");
        assert_eq!((trace.samples.len(), trace.is_whole), (2, false));
        // Every way to cut the good one off says so, or that nothing is left.
        for end in 1..GOOD.len() - 1 {
            match read(&GOOD[..end], Partial::Refused) {
                Err(Error::CutOff { .. } | Error::NotATrace) => {}
                Ok(_) if end > GOOD.len() - 2 => {}
                other => panic!("cut off at {end}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_wrong_is_one_sentence() {
        let said = says(MALFORMED);
        assert!(said.contains("line 3") && said.contains("column"), "{said}");
        let said = says(OTHER_VERSION);
        assert!(said.contains("version 3") && said.contains("reads version 2"), "{said}");
        for other in [&b""[..], b"\n", b"\x7fELF\0", b"{}\n", b"[1]\n", b"{\"superpage\":1}\n"] {
            assert_eq!(read(other, Partial::Allowed), Err(Error::NotATrace));
        }
        let header = GOOD.split_inclusive(|b| *b == b'\n').next().expect("a header");
        assert_eq!(says(header), Error::CutOff { samples: 0 }.to_string());
        assert_eq!(says(&[header, b"{\"samples\":0}\n"].concat()), Error::Empty.to_string());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let header = GOOD.split_inclusive(|b| *b == b'\n').next().expect("a header");
        let counts = r#""resident":0,"minor":0,"major":0,"cpu":0"#;
        for (what, part) in [
            (r#""ranges":[["0x1000",1,"huge",512,0]]"#, "no range begins"),
            (r#""ranges":[["0x200000",1,"huge",511,0]]"#, "cannot have 511"),
            (r#""ranges":[["0x200000",1,"base",3,4]]"#, "data in 4"),
            (r#""ranges":[["0x200000",0,"base",3,3]]"#, "0 ranges"),
            (r#""ranges":[["0x200000",18446744073709551615,"base",3,3]]"#, "cannot be"),
            (r#""ranges":[["0x200000",9000000,"base",3,3]]"#, "more than"),
            (r#""ranges":[["200000",1,"base",3,3]]"#, "is no address"),
            (r#""vmas":[["0x2000","0x1000","stack","up","none"]]"#, "from 0x2000 to 0x1000"),
            (r#""vmas":[["0x2000","0x3000","heap","up","none"]]"#, "heap"),
            (r#""colour":"blue""#, "colour"),
        ] {
            let line = format!("{{\"at\":0,{counts},{what}}}\n");
            let said = says(&[header, line.as_bytes(), b"{\"samples\":1}\n"].concat());
            assert!(said.contains(part) && said.contains("line 2"), "{what}: {said}");
        }
    }

    #[test]
    fn times_that_nobody_can_have_recorded_are_refused() {
        let header = GOOD.split_inclusive(|b| *b == b'\n').next().expect("a header");
        let sample = |at: u64, cpu: u64| {
            format!("{{\"at\":{at},\"resident\":0,\"minor\":0,\"major\":0,\"cpu\":{cpu}}}\n")
        };
        let said_of = |first: String, second: String| {
            let text = [header, first.as_bytes(), second.as_bytes(), b"{\"samples\":2}\n"].concat();
            read(&text, Partial::Refused).map_err(|error| error.to_string())
        };
        let said = said_of(sample(0, 0), sample(i64::MAX as u64, 0)).expect_err("too long");
        assert!(said.contains("line 3") && said.contains("more than a year"), "{said}");
        let said = said_of(sample(0, 1 << 63), sample(1, 0)).expect_err("too much");
        assert!(said.contains("line 2") && said.contains("CPU time"), "{said}");
        let said = said_of(sample(0, LONGEST.0), sample(1, 1)).expect_err("together too much");
        assert!(said.contains("line 3") && said.contains("CPU time"), "{said}");
        assert!(said_of(sample(0, 1), sample(LONGEST.0, 1)).is_ok());
    }

    #[test]
    fn nothing_that_a_terminal_would_obey_comes_through() {
        let text = std::str::from_utf8(GOOD).expect("UTF-8");
        let text = text.replace("redis-server", "re\\u001b[31md\\nis");
        let trace = read(text.as_bytes(), Partial::Refused).expect("good");
        assert_eq!(trace.header.command, "re\u{fffd}[31md\u{fffd}is");
        let said = says(text.replace("\"samples\"", "\"\\u001b[2J\"").as_bytes());
        assert!(!said.contains(char::is_control), "{said:?}");
    }

    prop_compose! {
        fn any_vma()(
            start in 0u64..1 << 40, pages in 1u64..1 << 20, kind in 0..3, up: bool, advice in 0..3
        ) -> Vma {
            Vma {
                start: VirtAddr(start * 4096),
                end: VirtAddr((start + pages) * 4096),
                kind: [VmaKind::Anonymous, VmaKind::Stack, VmaKind::File][kind as usize],
                growth: if up { Growth::Up } else { Growth::Fixed },
                advice: [Advice::None, Advice::Huge, Advice::NoHuge][advice as usize],
            }
        }
    }

    prop_compose! {
        fn any_run()(first in 0u64..1 << 30, count in 1u64..40, pages in 0u64..=513, data: u64) -> Run {
            let (mapping, present) = match pages {
                0 => (Mapping::Empty, 0),
                513 => (Mapping::Huge, 512),
                pages => (Mapping::Base, pages),
            };
            let data = data % (present + 1);
            let state = RangeState {
                mapping, present: BasePages(present), data: BasePages(data),
            };
            let first = PmdRange::containing(VirtAddr(first << 21));
            Run { first, count: HugePages(count), state }
        }
    }

    prop_compose! {
        fn any_memory()(
            vmas in prop::collection::vec(any_vma(), 0..6),
            runs in prop::collection::vec(any_run(), 0..12),
        ) -> Memory {
            let mut memory = Memory::default();
            memory.apply(&Changes { vmas, unmapped: Vec::new(), runs });
            memory
        }
    }

    fn trace_of(command: String, memories: &[(Memory, [u32; 4])]) -> Trace {
        let header = Header { command, interval: Nanos(7), contents: Contents::Exact };
        let mut before = Memory::default();
        let sample = |(at, (memory, counts)): (u64, &(Memory, [u32; 4]))| {
            let changes = memory.changes_since(&before);
            before = memory.clone();
            let [resident, minor, major, cpu] = counts.map(u64::from);
            let usage = Usage {
                resident: Bytes(resident),
                minor_faults: minor,
                major_faults: major,
                cpu: Nanos(cpu),
            };
            Sample { at: Nanos(at), usage, changes }
        };
        Trace { header, samples: (0..).zip(memories).map(sample).collect(), is_whole: true }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            command in "\\PC*",
            memories in prop::collection::vec((any_memory(), any::<[u32; 4]>()), 1..5),
        ) {
            let trace = trace_of(command, &memories);
            let mut text = Vec::new();
            write(&trace, &mut text).expect("memory takes all");
            prop_assert_eq!(read(&text, Partial::Refused), Ok(trace.clone()));
            let mut memory = Memory::default();
            for (sample, (expected, _)) in trace.samples.iter().zip(&memories) {
                memory.apply(&sample.changes);
                prop_assert_eq!(&memory, expected);
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = read(&bytes, Partial::Allowed);
        }

        #[test]
        fn random_lines_never_panic(lines in prop::collection::vec("[{}\\[\\]\":,0-9a-z]{0,40}", 0..6)) {
            let header = GOOD.split_inclusive(|b| *b == b'\n').next().expect("a header");
            let _ = read(&[header, lines.join("\n").as_bytes()].concat(), Partial::Allowed);
        }

        #[test]
        fn damaged_traces_never_panic(at in 0..GOOD.len(), byte: u8, end in 0..GOOD.len()) {
            let mut text = GOOD.to_vec();
            text[at] = byte;
            let _ = read(&text, Partial::Refused);
            let _ = read(&text[..end], Partial::Allowed);
        }
    }
}
