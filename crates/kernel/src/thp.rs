//! `/sys/kernel/mm/transparent_hugepage`: the kernel's own huge-page knobs, typed.
//!
//! Reading needs no rights; writing passes [`Settings`], which puts back. The counters of what
//! the kernel does with huge pages are in [`vmstat`](crate::vmstat).
//! [Transparent Hugepage Support](https://docs.kernel.org/admin-guide/mm/transhuge.html).

use crate::error::{Error, Result};
use crate::settings::{self, Change, Settings};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use superpage_units::{BasePages, Nanos};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A knob: a file of the directory, and the type of its value.
#[derive(Debug)]
pub struct Knob<T> {
    file: &'static str,
    value: PhantomData<fn() -> T>,
}

// By hand, because a derived one would ask the same of `T`.
impl<T> Clone for Knob<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Knob<T> {}

impl<T> Knob<T> {
    const fn at(file: &'static str) -> Self {
        Self { file, value: PhantomData }
    }

    /// The file's name within the directory.
    #[must_use]
    pub const fn file(self) -> &'static str {
        self.file
    }
}

/// Which anonymous memory gets huge pages.
pub const ENABLED: Knob<Enabled> = Knob::at("enabled");
/// How hard a page fault tries for a huge page.
pub const DEFRAG: Knob<Defrag> = Knob::at("defrag");
/// Which shared memory gets huge pages.
pub const SHMEM_ENABLED: Knob<ShmemEnabled> = Knob::at("shmem_enabled");
/// Whether a read fault maps a shared huge page of zeroes.
pub const USE_ZERO_PAGE: Knob<Switch> = Knob::at("use_zero_page");
/// Whether reclaim splits huge pages with more zero pages than [`MAX_PTES_NONE`] (Linux 6.13).
pub const SHRINK_UNDERUSED: Knob<Switch> = Knob::at("shrink_underused");
/// How many base pages of a range may be empty for khugepaged to make it a huge page; also, how
/// many may be zero-filled before the shrinker splits it.
pub const MAX_PTES_NONE: Knob<BasePages> = Knob::at("khugepaged/max_ptes_none");
/// Whether khugepaged compacts memory to get huge pages.
pub const KHUGEPAGED_DEFRAG: Knob<Switch> = Knob::at("khugepaged/defrag");
/// How many base pages khugepaged looks at between two sleeps.
pub const PAGES_TO_SCAN: Knob<BasePages> = Knob::at("khugepaged/pages_to_scan");
/// How long khugepaged sleeps between two scans; in whole milliseconds, rounded up.
pub const SCAN_SLEEP: Knob<Nanos> = Knob::at("khugepaged/scan_sleep_millisecs");

/// What a knob can hold.
pub trait Value: Sized {
    /// What the file should hold, for messages.
    const EXPECTED: &'static str;

    /// The value that `text` means, if it means one.
    fn from_text(text: &str) -> Option<Self>;

    /// The text to write.
    fn to_text(&self) -> String;
}

/// A value that is one of some words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $value:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of])* $value,)+
        }

        impl $name {
            /// Every value there is.
            pub const ALL: &[Self] = &[$(Self::$value),+];
        }

        impl Value for $name {
            const EXPECTED: &'static str = concat!("one of", $(" ", $word),+);

            fn from_text(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$value),)+
                    _ => None,
                }
            }

            fn to_text(&self) -> String {
                match self {
                    $(Self::$value => $word,)+
                }
                .to_owned()
            }
        }
    };
}

words! {
    /// Which anonymous memory gets huge pages.
    Enabled {
        /// All.
        Always = "always",
        /// What asked for it by madvise(2).
        Madvise = "madvise",
        /// None.
        Never = "never",
    }
}
words! {
    /// How hard a page fault tries for a huge page.
    Defrag {
        /// Reclaims and compacts at once.
        Always = "always",
        /// Wakes the background threads and takes a base page.
        Defer = "defer",
        /// At once for memory that asked by madvise(2), in the background for the rest.
        DeferMadvise = "defer+madvise",
        /// At once for memory that asked by madvise(2), not at all for the rest.
        Madvise = "madvise",
        /// Not at all.
        Never = "never",
    }
}
words! {
    /// Which shared memory gets huge pages.
    ShmemEnabled {
        /// All.
        Always = "always",
        /// Huge pages that lie within the file's size.
        WithinSize = "within_size",
        /// What asked for it by madvise(2).
        Advise = "advise",
        /// None.
        Never = "never",
        /// None, also where a mount option says otherwise.
        Deny = "deny",
        /// All, also where a mount option says otherwise; for testing.
        Force = "force",
    }
}
words! {
    /// Off or on.
    Switch {
        /// Off.
        Off = "0",
        /// On.
        On = "1",
    }
}

impl Value for BasePages {
    const EXPECTED: &'static str = "a number of base pages";

    fn from_text(text: &str) -> Option<Self> {
        crate::text::decimal(text.as_bytes()).map(Self)
    }

    fn to_text(&self) -> String {
        self.0.to_string()
    }
}

/// In milliseconds.
impl Value for Nanos {
    const EXPECTED: &'static str = "a number of milliseconds";

    fn from_text(text: &str) -> Option<Self> {
        let millis = crate::text::decimal(text.as_bytes())?;
        Some(Self(millis.saturating_mul(NANOS_PER_MILLI)))
    }

    fn to_text(&self) -> String {
        self.0.div_ceil(NANOS_PER_MILLI).to_string()
    }
}

/// The directory of knobs.
#[derive(Clone, Debug)]
pub struct Thp {
    directory: PathBuf,
}

impl Thp {
    /// The knobs under `sysfs_root` (normally `/sys`). Nothing is looked at yet.
    #[must_use]
    pub fn under(sysfs_root: &Path) -> Self {
        Self { directory: sysfs_root.join("kernel/mm/transparent_hugepage") }
    }

    /// The file of `knob`.
    #[must_use]
    pub fn path<T>(&self, knob: Knob<T>) -> PathBuf {
        self.directory.join(knob.file)
    }

    /// What `knob` is set to.
    ///
    /// # Errors
    /// [`Error::Missing`] on a kernel without it, [`Error::Malformed`] if it holds something that
    /// is not known here.
    pub fn get<T: Value>(&self, knob: Knob<T>) -> Result<T> {
        let path = self.path(knob);
        let text = settings::read_value(&path)?;
        T::from_text(&text).ok_or_else(|| Error::malformed(&path, 1, T::EXPECTED, text.as_bytes()))
    }

    /// Sets `knob` to `value` until `settings` puts it back.
    ///
    /// # Errors
    /// As [`Settings::change`]; [`Error::Missing`] on a kernel without the knob.
    pub fn set<T: Value>(
        &self,
        settings: &mut Settings,
        knob: Knob<T>,
        value: T,
    ) -> Result<Change> {
        settings.change(&self.path(knob), &value.to_text())
    }

    /// All knobs at once, for showing.
    ///
    /// # Errors
    /// As [`Thp::get`], except that a knob that newer kernels brought may be missing.
    pub fn state(&self) -> Result<State> {
        Ok(State {
            enabled: self.get(ENABLED)?,
            defrag: self.get(DEFRAG)?,
            shmem_enabled: self.get_if_any(SHMEM_ENABLED)?,
            use_zero_page: self.get_if_any(USE_ZERO_PAGE)?,
            shrink_underused: self.get_if_any(SHRINK_UNDERUSED)?,
            max_ptes_none: self.get(MAX_PTES_NONE)?,
            khugepaged_defrag: self.get(KHUGEPAGED_DEFRAG)?,
            pages_to_scan: self.get(PAGES_TO_SCAN)?,
            scan_sleep: self.get(SCAN_SLEEP)?,
        })
    }

    fn get_if_any<T: Value>(&self, knob: Knob<T>) -> Result<Option<T>> {
        match self.get(knob) {
            Err(Error::Missing { .. }) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// What all knobs are set to; `None` where the kernel lacks one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// [`ENABLED`].
    pub enabled: Enabled,
    /// [`DEFRAG`].
    pub defrag: Defrag,
    /// [`SHMEM_ENABLED`].
    pub shmem_enabled: Option<ShmemEnabled>,
    /// [`USE_ZERO_PAGE`].
    pub use_zero_page: Option<Switch>,
    /// [`SHRINK_UNDERUSED`].
    pub shrink_underused: Option<Switch>,
    /// [`MAX_PTES_NONE`].
    pub max_ptes_none: BasePages,
    /// [`KHUGEPAGED_DEFRAG`].
    pub khugepaged_defrag: Switch,
    /// [`PAGES_TO_SCAN`].
    pub pages_to_scan: BasePages,
    /// [`SCAN_SLEEP`].
    pub scan_sleep: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Mode;
    use proptest::prelude::*;
    use std::fs;

    fn fixture() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sys")
    }

    /// A copy of the fixture that may be written.
    fn copy() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        let to = Thp::under(&root.path().join("sys")).directory;
        let from = Thp::under(&fixture()).directory;
        fs::create_dir_all(to.join("khugepaged")).expect("created");
        for sub in ["", "khugepaged"] {
            for entry in fs::read_dir(from.join(sub)).expect("listed").flatten() {
                if entry.path().is_file() {
                    fs::copy(entry.path(), to.join(sub).join(entry.file_name())).expect("copied");
                }
            }
        }
        root
    }

    fn open(root: &Path) -> Settings {
        Settings::open_under(root, &root.join("state"), Mode::Apply).expect("opens").0
    }

    #[test]
    fn a_real_directory_reads() {
        let state = Thp::under(&fixture()).state().expect("the fixture is good");
        assert_eq!(state.enabled, Enabled::Madvise);
        assert_eq!(state.defrag, Defrag::Madvise);
        assert_eq!(state.shmem_enabled, Some(ShmemEnabled::Never));
        assert_eq!(state.shrink_underused, Some(Switch::On));
        assert_eq!(state.max_ptes_none, BasePages(511));
        assert_eq!(state.scan_sleep, Nanos(10_000 * NANOS_PER_MILLI));
    }

    #[test]
    fn an_older_kernel_lacks_a_knob() {
        let root = copy();
        let thp = Thp::under(&root.path().join("sys"));
        fs::remove_file(thp.path(SHRINK_UNDERUSED)).expect("removed");
        assert_eq!(thp.state().map(|state| state.shrink_underused), Ok(None));
        assert!(matches!(thp.get(SHRINK_UNDERUSED), Err(Error::Missing { .. })));
        let mut settings = open(root.path());
        let set = thp.set(&mut settings, SHRINK_UNDERUSED, Switch::Off);
        assert!(matches!(set, Err(Error::Missing { .. })));
    }

    #[test]
    fn an_unknown_word_is_malformed() {
        let root = copy();
        let thp = Thp::under(&root.path().join("sys"));
        fs::write(thp.path(ENABLED), "always [sometimes] never\n").expect("written");
        let error = thp.get(ENABLED).expect_err("no such word");
        assert!(error.to_string().contains("one of always madvise never"), "{error}");
        assert!(error.to_string().contains("sometimes"), "{error}");
    }

    #[test]
    fn what_is_set_is_put_back() {
        let root = copy();
        let thp = Thp::under(&root.path().join("sys"));
        let mut settings = open(root.path());
        let change = thp.set(&mut settings, MAX_PTES_NONE, BasePages(51)).expect("set");
        assert_eq!((change.from.as_str(), change.to.as_str()), ("511", "51"));
        thp.set(&mut settings, ENABLED, Enabled::Always).expect("set");
        thp.set(&mut settings, SCAN_SLEEP, Nanos(1)).expect("set");
        assert_eq!(thp.get(MAX_PTES_NONE), Ok(BasePages(51)));
        assert_eq!(thp.get(ENABLED), Ok(Enabled::Always));
        assert_eq!(thp.get(SCAN_SLEEP), Ok(Nanos(NANOS_PER_MILLI)));
        drop(settings);
        assert_eq!(thp.get(MAX_PTES_NONE), Ok(BasePages(511)));
        assert_eq!(thp.get(ENABLED), Ok(Enabled::Madvise));
    }

    #[test]
    fn every_value_reads_as_it_is_written() {
        fn check<T: Value + PartialEq>(values: &[T]) {
            for value in values {
                assert!(T::from_text(&value.to_text()).as_ref() == Some(value));
            }
        }
        check(Enabled::ALL);
        check(Defrag::ALL);
        check(ShmemEnabled::ALL);
        check(Switch::ALL);
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text: String) {
            let _ = Enabled::from_text(&text);
            let _ = Defrag::from_text(&text);
            let _ = ShmemEnabled::from_text(&text);
            let _ = Switch::from_text(&text);
            let _ = Nanos::from_text(&text);
            let _ = BasePages::from_text(&text);
        }

        #[test]
        fn numbers_read_as_they_are_written(number in 0..u64::MAX / NANOS_PER_MILLI) {
            prop_assert_eq!(BasePages::from_text(&number.to_string()), Some(BasePages(number)));
            let time = Nanos(number * NANOS_PER_MILLI);
            prop_assert_eq!(Nanos::from_text(&time.to_text()), Some(time));
        }
    }
}
