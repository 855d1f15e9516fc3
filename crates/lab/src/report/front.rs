//! The front page: a line for each finding of each paper, with what is found here and the verdict, and how far simulated numbers
//! are from the papers'. Its words are in `front.md`, which says where the tables go.

use super::finding::{Finding, Number, Pair, Side, mark, verdict};
use super::page::{MADE, Page};
use super::{Error, Result, Source, errors};

/// The file, from the documents' directory.
pub(super) const FILE: &str = "results.md";
/// The places of the tables in the words.
const FINDINGS: &str = "<!-- findings -->";
const ERRORS: &str = "<!-- errors -->";
const PAGES: &str = "<!-- pages -->";

/// Whether the words have each place of a table once.
///
/// # Errors
/// In words: a place is not there, or is there more than once.
pub(super) fn check(words: &str) -> std::result::Result<(), String> {
    match [FINDINGS, ERRORS, PAGES].iter().find(|place| words.matches(*place).count() != 1) {
        Some(place) => Err(format!("{place} has to be in it once, where that table goes")),
        None => Ok(()),
    }
}

/// The text of the front page.
pub(super) fn text(source: &Source) -> Result<String> {
    let words = source
        .front
        .trim_start()
        .replace(FINDINGS, findings(source)?.trim_end())
        .replace(ERRORS, errors::table(&source.runs).trim_end())
        .replace(PAGES, pages(source).trim_end());
    Ok(format!("{MADE}{words}"))
}

fn findings(source: &Source) -> Result<String> {
    let mut text = String::from(
        "| paper | what it found | live | verdict | simulated | verdict |\n|---|---|---|---|---|---|\n",
    );
    for finding in &source.findings {
        let Finding { paper, place, found, live, sim } = finding;
        let (live, sim) =
            (cells(finding, live, "live", source)?, cells(finding, sim, "sim", source)?);
        text.push_str(&format!("| {paper}, {place} | {found} | {live} | {sim} |\n"));
    }
    Ok(text)
}

/// The cells of what is found on a machine, and of the verdict.
fn cells(finding: &Finding, side: &Side, machine: &str, source: &Source) -> Result<String> {
    let remark = side.remark.as_ref().map_or(String::new(), |remark| format!(": {remark}"));
    let cannot = side.cannot.as_ref().map(|why| format!("cannot be had ({why})"));
    let name = format!("findings.toml, {}, {}", finding.paper, finding.place);
    if side.numbers.is_empty() {
        let detail = || format!("neither numbers nor `cannot` on {machine}");
        let cannot = cannot.ok_or_else(|| Error::Finding { finding: name, detail: detail() })?;
        return Ok(format!("– | {cannot}{remark}"));
    }
    let (numbers, said) = measured(&side.numbers, &name, (machine, "results/"), source)?;
    let verdict = cannot.unwrap_or_else(|| verdict(&numbers).name().to_owned());
    Ok(format!("{said} | {verdict}{remark}"))
}

/// The numbers of `name` as rows of a machine have them, and the same in words: the numbers of each experiment are a link to its
/// section, in `directory`.
pub(super) fn measured<'a>(
    numbers: &'a [Number],
    name: &str,
    (machine, directory): (&str, &str),
    source: &Source,
) -> Result<(Vec<(&'a Number, Pair)>, String)> {
    let explain = |detail| Error::Finding { finding: name.to_owned(), detail };
    let look = |number: &'a Number| {
        number.look_up(&source.runs, machine).map(|pair| (number, pair)).map_err(explain)
    };
    let found: Vec<(&Number, Pair)> = numbers.iter().map(look).collect::<Result<_>>()?;
    let link = |said: &[(&Number, Pair)]| {
        let rows = said.first().map_or("", |(number, _)| number.rows.as_str());
        let said: Vec<String> = said.iter().map(|(number, pair)| say(number, *pair)).collect();
        format!("[{}]({directory}{}.md#{rows})", listed(&said), Page::of(rows))
    };
    let linked: Vec<String> =
        found.chunk_by(|one, two| one.0.rows == two.0.rows).map(link).collect();
    let said = linked.join("; ");
    Ok((found, said))
}

/// Units that stand behind a number at once.
const UNITS: [&str; 6] = ["%", "GiB", "GB", "GB/s", "ms", "s"];

/// A number with its unit, a letter for its basis, words, and in brackets the paper's number.
fn say(number: &Number, pair: Pair) -> String {
    let (unit, words) = match number.unit.split_once(' ') {
        Some((unit, words)) if UNITS.contains(&unit) => (unit, words),
        None if UNITS.contains(&number.unit.as_str()) => (number.unit.as_str(), ""),
        _ => ("", number.unit.as_str()),
    };
    let [unit, words] = [unit, words].map(|text| {
        let space = if text.is_empty() { "" } else { " " };
        format!("{space}{text}")
    });
    let paper = pair.paper.map_or_else(String::new, |paper| format!(" ({})", digits(paper, 4)));
    format!("{}{unit}{}{words}{paper}", digits(pair.ours, 3), mark(pair.basis))
}

/// So many digits, or all before the point.
fn digits(number: f64, count: usize) -> String {
    let before = match number.abs() {
        size if size >= 100.0 => 3,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 1,
        _ => 0,
    };
    let text = format!("{number:.decimals$}", decimals = count.saturating_sub(before));
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

/// Words as a list: "a, b and c".
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The pages, and how many tables each has.
fn pages(source: &Source) -> String {
    let line = |page: &Page| {
        let of = |machine: &str| {
            let runs = source.runs.iter().filter(|run| run.head.machine == machine);
            runs.filter(|run| page.has(&run.head.experiment)).count()
        };
        format!("| [{}](results/{}.md) | {} | {} |\n", page.title, page.name, of("live"), of("sim"))
    };
    let head = "| page | live tables | simulated tables |\n|---|---:|---:|\n";
    format!("{head}{}", Page::ALL.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{ERRORS, FINDINGS, Number, PAGES, Pair, check, digits, listed, say};
    use crate::experiment::sim::Basis;

    #[test]
    fn a_letter_stands_behind_a_unit_and_before_words() {
        let said = |unit: &str| {
            let text = format!("rows = \"a\"\nof = {{}}\nunit = \"{unit}\"");
            let number: Number = toml::from_str(&text).unwrap();
            say(&number, Pair { ours: 14.3, paper: Some(14.0), basis: Some(Basis::Fitted) })
        };
        assert_eq!([said("%"), said("")], ["14.3 % f (14)", "14.3 f (14)"]);
        assert_eq!(said("% of ranges"), "14.3 % f of ranges (14)");
        assert_eq!(said("of its huge pages"), "14.3 f of its huge pages (14)");
    }

    #[test]
    fn words_without_the_place_of_a_table_are_refused() {
        let words = [FINDINGS, ERRORS, PAGES].concat();
        assert_eq!(check(&words), Ok(()));
        assert!(check(&words.replace("findings", "finding")).unwrap_err().contains(FINDINGS));
        assert!(check(&format!("{words}{PAGES}")).is_err());
    }

    #[test]
    fn numbers_and_lists_are_short() {
        assert_eq!(
            [611.4, 12.34, 1.304, 0.9876, 2.0, 0.05].map(|number| digits(number, 3)),
            ["611", "12.3", "1.3", "0.988", "2", "0.05"]
        );
        assert_eq!([1.125, 2146.0].map(|number| digits(number, 4)), ["1.125", "2146"]);
        let words = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(listed(&words), "a, b and c");
        assert_eq!(listed(&words[..1]), "a");
    }
}
