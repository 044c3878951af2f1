//! Texts, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TextId(pub u32);

impl TextId {
    pub const EMPTY: TextId = TextId(0);

    pub const fn is_empty(self) -> bool {
        self.0 == TextId::EMPTY.0
    }
}

/// The table of texts. The empty text is always [`TextId::EMPTY`].
#[derive(Clone, Debug)]
pub struct Texts {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, TextId>,
}

impl Default for Texts {
    fn default() -> Texts {
        let mut texts = Texts { texts: Vec::new(), ids: HashMap::new() };
        texts.add("");
        texts
    }
}

impl Texts {
    pub fn add(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = TextId(u32::try_from(self.texts.len()).expect("fewer texts than bytes in memory"));
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.ids.insert(text, id);
        id
    }

    pub fn get(&self, id: TextId) -> &str {
        &self.texts[id.0 as usize]
    }

    /// Returns the id of a text, if the table has it.
    pub fn find(&self, text: &str) -> Option<TextId> {
        self.ids.get(text).copied()
    }

    pub fn len(&self) -> usize {
        self.texts.len()
    }

    pub fn is_empty(&self) -> bool {
        false // the empty text is always there
    }
}
