//! Merges the findings that several processes share into one sentence with their names.

use std::collections::HashMap;

/// A finding on one device of one process.
pub(crate) struct Finding {
    /// Index of the name of its process.
    pub whose: usize,
    /// Kind of the finding, and its call site.
    pub about: (&'static str, Option<u32>),
    /// Amount that the finding is about. Among findings alike in it, the largest is shown.
    pub weight: u64,
    pub sentence: Sentence,
}

/// A sentence, and the part of the page that shows its subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sentence {
    pub text: String,
    /// Fragment of the page's address, and text of the link.
    pub link: Option<(String, &'static str)>,
}

impl Sentence {
    pub(crate) fn plain(text: String) -> Sentence {
        Sentence { text, link: None }
    }
}

/// Returns all findings in order of first occurrence. `is_told` makes the sentence of those that
/// agree.
pub(crate) fn told_once(
    found: Vec<Finding>,
    names: &[String],
    is_told: impl Fn(&[Finding]) -> bool,
) -> Vec<Sentence> {
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    let mut known: HashMap<_, Vec<usize>> = HashMap::new();
    for finding in found {
        let numbers = known.entry(finding.about).or_default();
        let alike =
            numbers.iter().find(|&&group| are_alike(groups[group][0].weight, finding.weight));
        match alike {
            Some(&group) => groups[group].push(finding),
            None => {
                numbers.push(groups.len());
                groups.push(vec![finding]);
            }
        }
    }
    groups.iter().filter(|group| is_told(group)).map(|group| told(group, names)).collect()
}

/// Returns whether two figures are close enough to share a sentence. A reader looks for those
/// further apart.
fn are_alike(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= one.max(other) / ALIKE_SHARE
}

/// Largest relative difference, as one in this many.
const ALIKE_SHARE: u64 = 10;

fn told(group: &[Finding], names: &[String]) -> Sentence {
    let (first, others) = (&group[0], &group[1..]);
    let largest = others
        .iter()
        .fold(first, |largest, other| if other.weight > largest.weight { other } else { largest });
    let whose: Vec<&str> = group.iter().map(|finding| names[finding.whose].as_str()).collect();
    let begin = match list(&whose, names.len()).as_str() {
        "" => String::new(),
        whose => format!("{whose}: "),
    };
    let figures = if others.iter().all(|other| other.sentence.text == first.sentence.text) {
        String::new()
    } else {
        format!(" These are the figures of {}, the largest.", names[largest.whose])
    };
    let Sentence { text, link } = &largest.sentence;
    Sentence { text: format!("{begin}{text}{figures}"), link: link.clone() }
}

/// Most names in a sentence; further ones are counted.
const NAMED_MOST: usize = 4;

/// Returns `a, b and c`.
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
