//! The subset of man(7)'s language that the pages need.

/// A page that is being written.
pub(super) struct Roff(String);

impl Roff {
    pub(super) fn new(name: &str, section: u8) -> Roff {
        let mut page = Roff(String::new());
        let version = env!("CARGO_PKG_VERSION");
        let name = name.to_uppercase();
        page.0 +=
            &format!(".TH \"{name}\" \"{section}\" \"\" \"cachealloc {version}\" \"Cachealloc\"\n");
        page
    }

    pub(super) fn section(&mut self, title: &str) {
        self.0 += &format!(".SH {title}\n");
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.0 += &format!(".PP\n{}\n", escaped(text));
    }

    /// Adds a term in bold and its meaning.
    pub(super) fn item(&mut self, term: &str, text: &str) {
        self.0 += &format!(".TP\n.B {}\n{}\n", escaped(term), escaped(text));
    }

    /// Adds the line that `whatis` prints: the name, a dash, and the description on one line.
    pub(super) fn name_line(&mut self, name: &str, about: &str) {
        self.0 += &format!("{} \\- {}\n", escaped(name), escaped(about));
    }

    /// Adds preformatted lines.
    pub(super) fn lines(&mut self, text: &str) {
        self.0 += &format!(".PP\n.nf\n{}\n.fi\n", escaped(text));
    }

    /// Adds text that is already in this language.
    pub(super) fn made(&mut self, text: &str) {
        self.0 += text;
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Escapes text so that nothing in it is a command and dashes are literal hyphens.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_a_roff_command() {
        assert_eq!(escaped(".x\n'y\na-b \\c"), "\\&.x\n\\&'y\na\\-b \\ec");
    }
}
