//! The upstreams that are served, found by the paths that lead to them.

use std::{collections::HashMap, sync::Arc};

use crate::{config::SSE_MESSAGES, upstream::Upstream};

/// What stands before the path of the resource (RFC 9728, section 3.1).
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What is behind a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The endpoint of Streamable HTTP.
    Streamable,
    /// The stream of the 2024-11-05 transport.
    OldStream,
    /// Where that transport's messages go.
    OldMessages,
    /// The protected-resource metadata of one of the others.
    Metadata,
}

/// The upstreams of the configuration, and every path that leads to one of them.
#[derive(Debug)]
pub struct Upstreams {
    /// In the order of the configuration.
    all: Vec<Arc<Upstream>>,
    doors: HashMap<String, (Arc<Upstream>, Door)>,
}

impl Upstreams {
    /// Returns the table of these upstreams. `protected`: clients are told whose tokens are accepted.
    #[must_use]
    pub fn new(all: Vec<Arc<Upstream>>, protected: bool) -> Self {
        let doors = all.iter().flat_map(|upstream| {
            let old = upstream.sse_path.iter().flat_map(move |path| {
                let messages = format!("{path}{SSE_MESSAGES}");
                [(path.clone(), (upstream, Door::OldStream)), (messages, (upstream, Door::OldMessages))]
            });
            std::iter::once((upstream.id.as_str().to_owned(), (upstream, Door::Streamable))).chain(old)
        });
        let metadata = protected.then(|| metadata_doors(&all)).into_iter().flatten();
        // No endpoint is where metadata is: the configuration has none below "/.well-known/".
        let doors = metadata.chain(doors).map(|(path, (upstream, door))| (path, (Arc::clone(upstream), door)));
        Self { doors: doors.collect(), all }
    }

    /// Returns what is behind a path.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&(Arc<Upstream>, Door)> {
        self.doors.get(path)
    }

    /// Returns the path of the endpoint that a path belongs to.
    pub(super) fn resource_path<'p>(&'p self, path: &'p str) -> &'p str {
        match self.at(path) {
            Some((upstream, Door::OldMessages)) => upstream.sse_path.as_deref().unwrap_or(path),
            Some((upstream, Door::Metadata)) if path == WELL_KNOWN => upstream.id.as_str(),
            Some((_, Door::Metadata)) => path.strip_prefix(WELL_KNOWN).unwrap_or(path),
            _ => path,
        }
    }

    /// Returns every upstream, in the order of the configuration.
    #[must_use]
    pub fn all(&self) -> &[Arc<Upstream>] {
        &self.all
    }
}

/// Returns where the metadata of each endpoint is. That of the only upstream is at the root, too, where clients look
/// next.
fn metadata_doors(upstreams: &[Arc<Upstream>]) -> impl Iterator<Item = (String, (&Arc<Upstream>, Door))> {
    let only = if let [only] = upstreams { Some(only) } else { None };
    let root = only.map(|only| (WELL_KNOWN.to_owned(), (only, Door::Metadata)));
    let each = upstreams.iter().flat_map(|upstream| {
        let paths = std::iter::once(upstream.id.as_str()).chain(upstream.sse_path.as_deref());
        paths.map(move |path| (well_known(path), (upstream, Door::Metadata)))
    });
    root.into_iter().chain(each)
}

/// Returns where the metadata of the endpoint at a path is.
pub(super) fn well_known(path: &str) -> String {
    format!("{WELL_KNOWN}{}", path.trim_end_matches('/'))
}
