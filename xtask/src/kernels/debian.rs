//! Debian's kernels for the cloud, by package name, from the mirror from which this machine has its own packages.
//!
//! apt does it, with lists and a cache of its own below the directory of what is built: nothing is installed, and the
//! machine's own lists are not touched. Debian's keyring vouches for what comes.

use crate::setup::done;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's keys, which every Debian has.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The package that depends on the newest kernel of a suite.
const NEWEST: &str = "linux-image-cloud-amd64";

/// A kernel that was fetched.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` says it: `6.12.107+deb13-cloud-amd64`.
    pub(crate) version: String,
    /// The kernel itself.
    pub(crate) image: PathBuf,
    /// Its modules, as in `/lib/modules/VERSION`.
    pub(crate) modules: PathBuf,
}

/// Fetches the newest kernel of `suite`; the one that was fetched before where the mirror cannot be reached.
pub(crate) fn fetch(suite: &str, directory: &Path) -> Result<Kernel> {
    let apt = Apt::new(suite, directory)?;
    let fetched = apt.fetch();
    if let Err(error) = &fetched {
        println!("no newer kernel of {suite} is fetched: {error:#}");
    }
    found(&apt.unpacked()).map_err(|none| match fetched {
        Ok(()) => none,
        Err(error) => error.context(format!("no kernel of Debian's {suite} can be fetched")),
    })
}

/// apt with a state of its own.
struct Apt {
    suite: String,
    directory: PathBuf,
}

impl Apt {
    fn new(suite: &str, directory: &Path) -> Result<Self> {
        let directory = directory.join(suite);
        for part in ["state/lists/partial", "cache/archives/partial", "packages"] {
            std::fs::create_dir_all(directory.join(part))?;
        }
        Ok(Self { suite: suite.to_owned(), directory })
    }

    fn unpacked(&self) -> PathBuf {
        self.directory.join("unpacked")
    }

    fn fetch(&self) -> Result<()> {
        let sources = sources(&self.suite)?;
        std::fs::write(self.directory.join("sources.list"), sources)?;
        std::fs::write(self.directory.join("status"), "")?;
        self.run("apt-get", &["update"])?;
        let packages = self.packages()?;
        let kept = self.directory.join("packages");
        let wanted: Vec<&str> = packages.iter().map(String::as_str).collect();
        // What is there already is not fetched again.
        self.run("apt-get", &[&["download"], &wanted[..]].concat())?;
        // What was fetched before stays until all of this is there.
        let beside = self.directory.join("unpacking");
        let _ = std::fs::remove_dir_all(&beside);
        for file in std::fs::read_dir(&kept)? {
            let file = file?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if wanted.iter().any(|package| name.starts_with(&format!("{package}_"))) {
                let mut unpack = Command::new("dpkg-deb");
                done(unpack.arg("-x").arg(&file).arg(&beside))?;
            } else {
                std::fs::remove_file(&file)?;
            }
        }
        let unpacked = self.unpacked();
        let _ = std::fs::remove_dir_all(&unpacked);
        Ok(std::fs::rename(beside, unpacked)?)
    }

    /// The packages of the newest kernel: its image, and where they are apart from it the kernel itself and its modules.
    fn packages(&self) -> Result<Vec<String>> {
        let newest = self.kernels_in(NEWEST)?;
        ensure!(!newest.is_empty(), "{NEWEST} depends on no kernel");
        let mut packages = newest.clone();
        for package in newest {
            packages.extend(self.kernels_in(&package)?);
        }
        packages.sort_unstable();
        packages.dedup();
        Ok(packages)
    }

    /// The packages of kernels on which a package depends: those with a version in their names.
    fn kernels_in(&self, package: &str) -> Result<Vec<String>> {
        let text = self.run("apt-cache", &["depends", "--important", package])?;
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let is_kernel = |name: &&str| {
            let kinds = ["linux-image-", "linux-binary-", "linux-modules-"];
            let rest = kinds.iter().find_map(|kind| name.strip_prefix(kind));
            rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        Ok(names.filter(is_kernel).map(str::to_owned).collect())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let option =
            |name: &str, file: &str| format!("{name}={}", self.directory.join(file).display());
        let mut command = Command::new(program);
        for option in [
            option("Dir::State", "state"),
            option("Dir::State::status", "status"),
            option("Dir::Cache", "cache"),
            option("Dir::Etc::SourceList", "sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            // Another user could not write here.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        done(command.arg("-q").args(arguments).current_dir(self.directory.join("packages")))
    }
}

/// The text of a list of sources for `suite`, from the machine's own with another suite in them.
fn sources(suite: &str) -> Result<String> {
    let own = own_suite()?;
    let format = "$(SITE) $(RELEASE) $(COMPONENT)";
    let mut command = Command::new("apt-get");
    let targets = done(command.args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let lines: Vec<String> =
        targets.lines().filter_map(|target| source(target, &own, suite)).collect();
    ensure!(!lines.is_empty(), "no source of packages of this machine has Debian's {own}");
    Ok(lines.concat())
}

/// The line for one of the machine's sources; `None` if it is not Debian's main part of `own`, or not one that `suite` has.
fn source(target: &str, own: &str, suite: &str) -> Option<String> {
    let mut words = target.split_whitespace();
    let (site, release, component) = (words.next()?, words.next()?, words.next()?);
    let part = release.strip_prefix(own)?;
    // Unstable has no updates.
    let is_wanted = component == "main"
        && matches!(part, "" | "-updates" | "-security")
        && (part.is_empty() || suite != "sid");
    is_wanted.then(|| format!("deb [signed-by={KEYS}] {site} {suite}{part} main\n"))
}

/// The name of the release of Debian that this machine runs.
fn own_suite() -> Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let value =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    ensure!(value("ID") == Some("debian"), "this machine does not run Debian");
    let name = value("VERSION_CODENAME").context("/etc/os-release has no VERSION_CODENAME")?;
    Ok(name.trim_matches('"').to_owned())
}

/// The kernel among unpacked packages. Its modules, and since Linux 7 the kernel itself, are in `usr/lib/modules/VERSION`.
fn found(unpacked: &Path) -> Result<Kernel> {
    let all = unpacked.join("usr/lib/modules");
    let versions = std::fs::read_dir(&all).with_context(|| format!("list {}", all.display()))?;
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let version = versions.max().context("no package has modules")?;
    let modules = all.join(&version);
    let images = [unpacked.join(format!("boot/vmlinuz-{version}")), modules.join("vmlinuz")];
    let image =
        images.into_iter().find(|image| image.is_file()).context("no package has a kernel")?;
    Ok(Kernel { version, image, modules })
}

#[cfg(test)]
mod tests {
    use super::{KEYS, source};

    #[test]
    fn sources_differ_from_the_machines_own_in_the_suite_only() {
        let source = |target| source(target, "bookworm", "trixie");
        assert_eq!(
            source("http://a/debian bookworm main"),
            Some(format!("deb [signed-by={KEYS}] http://a/debian trixie main\n"))
        );
        assert_eq!(
            source("http://a/debian-security bookworm-security main"),
            Some(format!("deb [signed-by={KEYS}] http://a/debian-security trixie-security main\n"))
        );
        for other in
            ["http://b/apt cloud-sdk-bookworm main", "http://a/debian bookworm contrib", ""]
        {
            assert_eq!(source(other), None);
        }
    }

    #[test]
    fn unstable_has_no_updates() {
        assert_eq!(source("http://a/debian bookworm-updates main", "bookworm", "sid"), None);
        assert!(source("http://a/debian bookworm main", "bookworm", "sid").is_some());
    }
}
