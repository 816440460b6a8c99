//! What holds of exchanges whatever carries them.

mod in_flight;
