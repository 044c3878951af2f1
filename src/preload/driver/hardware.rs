//! Identifies the GPU of a device within the machine. A device's number identifies it only within a
//! process: `CUDA_VISIBLE_DEVICES` renumbers devices.

use core::ffi::CStr;
use core::fmt::Write;

use crate::driver::api;
use crate::driver::sys::{CuResult, Uuid};

#[derive(Default)]
pub(crate) struct Hardware {
    /// Id of the device, or `None` if the driver does not report it.
    pub id: Option<Uuid>,
    /// The id as NVIDIA's tools write it, or `None` if the driver does not report it.
    pub uuid: Option<String>,
    /// Id of the GPU that the device is a part of (MIG).
    pub whole_uuid: Option<String>,
    /// PCI address, such as `0000:01:00.0`.
    pub pci: Option<String>,
}

/// The longest address has 13 bytes.
const PCI_BYTES_MAX: usize = 32;

impl Hardware {
    pub(crate) fn of(device: i32) -> Hardware {
        let ask = |function: fn(&mut Uuid, i32) -> CuResult| {
            let mut uuid = Uuid::default();
            function(&mut uuid, device).is_ok().then_some(uuid)
        };
        // Before driver 11.4 there is only the first version, and parts cannot be distinguished.
        let whole = ask(api::device_get_uuid_of_whole);
        let own = ask(api::device_get_uuid_of_part).or(whole);
        let is_part = own != whole && whole.is_some();
        let mut pci = [0; PCI_BYTES_MAX];
        let code = api::device_get_pci_bus_id(&mut pci, PCI_BYTES_MAX as i32, device);
        let pci = CStr::from_bytes_until_nul(&pci).ok().filter(|_| code.is_ok());
        Hardware {
            id: own,
            uuid: own.map(|uuid| text(if is_part { "MIG" } else { "GPU" }, &uuid)),
            whole_uuid: whole.filter(|_| is_part).map(|uuid| text("GPU", &uuid)),
            pci: pci.map(|pci| pci.to_string_lossy().into_owned()),
        }
    }
}

fn text(begin: &str, uuid: &Uuid) -> String {
    let mut text = begin.to_string();
    for (at, byte) in uuid.iter().enumerate() {
        let dash = if [0, 4, 6, 8, 10].contains(&at) { "-" } else { "" };
        let _ = write!(text, "{dash}{byte:02x}"); // writing to a string cannot fail
    }
    text
}
