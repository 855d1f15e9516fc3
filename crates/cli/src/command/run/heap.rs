//! The file behind a heap that may be larger than memory: opened and reserved before the program starts.

use super::as_open;
use crate::args::{Memory, Run};
use crate::exit::Failure;
use crate::show;
use rustix::fs::{
    FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, fstatvfs, open, statfs, unlink,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::settings::STATE_DIRECTORY;
use superpage_kernel::zram::{ZRAM, Zram};
use superpage_kernel::{Error, cgroup, meminfo};
use superpage_launch::{Heap, LEAST_MEMORY, MOST_SIZE, OpenFile, SPARE};
use superpage_units::Bytes;

/// The policy of such a heap.
pub(super) const POLICY: &str = "xheap";

/// The word in the place of a path that has compressed memory set up.
const COMPRESSED: &str = "zram";

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
    /// The same, as the library is told of it.
    open: OpenFile,
    size: Bytes,
    memory: Bytes,
    keep_available: Bytes,
    /// The block device that was set up for it. It can only go when the file is closed, so it comes behind that.
    zram: Option<Zram>,
}

impl HeapFile {
    /// Opens the file and reserves its space; nothing if no heap is wanted.
    pub(super) fn open(arguments: &Run) -> Result<Option<Self>, Failure> {
        let (Some(path), Some(memory)) = (&arguments.heap, arguments.memory) else {
            return Ok(None);
        };
        may_have_userfaultfd()?;
        let whole = whole();
        let memory = enough(memory, whole)?;
        let size = arguments.heap_size.unwrap_or(Bytes(memory.0 * TIMES));
        if size < memory {
            return Err(Failure::Usage(format!(
                "--heap-size {size} is less than --memory {memory}: give at least as much"
            )));
        }
        if size > MOST_SIZE {
            return Err(Failure::Usage(format!(
                "--heap-size {size} is too much: give {MOST_SIZE} or less"
            )));
        }
        let keep_available =
            arguments.keep_available.map_or(Bytes::ZERO, |size| in_bytes(size, whole));
        // Beside one mapping of `--heap-size` the program may map `--memory`, and malloc takes an arena of 64 MiB.
        let (least, size) = (size, size + memory + SPARE);
        if path == Path::new(COMPRESSED) {
            let (zram, file) = device(size + SPARE)?;
            let zram = Some(zram);
            let open = as_open(&file)?;
            return Ok(Some(Self { file, open, size, memory, keep_available, zram }));
        }
        let is_new = !path.exists();
        let file = opened(path)?;
        let size = reserve(&file, path, least, size).inspect_err(|_| {
            // The file is as it was: empty, or not there. A device cannot be made shorter, and a file without a name goes.
            let _ = file.set_len(0);
            if is_new {
                let _ = std::fs::remove_file(path);
            }
        })?;
        if !arguments.quiet && !may_pass_the_cache(&file) {
            show::note(&format!(
                "the file system of {} has no direct I/O (O_DIRECT): what leaves the heap's memory is in the page cache too, \
                 which the kernel gives up when memory is short",
                path.display()
            ));
        }
        let open = as_open(&file)?;
        Ok(Some(Self { file, open, size, memory, keep_available, zram: None }))
    }

    /// Removes what was set up for the heap, once the program has ended; the reason, as a sentence, if that fails.
    pub(super) fn close(self) -> Result<(), String> {
        let Self { file, zram, .. } = self;
        drop(file);
        let Some(zram) = zram else { return Ok(()) };
        let device = zram.device();
        zram.remove().map_err(|error| {
            format!("{} is still there: {error}; `superpage restore` removes it", device.display())
        })
    }

    /// The description of the file that the library gets.
    pub(super) fn config(&self) -> Heap {
        let Self { open, size, memory, keep_available, .. } = *self;
        Heap { file: open, size, memory, keep_available }
    }
}

/// The memory of a heap in bytes, unless that is too little. Parts are of `whole`.
pub(in super::super) fn enough(memory: Memory, whole: Bytes) -> Result<Bytes, Failure> {
    let memory = in_bytes(memory, whole);
    if memory < LEAST_MEMORY {
        return Err(Failure::Usage(format!(
            "--memory {memory} is too little: give {LEAST_MEMORY} or more"
        )));
    }
    Ok(memory)
}

fn in_bytes(memory: Memory, whole: Bytes) -> Bytes {
    match memory {
        Memory::Bytes(bytes) => bytes,
        Memory::Part(share) => whole.scaled(share.get()),
    }
}

/// The memory of which the program may have a part: the machine's, or the lowest limit of the cgroups that this process is in,
/// which the program begins in.
fn whole() -> Bytes {
    let [machine, _] = meminfo::total_and_available();
    let limited = cgroup::own_limits(Path::new("/"), Bytes::ZERO).unwrap_or_default();
    limited.iter().fold(machine, |least, group| least.min(group.limit))
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

/// A block device of compressed memory.
fn device(size: Bytes) -> Result<(Zram, File), Failure> {
    Zram::create(&Path::new(STATE_DIRECTORY).join(ZRAM), size).map_err(|error| match error {
        Error::Missing { path } => Failure::NotPossible(format!(
            "--heap zram needs zram, which this kernel does not have ({} does not exist)",
            path.display()
        )),
        Error::Denied { what, errno } => Failure::NotPossible(format!(
            "--heap zram adds a block device, for which this process lacks the rights (not allowed to {what}: {errno}): \
             run as root"
        )),
        Error::Busy { .. } => Failure::Failed(anyhow::anyhow!(
            "another `superpage run --heap zram` is adding or removing its device"
        )),
        other => other.into(),
    })
}

fn opened(path: &Path) -> Result<File, Failure> {
    let failed = |error: Errno| {
        Failure::Usage(format!("no heap can be made in {}: {error}", path.display()))
    };
    let owner = Mode::RUSR | Mode::WUSR;
    // The file of a device mostly lies in memory (devtmpfs), which says nothing of the device.
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    // A file that is not there yet will lie where its directory does.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let place = if path.exists() { path } else { directory.unwrap_or(Path::new(".")) };
    if !is_device && statfs(place).is_ok_and(|system| IN_MEMORY.contains(&system.f_type)) {
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
    // A block device that is in use is refused with this flag, and so is a file that somebody else makes now.
    let flags = OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let flags = if path.exists() { flags } else { flags | OFlags::CREATE };
    let file: File = open(path, flags, owner).map_err(failed)?.into();
    // Two runs may begin at once, and each find the file empty. Some file systems have no locks.
    if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
        return Err(Failure::Usage(format!(
            "{} is the heap of another run: give each a file of its own",
            path.display()
        )));
    }
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

/// Whether the file can be read and written past the page cache.
fn may_pass_the_cache(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    !matches!(
        open(path, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()),
        Err(Errno::INVAL)
    )
}

fn begins_with_zeroes(file: &File) -> Result<bool, Failure> {
    let mut start = vec![0; LOOKED_AT];
    let length = file.read_at(&mut start, 0)?;
    Ok(start.iter().take(length).all(|byte| *byte == 0))
}

/// Reserves the room that a heap of this size begins with: the rest is taken before the program has more memory. The size that it may
/// have: a device has room for what it is large enough for, which must be `least`.
fn reserve(file: &File, path: &Path, least: Bytes, size: Bytes) -> Result<Bytes, Failure> {
    let whole = size + SPARE;
    let status = fstat(file).map_err(std::io::Error::from)?;
    if FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice {
        let length = Bytes(std::io::Seek::seek(&mut &*file, std::io::SeekFrom::End(0))?);
        let needed = least + SPARE;
        if length < needed {
            return Err(Failure::Usage(format!(
                "{} has {length}, and the heap needs {needed}: give a smaller --heap-size",
                path.display()
            )));
        }
        return Ok(size.min(length.saturating_sub(SPARE)));
    }
    let failed = |error: Errno| {
        Failure::Usage(format!(
            "{SPARE} cannot be reserved for the heap in {}: {error}; give another --heap",
            path.display()
        ))
    };
    // Some file systems begin to reserve what they do not have, and others would find the disk full meanwhile.
    let disk = fstatvfs(file).map_err(failed)?;
    if SPARE.0 / disk.f_frsize.max(1) > disk.f_bavail {
        return Err(failed(Errno::NOSPC));
    }
    if let Some(most) = getrlimit(Resource::Fsize).current.filter(|most| *most < whole.0) {
        return Err(Failure::NotPossible(format!(
            "the heap needs a file of {whole}, and this process may write none larger than {} (ulimit -f): raise the limit, or \
             give a smaller --heap-size",
            Bytes(most)
        )));
    }
    fallocate(file, FallocateFlags::empty(), 0, SPARE.0).map_err(failed)?;
    Ok(size)
}
