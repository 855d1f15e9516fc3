//! The beginning: before the program's own code, the library finds out whether it is to manage the process,
//! and reserves the areas. Its threads start when the program's memory first fills a slot. Where anything fails the
//! program runs unmanaged.

#![expect(unsafe_code, reason = "runs before main, and maps what lives for ever")]

use crate::areas::{self, Areas, Cooldown, Threads};
use crate::gigantic::Ready;
use crate::machine::Decider;
use crate::pager::{self, Pager, WORKERS};
use crate::slot::Slots;
use crate::space::{SlotPages, Space};
use crate::sys::{self, Descriptor, GIGANTIC, Mmap, PAGE, Result, Span};
use crate::thread::{self, Descriptors};
use crate::uffd::{FAULT_THREADS, Userfaultfd};
use crate::{at_start, background, child, exec, export, fault, fork, service};
use alloc::boxed::Box;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::io::Write;
use superpage_launch::{
    Cause, Config, Counters, FORMAT, Heap, OpenFile, VARIABLE, is_instrumented, is_kept_out,
    variable,
};
use superpage_policy::promotion::list;
use superpage_units::{Bytes, Pid};

/// The slots of the areas: 1 TiB of address space, more than the memory of machines we know of; less if a
/// limit stands against it.
const SLOTS: usize = 1024;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// libc calls this with the arguments of main.
type Constructor = extern "C" fn(c_int, *const *const c_char, *const *const c_char);

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: Constructor = constructor;

extern "C" fn constructor(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: libc passes the environment, which ends with a null pointer, and whose entries live as long as the stack.
    let (text, is_out, is_instrumented) = unsafe {
        let text = variable(environment, VARIABLE);
        (text, is_kept_out(environment), is_instrumented(environment))
    };
    let Some(text) = text else { return };
    let Some(config) = text.to_str().ok().and_then(Config::parse) else {
        sys::complain("superpage: the library and `superpage run` are of different builds\n");
        return;
    };
    match config.children {
        true => exec::note_children(),
        false => exec::note_unmanaged(),
    }
    exec::resolve();
    // A child of the program has the same environment, and another parent.
    if is_out || !config.manages(Pid(sys::parent())) || fork::watch().is_err() {
        return;
    }
    match begin(&config, is_instrumented.then_some(Cause::Instrumented)) {
        // A program that needs the heap would take all of memory instead.
        Err(errno) if config.heap.is_some() => {
            end_without_heap(errno.name().unwrap_or("an unknown error"));
        }
        Ok(()) | Err(_) => {}
    }
}

/// Ends a program that was to have a heap, which cannot be had: its data may be larger than memory.
pub(crate) fn end_without_heap(why: &str) -> ! {
    sys::complain("superpage: the program was ended, because no heap can be had in it (");
    sys::complain(why);
    sys::complain("): run it without --heap, or with SUPERPAGE_OFF=1\n");
    sys::end_process(NOT_POSSIBLE);
}

/// The exit code of `superpage run` for what cannot be done here.
const NOT_POSSIBLE: i32 = 3;

/// Begins, unless there is a cause to leave the program alone.
fn begin(config: &Config<'_>, cause: Option<Cause>) -> Result<()> {
    let counters = map_counters(config)?;
    if !config.children && !counters.claim(Pid(sys::process())) {
        return Ok(()); // an orphan
    }
    if !config.children {
        exec::note_managed();
    }
    counters.format.store(FORMAT, Relaxed);
    let Some(policy) = list::find(config.policy) else { return Ok(()) }; // such as `OFF`
    if let Some(cause) = cause {
        counters.refused.add(cause);
        return Ok(());
    }
    // The reservation, and pages that are ready, would count against it.
    if sys::limit(libc::RLIMIT_AS).or(sys::limit(libc::RLIMIT_DATA)).is_some() {
        counters.refused.add(Cause::Limited);
        return if config.heap.is_some() { Err(sys::Errno::ENOMEM) } else { Ok(()) };
    }
    let before = sys::address_space();
    let (span, slots) = reserve(config.heap.map(|heap| heap.size))?;
    // SAFETY: zero bytes are slots of which all pages are free.
    let pages = unsafe { zeroed::<SlotPages>(slots) }?;
    // SAFETY: zero bytes are ordinary slots.
    let states = unsafe { zeroed::<AtomicU32>(slots) }?;
    let areas = Areas::new(
        Space::new(span.start, pages),
        Slots::new(span.start, states),
        Ready::new(config.ready),
        Decider::new((policy.build)(), config),
        counters,
        parents_mark()?,
        // SAFETY: zero bytes are cooldowns that are over.
        unsafe { zeroed::<Cooldown>(slots) }?,
    );
    if let Some(heap) = config.heap {
        counters.heap.size.store(heap.size.0, Relaxed);
        counters.heap.for_compressed.store(heap.compressed.0, Relaxed);
        counters.heap.memory.store(0, Relaxed);
        counters.heap.most.store(0, Relaxed);
    }
    let areas = areas.in_file(config.heap.map(|heap| (heap, config.parent)));
    let areas = Box::leak(Box::new(areas));
    note_own(areas, before);
    export::resolve();
    child::resolve();
    at_start::note();
    // A panic's message has nowhere to go, and writing it would call libc.
    std::panic::set_hook(Box::new(|_| {}));
    areas::publish(areas);
    Ok(())
}

/// Opens a file that a process has open.
///
/// # Errors
/// ESTALE where what is open there is another file, which is not opened; what the kernel says.
fn open_of(process: Pid, file: OpenFile, flags: i32) -> Result<Descriptor> {
    let mut path = [0; 64];
    let mut rest = &mut path[..];
    let number = file.descriptor;
    write!(rest, "/proc/{process}/fd/{number}\0").map_err(|_| sys::Errno::EINVAL)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| sys::Errno::EINVAL)?;
    let same = |opened: Descriptor| match sys::file_identity(&opened)? == file.identity {
        true => Ok(opened),
        false => Err(sys::Errno::ESTALE),
    };
    // To open another file could change it already.
    same(sys::open(path, libc::O_PATH)?)?;
    same(sys::open(path, flags)?)
}

/// The counters, in the file of `superpage run`.
fn map_counters(config: &Config<'_>) -> Result<&'static Counters> {
    let file = open_of(config.parent, config.counters, libc::O_RDWR)?;
    let asked = Mmap {
        address: 0,
        length: PAGE,
        protection: READ_WRITE,
        flags: libc::MAP_SHARED,
        descriptor: file.0,
        offset: 0,
    };
    // SAFETY: the kernel chooses an unused place.
    let start = unsafe { sys::mmap(asked) }?;
    // SAFETY: the file has a page, any bytes are counters, and it stays mapped for ever.
    Ok(unsafe { &*(start as *const Counters) })
}

/// Reserves address space for as many slots as there may be; for a heap, twice as many as it fills, because mappings leave
/// holes.
fn reserve(heap: Option<Bytes>) -> Result<(Span, usize)> {
    let filled = |heap: Bytes| 2 * (sys::to_usize(heap.0).div_ceil(GIGANTIC) + 1);
    let mut slots = heap.map_or(SLOTS, |heap| filled(heap).min(SLOTS));
    loop {
        // One slot more, so that an aligned part of the right length lies inside.
        let length = (slots + 1) * GIGANTIC;
        let asked = Mmap::anywhere(length, libc::PROT_NONE, libc::MAP_NORESERVE);
        // SAFETY: the kernel chooses an unused place.
        match unsafe { sys::mmap(asked) } {
            Ok(mapped) => {
                let span =
                    Span { start: mapped.next_multiple_of(GIGANTIC), length: slots * GIGANTIC };
                let end = mapped + length;
                for (start, end) in [(mapped, span.start), (span.end(), end)] {
                    // SAFETY: it was just reserved, and is not needed.
                    let _ = unsafe { sys::munmap(start, end - start) };
                }
                sys::leave_out_of_dumps(span);
                return Ok((span, slots));
            }
            Err(errno) if slots == 1 => return Err(errno),
            Err(_) => slots /= 2,
        }
    }
}

/// A word that is zero again in a child of any fork.
fn parents_mark() -> Result<&'static AtomicU32> {
    // SAFETY: zero bytes are a word.
    let words = unsafe { zeroed::<AtomicU32>(1) }?;
    let word = words.first().ok_or(sys::Errno::EINVAL)?;
    let page = Span { start: core::ptr::from_ref(word).addr(), length: PAGE };
    // SAFETY: the page is the word's alone.
    unsafe { sys::madvise(page, libc::MADV_WIPEONFORK) }?;
    Ok(word)
}

/// Zero bytes that live for ever, as so many values.
///
/// # Safety
/// Zero bytes must be a value.
pub(crate) unsafe fn zeroed<T>(count: usize) -> Result<&'static mut [T]> {
    let length = (count * size_of::<T>()).next_multiple_of(PAGE);
    // SAFETY: the kernel chooses an unused place.
    let start = unsafe { sys::mmap(Mmap::anywhere(length, READ_WRITE, libc::MAP_NORESERVE)) }?;
    sys::leave_out_of_dumps(Span { start, length });
    // SAFETY: it was just mapped, holds zero bytes, and is never unmapped.
    Ok(unsafe { core::slice::from_raw_parts_mut(start as *mut T, count) })
}

const STARTING: u32 = 0;
const STARTED: u32 = 1;
const FAILED: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(STARTING);

/// Starts the library's threads, and waits until faults are served; whether all run. Otherwise none goes on, because it
/// would outlive the program's, and the cause is counted. Once in a process, with the lock of the space held.
pub(crate) fn start_threads(areas: &Areas) -> bool {
    let before = sys::address_space();
    let started = thread::start(service_thread, Descriptors::Own);
    let do_run = refuse(areas.counters, Cause::Kernel, started).is_some() && all_run();
    note_own(areas, before);
    do_run
}

/// Notes the address space that the library has mapped for a heap since there was `before`. Without a heap nearly all of it is
/// unmapped where the program limits it ([`memory::close`](crate::memory::close)).
fn note_own(areas: &Areas, before: Option<usize>) {
    if let (Some(before), Some(now), Some(_)) = (before, sys::address_space(), areas.heap()) {
        areas.limited.add_own(now.saturating_sub(before));
    }
}

/// Counts a refusal.
fn refuse<T>(counters: &Counters, cause: Cause, done: Result<T>) -> Option<T> {
    done.inspect_err(|_| counters.refused.add(cause)).ok()
}

/// Whether all threads run, once it is known.
fn all_run() -> bool {
    loop {
        match STATE.load(Acquire) {
            // The program may have had the kernel end a thread of ours at its first call (seccomp).
            STARTING if thread::one_has_ended() => {
                let _ = STATE.compare_exchange(STARTING, FAILED, AcqRel, Acquire);
                sys::futex_wake(&STATE);
            }
            STARTING => sys::futex_wait_for(&STATE, STARTING, sys::LOOK),
            state => return state == STARTED,
        }
    }
}

/// The name of the library's threads, of which the first hands it on to the others.
const NAME: &CStr = c"superpage";

/// The first thread, in whose table of descriptors the others are.
extern "C" fn service_thread() {
    thread::note_first();
    at_start::take_on(NAME);
    let Some(areas) = areas::shared() else { return };
    let fault_threads = areas.heap().map_or(FAULT_THREADS, |_| pager::FAULT_THREADS);
    let opened = Userfaultfd::open(fault_threads);
    let started = match refuse(areas.counters, Cause::NoRights, opened) {
        Some(uffd) => start_others(areas, uffd),
        // This thread alone can do what a program with one thread needs.
        None => {
            sys::close_all();
            sys::drop_rights();
            Some(())
        }
    };
    if settle_start(started) {
        service::run(areas);
    }
}

/// Tells all who wait whether the threads run; whether they do.
fn settle_start(started: Option<()>) -> bool {
    let state = if started.is_some() { STARTED } else { FAILED };
    let _ = STATE.compare_exchange(STARTING, state, AcqRel, Acquire);
    sys::futex_wake(&STATE);
    STATE.load(Acquire) == STARTED
}

fn start_others(areas: &Areas, uffd: Userfaultfd) -> Option<()> {
    let uffd: &'static Userfaultfd = Box::leak(Box::new(uffd));
    // The program's descriptors are not ours to keep open, nor are its rights ours to keep when it
    // gives them up.
    sys::close_all_but(&[uffd.descriptor()]);
    let paged =
        areas.heap().map(|heap| refuse(areas.counters, Cause::Kernel, page(areas, uffd, heap)));
    sys::drop_rights();
    match paged {
        Some(None) => None,
        Some(Some(())) => start_all(areas, uffd, worker_thread, WORKERS),
        None => start_all(areas, uffd, background_thread, 1),
    }
}

/// Starts the fault threads, and so many others that do this.
fn start_all(
    areas: &Areas,
    uffd: &'static Userfaultfd,
    work: extern "C" fn(),
    count: usize,
) -> Option<()> {
    OPENED.store(core::ptr::from_ref(uffd).cast_mut(), Release);
    let faults: core::iter::RepeatN<extern "C" fn()> =
        core::iter::repeat_n(fault_thread, uffd.fault_threads());
    for work in faults.chain(core::iter::repeat_n(work, count)) {
        let started = thread::start(work, Descriptors::Callers);
        refuse(areas.counters, Cause::Kernel, started)?;
    }
    // Slots are registered only once the threads that serve them run.
    areas.set_uffd(uffd);
    Some(())
}

/// Makes the areas a heap that lives in a file, which `superpage run` has open.
fn page(areas: &Areas, uffd: &'static Userfaultfd, heap: &(Heap, Pid)) -> Result<()> {
    let (heap, parent) = heap;
    // Not every file system can do without the page cache.
    let direct = open_of(*parent, heap.file, libc::O_RDWR | libc::O_DIRECT);
    let file = direct.or_else(|_| open_of(*parent, heap.file, libc::O_RDWR))?;
    let pager = Pager::new(areas.span, uffd, file, heap, areas.counters)?;
    areas.set_pager(Box::leak(Box::new(pager)));
    Ok(())
}

/// Starts the library's threads in the child of a fork, for a pager of its own; its only thread calls this. Whether all run.
pub(crate) fn start_in_child() -> bool {
    STATE.store(STARTING, Relaxed);
    thread::start(service_thread_of_child, Descriptors::Own).is_ok() && all_run()
}

/// The first thread of the library in a child.
extern "C" fn service_thread_of_child() {
    thread::note_first();
    at_start::take_on(NAME);
    let Some(areas) = areas::shared() else { return };
    let started =
        page_in_child(areas).ok().and_then(|uffd| start_all(areas, uffd, worker_thread, WORKERS));
    if settle_start(started) {
        service::run(areas);
    }
}

/// Makes the pager of a child.
fn page_in_child(areas: &Areas) -> Result<&'static Userfaultfd> {
    let parents = areas.parents_pager().ok_or(sys::Errno::ENOENT)?;
    let claim = areas.child.claim().ok_or(sys::Errno::ENOENT)?;
    let file = areas.child.file();
    if !parents.has_file(&file) {
        return Err(sys::Errno::EBADF);
    }
    let uffd: &'static Userfaultfd = Box::leak(Box::new(Userfaultfd::open(pager::FAULT_THREADS)?));
    let mut kept = [uffd.descriptor(), &file];
    kept.sort_by_key(|kept| kept.0);
    sys::close_all_but(&kept);
    let pager = parents.of_child(uffd, file, claim)?;
    sys::drop_rights();
    areas.set_pager(Box::leak(Box::new(pager)));
    areas.set_threads(Threads::Run);
    Ok(uffd)
}

/// The userfaultfd, before it is known that faults will be served.
static OPENED: AtomicPtr<Userfaultfd> = AtomicPtr::new(core::ptr::null_mut());

/// The same, once there is one.
pub(crate) fn opened() -> Option<&'static Userfaultfd> {
    // SAFETY: it is null, or was leaked.
    unsafe { OPENED.load(Acquire).as_ref() }
}

extern "C" fn fault_thread() {
    if let (Some(areas), Some(uffd), true) = (areas::shared(), opened(), all_run()) {
        fault::run(areas, uffd);
    }
}

extern "C" fn worker_thread() {
    if let (Some(areas), true) = (areas::shared(), all_run())
        && let Some(pager) = areas.pager()
    {
        pager.run(areas);
    }
}

extern "C" fn background_thread() {
    if let (Some(areas), true) = (areas::shared(), all_run()) {
        background::run(areas);
    }
}
