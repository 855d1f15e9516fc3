//! The kind of a program: whether the dynamic linker will load our library into it.

use object::elf::{PT_INTERP, SHT_PROGBITS};
use object::read::elf::{ElfFile64, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Whether a program can be managed, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The program is linked dynamically, or a script for such a program.
    Manageable,
    /// The program has no dynamic linker.
    Static,
    /// The program runs with the rights of its owner or group, so the dynamic linker loads nothing of ours.
    Privileged,
    /// The program is written in Go, which calls the kernel without libc.
    Go,
    /// The program has another C library than glibc.
    OtherLibc,
    /// The program is linked with a sanitizer, as a library or as a part of it, which must see all of its memory.
    Sanitized,
    /// The file is a program of 32 bits.
    Narrow,
    /// The file is no 64-bit program of this architecture, or cannot be understood.
    Foreign,
}

impl Kind {
    /// Whether it is to be run unmanaged also where its memory was to live in a heap: it looks for faults, and for nothing else.
    pub(super) fn runs_without_heap(self) -> bool {
        self == Self::Sanitized
    }

    /// The reason why a program of this kind runs unmanaged, as the end of a sentence; `None` if it does not.
    pub(super) fn why_not(self) -> Option<&'static str> {
        match self {
            Self::Manageable => None,
            Self::Static => Some("is linked statically, so no library can be loaded into it"),
            Self::Privileged => {
                Some("runs with other rights (setuid or setgid), so no library is loaded into it")
            }
            Self::Go => Some("is written in Go, which maps its memory without libc"),
            Self::OtherLibc => Some("is linked with another C library than glibc"),
            Self::Sanitized => {
                Some("is linked with a sanitizer, which has to see all of its memory")
            }
            Self::Narrow => Some("is a program of 32 bits, into which no library of ours fits"),
            Self::Foreign => Some("is no 64-bit ELF program or script that we can read"),
        }
    }
}

/// The reason why a program cannot be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    /// No such file was found.
    #[error("{0:?} was not found; give its path, or put its directory into PATH")]
    NotFound(String),
    /// The file may not be run.
    #[error("{0:?} may not be executed: it is no file, or lacks the permission (`chmod +x`)")]
    NotExecutable(String),
    /// The file is a script for an interpreter that is not there.
    #[error(
        "{script:?} is a script for {interpreter:?}, which is not there: install that, or correct the first line of the script \
         (which may end with a carriage return)"
    )]
    NoInterpreter {
        /// The script.
        script: PathBuf,
        /// The interpreter that it names.
        interpreter: PathBuf,
    },
}

/// The file that a command's first word stands for: as shells look for it.
pub(super) fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf, ProgramError> {
    let places: Vec<PathBuf> = match (name.is_empty(), name.as_bytes().contains(&b'/')) {
        (true, _) => Vec::new(),
        (false, true) => vec![PathBuf::from(name)],
        (false, false) => std::env::split_paths(path).map(|found| found.join(name)).collect(),
    };
    let is_there = |place: &&PathBuf| place.metadata().is_ok();
    let is_runnable = |place: &&PathBuf| place.metadata().is_ok_and(|found| may_run(&found));
    if let Some(found) = places.iter().find(is_runnable) {
        let named = beginning(found).ok().and_then(|begin| interpreter(&begin));
        return match named.filter(|interpreter| !interpreter.exists()) {
            Some(interpreter) => {
                Err(ProgramError::NoInterpreter { script: found.clone(), interpreter })
            }
            None => Ok(found.clone()),
        };
    }
    Err(match places.iter().any(|place| is_there(&place)) {
        true => ProgramError::NotExecutable(name.to_string_lossy().into_owned()),
        false => ProgramError::NotFound(name.to_string_lossy().into_owned()),
    })
}

fn may_run(found: &Metadata) -> bool {
    found.is_file() && found.permissions().mode() & 0o111 != 0
}

/// The interpreters that a script may name one after the other; the kernel follows as many.
const DEPTH: usize = 4;

/// The kind of a program, from its file. A script has the kind of its interpreter, and the dynamic linker that of the program
/// which these arguments have it load.
pub(super) fn kind(file: &Path, arguments: &[OsString]) -> Kind {
    match kind_of_file(file) {
        Kind::Static if is_linker(file) => match loaded_by_linker(arguments) {
            // The linker looks for such a name among libraries.
            Some(program) if !program.as_bytes().contains(&b'/') => Kind::Manageable,
            Some(program) => match kind_of_file(Path::new(program)) {
                // The linker says itself what is wrong with two of these, and does not give a program the rights of its owner.
                Kind::Narrow | Kind::Foreign | Kind::Privileged => Kind::Manageable,
                kind => kind,
            },
            None => Kind::Manageable,
        },
        kind => kind,
    }
}

/// Whether the file is glibc's dynamic linker, by the name that it gives itself.
fn is_linker(file: &Path) -> bool {
    let Ok(bytes) = std::fs::read(file) else { return false };
    let Ok(elf) = ElfFile64::<Endianness>::parse(&*bytes) else { return false };
    let names = elf.section_by_name(".dynstr").and_then(|names| names.data().ok());
    let mut names = names.unwrap_or_default().split(|byte| *byte == 0);
    names.any(|name| name.starts_with(GLIBC))
}

/// The program that the dynamic linker is to load; none where it only speaks of itself.
fn loaded_by_linker(arguments: &[OsString]) -> Option<&OsString> {
    const WITH_VALUE: [&str; 7] = [
        "--library-path",
        "--glibc-hwcaps-prepend",
        "--glibc-hwcaps-mask",
        "--inhibit-rpath",
        "--audit",
        "--preload",
        "--argv0",
    ];
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--") => return arguments.next(),
            Some(option) if WITH_VALUE.contains(&option) => {
                arguments.next();
            }
            Some(option) if option.starts_with("--") => {}
            _ => return Some(argument),
        }
    }
    None
}

/// The kind of a program or script, from its file alone.
fn kind_of_file(file: &Path) -> Kind {
    let mut file = file.to_owned();
    for _ in 0..DEPTH {
        let Ok(metadata) = file.metadata() else { return Kind::Foreign };
        if changes_rights(&metadata) {
            return Kind::Privileged;
        }
        let Ok(begin) = beginning(&file) else { return Kind::Foreign };
        match interpreter(&begin) {
            Some(interpreter) => file = interpreter,
            // A text without an interpreter is one of a shell.
            None if !begin.starts_with(b"\x7fELF") => return Kind::Manageable,
            None => return std::fs::read(&file).map_or(Kind::Foreign, |bytes| elf(&bytes)),
        }
    }
    Kind::Foreign
}

/// Whether the program gets other rights than whoever starts it.
fn changes_rights(metadata: &Metadata) -> bool {
    let mode = metadata.permissions().mode();
    let me = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    mode & 0o4000 != 0 && metadata.uid() != me || mode & 0o2000 != 0 && metadata.gid() != group
}

fn beginning(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    File::open(file)?.take(256).read_to_end(&mut begin)?;
    Ok(begin)
}

/// The interpreter that the first line of a script names.
fn interpreter(begin: &[u8]) -> Option<PathBuf> {
    let line = begin.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// The name of glibc's dynamic linker.
const GLIBC: &[u8] = b"ld-linux-x86-64.so";

fn elf(bytes: &[u8]) -> Kind {
    if bytes.starts_with(b"\x7fELF\x01") {
        return Kind::Narrow;
    }
    let Ok(elf) = ElfFile64::<Endianness>::parse(bytes) else { return Kind::Foreign };
    let endian = elf.endian();
    let linker = elf.elf_program_headers().iter().find(|header| header.p_type(endian) == PT_INTERP);
    let Some(linker) = linker else { return Kind::Static };
    let name = linker.data(endian, bytes).unwrap_or_default();
    if !name.windows(GLIBC.len()).any(|part| part == GLIBC) {
        return Kind::OtherLibc;
    }
    let is_go = elf.sections().any(|section| {
        section.name() == Ok(".go.buildinfo")
            && section.elf_section_header().sh_type(endian) == SHT_PROGBITS
    });
    match (is_go, is_sanitized(&elf)) {
        (true, _) => Kind::Go,
        (false, true) => Kind::Sanitized,
        (false, false) => Kind::Manageable,
    }
}

/// The runtimes of sanitizers: each is a library (`libasan.so`, `libclang_rt.asan-x86_64.so`), or a part of the program.
const SANITIZERS: [&str; 5] = ["asan", "hwasan", "lsan", "msan", "tsan"];

/// Whether one of these is the library of a sanitizer: paths with blanks, colons or zeroes between them.
pub(super) fn has_sanitizer_in(names: &[u8]) -> bool {
    let is_sanitizer = |name: &[u8]| {
        let name = str::from_utf8(name).unwrap_or_default();
        let stem = name.strip_prefix("libclang_rt.").or_else(|| name.strip_prefix("lib"));
        let rests = stem.into_iter().flat_map(|stem| SANITIZERS.map(|one| stem.strip_prefix(one)));
        rests.flatten().any(|rest| rest.starts_with(['.', '-', '_']) && rest.contains(".so"))
    };
    names.split(|byte| b" :/\0".contains(byte)).any(is_sanitizer)
}

/// Whether a program is linked with a sanitizer. UndefinedBehaviorSanitizer alone looks at no memory.
fn is_sanitized(elf: &ElfFile64<'_, Endianness>) -> bool {
    let names = elf.section_by_name(".dynstr").and_then(|names| names.data().ok());
    names.is_some_and(has_sanitizer_in)
        || elf.symbols().any(|symbol| is_runtime_of(&symbol))
        || elf.dynamic_symbols().any(|symbol| is_runtime_of(&symbol))
}

/// Whether a symbol marks the runtime of a sanitizer: a function that programs call and do not define.
fn is_runtime_of<'a>(symbol: &impl ObjectSymbol<'a>) -> bool {
    let name = symbol.is_definition().then(|| symbol.name().ok()).flatten();
    let known = ["__asan_init", "__hwasan_init", "__lsan_disable", "__msan_init", "__tsan_init"];
    name.is_some_and(|name| known.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executable(directory: &Path, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("there is room");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("it is ours");
        path
    }

    #[test]
    fn programs_are_told_apart() {
        let kind = |file: &Path| kind(file, &[]);
        let directory = tempfile::tempdir().expect("there is room");
        let at = |name, text: &[u8], mode| executable(directory.path(), name, text, mode);
        assert_eq!(kind(Path::new("/bin/sh")), Kind::Manageable);
        let script = at("script", b"#! /bin/sh -e\necho\n", 0o755);
        assert_eq!(kind(&script), Kind::Manageable);
        let outer = format!("#!{}\n", script.display());
        assert_eq!(kind(&at("outer", outer.as_bytes(), 0o755)), Kind::Manageable);
        let endless = directory.path().join("endless");
        let text = format!("#!{}\n", endless.display());
        assert_eq!(kind(&at("endless", text.as_bytes(), 0o755)), Kind::Foreign);
        assert_eq!(kind(&at("empty", b"", 0o755)), Kind::Manageable);
        assert_eq!(kind(&at("text", b"echo\n", 0o755)), Kind::Manageable);
        assert_eq!(kind(&at("cut", b"\x7fELF", 0o755)), Kind::Foreign);
        assert_eq!(kind(&at("narrow", b"\x7fELF\x01\x01\x01", 0o755)), Kind::Narrow);
    }

    #[test]
    fn the_dynamic_linker_has_the_kind_of_the_program_that_it_loads() {
        let linker = Path::new("/lib64/ld-linux-x86-64.so.2");
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            kind(linker, &words)
        };
        let directory = tempfile::tempdir().expect("there is room");
        let own = std::env::current_exe().expect("a test has a file");
        let mut bytes = std::fs::read(own).expect("it can be read");
        let at =
            bytes.windows(GLIBC.len()).position(|part| part == GLIBC).expect("it has a linker");
        bytes[at..at + 2].copy_from_slice(b"my");
        let other = executable(directory.path(), "other", &bytes, 0o755);
        let other = other.to_str().expect("a text");
        assert_eq!(of(&["/bin/sh", "-c", "true"]), Kind::Manageable);
        assert_eq!(
            of(&["--library-path", "/a", "--argv0", "b", "--inhibit-cache", "/bin/sh"]),
            Kind::Manageable
        );
        assert_eq!(of(&["--preload", "/bin/sh", other]), Kind::OtherLibc);
        assert_eq!(of(&["--", other]), Kind::OtherLibc);
        assert_eq!(of(&[linker.to_str().expect("a text")]), Kind::Static);
        for words in [&[][..], &["--help"], &["libc.so.6"], &["/nowhere/program"]] {
            assert_eq!(of(words), Kind::Manageable, "{words:?}");
        }
    }

    #[test]
    fn sanitizers_are_known_by_their_libraries() {
        for names in ["libasan.so.8", "/usr/lib/libtsan.so.2:/a.so", "libclang_rt.lsan-x86_64.so"] {
            assert!(has_sanitizer_in(names.as_bytes()), "{names}");
        }
        for names in ["", "libc.so.6", "libubsan.so.1", "libasana.so", "libtsan.txt"] {
            assert!(!has_sanitizer_in(names.as_bytes()), "{names}");
        }
    }

    #[test]
    fn a_program_is_looked_for_as_shells_do() {
        let directory = tempfile::tempdir().expect("there is room");
        executable(directory.path(), "plain", b"x", 0o644);
        let path = format!("/nowhere:{}:/bin", directory.path().display());
        let find = |name: &str| find(OsStr::new(name), OsStr::new(&path));
        assert_eq!(find("sh").expect("it is there"), Path::new("/bin/sh"));
        assert!(matches!(find("plain"), Err(ProgramError::NotExecutable(_))));
        assert!(matches!(find("none-such"), Err(ProgramError::NotFound(_))));
        assert!(matches!(find("/nowhere/sh"), Err(ProgramError::NotFound(_))));
        assert!(matches!(find(""), Err(ProgramError::NotFound(_))));
        assert!(matches!(find("/bin"), Err(ProgramError::NotExecutable(_))));
    }
}
