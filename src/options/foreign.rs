//! Environment variables of other allocators, PyTorch's and Paddle's. The library does not read
//! them, because they configure those allocators. This reports which of their settings also exist
//! here, in case a user expects them to apply.

use crate::paddle::why_not;
use crate::parse::{self, parse};
use crate::problem::PADDLE;
use crate::{Effect, OPTIONS, ProblemKind};

/// All names under which PyTorch reads the same text.
const PYTORCH: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];

/// Returns a line on which settings of this variable also exist here and which do not. Returns
/// `None` if the variable belongs to neither.
pub fn of_others(name: &str, value: &str) -> Option<String> {
    if PYTORCH.contains(&name) {
        return Some(of_pytorch(name, value));
    }
    name.starts_with(PADDLE).then(|| of_paddle(name, value))
}

/// Describes a flag of Paddle. The flags configure Paddle's own memory, and a program that sets
/// them does not mean the other libraries.
fn of_paddle(name: &str, value: &str) -> String {
    let Some(key) = parse::key_of(name) else {
        return match why_not(name.strip_prefix(PADDLE).unwrap_or(name)) {
            Some(why) => format!("{name} belongs to Paddle and is ignored; {why}"),
            None => {
                format!("{name} belongs to a framework and is ignored; no option is equivalent")
            }
        };
    };
    let pair = if value.is_empty() { key.to_string() } else { format!("{key}:{value}") };
    let is_wrong = |kind: &ProblemKind| matches!(kind, ProblemKind::BadValue { .. });
    let what = match parse(&pair).1.iter().any(|problem| is_wrong(&problem.kind)) {
        true => "is invalid",
        false => "is equivalent",
    };
    format!("{name} belongs to Paddle and is ignored; in CACHEALLOC_CONF {pair} {what}")
}

/// Returns the line of `of_others` if the variable has a key that would apply here and that
/// `options` lacks.
pub fn missed_of_others(name: &str, value: &str, options: &str) -> Option<String> {
    let pairs = parse::pairs(options);
    let said: Vec<_> = pairs.iter().filter_map(|pair| parse::key_of(written_key(pair))).collect();
    let would_count = match name.starts_with(PADDLE) {
        true => parse::key_of(name).into_iter().collect(),
        false if PYTORCH.contains(&name) => sorted_out(value)[0]
            .iter()
            .filter_map(|pair| parse::key_of(written_key(pair)))
            .collect(),
        false => Vec::new(),
    };
    let is_missed = would_count.iter().any(|key| !said.contains(key));
    if is_missed { of_others(name, value) } else { None }
}

fn written_key(pair: &str) -> &str {
    pair.split(':').next().unwrap_or_default()
}

/// Returns the pairs that do the same here, those that change nothing, and those that are not
/// understood.
fn sorted_out(value: &str) -> [Vec<String>; 3] {
    let (_, problems) = parse(value);
    let (mut taken, mut nothing, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for pair in parse::pairs(value) {
        let key = written_key(&pair);
        let mut problem = problems.iter().filter(|problem| problem.key == key);
        let row = OPTIONS.iter().find(|row| row.key == key);
        match (problem.next().map(|problem| &problem.kind), row.map(|row| &row.effect)) {
            (Some(ProblemKind::NoEffect { .. }), _) | (None, Some(Effect::Never(_))) => {
                nothing.push(pair);
            }
            (Some(_), _) | (None, None) => wrong.push(pair),
            (None, Some(_)) => taken.push(pair),
        }
    }
    [taken, nothing, wrong]
}

fn of_pytorch(name: &str, value: &str) -> String {
    let [taken, nothing, wrong] = sorted_out(value);
    let begin = format!("{name} belongs to PyTorch and is ignored");
    let parts: Vec<String> = [
        (taken, "is equivalent", "are equivalent"),
        (nothing, "has no effect", "have no effect"),
        (wrong, "is invalid", "are invalid"),
    ]
    .into_iter()
    .filter(|(pairs, ..)| !pairs.is_empty())
    .map(|(pairs, one, several)| {
        format!("{} {}", pairs.join(" and "), if pairs.len() == 1 { one } else { several })
    })
    .collect();
    match parts.is_empty() {
        true => format!("{begin}; set its keys in CACHEALLOC_CONF"),
        false => format!("{begin}; in CACHEALLOC_CONF {}", parts.join(", ")),
    }
}
