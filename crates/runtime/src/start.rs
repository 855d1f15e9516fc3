//! The beginning: before the program's own code, the library finds out whether it is to manage the process,
//! and reserves the areas. Its threads start when the program's memory first fills a slot. Where anything fails the
//! program runs unmanaged.

#![expect(unsafe_code, reason = "runs before main, and maps what lives for ever")]

use crate::areas::{self, Areas, Process, Threads};
use crate::backing::{Backing, READ_WRITE};
use crate::decider::Decider;
use crate::end::Stat;
use crate::gigantic::{Cooldown, Gigantic, Gives};
use crate::pager::{Heap, handover};
use crate::space::{SlotPages, Space};
use crate::sys::{self, Descriptor, GIGANTIC, Mmap, PAGE, Result, Span};
use crate::thread::{self, Descriptors};
use crate::uffd::Userfaultfd;
use crate::{at_start, exec, export, fault, fork, room, service};
use alloc::boxed::Box;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::io::Write;
use superpage_launch::{
    Cause, Config, Counters, FORMAT, OpenFile, VARIABLE, is_instrumented, is_kept_out, variable,
};
use superpage_policy::promotion::list;
use superpage_units::{Bytes, Pid};

/// The slots of the areas: 1 TiB of address space, more than the memory of machines we know of; less if a
/// limit stands against it.
const SLOTS: usize = 1024;

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
    export::resolve();
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
    // SAFETY: zero bytes are cooldowns that are over.
    let cooldowns = unsafe { zeroed::<Cooldown>(slots) }?;
    let policy = (policy.build)();
    // A mapping of more than all memory is for the kernel to judge, unless it may live in a heap.
    let most_at_once = room::total().max(config.heap.map_or(Bytes::ZERO, |heap| heap.size));
    let gives = Gives::of(&*policy);
    let areas = Areas::new(
        Space::new(span.start, pages),
        sys::to_usize(most_at_once.0),
        Decider::new(policy, config),
        counters,
        parents_mark()?,
    );
    let areas: &'static Areas = Box::leak(Box::new(areas));
    let gigantic = Gigantic::new(areas, states, cooldowns, gives, config.ready);
    let heap = config.heap.map(|heap| Heap::new(areas, heap, config.parent, config.counters));
    // Without a heap nearly all of it is unmapped where the program limits its address space.
    if heap.is_some() {
        areas.limited.note_own(before);
    }
    handover::resolve();
    at_start::note();
    // A panic's message has nowhere to go, and writing it would call libc.
    std::panic::set_hook(Box::new(|_| {}));
    areas::publish(Box::leak(Box::new(Process::new(areas, gigantic, heap))));
    Ok(())
}

/// Opens a file that a process has open.
///
/// # Errors
/// ESTALE where what is open there is another file, which is not opened; what the kernel says.
pub(crate) fn open_of(process: Pid, file: OpenFile, flags: i32) -> Result<Descriptor> {
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
    // The parent of a fork may have left another state.
    STATE.store(STARTING, Relaxed);
    let started = thread::start(service_thread, Descriptors::Own);
    refuse(areas, Cause::Kernel, started).is_some() && all_run()
}

/// Counts a refusal. A child of the program has the counters mapped too.
fn refuse<T>(areas: &Areas, cause: Cause, done: Result<T>) -> Option<T> {
    if done.is_err() && areas.threads() != Threads::InParent {
        areas.counters.refused.add(cause);
    }
    done.ok()
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
    let Some(process) = areas::shared() else { return };
    let started = start_others(process.areas, process.started_backing());
    let stat = Stat::open().ok();
    if settle_start(started) {
        service::run(process, stat.as_ref());
    }
}

/// Tells all who wait whether the threads run; whether they do.
fn settle_start(started: Option<()>) -> bool {
    let state = if started.is_some() { STARTED } else { FAILED };
    let _ = STATE.compare_exchange(STARTING, state, AcqRel, Acquire);
    sys::futex_wake(&STATE);
    STATE.load(Acquire) == STARTED
}

/// Starts the threads that a backing needs, the fault threads first.
fn start_others(areas: &Areas, backing: &dyn Backing) -> Option<()> {
    let opened = Userfaultfd::open(backing.fault_threads());
    let uffd = refuse(areas, Cause::NoRights, opened).map(|uffd| &*Box::leak(Box::new(uffd)));
    refuse(areas, Cause::Kernel, backing.begin(uffd))?;
    // The program's rights are not ours to keep when it gives them up.
    sys::drop_rights();
    let Some(uffd) = uffd else { return Some(()) };
    OPENED.store(core::ptr::from_ref(uffd).cast_mut(), Release);
    let threads: [(extern "C" fn(), usize); 2] =
        [(fault_thread, uffd.fault_threads()), (worker_thread, backing.workers())];
    for work in threads.into_iter().flat_map(|(work, count)| core::iter::repeat_n(work, count)) {
        refuse(areas, Cause::Kernel, thread::start(work, Descriptors::Callers))?;
    }
    backing.note_served(uffd);
    Some(())
}

/// The userfaultfd, before it is known that faults will be served.
static OPENED: AtomicPtr<Userfaultfd> = AtomicPtr::new(core::ptr::null_mut());

/// The same, once there is one.
pub(crate) fn opened() -> Option<&'static Userfaultfd> {
    // SAFETY: it is null, or was leaked.
    unsafe { OPENED.load(Acquire).as_ref() }
}

extern "C" fn fault_thread() {
    if let (Some(process), Some(uffd), true) = (areas::shared(), opened(), all_run()) {
        fault::run(process, uffd);
    }
}

extern "C" fn worker_thread() {
    if let (Some(process), true) = (areas::shared(), all_run()) {
        process.backing().work();
    }
}
