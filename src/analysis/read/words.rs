//! The names in PyTorch's schema, which have fixed numbers before anything is read.

use crate::model::{TextId, Texts};

macro_rules! define {
    ($($name:ident = $text:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u32)]
        enum Number { $($name,)* }
        $(
            #[allow(dead_code)]
            pub(super) const $name: TextId = TextId(Number::$name as u32);
        )*
        const ALL: &[&str] = &[$($text,)*];
    };
}

cachealloc_history::schema_words!(define);

/// Returns a table of texts in which every name has its number. The first is empty, as in all
/// [`Texts`].
pub(super) fn texts() -> Texts {
    let mut texts = Texts::default();
    for (number, word) in (0..).zip(ALL) {
        let id = texts.add(word);
        debug_assert_eq!(id, TextId(number), "{word} occurs twice");
    }
    texts
}
