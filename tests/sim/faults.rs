//! Injected failures: `cuMemAlloc_v2@3=2,cuEventCreate@*=2`.
//!
//! The third call, or every call, of a function returns that code without effect. With `=2!` it
//! takes full effect and returns that code. Calls are counted from the request of the failure on.

pub struct Fault {
    function: String,
    /// Number of the call; `None` for every call.
    at: Option<u64>,
    hit: Hit,
    calls: u64,
}

/// Injected result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    pub code: i32,
    /// Whether the call takes effect nevertheless.
    pub is_late: bool,
}

/// Parses a list. The error has the part that cannot be parsed.
pub fn parse(list: &str) -> Result<Vec<Fault>, String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(parse_one).collect()
}

fn parse_one(item: &str) -> Result<Fault, String> {
    let read = || {
        let (place, code) = item.split_once('=')?;
        let (function, at) = place.split_once('@')?;
        let at = if at == "*" { None } else { Some(at.parse().ok()?) };
        let (code, is_late) = code.strip_suffix('!').map_or((code, false), |code| (code, true));
        let hit = Hit { code: code.parse().ok()?, is_late };
        Some(Fault { function: function.to_string(), at, hit, calls: 0 })
    };
    read().ok_or_else(|| format!("cannot read {item:?}"))
}

/// Returns the injected result for this call of `function`, if any.
pub fn hit(faults: &mut [Fault], function: &str) -> Option<Hit> {
    let mut hit = None;
    for fault in faults.iter_mut().filter(|fault| fault.function == function) {
        fault.calls += 1;
        if fault.at.is_none_or(|at| at == fault.calls) {
            hit = hit.or(Some(fault.hit));
        }
    }
    hit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_call_fails_and_every_call_fails() {
        let mut faults = parse("f@3=2, g@*=719").unwrap();
        let early = |code| Some(Hit { code, is_late: false });
        let answers: Vec<_> = (0..4).map(|_| hit(&mut faults, "f")).collect();
        assert_eq!(answers, [None, None, early(2), None]);
        assert_eq!(hit(&mut faults, "g"), early(719));
        assert_eq!(hit(&mut faults, "h"), None);
        let mut late = parse("f@1=2!").unwrap();
        assert_eq!(hit(&mut late, "f"), Some(Hit { code: 2, is_late: true }));
        assert!(parse("f=2").is_err());
    }
}
