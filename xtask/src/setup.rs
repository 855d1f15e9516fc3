//! Is this machine able to build and test the project? Says so, and installs the Debian
//! packages that the tests and experiments can use. Touches nothing else.

use crate::tidy::manifest;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use xshell::{Shell, cmd};

/// The Debian packages that some workloads and their tests need, and what of each is looked for: a program in
/// `PATH`, or a file.
const PACKAGES: [(&str, &str); 6] = [
    ("memcached", "memcached"),
    ("redis-server", "redis-server"),
    ("stress-ng", "stress-ng"),
    ("liblinear-tools", "liblinear-train"),
    ("default-jre-headless", "java"),
    ("libmimalloc2.0", "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2"),
];

/// Installs a package without starting its service. `policy-rc.d` is Debian's own way to say
/// so; ours stands only while apt-get runs, is removed however that ends, and is never put in
/// the place of one that exists. A shell does this, because its trap also runs on an interrupt.
const INSTALL: &str = r#"
set -eu
policy=/usr/sbin/policy-rc.d
marker='# superpage setup: do not start the service that is being installed'
if [ ! -e "$policy" ] || grep -qxF "$marker" "$policy"; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    printf '#!/bin/sh\n%s\nexit 101\n' "$marker" >"$policy"
    chmod 755 "$policy"
fi
apt-get -o DPkg::Lock::Timeout=120 install -y -q --no-install-recommends "$1"
"#;

/// Checks, installs, reports. Fails only where nothing could be built.
pub(crate) fn run(shell: &Shell) -> Result<ExitCode> {
    let able = [toolchain(shell)?, linker(shell)];
    PACKAGES.into_iter().for_each(|(package, file)| workload(shell, package, &[file]));
    for (package, files) in crate::programs::packages()? {
        workload(shell, &package, &files);
    }
    Ok(if able.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Are cargo and rustc there, and new enough?
fn toolchain(shell: &Shell) -> Result<bool> {
    let wanted = rust_version(shell)?;
    for tool in ["cargo", "rustc"] {
        let Ok(line) = cmd!(shell, "{tool} --version").quiet().ignore_stderr().read() else {
            println!("setup: {tool} is missing: install Rust {wanted} or later");
            return Ok(false);
        };
        let found = version(&line).with_context(|| format!("`{tool} --version` said {line:?}"))?;
        if Some(found) < version(&wanted) {
            println!(
                "setup: {line} is too old: Cargo.toml asks for rust-version {wanted} or later"
            );
            return Ok(false);
        }
        println!("setup: {line}");
    }
    Ok(true)
}

/// The workspace's `rust-version`.
fn rust_version(shell: &Shell) -> Result<String> {
    let text = shell.read_file("Cargo.toml")?;
    manifest::value(&text, "workspace.package", "rust-version")
        .context("Cargo.toml has no rust-version in [workspace.package]")
}

/// The first two numbers of a version: of `rustc 1.95.0 (59807616e)`, 1 and 95.
fn version(text: &str) -> Option<(u32, u32)> {
    let word = text
        .split_whitespace()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    let mut numbers = word.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// rustc links through `cc`.
fn linker(shell: &Shell) -> bool {
    let found = cmd!(shell, "cc --version").quiet().ignore_stderr().read();
    match &found {
        Ok(text) => println!("setup: linker {}", text.lines().next().unwrap_or("cc")),
        Err(_) => println!("setup: no C linker (cc): install gcc, on Debian `apt-get install gcc`"),
    }
    found.is_ok()
}

/// Sees to it that a package is there, if that can be done; goes on without it if not.
fn workload(shell: &Shell, package: &str, files: &[impl AsRef<str>]) {
    const WITHOUT: &str = "what needs it of experiments and tests will be skipped";
    let paths: Option<Vec<PathBuf>> = files.iter().map(|file| in_path(file.as_ref())).collect();
    if let Some(paths) = paths {
        paths.iter().for_each(|path| println!("setup: {}", path.display()));
    } else if !is_root() {
        println!("setup: {package} is missing and only root can install it: {WITHOUT}");
    } else if in_path("apt-get").is_none() {
        println!("setup: {package} is missing and there is no apt-get to install it: {WITHOUT}");
    } else if let Err(error) = install(shell, package) {
        println!("setup: {package} could not be installed, {WITHOUT}: {error:#}");
    }
}

/// Installs a package, with fresh package lists where the ones at hand do not lead to it.
pub(crate) fn install(shell: &Shell, package: &str) -> Result<()> {
    let known = cmd!(shell, "apt-cache madison {package}").quiet().read();
    let mut updated = false;
    if known.unwrap_or_default().trim().is_empty() {
        update()?;
        updated = true;
    }
    println!("setup: installing the Debian package {package}, without starting its service");
    let install = || done(Command::new("sh").args(["-c", INSTALL, "sh", package])).map(|_| ());
    let first = install();
    if updated || first.is_ok() {
        return first;
    }
    update()?;
    install()
}

fn update() -> Result<()> {
    println!("setup: apt-get update, to learn which packages there are");
    let update = ["-o", "DPkg::Lock::Timeout=120", "update", "-q"];
    done(Command::new("apt-get").args(update)).map(|_| ())
}

/// Runs a command that may not ask anything: what it prints. Its last words are the error if it fails.
pub(crate) fn done(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {program}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    anyhow::ensure!(
        output.status.success(),
        "{program} ended with {}: {}",
        output.status,
        last.unwrap_or("it gave no reason")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where `PATH` has `program`, or the file of that path.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Are we root? `/proc/self` belongs to the effective user, so no system call is needed.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_read_from_what_the_tools_say() {
        assert_eq!(version("rustc 1.95.0 (59807616e 2026-04-14)"), Some((1, 95)));
        assert_eq!(version("cargo 1.90.0-nightly"), Some((1, 90)));
        assert_eq!(version("1.90"), Some((1, 90)));
        assert_eq!(version("gcc"), None);
    }

    #[test]
    fn a_higher_minor_number_is_newer_even_with_more_digits() {
        assert!(version("1.100.0") > version("1.90"));
    }
}
