//! Pictures of what was measured, as SVG: bloat by address, bars, rows, lines. Not what is measured.
//!
//! Text stays text in the file, so no font is needed to draw, and none of it may rely on exact
//! widths. The colours are those of Okabe and Ito, told apart by colour-blind people too.

mod bars;
mod bloat;
mod frame;
mod lines;
mod rows;

pub use bars::{Bars, bars};
pub use bloat::bloat_by_address;
pub use lines::{Lines, lines};
pub use rows::{Row, Rows, Scaling, rows};

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::{Builder, NamedTempFile};

/// This module's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is nothing to show.
    #[error("there is nothing to draw")]
    Empty,
    /// A row of values is not as long as the row of categories.
    #[error("{series} has {values} values for {categories} categories")]
    Uneven {
        /// The series.
        series: String,
        /// How many values it has.
        values: usize,
        /// How many it should have.
        categories: usize,
    },
    /// The drawing failed.
    #[error("the drawing failed: {detail}")]
    Draw {
        /// How.
        detail: String,
    },
    /// The file could not be written.
    #[error("the file could not be written: {detail}")]
    Write {
        /// Why.
        detail: String,
    },
}

/// Writes all of it or nothing: what was there stays if it cannot be written.
fn write(path: &Path, svg: &str) -> Result<()> {
    let write = || {
        let mut file = beside(path)?;
        file.write_all(svg.as_bytes())?;
        file.persist(path).map_err(|error| error.error)
    };
    write().map(|_| ()).map_err(|error| Error::Write { detail: error.to_string() })
}

/// A file in the directory of `path`, which goes away unless it is given that name.
fn beside(path: &Path) -> std::io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let permissions = Permissions::from_mode(0o666);
    Builder::new().permissions(permissions).tempfile_in(directory.unwrap_or(Path::new(".")))
}

/// Tries whether a picture could be written to `path`, before the work that it is of.
///
/// # Errors
/// [`Error::Write`].
pub fn try_path(path: &Path) -> Result<()> {
    beside(path).map(|_| ()).map_err(|error| Error::Write { detail: error.to_string() })
}

/// Any number in as few characters as tell it: `0.0025`, `0.04`, `1.32`, `52.1`, `2150`.
fn short(value: f64) -> String {
    /// What is less comes of arithmetic.
    const NOTHING: f64 = 1e-9;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 3 and 10, by the arms above"
    )]
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size < NOTHING => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        size => (1.0 - size.log10().floor()) as usize,
    };
    let text = format!("{value:.digits$}");
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::Share;

    /// Checks that `svg` is well-formed, as far as what we write goes, and gives its text.
    pub(super) fn texts_of(svg: &str) -> Vec<String> {
        let mut open = Vec::new();
        let mut texts = Vec::new();
        for part in svg.split('<').skip(1) {
            let (tag, text) = part.split_once('>').expect("a tag is closed");
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag:?}");
            assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag:?}");
            match (tag.strip_prefix('/'), tag.strip_suffix('/')) {
                (Some(name), _) => assert_eq!(open.pop(), Some(name.to_owned())),
                (None, Some(_)) => {}
                (None, None) => open.extend(tag.split_whitespace().next().map(str::to_owned)),
            }
            for entity in text.split('&').skip(1) {
                let known = ["lt;", "gt;", "amp;", "quot;", "apos;"];
                assert!(known.iter().any(|name| entity.starts_with(name)), "{text:?}");
            }
            if !text.trim().is_empty() {
                texts.push(text.trim().to_owned());
            }
        }
        assert!(open.is_empty(), "left open: {open:?}");
        assert!(!svg.contains(|c: char| c.is_control() && c != '\n'), "no control characters");
        texts
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (2.54e-3, "0.0025"),
            (0.04, "0.04"),
            (1.5, "1.5"),
            (52.13, "52.1"),
            (2150.4, "2150"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(100.0), "100");
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let error = bloat_by_address(Path::new("/nonexistent/a.svg"), "title", &[Some(Share::ALL)]);
        assert!(matches!(error, Err(Error::Write { .. })));
    }
}
