//! A virtual machine's balloon (virtio) that tells its host which memory is free, so that the host takes that back (free page
//! reporting). The kernel reports free chunks of some size only.
//! [Free page reporting](https://docs.kernel.org/mm/free_page_reporting.html).

use crate::error::Result;
use crate::text;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// The feature of the device (`VIRTIO_BALLOON_F_REPORTING`).
const REPORTING: usize = 5;
/// The order of the smallest chunk that is reported where the kernel does not say: a huge page's.
const USUAL: u64 = 9;
/// The order of the largest free chunk that a kernel keeps.
const LARGEST: u64 = 10;

/// The smallest free chunk that this machine reports to its host, where that is more than a base page, so that the host gets
/// nothing of what a split frees; `None` where nothing, or every free page, is reported. Below `sys_root` (normally `/sys`).
///
/// # Errors
/// [`Error::Denied`](crate::Error::Denied), [`Error::Malformed`](crate::Error::Malformed).
pub fn unreported_below(sys_root: &Path) -> Result<Option<Bytes>> {
    let devices = std::fs::read_dir(sys_root.join("bus/virtio/drivers/virtio_balloon"));
    let files =
        devices.into_iter().flatten().flatten().map(|device| device.path().join("features"));
    // A device that is just being removed has no such file.
    let mut features = files.filter_map(|file| text::read(&file).ok());
    if !features.any(|bits| bits.get(REPORTING) == Some(&b'1')) {
        return Ok(None);
    }
    let order = sys_root.join("module/page_reporting/parameters/page_reporting_order");
    let order = if order.exists() { text::read_decimal(&order)? } else { USUAL };
    Ok((1..=LARGEST).contains(&order).then_some(Bytes(BASE_PAGE_BYTES << order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_says_whether_and_the_kernel_from_which_size_on() {
        let sys = tempfile::tempdir().expect("a directory");
        let of = || unreported_below(sys.path()).expect("readable");
        assert_eq!(of(), None, "there is no balloon");
        let device = sys.path().join("bus/virtio/drivers/virtio_balloon/virtio0");
        std::fs::create_dir_all(&device).expect("made");
        let has = |bits: &str| std::fs::write(device.join("features"), bits).expect("written");
        has("01100001\n");
        assert_eq!(of(), None, "it does not report");
        has("01100101\n");
        assert_eq!(of(), Some(Bytes::from_mib(2)));
        let parameters = sys.path().join("module/page_reporting/parameters");
        std::fs::create_dir_all(&parameters).expect("made");
        for (order, least) in [
            ("0", None),
            ("1", Some(Bytes::from_kib(8))),
            ("9", Some(Bytes::from_mib(2))),
            ("11", None),
        ] {
            std::fs::write(parameters.join("page_reporting_order"), order).expect("written");
            assert_eq!(of(), least, "{order}");
        }
    }
}
