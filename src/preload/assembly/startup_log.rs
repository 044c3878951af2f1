//! The `log:info` line at the first context: the device and driver, and the features in force.

use core::ffi::CStr;

use cachealloc_options::Word;

use crate::driver::api;
use crate::driver_memory::limits;
use crate::state::contexts;
use crate::{config, log};

/// The driver truncates longer device names.
const NAME_BYTES_MAX: usize = 64;

/// Call once, when the first context was seen, with no lock held.
pub(crate) fn say() {
    if !log::informs() {
        return;
    }
    let Some(context) = contexts::every().next() else { return };
    let config = config::get();
    let mut name = [0; NAME_BYTES_MAX];
    let code = api::device_get_name(&mut name, NAME_BYTES_MAX as i32, context.device);
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| code.is_ok());
    let name = name.map_or("unknown".into(), CStr::to_string_lossy);
    let version = api::driver_get_version().unwrap_or(0); // 0 is no version
    let (major, minor) = (version / 1000, version % 1000 / 10);
    let caching = match config.caches() {
        true => config.strategy.word(),
        false => "off",
    };
    let (mode, record) = (config.free_mode.word(), config.history.record.word());
    let limit = match limits::of(context.device) {
        Some(bytes) => cachealloc_text::bytes(bytes),
        None => "none".to_string(),
    };
    log::info(format_args!(
        "device {}: {name}, driver {major}.{minor}; caching: {caching}, free_mode: {mode}, \
         record: {record}, limit: {limit}",
        context.device
    ));
}
