//! What clients of each generation send about tasks and are answered: the engine knows none of it.

pub mod legacy;
pub mod modern;
