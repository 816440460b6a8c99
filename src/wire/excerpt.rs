//! A stranger's words, quoted in a sentence of taskgate.

use std::borrow::Cow;

/// The longest quotation, in characters.
const LONGEST: usize = 500;

/// Returns the beginning of a text that a stranger wrote, fit for a message. Characters that would move a terminal's
/// cursor are escaped, except for line ends and tabs.
#[must_use]
pub fn excerpt(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(LONGEST).map_or(text.len(), |(at, _)| at);
    let text = &text[..end];
    let moves = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    if !text.contains(moves) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if moves(char) { escaped.extend(char.escape_default()) } else { escaped.push(char) }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotation_has_five_hundred_characters_and_moves_no_cursor() {
        assert_eq!(excerpt("one\n\ttwo é"), "one\n\ttwo é");
        assert_eq!(excerpt(&"é".repeat(501)), "é".repeat(500));
        assert_eq!(excerpt("a\u{1b}[2J\r\u{9b}\u{7f}"), "a\\u{1b}[2J\\r\\u{9b}\\u{7f}");
    }
}
