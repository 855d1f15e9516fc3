//! `/proc/cpuinfo`: which processors the machine has.
//!
//! Written for people, and different on every architecture: whatever is missing is `None`.
//! [proc_cpuinfo(5)](https://man7.org/linux/man-pages/man5/proc_cpuinfo.5.html).

use crate::error::Result;
use crate::text;
use std::collections::BTreeSet;
use std::path::Path;

/// The processors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpuinfo {
    /// Hardware threads.
    pub threads: u64,
    /// Sockets, where they are told apart.
    pub sockets: Option<u64>,
    /// The name of the first.
    pub model: Option<String>,
    /// Its frequency in MHz; in a virtual machine, what the hypervisor says.
    pub mhz: Option<f64>,
    /// Whether a hypervisor runs this system.
    pub is_guest: bool,
}

/// The processors, from `cpuinfo` in `proc_root` (normally `/proc`).
///
/// # Errors
/// [`crate::Error::Missing`] or [`crate::Error::Denied`].
pub fn read(proc_root: &Path) -> Result<Cpuinfo> {
    Ok(parse(&text::read(&proc_root.join("cpuinfo"))?))
}

fn parse(bytes: &[u8]) -> Cpuinfo {
    let mut found = Cpuinfo::default();
    let mut sockets = BTreeSet::new();
    for (_, line) in text::lines(bytes) {
        let line = String::from_utf8_lossy(line);
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "processor" => found.threads += 1,
            "physical id" => _ = sockets.insert(value.to_owned()),
            "model name" if found.model.is_none() => found.model = Some(value.to_owned()),
            "cpu MHz" if found.mhz.is_none() => found.mhz = value.parse().ok(),
            "flags" => found.is_guest |= value.split(' ').any(|flag| flag == "hypervisor"),
            _ => {}
        }
    }
    found.sockets = u64::try_from(sockets.len()).ok().filter(|count| *count > 0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sockets_and_names_are_found() {
        let thread = |id: u32, socket: u32| {
            format!(
                "processor\t: {id}\nmodel name\t: Some CPU @ 2.30GHz\ncpu MHz\t\t: 2294.{id}\n\
                 physical id\t: {socket}\nflags\t\t: fpu hypervisor sse\n\n"
            )
        };
        let text: String = [(0, 0), (1, 0), (2, 1)].map(|(id, socket)| thread(id, socket)).concat();
        let expected = Cpuinfo {
            threads: 3,
            sockets: Some(2),
            model: Some("Some CPU @ 2.30GHz".to_owned()),
            mhz: Some(2294.0),
            is_guest: true,
        };
        assert_eq!(parse(text.as_bytes()), expected);
    }

    #[test]
    fn what_is_missing_is_none() {
        assert_eq!(parse(b"processor\t: 0\nBogoMIPS\t: 50.00\n").threads, 1);
        assert_eq!(parse(b"nothing here"), Cpuinfo::default());
    }

    #[test]
    fn this_machine_has_one() {
        assert!(read(Path::new("/proc")).expect("there").threads > 0);
    }
}
