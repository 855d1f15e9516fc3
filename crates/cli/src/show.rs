//! What people read: tables, bars and progress, and the one way onto standard output.

pub(crate) mod action;

use crate::exit::Outcome;
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use superpage_units::{Nanos, Share};

/// Writes `text` to standard output. What a terminal would obey is spelled out as JSON does, whose writer leaves such
/// characters beyond the first 128 as they are.
pub(crate) fn print(text: &str) -> Outcome {
    let is_obeyed = |c: char| c > '\u{7f}' && obeys(c);
    if !text.contains(is_obeyed) {
        return print_bytes(text.as_bytes());
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)))
        } else {
            shown.push(c)
        }
    }
    print_bytes(shown.as_bytes())
}

/// Writes `bytes` to standard output.
pub(crate) fn print_bytes(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// Says `text` on standard error, beside what is printed; whether somebody reads it does not matter.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "superpage: {text}");
}

/// Prints whole lines on standard error; whether somebody reads them does not matter.
pub(crate) fn report(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A text that somebody else chose, such as a command's name, without what a terminal would obey:
/// control characters are spelled out, and so are those that turn the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if obeys(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Whether a terminal does something other than showing a character, or shows what follows in another order.
fn obeys(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Lines above, under the head and below; none between rows.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// A terminal that says it has fewer columns does not know: a serial console says 0.
const NARROWEST: u16 = 40;
/// How wide a terminal is that does not know, in columns.
const USUAL: u16 = 80;

/// The columns that what is printed may take, where the terminal does not know how many it has.
pub(crate) fn columns_where_unknown() -> Option<u16> {
    Table::new().width().filter(|columns| *columns < NARROWEST).map(|_| USUAL)
}

/// A table with these column heads, as wide as the terminal allows.
pub(crate) fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    if let Some(columns) = columns_where_unknown() {
        table.set_width(columns);
    }
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_header(heads);
    table
}

/// A bar of up to `width` characters for `share`.
pub(crate) fn bar(share: Share, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the width"
    )]
    let eighths = (share.get() * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// A block character, the fuller the higher `share` is.
pub(crate) fn level(share: Share) -> char {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the table"
    )]
    let index = (share.get() * 8.0).round() as usize;
    LEVELS[index]
}

/// A ratio of `0.4213` as `42.1 %`, for one that may be more than all.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// A time in three digits: `930 ns`, `1.25 µs`, `210 µs`, `12.0 ms`, `3.40 s`.
pub(crate) fn time(time: Nanos) -> String {
    let nanos = time.0 as f64;
    let (number, unit) = match time.0 {
        0..1_000 => return format!("{} ns", time.0),
        1_000..1_000_000 => (nanos / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = if number >= 99.95 { 0 } else { 1 + usize::from(number < 9.995) };
    format!("{number:.digits$} {unit}")
}

/// A progress bar on standard error; invisible where that is not a terminal.
pub(crate) fn progress(length: u64, template: &str) -> ProgressBar {
    ProgressBar::new(length).with_style(bar_style(template))
}

/// How a progress bar looks; the templates are this program's own.
pub(crate) fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("█▌ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_command_the_terminal() {
        assert_eq!(printable("redis-server über"), "redis-server über");
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("\u{61c}"), "\\u{61c}");
        assert_eq!(printable("a\u{202e}cod.exe\u{9b}1m"), "a\\u{202e}cod.exe\\u{9b}1m");
    }

    #[test]
    fn bars_and_levels_grow_with_the_share() {
        let shares = [Share::NONE, Share::percent(50), Share::ALL];
        assert_eq!(shares.map(|share| bar(share, 4)), ["", "██", "████"]);
        let times = [930, 1_254, 99_960, 210_000, 12_000_000, 3_400_000_000].map(Nanos).map(time);
        assert_eq!(times, ["930 ns", "1.25 µs", "100 µs", "210 µs", "12.0 ms", "3.40 s"]);
        assert_eq!(shares.map(level), [' ', '▄', '█']);
    }
}
