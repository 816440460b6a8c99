//! Recognises modern requests; what clients of each generation send about tasks, and what they are answered; what hosts
//! without tasks get instead. The engine knows none of it.

pub mod legacy;
pub mod modern;
pub mod recognise;
pub mod tools;
