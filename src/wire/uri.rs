//! URIs of resources.

/// Returns whether `uri` is `whole` or stands below it: a server may tell of a part of what was subscribed to.
#[must_use]
pub fn is_part_of(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole)
        .is_some_and(|rest| rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_resource_stands_below_it_by_whole_steps() {
        for (uri, whole, is_part) in [
            ("file:///a", "file:///a", true),
            ("file:///a/b", "file:///a", true),
            ("file:///a/b", "file:///a/", true),
            ("file:///a?x", "file:///a", true),
            ("file:///ab", "file:///a", false),
            ("file:///a", "file:///a/b", false),
        ] {
            assert_eq!(is_part_of(uri, whole), is_part, "{uri} of {whole}");
        }
    }
}
