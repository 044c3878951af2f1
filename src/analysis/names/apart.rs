//! Distinguishes names of templates that differ only in their arguments.
//!
//! A table leaves template arguments out of long names. Two instances of one template, which share
//! file and line as well, would then look like one call site.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use cachealloc_history::short_name;
use cachealloc_text::cut;

/// Characters shown of the arguments that differ.
const ARGUMENTS_CHARS_MAX: usize = 48;
/// Names up to this length are shown whole.
const WHOLE_CHARS_MAX: usize = 80;

/// Short names of functions, different for each instance of a template.
#[derive(Clone, Debug, Default)]
pub struct ShortNames {
    /// Names by whole name, for those that [`short_name`] would confuse.
    apart: HashMap<Box<str>, Box<str>>,
}

impl ShortNames {
    /// Creates the short names of all names that are shown together.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> ShortNames {
        let templates = names.filter(|name| name.contains('<') && !name.starts_with('<'));
        let distinct: HashSet<&str> = templates.collect();
        let mut alike: HashMap<String, Vec<&str>> = HashMap::new();
        for name in distinct {
            alike.entry(short_name(name).into_owned()).or_default().push(name);
        }
        let mut apart = HashMap::new();
        for (short, group) in alike.iter().filter(|(_, group)| group.len() > 1) {
            let instances: Vec<String> = group.iter().map(|name| without_arguments(name)).collect();
            let (begin, end) = common(&instances);
            for (name, instance) in group.iter().zip(&instances) {
                let told = told_apart(short, instance, begin, end);
                apart.insert((*name).into(), told.into_boxed_str());
            }
        }
        ShortNames { apart }
    }

    pub fn short<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        match self.apart.get(name) {
            Some(apart) => (&**apart).into(),
            None => short_name(name),
        }
    }
}

/// Returns `sort<std::less<float>>`, or for a long name the part that differs from the others:
/// `sort<...less<float>...>`.
fn told_apart(short: &str, instance: &str, begin: usize, end: usize) -> String {
    if instance.chars().count() <= WHOLE_CHARS_MAX {
        return instance.to_string();
    }
    let differs = &instance[begin..(instance.len() - end).max(begin)];
    format!("{short}<...{}...>", cut(differs, ARGUMENTS_CHARS_MAX))
}

/// Returns the lengths in bytes of the common prefix and the common suffix, in whole words.
fn common(names: &[String]) -> (usize, usize) {
    let Some((first, others)) = names.split_first() else { return (0, 0) };
    let same = |left: &mut dyn Iterator<Item = u8>, right: &mut dyn Iterator<Item = u8>| {
        left.zip(right).take_while(|(left, right)| left == right).count()
    };
    let begins = others.iter().map(|other| same(&mut first.bytes(), &mut other.bytes()));
    let begin = begins.min().unwrap_or_default();
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let begin = (0..=begin).rev().find(|&at| {
        first.is_char_boundary(at) && !first[..at].chars().next_back().is_some_and(is_word)
    });
    let begin = begin.unwrap_or_default();
    let ends = others.iter().map(|other| same(&mut first.bytes().rev(), &mut other.bytes().rev()));
    let shortest = names.iter().map(String::len).min().unwrap_or_default();
    let end = ends.min().unwrap_or_default().min(shortest - begin);
    let end = (0..=end).rev().find(|&end| {
        let at = first.len() - end;
        first.is_char_boundary(at) && !first[at..].chars().next().is_some_and(is_word)
    });
    (begin, end.unwrap_or_default())
}

/// Returns the name with its template arguments, without the arguments of the call.
fn without_arguments(name: &str) -> String {
    let name = name.replace("(anonymous namespace)", "{anonymous}");
    let name = name.replace("operator()", "operator{}");
    let (mut angles, mut rounds) = (0usize, 0usize);
    let mut short = String::new();
    for letter in name.chars() {
        match letter {
            '<' if rounds == 0 => angles += 1,
            '>' if rounds == 0 && !short.ends_with('-') => angles = angles.saturating_sub(1),
            '(' if angles == 0 => rounds += 1,
            _ => {}
        }
        if rounds == 0 {
            short.push(letter);
        }
        if letter == ')' && angles == 0 {
            rounds = rounds.saturating_sub(1);
        }
    }
    short.replace("operator{}", "operator()").trim().trim_end_matches(" const").to_string()
}
