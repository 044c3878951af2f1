//! The result of one check, in one line.

use cachealloc_text::plain;

/// Consequence of a check's result for the program under the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Severity {
    Fine,
    /// The program will run under the library, with fewer features or differently than expected.
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

    /// Formats the finding as one line, without control characters.
    pub(crate) fn line(&self) -> String {
        let mark = match self.severity {
            Severity::Fine => "ok",
            Severity::Note => "note",
            Severity::Fail => "NO",
        };
        format!("{mark:<5} {:<9} {}", self.subject, plain(&self.text))
    }
}
