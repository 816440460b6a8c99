//! What in the schema of a tool makes clients repeat arguments in headers (revision 2026-07-28, "Streamable HTTP",
//! section "Custom Headers from Tool Parameters"). A server has to compare such headers with the body ("Server
//! Validation"); where it does not, the client sees a schema that asks for none.

use serde_json::value::RawValue;

use crate::wire::{
    Edits, Message, Parts,
    depth::nests_too_deep,
    message::Outcome,
    object::{Members, Needle, may_have},
    tools::{Listed, listed},
};

/// The member of a property's schema that names the header.
const PARAM_HEADER: &str = "x-mcp-header";
static NEEDLE: Needle = Needle::new(PARAM_HEADER);
/// The members of a schema whose members are schemas, under names of their own.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// The members of a schema that hold values, and no schema.
const VALUES: [&str; 4] = ["const", "enum", "default", "examples"];

/// Removes from a tool what makes clients repeat arguments in headers, wherever it stands: clients refuse a tool that has
/// it in another place than that of a property.
///
/// # Errors
/// A sentence saying that the schema nests too deep.
pub(super) fn remove<'a>(edits: &mut Edits<'a>, tool: &Listed<'a>) -> Result<(), String> {
    let Some(schema) = tool.members.get("inputSchema").filter(|schema| may_have(schema, [&NEEDLE])) else {
        return Ok(());
    };
    // It bounds the recursion.
    if nests_too_deep(schema.as_bytes()) {
        return Err(format!("the schema of the tool {:?} nests too deep", tool.name));
    }
    remove_from(edits, schema);
    Ok(())
}

/// Returns the response with a list of tools that ask for no headers, under the raw `id`; `None` if they ask for none
/// already.
///
/// # Errors
/// A sentence saying why the list cannot be read.
pub(super) fn without(response: &Message, id: &str) -> Result<Option<Parts>, String> {
    let (Some((Outcome::Result, raw)), Some(span)) = (response.outcome(), response.id_span()) else { return Ok(None) };
    if !may_have(raw, [&NEEDLE]) {
        return Ok(None);
    }
    let mut edits = Edits::of(response.bytes());
    edits.replace(span, id);
    for tool in listed(raw)? {
        remove(&mut edits, &tool)?;
    }
    Ok(Some(edits.apply()))
}

/// Removes it from a raw schema, or from those in a raw list.
fn remove_from<'a>(edits: &mut Edits<'a>, raw: &'a str) {
    if raw.starts_with('[') {
        let list: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
        for raw in list {
            remove_from(edits, raw.get());
        }
        return;
    }
    let Ok(schema) = Members::parse(raw) else { return };
    edits.remove(&schema, PARAM_HEADER);
    for (key, value) in schema.iter().filter(|(key, _)| *key != PARAM_HEADER && !VALUES.contains(key)) {
        if NAMED.contains(&key) {
            let named = Members::parse(value);
            for (_, raw) in named.iter().flat_map(Members::iter) {
                remove_from(edits, raw);
            }
        } else {
            remove_from(edits, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a list of one tool of that schema, without what asks for headers.
    fn listing(schema: &str) -> Result<String, String> {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"t","inputSchema":{schema}}}]}}}}"#);
        let response = Message::parse(text.into()).expect("a response");
        let list = without(&response, "1")?.map_or_else(|| response.bytes().clone(), Parts::into_bytes);
        Ok(String::from_utf8(list.to_vec()).expect("text"))
    }

    #[test]
    fn tools_ask_for_no_headers_that_their_server_would_not_compare() {
        let asks = r#""x-mcp-header":"A","#;
        for schema in [
            r#"{"properties":{"a":{HERE"properties":{"b":{HERE"x":1}}}}}"#,
            r#"{HERE"items":{HERE"type":"string"},"anyOf":[{HERE"a":1},true,{"not":{HERE"b":[]}}]}"#,
            r#"{"$defs":{"d":{HERE"a":1}},"if":{HERE"a":1},"additionalProperties":{HERE"a":1},"prefixItems":[[{HERE"a":1}]]}"#,
        ] {
            let (asking, clean) = (schema.replace("HERE", asks), schema.replace("HERE", ""));
            assert_eq!(listing(&asking), listing(&clean), "{schema}");
            let hidden = schema.replace("HERE", r#""x-\u006dcp-header":"A","#);
            assert_eq!(listing(&hidden), listing(&clean), "{schema}");
        }
        let deep =
            [r#"{"properties":{"a":"#.repeat(100_000), r#"{"x-mcp-header":"A"}"#.to_owned(), "}}".repeat(100_000)];
        assert!(listing(&deep.concat()).is_err_and(|why| why.contains("too deep")));
    }

    #[test]
    fn a_property_of_that_name_and_values_stay_as_they_are() {
        for schema in [
            r#"{"properties":{"x-mcp-header":{"type":"string"}},"required":["x-mcp-header"]}"#,
            r#"{"default":{"x-mcp-header":"A"},"enum":[{"x-mcp-header":"A"}],"const":{"x-mcp-header":"A"}}"#,
            r#"{"examples":[{"x-mcp-header":"A"}],"description":"x-mcp-header"}"#,
        ] {
            assert!(listing(schema).expect("tools").contains(schema), "{schema}");
        }
    }
}
