//! Recognises modern requests; what clients of each generation send about tasks, and what they are answered; what hosts
//! without tasks get instead. The engine knows none of it.

pub mod legacy;
pub mod modern;
pub mod recognise;
pub mod tools;

use crate::task::TaskWriter;

/// Returns the writers of all dialects.
#[must_use]
pub fn writers() -> [&'static dyn TaskWriter; 3] {
    [legacy::writer(), modern::writer(), tools::writer()]
}
