//! The process that the library was loaded into: variables of the environment, and whether the memory is
//! somebody else's to watch. Both libraries ask before any constructor of the program has run, so nothing here allocates.

#![expect(unsafe_code, reason = "reads the environment, and asks the linker what is defined")]

use crate::{OUT, value_of};
use core::ffi::{CStr, c_char};

/// Whether this symbol is defined anywhere in the process: the dynamic linker has put zero in its place otherwise, before
/// the first call comes.
#[macro_export]
macro_rules! is_defined {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: it reads a word of the library's table of addresses.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, readonly, preserves_flags),
            );
        }
        address != 0
    }};
}

/// The value of a variable in an environment.
///
/// # Safety
/// The pointer must be to an environment as main gets it, which nobody changes and which lives for ever.
#[must_use]
pub unsafe fn variable(environment: *const *const c_char, name: &str) -> Option<&'static CStr> {
    let mut entry = environment;
    loop {
        // SAFETY: the caller's promise; the loop ends at the null pointer.
        let text = unsafe { *entry };
        if text.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(text) };
        if let Some(value) = value_of(name, text.to_bytes_with_nul()) {
            return CStr::from_bytes_with_nul(value).ok();
        }
        // SAFETY: there is a null pointer further on.
        entry = unsafe { entry.add(1) };
    }
}

/// Whether the environment keeps the library out of the process ([`OUT`]).
///
/// # Safety
/// As of [`variable`].
#[must_use]
pub unsafe fn is_kept_out(environment: *const *const c_char) -> bool {
    // SAFETY: the caller's promise.
    unsafe { variable(environment, OUT) }.is_some_and(|value| !value.is_empty())
}

/// Whether the program is linked with a sanitizer, or runs under Valgrind. Those keep account of all of its memory, and of
/// every block of malloc, and what they do not see they cannot find.
///
/// # Safety
/// As of [`variable`].
#[must_use]
pub unsafe fn is_instrumented(environment: *const *const c_char) -> bool {
    const VALGRIND: &[u8] = b"vgpreload_";
    // SAFETY: the caller's promise.
    let preloaded = unsafe { variable(environment, "LD_PRELOAD") };
    let preloaded = preloaded.map_or(&[][..], CStr::to_bytes);
    preloaded.windows(VALGRIND.len()).any(|part| part == VALGRIND) || has_sanitizer()
}

/// Whether a sanitizer of GCC or Clang is in the process, as a library or as a part of the program. UndefinedBehaviorSanitizer
/// alone looks at no memory.
fn has_sanitizer() -> bool {
    is_defined!("__asan_init")
        || is_defined!("__hwasan_init")
        || is_defined!("__lsan_disable")
        || is_defined!("__msan_init")
        || is_defined!("__tsan_init")
}
