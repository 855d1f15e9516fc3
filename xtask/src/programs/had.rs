//! How a program is had: packages are installed, sources are fetched and built, below the directory of what is built where they
//! can be. What cannot be had is an error that says why, and whether the machine or the declaration is the cause.

use super::declared::{DIRECTORY, Program};
use crate::setup::{self, done};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use xshell::Shell;

/// The file that says with what a program was set up.
const STAMP: &str = ".setup";

/// Debian's keys, which every Debian has.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A program that is there.
#[derive(Debug)]
pub(crate) struct Had {
    /// The directory of what was built of the program.
    built: PathBuf,
    /// Where it runs.
    scratch: PathBuf,
    src: PathBuf,
}

/// Why a program cannot be had.
#[derive(Debug)]
pub(crate) enum NotHad {
    /// This machine lacks something.
    Here(anyhow::Error),
    /// What is declared cannot be carried out where all that it needs is there.
    Anywhere(anyhow::Error),
}

impl From<anyhow::Error> for NotHad {
    fn from(error: anyhow::Error) -> Self {
        Self::Here(error)
    }
}

/// Gets the program, or says why it cannot be had.
pub(crate) fn get(shell: &Shell, program: &Program, work: &Path) -> Result<Had, NotHad> {
    let had = Had {
        built: work.join(&program.name),
        scratch: work.join("scratch").join(&program.name),
        src: std::path::absolute(DIRECTORY).context("find the declarations")?.join("src"),
    };
    std::fs::create_dir_all(&had.built).context("make a directory for it")?;
    packages(shell, program)?;
    had.build(program)?;
    had.check(program)?;
    Ok(had)
}

/// Installs the program's packages, if something of it is missing.
fn packages(shell: &Shell, program: &Program) -> Result<()> {
    let missing = || program.needs.iter().find(|file| setup::in_path(file).is_none());
    if missing().is_some() {
        for package in &program.packages {
            setup::install(shell, package)
                .with_context(|| format!("the package {package} cannot be installed"))?;
        }
    }
    match missing() {
        Some(file) => anyhow::bail!("there is no {file}"),
        None => Ok(()),
    }
}

impl Had {
    pub(crate) fn scratch(&self) -> PathBuf {
        self.scratch.clone()
    }

    /// The directories that differ from checkout to checkout, and the names that stand for them in what is compared and kept.
    pub(crate) fn places(&self) -> [(&'static str, PathBuf); 3] {
        [("$PWD", self.scratch.clone()), ("$BUILT", self.built.clone()), ("$SRC", self.src.clone())]
    }

    /// A shell with these commands in a session of its own, in which the program is found.
    pub(crate) fn shell(&self, commands: &str) -> Command {
        // Not a leader of a process group, `setsid` becomes the shell.
        let mut command = Command::new("setsid");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!(
            "{}/venv/bin:{}/node_modules/.bin:{path}",
            self.built.display(),
            self.built.display()
        );
        command.args(["bash", "-c", commands]).env("PATH", path).env("HOME", &self.built);
        command.env("BUILT", &self.built).env("SRC", &self.src);
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env("TERM", "dumb");
        for other in
            ["CARGO", "CARGO_MANIFEST_DIR", "LD_LIBRARY_PATH", "RUSTUP_TOOLCHAIN", "DISPLAY"]
        {
            command.env_remove(other);
        }
        command
    }

    /// The first line of what the program says of its version.
    pub(crate) fn version(&self, program: &Program) -> String {
        let said = program.version.as_ref().and_then(|command| {
            let output = self.shell(command).current_dir(&self.built).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(text.lines().next()?.trim().to_owned())
        });
        said.unwrap_or_default()
    }

    /// Sees that the program can run here.
    fn check(&self, program: &Program) -> Result<()> {
        let Some(check) = &program.check else { return Ok(()) };
        let checked = self.shell(check).current_dir(&self.built).output()?;
        let words = String::from_utf8_lossy(&checked.stderr).into_owned();
        let last = words.lines().next_back().unwrap_or("its check fails").to_owned();
        ensure!(checked.status.success(), "{last}");
        Ok(())
    }

    /// Fetches and builds what is declared, unless it was built so already.
    fn build(&self, program: &Program) -> Result<(), NotHad> {
        let stamp = self.built.join(STAMP);
        let wanted = self.wanted(program)?;
        if std::fs::read_to_string(&stamp).is_ok_and(|was| was == wanted) {
            return Ok(());
        }
        self.fetch(program)?;
        if let Some(setup) = &program.setup {
            let commands = format!("set -eu -o pipefail\n{setup}");
            let made = done(self.shell(&commands).current_dir(&self.built));
            made.context("it cannot be built").map_err(NotHad::Anywhere)?;
        }
        Ok(std::fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))?)
    }

    /// Fetches what is declared, into an empty directory.
    fn fetch(&self, program: &Program) -> Result<()> {
        std::fs::remove_dir_all(&self.built)?;
        std::fs::create_dir_all(&self.built)?;
        if let Some(packages) = &program.python {
            self.python(packages)?;
        }
        if !program.npm.is_empty() {
            let mut npm = self
                .shell("exec npm install --no-audit --no-fund --silent --prefix \"$BUILT\" \"$@\"");
            npm.arg("npm").args(&program.npm);
            done(&mut npm).context("its packages cannot be had from npm")?;
        }
        if let Some(source) = &program.source {
            self::source(source, &self.built).context("its source cannot be had")?;
        }
        Ok(())
    }

    fn python(&self, packages: &[String]) -> Result<()> {
        let venv = self.built.join("venv");
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&venv);
        if packages.is_empty() {
            make.arg("--without-pip");
        }
        done(&mut make).context("no virtual environment can be made")?;
        if packages.is_empty() {
            return Ok(());
        }
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
        done(&mut pip).map(|_| ()).context("its packages cannot be had from PyPI")
    }

    /// What the program is set up with: the declaration, and the files in `programs/src` that it names.
    fn wanted(&self, program: &Program) -> Result<String> {
        let setup = program.setup.clone().unwrap_or_default();
        let mut text =
            format!("{:?} {:?} {:?}\n{setup}\n", program.python, program.npm, program.source);
        for name in setup.split("$SRC/").skip(1) {
            let end = name.find(|c: char| !c.is_alphanumeric() && !"._-/".contains(c));
            let path = self.src.join(&name[..end.unwrap_or(name.len())]);
            text += &std::fs::read_to_string(&path)
                .with_context(|| format!("read {}", path.display()))?;
        }
        Ok(text)
    }
}

/// Unpacks a source package of Debian in `source` below `built`, with apt's lists and cache below it too.
fn source(package: &str, built: &Path) -> Result<()> {
    let apt = built.join("apt");
    for part in ["state/lists/partial", "cache/archives/partial", "unpacked"] {
        std::fs::create_dir_all(apt.join(part))?;
    }
    let format = "$(SITE) $(RELEASE) $(COMPONENT)";
    let mut targets = Command::new("apt-get");
    let targets = done(targets.args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let line = |target: &str| format!("deb-src [signed-by={KEYS}] {target}\n");
    // Mirrors lack sources of security updates now and then, but not those of the release.
    let is_wanted = |target: &&str| target.contains("/debian") && !target.contains("-security");
    let debian = targets.lines().filter(is_wanted);
    std::fs::write(apt.join("sources.list"), debian.map(line).collect::<String>())?;
    for arguments in [&["update"][..], &["source", "--download-only", package]] {
        let mut command = Command::new("apt-get");
        for (name, file) in [
            ("Dir::State", "state"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::SourceList", "sources.list"),
        ] {
            command.args(["-o", &format!("{name}={}", apt.join(file).display())]);
        }
        command.args([
            "-o",
            "Dir::Etc::SourceParts=/dev/null",
            "-o",
            "APT::Sandbox::User=root",
            "-q",
        ]);
        done(command.args(arguments).current_dir(apt.join("unpacked")))?;
    }
    let files =
        std::fs::read_dir(apt.join("unpacked"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let original = files.into_iter().find(|path| path.to_string_lossy().contains(".orig.tar."));
    let source = built.join("source");
    std::fs::create_dir_all(&source)?;
    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "-xf"]).arg(original.context("it has no original source")?);
    done(tar.arg("-C").arg(&source)).map(|_| ())
}
