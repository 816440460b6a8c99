//! What an exchange is for.

/// What waits for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client's open request.
    Foreground,
    /// A task.
    Background,
    /// A client's subscription. Nothing without its number belongs to it, and limits of its own bound it.
    Listening,
}
