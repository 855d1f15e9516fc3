//! The library's constructor runs before all others, so that its handlers of forks are the outermost: it takes
//! its lock after the locks of everybody else, and gives it back first.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // The program may have functions of these names too.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
