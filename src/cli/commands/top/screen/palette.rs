//! Styles that highlight parts of the screen. Without colors (`NO_COLOR`) they use other
//! attributes.

use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy)]
pub(super) struct Palette {
    pub has_colors: bool,
}

impl Palette {
    pub(super) fn of_environment() -> Palette {
        Palette { has_colors: crate::show::has_colors() }
    }

    pub(super) fn title(self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn bars(self) -> Style {
        self.colored(Color::Green)
    }

    pub(super) fn warning(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// Style of text that needs reading only once.
    pub(super) fn aside(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn colored(self, color: Color) -> Style {
        if self.has_colors { Style::new().fg(color) } else { Style::new() }
    }
}
