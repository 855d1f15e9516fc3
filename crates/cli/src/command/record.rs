//! `superpage record`: a live process as a trace in a file.

use crate::args::Record;
use crate::exit::{Failure, Outcome};
use crate::{show, signals};
use serde_json::json;
use superpage_manager::budget::CpuBudget;
use superpage_manager::find;
use superpage_manager::process::ManagedProcess;
use superpage_manager::record::{self, Ended, Options, Recording};
use superpage_trace::Contents;
use superpage_units::Share;

/// Records until the process exits, the time is over or somebody asks for the end.
pub(super) fn run(arguments: &Record) -> Outcome {
    let process = find::hold(arguments.pid)?;
    let budget = CpuBudget::new(arguments.cpu)
        .ok_or_else(|| Failure::Usage("--cpu takes up to 100%".to_owned()))?;
    let options = Options {
        interval: arguments.interval,
        duration: arguments.duration,
        contents: if arguments.exact { Contents::Exact } else { Contents::Sampled },
        budget,
    };
    let stop = signals::stop_flag()?;
    let command = show::printable(process.command());
    let line = show::progress(0, "{spinner} {elapsed_precise} {msg}");
    line.set_message(format!("looking at {command}"));
    let recording = record::record(&process, &arguments.output, &options, &stop, |progress| {
        line.set_message(format!(
            "{} samples of {command}, {} resident, {} written; Ctrl-C ends it",
            progress.samples, progress.resident, progress.written
        ));
        line.tick();
    });
    line.finish_and_clear();
    let recording = recording?;
    if arguments.json {
        return show::print(&as_json(&process, &recording));
    }
    show::print(&in_words(arguments, &process, &recording))
}

fn as_json(process: &ManagedProcess, recording: &Recording) -> String {
    let row = json!({
        "pid": process.pid().0,
        "command": process.command(),
        "samples": recording.progress.samples,
        "bytes": recording.progress.written.0,
        "seconds": recording.time.as_secs_f64(),
        "cpu_seconds": recording.cpu.as_secs_f64(),
        "ended": match recording.ended {
            Ended::Exited => "exited",
            Ended::Elapsed => "elapsed",
            Ended::Stopped => "stopped",
        },
    });
    format!("{row}\n")
}

fn in_words(arguments: &Record, process: &ManagedProcess, recording: &Recording) -> String {
    let (progress, seconds) = (recording.progress, recording.time.as_secs_f64());
    let until = match recording.ended {
        Ended::Exited => ", until it exited",
        Ended::Elapsed => "",
        Ended::Stopped => ", until it was told to stop",
    };
    let file = arguments.output.display();
    let share = Share::clamped(recording.cpu.as_secs_f64() / seconds);
    let samples = if progress.samples == 1 { "sample" } else { "samples" };
    format!(
        "Recorded {} {samples} of {} ({}) over {seconds:.1} s{until}, into {file} ({}); \
         that took {} of a CPU.\nReplay it with `superpage sim --trace {file}`.\n",
        progress.samples,
        show::printable(process.command()),
        arguments.pid,
        progress.written,
        share,
    )
}
