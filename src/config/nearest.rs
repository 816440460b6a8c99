//! "Did you mean": the known word that an unknown one is most likely a slip of.

/// The longest word that is compared, in characters: far longer than any known word.
const MAX_WORD: usize = 64;

/// Returns the known word that is nearest to `word`, if it is near enough: a third of the letters may be wrong.
#[must_use]
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let letters = word.chars().count();
    if letters > MAX_WORD {
        return None;
    }
    let word = word.to_lowercase();
    let by_distance = known.into_iter().map(|known| (strsim::osa_distance(&word, &known.to_lowercase()), known));
    let near = by_distance.filter(|(distance, _)| *distance <= letters.div_ceil(3));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Returns what a message says about the nearest word; nothing if there is none.
pub(super) fn did_you_mean<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!("; did you mean {known:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        let known = ["listen", "admin", "max_sessions", "max_streams", "tls"];
        for (word, meant) in [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("max_sesions", Some("max_sessions")),
            ("max_steams", Some("max_streams")),
            ("adnim", Some("admin")),
            ("ssl", None),
            ("timeout", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"listen".repeat(1000), known), None);
    }
}
