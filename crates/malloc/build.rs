//! mimalloc's calls of these functions come to this library first: `mmap` to [`arena`](src/arena.rs), locks to
//! [`locks`](src/locks.rs), the key to [`ends`](src/ends.rs), all others to [`errno`](src/errno.rs).

const WRAPPED: [&str; 10] = [
    "mmap",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_key_create",
    "__errno_location",
    "munmap",
    "madvise",
    "mprotect",
    "prctl",
    "syscall",
];

fn main() {
    for function in WRAPPED {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={function}");
    }
    // The program may have functions of these names too.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
