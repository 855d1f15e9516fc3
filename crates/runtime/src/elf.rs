//! The file of a 64-bit ELF program: the dynamic linker that starts it, and the libraries that it names.

use crate::sys::{PAGE, to_usize};
use libc::{PT_DYNAMIC, PT_INTERP, PT_LOAD};

/// The tags of entries of the dynamic section, of `elf.h`.
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// A program, whose file is read by a function of the place and the bytes to fill, which returns how many it has filled.
#[derive(Debug)]
pub(crate) struct Elf<'a, R> {
    read: R,
    /// The beginning of the file, with the program headers.
    beginning: &'a [u8],
}

/// A program header.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

impl<'a, R: Fn(u64, &mut [u8]) -> usize> Elf<'a, R> {
    /// A 64-bit program of this byte order, whose file begins with these bytes; nothing if the file is something else.
    pub(crate) fn of(beginning: &'a [u8], read: R) -> Option<Self> {
        beginning.starts_with(b"\x7fELF\x02\x01").then_some(Self { read, beginning })
    }

    /// The path of the dynamic linker; nothing if the program is linked statically.
    pub(crate) fn linker(&self) -> Option<&[u8]> {
        let found = self.headers().find(|header| header.kind == u64::from(PT_INTERP))?;
        self.beginning.get(to_usize(found.offset)..)?.get(..to_usize(found.size))
    }

    /// Whether one of the libraries that the program names is meant, by its name without directories.
    pub(crate) fn names(&self, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        let names = self.find(DT_STRTAB, Some).and_then(|address| self.place_of(address));
        let Some(names) = names else { return false };
        let has_name = |place: u64| {
            let mut name = [0; superpage_uapi::file::PATH];
            (self.read)(names.checked_add(place)?, &mut name);
            let path = name.split(|byte| *byte == 0).next()?;
            is_meant(path.rsplit(|byte| *byte == b'/').next()?).then_some(())
        };
        self.find(DT_NEEDED, has_name).is_some()
    }

    fn headers(&self) -> impl Iterator<Item = Header> {
        let number = |at, length| number(self.beginning, at, length);
        let table = number(32, 8).zip(number(54, 2)).zip(number(56, 2));
        let ((first, size), count) = table.unwrap_or_default();
        (0..count).map_while(move |index| {
            let at = to_usize(first.checked_add(index * size)?);
            let field = |offset, length| number(at.checked_add(offset)?, length);
            Some(Header {
                kind: field(0, 4)?,
                offset: field(8, 8)?,
                address: field(16, 8)?,
                size: field(32, 8)?,
            })
        })
    }

    /// The first answer to the value of an entry of the dynamic section with this tag.
    fn find<T>(&self, tag: u64, answer: impl Fn(u64) -> Option<T>) -> Option<T> {
        /// The size of an entry: a tag and a value.
        const ENTRY: usize = 16;
        // Most programs have some 30 entries, and at most 4,096 are read, because a file may lie.
        const MOST: u64 = 16 * PAGE as u64;
        let section = self.headers().find(|header| header.kind == u64::from(PT_DYNAMIC))?;
        let mut entries = [0; 32 * ENTRY];
        for place in (0..section.size.min(MOST)).step_by(entries.len()) {
            let read = (self.read)(section.offset.checked_add(place)?, &mut entries);
            for entry in entries.get(..read)?.chunks_exact(ENTRY) {
                let (found, value) = (number(entry, 0, 8)?, number(entry, 8, 8)?);
                if found == DT_NULL {
                    return None;
                }
                if let Some(answer) = (found == tag).then(|| answer(value)).flatten() {
                    return Some(answer);
                }
            }
            if read < entries.len() {
                break;
            }
        }
        None
    }

    /// The place in the file of what the program has at an address.
    fn place_of(&self, address: u64) -> Option<u64> {
        self.headers().filter(|header| header.kind == u64::from(PT_LOAD)).find_map(|header| {
            let offset = address.checked_sub(header.address)?;
            (offset < header.size).then(|| header.offset.checked_add(offset))?
        })
    }
}

/// The number in `length` bytes at a place, in this byte order.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let place = bytes.get(at..at.checked_add(length)?)?;
    Some(place.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn of(file: &[u8]) -> Option<Elf<'_, impl Fn(u64, &mut [u8]) -> usize>> {
        let beginning = file.get(..PAGE).unwrap_or(file);
        Elf::of(beginning, |place, into: &mut [u8]| {
            let rest = usize::try_from(place).ok().and_then(|place| file.get(place..));
            let rest = rest.unwrap_or_default();
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            length
        })
    }

    fn linker_in(file: &[u8]) -> Option<Vec<u8>> {
        of(file)?.linker().map(<[u8]>::to_vec)
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_linker_or_none(
            mut bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 64..400),
            start in prop_oneof![0_u64..70, any::<u64>(), Just(u64::MAX)],
            size in prop_oneof![Just(56_u16), any::<u16>()],
        ) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[32..40].copy_from_slice(&start.to_le_bytes());
            bytes[54..56].copy_from_slice(&size.to_le_bytes());
            let elf = of(&bytes).expect("it begins as a program");
            assert!(elf.linker().is_none_or(|linker| linker.len() <= bytes.len()));
            elf.names(|name| name.len() > bytes.len());
        }

        #[test]
        fn a_linker_is_found_wherever_its_header_lies(
            (before, others, behind) in (0_usize..100, 0_u16..5, 0_u16..3),
            path in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let first = 64 + before;
            let count = others + 1 + behind;
            let start = first + usize::from(count) * 56;
            let mut bytes = std::vec![1; start];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[32..40].copy_from_slice(&(first as u64).to_le_bytes());
            bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
            bytes[56..58].copy_from_slice(&count.to_le_bytes());
            let header = first + usize::from(others) * 56;
            bytes[header..header + 4].copy_from_slice(&3_u32.to_le_bytes());
            bytes[header + 8..header + 16].copy_from_slice(&(start as u64).to_le_bytes());
            bytes[header + 32..header + 40].copy_from_slice(&(path.len() as u64).to_le_bytes());
            bytes.extend(&path);
            assert_eq!(linker_in(&bytes).as_ref(), Some(&path));
            bytes.pop();
            assert!(path.is_empty() || linker_in(&bytes).is_none(), "its file ends before it");
        }
    }

    #[test]
    fn a_programs_linker_and_libraries_are_read() {
        let program = std::fs::read("/proc/self/exe").expect("we run");
        let linker = linker_in(&program).expect("we are linked dynamically");
        assert!(linker.starts_with(b"/lib64/ld-linux-x86-64.so"));
        assert_eq!(linker_in(b"#!/bin/sh\n"), None);
        assert_eq!(linker_in(&program[..70]), None);
        let elf = of(&program).expect("we are a program");
        assert!(elf.names(|name| name == b"libc.so.6"), "every program has libc");
        assert!(!elf.names(|name| name.is_empty() || name == b"libasan.so.8"));
    }
}
