//! The functions that the libraries of this process define, read from their tables of dynamic symbols.
//!
//! dlsym(3) would tell the same. But where an error of an earlier call waits to be fetched (dlerror), it frees that, and calls
//! who asks for `free`.

#![expect(unsafe_code, reason = "reads the dynamic linker's lists and the tables of libraries")]

use core::ffi::{CStr, c_char};

/// The dynamic linker's `struct link_map`, as far as it is public.
#[derive(Debug)]
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Self,
}

/// The dynamic linker's `struct r_debug`.
#[repr(C)]
struct Debug {
    version: i32,
    first: *const LinkMap,
}

unsafe extern "C" {
    static _r_debug: Debug;
}

/// A symbol, as in the ELF format (`Elf64_Sym`).
#[derive(Debug)]
#[repr(C)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    /// The address of what it stands for, less that of its library.
    pub value: usize,
    size: u64,
}

/// The kind of a symbol that stands for a function; other kinds need more than their address to be called.
const FUNCTION: u8 = 2; // STT_FUNC

// Entries of the dynamic section.
const END: usize = 0;
const STRINGS: usize = 5; // DT_STRTAB
const SYMBOLS: usize = 6; // DT_SYMTAB
const HASHES: usize = 0x6fff_fef5; // DT_GNU_HASH

/// A program or library that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Object(*const LinkMap);

/// Those that are loaded as the program begins, up to libc, in the order in which names are looked up then: itself, what is
/// preloaded, and the libraries of each. They are never unloaded, as those behind them may be at any time.
pub fn objects() -> impl Iterator<Item = Object> {
    let mut is_behind = false;
    all().take_while(move |object| {
        let is_in = !is_behind;
        is_behind |= is_in && object.function(c"gnu_get_libc_version").is_some();
        is_in
    })
}

fn all() -> impl Iterator<Item = Object> {
    let object = |map: *const LinkMap| (!map.is_null()).then_some(Object(map));
    // SAFETY: the linker fills it before it calls anything.
    let first = object(unsafe { _r_debug.first });
    // SAFETY: it is in the linker's list.
    core::iter::successors(first, move |before| object(unsafe { (*before.0).next }))
}

impl Object {
    /// The address that is added to the values of its symbols.
    #[must_use]
    pub fn base(self) -> usize {
        // SAFETY: it is in the linker's list.
        unsafe { (*self.0).base }
    }

    /// A table that its dynamic section names.
    fn table(self, wanted: usize) -> Option<usize> {
        // SAFETY: it is in the linker's list.
        let (base, mut entry) = unsafe { ((*self.0).base, (*self.0).dynamic) };
        if entry.is_null() {
            return None;
        }
        loop {
            // SAFETY: the dynamic section ends with an entry of the kind `END`.
            let [kind, value] = unsafe { entry.read() };
            match kind {
                END => return None,
                // The linker has made addresses of them, but not of those of the kernel's own library.
                kind if kind == wanted => {
                    return Some(if value < base { base + value } else { value });
                }
                // SAFETY: as above.
                _ => entry = unsafe { entry.add(1) },
            }
        }
    }

    /// The functions of this name that it defines, one for each version.
    pub fn functions(self, name: &CStr) -> impl Iterator<Item = *const Symbol> {
        let tables = self.table(HASHES).zip(self.table(SYMBOLS)).zip(self.table(STRINGS));
        let chain = tables.and_then(|((hashes, symbols), strings)| {
            // SAFETY: these are the tables of a loaded object.
            unsafe { Chain::of(hashes, symbols, strings, hash(name)) }
        });
        chain.into_iter().flatten().filter_map(move |(symbol, strings)| {
            named(symbol, strings).filter(|(text, _)| *text == name).map(|(_, symbol)| symbol)
        })
    }

    /// The functions that it defines, with their addresses. A function with two versions comes twice.
    pub fn all_functions(self) -> impl Iterator<Item = (&'static CStr, usize)> {
        let tables = self.table(HASHES).zip(self.table(SYMBOLS)).zip(self.table(STRINGS));
        let chains = tables.into_iter().flat_map(|((hashes, symbols), strings)| {
            // SAFETY: these are the tables of a loaded object.
            unsafe { Chain::all_of(hashes, symbols, strings) }
        });
        chains.flatten().filter_map(move |(symbol, strings)| {
            let (name, symbol) = named(symbol, strings)?;
            // SAFETY: the symbol is in the object's table.
            Some((name, self.base().wrapping_add(unsafe { (*symbol).value })))
        })
    }

    /// The address of the function of this name that it defines.
    pub fn function(self, name: &CStr) -> Option<usize> {
        let symbol = self.functions(name).next()?;
        // SAFETY: the symbol is in the object's table.
        Some(self.base().wrapping_add(unsafe { (*symbol).value }))
    }
}

/// A symbol of an object's table, if it is of a function that the object defines, with its name.
fn named(symbol: *const Symbol, strings: usize) -> Option<(&'static CStr, *const Symbol)> {
    // SAFETY: the symbol is in the table, and its name in that of names. No object that is looked at is ever unloaded.
    let (found, text) = unsafe {
        let found = &*symbol;
        (found, CStr::from_ptr((strings + found.name as usize) as *const c_char))
    };
    (found.info & 0xf == FUNCTION && found.section != 0).then_some((text, symbol))
}

/// The hash of GNU's tables.
fn hash(name: &CStr) -> u32 {
    name.to_bytes()
        .iter()
        .fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

/// The symbols of one hash, and those that share its bucket, are neighbours in the table.
struct Chain {
    /// The hash of the symbols that are wanted; all of the bucket without.
    hash: Option<u32>,
    /// The hash of the next symbol; null behind the last.
    next: *const u32,
    symbol: *const Symbol,
    strings: usize,
}

impl Chain {
    /// The symbols that may have a hash.
    ///
    /// # Safety
    /// The addresses must be those of an object's tables.
    unsafe fn of(hashes: usize, symbols: usize, strings: usize, hash: u32) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            let table = Buckets::of(hashes)?;
            table
                .chain(hash % table.count, symbols, strings)
                .map(|of| Self { hash: Some(hash), ..of })
        }
    }

    /// All symbols, by buckets.
    ///
    /// # Safety
    /// The addresses must be those of an object's tables.
    unsafe fn all_of(hashes: usize, symbols: usize, strings: usize) -> impl Iterator<Item = Self> {
        // SAFETY: the caller's promise.
        let table = unsafe { Buckets::of(hashes) };
        table.into_iter().flat_map(move |table| {
            // SAFETY: the caller's promise.
            (0..table.count).filter_map(move |at| unsafe { table.chain(at, symbols, strings) })
        })
    }
}

/// A table of hashes, as far as it is read: the buckets, and behind them the hashes of symbols from the first one on.
#[derive(Clone, Copy)]
struct Buckets {
    count: u32,
    first: u32,
    start: usize,
}

impl Buckets {
    /// The table at this address; nothing if it is empty.
    ///
    /// # Safety
    /// The address must be that of an object's table.
    unsafe fn of(hashes: usize) -> Option<Self> {
        // SAFETY: the caller's promise: the number of buckets, the first symbol, and the words of a filter, which comes next.
        let [count, first, filter, _] = unsafe { (hashes as *const [u32; 4]).read() };
        let start = hashes + size_of::<[u32; 4]>() + filter as usize * size_of::<u64>();
        (count > 0).then_some(Self { count, first, start })
    }

    /// The symbols of a bucket, if it has some.
    ///
    /// # Safety
    /// The addresses must be those of the object's other tables.
    unsafe fn chain(self, at: u32, symbols: usize, strings: usize) -> Option<Chain> {
        let words = self.start as *const u32;
        // SAFETY: the buckets are there, and say where their symbols begin.
        unsafe {
            let bucket = words.add(at as usize).read();
            let hash = bucket.checked_sub(self.first)?;
            let next = words.add((self.count + hash) as usize);
            let symbol = (symbols as *const Symbol).add(bucket as usize);
            Some(Chain { hash: None, next, symbol, strings })
        }
    }
}

impl Iterator for Chain {
    type Item = (*const Symbol, usize);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.next.is_null() {
                return None;
            }
            // SAFETY: the chain has an end, which is marked.
            let (hash, symbol) = unsafe { (self.next.read(), self.symbol) };
            let is_last = hash & 1 == 1;
            // SAFETY: as above.
            unsafe {
                self.next = if is_last { core::ptr::null() } else { self.next.add(1) };
                self.symbol = self.symbol.add(1);
            }
            if self.hash.is_none_or(|wanted| hash | 1 == wanted | 1) {
                return Some((symbol, self.strings));
            }
        }
    }
}

/// The function of this name in the objects behind the one that has `own`, an address of one of its functions of this name:
/// what a library that takes the place of a function calls.
#[must_use]
pub fn next(name: &CStr, own: usize) -> Option<usize> {
    let mut behind = objects().skip_while(|object| object.function(name) != Some(own));
    behind.next()?;
    behind.find_map(|object| object.function(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_as_the_linker_finds_them() {
        for name in [c"malloc", c"free", c"mmap", c"pthread_create", c"clone"] {
            let found = objects().find_map(|object| object.function(name));
            // SAFETY: it only asks.
            let linkers = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(found, Some(linkers.addr()), "{name:?}");
        }
        assert_eq!(objects().find_map(|object| object.function(c"no_such_function")), None);
    }

    #[test]
    fn all_functions_are_those_of_their_names() {
        let libc = objects().last().expect("libc is loaded");
        let all: std::vec::Vec<_> = libc.all_functions().collect();
        assert!(all.len() > 1_000, "{}", all.len());
        for (name, address) in all {
            let mut found = libc.functions(name);
            // SAFETY: it is in libc's table.
            let is_found =
                |symbol: *const Symbol| libc.base() + unsafe { (*symbol).value } == address;
            assert!(found.any(is_found), "{name:?}");
        }
        for name in [c"malloc", c"dlopen"] {
            assert!(libc.all_functions().any(|(found, _)| found == name), "{name:?}");
        }
    }

    #[test]
    fn the_next_is_behind() {
        let all = || objects().filter_map(|object| object.function(c"malloc"));
        let first = all().next().expect("libc is loaded");
        assert_eq!(next(c"malloc", first), all().nth(1));
        assert_eq!(next(c"malloc", 1), None);
    }
}
