//! The library's own threads.
//!
//! libc knows nothing of them: the program ends when its own last thread does, whatever these do. They
//! block all signals, have stacks of their own with every page present, and never touch memory that the
//! library manages. The first has a table of descriptors of its own, which the others share, so that the
//! program can neither see nor close what they have open.
//!
//! They have a block for thread-local variables as well, because Rust's panics use some; nothing else
//! here does.

#![expect(unsafe_code, reason = "makes a thread without libc")]

use crate::end::{self, Stat};
use crate::lock::SignalsBlocked;
use crate::pager;
use crate::sys::{self, Mmap, PAGE, Result, Span};
use core::arch::{asm, naked_asm};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicUsize};
use syscalls::Errno;

/// Three times the most that was found in use: 40 KiB in a debug build, by the threads of a heap while its program protected its
/// memory; those of pages by policy used 13 KiB.
const STACK: usize = 128 * 1024;
const LOCALS: usize = 64 * 1024; // more than the thread-local variables of any library we know
/// Entries of the table through which thread-local variables are found, one for each library.
const MODULES: usize = PAGE / 16 - 2;

/// Which descriptors a thread sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptors {
    /// A table of its own, at first a copy of the caller's.
    Own,
    /// The caller's table.
    Callers,
}

/// The memory of a thread: a page that nobody may touch, its stack, its thread-local variables.
#[derive(Clone, Copy, Debug)]
struct Room {
    stack_end: usize,
    block: usize,
}

impl Room {
    fn map() -> Result<Self> {
        let length = PAGE + STACK + LOCALS + 2 * PAGE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { sys::mmap(Mmap::anywhere(length, protection, libc::MAP_POPULATE)) }?;
        // The child of a fork has threads and stacks of its own.
        // SAFETY: it was just mapped, and holds nothing.
        unsafe { sys::madvise(Span { start, length }, libc::MADV_DONTFORK) }?;
        // SAFETY: the first page of what was just mapped.
        unsafe { sys::mprotect(Span { start, length: PAGE }, libc::PROT_NONE) }?;
        let room = Self { stack_end: start + PAGE + STACK, block: start + PAGE + STACK + LOCALS };
        room.write_block();
        Ok(room)
    }

    /// Writes what x86-64's ABI and glibc look for at the thread pointer: the pointer itself, the table of
    /// the libraries' variables, the guard of stacks. Every library finds the same zeroes.
    fn write_block(self) {
        let block = self.block as *mut usize;
        let table = (self.block + PAGE) as *mut usize;
        let variables = self.block - LOCALS;
        // SAFETY: the block and the table are a page each, in memory that was just mapped; the caller's
        // thread pointer is glibc's, whose table begins with its generation.
        unsafe {
            let (callers_table, guard): (*const usize, usize);
            asm!("mov {}, fs:[8]", out(reg) callers_table, options(nostack, readonly));
            asm!("mov {}, fs:[0x28]", out(reg) guard, options(nostack, readonly));
            block.write(self.block);
            block.add(1).write(table.add(2) as usize);
            block.add(2).write(self.block);
            block.add(5).write(guard);
            table.write(MODULES);
            table.add(2).write(callers_table.read());
            for module in 1..MODULES {
                table.add(2 + 2 * module).write(variables);
            }
        }
    }
}

/// The work of a new thread.
type Work = extern "C" fn();

/// Starts a thread.
pub(crate) fn start(work: Work, descriptors: Descriptors) -> Result<()> {
    let room = Room::map()?;
    let mut flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_CHILD_CLEARTID;
    if descriptors == Descriptors::Callers {
        flags |= libc::CLONE_FILES;
    }
    // The thread inherits what is blocked.
    let _signals = SignalsBlocked::now();
    let place = NUMBERS.get(STARTED.fetch_add(1, SeqCst));
    // SAFETY: the stack and the block are the new thread's alone.
    let made = unsafe { clone(flags as usize, room.stack_end, room.block, work, &ALL_RUN) };
    match Errno::from_ret(made) {
        Ok(number) => {
            if let Some(place) = place {
                place.store(sys::int(number).unsigned_abs(), SeqCst);
            }
            Ok(())
        }
        Err(errno) => {
            STARTED.fetch_sub(1, SeqCst);
            Err(errno)
        }
    }
}

/// The numbers of the threads, the service thread's first; zero where there is none. Threads are started one at a time.
static NUMBERS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// The most threads that the library has: the service thread, and those of a heap.
const MOST: usize = 1 + pager::FAULT_THREADS + pager::WORKERS;

/// The calling thread is the first that was started. It says so itself, because it starts others before who started it goes on.
pub(crate) fn note_first() {
    NUMBERS[0].store(sys::thread(), SeqCst);
}

/// The service thread.
pub(crate) fn service() -> u32 {
    NUMBERS[0].load(SeqCst)
}

/// Whether a thread is one of the library's.
pub(crate) fn is_ours(number: u32) -> bool {
    number != 0 && NUMBERS.iter().any(|ours| ours.load(SeqCst) == number)
}

/// Whether the kernel has ended the service thread.
pub(crate) fn service_has_ended() -> bool {
    one_has_ended() && has_ended(service())
}

/// The number of the `count` fault threads, which are started behind the service thread, that have ended.
pub(crate) fn ended_of_faults(count: usize) -> usize {
    let faults = NUMBERS.iter().skip(1).take(count);
    faults.filter(|number| has_ended(number.load(SeqCst))).count()
}

/// Whether the kernel has ended all of the threads.
pub(crate) fn all_have_ended() -> bool {
    one_has_ended() && NUMBERS.iter().all(|number| has_ended(number.load(SeqCst)))
}

/// Whether a thread, also one of a process that shares this one's memory, runs no more. The first thread of a process that has
/// ended is kept by the kernel while others run.
pub(crate) fn has_ended(number: u32) -> bool {
    if number == sys::process() && end::first_has_ended() {
        return true;
    }
    // SAFETY: it only asks.
    let asked = unsafe { syscalls::syscall!(syscalls::Sysno::sched_getscheduler, number) };
    number == 0 || asked == Err(Errno::ESRCH)
}

/// The number of threads that were started.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// Set to zero by the kernel when one of the threads ends.
static ALL_RUN: AtomicU32 = AtomicU32::new(1);

/// Whether one of the threads has ended. None does so by itself once all run, but the kernel may end one alone (seccomp).
pub(crate) fn one_has_ended() -> bool {
    ALL_RUN.load(SeqCst) == 0
}

/// None of them runs: this is the child of a fork.
pub(crate) fn forget_all() {
    STARTED.store(0, SeqCst);
    ALL_RUN.store(1, SeqCst);
    NUMBERS.iter().for_each(|number| number.store(0, SeqCst));
}

/// Whether the program has one thread: its first, which may have ended and is then kept by the kernel for the others.
///
/// A list of the threads would not do: the kernel cuts it short where one of them ends meanwhile.
pub(crate) fn program_has_one() -> bool {
    Stat::open().is_ok_and(|stat| is_with_one_of_the_programs(&stat))
}

/// As [`program_has_one`].
pub(crate) fn is_with_one_of_the_programs(stat: &Stat) -> bool {
    stat.threads() == Some(running() + 1)
}

/// The number of the library's threads that run.
fn running() -> usize {
    match one_has_ended() {
        false => STARTED.load(SeqCst),
        true => NUMBERS.iter().filter(|number| !has_ended(number.load(SeqCst))).count(),
    }
}

/// clone(2) with a new stack: the caller gets the answer, the new thread calls `work` and ends, and the kernel sets
/// `at_end` to zero then.
///
/// # Safety
/// The stack and the block of thread-local variables must be the new thread's alone, for ever.
#[unsafe(naked)]
unsafe extern "C" fn clone(
    flags: usize,
    stack_end: usize,
    block: usize,
    work: Work,
    at_end: &'static AtomicU32,
) -> usize {
    naked_asm!(
        "mov r9, rcx", // work; the system call overwrites rcx
        "mov r10, r8",
        "mov r8, rdx",  // the block
        "xor edx, edx", // nobody is told the number
        "mov eax, 56",  // clone
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp", // the end of the stack, for debuggers
        "call r9",
        "xor edi, edi",
        "mov eax, 60", // exit, of this thread alone
        "syscall",
        "ud2",
        "2: ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_until_it_ends() {
        let (asked, ended) = std::thread::scope(|scope| {
            let other = scope.spawn(|| (sys::thread(), has_ended(sys::thread())));
            let (number, asked) = other.join().expect("it does not panic");
            // The kernel tells the one who waits for a thread a little before that is gone.
            let ended = (0..1_000).any(|_| {
                std::thread::yield_now();
                has_ended(number)
            });
            (asked, ended)
        });
        assert!(!asked && ended);
        assert!(has_ended(0) && !has_ended(sys::process()), "there is no thread of that number");
    }

    #[test]
    fn none_of_the_threads_has_ended_where_none_was_started() {
        assert!(!one_has_ended() && !service_has_ended() && !all_have_ended());
        assert_eq!((running(), ended_of_faults(3)), (0, 3));
        assert!(!program_has_one(), "the tests run in a thread beside the first");
    }
}
