//! The workloads as they are used: in a process of their own, seen from outside. Small ones.
//!
//! This binary is its own worker: started with `lab worker SPEC` it calls `worker_main`, as the
//! program does. What cannot run here is reported as ignored, with the reason.

#![expect(clippy::print_stdout, reason = "a test harness tells what it skips")]

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use superpage_lab::load::{Items, Mix, Redis, Sizes, Window};
use superpage_lab::worker::{Error, Launcher, Worker, worker_main};
use superpage_lab::workload::arena::Residency;
use superpage_lab::workload::memcached::Memcached;
use superpage_lab::workload::{PageSize, WorkloadKind, WorkloadSpec};
use superpage_units::{BasePages, Bytes, HugePages, Pid};

type TestResult = Result<(), Failed>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["lab", "worker", spec] => match worker_main(spec) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        ["parent", kind] => parent(kind),
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn trials() -> Vec<Trial> {
    let huge = reason_without_huge_pages();
    // It does not start with `-L` where nobody can have huge pages.
    let memcached = huge.clone().or(reason_without_memcached());
    vec![
        trial("bad_programs_are_told_apart", None, bad_programs),
        trial("a_size_too_small_is_refused", None, too_small),
        trial("a_core_that_is_not_there_is_refused", None, no_such_core),
        trial("random_access_on_huge_pages", huge.clone(), || {
            on_huge_pages(WorkloadKind::RandomAccessR, 0.50)
        }),
        trial("dense_random_access_on_huge_pages", huge.clone(), || {
            on_huge_pages(WorkloadKind::RandomAccessDense, 0.0)
        }),
        trial("btree_on_huge_pages", huge, || on_huge_pages(WorkloadKind::BTree, 0.75)),
        trial("memcached_on_huge_pages", memcached.clone(), || {
            on_huge_pages(WorkloadKind::Memcached, 0.62)
        }),
        trial("random_access_on_base_pages", None, || on_base_pages(WorkloadKind::RandomAccessL)),
        trial("btree_on_base_pages", None, || on_base_pages(WorkloadKind::BTree)),
        trial("memcached_on_base_pages", memcached.clone(), || {
            on_base_pages(WorkloadKind::Memcached)
        }),
        trial("ordinary_memcached_on_base_pages", reason_without_memcached(), || {
            on_base_pages(WorkloadKind::OrdinaryMemcached)
        }),
        trial("redis_gives_back_what_it_was_given", reason_without_redis(), redis),
        trial("a_killed_worker_is_an_error", None, killed_worker),
        trial("a_worker_ends_with_its_parent", None, || ends_with_parent("random-access-l")),
        trial("a_server_ends_with_its_workers_parent", memcached, || ends_with_parent("memcached")),
    ]
}

/// A test that runs, or is reported as ignored because of `missing`.
fn trial(
    name: &'static str,
    missing: Option<String>,
    test: impl FnOnce() -> TestResult + Send + 'static,
) -> Trial {
    if let Some(reason) = &missing {
        println!("skipped {name}: {reason}");
    }
    Trial::test(name, test).with_ignored_flag(missing.is_some())
}

fn reason_without_huge_pages() -> Option<String> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match std::fs::read_to_string(path) {
        Ok(text) if text.contains("[never]") => Some(format!("{path} is never")),
        Ok(_) => None,
        Err(error) => Some(format!("{path}: {error}")),
    }
}

fn reason_without_memcached() -> Option<String> {
    let is_installed = Memcached::is_installed();
    (!is_installed).then(|| "memcached is not installed (Debian package memcached)".into())
}

fn reason_without_redis() -> Option<String> {
    (!Redis::is_installed()).then(|| "redis is not installed (Debian package redis-server)".into())
}

/// Filled, thinned out, loaded both ways, read to the last value; every answer is checked.
fn redis() -> TestResult {
    const WINDOW: Window = Window { requests: 32, bytes: Bytes::from_mib(2) };
    let sizes = Sizes { least: Bytes(1), most: Bytes::from_kib(300) };
    let (server, mut client) = Redis::start(Items::new(sizes, 5))?;
    assert!(client.fill(400, WINDOW)?.count() == 400, "400 values are stored");
    client.delete(0.7, 1, WINDOW)?;
    assert!(client.items().count() == 120, "30 % stay: {}", client.items().count());
    let mix = Mix { reads: 0.5, seed: 2 };
    let closed = client.closed(mix, WINDOW, Duration::from_millis(300))?;
    assert!(closed.throughput() > 100.0, "{closed:?}");
    let open = client.open(mix, 200.0, Duration::from_millis(500))?;
    assert!((50..200).contains(&open.count()), "{open:?}");
    assert!(open.quantile(0.5) <= open.quantile(0.999), "{open:?}");
    assert!(client.check(WINDOW)?.count() == 120, "all are read");
    let pid = server.pid();
    assert!(Residency::of(pid)?.resident > Bytes::from_mib(10), "they are in its memory");
    drop(server);
    assert!(Residency::of(pid).is_err(), "it ends with us");
    assert!(client.check(WINDOW).is_err(), "nobody answers");
    Ok(())
}

fn launcher() -> Launcher {
    Launcher {
        program: std::env::current_exe().expect("we know our own path"),
        leading_args: vec!["lab".into(), "worker".into()],
    }
}

fn spec(kind: WorkloadKind, pages: PageSize) -> WorkloadSpec {
    WorkloadSpec { kind, size: Bytes::from_mib(128), pages, cpu: None }
}

fn on_huge_pages(kind: WorkloadKind, bloat: f64) -> TestResult {
    let mut worker = Worker::spawn(&launcher(), &spec(kind, PageSize::Huge))?;
    let populated = *worker.populated();
    assert!(populated.is_on_huge_pages(), "not on huge pages: {populated:?}");
    let share = populated.bloat().share_of(populated.footprint.to_base_pages()).get();
    assert!((share - bloat).abs() < 0.06, "bloat is {share}, not {bloat}");
    let zero = zero_base_pages(worker.pid(), populated.footprint)?;
    // Libraries and the heap of a server have a few more or less.
    let off = zero.0.abs_diff(populated.bloat().0);
    assert!(off < 300, "{zero} zero-filled pages seen, {populated:?}");
    runs_and_checks(&mut worker)?;
    Ok(worker.quit()?)
}

fn on_base_pages(kind: WorkloadKind) -> TestResult {
    let mut worker = Worker::spawn(&launcher(), &spec(kind, PageSize::Base))?;
    let populated = *worker.populated();
    assert!(populated.huge_pages == HugePages::ZERO, "huge pages: {populated:?}");
    let least = populated.used_base_pages.bytes();
    assert!(populated.resident >= least, "too little is resident: {populated:?}");
    runs_and_checks(&mut worker)
}

fn runs_and_checks(worker: &mut Worker) -> TestResult {
    let first = worker.run(20_000, 1)?;
    let second = worker.run(20_000, 2)?;
    let again = worker.run(20_000, 1)?;
    assert!(first.operations >= 20_000 && first.operations < 21_000, "{first:?}");
    assert!(first.wall.0 > 0 && first.cpu.0 > 0, "no time has passed: {first:?}");
    assert!(first.checksum == again.checksum, "the same seed gives the same sum");
    assert!(first.checksum != second.checksum, "another seed gives another sum");
    assert!(worker.check()?.items > 0, "nothing was checked");
    Ok(())
}

/// How many base pages of the biggest VMAs of a process, `footprint` in all, are zero-filled.
fn zero_base_pages(pid: Pid, footprint: Bytes) -> Result<BasePages, Failed> {
    use std::os::unix::fs::FileExt;
    use superpage_units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
    let memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut zero, mut seen, mut vma) = (0, Bytes::ZERO, None);
    for line in maps.lines() {
        if let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
            let number = |text| u64::from_str_radix(text, 16).ok();
            vma = number(start).zip(number(end)).or(vma);
        }
        let huge = line.strip_prefix("AnonHugePages:").map(|rest| rest.trim() != "0 kB");
        let Some((start, end)) = vma.filter(|_| huge == Some(true)) else { continue };
        let mut page = vec![0_u8; usize::try_from(BASE_PAGE_BYTES)?];
        let first = start.next_multiple_of(HUGE_PAGE_BYTES);
        let last = end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        for address in (first..last).step_by(page.len()) {
            memory.read_exact_at(&mut page, address)?;
            zero += u64::from(page.iter().all(|byte| *byte == 0));
            seen += Bytes(BASE_PAGE_BYTES);
        }
    }
    assert!(seen >= footprint, "only {seen} of {footprint} lies on huge pages");
    Ok(BasePages(zero - (seen - footprint).to_base_pages().0.min(zero)))
}

fn bad_programs() -> TestResult {
    let spec = spec(WorkloadKind::RandomAccessL, PageSize::Base);
    let spawn = |program: &str, leading_args: &[&str]| {
        let leading_args = leading_args.iter().map(ToString::to_string).collect();
        Worker::spawn(&Launcher { program: program.into(), leading_args }, &spec).err()
    };
    let missing = spawn("/nonexistent/program", &[]);
    assert!(matches!(missing, Some(Error::Start { .. })), "{missing:?}");
    let echo = spawn("/bin/echo", &["hello"]);
    assert!(
        matches!(&echo, Some(Error::Nonsense { found, .. }) if found.starts_with("hello")),
        "{echo:?}",
    );
    let dead = spawn("/bin/sh", &["-c", "echo oh dear >&2; exit 3"]);
    assert!(
        matches!(&dead, Some(Error::Died { status, stderr })
            if status.contains('3') && stderr == "oh dear"),
        "{dead:?}",
    );
    Ok(())
}

fn too_small() -> TestResult {
    let small =
        WorkloadSpec { size: Bytes::from_mib(1), ..spec(WorkloadKind::BTree, PageSize::Base) };
    let error = Worker::spawn(&launcher(), &small).err();
    assert!(
        matches!(&error, Some(Error::Failed { message }) if message.contains("64.0 MiB")),
        "{error:?}",
    );
    Ok(())
}

fn no_such_core() -> TestResult {
    let pinned = WorkloadSpec { cpu: Some(1000), ..spec(WorkloadKind::BTree, PageSize::Base) };
    let error = Worker::spawn(&launcher(), &pinned).err();
    assert!(matches!(error, Some(Error::Failed { .. })), "{error:?}");
    Ok(())
}

fn killed_worker() -> TestResult {
    let spec = spec(WorkloadKind::RandomAccessL, PageSize::Base);
    let mut worker = Worker::spawn(&launcher(), &spec)?;
    let status = Command::new("kill").args(["-9", &worker.pid().to_string()]).status()?;
    assert!(status.success(), "kill works");
    let error = worker.run(1_000_000, 1).err();
    assert!(
        matches!(&error, Some(Error::Died { status, .. }) if status.contains('9')),
        "{error:?}",
    );
    Ok(())
}

/// Starts a worker, says its pid and waits to be killed.
fn parent(kind: &str) -> ExitCode {
    let kind = match kind {
        "memcached" => WorkloadKind::Memcached,
        _ => WorkloadKind::RandomAccessL,
    };
    match Worker::spawn(&launcher(), &spec(kind, PageSize::Base)) {
        Ok(worker) => {
            println!("{}", worker.pid());
            std::thread::sleep(Duration::from_secs(60));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn ends_with_parent(kind: &str) -> TestResult {
    use std::io::BufRead;
    let mut parent = Command::new(std::env::current_exe()?)
        .args(["parent", kind])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = parent.stdout.take().ok_or("no output")?;
    std::io::BufReader::new(output).read_line(&mut line)?;
    let pid: Pid = line.trim().parse()?;
    let alive = Residency::of(pid).is_ok();
    parent.kill()?;
    parent.wait()?;
    assert!(alive, "the worker lives while its parent does");
    let deadline = Instant::now() + Duration::from_secs(10);
    // A zombie keeps its directory, but has no memory left to tell about.
    while Residency::of(pid).is_ok() {
        assert!(Instant::now() < deadline, "process {pid} has outlived its parent");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(std::fs::read_link(format!("/proc/{pid}/exe")).is_err(), "it has gone");
    Ok(())
}
