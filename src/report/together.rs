//! What several processes have in common is told once, with their names.

use std::collections::HashMap;

/// What was found on one device of one process.
pub(crate) struct Finding {
    /// Whose it is: the index of its name.
    pub whose: usize,
    /// What it says and of which call site: of two that agree in this, one is enough.
    pub about: (&'static str, Option<u32>),
    /// How much it is about. Of several the largest is told.
    pub weight: u64,
    pub text: String,
}

/// All that is to be told, in the order in which it comes first. `is_told` says it of those that agree.
pub(crate) fn told_once(
    found: Vec<Finding>,
    names: &[String],
    is_told: impl Fn(&[Finding]) -> bool,
) -> Vec<String> {
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    let mut known = HashMap::new();
    for finding in found {
        let group = *known.entry(finding.about).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(finding);
    }
    groups.iter().filter(|group| is_told(group)).map(|group| told(group, names)).collect()
}

fn told(group: &[Finding], names: &[String]) -> String {
    let (first, others) = (&group[0], &group[1..]);
    let largest = others
        .iter()
        .fold(first, |largest, other| if other.weight > largest.weight { other } else { largest });
    let whose: Vec<&str> = group.iter().map(|finding| names[finding.whose].as_str()).collect();
    let begin = match list(&whose, names.len()).as_str() {
        "" => String::new(),
        whose => format!("{whose}: "),
    };
    let figures = if others.iter().all(|other| other.text == first.text) {
        String::new()
    } else {
        format!(" These are the figures of {}.", names[largest.whose])
    };
    format!("{begin}{}{figures}", largest.text)
}

/// More names are counted.
const NAMED_MOST: usize = 4;

/// "a, b and c".
fn list(names: &[&str], of: usize) -> String {
    match names {
        [one] => one.to_string(),
        all if all.len() > NAMED_MOST && all.len() == of => format!("All {of}"),
        many if many.len() > NAMED_MOST => {
            let shown = &many[..NAMED_MOST - 1];
            format!("{} and {} more", shown.join(", "), many.len() - shown.len())
        }
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
        [] => String::new(),
    }
}
