//! A terminal that shows the same table again and again: from its first line on, nothing scrolls.

use terminal_size::{Height, Width, terminal_size};

use super::super::Result;

/// To the first place; to the end of the line; to the end of the screen.
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K\n";
const REST_OF_SCREEN: &str = "\x1b[J";

pub(super) fn show(text: &str) -> Result<()> {
    let (width, height) = terminal_size()
        .map_or((usize::MAX, usize::MAX), |(Width(width), Height(height))| {
            (usize::from(width), usize::from(height))
        });
    let mut screen = HOME.to_string();
    // The cursor needs the last line.
    for line in text.lines().take(height.saturating_sub(1)) {
        screen.extend(line.chars().take(width));
        screen += REST_OF_LINE;
    }
    super::super::print(&(screen + REST_OF_SCREEN))
}
