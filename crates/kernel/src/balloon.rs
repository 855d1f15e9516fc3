//! A virtual machine's balloon (virtio) that tells its host which memory is free, so that the host takes that back (free page
//! reporting). Only free chunks of some size are told of.
//! [Free page reporting](https://docs.kernel.org/mm/free_page_reporting.html).

use crate::error::Result;
use crate::text;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// The feature of the device (`VIRTIO_BALLOON_F_REPORTING`).
const REPORTING: usize = 5;
/// Chunks of this order are told of where the kernel does not say: those of a huge page.
const USUAL: u64 = 9;
/// There are no larger free chunks.
const LARGEST: u64 = 10;

/// The smallest free chunk that this machine tells its host of; `None` if it tells of none. Below `sys_root` (normally `/sys`).
///
/// # Errors
/// [`Error::Denied`](crate::Error::Denied), [`Error::Malformed`](crate::Error::Malformed).
pub fn least_reported(sys_root: &Path) -> Result<Option<Bytes>> {
    let devices = std::fs::read_dir(sys_root.join("bus/virtio/drivers/virtio_balloon"));
    let files =
        devices.into_iter().flatten().flatten().map(|device| device.path().join("features"));
    // One that is just being taken away has none.
    let mut features = files.filter_map(|file| text::read(&file).ok());
    if !features.any(|bits| bits.get(REPORTING) == Some(&b'1')) {
        return Ok(None);
    }
    let order = sys_root.join("module/page_reporting/parameters/page_reporting_order");
    let order = if order.exists() { text::read_decimal(&order)? } else { USUAL };
    Ok((order <= LARGEST).then_some(Bytes(BASE_PAGE_BYTES << order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_says_whether_and_the_kernel_from_which_size_on() {
        let sys = tempfile::tempdir().expect("a directory");
        let of = || least_reported(sys.path()).expect("readable");
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
        for (order, least) in
            [("0", Some(Bytes::from_kib(4))), ("9", Some(Bytes::from_mib(2))), ("11", None)]
        {
            std::fs::write(parameters.join("page_reporting_order"), order).expect("written");
            assert_eq!(of(), least, "{order}");
        }
    }
}
