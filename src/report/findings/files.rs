//! Notes about the files themselves: what they lack, and what a framework hides.

use cachealloc_analysis::model::Dropped;
use cachealloc_text::count;

use crate::findings::common::{Finding, Sentence, told_once};
use crate::findings::frameworks::segments_of_caches;
use crate::inputs::Input;
use crate::tables::Numbered;

pub(crate) fn findings(inputs: &[Input]) -> Vec<Sentence> {
    let mut texts = Vec::new();
    for (whose, input) in inputs.iter().enumerate() {
        let found = segments_of_caches(&input.snapshot).into_iter().chain(what_is_missing(input));
        texts.extend(found.map(|text| (whose, text)));
    }
    let mut numbers = Numbered::default();
    let found = texts.into_iter().map(|(whose, text)| {
        let about = ("file", Some(numbers.number(text.clone())));
        Finding { whose, about, weight: 0, sentence: Sentence::plain(text) }
    });
    let names: Vec<String> = match inputs {
        [_] => vec![String::new()],
        _ => inputs.iter().map(|input| input.name.clone()).collect(),
    };
    told_once(found.collect(), &names, |_| true)
}

fn what_is_missing(input: &Input) -> impl Iterator<Item = String> {
    let snapshot = &input.snapshot;
    let lost = match snapshot.settings.dropped {
        Dropped::Count(0) | Dropped::Unknown => None,
        Dropped::Count(lost) => Some(format!(
            "The oldest {} were dropped (max_entries): nothing earlier is shown.",
            if lost == 1 { "entry".to_string() } else { format!("{} entries", count(lost)) },
        )),
    };
    let no_history = snapshot.devices.iter().all(|device| device.entries.len() <= 1);
    let how = match snapshot.is_ours() {
        true => "record every allocation with record:all",
        false => "record every allocation with torch.cuda.memory._record_memory_history()",
    };
    let no_history = no_history.then(|| match snapshot.setting("record") {
        Some("all") => "Nothing was allocated or freed while recording was on.".to_string(),
        _ => format!("The file has no history, only live blocks: {how}."),
    });
    lost.into_iter().chain(no_history)
}
