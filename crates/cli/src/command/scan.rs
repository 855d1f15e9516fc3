//! `superpage scan`: huge pages and their bloat, of all processes or by address in one.

use crate::args::Scan;
use crate::exit::Outcome;
use crate::show;
use anyhow::{Context, anyhow};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use superpage_kernel::rights::Hindrance;
use superpage_lab::picture;
use superpage_manager::account::ProcessAccount;
use superpage_manager::clock;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::find;
use superpage_manager::pass::{Options, Pass};
use superpage_manager::process::ManagedProcess;
use superpage_manager::registry::Registry;
use superpage_manager::select::Selection;
use superpage_policy::bloat::{BloatMap, Bucket, Knowledge};
use superpage_policy::debloat::Depth;
use superpage_policy::sampling::SAMPLE;
use superpage_units::{BasePages, HugePages, PageSize, Pid, PmdRange, Share, Time};

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

fn all(arguments: &Scan, depth: Depth) -> Outcome {
    let registry = Registry::new(Selection::default(), PageSize::Huge.bytes());
    registry.refresh(clock::now())?;
    let denied = registry.denied();
    let pass = survey(registry.processes(), depth)?;
    let mut rows: Vec<(&ProcessAccount, &BloatMap)> = pass
        .account()
        .processes
        .iter()
        .filter_map(|(key, account)| Some((account, pass.maps().get(key)?)))
        .filter(|(account, _)| !account.huge_pages.is_zero())
        .collect();
    rows.sort_by_key(|(_, map)| std::cmp::Reverse(map.total_zero_pages()));
    if arguments.json {
        let lines: String =
            rows.iter().map(|(a, map)| format!("{}\n", process_json(a, map, depth))).collect();
        return show::print(&lines);
    }
    show::print(&process_table(&rows, depth, denied))
}

fn process_json(account: &ProcessAccount, map: &BloatMap, depth: Depth) -> serde_json::Value {
    json!({
        "pid": account.pid.0,
        "command": account.command,
        "huge_pages": map.len().0,
        "huge_bytes": map.len().bytes().0,
        "bloat_base_pages": map.total_zero_pages().0,
        "bloat_bytes": map.total_zero_pages().bytes().0,
        "bloat": bloat_share(map).get(),
        "shared_huge_pages": account.left_alone.shared.0,
        "exact": depth == Depth::Exact,
    })
}

fn process_table(rows: &[(&ProcessAccount, &BloatMap)], depth: Depth, denied: usize) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        text.push_str("No process that we may look into holds huge pages.\n");
    } else {
        let mut table = show::table(&["pid", "command", "in huge pages", "of it bloat", ""]);
        for (account, map) in rows {
            let share = bloat_share(map);
            table.add_row([
                account.pid.to_string(),
                show::printable(&account.command),
                map.len().bytes().to_string(),
                format!("{} ({})", map.total_zero_pages().bytes(), share),
                show::bar(share, 20),
            ]);
        }
        text = format!("{table}\nBloat is {}.\n", how(depth));
        let pid = rows[0].0.pid;
        text.push_str(&format!(
            "Look closer with `superpage scan {pid}`; try `superpage debloat {pid} --all --dry-run`.\n"
        ));
    }
    if denied > 0 {
        let hindrance = Hindrance::now();
        let (processes, were) =
            if denied == 1 { ("process", "was") } else { ("processes", "were") };
        text.push_str(&format!("{denied} {processes} {were} not looked into; {hindrance}.\n"));
    }
    text
}

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
    let pass = survey(vec![find::hold(pid)?], depth)?;
    let Some((account, map)) =
        pass.account().processes.values().next().zip(pass.maps().values().next())
    else {
        return Err(anyhow!("process {pid} exited while it was looked at").into());
    };
    // Of no huge pages there is no picture; that there are none is said below.
    if let Some(path) = arguments.svg.as_ref().filter(|_| !map.is_empty()) {
        draw(path, account, map)?;
    }
    if arguments.json {
        return show::print(&map.by_address().map(range_json).collect::<String>());
    }
    show::print(&map_report(account, map, depth))
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

fn map_report(account: &ProcessAccount, map: &BloatMap, depth: Depth) -> String {
    let pid = account.pid;
    if map.is_empty() {
        return format!(
            "Process {pid} ({}) holds no huge pages: nothing to show.\n",
            show::printable(&account.command)
        );
    }
    let shared = account.left_alone.shared;
    let not_looked_into = if shared.is_zero() {
        String::new()
    } else {
        format!("Shared with other processes, as after a fork, and not looked into: {shared}.\n\n")
    };
    let total = map.total_zero_pages();
    format!(
        "Process {pid} ({}): {} huge pages ({}), of it bloat {} ({}), {}.\n\n{not_looked_into}\
         By bucket (zero-filled base pages of 512):\n{}\n\n\
         By address, lowest first, each column the mean of {} huge pages:\n{}\n",
        show::printable(&account.command),
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
