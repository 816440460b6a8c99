//! Words of the operator with places that taskgate fills in.

use std::sync::Arc;

use toml::de::DeValue;

use super::{nearest::did_you_mean, values::text};

/// The names that may stand between braces.
pub(super) const PLACES: [&str; 7] = ["job_id", "title", "tool", "wait_for_job", "elapsed", "progress", "estimate"];

/// Words with places such as `{job_id}`. Other braces stand for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Arc<str>);

impl Template {
    /// Returns the words with each place filled in.
    #[must_use]
    pub fn fill(&self, value: impl Fn(&str) -> String) -> String {
        let mut filled = String::with_capacity(self.0.len() + 64);
        for part in parts(&self.0) {
            match part {
                Part::Words(words) => filled.push_str(words),
                Part::Place(place) => filled.push_str(&value(place)),
            }
        }
        filled
    }
}

/// Reads words that name a job. An empty text means those of taskgate.
pub(super) fn template(value: &DeValue<'_>) -> Result<Option<Template>, String> {
    let text = text(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    let places = || parts(&text).filter_map(|part| if let Part::Place(place) = part { Some(place) } else { None });
    if let Some(unknown) = places().find(|place| !PLACES.contains(place)) {
        let meant = did_you_mean(unknown, PLACES);
        let all = PLACES.map(|place| format!("{{{place}}}")).join(", ");
        let the = if meant.is_empty() { "; the" } else { " The" };
        return Err(format!("{{{unknown}}} stands for nothing{meant}{the} text may have {all}"));
    }
    if !places().any(|place| place == "job_id") {
        return Err("the text needs {job_id}, without which no model can ask for the result".to_owned());
    }
    Ok(Some(Template(text.into())))
}

enum Part<'a> {
    Words(&'a str),
    /// The name between two braces.
    Place(&'a str),
}

/// Splits a text into its words and its places: lower-case names between braces.
fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let Some(place) = place(rest) {
            rest = &rest[place.len() + 2..];
            return Some(Part::Place(place));
        }
        let mut beginnings =
            rest.char_indices().skip(1).filter(|(at, char)| *char == '{' && place(&rest[*at..]).is_some());
        let end = beginnings.next().map_or(rest.len(), |(at, _)| at);
        let (words, after) = rest.split_at(end);
        rest = after;
        (!words.is_empty()).then_some(Part::Words(words))
    })
}

/// Returns the name of the place that a text begins with.
fn place(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Template>, String> {
        template(&DeValue::String(text.into()))
    }

    #[test]
    fn places_are_filled_in_and_other_braces_stay() {
        let words = r#"{title}: call {wait_for_job} with {"job_ids":["{job_id}"]} {}{ {Not}"#;
        let template = read(words).expect("valid").expect("words");
        let filled = template.fill(str::to_uppercase);
        assert_eq!(filled, r#"TITLE: call WAIT_FOR_JOB with {"job_ids":["JOB_ID"]} {}{ {Not}"#);
    }

    #[test]
    fn a_text_without_the_job_or_with_an_unknown_place_is_a_mistake() {
        assert_eq!(read(""), Ok(None));
        assert!(read("{title} runs").expect_err("no id").contains("{job_id}"));
        let mistake = read("{job_id} {titel}").expect_err("unknown");
        assert!(mistake.contains("{titel}") && mistake.contains("{wait_for_job}"), "{mistake}");
    }
}
