//! Fetches small documents from servers that are not MCP servers.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use super::{causes, connector::Connector, without_secrets};

/// How long a document may take from the request to its last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The size of the largest document, in bytes.
const MAX_DOCUMENT: usize = 256 << 10;
/// Shorter than the keep-alive of the usual servers.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// Fetches documents from one server. It follows no redirects: the request may hold a secret, and the document decides
/// whom taskgate trusts.
pub struct Fetcher {
    uri: Uri,
    client: Client<Connector, Full<Bytes>>,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("uri", &without_secrets(&self.uri)).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Prepares to fetch from `uri`; no connection is made yet.
    ///
    /// # Errors
    /// A sentence, if TLS cannot be set up for an `https` URL.
    pub fn new(uri: Uri) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let connector = Connector::new(connector, &uri)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self { uri, client })
    }

    /// GETs the document.
    ///
    /// # Errors
    /// A sentence that says why there is no document.
    pub async fn get(&self) -> Result<Bytes, String> {
        self.fetch(Request::get(&self.uri), Full::default()).await
    }

    /// POSTs a form, and returns the document that answers it.
    ///
    /// # Errors
    /// A sentence that says why there is no document; nothing of the form and of `authorization` is in it.
    pub async fn post(&self, form: String, authorization: HeaderValue) -> Result<Bytes, String> {
        let request = Request::post(&self.uri)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::AUTHORIZATION, authorization);
        self.fetch(request, Full::from(form)).await
    }

    async fn fetch(&self, request: http::request::Builder, body: Full<Bytes>) -> Result<Bytes, String> {
        let request = request.header(header::ACCEPT, "application/json").body(body);
        let request = request.map_err(|error| error.to_string())?;
        let fetched = async {
            let response = self.client.request(request).await.map_err(|error| causes(&error))?;
            let status = response.status();
            if !status.is_success() {
                return Err(format!("it answered HTTP {status}"));
            }
            let body = Limited::new(response.into_body(), MAX_DOCUMENT).collect().await;
            body.map(http_body_util::Collected::to_bytes).map_err(|error| causes(&*error))
        };
        let fetched = tokio::time::timeout(TIMEOUT, fetched).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("it did not answer within {TIMEOUT:?}")));
        fetched.map_err(|why| format!("{}: {why}", without_secrets(&self.uri)))
    }
}
