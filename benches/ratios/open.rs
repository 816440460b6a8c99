//! What the upstream keeps open: GET streams on which nothing comes, and calls that it answers when it is told to.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, buf::Chain};
use hyper::body::{Body, Frame};
use tokio::sync::watch;

/// Pieces of an answer that are sent without a copy into one.
pub type Pieces = Chain<Chain<Bytes, Bytes>, Bytes>;

/// Counts as open while it lives.
pub struct Open(watch::Sender<u64>);

impl Open {
    pub fn new(count: &watch::Sender<u64>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The body of a GET stream without messages.
pub struct Silence {
    _open: Open,
}

impl Silence {
    pub fn new(open: Open) -> Self {
        Self { _open: open }
    }
}

impl Body for Silence {
    type Data = Pieces;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Pieces>, Infallible>>> {
        Poll::Pending
    }
}
