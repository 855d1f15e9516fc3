//! `superpage lab demo`, which `make demo` runs: the first experiment at the size that fits, its
//! table in plain words, one program on three page sizes, one in a tight cgroup, and what to try next. Without the rights or the kernel for it, it says
//! what is missing and shows what can be shown.

use super::{measure, prepare_out, setting, write_out};
use crate::exit::{Failure, Outcome};
use crate::show;
use serde_json::Value;
use std::path::Path;
use superpage_kernel::probe::{self, Answer, Finding};
use superpage_lab::experiment::{self, On};
use superpage_units::{BasePages, Bytes, GIGANTIC_PAGE_BYTES};

/// Which numbers are drawn does not matter here.
const SEED: u64 = 1;
/// Enough for a median, few enough for somebody who waits.
const ROUNDS: u32 = 3;
/// Slowdowns that differ by less than this may do so by chance: what is seen of one program in
/// several runs.
const NOISE: f64 = 0.05;

const INTRODUCTION: &str = "\
Huge pages (2 MiB instead of 4 KiB) make programs that use much memory faster, but they waste
memory where a program uses only a part of each: the rest holds nothing but zeroes. That is bloat.

Two programs will now fill the same memory with huge pages and update it at random. Both waste
as much; they differ only in where. In RandomAccess-L the first half of the memory is 80 % bloat
and the second 20 %; in RandomAccess-R it is the other way round. From each, the same amount of
memory is then reclaimed, in different orders:

  hawkeye    by address, from the bottom up (a published policy, HawkEye)
  emd        the most wasteful huge pages first (EMD), found by looking at a sample
  emd-exact  the same, found by reading every byte, as in the EMD paper
  kernel     the kernel's own de-bloater, which cannot be told how much to free

";

/// The size of the program that is put on three page sizes: more than one GiB, and not a whole number of them.
const THREE_SIZES: Bytes = Bytes(GIGANTIC_PAGE_BYTES * 3 / 2);

const SECOND: &str = "\
Pages can be larger still. One program, which updates memory at random, is started on 4 KiB pages, with
huge pages wherever the kernel gives them, and by `superpage run -- PROGRAM`, which knows 1 GiB too:

";

/// The program in a tight cgroup.
const TIGHT: Bytes = Bytes::from_mib(1000);

const THIRD: &str = "\
Where memory is limited, huge pages can kill. A program touches 40 % of the base pages of 1000 MiB, in a cgroup
that may have 500 MiB and no swap: on 4 KiB pages it fits, on huge pages it does not. Beside `superpage daemon`
it has huge pages as long as they fit:

";

/// Runs the demonstration.
pub(super) fn run(out: &Path, size: Option<Bytes>) -> Outcome {
    show::print(INTRODUCTION)?;
    let missing = missing();
    if !missing.is_empty() {
        return show_what_can_be_shown(&missing);
    }
    let Some(experiment) = experiment::find("emd-table1", Some(On::Live)) else {
        return Err(Failure::Usage("the experiment emd-table1 is not in this build".to_owned()));
    };
    prepare_out(out)?;
    let report = measure(experiment, &setting(size, ROUNDS, SEED)?)?;
    let mut text = String::new();
    for case in ["RandomAccess-L", "RandomAccess-R"] {
        text.push_str(&table(&report.rows, case));
    }
    text.push_str(&conclusion(&report.rows));
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text.push_str(&write_out(&report, experiment, out)?);
    text.push('\n');
    text.push_str(SECOND);
    text.push_str(&three_sizes()?);
    text.push_str(THIRD);
    text.push_str(&survivors()?);
    text.push_str(&next());
    show::print(&text)
}

/// The text about one program on three page sizes, or about why it could not be run.
fn three_sizes() -> Result<String, Failure> {
    let Some(experiment) = experiment::find("three-sizes", Some(On::Live)) else {
        return Err(Failure::Usage("the experiment three-sizes is not in this build".to_owned()));
    };
    let report = match measure(experiment, &setting(Some(THREE_SIZES), 1, SEED)?) {
        Ok(report) => report,
        Err(Failure::NotPossible(why)) => return Ok(format!("That cannot be shown here: {why}\n")),
        Err(failure) => return Err(failure),
    };
    let mut table = show::table(&["started", "on 4 KiB", "on 2 MiB", "on 1 GiB", "speed"]);
    let mut text = String::new();
    for row in &report.rows {
        let started = match row["policy"].as_str().unwrap_or_default() {
            "linux-4k" => "on 4 KiB pages",
            "linux" => "with huge pages (THP always)",
            _ => "by superpage run",
        };
        let bytes = |key: &str| Bytes(row[key].as_u64().unwrap_or_default()).to_string();
        let sizes = ["bytes_4k", "bytes_2m", "bytes_1g"].map(bytes);
        let speed = format!("{:.2} times", number(row, "over_4k"));
        table.add_row([vec![started.to_owned()], sizes.to_vec(), vec![speed]].concat());
        if row["policy"] == "trident" && row["bytes_1g"] == 0 {
            text.push_str(
                "The kernel found no 1 GiB of contiguous memory: `superpage doctor` says more.\n",
            );
        }
    }
    Ok(format!("{table}\n\n{text}"))
}

/// The text about programs in a tight cgroup, or about why they could not be run.
fn survivors() -> Result<String, Failure> {
    let Some(experiment) = experiment::find("survive", Some(On::Live)) else {
        return Err(Failure::Usage("the experiment survive is not in this build".to_owned()));
    };
    let report = match measure(experiment, &setting(Some(TIGHT), 1, SEED)?) {
        Ok(report) => report,
        Err(Failure::NotPossible(why)) => return Ok(format!("That cannot be shown here: {why}\n")),
        Err(failure) => return Err(failure),
    };
    let heads = ["huge pages", "the program", "split by the kernel", "split by superpage"];
    let mut table = show::table(&heads);
    for row in &report.rows {
        let who = match row["policy"].as_str().unwrap_or_default() {
            "linux-4k" => "none",
            "linux" => "at first touches (THP always)",
            "linux, max_ptes_none as the daemon's" => "the same, the kernel's shrinker armed",
            "superpage" => "the same, beside superpage daemon",
            _ => "beside superpage daemon, that shrinker off",
        };
        let ended = match (row["survived"].as_u64(), row["wrong"].as_u64()) {
            (_, Some(1..)) => "found its data wrong",
            (Some(1..), _) => "lived",
            _ => "was killed",
        };
        let [kernel, ours] =
            ["split_by_kernel", "split_by_daemon"].map(|key| number(row, key).to_string());
        table.add_row([who, ended, &kernel, &ours]);
    }
    Ok(format!("{table}\n"))
}

/// What to try next, with the program as it was called this time.
fn next() -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "superpage".into());
    let program = program.to_string_lossy();
    format!(
        "
Next, on your own processes (nothing is changed by these):
  {program} doctor                        what this machine allows
  {program} scan                          which processes hold huge pages, and their bloat
  {program} scan PID --svg bloat.svg      where the bloat of one is
  {program} debloat PID --all --dry-run   what could be reclaimed
  {program} run -- PROGRAM ARGUMENTS      start a program on three page sizes
  {program} lab list                      the other tables and figures
"
    )
}

/// What the experiment needs beyond the essentials: to hold khugepaged off.
fn missing() -> Vec<Finding> {
    let probe::Missing { no: mut missing, unclear } = probe::missing_essentials();
    missing.extend(unclear);
    let others = [probe::Ability::MakeHugePages, probe::Ability::HoldKhugepaged];
    missing.extend(others.map(probe::probe).into_iter().filter(|f| f.answer != Answer::Yes));
    missing
}

fn show_what_can_be_shown(missing: &[Finding]) -> Outcome {
    let mut text = "That cannot be run here. What is missing:\n".to_owned();
    for finding in missing {
        let advice = finding.advice.unwrap_or_default();
        text.push_str(&format!("  {}: {}. {advice}\n", finding.ability.purpose(), finding.why));
    }
    text.push_str(
        "\nWhat the paper measured: to free the same memory, HawkEye split 611 huge pages of \
         RandomAccess-L\n(under 2 % slower) and 2146 of RandomAccess-R (65 % slower). The order \
         matters, not the amount.\n\nYour own processes, as far as they can be seen:\n",
    );
    show::print(&text)?;
    let all = crate::args::Scan { pid: None, exact: false, svg: None, json: false };
    // What cannot be shown either has been explained above.
    crate::command::scan::run(&all).or_else(|failure| show::print(&format!("  {failure}\n")))
}

fn of<'a>(rows: &'a [Value], case: &str, policy: &str) -> Option<&'a Value> {
    rows.iter().find(|row| row["case"] == case && row["policy"] == policy)
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

fn table(rows: &[Value], case: &str) -> String {
    let heads = [
        "order",
        "huge pages split",
        "memory freed",
        "program now takes",
        "CPU time spent",
        "in the paper",
    ];
    let mut table = show::table(&heads);
    for row in rows.iter().filter(|row| row["case"] == case && row["policy"] != "none") {
        let freed = bytes(number(row, "freed_base_pages"));
        let paper = match (row["paper_split"].as_u64(), row["paper_slowdown"].as_f64()) {
            (Some(split), Some(slowdown)) => format!("{split} split, {slowdown:.2} times"),
            _ => "-".to_owned(),
        };
        table.add_row([
            row["policy"].as_str().unwrap_or_default().to_owned(),
            format!("{} of {}", number(row, "split"), number(row, "huge_pages")),
            freed.to_string(),
            format!("{:.2} times as long", number(row, "slowdown")),
            format!("{:.2} s", number(row, "cpu_s")),
            paper,
        ]);
    }
    let target = of(rows, case, "emd").map_or(0.0, |row| number(row, "target_base_pages"));
    let target = bytes(target);
    format!("{case}: {target} to be reclaimed\n{table}\n\n")
}

fn conclusion(rows: &[Value]) -> String {
    let (Some(hawkeye), Some(emd), Some(exact)) = (
        of(rows, "RandomAccess-R", "hawkeye"),
        of(rows, "RandomAccess-R", "emd"),
        of(rows, "RandomAccess-R", "emd-exact"),
    ) else {
        return String::new();
    };
    let [slow, fast] = [hawkeye, emd].map(|row| number(row, "slowdown"));
    let cost = if slow - fast < NOISE {
        "What that costs the program does not show at this size: it is within the noise.".to_owned()
    } else {
        format!("After that the program takes {slow:.2} times as long as before, not {fast:.2}.")
    };
    format!(
        "In RandomAccess-R, address order split {:.1} times as many huge pages as the densest-first \
         order\nfor the same memory. {cost}\nLooking at samples took {:.0} % of the CPU time that \
         reading every byte took.\n\n",
        number(hawkeye, "split") / number(emd, "split"),
        100.0 * number(emd, "cpu_s") / number(exact, "cpu_s"),
    )
}

fn bytes(base_pages: f64) -> Bytes {
    BasePages(1).bytes().scaled(base_pages)
}
