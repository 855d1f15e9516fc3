//! The initramfs of a guest: busybox, a few modules, the test programs with their libraries, and the files that they read.

use super::debian::Kernel;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The crates whose tests are run.
const CRATES: [&str; 3] = ["kernel", "manager", "cli"];
/// Programs of tests that a guest has no use for: they build programs in C, hold gigabytes, or ask nothing of a kernel.
const LEFT_OUT: [&str; 12] = [
    "cli/array_c",
    "cli/cli",
    "cli/graph",
    "cli/live_heap",
    "cli/live_lab",
    "cli/live_run",
    "cli/log",
    "cli/top",
    "cli/unit tests",
    "manager/documented_metrics",
    "manager/large_machine",
    "manager/scheduler",
];
/// Those that are about memory, in the order in which they are run, before the others.
const ABOUT_MEMORY: [&str; 4] =
    ["kernel/live_huge_pages", "kernel/live_settings", "cli/live_promote", "cli/live_debloat"];
/// The tests of what needs two nodes, which no other guest has.
const ABOUT_NODES: &str = "cli/live_nodes";
/// Tests that time what they see, which says nothing on emulated processors.
const TIMED: [&str; 6] = [
    "cgroups_by_the_thousand_cost_nothing",
    "forty_thousand_vmas",
    "it_costs_next_to_nothing_when_idle",
    "it_keeps_to_its_budget_and_outlives_others",
    "two_thousand_processes",
    "what_is_recorded_is_replayed",
];
/// Programs that tests start, as this machine has them; the others that they start are busybox's.
const STARTED: [&str; 3] = ["chrt", "sleep", "unshare"];
/// What tests read of the sources, below the repository's root.
const READ: [&str; 5] =
    ["crates/kernel/tests", "crates/manager/tests", "crates/trace/tests", "docs", "packaging"];
/// Modules that tests or a variant of the guest need.
const MODULES: [&str; 6] = ["virtio_pci", "virtio_blk", "ext4", "virtio_balloon", "zram", "fuse"];
/// The guest's busybox.
const BUSYBOX: &str = "/bin/busybox";

/// A program of tests.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Its crate and its name: `kernel/live_settings`.
    pub(crate) name: String,
    /// Where it was built.
    file: PathBuf,
    /// Where it is run: its crate's directory.
    directory: PathBuf,
}

impl Program {
    /// Whether what it sees depends on the guest's memory.
    pub(crate) fn is_about_memory(&self) -> bool {
        ABOUT_MEMORY.contains(&self.name.as_str())
    }

    /// Whether the program needs a guest with two nodes.
    pub(crate) fn is_about_nodes(&self) -> bool {
        self.name == ABOUT_NODES
    }

    /// Its path in the guest.
    fn path(&self) -> String {
        format!("/tests/{}", self.name.replace([' ', '/'], "-"))
    }
}

/// Builds the workspace's tests, and lists those that guests run.
pub(crate) fn programs() -> Result<Vec<Program>> {
    let mut programs: Vec<Program> = artifacts()?.iter().filter_map(program).collect();
    programs.sort_by_key(|program| {
        let place = ABOUT_MEMORY.iter().position(|name| *name == program.name);
        (place.unwrap_or(ABOUT_MEMORY.len()), program.name.clone())
    });
    ensure!(!programs.is_empty(), "cargo builds no test of {}", CRATES.join(", "));
    Ok(programs)
}

/// What cargo says of each thing that it built.
fn artifacts() -> Result<Vec<Value>> {
    let mut command =
        crate::test::command(&["test", "--workspace", "--no-run", "--message-format=json"]);
    let output = command.stderr(Stdio::inherit()).output().context("starting cargo")?;
    ensure!(output.status.success(), "the tests cannot be built");
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn program(artifact: &Value) -> Option<Program> {
    let file = PathBuf::from(artifact["executable"].as_str()?);
    let directory = Path::new(artifact["manifest_path"].as_str()?).parent()?.to_owned();
    let of = directory.file_name()?.to_str()?;
    let is_ours = artifact["profile"]["test"] == true && CRATES.contains(&of);
    let own = match artifact["target"]["kind"][0].as_str()? {
        "test" => artifact["target"]["name"].as_str()?,
        _ => "unit tests",
    };
    let name = format!("{of}/{own}");
    let is_wanted = is_ours && !LEFT_OUT.contains(&name.as_str());
    is_wanted.then_some(Program { name, file, directory })
}

/// The programs that a guest runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// Programs of tests.
    Tests(&'a [Program]),
    /// superpage with these arguments.
    Superpage(&'a [String]),
}

impl Work<'_> {
    fn programs(&self) -> &[Program] {
        match self {
            Self::Tests(programs) => programs,
            Self::Superpage(_) => &[],
        }
    }
}

/// Writes the initramfs to `image`.
pub(crate) fn build(kernel: &Kernel, work: &Work<'_>, image: &Path) -> Result<()> {
    let root = image.with_extension("root");
    let _ = std::fs::remove_dir_all(&root);
    for directory in ["bin", "dev", "etc", "proc", "root", "run", "sys", "tests", "tmp", "var/tmp"]
    {
        std::fs::create_dir_all(root.join(directory))?;
    }
    std::fs::copy(BUSYBOX, root.join("bin/busybox")).context("copy busybox")?;
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    )?;
    std::fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    let superpage = std::path::absolute(crate::test::target().join("debug/superpage"))?;
    add_program(&root, &superpage, &superpage)?;
    for program in work.programs() {
        add_program(&root, &program.file, Path::new(&program.path()))?;
    }
    for path in STARTED.iter().filter_map(|name| crate::setup::in_path(name)) {
        let file = path.canonicalize()?;
        add_program(&root, &file, &Path::new("/bin").join(path.file_name().unwrap_or_default()))?;
    }
    for directory in READ {
        let from = std::path::absolute(directory)?;
        add_tree(&root, &from, &from)?;
    }
    let modules = add_modules(&root, kernel)?;
    let init = root.join("init");
    std::fs::write(&init, script(work, &superpage, &modules))?;
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755))?;
    pack(&root, image)?;
    Ok(std::fs::remove_dir_all(&root)?)
}

/// The first process: it runs each program and says so between lines of its own on the second serial port.
fn script(work: &Work<'_>, superpage: &Path, modules: &[String]) -> String {
    let mut script = String::from(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin 2> /dev/null\n\
         export PATH=/bin HOME=/root TMPDIR=/var/tmp RUST_BACKTRACE=0\n\
         mount -t proc proc /proc\nmount -t sysfs sys /sys\nmount -t devtmpfs dev /dev\n\
         mkdir /dev/pts /dev/shm\nmount -t devpts pts /dev/pts\nmount -t tmpfs shm /dev/shm\n\
         mount -t cgroup2 cgroup /sys/fs/cgroup\n\
         for one in $(cat /sys/fs/cgroup/cgroup.controllers); do echo +$one > /sys/fs/cgroup/cgroup.subtree_control; done\n\
         hostname guest\nip link set lo up\nexec > /dev/ttyS1 2>&1 < /dev/null\n",
    );
    for module in modules {
        let _ = writeln!(script, "insmod /modules/{module}");
    }
    // Files in memory would be charged and stay, and nothing can be swapped to them.
    script.push_str("mount -t ext4 /dev/vda /var/tmp\n");
    match work {
        Work::Tests(programs) => {
            let skip: String = TIMED.iter().map(|name| format!(" --skip {name}")).collect();
            for program in *programs {
                let directory = program.directory.display();
                let (name, path) = (&program.name, program.path());
                let _ = writeln!(
                    script,
                    "echo '@@ begins {name}'; mkdir -p '{directory}'; cd '{directory}'; \
                     {path} --test-threads=1 --color=never{skip}; echo \"@@ ended $?\""
                );
            }
        }
        Work::Superpage(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let superpage = quoted(&superpage.to_string_lossy());
            script.push_str("echo '@@ begins superpage'\n");
            let _ = writeln!(script, "{superpage} {}; echo \"@@ ended $?\"", words.join(" "));
        }
    }
    script.push_str("echo '@@ all ended'; sync; poweroff -f\n");
    script
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Adds a program without its symbols, and the libraries that it is linked with.
fn add_program(root: &Path, file: &Path, path: &Path) -> Result<()> {
    let place = inside(root, path);
    make_parent(&place)?;
    ensure!(
        Command::new("strip")
            .arg("-o")
            .arg(&place)
            .arg(file)
            .status()
            .context("start strip")?
            .success(),
        "{} cannot be stripped",
        file.display()
    );
    let output = Command::new("ldd").arg(file).output().context("start ldd")?;
    for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
        let place = inside(root, Path::new(library));
        if !place.exists() {
            make_parent(&place)?;
            std::fs::copy(library, &place).with_context(|| format!("copy {library}"))?;
        }
    }
    Ok(())
}

/// The paths in what `ldd` prints.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

/// Adds all files below a directory.
fn add_tree(root: &Path, from: &Path, path: &Path) -> Result<()> {
    std::fs::create_dir_all(inside(root, path))?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let path = path.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            add_tree(root, &entry.path(), &path)?;
        } else {
            std::fs::copy(entry.path(), inside(root, &path))?;
        }
    }
    Ok(())
}

/// Adds the modules that are wanted and those that they need; their files, in the order in which they are to be loaded.
fn add_modules(root: &Path, kernel: &Kernel) -> Result<Vec<String>> {
    let mut files = BTreeMap::new();
    find_modules(&kernel.modules, &mut files)?;
    std::fs::create_dir_all(root.join("modules"))?;
    let mut order = Vec::new();
    MODULES.iter().try_for_each(|name| add_module(root, name, &files, &mut order))?;
    Ok(order)
}

/// The files of all modules below a directory, by the names that the kernel has for them.
fn find_modules(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            find_modules(&entry.path(), files)?;
        } else if let Some((name, _)) = name.split_once(".ko") {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// Adds a module, not compressed, after those that it needs; one that the kernel has built in is no file.
fn add_module(
    root: &Path,
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    order: &mut Vec<String>,
) -> Result<()> {
    let module = format!("{name}.ko");
    let Some(file) = files.get(name).filter(|_| !order.contains(&module)) else { return Ok(()) };
    let content = match file.extension() {
        Some(extension) if extension == "xz" => {
            let output = Command::new("xz").arg("-dc").arg(file).output().context("start xz")?;
            ensure!(output.status.success(), "{} cannot be decompressed", file.display());
            output.stdout
        }
        _ => std::fs::read(file)?,
    };
    for needed in needs(&content) {
        add_module(root, &needed.replace('-', "_"), files, order)?;
    }
    std::fs::write(root.join("modules").join(&module), content)?;
    order.push(module);
    Ok(())
}

/// The modules that a module says it needs: `depends=virtio,virtio_ring`, ended by a zero.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let list = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list).into_owned();
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Packs all of `root` as the kernel reads it.
fn pack(root: &Path, image: &Path) -> Result<()> {
    let file = std::fs::File::create(image)?;
    let packed = Command::new("sh")
        .args(["-c", "find . -print0 | cpio --null --quiet -o -H newc"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(file)
        .status()
        .context("start cpio")?;
    ensure!(packed.success(), "the initramfs cannot be packed");
    Ok(())
}

/// Where an absolute path lies below `root`.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a file lies in a directory")?;
    Ok(std::fs::create_dir_all(parent)?)
}

#[cfg(test)]
mod tests {
    use super::{libraries, needs, quoted};

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"ELF\0license=GPL\0depends=virtio,virtio_ring\0name=x\0";
        assert_eq!(needs(module), ["virtio", "virtio_ring"]);
        assert!(needs(b"\0depends=\0name=x").is_empty() && needs(b"ELF").is_empty());
    }

    #[test]
    fn a_shell_takes_each_word_as_it_is() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn libraries_are_told_by_their_paths() {
        let text = "\tlinux-vdso.so.1 (0x7ffe)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(
            libraries(text).collect::<Vec<_>>(),
            ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
    }
}
