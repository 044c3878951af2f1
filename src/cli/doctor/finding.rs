//! What was found out about one thing, in one line.

use cachealloc_text::plain;

/// What a look at one thing says about the program and the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Severity {
    Fine,
    /// The program will run under the library, with less or otherwise than might be expected.
    Note,
    /// The program will not run under the library.
    Fail,
}

#[derive(Debug)]
pub(crate) struct Finding {
    pub severity: Severity,
    subject: &'static str,
    text: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        subject: &'static str,
        text: impl Into<String>,
    ) -> Finding {
        Finding { severity, subject, text: text.into() }
    }

    /// One line, without control characters.
    pub(crate) fn line(&self) -> String {
        let mark = match self.severity {
            Severity::Fine => "ok",
            Severity::Note => "note",
            Severity::Fail => "NO",
        };
        format!("{mark:<5} {:<9} {}", self.subject, plain(&self.text))
    }
}
