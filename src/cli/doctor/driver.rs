//! Examines NVIDIA's driver and the devices that it shows. Creates no context, which would take
//! device memory.

use std::ffi::OsStr;

use cachealloc_text::bytes;
use serde::{Deserialize, Serialize};

use super::asked::ask;
use super::finding::{Finding, Severity};
use super::lacking;
use crate::kernel::libraries::Loaded;

const NAME: &str = "libcuda.so.1";
/// More devices would not fit on a screen with the rest.
const DEVICES_SHOWN_MOST: usize = 8;

#[derive(Serialize, Deserialize)]
struct Driver {
    file: Option<String>,
    version: Option<i32>,
    lacks: Vec<String>,
    /// Name, bytes and PCI address of each device, or why the driver does not start.
    devices: Result<Vec<(String, u64, String)>, String>,
}

pub(super) fn examine() -> Vec<Finding> {
    let finding = |severity, text: String| Finding::new(severity, "driver", text);
    let driver = match ask(look) {
        Ok(Ok(driver)) => driver,
        // The loader's message names the library.
        Ok(Err(why)) => return vec![finding(Severity::Fail, why)],
        Err(why) => return vec![finding(Severity::Fail, format!("{NAME}: {why}"))],
    };
    let file = driver.file.unwrap_or_else(|| NAME.to_string());
    let version = match driver.version {
        Some(version) => format!("{file}: CUDA {}.{}", version / 1000, version % 1000 / 10),
        None => format!("{file}: unknown version"),
    };
    let lacking = lacking::explain(driver.version, &driver.lacks);
    match driver.devices {
        Err(why) => {
            vec![finding(Severity::Fail, format!("{version}; it fails to initialize: {why}"))]
        }
        Ok(devices) if devices.is_empty() => {
            vec![finding(Severity::Fail, format!("{version}; it reports no device"))]
        }
        Ok(devices) => {
            let mut findings = vec![finding(Severity::Fine, version)];
            findings.extend(lacking);
            findings.extend(devices_of(&devices));
            findings
        }
    }
}

/// Queries the driver. Runs in the separate process.
fn look() -> Result<Driver, String> {
    let driver = Loaded::open(OsStr::new(NAME))?;
    let file = driver.file_of(c"cuDriverGetVersion");
    let devices = driver.start_driver().map(|()| {
        let devices = driver.devices().into_iter();
        devices.map(|device| (device.name, device.bytes, device.pci)).collect()
    });
    let file = file.map(|file| file.display().to_string());
    Ok(Driver { file, version: driver.driver_version(), lacks: lacking::of(&driver), devices })
}

fn devices_of(devices: &[(String, u64, String)]) -> Vec<Finding> {
    let fine = |text: String| Finding::new(Severity::Fine, "GPU", text);
    let shown = devices.iter().enumerate().take(DEVICES_SHOWN_MOST);
    let mut findings: Vec<Finding> = shown
        .map(|(number, (name, size, pci))| {
            fine(format!("{number}: {name}, {}, {pci}", bytes(*size)))
        })
        .collect();
    if devices.len() > DEVICES_SHOWN_MOST {
        findings.push(fine(format!("and {} more", devices.len() - DEVICES_SHOWN_MOST)));
    }
    if let Some(visible) = std::env::var_os("CUDA_VISIBLE_DEVICES") {
        let visible = visible.to_string_lossy();
        let text = format!("CUDA_VISIBLE_DEVICES={visible} selects and numbers them");
        findings.push(Finding::new(Severity::Note, "GPU", text));
    }
    findings
}
