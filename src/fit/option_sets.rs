//! The options that change how much memory a run takes, in the sets that are worth trying.

use cachealloc_options::{Config, Strategy, parse};

/// Options as a user writes them, and their meaning. An empty text stands for the defaults.
#[derive(Clone, PartialEq, Debug)]
pub struct OptionSet {
    pub text: String,
    pub config: Config,
}

/// Sets to try, beginning with the simplest.
const WORTH_TRYING: [&str; 7] = [
    "",
    "expandable_segments:true",
    "large_segment_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:8",
];

/// Returns the sets that can change anything if `largest_bytes` is the largest request.
pub(crate) fn worth_trying(largest_bytes: u64) -> Vec<OptionSet> {
    let sets = WORTH_TRYING.iter().map(|text| OptionSet::parse(text).expect("options of ours"));
    // Segments for several requests are smaller than blocks that are not split, and other segments
    // are as large as their request.
    let matters = |set: &OptionSet| {
        let unsplit_bytes = set.config.policy.max_split_bytes;
        unsplit_bytes.is_none_or(|unsplit_bytes| largest_bytes >= unsplit_bytes)
    };
    sets.filter(matters).collect()
}

impl OptionSet {
    /// Parses options. The error describes the problem in a sentence.
    pub fn parse(text: &str) -> Result<OptionSet, String> {
        let (config, problems) = parse(text);
        if let Some(problem) = problems.first() {
            return Err(problem.what());
        }
        // These take a share of the device from the beginning, or nothing: there is no smallest
        // size.
        if config.strategy == Strategy::PreAllocate || !config.caches() {
            return Err("its memory use does not depend on the program".into());
        }
        let text = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        Ok(OptionSet { text, config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_sets_are_sentences() {
        for (text, wanted) in [
            ("expandable_segment:true", "unknown option expandable_segment, did you mean"),
            ("strategy:pre_allocate", "its memory use does not depend on the program"),
            ("fraction_of_gpu_memory_to_use:0", "its memory use does not depend"),
        ] {
            let said = OptionSet::parse(text).expect_err(text);
            assert!(said.starts_with(wanted), "{text}: {said}");
        }
        assert_eq!(
            OptionSet::parse(" max_split_size_mb: 64").expect("sound").text,
            "max_split_size_mb:64"
        );
    }

    #[test]
    fn option_sets_without_effect_are_left_out() {
        for (largest_mib, wanted) in [(127, 5), (128, 6), (511, 6), (512, 7)] {
            assert_eq!(worth_trying(largest_mib << 20).len(), wanted, "{largest_mib} MiB");
        }
        let texts: Vec<_> = worth_trying(0).into_iter().map(|set| set.text).collect();
        assert_eq!(texts[..2], ["", "expandable_segments:true"]);
    }
}
