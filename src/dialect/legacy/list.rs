//! `tasks/list` (section "Listing Tasks"), with cursors that work only for the owner that got them.

use std::fmt::Write as _;

use super::{
    Legacy, Reply,
    reply::{NoResult, view},
};
use crate::{
    identity::Owner,
    task::PageOrder,
    wire::{Message, RpcError, object::Members},
};

/// How many tasks a page has at most.
const PAGE: usize = 50;

impl Legacy {
    /// Answers with a page of the owner's tasks, in the order of their creation.
    ///
    /// # Errors
    /// [`NoResult`]; -32602 for a cursor that was not given to this owner.
    pub async fn list(&self, owner: &Owner, request: &Message) -> Result<Reply, NoResult> {
        let params = request.params().map(Members::parse).transpose();
        let params = params.map_err(RpcError::bad_params)?;
        let after = match params.as_ref().and_then(|params| Some((params.get("cursor")?, params.text("cursor")))) {
            None => None,
            Some((_, Some(cursor))) => Some(self.place(owner, &cursor)?),
            Some((_, None)) => {
                return Err(RpcError::bad_params("params.cursor must be a string").into());
            }
        };
        // One more than a page tells whether there is a next one.
        let tasks = self.engine.page(owner, PageOrder::OldestFirst { after }, PAGE + 1).await?;
        let mut result = String::with_capacity(64 + 256 * tasks.len().min(PAGE));
        result.push_str("{\"tasks\":[");
        for (at, (_, task)) in tasks.iter().take(PAGE).enumerate() {
            if at > 0 {
                result.push(',');
            }
            view(task, &self.engine.outlook(task)).write(&mut result);
        }
        result.push(']');
        if tasks.len() > PAGE {
            // Writing to a String cannot fail.
            let _ = write!(result, r#","nextCursor":"{}""#, self.cursors.seal(owner, tasks[PAGE - 1].0));
        }
        result.push('}');
        Ok(Reply::result(request, &result))
    }

    /// Returns the place that a cursor stands for.
    fn place(&self, owner: &Owner, cursor: &str) -> Result<u64, RpcError> {
        let place = self.cursors.open(owner, cursor);
        place.ok_or_else(|| RpcError::invalid_params("Invalid cursor: use a nextCursor as it was given, or none"))
    }
}
