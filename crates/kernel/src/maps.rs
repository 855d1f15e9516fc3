//! `/proc/PID/maps`: the VMAs of a process's address space, and what backs them.
//!
//! Whoever makes a process may give it as many VMAs as `vm.max_map_count` allows, each with a file's name of 4 KiB, so the file
//! is read line by line and no more than [`LONGEST`] of it.
//!
//! Not what is resident in them: that takes [`pagemap`](crate::pagemap) or
//! [`smaps`](crate::smaps). The list is not one snapshot; a process that maps and unmaps while it
//! is read can show a VMA twice or not at all.
//! [proc_pid_maps(5)](https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html).

use crate::error::{Error, Result};
use crate::process::Process;
use crate::text;
use std::path::Path;
use superpage_units::{Bytes, VirtAddr};

/// What a process may do in a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Execute.
    pub execute: bool,
}

/// Who sees what is written to a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only the process itself (copy on write).
    Private,
    /// Everybody who maps the same thing.
    Shared,
}

/// A file system, by the numbers of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl Device {
    /// Two numbers with a colon between them; how they are written differs from file to file.
    pub(crate) fn parse(word: &[u8], number: fn(&[u8]) -> Option<u64>) -> Option<Self> {
        let colon = word.iter().position(|byte| *byte == b':')?;
        let number = |digits| number(digits)?.try_into().ok();
        Some(Self { major: number(&word[..colon])?, minor: number(&word[colon + 1..])? })
    }
}

/// One line of `maps`: a range of addresses that are mapped alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// Its first address.
    pub start: VirtAddr,
    /// The first address after it.
    pub end: VirtAddr,
    /// What the process may do there.
    pub permissions: Permissions,
    /// Whether it is private or shared.
    pub sharing: Sharing,
    /// The device of the file behind it; 0:0 if there is no file.
    pub device: Device,
    /// The inode of the file behind it; 0 if there is no file. Hugetlb and shared memory have one.
    pub inode: u64,
    /// The file or the kernel's name for it, as the kernel writes it: not necessarily UTF-8,
    /// newlines as `\012`, ` (deleted)` behind deleted files, empty for nameless memory.
    pub name: Vec<u8>,
}

impl Vma {
    /// How long it is.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.end.since(self.start)
    }

    /// Whether it holds private anonymous memory, the only kind whose huge pages can be split and
    /// freed: nameless memory, heap, stacks and `[anon:…]`; no file, no shared memory, no
    /// hugetlb, none of the kernel's own pages such as `[vdso]`.
    #[must_use]
    pub fn is_private_anonymous(&self) -> bool {
        self.sharing == Sharing::Private && self.inode == 0 && names_anonymous_memory(&self.name)
    }
}

/// A list of what is known to be anonymous, because kernels keep adding special mappings.
fn names_anonymous_memory(name: &[u8]) -> bool {
    matches!(name, b"" | b"[heap]" | b"[stack]")
        || name.starts_with(b"[stack:")
        || name.starts_with(b"[anon:")
}

/// The most that is read of one process's `maps`. Chosen: what the 65,530 VMAs take that the kernel allows by default if
/// each has a name of some 180 bytes.
pub const LONGEST: Bytes = Bytes::from_mib(16);

/// The VMAs of `process`, in ascending order; none for a kernel thread.
///
/// # Errors
/// [`Error::Gone`], [`Error::Denied`] (it is somebody else's), [`Error::TooLong`] beyond [`LONGEST`], or [`Error::Malformed`].
pub fn of(process: &Process) -> Result<Vec<Vma>> {
    let path = process.path("maps");
    let mut vmas = Vec::new();
    process.for_each_line("maps", LONGEST, |number, line| {
        vmas.push(understand(line, number, &path)?);
        Ok(())
    })?;
    Ok(vmas)
}

/// Understands the text of a `maps` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`] with the line.
pub fn parse(text: &[u8], path: &Path) -> Result<Vec<Vma>> {
    text::lines(text).map(|(number, line)| understand(line, number, path)).collect()
}

fn understand(line: &[u8], number: usize, path: &Path) -> Result<Vma> {
    let expected = "a VMA, as in '1000-2000 rw-p 0 00:00 0 [heap]'";
    vma(line).ok_or_else(|| Error::malformed(path, number, expected, line))
}

/// `start-end perms offset device inode   name`.
fn vma(line: &[u8]) -> Option<Vma> {
    let (range, rest) = word(line)?;
    let (flags, rest) = word(rest)?;
    let (_offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, rest) = word(rest)?;
    let (start, end) = addresses(range)?;
    let (permissions, sharing) = access(flags)?;
    Some(Vma {
        start,
        end,
        permissions,
        sharing,
        device: Device::parse(device, text::hexadecimal)?,
        inode: text::decimal(inode)?,
        name: rest.trim_ascii_start().to_vec(),
    })
}

/// The first word of `line` and what follows the space behind it.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if line.is_empty() {
        return None;
    }
    let end = line.iter().position(|byte| *byte == b' ');
    let end = end.unwrap_or(line.len());
    Some((&line[..end], line.get(end + 1..).unwrap_or_default()))
}

fn addresses(range: &[u8]) -> Option<(VirtAddr, VirtAddr)> {
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let start = text::hexadecimal(&range[..dash])?;
    let end = text::hexadecimal(&range[dash + 1..])?;
    (start < end).then_some((VirtAddr(start), VirtAddr(end)))
}

fn access(flags: &[u8]) -> Option<(Permissions, Sharing)> {
    let &[read, write, execute, sharing] = flags else {
        return None;
    };
    let permissions = Permissions {
        read: granted(read, b'r')?,
        write: granted(write, b'w')?,
        execute: granted(execute, b'x')?,
    };
    let sharing = match sharing {
        b'p' => Sharing::Private,
        b's' => Sharing::Shared,
        _ => return None,
    };
    Some((permissions, sharing))
}

fn granted(found: u8, letter: u8) -> Option<bool> {
    match found {
        b'-' => Some(false),
        found => (found == letter).then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/proc/maps");

    fn parsed(text: &[u8]) -> Result<Vec<Vma>> {
        parse(text, Path::new("maps"))
    }

    /// The line for `vma`, as the kernel would print it.
    fn line(vma: &Vma) -> Vec<u8> {
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        let mut text = format!(
            "{:x}-{:x} {}{}{}{} 0001f000 {:02x}:{:02x} {}",
            vma.start.0,
            vma.end.0,
            flag(vma.permissions.read, 'r'),
            flag(vma.permissions.write, 'w'),
            flag(vma.permissions.execute, 'x'),
            if vma.sharing == Sharing::Shared { 's' } else { 'p' },
            vma.device.major,
            vma.device.minor,
            vma.inode,
        )
        .into_bytes();
        if !vma.name.is_empty() {
            text.resize(text.len().max(72), b' ');
            text.push(b' ');
            text.extend_from_slice(&vma.name);
        }
        text.push(b'\n');
        text
    }

    #[test]
    fn only_anonymous_memory_counts_as_such() {
        let vmas = parsed(GOOD).expect("the fixture is good");
        let anonymous: Vec<_> = vmas
            .iter()
            .filter(|vma| vma.is_private_anonymous())
            .map(|vma| String::from_utf8_lossy(&vma.name).into_owned())
            .collect();
        assert_eq!(anonymous, ["[heap]", "", "[anon:arena]", "[stack]"]);
        let names: Vec<&[u8]> = vmas.iter().map(|vma| vma.name.as_slice()).collect();
        assert!(names.contains(&&b"/tmp/caf\xe9 au lait (deleted)"[..]));
        assert!(names.contains(&&b"/anon_hugepage (deleted)"[..]));
        assert!(names.contains(&&b"[vvar_vclock]"[..]));
    }

    #[test]
    fn a_line_is_understood_whole() {
        let vmas =
            parsed(b"7f0000000000-7f0000200000 rw-s 00001000 00:01 1057  /dev/zero (deleted)\n");
        let vmas = vmas.expect("the line is good");
        assert_eq!(vmas[0].size(), Bytes::from_mib(2));
        assert_eq!(vmas[0].sharing, Sharing::Shared);
        assert!(vmas[0].permissions.write && !vmas[0].permissions.execute);
        assert_eq!((vmas[0].device, vmas[0].inode), (Device { major: 0, minor: 1 }, 1057));
        assert_eq!(vmas[0].name, b"/dev/zero (deleted)");
        assert_eq!(parsed(b""), Ok(Vec::new()));
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in [
            "2000-1000 rw-p 0 00:00 0",
            "1000-2000 rwzp 0 00:00 0",
            "1000-2000 rw-q 0 00:00 0",
            "1000-2000 rw-p 0 00:00",
            "1000-2000 rw-p 0 00:00 many",
            "1000 rw-p 0 00:00 0",
        ] {
            let text = format!("1000-2000 rw-p 0 00:00 0 \n{bad}\n");
            let error = parsed(text.as_bytes()).expect_err(bad);
            assert!(matches!(error, Error::Malformed { line: 2, .. }), "{error}");
        }
    }

    #[test]
    fn procfs_sees_the_same_vmas() {
        let me = Process::current().expect("we are alive");
        // Our own allocations may change the list between the two readings; most stays.
        let theirs = procfs::process::Process::myself()
            .and_then(|me| me.maps())
            .expect("procfs reads it too");
        let ours = of(&me).expect("our own maps read");
        let same = theirs.iter().filter(|map| ours.iter().any(|vma| agree(vma, map))).count();
        assert!(same + 4 >= ours.len().max(theirs.len()), "{ours:?}\n{theirs:?}");
    }

    fn agree(vma: &Vma, map: &procfs::process::MemoryMap) -> bool {
        use procfs::process::MMPermissions as P;
        (vma.start.0, vma.end.0) == map.address
            && vma.inode == map.inode
            && vma.permissions.read == map.perms.contains(P::READ)
            && vma.permissions.write == map.perms.contains(P::WRITE)
            && vma.permissions.execute == map.perms.contains(P::EXECUTE)
            && (vma.sharing == Sharing::Private) == map.perms.contains(P::PRIVATE)
    }

    #[test]
    fn forty_thousand_vmas_are_no_matter() {
        let one = b"7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n";
        let text = one.repeat(40_000);
        let start = std::time::Instant::now();
        assert_eq!(parsed(&text).map(|vmas| vmas.len()), Ok(40_000));
        // Some 5 ms here; the limit is only there to notice something quadratic.
        assert!(start.elapsed() < std::time::Duration::from_secs(2));
    }

    prop_compose! {
        fn any_vma()(
            start in 0..u64::MAX,
            length in 1..u64::MAX,
            flags: [bool; 4],
            (major, minor) in any::<(u32, u32)>(),
            inode: u64,
            name in "([/\\[][^\n]{0,30})?",
        ) -> Vma {
            Vma {
                start: VirtAddr(start),
                end: VirtAddr(start.saturating_add(length)),
                permissions: Permissions { read: flags[0], write: flags[1], execute: flags[2] },
                sharing: if flags[3] { Sharing::Shared } else { Sharing::Private },
                device: Device { major, minor },
                inode,
                name: name.into_bytes(),
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(vmas in prop::collection::vec(any_vma(), 0..20)) {
            let text: Vec<u8> = vmas.iter().flat_map(line).collect();
            prop_assert_eq!(parsed(&text), Ok(vmas));
        }
    }
}
