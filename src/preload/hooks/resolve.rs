//! `cuGetProcAddress` and `cuGetExportTable`: the driver's own ways to reach its functions.

use core::ffi::{c_char, c_void};

use cachealloc_core::order::{UntrackedSubmission, VisibleCause};

use crate::driver::sys::{CuResult, Uuid};
use crate::driver::{libraries, table};
use crate::functions::Function;
use crate::hooks::{Real, beside, is_accepted};
use crate::interpose::substitute;
use crate::log;
use crate::ordering::{elision, observers};
use crate::process::bypass;
use crate::record::caller;

/// `cuGetProcAddress(const char *base, void **pointer, int version, flags [, status])`. The real
/// function runs with the caller's version and flags. Then the hook replaces its pointer, also for
/// `cuGetProcAddress` itself.
pub(crate) fn proc_address(
    _function: &'static Function,
    base: *const c_char,
    pointer: *mut *mut c_void,
    real: impl Real,
) -> CuResult {
    let code = real();
    if code.is_err() || pointer.is_null() || bypass::is_switched_off() || !table::load() {
        return code;
    }
    // SAFETY: the driver has just written it.
    let found = unsafe { *pointer };
    if found.is_null() || libraries::is_ours(found) {
        return code;
    }
    if table::known(found).is_none() {
        table::learn_others();
    }
    if let Some(ours) = substitute::for_address(found, base) {
        // SAFETY: as above.
        unsafe { *pointer = ours };
    }
    code
}

/// Tables that NVIDIA's own libraries request, and that submit work only through functions that the
/// library knows. They were seen in cudart 10.2 to 13.5, cuBLAS, cuDNN and the management library.
const KNOWN_TABLES: [u128; 9] = [
    0xF8CFF951_2146_8B4E_B9E2_FB469E7C0DD9,
    0x6BD5FB6C_5BF4_E74A_8987_D93912FD9DF9,
    0xA094798C_2E74_2E74_93F2_0800200C0A66,
    0x42D85A81_23F6_CB47_8298_F6E78A3AECDC,
    0xC693336E_1121_DF11_A8C3_68F355D89593,
    0x263E8860_7CD2_6143_92F6_BBD5006DFA7E,
    0xD4082055_BDE6_704B_8D34_BA123C66E1F2,
    0x21318C60_9714_3248_8CA6_41FF7324C8F2,
    0x69A28E9F_2449_8B47_B030_C5DA330EA4E9,
];

/// Tables of which one library uses a part that submits nothing, and the start of its name.
///
/// Measured for cuBLASLt 13, NVRTC 13 and cuFFT 12: they use the table when a handle or plan is
/// created or a program is compiled, never for an operation, and a profiler sees no work that the
/// hooks do not see. Another library, such as a profiler, may use the rest of the table.
const KNOWN_TO_LIBRARY: [(u128, &str); 3] = [
    (0x1734DC26_800D_4745_8726_C0F1E7DD8BCA, "libcublasLt.so"),
    (0xDA9151D3_3AE6_CC41_A5C0_4F26D533E328, "libnvrtc.so"),
    (0x6E163FBE_B958_444D_835C_E182AFF1991E, "libcufft.so"),
];

/// Returns whether a table submits no work past the hooks, as its caller uses it.
fn is_known_table(table_id: u128) -> bool {
    let is_callers = |name: &str| caller::library().is_some_and(|file| file.starts_with(name));
    KNOWN_TABLES.contains(&table_id)
        || KNOWN_TO_LIBRARY.iter().any(|(id, name)| *id == table_id && is_callers(name))
}

/// `cuGetExportTable(const void **table, const CUuuid *id)`: its functions bypass every hook. The
/// call is passed on; after an unknown table the library assumes nothing about submitted work.
pub(crate) fn export_table(
    function: &'static Function,
    table_id: *const Uuid,
    real: impl Real,
) -> CuResult {
    let code = real();
    if is_accepted(code) && !table_id.is_null() {
        // SAFETY: the program's 16 bytes, read by the driver as well.
        let table_id = u128::from_be_bytes(unsafe { *table_id });
        let mut is_known = false;
        beside(function, || {
            is_known = is_known_table(table_id);
            if !is_known {
                tell_of_table(table_id);
            }
        });
        if !is_known {
            observers::visible(VisibleCause::UnknownArguments);
            elision::note(
                UntrackedSubmission::UnknownExportTable,
                "an unknown export table was handed out",
            );
        }
    }
    code
}

/// Logs the table's id and the requesting library, the only hints to its purpose.
#[cold]
fn tell_of_table(table_id: u128) {
    let part = |shift: u32, digits: u32| table_id >> shift & ((1 << (4 * digits)) - 1);
    let (a, b, c, d) = (part(96, 8), part(80, 4), part(64, 4), part(48, 4));
    log::info(format_args!(
        "{} requests the unknown export table {a:08x}-{b:04x}-{c:04x}-{d:04x}-{:012x}",
        caller::library().as_deref().unwrap_or("no library"),
        part(0, 12)
    ));
}
