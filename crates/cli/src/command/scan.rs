//! `superpage scan`: huge pages and their bloat, of all processes or by address in one.

use crate::args::Scan;
use crate::exit::Outcome;
use crate::show;
use anyhow::{Context, anyhow};
use serde_json::json;
use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;
use superpage_kernel::rights::Hindrance;
use superpage_kernel::status;
use superpage_lab::picture;
use superpage_manager::account::ProcessAccount;
use superpage_manager::clock;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::find;
use superpage_manager::pass::{Options, Pass};
use superpage_manager::process::{BySize, ManagedProcess};
use superpage_manager::registry::Registry;
use superpage_manager::select::Selection;
use superpage_policy::bloat::{BloatMap, Bucket, Knowledge};
use superpage_policy::debloat::Depth;
use superpage_policy::sampling::SAMPLE;
use superpage_units::{
    BasePages, Bytes, HugePages, PageSize, Pid, PmdRange, ProcessKey, Share, Time,
};

/// Shows all processes, or one.
pub(super) fn run(arguments: &Scan) -> Outcome {
    let depth = if arguments.exact { Depth::Exact } else { Depth::Sample(SAMPLE) };
    match arguments.pid {
        None => all(arguments, depth),
        Some(pid) => one(arguments, pid, depth),
    }
}

/// A pass over `processes` that has looked and split nothing.
fn survey(
    processes: Vec<Arc<ManagedProcess>>,
    depth: Depth,
) -> Result<Pass, superpage_kernel::Error> {
    let nothing = CoolDown::new();
    // Another sample each time: two scans can be compared.
    let options = Options { seed: u64::from(std::process::id()) << 32, ..Options::default() };
    let mut pass = Pass::new(processes, BasePages::ZERO, options, &nothing, Time::ZERO)?;
    pass.survey(depth)?;
    Ok(pass)
}

/// The process as the table and the JSON show it.
struct Row<'a> {
    account: &'a ProcessAccount,
    /// Its huge pages that may be looked into.
    map: &'a BloatMap,
    memory: BySize,
    /// The memory on huge pages that may not be looked into: what KSM merges, what is registered with a
    /// userfaultfd, and what `superpage run` manages.
    left_alone: Bytes,
}

impl<'a> Row<'a> {
    /// The row about a process; `None` if `pass` lost it.
    fn new(
        pass: &'a Pass,
        process: &ManagedProcess,
    ) -> Result<Option<Self>, superpage_kernel::Error> {
        let key = &process.key;
        let Some((account, map)) = pass.account().processes.get(key).zip(pass.maps().get(key))
        else {
            return Ok(None);
        };
        let memory = process.by_size()?;
        let left_alone = match process.excludes_memory()? {
            true => memory.huge.saturating_sub(map.len().bytes()) + memory.pool_huge,
            false => Bytes::ZERO,
        };
        Ok(Some(Self { account, map, memory, left_alone }))
    }
}

/// Whether a process without huge pages that may be looked into may have larger pages than base pages
/// nevertheless. To ask for its memory by size takes longer.
fn may_have_others(process: &ManagedProcess) -> bool {
    let hugetlb = status::hugetlb(Path::new("/proc"), process.pid());
    hugetlb.is_ok_and(|size| size >= PageSize::Gigantic.bytes())
        || process.excludes_memory().unwrap_or(false)
}

fn all(arguments: &Scan, depth: Depth) -> Outcome {
    let registry = Registry::new(Selection::default(), PageSize::Huge.bytes()).with_gigantic();
    registry.refresh(clock::now())?;
    let denied = registry.denied();
    let pass = survey(registry.processes(), depth)?;
    let holds_huge = |key: &ProcessKey| {
        pass.account().processes.get(key).is_some_and(|account| !account.huge_pages.is_zero())
    };
    let mut rows: Vec<Row<'_>> = registry
        .processes()
        .iter()
        .filter(|process| holds_huge(&process.key) || may_have_others(process))
        // A process that exited meanwhile is left out.
        .filter_map(|process| Row::new(&pass, process).ok().flatten())
        .filter(|row| !(row.map.is_empty() && row.memory.in_larger_pages().is_zero()))
        .collect();
    rows.sort_by_key(|row| (Reverse(row.map.total_zero_pages()), row.map.is_empty()));
    if arguments.json {
        let lines: String =
            rows.iter().map(|row| format!("{}\n", process_json(row, depth))).collect();
        return show::print(&lines);
    }
    let processes = registry.processes();
    let too_long =
        processes.iter().filter_map(|process| Some((process.pid(), process.too_long()?)));
    let too_long = too_long.collect();
    let table = process_table(&rows, depth, &NotLookedInto { denied, too_long });
    show::print(&format!("{table}{}", merging(&registry)))
}

fn process_json(row: &Row<'_>, depth: Depth) -> serde_json::Value {
    let Row { account, map, memory, left_alone } = row;
    json!({
        "pid": account.pid.0,
        "command": account.command,
        "huge_pages": map.len().0,
        "huge_bytes": map.len().bytes().0,
        "bloat_base_pages": map.total_zero_pages().0,
        "bloat_bytes": map.total_zero_pages().bytes().0,
        "bloat": bloat_share(map).get(),
        "shared_huge_pages": account.left_alone.shared.0,
        "left_alone_huge_bytes": left_alone.0,
        "base_bytes": memory.base.0,
        "gigantic_bytes": memory.gigantic.0,
        "exact": depth == Depth::Exact,
    })
}

/// Says in which processes equal pages are merged; nothing where that is so in none.
pub(super) fn merging(registry: &Registry) -> String {
    let processes = registry.processes();
    let merging: Vec<String> = processes
        .iter()
        .filter(|process| process.merges().unwrap_or(false))
        .map(|process| format!("{} ({})", process.pid(), show::printable(process.command())))
        .collect();
    if merging.is_empty() {
        return String::new();
    }
    format!(
        "Neither promoted nor split while the kernel merges equal pages of it (KSM): memory in process {}. QEMU does not ask \
         for that with `-machine mem-merge=off`.\n",
        merging.join(", ")
    )
}

/// Processes of which nothing is in the table.
struct NotLookedInto {
    /// The number of processes that we may not look into.
    denied: usize,
    /// Processes with a `/proc` file that is too long to be read whole, and the name of that file.
    too_long: Vec<(Pid, &'static str)>,
}

fn process_table(rows: &[Row<'_>], depth: Depth, others: &NotLookedInto) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        text.push_str("No process that we may look into holds huge pages.\n");
    } else {
        text = format!("{}\n", table(rows));
    }
    // The first has most bloat; where none of it may be looked into, nothing may.
    if let Some(row) = rows.first().filter(|row| !row.map.is_empty()) {
        let pid = row.account.pid;
        text.push_str(&format!(
            "Bloat is {}.\n\
             Look closer with `superpage scan {pid}`; try `superpage debloat {pid} --all --dry-run`.\n",
            how(depth)
        ));
    }
    if rows.iter().any(|row| !row.left_alone.is_zero()) {
        text.push_str(LEFT_ALONE);
    }
    for (pid, file) in &others.too_long {
        text.push_str(&format!(
            "Process {pid} was passed over: /proc/{pid}/{file} is longer than what is read of one process.\n"
        ));
    }
    let denied = others.denied;
    if denied > 0 {
        let hindrance = Hindrance::now();
        let (processes, were) =
            if denied == 1 { ("process", "was") } else { ("processes", "were") };
        text.push_str(&format!("{denied} {processes} {were} not looked into; {hindrance}.\n"));
    }
    text
}

/// The table; with columns for the two other sizes of pages only where a process has gigantic ones, which few
/// machines see.
fn table(rows: &[Row<'_>]) -> comfy_table::Table {
    let has_gigantic = rows.iter().any(|row| !row.memory.gigantic.is_zero());
    let sizes: &[&str] = if has_gigantic { &["in 1 GiB pages", "in base pages"] } else { &[] };
    let heads = [&["pid", "command"], sizes, &["in huge pages", "of it bloat", ""]].concat();
    let mut table = show::table(&heads);
    for row in rows {
        let share = bloat_share(row.map);
        let mut cells = vec![row.account.pid.to_string(), show::printable(&row.account.command)];
        if has_gigantic {
            cells.extend([row.memory.gigantic, row.memory.base].map(|bytes| bytes.to_string()));
        }
        cells.push((row.map.len().bytes() + row.left_alone).to_string());
        if row.map.is_empty() {
            cells.extend(["-".to_owned(), String::new()]);
        } else {
            let bloat = row.map.total_zero_pages().bytes();
            cells.extend([format!("{bloat} ({share})"), show::bar(share, 20)]);
        }
        table.add_row(cells);
    }
    table
}

/// Why huge pages are in no estimate.
const LEFT_ALONE: &str = "Left alone and not looked into: huge pages that `superpage run` manages, \
                          that KSM merges, or that are registered with a userfaultfd.\n";

fn how(depth: Depth) -> String {
    match depth {
        Depth::Exact => "counted: every base page was read".to_owned(),
        Depth::PreSample(size) | Depth::Sample(size) | Depth::Filter(size) => {
            format!("estimated from {} of the 512 base pages of each huge page", size.pages())
        }
    }
}

fn bloat_share(map: &BloatMap) -> Share {
    map.total_zero_pages().share_of(map.len().base_pages())
}

fn one(arguments: &Scan, pid: Pid, depth: Depth) -> Outcome {
    let process = find::hold(pid)?;
    let pass = survey(vec![Arc::clone(&process)], depth)?;
    let Some(row) = Row::new(&pass, &process)? else {
        return Err(anyhow!("process {pid} exited while it was looked at").into());
    };
    let Row { account, map, .. } = row;
    // Of no huge pages there is no picture; that there are none is said below.
    if let Some(path) = arguments.svg.as_ref().filter(|_| !map.is_empty()) {
        draw(path, account, map)?;
    }
    if arguments.json {
        return show::print(&map.by_address().map(range_json).collect::<String>());
    }
    show::print(&map_report(&row, depth))
}

fn draw(path: &Path, account: &ProcessAccount, map: &BloatMap) -> anyhow::Result<()> {
    let densities: Vec<Option<Share>> =
        map.by_address().map(|(_, known)| known.density().map(|d| d.share())).collect();
    let title =
        format!("{} ({}): bloat by address", show::printable(&account.command), account.pid);
    picture::bloat_by_address(path, &title, &densities)
        .with_context(|| format!("the picture could not be written to {}", path.display()))
}

fn range_json((range, known): (PmdRange, Knowledge)) -> String {
    let looked = match known {
        Knowledge::Unknown => 0,
        Knowledge::PreSampled(sample) | Knowledge::Sampled(sample) => sample.pages(),
        Knowledge::Exact(_) => 512, // tidy: allow(every base page)
    };
    let row = json!({
        "address": range.start().to_string(),
        "density": known.density().map(|density| density.zero_pages()),
        "base_pages_looked_at": looked,
    });
    format!("{row}\n")
}

fn map_report(row: &Row<'_>, depth: Depth) -> String {
    let Row { account, map, memory, left_alone } = row;
    let (pid, command) = (account.pid, show::printable(&account.command));
    let mut by_size = String::new();
    if !memory.gigantic.is_zero() || !left_alone.is_zero() {
        by_size = format!(
            "Process {pid} ({command}): {} in 1 GiB pages, {} in base pages, {} in huge pages, of \
             that {left_alone} left alone.\n",
            memory.gigantic,
            memory.base,
            memory.huge + memory.pool_huge
        );
    }
    if !left_alone.is_zero() {
        by_size.push_str(LEFT_ALONE);
    }
    if map.is_empty() {
        if by_size.is_empty() {
            return format!("Process {pid} ({command}) holds no huge pages: nothing to show.\n");
        }
        return by_size;
    }
    let shared = account.left_alone.shared;
    let not_looked_into = if shared.is_zero() {
        String::new()
    } else {
        format!("Shared with other processes, as after a fork, and not looked into: {shared}.\n\n")
    };
    let total = map.total_zero_pages();
    format!(
        "{by_size}Process {pid} ({command}): {} huge pages ({}), of it bloat {} ({}), {}.\n\n{not_looked_into}\
         By bucket (zero-filled base pages of 512):\n{}\n\n\
         By address, lowest first, each column the mean of {} huge pages:\n{}\n",
        map.len(),
        map.len().bytes(),
        total.bytes(),
        bloat_share(map),
        how(depth),
        bucket_table(map),
        per_column(map.len()),
        strip(map),
    )
}

fn bucket_table(map: &BloatMap) -> String {
    let mut table = show::table(&["bucket", "huge pages", "would free", ""]);
    for bucket in Bucket::densest_first() {
        table.add_row([
            bucket.to_string(),
            map.count(bucket).to_string(),
            map.zero_pages(bucket).bytes().to_string(),
            show::bar(map.count(bucket).share_of(map.len()), 40),
        ]);
    }
    table.to_string()
}

/// Columns of the strip by address.
const COLUMNS: u64 = 72;

fn per_column(ranges: HugePages) -> u64 {
    ranges.0.div_ceil(COLUMNS).max(1)
}

/// Bloat by address in one line of text.
fn strip(map: &BloatMap) -> String {
    let shares: Vec<f64> =
        map.by_address().map(|(_, k)| k.density().map_or(0.0, |d| d.share().get())).collect();
    let width = usize::try_from(per_column(map.len())).unwrap_or(usize::MAX);
    shares
        .chunks(width)
        .map(|column| show::level(Share::clamped(column.iter().sum::<f64>() / column.len() as f64)))
        .collect()
}
