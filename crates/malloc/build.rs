//! mimalloc's calls of these functions come to this library first ([`arena`](src/arena.rs), [`gate`](src/gate.rs)).

fn main() {
    for function in ["mmap", "pthread_mutex_lock", "pthread_mutex_unlock"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={function}");
    }
    // The program may have functions of these names too.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
