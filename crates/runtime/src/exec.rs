//! Programs that a process starts, or becomes: those that are not to be managed begin as without us.
//!
//! The environment that has the dynamic linker load our libraries is inherited by every child. Most programs do not mind, but
//! musl's linker refuses to start one for which it cannot load a library, and sanitizers want to be the first. So a process
//! that is not managed itself passes its environment on without our part of it, and one that is managed does so where the next
//! program has another linker than glibc's. A program that is started by `system`, `popen` or `execl` has it: those call the
//! kernel within libc. So has one whose environment has more entries than there is room for.

#![expect(unsafe_code, reason = "reads environments and programs, and calls libc's functions")]
#![cfg_attr(test, expect(dead_code, reason = "only programs call them"))]

use crate::areas::managed;
use crate::elf::Elf;
use crate::export::Returned;
use crate::limited;
use crate::next::{Next, next};
use crate::sys::{self, Errno, PAGE, Result};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{VARIABLE, value_of};
use syscalls::Sysno;

/// The process that is managed and none of whose children is; zero where there is no such, [`ALL`] where children are managed
/// too, and [`UNKNOWN`] where the library knows of no `superpage run`.
static MANAGED: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;
const ALL: u32 = u32::MAX - 1;

/// This process is not managed, and neither is a child of it.
pub(crate) fn note_unmanaged() {
    MANAGED.store(0, Relaxed);
}

/// Children are managed too.
pub(crate) fn note_children() {
    MANAGED.store(ALL, Relaxed);
}

/// This process is managed, and no child of it is.
pub(crate) fn note_managed() {
    MANAGED.store(sys::process(), Relaxed);
}

/// An environment as the kernel takes it: pointers to its entries, and a null pointer.
type Environment = *const *const c_char;

/// Whether a program is to begin without our part of the environment.
fn begins_without(program: Program) -> bool {
    match MANAGED.load(Relaxed) {
        UNKNOWN => false,
        managed if managed == ALL || managed == sys::process() => program.refuses_us(),
        _ => true,
    }
}

/// A program, as the functions of libc are told of it.
#[derive(Clone, Copy)]
enum Program {
    /// Its file.
    File(*const c_char),
    /// Its file, or a name to look for in PATH.
    Name(*const c_char),
}

impl Program {
    /// Whether it refuses to begin with our libraries.
    fn refuses_us(self) -> bool {
        let (Self::File(text) | Self::Name(text)) = self;
        if text.is_null() {
            return false;
        }
        // SAFETY: the program gives it as the kernel wants it, a text with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        match self {
            Self::Name(_) if !text.to_bytes().contains(&b'/') => refuses_us_by_name(text),
            _ => refuses_us(text),
        }
    }
}

/// As [`refuses_us`], of the first program of this name that PATH leads to.
#[inline(never)]
fn refuses_us_by_name(name: &CStr) -> bool {
    // SAFETY: libc's getenv reads the environment, as the function that is called next does.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    let path = match path.is_null() {
        true => c"/bin:/usr/bin",
        // SAFETY: it is a text with a zero.
        false => unsafe { CStr::from_ptr(path) },
    };
    let mut place = [0; PAGE];
    let mut found = path.to_bytes().split(|byte| *byte == b':').filter_map(|directory| {
        let directory = if directory.is_empty() { b"." } else { directory };
        let mut rest = &mut place[..];
        for part in [directory, b"/", name.to_bytes_with_nul()] {
            rest.split_off_mut(..part.len())?.copy_from_slice(part);
        }
        let file = CStr::from_bytes_until_nul(&place).ok()?;
        sys::may_access(file, libc::X_OK).then(|| refuses_us(file))
    });
    found.next().unwrap_or(false)
}

/// Whether a program refuses to begin with our libraries, as far as its file says: its dynamic linker is another than glibc's,
/// or AddressSanitizer has to be its first library.
#[inline(never)]
fn refuses_us(program: &CStr) -> bool {
    const GLIBC: &[u8] = b"ld-linux-x86-64.so";
    let Ok(file) = sys::open(program, libc::O_RDONLY | libc::O_NONBLOCK) else { return false };
    let read = |place, into: &mut [u8]| sys::read_at(&file, place, into).unwrap_or_default();
    let mut page = [0; PAGE];
    let length = read(0, &mut page);
    let beginning = page.get(..length).unwrap_or_default();
    // The linker of 32 bits would complain of each of our libraries.
    if beginning.starts_with(b"\x7fELF\x01") {
        return true;
    }
    let Some(elf) = Elf::of(beginning, read) else { return false };
    let Some(linker) = elf.linker() else { return false };
    !linker.windows(GLIBC.len()).any(|part| part == GLIBC)
        || elf.names(|library| {
            library.starts_with(b"libasan.so") || library.starts_with(b"libclang_rt.asan")
        })
}

/// Calls `call` with an environment without our part of it.
fn without_ours<T>(environment: Environment, call: impl FnOnce(Environment) -> T) -> T {
    // SAFETY: the program gives it as the kernel wants it.
    let count = unsafe { (0..).take_while(|at| !(*environment.add(*at)).is_null()).count() };
    // A child of vfork has its parent's memory, so nothing is allocated.
    match count {
        ..128 => filtered::<128, T>(environment, count, call),
        128..1024 => filtered::<1024, T>(environment, count, call),
        _ => call(environment),
    }
}

/// As [`without_ours`]. Never inlined: a caller's stack may be small, and need not have room for all sizes.
#[inline(never)]
fn filtered<const ROOM: usize, T>(
    environment: Environment,
    count: usize,
    call: impl FnOnce(Environment) -> T,
) -> T {
    let mut kept = [core::ptr::null::<c_char>(); ROOM];
    let mut preload = [0; 1024];
    // An environment may have a name more than once: each entry that is written anew takes a part.
    let mut room = &mut preload[..];
    let mut next = 0;
    for at in 0..count {
        // SAFETY: there are `count` entries, each of which is a text with a zero.
        let (entry, text) = unsafe {
            let entry = *environment.add(at);
            (entry, CStr::from_ptr(entry).to_bytes())
        };
        let is_dropped = value_of(VARIABLE, text).is_some();
        let entry = match value_of("LD_PRELOAD", text) {
            _ if is_dropped => core::ptr::null(),
            Some(libraries) => match others_in(libraries, room) {
                Some(0) => core::ptr::null(),
                Some(length) => {
                    room.split_off_mut(..length).map_or(entry, |text| text.as_ptr().cast())
                }
                None => entry,
            },
            None => entry,
        };
        if let (Some(place), false) = (kept.get_mut(next), entry.is_null()) {
            *place = entry;
            next += 1;
        }
    }
    call(kept.as_ptr())
}

/// Whether a path is `/proc/PID/fd/NUMBER`: so `superpage run` names libraries whose paths the linker would not understand.
fn is_open_in_a_process(path: &[u8]) -> bool {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let mut parts = path.split(|byte| *byte == b'/');
    let mut is_next = |wanted: &dyn Fn(&[u8]) -> bool| parts.next().is_some_and(wanted);
    is_next(&|part| part.is_empty())
        && is_next(&|part| part == b"proc")
        && is_next(&is_number)
        && is_next(&|part| part == b"fd")
        && is_next(&is_number)
}

/// Writes `LD_PRELOAD` without our libraries; its length with the zero, which is none where there are no others, and nothing where
/// there is no room.
fn others_in(libraries: &[u8], into: &mut [u8]) -> Option<usize> {
    const NAME: &[u8] = b"LD_PRELOAD=";
    let is_ours = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        name.starts_with(b"libsuperpage") || is_open_in_a_process(path)
    };
    into.get_mut(..NAME.len())?.copy_from_slice(NAME);
    let mut end = NAME.len();
    for path in libraries.split(|byte| b" :".contains(byte)) {
        if !path.is_empty() && !is_ours(path) {
            into.get_mut(end..end + path.len())?.copy_from_slice(path);
            *into.get_mut(end + path.len())? = b':';
            end += path.len() + 1;
        }
    }
    *into.get_mut(end)? = 0;
    Some(if end > NAME.len() { end + 1 } else { 0 })
}

/// execve(2).
///
/// # Safety
/// As of execve.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: Environment,
) -> c_int {
    let managed = managed();
    if let Some(process) = managed {
        limited::before_another_program(process.areas);
    }
    // SAFETY: the caller's promise.
    let call =
        |environment| unsafe { syscalls::syscall!(Sysno::execve, path, arguments, environment) };
    let done: Result<usize> = if !environment.is_null() && begins_without(Program::File(path)) {
        without_ours(environment, call)
    } else {
        call(environment)
    };
    if let Some(process) = managed {
        limited::no_other_program(process.areas);
    }
    Returned::of(done)
}

unsafe extern "C" {
    /// libc's, which the program may change.
    static environ: Environment;
}

/// execv(3).
///
/// # Safety
/// As of execv.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execv(
    path: *const c_char,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execve(path, arguments, environ) }
}

/// execvp(3).
///
/// # Safety
/// As of execvp.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execvp(
    file: *const c_char,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execvpe(file, arguments, environ) }
}

type Exec = extern "C" fn(*const c_char, *const *const c_char, Environment) -> c_int;

next! {
    EXECVPE, c"execvpe": Exec;
    SPAWN, c"posix_spawn": Spawn;
    SPAWNP, c"posix_spawnp": Spawn;
}

/// execvpe(3).
///
/// # Safety
/// As of execvpe.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    environment: Environment,
) -> c_int {
    let Some(next) = EXECVPE.get() else { return Returned::of(Err(Errno::ENOSYS)) };
    let managed = managed();
    if let Some(process) = managed {
        limited::before_another_program(process.areas);
    }
    let failed = match !environment.is_null() && begins_without(Program::Name(file)) {
        true => without_ours(environment, |environment| next(file, arguments, environment)),
        false => next(file, arguments, environment),
    };
    if let Some(process) = managed {
        limited::no_other_program(process.areas);
    }
    failed
}

/// posix_spawn(3).
///
/// # Safety
/// As of posix_spawn.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_spawn(
    process: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    environment: Environment,
) -> c_int {
    spawn(&SPAWN, Program::File(path), environment, |spawn, environment| {
        spawn(process, path, actions, attributes, arguments, environment)
    })
}

/// posix_spawnp(3).
///
/// # Safety
/// As of posix_spawnp.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_spawnp(
    process: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    environment: Environment,
) -> c_int {
    spawn(&SPAWNP, Program::Name(file), environment, |spawn, environment| {
        spawn(process, file, actions, attributes, arguments, environment)
    })
}

type Spawn = extern "C" fn(
    *mut c_int,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *const c_char,
    Environment,
) -> c_int;

/// Starts a child, which is not the process that is managed.
fn spawn(
    next: &Next<Spawn>,
    program: Program,
    environment: Environment,
    call: impl FnOnce(Spawn, Environment) -> c_int,
) -> c_int {
    let Some(next) = next.get() else { return libc::ENOSYS };
    let is_without = match MANAGED.load(Relaxed) {
        UNKNOWN => false,
        ALL => program.refuses_us(),
        _ => true,
    };
    match is_without && !environment.is_null() {
        true => without_ours(environment, |environment| call(next, environment)),
        false => call(next, environment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::CString;
    use std::string::String;
    use std::vec::Vec;

    fn others(libraries: &str) -> Option<std::string::String> {
        let mut into = [1; 1024];
        let length = others_in(libraries.as_bytes(), &mut into).expect("there is room");
        let text = CStr::from_bytes_until_nul(&into).expect("it ends");
        assert!(length == 0 || length == text.count_bytes() + 1);
        (length > 0).then(|| text.to_str().expect("it is text").into())
    }

    #[test]
    fn others_libraries_stay() {
        assert_eq!(others("/a/libsuperpage.so:/a/libsuperpage_malloc.so"), None);
        assert_eq!(others("/proc/7/fd/5:/proc/7/fd/6"), None);
        assert_eq!(others("/proc/self/fd/5").as_deref(), Some("LD_PRELOAD=/proc/self/fd/5:"));
        let both = others("/a/libsuperpage.so:/b/libx.so /libsuperpage_malloc.so:liby.so");
        assert_eq!(both.as_deref(), Some("LD_PRELOAD=/b/libx.so:liby.so:"));
        assert_eq!(others_in(&[b'x'; 2000], &mut [0; 1024]), None);
    }

    /// The entries of the environment that a program begins with which is given these.
    fn kept(entries: &[CString]) -> Vec<CString> {
        let mut pointers: Vec<_> = entries.iter().map(|entry| entry.as_ptr()).collect();
        pointers.push(core::ptr::null());
        without_ours(pointers.as_ptr(), |environment| {
            // SAFETY: the environment ends with a null pointer.
            let texts =
                (0..).map(|at| unsafe { *environment.add(at) }).take_while(|at| !at.is_null());
            // SAFETY: its entries are texts that end with a zero.
            texts.map(|text| unsafe { CStr::from_ptr(text) }.to_owned()).collect()
        })
    }

    #[test]
    fn an_environment_keeps_the_rest() {
        let entries = [c"A=1", c"SUPERPAGE_RUN=6,7", c"LD_PRELOAD=/a/libsuperpage.so", c"B=2"];
        assert_eq!(kept(&entries.map(CStr::to_owned)), [c"A=1".to_owned(), c"B=2".to_owned()]);
    }

    #[test]
    fn two_entries_of_one_name_stay_two() {
        let entries = [c"LD_PRELOAD=/b/libx.so:/a/libsuperpage.so", c"LD_PRELOAD=liby.so"];
        let entries = entries.map(CStr::to_owned);
        assert_eq!(
            kept(&entries),
            [c"LD_PRELOAD=/b/libx.so:", c"LD_PRELOAD=liby.so:"].map(CStr::to_owned)
        );
    }

    #[test]
    fn an_environment_of_any_length_ends_with_a_null_pointer() {
        for count in [0, 1, 126, 127, 128, 129, 1022, 1023, 1024, 1025] {
            let mut entries = std::vec![c"A=1".to_owned(); count];
            assert_eq!(kept(&entries), entries);
            entries.push(c"SUPERPAGE_RUN=6".to_owned());
            let expected = if count < 1023 { count } else { count + 1 };
            assert_eq!(kept(&entries).len(), expected, "there is room for a thousand");
        }
    }

    /// The entry without our part of it, as [`others_in`] should write it, in an environment of which others take `used` bytes.
    fn without(entry: &str, used: &mut usize) -> Option<String> {
        if entry.starts_with("SUPERPAGE_RUN=") {
            return None;
        }
        let Some(libraries) = entry.strip_prefix("LD_PRELOAD=") else { return Some(entry.into()) };
        let is_ours = |path: &&str| {
            let name = path.split('/').next_back().unwrap_or_default();
            name.starts_with("libsuperpage") || path.starts_with("/proc/7/fd/")
        };
        let paths = libraries.split([':', ' ']).filter(|path| !path.is_empty() && !is_ours(path));
        let paths: Vec<String> = paths.map(|path| std::format!("{path}:")).collect();
        let text = std::format!("LD_PRELOAD={}", paths.concat());
        let fits = *used + text.len() < 1024;
        if fits && !paths.is_empty() {
            *used += text.len() + 1;
        }
        match (fits, paths.is_empty()) {
            (false, _) => Some(entry.into()),
            (true, true) => None,
            (true, false) => Some(text),
        }
    }

    fn entry() -> impl Strategy<Value = String> {
        let library = prop::sample::select(std::vec![
            "",
            "/a/libsuperpage.so",
            "libsuperpage_malloc.so",
            "/proc/7/fd/12",
            "/b/libx.so",
            "liby.so",
            "/proc/self/fd/3",
            "/superpage/libz.so",
        ]);
        let library = prop_oneof![
            8 => library.prop_map(String::from),
            1 => (1_usize..1100).prop_map(|length| "x".repeat(length)),
        ];
        let separated = (library, prop::sample::select(std::vec![":", " "]));
        let list = prop::collection::vec(separated, 0..5);
        let list = list.prop_map(|parts| {
            parts.into_iter().flat_map(|(library, separator)| [library, separator.into()]).collect()
        });
        prop_oneof![
            2 => list.prop_map(|list: String| std::format!("LD_PRELOAD={list}")),
            2 => prop::sample::select(std::vec![
                "A=1", "", "=", "SUPERPAGE_RUN=6,7", "SUPERPAGE_RUN", "LD_PRELOADED=libsuperpage.so",
                "SUPERPAGE_RUNS=1", "LD_PRELOAD",
            ]).prop_map(String::from),
        ]
    }

    proptest! {
        #[test]
        fn an_environment_loses_our_part_and_nothing_else(
            entries in prop::collection::vec(entry(), 0..12),
        ) {
            let given: Vec<CString> =
                entries.iter().map(|entry| CString::new(&**entry).expect("it has no zero")).collect();
            let mut used = 0;
            let expected: Vec<String> =
                entries.iter().filter_map(|entry| without(entry, &mut used)).collect();
            let kept: Vec<String> =
                kept(&given).into_iter().map(|entry| entry.into_string().expect("it is text")).collect();
            assert_eq!(kept, expected);
        }
    }
}
