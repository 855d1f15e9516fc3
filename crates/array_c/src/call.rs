//! The frame of each function for C: errno, and the sentence that `superpage_error` returns.

#![expect(unsafe_code, reason = "errno")]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    sentence: String,
}

impl Failure {
    /// The caller's mistake: EINVAL.
    pub(crate) fn invalid(sentence: impl Into<String>) -> Self {
        Self { errno: libc::EINVAL, sentence: sentence.into() }
    }
}

impl From<superpage_array::Error> for Failure {
    fn from(error: superpage_array::Error) -> Self {
        Self { errno: error.errno(), sentence: error.to_string() }
    }
}

thread_local! {
    static SENTENCE: RefCell<CString> = RefCell::new(CString::default());
}

/// The last failure of this thread; an empty string where there was none.
pub(crate) fn sentence() -> *const c_char {
    SENTENCE.with_borrow(|sentence| sentence.as_ptr())
}

/// The result of a function. errno is as before, or that of the failure, which is noted.
pub(crate) fn call<T>(function: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    // SAFETY: errno is the calling thread's.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let (after, done) = match function() {
        Ok(done) => (before, Some(done)),
        Err(failure) => {
            let text = CString::new(failure.sentence.replace('\0', " ")).unwrap_or_default();
            SENTENCE.with_borrow_mut(|sentence| *sentence = text);
            (failure.errno, None)
        }
    };
    // SAFETY: as above.
    unsafe { errno.write(after) };
    done
}

/// As [`call`]: 0, or -1.
pub(crate) fn answer(function: impl FnOnce() -> Result<(), Failure>) -> c_int {
    call(function).map_or(-1, |()| 0)
}
