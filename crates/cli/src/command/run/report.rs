//! The report on a program's memory, in words and as JSON.

use crate::show;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Counters, FORMAT, HeapCounters};
use superpage_units::{
    BASE_PAGE_BYTES, Bytes, GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES, Nanos, PageSize,
};

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
    refused: Vec<(superpage_launch::Cause, u64)>,
    heap: Option<Heap>,
}

/// The counters of a heap, under the keys of the report as JSON.
#[derive(Debug, Serialize)]
struct Heap {
    /// Faults that brought a page in.
    faults: u64,
    huge_faults: u64,
    base_faults: u64,
    soft_faults: u64,
    write_faults: u64,
    promotions: u64,
    read_ahead: u64,
    /// All that was read, and of that what base pages were read by.
    read_bytes: u64,
    read_base_bytes: u64,
    /// As above, of writes.
    written_bytes: u64,
    written_base_bytes: u64,
    reclaimed_clean: u64,
    stuck: u64,
    errors: u64,
    failed: u64,
    /// The memory of the heap on huge pages and on base pages at the end.
    huge_bytes: u64,
    base_bytes: u64,
    /// The part of it that is on huge pages.
    huge_share: f64,
    p99_fault_us: f64,
}

impl Heap {
    fn of(counters: &HeapCounters) -> Self {
        let number = |counter: &AtomicU64| counter.load(Relaxed);
        let huge = Bytes(number(&counters.huge) * HUGE_PAGE_BYTES);
        let base = Bytes(number(&counters.base) * BASE_PAGE_BYTES);
        let p99 = counters.waits.quantile(0.99).unwrap_or_default();
        Self {
            faults: number(&counters.huge_faults) + number(&counters.base_faults),
            huge_faults: number(&counters.huge_faults),
            base_faults: number(&counters.base_faults),
            soft_faults: number(&counters.soft_faults),
            write_faults: number(&counters.write_faults),
            promotions: number(&counters.promotions),
            read_ahead: number(&counters.read_ahead),
            read_bytes: number(&counters.read_huge) + number(&counters.read_base),
            read_base_bytes: number(&counters.read_base),
            written_bytes: number(&counters.written_huge) + number(&counters.written_base),
            written_base_bytes: number(&counters.written_base),
            reclaimed_clean: number(&counters.clean),
            stuck: number(&counters.stuck),
            errors: number(&counters.errors),
            failed: number(&counters.failed),
            huge_bytes: huge.0,
            base_bytes: base.0,
            huge_share: huge.share_of(huge + base).get(),
            p99_fault_us: p99.0 as f64 / 1e3,
        }
    }

    fn in_words(&self) -> String {
        let p99 = Nanos::from_secs_f64(self.p99_fault_us / 1e6);
        format!(
            "superpage: of the heap {} on huge pages and {} on base pages at the end\n\
             superpage: {} faults served by huge pages, {} by base pages, {} found their page still in \
             memory, 99 of 100 within {}; {} ranges promoted, {} read ahead\n\
             superpage: {} read and {} written\n",
            Bytes(self.huge_bytes),
            Bytes(self.base_bytes),
            self.huge_faults,
            self.base_faults,
            self.soft_faults,
            show::time(p99),
            self.promotions,
            self.read_ahead,
            Bytes(self.read_bytes),
            Bytes(self.written_bytes),
        )
    }

    /// The trouble that the program had, as a sentence.
    fn trouble(&self) -> Option<String> {
        if self.failed > 0 {
            return Some("the heap could not be served any more, so the program was ended".into());
        }
        let errors = self.errors;
        (errors > 0).then(|| format!("{errors} reads or writes of the heap's file failed"))
    }
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
            heap: None,
        }
    }

    /// The report on these counters, of a program whose memory lives in a file.
    pub(super) fn of_heap(counters: &Counters) -> Self {
        Self { heap: Some(Heap::of(&counters.heap)), ..Self::of(counters, PageSize::Huge) }
    }

    /// The trouble that the program had, as a sentence; also where no report is wanted.
    pub(super) fn trouble(&self) -> Option<String> {
        self.heap.as_ref().and_then(Heap::trouble)
    }

    /// In a few lines.
    pub(super) fn in_words(&self) -> String {
        if !self.is_managed {
            return "superpage: the program ran unmanaged: the library was not loaded into it\n"
                .into();
        }
        if let Some(heap) = &self.heap {
            let most = self.most_mapped;
            return format!("superpage: {most} in the heap at most\n{}", heap.in_words());
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
        for (cause, count) in &self.refused {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            text += &format!("superpage: refused {times}: {}\n", cause.as_str());
        }
        text
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
            "heap": self.heap,
        })
    }
}
