//! The experiments on promotion, at a size that measures nothing: that each comes to its end, has the
//! rows and keys that are documented, and puts back what it sets. Needs root; those on Redis and on a JVM
//! need it installed.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

mod common;

use common::daemon::PATIENCE;
use common::machine::{self, Test};
use common::{Ended, PROGRAM, build_libraries, subject, superpage, wait_for};
use libtest_mimic::Failed;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use superpage_kernel::cgroup::Hierarchy;
use superpage_kernel::hugetlb;
use superpage_kernel::made::MADE;
use superpage_kernel::settings::STATE_DIRECTORY;
use superpage_kernel::swap::{self, SwapFile};
use superpage_kernel::thp::Thp;
use superpage_lab::jvm::Jvm;
use superpage_lab::load::Redis;
use superpage_lab::workload::memcached::Memcached;
use superpage_units::{Bytes, PageSize};

fn main() -> ExitCode {
    subject::main(tests, &[])
}

fn tests() -> [Test; 20] {
    let able = machine::without_debloating()
        .or_else(machine::without_daemon)
        .or_else(machine::without_settings);
    let redis = able.clone().or_else(without_redis);
    let servers = redis.clone().or_else(without_memcached);
    let heaped = redis.clone().or_else(machine::without_first_touches);
    let paged = redis.clone().or_else(without_swap);
    let much = redis.clone().or_else(without_much_memory);
    let java = able.clone().or_else(without_java);
    let wheel = able.clone().or_else(without_wheel);
    [
        ("the_demonstration_writes_where_nothing_was", able.clone(), demonstration),
        ("redis_after_deletions", redis.clone(), redis_after_deletions),
        ("redis_filled_and_read", redis.clone(), redis_filled_and_read),
        ("redis_at_rest", redis, redis_at_rest),
        ("redis_on_fragmented_memory", much, redis_on_fragmented_memory),
        ("latency_of_promotion", able.clone(), latency_of_promotion),
        ("a_heap_that_grows", able.clone(), a_heap_that_grows),
        ("gigantic_pages_at_first_touches", able.clone().or_else(without_gigantic), gigantic_fault),
        ("programs_on_all_pages", able.clone().or_else(without_gigantic), programs_on_all_pages),
        ("programs_at_rest", able.clone().or_else(without_gigantic), programs_at_rest),
        ("programs_while_memory_is_short", able.clone(), programs_while_memory_is_short),
        ("memory_of_a_guest", able.clone(), memory_of_a_guest),
        ("a_killed_run_is_put_back", able.clone().or_else(without_swap), a_killed_run_is_put_back),
        ("data_larger_than_memory", able.or_else(without_swap), data_larger_than_memory),
        ("redis_larger_than_memory", paged, redis_larger_than_memory),
        ("programs_that_fit", heaped, programs_that_fit),
        ("the_daemon_beside_mixed_load", servers, the_daemon_beside_mixed_load),
        ("a_jvm_that_touched_its_heap", java, a_jvm_that_touched_its_heap),
        ("kernels_beside_python_packages", without_registry(), kernels_beside_python_packages),
        ("arrays_beside_numpys", wheel, arrays_beside_numpys),
    ]
}

fn without_redis() -> Option<String> {
    (!Redis::is_installed()).then(|| "redis is not installed (Debian package redis-server)".into())
}

fn without_memcached() -> Option<String> {
    let is_installed = Memcached::is_installed();
    (!is_installed).then(|| "memcached is not installed (Debian package memcached)".into())
}

/// A memory cgroup and a disk below the current directory, with room for the swap file, are needed.
fn without_swap() -> Option<String> {
    match Hierarchy::find(Path::new("/")) {
        Ok(Some(_)) => SwapFile::create(Path::new("."), Bytes::from_mib(256), &made())
            .err()
            .map(|error| format!("there can be no swap file here: {error}")),
        Ok(None) => Some("there is no memory cgroup".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Where swap files and cgroups of experiments are recorded.
fn made() -> PathBuf {
    Path::new(STATE_DIRECTORY).join(MADE)
}

fn without_java() -> Option<String> {
    (!Jvm::is_installed()).then(|| "there is no java (Debian package default-jre-headless)".into())
}

/// Its packages come from the network.
fn without_registry() -> Option<String> {
    let full = std::env::var_os("SUPERPAGE_FULL").is_some_and(|full| full == "1");
    (!full).then(|| "it installs packages of Python's: SUPERPAGE_FULL=1 runs it".into())
}

fn without_wheel() -> Option<String> {
    let is_named = std::env::var_os("SUPERPAGE_WHEEL").is_some();
    (!is_named).then(|| "SUPERPAGE_WHEEL does not name a wheel of the Python package".into())
}

/// It takes nearly all of the machine's memory for a while.
fn without_much_memory() -> Option<String> {
    let full = std::env::var_os("SUPERPAGE_FULL").is_some_and(|full| full == "1");
    (!full).then(|| "it takes nearly all memory: SUPERPAGE_FULL=1 runs it".into())
}

/// The experiments on 1 GiB pages are not made smaller: they take half a minute and pages that a machine in use
/// may not have.
fn without_gigantic() -> Option<String> {
    let full = std::env::var_os("SUPERPAGE_FULL").is_some_and(|full| full == "1");
    (!full).then(|| "it takes 1 GiB pages from the kernel: SUPERPAGE_FULL=1 runs it".into())
}

/// Runs an experiment, which must leave the kernel's settings as they were; its rows.
fn run(name: &str, size: &str) -> Result<Vec<Value>, libtest_mimic::Failed> {
    let knobs = Thp::under(Path::new("/sys"));
    let before = knobs.state()?;
    let arguments = ["lab", "run", name, "--on", "live", "--json", "--rounds", "1", "--size", size];
    let rows = superpage(&arguments)?.done()?.rows()?;
    ensure!(knobs.state()? == before, "settings were not put back: {:?}", knobs.state());
    Ok(rows)
}

/// The number `key` of the row of a case and a policy.
fn number(
    rows: &[Value],
    case: &str,
    policy: &str,
    key: &str,
) -> Result<f64, libtest_mimic::Failed> {
    let row = rows.iter().find(|row| row["case"] == case && row["policy"] == policy);
    let number = row.and_then(|row| row[key].as_f64());
    number.ok_or_else(|| format!("no {key} of {policy}, {case} in {rows:?}").into())
}

fn demonstration() -> Ended {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("new");
    let path = out.to_str().ok_or("UTF-8")?;
    let said = superpage(&["lab", "demo", "--out", path, "--size", "256M"])?.done()?;
    ensure!(said.out.contains("Wrote "), "{said:?}");
    ensure!(out.join("emd-table1.jsonl").exists(), "{said:?}");
    // The demonstration says so where there is no memory cgroup.
    let is_shown = !said.out.contains("there is no memory cgroup here");
    for (who, ended) in [
        ("at first touches (THP always)", "was killed"),
        ("the same, beside superpage daemon", "lived"),
    ] {
        let line = said.out.lines().find(|line| line.contains(who)).unwrap_or_default();
        ensure!(line.contains(ended) || !is_shown, "{who}: {line:?}");
    }
    Ok(())
}

fn redis_after_deletions() -> Ended {
    let rows = run("quicksilver-table2", "128M")?;
    ensure!(rows.len() == 8, "two cases of four policies: {rows:?}");
    for case in ["Del-70", "Range-XL"] {
        for policy in ["linux-4k", "linux-nokhugepaged", "linux", "superpage"] {
            for key in ["rss_bytes", "throughput", "p50_us", "p99_us", "p999_us"] {
                ensure!(number(&rows, case, policy, key)? > 0.0, "{key} of {policy} in {rows:?}");
            }
        }
        ensure!(number(&rows, case, "linux-4k", "huge_pages")? == 0.0, "huge pages: {rows:?}");
        let theirs = number(&rows, case, "linux-nokhugepaged", "huge_pages")?;
        let ours = number(&rows, case, "superpage", "huge_pages")?;
        ensure!(theirs > 0.0 && ours > 0.0, "no huge pages: {rows:?}");
        let cpu = number(&rows, case, "superpage", "promote_cpu_s")?;
        ensure!(cpu > 0.0, "it costs something: {rows:?}");
    }
    Ok(())
}

fn redis_filled_and_read() -> Ended {
    let rows = run("fill-and-read", "128M")?;
    ensure!(rows.len() == 8, "two cases of four configurations: {rows:?}");
    for case in ["SET", "GET"] {
        for policy in ["no daemon", "default", "first_touch = generous", "first_touch = base-pages"]
        {
            for key in ["throughput", "throughput_ratio", "p50_us", "p99_us"] {
                ensure!(number(&rows, case, policy, key)? > 0.0, "{key} of {policy} in {rows:?}");
            }
        }
        ensure!(number(&rows, case, "no daemon", "daemon_cpu")? == 0.0, "no daemon: {rows:?}");
    }
    let huge = number(&rows, "GET", "no daemon", "huge_pages")?;
    ensure!(huge > 0.0, "the first touch gave no huge pages: {rows:?}");
    Ok(())
}

fn gigantic_fault() -> Ended {
    build_libraries()?;
    let rows = run("gigantic-fault", "1G")?;
    let kernel = number(&rows, "kernel", "hugetlb-1g", "ms")?;
    let prepared = number(&rows, "prepared", "trident", "ms")?;
    ensure!(prepared > 0.0 && prepared * 10.0 < kernel, "{rows:?}");
    Ok(())
}

fn programs_on_all_pages() -> Ended {
    build_libraries()?;
    let rows = run("trident-fig9", "256M")?;
    for case in ["gups", "btree", "xsbench", "canneal"] {
        for policy in ["linux-4k", "linux", "glibc-hugetlb-1", "glibc-hugetlb-2", "trident"] {
            for key in ["seconds", "over_4k", "rss_bytes"] {
                ensure!(number(&rows, case, policy, key)? > 0.0, "{key} of {policy} in {rows:?}");
            }
        }
        ensure!(number(&rows, case, "linux-4k", "bytes_2m")? == 0.0, "huge pages: {rows:?}");
    }
    for policy in ["linux", "glibc-hugetlb-1", "glibc-hugetlb-2"] {
        ensure!(number(&rows, "gups", policy, "bytes_2m")? > 2e8, "no huge pages: {rows:?}");
    }
    Ok(())
}

fn programs_at_rest() -> Ended {
    build_libraries()?;
    let rows = run("trident-table3", "256M")?;
    for case in ["gups", "btree", "xsbench", "canneal"] {
        for memory in ["un-fragmented", "fragmented"] {
            for policy in ["trident-faults-only", "trident"] {
                let case = format!("{case}, {memory}");
                let of = |key| number(&rows, &case, policy, key);
                ensure!(of("bytes_4k")? + of("bytes_2m")? > 1e8, "{case}, {policy} in {rows:?}");
                ensure!(of("share_1g")? == 0.0, "no GiB is full: {case}, {policy} in {rows:?}");
            }
        }
    }
    Ok(())
}

/// Programs of this size have no gigantic page to give up; live_run has one that does.
fn programs_while_memory_is_short() -> Ended {
    build_libraries()?;
    let pool = hugetlb::setting(Path::new("/sys"), PageSize::Huge);
    let before = std::fs::read_to_string(&pool)?;
    let rows = run("trident-bloat", "256M")?;
    ensure!(std::fs::read_to_string(&pool)? == before, "huge pages were not given back");
    for case in ["btree", "sparse", "gups"] {
        for policy in ["linux-4k", "linux", "trident", "trident, memory short"] {
            ensure!(number(&rows, case, policy, "rss_bytes")? > 4e7, "{case}, {policy}: {rows:?}");
        }
    }
    let base_pages = number(&rows, "sparse", "linux-4k", "rss_bytes")?;
    ensure!(base_pages < 1.5e8, "a quarter of it is in use: {rows:?}");
    Ok(())
}

fn redis_at_rest() -> Ended {
    let rows = run("at-rest", "128M")?;
    ensure!(rows.len() == 4, "two times of two configurations: {rows:?}");
    for row in &rows {
        let number = |key: &str| row[key].as_f64().unwrap_or(0.0);
        ensure!(number("seconds") >= 1.0 && number("daemon_bytes") > 0.0, "{row:?}");
        ensure!(number("resident_bytes") > 1e8, "Redis holds what was asked for: {row:?}");
    }
    Ok(())
}

fn redis_on_fragmented_memory() -> Ended {
    let rows = run("quicksilver-table5", "512M")?;
    ensure!(rows.len() == 6, "two cases of three policies: {rows:?}");
    let fragmented = number(&rows, "Frag-50", "linux", "fragmented")?;
    ensure!(fragmented >= 0.5, "{fragmented} of the memory is fragmented");
    Ok(())
}

fn latency_of_promotion() -> Ended {
    let rows = run("promotion-latency", "128M")?;
    ensure!(rows.len() == 6, "two cases of three promoters: {rows:?}");
    let median = number(&rows, "touching", "superpage", "threshold_to_mapped_p50_ms")?;
    ensure!((0.0..2000.0).contains(&median), "{median} ms");
    let ours = number(&rows, "heap", "superpage", "seconds_to_90_percent")?;
    ensure!(ours < 30.0, "{ours} s for 128 MiB");
    Ok(())
}

/// A small heap grows for two seconds only: on a busy machine it may be heard of too late, but not
/// again and again.
fn a_heap_that_grows() -> Ended {
    const TRIES: usize = 3;
    let mut rows = Vec::new();
    for _ in 0..TRIES {
        rows = run("growing-heap", "128M")?;
        ensure!(rows.len() == 6, "two cases of three policies: {rows:?}");
        let mut is_huge = true;
        for case in ["brk", "mmap"] {
            ensure!(number(&rows, case, "linux-4k", "mean_huge")? == 0.0, "huge pages: {rows:?}");
            is_huge &= number(&rows, case, "superpage", "huge_at_100")? > 0.5;
        }
        if is_huge {
            return Ok(());
        }
    }
    Err(format!("the heaps did not become huge: {rows:?}").into())
}

fn memory_of_a_guest() -> Ended {
    let rows = run("guest-memory", "128M")?;
    for case in ["host", "guest"] {
        ensure!(number(&rows, case, "linux-4k", "huge_share")? == 0.0, "huge pages: {rows:?}");
        let ours = number(&rows, case, "superpage", "huge_share")?;
        ensure!(ours > 0.9, "only {ours} is huge in the {case}");
    }
    Ok(())
}

fn data_larger_than_memory() -> Ended {
    on_swap("heap-random", "96M", ["uniform", "zipf"], &[])
}

/// What an experiment has made is recorded while it runs, stays where it is killed, and goes when that is asked for.
fn a_killed_run_is_put_back() -> Ended {
    let file = Path::new(".").canonicalize()?.join(swap::NAME);
    let is_in_use = || -> Result<bool, Failed> {
        Ok(swap::areas(Path::new("/proc"))?.iter().any(|area| area.path == file))
    };
    let mut lab = Command::new(PROGRAM)
        .args(["lab", "run", "heap-random", "--size", "96M"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let group = || -> Result<Option<PathBuf>, Failed> {
        let cgroup = |line: &str| Some(PathBuf::from(line.trim().strip_prefix("cgroup ")?));
        Ok(superpage(&["doctor"])?.out.lines().find_map(cgroup))
    };
    wait_for("a swap file", PATIENCE, || Ok(is_in_use()?.then_some(())))?;
    ensure!(group()?.is_none(), "what a run uses is called left behind");
    lab.kill()?;
    lab.wait()?;
    let group = group()?;
    ensure!(is_in_use()? && group.as_ref().is_none_or(|group| group.exists()), "nothing is left");
    let said = superpage(&["restore"])?.done()?;
    ensure!(said.out.contains(&format!("swap file {}: removed", file.display())), "{said:?}");
    ensure!(!is_in_use()? && !file.exists(), "the swap file is still there");
    ensure!(group.is_none_or(|group| !group.exists()), "the cgroup is still there");
    let again = superpage(&["restore"])?.done()?;
    ensure!(again.out == "Nothing was left changed.\n", "{again:?}");
    Ok(())
}

fn redis_larger_than_memory() -> Ended {
    on_swap("heap-redis", "128M", ["get", "set"], &["p99_request_us"])
}

fn programs_that_fit() -> Ended {
    let rows = run("heap-fits", "96M")?;
    ensure!(rows.len() == 9, "three cases of three policies: {rows:?}");
    for case in ["dedup", "xsbench", "redis-get"] {
        let bytes = |key| number(&rows, case, "xheap", key);
        // The base pages of Redis's heap that left their pool while it was filled come back when they are asked for: up to
        // 188,416 bytes of 124 MB.
        let (read, written) = (bytes("read_bytes")?, bytes("written_bytes")?);
        ensure!(read < bytes("size_bytes")? / 100.0, "a program that has room read: {rows:?}");
        // The file becomes longer as the program maps memory, of which the file system notes 4 to 8 KiB (/proc/PID/io).
        ensure!(written < bytes("size_bytes")? / 1000.0, "a program that has room wrote: {rows:?}");
        ensure!(number(&rows, case, "no-heap", "huge_share")? < 0.5, "huge pages: {rows:?}");
        ensure!(number(&rows, case, "xheap", "huge_share")? > 0.8, "base pages: {rows:?}");
        ensure!(number(&rows, case, "xheap", "over_no_heap")? > 0.5, "{rows:?}");
    }
    Ok(())
}

/// Runs an experiment whose programs swap, and whose rows have these keys beside those of all such experiments.
/// Whether there is `superpage run --heap` here, is not this test's to know.
fn on_swap(name: &str, size: &str, cases: [&str; 2], more: &[&str]) -> Ended {
    let areas = || swap::areas(Path::new("/proc"));
    let cluster = || std::fs::read_to_string("/proc/sys/vm/page-cluster");
    let before = (areas()?, cluster()?);
    let rows = run(name, size)?;
    ensure!((areas()?, cluster()?) == before, "what was set for swap was not put back");
    ensure!(!Path::new(".").join(swap::NAME).exists(), "the swap file is still there");
    let keys = [&["seconds", "over_swap", "read_bytes", "faults"], more].concat();
    for case in cases {
        for policy in ["swap-4k-3", "swap-4k-0", "swap-thp-3", "swap-thp-0"] {
            for key in &keys {
                ensure!(number(&rows, case, policy, key)? > 0.0, "{key} of {policy}: {rows:?}");
            }
            let peak = number(&rows, case, policy, "peak_bytes")?;
            // The size of the data, and the limit beyond its part.
            let whole = number(&rows, case, policy, "size_bytes")?;
            let limit = whole * 0.75 + f64::from(17 << 20);
            ensure!(peak <= limit, "{policy} had memory for all its data: {rows:?}");
        }
        ensure!(number(&rows, case, "in-memory", "faults")? == 0.0, "nothing is read: {rows:?}");
        ensure!(number(&rows, case, "in-memory", "over_swap")? > 1.0, "{rows:?}");
    }
    ensure!(number(&rows, "disk", "disk-read", "seconds")? > 0.0, "{rows:?}");
    Ok(())
}

fn the_daemon_beside_mixed_load() -> Ended {
    let rows = run("mixed-load", "512M")?;
    ensure!(rows.len() == 3, "a round of three policies: {rows:?}");
    for policy in ["linux-4k", "linux", "superpage"] {
        ensure!(number(&rows, "mixed", policy, "throughput")? > 0.0, "nothing was done: {rows:?}");
    }
    for key in ["promoted", "split", "freed_bytes", "daemon_cpu", "daemon_bytes"] {
        ensure!(number(&rows, "mixed", "superpage", key)? > 0.0, "{key}: {rows:?}");
    }
    let alike = rows.iter().any(|row| row["told_alike"] == true);
    ensure!(alike, "log and metrics differ: {rows:?}");
    Ok(())
}

fn a_jvm_that_touched_its_heap() -> Ended {
    let rows = run("jvm-pretouch", "128M")?;
    ensure!(rows.len() == 4, "four configurations: {rows:?}");
    for policy in ["no daemon", "default", "first_touch = generous", "quicksilver-sync-64"] {
        let huge = number(&rows, "always", policy, "huge_at_start")?;
        ensure!(huge > 0.9, "only {huge} of the heap was huge at the start: {rows:?}");
    }
    for policy in ["no daemon", "default", "first_touch = generous"] {
        let left = number(&rows, "always", policy, "left")?;
        ensure!(left >= 1.0, "under {policy} {left} of it is left: {rows:?}");
    }
    Ok(())
}

fn kernels_beside_python_packages() -> Ended {
    let rows = run("graph-peers", "64M")?;
    ensure!(!rows.is_empty(), "no rows");
    for kernel in ["bfs", "sssp", "pr", "cc"] {
        for graph in ["kronecker", "uniform"] {
            let case = format!("{kernel}, {graph}");
            for policy in ["superpage, huge pages", "superpage, default pages"] {
                ensure!(number(&rows, &case, policy, "seconds")? > 0.0, "{case}: {rows:?}");
            }
        }
    }
    ensure!(rows.iter().all(|row| row["same"] != false), "results differ: {rows:?}");
    Ok(())
}

fn arrays_beside_numpys() -> Ended {
    let rows = run("array-numpy", "64M")?;
    for case in ["uniform", "80 % in the first fifth"] {
        for memory in ["", ", under pressure"] {
            let case = format!("{case}{memory}");
            for policy in ["numpy.empty", "numpy.empty, no advice", "base", "huge", "huge:20%"] {
                ensure!(number(&rows, &case, policy, "seconds")? > 0.0, "{case}: {rows:?}");
            }
            ensure!(number(&rows, &case, "base", "huge_bytes")? == 0.0, "{case}: {rows:?}");
        }
        let huge = number(&rows, case, "huge", "huge_bytes")?;
        ensure!(huge >= f64::from(64 << 20), "huge pages for all: {rows:?}");
    }
    Ok(())
}
