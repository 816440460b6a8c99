//! taskgate: a reverse proxy that gives tasks to MCP servers without them.
//!
//! A message walks through the modules in one direction. A module uses only modules further down this list:
//! [`app`], [`gate`], [`dialect`], [`route`], [`task`], [`session`], [`upstream`], [`flow`], [`limit`], [`identity`],
//! [`net`], [`wire`], [`disk`], [`observe`], [`config`]. ARCHITECTURE.md describes the walk of one message.

pub mod app;
pub mod config;
pub mod dialect;
pub mod disk;
pub mod flow;
pub mod gate;
pub mod identity;
pub mod limit;
pub mod net;
pub mod observe;
pub mod route;
pub mod session;
pub mod task;
pub mod upstream;
pub mod wire;
