//! The SONAME of the library.

/// The number of its binary interface: one more with each change after which a program would have to be compiled anew. The
/// Makefile reads it here.
const ABI: u32 = 1;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsuperpage_c.so.{ABI}");
}
