//! The tools in the result of `tools/list`: their names, and whether the server runs them as tasks.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::object::Members;

/// One tool of a list.
#[derive(Debug)]
pub struct Listed<'a> {
    /// Its members.
    pub members: Members<'a>,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Whether the server says that the tool can or must be called as a task.
    pub native: bool,
}

/// Reads the tools in a raw `result`. Entries without a name are left out.
///
/// # Errors
/// A sentence that says what is wrong with the result, or which member of a tool is there twice.
pub fn listed(result: &str) -> Result<Vec<Listed<'_>>, String> {
    let tools = Members::parse(result)?.get("tools").ok_or("it has no tools")?;
    let tools: Vec<&RawValue> = serde_json::from_str(tools).map_err(|_| "its tools are not a list")?;
    tools.into_iter().filter_map(|tool| tool_of(tool.get()).transpose()).collect()
}

fn tool_of(raw: &str) -> Result<Option<Listed<'_>>, String> {
    if !raw.starts_with('{') {
        return Ok(None);
    }
    let members = Members::parse(raw)?;
    let Some(name) = members.text("name") else { return Ok(None) };
    let execution = members.nested("execution")?;
    let support = execution.as_ref().and_then(|execution| execution.text("taskSupport"));
    let native = matches!(support.as_deref(), Some("optional" | "required"));
    Ok(Some(Listed { members, name, native }))
}

/// Returns whether a raw `result`, which can be read, has nothing where its tools should be, or no list.
#[must_use]
pub fn has_no_list(result: &str) -> bool {
    Members::parse(result).is_ok_and(|result| !result.get("tools").is_some_and(|tools| tools.starts_with('[')))
}

/// Returns the raw cursor of the next page in a raw `result`, if there is one.
#[must_use]
pub fn next_cursor(result: &str) -> Option<&str> {
    Members::parse(result).ok()?.get("nextCursor").filter(|cursor| *cursor != "null")
}
