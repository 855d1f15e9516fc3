//! The report on a program's memory, in words and as JSON.

use crate::heap::HeapState;
use crate::show;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Cause, Counters, FORMAT};
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, Nanos, PageSize};

/// The counters, once the program has ended.
#[derive(Debug)]
pub(super) struct Report {
    is_managed: bool,
    most_mapped: Bytes,
    /// The most that ever was on pages of the pool.
    most_in_pool: Bytes,
    /// The size of those.
    in_pool: PageSize,
    first_touches: u64,
    prepared: u64,
    left_to_smaller: u64,
    promotions: u64,
    demotions: u64,
    longest_first_touch: Nanos,
    longest_promotion: Nanos,
    longest_demotion: Nanos,
    refused: Vec<(Cause, u64)>,
    /// Whether the program was ended because it waited for a thread that the kernel had ended.
    lost_thread: bool,
    heap: Option<HeapState>,
}

/// The lines about the program's heap.
fn heap_in_words(heap: &HeapState) -> String {
    let outside = heap.outside_in_words().map(|said| format!("superpage: {said}\n"));
    let outside: String = outside.collect();
    format!(
        "superpage: of the heap {} on huge pages and {} on base pages at the end\n\
         superpage: {} faults served by huge pages, {} by base pages, {} found their page still in \
         memory, 99 of 100 within {}; {} ranges promoted, {} read ahead{}\n\
         superpage: faults waited {}\n\
         superpage: {} read and {} written\n\
         {outside}",
        heap.huge,
        heap.base,
        heap.huge_faults,
        heap.base_faults,
        heap.soft_faults,
        show::time(heap.p99),
        heap.promotions,
        heap.read_ahead,
        heap.ahead_in_words(),
        heap.waited_in_words(),
        heap.read_huge + heap.read_base,
        heap.written_huge + heap.written_base,
    )
}

/// The trouble that the program had with its heap, as a sentence.
fn heap_trouble(heap: &HeapState) -> Option<String> {
    if heap.failed > 0 {
        return Some("the heap could not be served any more, so the program was ended".into());
    }
    let errors = heap.errors;
    (errors > 0).then(|| format!("{errors} reads or writes of the heap's file failed"))
}

impl Report {
    /// The report on these counters, of a policy with pages of this size of a pool.
    pub(super) fn of(counters: &Counters, in_pool: PageSize) -> Self {
        Self {
            is_managed: counters.format.load(Relaxed) == FORMAT,
            most_mapped: Bytes(counters.most_mapped.load(Relaxed)),
            most_in_pool: Bytes(counters.most_gigantic.load(Relaxed) * GIGANTIC_PAGE_BYTES),
            in_pool,
            first_touches: counters.first_touches.load(Relaxed),
            prepared: counters.prepared.load(Relaxed),
            left_to_smaller: counters.left_to_smaller.load(Relaxed),
            promotions: counters.promotions.load(Relaxed),
            demotions: counters.demotions.load(Relaxed),
            longest_first_touch: Nanos(counters.longest_first_touch.load(Relaxed)),
            longest_promotion: Nanos(counters.longest_promotion.load(Relaxed)),
            longest_demotion: Nanos(counters.longest_demotion.load(Relaxed)),
            refused: counters.refused.counts().filter(|(_, count)| *count > 0).collect(),
            lost_thread: counters.lost_thread.load(Relaxed) != 0,
            heap: None,
        }
    }

    /// The report on these counters, of a program whose memory lives in a file.
    pub(super) fn of_heap(counters: &Counters) -> Self {
        Self { heap: Some(HeapState::of(&counters.heap)), ..Self::of(counters, PageSize::Huge) }
    }

    /// The reason why the library left the program alone, as a sentence, where it is all that there is to be said.
    fn why_unmanaged(&self) -> Option<&'static str> {
        let found = self.refused.iter().find(|(cause, _)| *cause == Cause::Instrumented);
        found.map(|(cause, _)| cause.as_str())
    }

    /// Whether the kernel's pool had no page where one was wanted.
    pub(super) fn lacked_pages(&self) -> bool {
        self.refused.iter().any(|(cause, _)| *cause == Cause::PoolEmpty)
    }

    /// The trouble that the program had, as a sentence; also where no report is wanted.
    pub(super) fn trouble(&self) -> Option<String> {
        const LOST: &str = "a thread of the library, or one that it waits for, was ended alone (by seccomp?), so the program was \
                            ended: run it with SUPERPAGE_OFF=1, which keeps the library out";
        let of_heap = self.heap.as_ref().and_then(heap_trouble);
        of_heap.or_else(|| self.lost_thread.then(|| LOST.into()))
    }

    /// The part of its memory that the core dump of a program which ended so lacks, as a sentence: the kernel leaves holes for what is
    /// not mapped, which read as zeroes.
    pub(super) fn lacking_in_core_dump(&self, end: ExitStatus) -> Option<&'static str> {
        let has_heap = self.heap.is_some() && self.most_mapped > Bytes::ZERO;
        (has_heap && end.core_dumped()).then_some(
            "the core dump has zeroes in the place of what of the heap was not in memory when the program ended",
        )
    }

    /// In a few lines, of a program that ended so.
    pub(super) fn in_words(&self, end: ExitStatus) -> String {
        if let Some(why) = self.why_unmanaged() {
            return format!("superpage: {why}\n");
        }
        let signal = end.signal();
        if !self.is_managed {
            return match signal {
                None => {
                    "superpage: the program ran unmanaged: the library was not loaded into it\n"
                        .into()
                }
                Some(signal) => format!(
                    "superpage: signal {signal} ended the program before the library began, or it was not loaded into it\n"
                ),
            };
        }
        let place = if self.heap.is_some() { "heap" } else { "areas" };
        if self.most_mapped == Bytes(0) {
            let before =
                signal.map_or(String::new(), |signal| format!(" before signal {signal} ended it"));
            return format!("superpage: the program had nothing in the {place}{before}\n")
                + &self.refused_in_words();
        }
        if let Some(heap) = &self.heap {
            let most = self.most_mapped;
            return format!("superpage: {most} in the heap at most\n{}", heap_in_words(heap));
        }
        let pages = match self.in_pool {
            PageSize::Gigantic => "1 GiB pages",
            PageSize::Huge | PageSize::Base => "2 MiB pages of the kernel's pool",
        };
        let Self { most_mapped, most_in_pool, .. } = self;
        let mut text = format!(
            "superpage: {most_mapped} in the areas at most, {most_in_pool} of it on {pages} at most\n"
        );
        if self.first_touches + self.left_to_smaller > 0 {
            text += &format!(
                "superpage: first touches of 1 GiB: {} by {pages} ({} zeroed ahead, longest wait {}), \
                 {} left to smaller pages\n",
                self.first_touches,
                self.prepared,
                show::time(self.longest_first_touch),
                self.left_to_smaller,
            );
        }
        if self.promotions > 0 {
            text += &format!(
                "superpage: {} GiB were copied to 1 GiB pages later, the program held up for {} at most\n",
                self.promotions,
                show::time(self.longest_promotion),
            );
        }
        if self.demotions > 0 {
            text += &format!(
                "superpage: {} GiB on {pages} were copied to smaller ones, writes held for {} at most\n",
                self.demotions,
                show::time(self.longest_demotion),
            );
        }
        text + &self.refused_in_words()
    }

    /// A line for each cause of refusals.
    fn refused_in_words(&self) -> String {
        let line = |(cause, count): &(Cause, u64)| {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            format!("superpage: refused {times}: {}\n", cause.as_str())
        };
        self.refused.iter().map(line).collect()
    }

    /// The most pages of this size of a pool that ever were the program's.
    fn most_pages(&self, size: PageSize) -> u64 {
        if size == self.in_pool { self.most_in_pool.0 / size.bytes().0 } else { 0 }
    }

    /// As one JSON object.
    pub(super) fn as_json(&self) -> Value {
        let refused: serde_json::Map<String, Value> =
            self.refused.iter().map(|(cause, count)| (cause.key().into(), json!(count))).collect();
        json!({
            "managed": self.is_managed,
            "lost_thread": self.lost_thread,
            "most_mapped_bytes": self.most_mapped.0,
            "most_gigantic_pages": self.most_pages(PageSize::Gigantic),
            "most_pool_huge_pages": self.most_pages(PageSize::Huge),
            "first_touches": self.first_touches,
            "first_touches_prepared": self.prepared,
            "first_touches_left_to_smaller": self.left_to_smaller,
            "promotions": self.promotions,
            "demotions": self.demotions,
            "longest_first_touch_ns": self.longest_first_touch.0,
            "longest_promotion_ns": self.longest_promotion.0,
            "longest_demotion_ns": self.longest_demotion.0,
            "refused": refused,
            "heap": self.heap.as_ref().map(HeapState::as_json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a process that signal 11 ended.
    const FAULT: i32 = 11;

    fn said(counters: &Counters, status: i32) -> String {
        Report::of(counters, PageSize::Gigantic).in_words(ExitStatus::from_raw(status))
    }

    #[test]
    fn what_was_counted_before_a_signal_is_said() {
        let counters = Counters::default();
        let never_loaded = said(&counters, 0);
        assert!(never_loaded.contains("was not loaded into it"), "{never_loaded}");
        let cut_short = said(&counters, FAULT);
        assert!(cut_short.contains("signal 11 ended the program before"), "{cut_short}");
        counters.format.store(FORMAT, Relaxed);
        assert_eq!(said(&counters, 0), "superpage: the program had nothing in the areas\n");
        counters.refused.add(Cause::Limited);
        let nothing = said(&counters, FAULT);
        assert!(nothing.contains("in the areas before signal 11 ended it\n"), "{nothing}");
        assert!(nothing.contains("refused once: the address space"), "{nothing}");
        counters.mapped(Bytes(4 << 20));
        assert!(said(&counters, FAULT).contains("4.0 MiB in the areas at most"));
        let heap = Counters::default();
        heap.format.store(FORMAT, Relaxed);
        let of_heap = Report::of_heap(&heap).in_words(ExitStatus::from_raw(FAULT));
        assert_eq!(
            of_heap,
            "superpage: the program had nothing in the heap before signal 11 ended it\n"
        );
    }

    #[test]
    fn a_core_dump_of_a_program_with_a_heap_may_lack_memory() {
        /// The bit of a status that says that the kernel has written a core dump.
        const DUMPED: i32 = 0x80;
        let counters = Counters::default();
        let lacking = |counters: &Counters, status| {
            Report::of_heap(counters).lacking_in_core_dump(ExitStatus::from_raw(status))
        };
        assert_eq!(lacking(&counters, FAULT | DUMPED), None, "nothing was in the heap");
        counters.mapped(Bytes(4 << 20));
        assert_eq!(lacking(&counters, FAULT), None, "there is no core dump");
        assert!(lacking(&counters, FAULT | DUMPED).is_some_and(|said| said.contains("zeroes")));
        let of_areas = Report::of(&counters, PageSize::Gigantic);
        assert_eq!(of_areas.lacking_in_core_dump(ExitStatus::from_raw(FAULT | DUMPED)), None);
    }

    #[test]
    fn a_program_that_the_library_leaves_alone_has_one_line() {
        let counters = Counters::default();
        counters.format.store(FORMAT, Relaxed);
        counters.refused.add(Cause::Instrumented);
        let text = said(&counters, 0);
        assert!(text.contains("sanitizer") && text.lines().count() == 1, "{text}");
    }
}
