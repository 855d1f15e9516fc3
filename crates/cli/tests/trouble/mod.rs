//! Programs that do what is hard for a library in their process, or to which that is done: they go on as without it.
//!
//! The program is `program/trouble.c`, or a part of `program/program.c` in hard circumstances.

use super::{
    GIGANTIC_PAGE_BYTES, Holder, Managed, bytes, command, programs, report, report_of, take,
    take_gigantic, without_gigantic, without_library, without_two_gigantic,
};
use crate::common::machine::{self, Test};
use crate::common::{Ended, PROGRAM, Said};
use crate::ensure;
use libtest_mimic::Failed;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use superpage_kernel::cgroup::{Hierarchy, Scratch, Version};
use superpage_units::{Bytes, HUGE_PAGE_BYTES, PageSize};
use tempfile::TempDir;

pub(super) fn tests() -> Vec<Test> {
    let able = without_library().or_else(machine::without_settings);
    let gigantic = able.clone().or_else(without_gigantic);
    let without_rights = able.clone().or_else(without_two_gigantic).or_else(everybody_has_rights);
    let group = gigantic.clone().or_else(|| group().err().map(|error| format!("{error:?}")));
    vec![
        ("memory_is_read_while_it_is_unmapped", able.clone(), || plays(&["unmaps"])),
        ("a_handler_of_sigbus_gets_its_own", able.clone(), || plays(&["handles-sigbus"])),
        ("a_child_lives_on", gigantic.clone(), a_child_lives_on),
        ("a_child_has_a_terminal", able.clone(), || plays(&["forks-with-terminal"])),
        ("another_program_takes_its_place", gigantic.clone(), another_program_takes_its_place),
        ("libraries_are_loaded_meanwhile", able.clone(), || plays(&["loads"])),
        ("a_limit_of_data_is_kept", gigantic.clone(), || plays(&["limits-its-data"])),
        ("it_serves_faults_of_its_own", able.clone(), || plays(&["serves-its-own-faults"])),
        ("one_thread_needs_no_rights", without_rights, one_thread_needs_no_rights),
        ("without_our_threads_it_goes_on", able.clone(), without_our_threads_it_goes_on),
        ("when_our_threads_fail_it_goes_on", gigantic.clone(), when_our_threads_fail_it_goes_on),
        ("no_gigantic_page_is_to_be_had", gigantic, no_gigantic_page_is_to_be_had),
        ("a_limit_of_its_cgroup_is_kept", group, a_limit_of_its_cgroup_is_kept),
    ]
}

/// Runs a part to its good end.
fn plays(words: &[&str]) -> Ended {
    let (said, _) = report_of("trouble", &[], words)?;
    said.done().map(|_| ())
}

fn a_child_lives_on() -> Ended {
    let _taken = take_gigantic(1)?;
    // The report is made when the first process ends, and the child's words come after that.
    let (said, report) = report_of("trouble", &[], &["becomes-daemon"])?;
    let said = said.done()?;
    ensure!(said.out == "intact\n", "{said:?}");
    ensure!(report["demotions"] == 1, "{report}");
    Ok(())
}

/// The pages of each program are the kernel's again when the next takes its place.
fn another_program_takes_its_place() -> Ended {
    let _taken = take_gigantic(1)?;
    let (said, report) = report_of("trouble", &[], &["executes", "3"])?;
    let said = said.done()?;
    ensure!(said.out == format!("{GIGANTIC_PAGE_BYTES}\n").repeat(3), "{said:?} {report}");
    Ok(())
}

fn without_our_threads_it_goes_on() -> Ended {
    for what in ["threads", "most-threads", "userfaultfd"] {
        let (said, report) = report_of("trouble", &[], &["is-refused-a-start", what])?;
        ensure!(said.code == Some(3), "{what}: {said:?}");
        // Without a userfaultfd alone it has gigantic pages until it has a second thread.
        let cause = if what == "userfaultfd" { "no_rights" } else { "kernel" };
        ensure!(report["refused"][cause].as_u64() >= Some(1), "{what}: {report}");
        let has_none = report["most_gigantic_pages"] == 0;
        ensure!(has_none || what == "userfaultfd", "{what}: {report}");
        ensure!(report["most_mapped_bytes"].as_u64() >= Some(3 * GIGANTIC_PAGE_BYTES), "{report}");
    }
    Ok(())
}

/// The fault threads get errors of the kernel, because the program has it refuse their calls.
fn when_our_threads_fail_it_goes_on() -> Ended {
    let _taken = take_gigantic(1)?;
    for what in ["reads", "answers"] {
        let (said, report) = report_of("trouble", &[], &["is-refused-to-serve", what])?;
        ensure!(said.code == Some(3), "{what}: {said:?} {report}");
        ensure!(report["refused"]["failed"].as_u64() >= Some(1), "{what}: none failed: {report}");
    }
    Ok(())
}

/// Another process has taken all of the pool, and another run has the right to enlarge it.
fn no_gigantic_page_is_to_be_had() -> Ended {
    let _taken = take_gigantic(1)?;
    let _drain = Holder::start()?;
    let _other = Managed::start(&["wait"])?;
    for words in [&["touch", "2"][..], &["parts"], &["forks"], &["clones"]] {
        let (_, report) = report(words)?;
        ensure!(report["most_gigantic_pages"] == 0, "{words:?}: {report}");
        let left = report["first_touches_left_to_smaller"].as_u64();
        ensure!(left >= Some(1), "{words:?}: {report}");
    }
    Ok(())
}

fn group() -> Result<Scratch, Failed> {
    let hierarchy = Hierarchy::find(Path::new("/"))?.ok_or("no memory cgroups are mounted")?;
    Ok(Scratch::create(&hierarchy, &format!("superpage-run-{}", std::process::id()))?)
}

/// A program that fits into the limit without us does so with us: its gigantic page is no charge to the cgroup, and what
/// it is copied to for a fork is. One that does not fit is ended by the kernel, or told that there is no memory.
fn a_limit_of_its_cgroup_is_kept() -> Ended {
    let _taken = take_gigantic(1)?;
    let group = group()?;
    let file = match group.group().version() {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    let program = programs().as_ref()?.join("program");
    for (limit, fits) in [(Bytes::from_mib(1536), true), (Bytes::from_mib(800), false)] {
        std::fs::write(group.group().path().join(file), limit.0.to_string())?;
        let without = group.while_in(|| Command::new(&program).arg("forks").output())??;
        let with = command(&["--quiet", "--ready", "0"], &["forks"])?;
        let with = group.while_in(|| { with }.output())??;
        ensure!(without.status.success() == fits, "without us: {without:?}");
        let (killed, status) = (without.status.signal(), with.status);
        let said = Said::from(with);
        let is_told = said.err.contains("(errno 12)"); // ENOMEM
        ensure!(status.success() == fits, "{limit}: {said:?}");
        ensure!(fits || is_told || status.signal() == killed, "{limit}: {status:?} {said:?}");
        let gigantic = format!("{GIGANTIC_PAGE_BYTES}\n");
        ensure!(!fits || said.out.starts_with(&gigantic), "no gigantic page: {said:?}");
    }
    Ok(())
}

/// The reason why no program can be without the right to a userfaultfd here.
fn everybody_has_rights() -> Option<String> {
    const FOR_ALL: u32 = 0o006;
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    let device = std::fs::metadata("/dev/userfaultfd");
    let is_open = device.is_ok_and(|device| device.permissions().mode() & FOR_ALL == FOR_ALL);
    (is_open || setting.is_ok_and(|setting| setting.trim() == "1"))
        .then(|| "every program here may have a userfaultfd".to_owned())
}

/// An ordinary user's words for a command. It may read every directory, because the programs may lie where users may not.
const ORDINARY: [&str; 6] = [
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
];

/// Without a userfaultfd, a program with one thread has gigantic pages as soon as it maps memory, and gives them up
/// before it has a second thread.
fn one_thread_needs_no_rights() -> Ended {
    let _taken = take_gigantic(2)?;
    let directory = TempDir::new()?;
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
    let ends = |options: &[&str], part: &[&str]| -> Result<(Said, Value), Failed> {
        let file = directory.path().join(format!("{}.json", part.concat()));
        let program = programs().as_ref()?.join("program");
        let mut command = Command::new("setpriv");
        command.args(ORDINARY).args([PROGRAM, "run", "--ready", "0", "--report"]).arg(&file);
        command.args(options).arg("--").arg(program).args(part);
        let said = Said::from(command.output()?);
        Ok((said, serde_json::from_str(&std::fs::read_to_string(file)?)?))
    };
    let plays = |options: &[&str], part: &[&str]| -> Result<(Said, Value), Failed> {
        let (said, report) = ends(options, part)?;
        Ok((said.done()?, report))
    };
    let (said, report) = plays(&[], &["touch", "1"])?;
    ensure!(bytes(&said)? == GIGANTIC_PAGE_BYTES, "{said:?} {report}");
    ensure!(report["refused"]["no_rights"] == 1, "it has a userfaultfd: {report}");
    for options in [&[][..], &["--policy", "hugetlb-1g"]] {
        let (_, report) = plays(options, &["forks"])?;
        ensure!(report["demotions"].as_u64() >= Some(1), "{report}");
    }
    let huge = take(PageSize::Huge, 2 * GIGANTIC_PAGE_BYTES / HUGE_PAGE_BYTES)?;
    let (_, report) = plays(&["--policy", "hugetlb-2m"], &["forks"])?;
    ensure!(report["demotions"].as_u64() >= Some(1), "{report}");
    drop(huge);
    let (_, report) = plays(&[], &["parts"])?;
    ensure!(report["demotions"].as_u64() >= Some(1), "{report}");
    let (said, report) = plays(&[], &["second-thread"])?;
    ensure!(said.out == format!("{GIGANTIC_PAGE_BYTES}\n0\n"), "{said:?} {report}");
    let (said, report) = ends(&[], &["leaves"])?;
    ensure!(said.code == Some(3), "{said:?} {report}");
    Ok(())
}
