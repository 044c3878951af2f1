//! Lists the features that an older driver turns off in the library, which looks up each driver
//! function that it uses (`table::has` there). Only functions whose absence a program would notice
//! are listed.

use std::ffi::CStr;

use super::finding::{Finding, Severity};
use crate::kernel::libraries::Loaded;

/// Oldest tested version. Drivers from CUDA 11.4 on are tested, on a simulated one.
const TRIED_FROM: i32 = 11_040;

struct Feature {
    /// Functions that the feature needs, all of them.
    functions: &'static [&'static CStr],
    severity: Severity,
    without: &'static str,
}

const FEATURES: [Feature; 5] = [
    Feature {
        functions: &[c"cuCtxGetCurrent"],
        severity: Severity::Fail,
        without: "nothing is cached",
    },
    Feature {
        functions: &[c"cuCtxRecordEvent", c"cuCtxWaitEvent"],
        severity: Severity::Note,
        without: "every free waits, as without the library (before CUDA 12.5)",
    },
    Feature {
        functions: &[c"cuStreamGetId"],
        severity: Severity::Note,
        without: "memory freed on a stream waits for its work before it serves the same stream \
                  again (before CUDA 12.0)",
    },
    Feature {
        functions: &[
            c"cuMemAddressReserve",
            c"cuMemAddressFree",
            c"cuMemCreate",
            c"cuMemRelease",
            c"cuMemMap",
            c"cuMemUnmap",
            c"cuMemSetAccess",
        ],
        severity: Severity::Note,
        without: "expandable_segments:true has no effect",
    },
    Feature {
        functions: &[c"cuUserObjectCreate", c"cuGraphRetainUserObject"],
        severity: Severity::Note,
        without: "the memory of a captured graph stays reserved after the graph is destroyed",
    },
];

/// Returns the functions that this driver lacks, ordered by feature and each named once.
pub(super) fn of(driver: &Loaded) -> Vec<String> {
    let all = FEATURES.iter().flat_map(|feature| feature.functions);
    let lacks = all.filter(|function| !driver.has(function));
    lacks.map(|function| function.to_string_lossy().into_owned()).collect()
}

/// Returns the features that are off if a driver of this version lacks these functions.
pub(super) fn explain(version: Option<i32>, lacks: &[String]) -> Vec<Finding> {
    let finding = |severity, text| Finding::new(severity, "driver", text);
    let mut findings = Vec::new();
    if version.is_some_and(|version| version < TRIED_FROM) {
        let text = "it is older than CUDA 11.4, the oldest version tested";
        findings.push(finding(Severity::Note, text.to_string()));
    }
    for feature in &FEATURES {
        let missing = feature.functions.iter().map(|function| function.to_string_lossy());
        let missing: Vec<_> =
            missing.filter(|function| lacks.iter().any(|it| it == function)).collect();
        if let Some(first) = missing.first() {
            findings
                .push(finding(feature.severity, format!("it lacks {first}: {}", feature.without)));
        }
    }
    findings
}
