//! Writing a trace, line by line, as it is recorded.

use super::wire::{First, Last, Line};
use super::{Header, Memory, Sample, Trace, Usage};
use serde::Serialize;
use std::io::{self, Write};
use superpage_units::{Bytes, Nanos};

/// Writes a trace to `out`.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    memory: Memory,
    samples: usize,
    written: Bytes,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn new(out: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self { out, memory: Memory::default(), samples: 0, written: Bytes::ZERO };
        writer.line(&First::new(header))?;
        Ok(writer)
    }

    /// Adds a sample: what the program has mapped now. Only what changed is written.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn sample(&mut self, at: Nanos, usage: Usage, memory: Memory) -> io::Result<()> {
        let changes = memory.changes_since(&self.memory);
        self.memory = memory;
        self.line(&Line::new(&Sample { at, usage, changes }))?;
        self.samples += 1;
        Ok(())
    }

    /// The samples written so far.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The bytes written so far.
    #[must_use]
    pub fn written(&self) -> Bytes {
        self.written
    }

    /// Says that the trace is whole.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn finish(mut self) -> io::Result<W> {
        self.line(&Last { samples: self.samples })?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.written += Bytes(text.len() as u64);
        self.out.write_all(&text)
    }
}

/// A whole trace as text.
///
/// # Errors
/// As [`Writer::new`].
pub fn write(trace: &Trace, out: impl Write) -> io::Result<()> {
    let mut writer = Writer::new(out, &trace.header)?;
    let mut memory = Memory::default();
    for sample in &trace.samples {
        memory.apply(&sample.changes);
        writer.sample(sample.at, sample.usage, memory.clone())?;
    }
    writer.finish().map(drop)
}
