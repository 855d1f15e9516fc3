//! `superpage lab calibrate`: shows what was measured of this machine, and writes its profile.

use crate::args::LabCalibrate;
use crate::exit::{Failure, Outcome};
use crate::show;
use anyhow::{Context, anyhow};
use superpage_lab::calibrate::{Calibration, Figure, calibrate};
use superpage_sim::profile::{Basis, Profile};
use superpage_sim::units::BytesPerSecond;

/// Measures, shows, writes.
pub(super) fn run(arguments: &LabCalibrate) -> Outcome {
    let rest =
        Profile::named(&arguments.like).map_err(|error| Failure::Usage(error.to_string()))?;
    let spinner = show::progress(0, "{spinner} {elapsed_precise} {msg}");
    spinner.enable_steady_tick(std::time::Duration::from_millis(200));
    let found = calibrate(&rest, &mut |what| spinner.set_message(what.to_owned()));
    spinner.finish_and_clear();
    let Some(calibration) = found? else {
        return Err(Failure::NotPossible(
            "the kernel gave us no huge pages; `superpage doctor` says what is missing".to_owned(),
        ));
    };
    let text = calibration.profile.to_toml();
    std::fs::write(&arguments.out, &text)
        .with_context(|| format!("{} could not be written", arguments.out.display()))?;
    let (measured, all) = bases(&text)?;
    show::print(&format!(
        "{}\n{}\nWrote {}: {measured} of its {all} numbers are measured here, the others are \
         assumed and say why.\n",
        calibration.profile.machine,
        table(&calibration),
        arguments.out.display(),
    ))
}

/// How many numbers of a profile were measured, and how many there are.
fn bases(profile: &str) -> anyhow::Result<(usize, usize)> {
    let with = |basis: Basis| -> anyhow::Result<usize> {
        let word = serde_json::to_string(&basis).map_err(|error| anyhow!(error))?;
        Ok(profile.matches(&format!("basis = {word}")).count())
    };
    let measured = with(Basis::Calibrated)?;
    Ok((measured, measured + with(Basis::Assumed)? + with(Basis::Paper)?))
}

fn table(calibration: &Calibration) -> String {
    let mut table = show::table(&["what", "measured"]);
    for row in &calibration.rows {
        table.add_row([row.what.to_owned(), figure(row.figure)]);
    }
    table.to_string()
}

fn figure(figure: Figure) -> String {
    match figure {
        Figure::Nanos(nanos) if nanos < 1e3 => format!("{nanos:.1} ns"),
        Figure::Nanos(nanos) if nanos < 1e6 => format!("{:.1} us", nanos / 1e3),
        Figure::Nanos(nanos) => format!("{:.1} ms", nanos / 1e6),
        Figure::Rate(BytesPerSecond(rate)) => format!("{:.1} GB/s", rate as f64 / 1e9),
        Figure::Size(size) => size.to_string(),
        Figure::Tlb(tlb) => format!("{} entries, {} ways", tlb.entries(), tlb.ways()),
    }
}
