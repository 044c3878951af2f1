//! Injected failures: `cuMemAlloc_v2@3=2,cuEventCreate@*=2`.
//!
//! The third call, or every call, of a function returns that code and does nothing. Calls are
//! counted from the moment the failure is asked for.

pub struct Fault {
    function: String,
    /// None: every call.
    at: Option<u64>,
    code: i32,
    calls: u64,
}

/// Reads a list; what cannot be read is named in the error.
pub fn parse(list: &str) -> Result<Vec<Fault>, String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(parse_one).collect()
}

fn parse_one(item: &str) -> Result<Fault, String> {
    let read = || {
        let (place, code) = item.split_once('=')?;
        let (function, at) = place.split_once('@')?;
        let at = if at == "*" { None } else { Some(at.parse().ok()?) };
        Some(Fault { function: function.to_string(), at, code: code.parse().ok()?, calls: 0 })
    };
    read().ok_or_else(|| format!("cannot read {item:?}"))
}

/// The code that this call of `function` must return, if any.
pub fn hit(faults: &mut [Fault], function: &str) -> Option<i32> {
    let mut code = None;
    for fault in faults.iter_mut().filter(|fault| fault.function == function) {
        fault.calls += 1;
        if fault.at.is_none_or(|at| at == fault.calls) {
            code = code.or(Some(fault.code));
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_call_fails_and_every_call_fails() {
        let mut faults = parse("f@3=2, g@*=719").unwrap();
        let answers: Vec<_> = (0..4).map(|_| hit(&mut faults, "f")).collect();
        assert_eq!(answers, [None, None, Some(2), None]);
        assert_eq!(hit(&mut faults, "g"), Some(719));
        assert_eq!(hit(&mut faults, "h"), None);
        assert!(parse("f=2").is_err());
    }
}
