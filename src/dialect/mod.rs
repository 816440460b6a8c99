//! Recognises modern requests; what clients of each generation send about tasks, and what they are answered; what hosts
//! without tasks get instead. The engine knows none of it.

pub mod legacy;
pub mod modern;
pub mod recognise;
pub mod tools;

use crate::{task::TaskWriter, wire::RpcError};

/// What clients of either generation are told where the result of their task is damaged.
const DAMAGED: &str =
    "the result of this task is damaged on the disk of taskgate and cannot be read; asking again will not help";

/// Returns the one error for ids that are unknown, foreign or expired.
#[must_use]
pub fn not_found() -> RpcError {
    RpcError::invalid_params("Task not found: no task of yours has this id, or its ttl is over")
}

/// Returns the writers of all dialects.
#[must_use]
pub fn writers() -> [&'static dyn TaskWriter; 3] {
    [legacy::writer(), modern::writer(), tools::writer()]
}
