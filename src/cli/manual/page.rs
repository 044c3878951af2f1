//! One page, as a file.

pub(crate) struct Page {
    pub(super) name: String,
    pub(super) section: u8,
    pub text: String,
}

impl Page {
    pub(crate) fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }
}
