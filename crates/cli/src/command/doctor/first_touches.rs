//! The part of `doctor` about `first_touch = "generous"`: the memory of this machine that is on base pages, and the time that first
//! touches take on pages of either size, tried with memory of our own.

use std::path::Path;
use std::time::{Duration, Instant};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::thp::{self, Enabled, Thp};
use superpage_kernel::{Result, balloon, meminfo};
use superpage_units::{BASE_PAGE_BYTES, HugePages};

/// The memory that is touched each time.
const TRIED: HugePages = HugePages(16);
/// The number of times that it is touched on pages of either size, of which the fastest counts. Chosen: a virtual machine's host finds memory at its
/// first use only.
const TIMES: usize = 3;

/// The text about first touches; an error on a kernel without transparent huge pages.
pub(super) fn report() -> Result<String> {
    let sys = Path::new("/sys");
    let enabled = Thp::under(sys).get(thp::ENABLED)?;
    if enabled == Enabled::Never {
        return Ok("First touches give base pages to all programs (enabled=never), and the daemon promotes nothing: it leaves \
                   that as it is.\n"
            .to_owned());
    }
    if let Some(least) = balloon::unreported_below(sys)? {
        return Ok(format!(
            "This machine tells its host of free memory from {least} on, which splits do not leave: first_touch = \"generous\" \
             changes nothing here.\n"
        ));
    }
    if enabled == Enabled::Always {
        return Ok("First touches give huge pages to all programs (enabled=always); first_touch = \"generous\" would end that \
                   while memory is short, and have no page fault compact memory.\n"
            .to_owned());
    }
    let memory = meminfo::read(Path::new("/proc"))?;
    let base = memory.anonymous.saturating_sub(memory.anon_huge_pages.unwrap_or_default());
    let [on_base, on_huge] = [Wish::BasePages, Wish::HugePages].map(fastest);
    Ok(format!(
        "First touches give huge pages to programs that ask for them (enabled=madvise): {base} of {} of anonymous memory are on \
         base pages. {} of first touches take {:.1} ms on base pages here, and {:.1} ms where huge ones are asked for, which first_touch = \
         \"generous\" gives all programs while memory is free.\n",
        memory.anonymous,
        TRIED.bytes(),
        on_base?.as_secs_f64() * 1e3,
        on_huge?.as_secs_f64() * 1e3,
    ))
}

/// The time that first touches of memory of our own take on the pages that we wish for, the fastest of several times.
fn fastest(wish: Wish) -> Result<Duration> {
    let page = usize::try_from(BASE_PAGE_BYTES).unwrap_or(usize::MAX);
    let once = |_| {
        let mut memory = OwnMemory::map(TRIED, wish)?;
        let begun = Instant::now();
        memory.bytes_mut().iter_mut().step_by(page).for_each(|byte| *byte = 1);
        Ok(begun.elapsed())
    };
    let all: Result<Vec<Duration>> = (0..TIMES).map(once).collect();
    Ok(all?.into_iter().min().unwrap_or_default())
}
