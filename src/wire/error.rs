//! JSON-RPC errors, and how taskgate writes them.

use bytes::Bytes;
use serde_json::json;

use super::response::error_response;

/// The JSON-RPC error codes that taskgate itself answers with.
pub mod code {
    /// The body is not JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// The JSON is not a valid request.
    pub const INVALID_REQUEST: i32 = -32600;
    /// The method, or the way in which the tool was called, does not exist here.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// The parameters are wrong, unknown task ids among them.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The upstream or taskgate itself failed.
    pub const INTERNAL_ERROR: i32 = -32603;
}

/// An error that becomes the `error` member of a JSON-RPC response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// One of [`code`].
    pub code: i32,
    /// What was wrong and what to do about it.
    pub message: String,
}

impl RpcError {
    /// Creates an error with [`code::INVALID_REQUEST`].
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self { code: code::INVALID_REQUEST, message: message.into() }
    }

    /// Creates an error with [`code::METHOD_NOT_FOUND`].
    pub fn method_not_found(message: impl Into<String>) -> Self {
        Self { code: code::METHOD_NOT_FOUND, message: message.into() }
    }

    /// Creates an error with [`code::INVALID_PARAMS`].
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self { code: code::INVALID_PARAMS, message: message.into() }
    }

    /// Creates an error with [`code::INVALID_PARAMS`] that says why `params` are not good.
    pub fn bad_params(why: impl std::fmt::Display) -> Self {
        Self::invalid_params(format!("Invalid params: {why}"))
    }

    /// Creates an error with [`code::INTERNAL_ERROR`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: code::INTERNAL_ERROR, message: message.into() }
    }

    /// Writes the raw JSON of the `error` member.
    #[must_use]
    pub fn to_raw(&self) -> String {
        json!({ "code": self.code, "message": self.message }).to_string()
    }

    /// Writes a whole response. Without an `id` it leaves the member out, as the Streamable HTTP transport asks of
    /// errors that answer no particular request.
    #[must_use]
    pub fn to_response(&self, id: Option<&str>) -> Bytes {
        match id {
            Some(id) => error_response(id, &self.to_raw()),
            None => format!(r#"{{"jsonrpc":"2.0","error":{}}}"#, self.to_raw()).into(),
        }
    }
}
