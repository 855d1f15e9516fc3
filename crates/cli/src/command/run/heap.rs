//! The file behind a heap that may be larger than memory: opened and reserved before the program starts.

use crate::args::{Memory, Run};
use crate::exit::Failure;
use rustix::fs::{
    FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, fstatvfs, open, statfs, unlink,
};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use superpage_kernel::meminfo;
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_launch::{Heap, LEAST_MEMORY, SPARE};
use superpage_units::Bytes;

/// The policy of such a heap.
pub(super) const POLICY: &str = "xheap";

/// The size of a heap, in times its memory, where none is given.
const TIMES: u64 = 4;
/// The beginning of a block device that must be zero for the device to be taken: file systems and volume managers write
/// there.
const LOOKED_AT: usize = 1 << 20;

/// File systems that lie in memory themselves: tmpfs and ramfs, by the numbers of statfs(2).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// The file behind a heap. The library opens it once more, through this process.
#[derive(Debug)]
pub(super) struct HeapFile {
    file: File,
    size: Bytes,
    memory: Bytes,
}

impl HeapFile {
    /// Opens the file and reserves its space; nothing if no heap is wanted.
    pub(super) fn open(arguments: &Run) -> Result<Option<Self>, Failure> {
        let (Some(path), Some(memory)) = (&arguments.heap, arguments.memory) else {
            return Ok(None);
        };
        may_have_userfaultfd()?;
        let memory = enough(memory)?;
        let size = arguments.heap_size.unwrap_or(Bytes(memory.0 * TIMES));
        if size < memory {
            return Err(Failure::Usage(format!(
                "--heap-size {size} is less than --memory {memory}: give at least as much"
            )));
        }
        let file = opened(path)?;
        reserve(&file, path, Bytes(size.0 + SPARE.0))?;
        Ok(Some(Self { file, size, memory }))
    }

    /// The description of the file that the library gets.
    pub(super) fn config(&self) -> Heap {
        let file = self.file.as_raw_fd().unsigned_abs();
        Heap { file, size: self.size, memory: self.memory }
    }
}

/// The memory of a heap in bytes, unless that is too little.
pub(in super::super) fn enough(memory: Memory) -> Result<Bytes, Failure> {
    let memory = match memory {
        Memory::Bytes(bytes) => bytes,
        Memory::Part(share) => meminfo::read(Path::new("/proc"))?.total.scaled(share.get()),
    };
    if memory < LEAST_MEMORY {
        return Err(Failure::Usage(format!(
            "--memory {memory} is too little: give {LEAST_MEMORY} or more"
        )));
    }
    Ok(memory)
}

/// Whether faults of the kernel can be heard as well.
fn may_have_userfaultfd() -> Result<(), Failure> {
    let found = probe::probe(Ability::HearFirstTouches);
    if found.answer == Answer::No {
        return Err(Failure::NotPossible(format!(
            "a heap needs a userfaultfd, which this process may not have ({}): run as root, or see `superpage doctor`",
            found.why
        )));
    }
    Ok(())
}

fn opened(path: &Path) -> Result<File, Failure> {
    let failed = |error: Errno| {
        Failure::Usage(format!("no heap can be made in {}: {error}", path.display()))
    };
    let owner = Mode::RUSR | Mode::WUSR;
    if statfs(path).is_ok_and(|system| IN_MEMORY.contains(&system.f_type)) {
        return Err(Failure::Usage(format!(
            "{} is in memory itself: give a place on a disk",
            path.display()
        )));
    }
    if path.is_dir() {
        let made = open(path, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, owner);
        return match made {
            Ok(file) => Ok(file.into()),
            // Not every file system has files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => named(path).map_err(failed),
            Err(error) => Err(failed(error)),
        };
    }
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let is_there = path.exists();
    // A block device that is in use is refused with this flag.
    let flags = if is_there { OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC } else { flags };
    let file: File = open(path, flags, owner).map_err(failed)?.into();
    let status = fstat(&file).map_err(failed)?;
    let holds_something = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => status.st_size > 0,
        FileType::BlockDevice => !begins_with_zeroes(&file)?,
        _ => {
            let what = "is neither a directory, nor a file, nor a block device";
            return Err(Failure::Usage(format!("--heap {} {what}", path.display())));
        }
    };
    if holds_something {
        return Err(Failure::Usage(format!(
            "{} holds something, which a heap would overwrite: give a directory, an empty file, or a block device that \
             was wiped (wipefs -a)",
            path.display()
        )));
    }
    Ok(file)
}

/// A file that has lost its name.
fn named(directory: &Path) -> Result<File, Errno> {
    let path = directory.join(format!(".superpage-heap-{}", std::process::id()));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    unlink(&path)?;
    Ok(file.into())
}

fn begins_with_zeroes(file: &File) -> Result<bool, Failure> {
    let mut start = vec![0; LOOKED_AT];
    let length = file.read_at(&mut start, 0)?;
    Ok(start.iter().take(length).all(|byte| *byte == 0))
}

/// Reserves the file's space, so that the disk cannot be full later.
fn reserve(file: &File, path: &Path, size: Bytes) -> Result<(), Failure> {
    let status = fstat(file).map_err(std::io::Error::from)?;
    if FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice {
        let length = Bytes(std::io::Seek::seek(&mut &*file, std::io::SeekFrom::End(0))?);
        if length < size {
            return Err(Failure::Usage(format!(
                "{} has {length}, and the heap needs {size}: give a smaller --heap-size",
                path.display()
            )));
        }
        return Ok(());
    }
    let failed = |error: Errno| {
        Failure::Usage(format!(
            "{size} cannot be reserved for the heap in {}: {error}; give another --heap, or a smaller --heap-size",
            path.display()
        ))
    };
    // Some file systems begin to reserve what they do not have, and others would find the disk full meanwhile.
    let disk = fstatvfs(file).map_err(failed)?;
    if size.0 / disk.f_frsize.max(1) > disk.f_bavail {
        return Err(failed(Errno::NOSPC));
    }
    fallocate(file, FallocateFlags::empty(), 0, size.0).map_err(failed)
}
