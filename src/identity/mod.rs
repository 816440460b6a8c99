//! Who is asking: the owner of tasks, and the checks of Host and Origin.

mod origin;
mod owner;
mod trusted;

pub use origin::{Hosts, Refused};
pub use owner::Owner;
pub use trusted::{Identity, Untrusted};
