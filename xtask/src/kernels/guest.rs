//! A guest: QEMU emulates its processors, so that it runs wherever the program does.

use super::debian::Kernel;
use super::table::{End, Parser};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xshell::Shell;

pub(crate) use super::table::Ran;

/// The file with what a guest's programs print.
pub(crate) const RESULTS: &str = "results.log";
/// The emulator.
const QEMU: &str = "qemu-system-x86_64";
/// What is needed to make a guest, and Debian's package of it.
const NEEDED: [(&str, &str); 7] = [
    (QEMU, "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("dpkg-deb", "dpkg"),
    ("strip", "binutils"),
    ("xz", "xz-utils"),
    ("mkfs.ext4", "e2fsprogs"),
];
/// How often a guest is looked after.
const LOOK: Duration = Duration::from_millis(200);
/// A test is taken for hung where nothing is printed for so long.
const SILENCE: Duration = Duration::from_secs(900);

/// The size of a guest's disk, in bytes; what is not written to takes no room.
const DISK: u64 = 4 << 30;
/// The lines of the guest's kernel that are shown where its tests did not come to their end.
const LAST: usize = 5;

/// What is different about a guest's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Two processors and 4 GiB.
    Plain,
    /// Two processors and 8 GiB, for experiments with several programs.
    Large,
    /// Two nodes (NUMA) with a processor and 2 GiB each.
    Nodes,
    /// The guest tells its host which memory is free (a balloon's free page reporting).
    Reporting,
}

impl Variant {
    /// The variants that tests run in.
    pub(crate) const OF_TESTS: [Self; 3] = [Self::Plain, Self::Nodes, Self::Reporting];

    /// What is said of it behind the kernel's version.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Large => ", 8 GiB",
            Self::Nodes => ", two nodes",
            Self::Reporting => ", free page reporting",
        }
    }

    fn memory(self) -> &'static str {
        match self {
            Self::Large => "8G",
            Self::Plain | Self::Nodes | Self::Reporting => "4G",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Large => &[],
            Self::Nodes => &[
                "-object",
                "memory-backend-ram,id=first,size=2G",
                "-object",
                "memory-backend-ram,id=second,size=2G",
                "-numa",
                "node,nodeid=0,cpus=0,memdev=first",
                "-numa",
                "node,nodeid=1,cpus=1,memdev=second",
            ],
            Self::Reporting => &["-device", "virtio-balloon-pci,free-page-reporting=on"],
        }
    }
}

/// Installs what is missing to make a guest.
pub(crate) fn provide(shell: &Shell) -> Result<()> {
    for (program, package) in NEEDED {
        if crate::setup::in_path(program).is_none() {
            crate::setup::install(shell, package).with_context(|| {
                format!("there is no {program}: install what Debian has as {package}")
            })?;
        }
    }
    Ok(())
}

/// Boots a guest and runs its programs until they have ended or `limit` is over.
pub(crate) fn run(
    kernel: &Kernel,
    initramfs: &Path,
    variant: Variant,
    limit: Duration,
    directory: &Path,
) -> Result<Ran> {
    let (console, results) = (directory.join("console.log"), directory.join(RESULTS));
    // The emulator makes them, and what an earlier guest said must not be taken for this one's.
    for file in [&console, &results] {
        let _ = std::fs::remove_file(file);
    }
    let serial = |file: &Path| format!("file:{}", file.display());
    let disk = disk(directory)?;
    let child = Command::new(QEMU)
        .args([
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            variant.memory(),
        ])
        .args(["-no-reboot", "-display", "none", "-monitor", "none", "-nic", "none"])
        .args(["-serial", &serial(&console), "-serial", &serial(&results)])
        .args(["-drive", &format!("file={},format=raw,if=virtio,cache=unsafe", disk.display())])
        .args(variant.options())
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 quiet panic=-1 transparent_hugepage=madvise"])
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("start {QEMU}"))?;
    let ran = follow(Guest(child), &results, limit)?;
    if !ran.is_whole() {
        let said = std::fs::read(&console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        println!("the guest's kernel said last:");
        lines.iter().rev().take(LAST).rev().for_each(|line| println!("    {line}"));
    }
    Ok(ran)
}

/// A disk with an empty file system, for files that are not to lie in the guest's memory.
fn disk(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("disk");
    let _ = std::fs::remove_file(&path);
    File::create(&path)?.set_len(DISK)?;
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&path).status();
    ensure!(made.context("start mkfs.ext4")?.success(), "no file system can be made");
    Ok(path)
}

/// A guest, which ends with this value.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Passes on what the tests print, and takes it in.
fn follow(mut guest: Guest, results: &Path, limit: Duration) -> Result<Ran> {
    let begin = Instant::now();
    let (mut file, mut parser) = (None, Parser::default());
    let mut spoke = begin;
    loop {
        let has_ended = guest.0.try_wait()?.is_some();
        if file.is_none() {
            file = File::open(results).ok();
        }
        let mut text = Vec::new();
        if let Some(file) = &mut file {
            file.read_to_end(&mut text)?;
        }
        if !text.is_empty() {
            spoke = Instant::now();
            parser.add(&String::from_utf8_lossy(&text));
        }
        let is_time_up = begin.elapsed() > limit;
        if has_ended || is_time_up || spoke.elapsed() > SILENCE {
            let end = if is_time_up && !has_ended { End::TimeUp } else { End::ByItself };
            return Ok(parser.finish(begin.elapsed(), end));
        }
        std::thread::sleep(LOOK);
    }
}
