//! Draws held memory over time in one line of text. ratatui draws higher bars.

use ratatui::symbols::bar::NINE_LEVELS;

/// Returns one letter per value: the maximum is a full block, and any value above 0 is visible.
pub(super) fn text(bytes: &[u64]) -> String {
    let levels = [
        NINE_LEVELS.one_eighth,
        NINE_LEVELS.one_quarter,
        NINE_LEVELS.three_eighths,
        NINE_LEVELS.half,
        NINE_LEVELS.five_eighths,
        NINE_LEVELS.three_quarters,
        NINE_LEVELS.seven_eighths,
        NINE_LEVELS.full,
    ];
    let most = bytes.iter().copied().max().unwrap_or(0);
    let level = |bytes: u64| match bytes {
        0 => NINE_LEVELS.empty,
        _ => {
            let eighths = (u128::from(bytes) * 8).div_ceil(u128::from(most));
            levels[eighths.clamp(1, 8) as usize - 1]
        }
    };
    bytes.iter().map(|bytes| level(*bytes)).collect()
}
