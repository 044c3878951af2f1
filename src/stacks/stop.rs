//! Reasons for which a walk from frame to frame ends.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    End = 0,
    Full,
    Unsupported,
    /// A signal interrupted code on another stack.
    OtherStack,
}
