//! Functions of the next library, which is libc, of the names that the library takes the place of.

#![expect(unsafe_code, reason = "finds functions by their names")]

use core::ffi::{CStr, c_void};
use core::marker::PhantomData;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

/// A function of this name in the next library, of type `F`.
#[derive(Debug)]
pub(crate) struct Next<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// # Safety
    /// `F` must be the type of the function of this name, as a pointer to an `extern "C"` function.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "it is a pointer") };
        Self { name, found: AtomicPtr::new(core::ptr::null_mut()), function: PhantomData }
    }

    /// The function; nothing where there is none. The first call asks the dynamic linker, whose lock may later be held by a thread
    /// that waits for this one.
    pub(crate) fn get(&self) -> Option<F> {
        let mut found = self.found.load(Acquire);
        if found.is_null() {
            // SAFETY: the name ends with a zero.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Release);
        }
        // SAFETY: who made this has promised the type.
        (!found.is_null()).then(|| unsafe { core::mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

/// The functions of libc that a module calls, and its function `resolve`.
macro_rules! next {
    ($($place:ident, $name:literal: $type:ty;)*) => {
        $(
            // SAFETY: libc's function has this type.
            static $place: Next<$type> = unsafe { Next::new($name) };
        )*

        /// Finds the functions of libc that are called here. Later the dynamic linker's lock may be held by a thread
        /// that waits for this one, or that is in the parent of a fork.
        pub(crate) fn resolve() {
            $($place.get();)*
        }
    };
}

pub(crate) use next;
