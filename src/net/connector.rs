//! Connects to other servers, over TLS where their URL says so.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::tls::tls_config;

/// What a [`Connector`] connects with.
pub type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Makes connections to one server.
#[derive(Clone)]
pub enum Connector {
    /// Over TCP. Without TLS, whose set-up would cost each start a tenth of its memory.
    Http(HttpConnector),
    /// Over TLS.
    Https(HttpsConnector<HttpConnector>),
}

impl Connector {
    /// Returns what connects to the server of `uri` by `http`.
    ///
    /// # Errors
    /// A sentence that says why TLS cannot be set up for an `https` URL.
    pub fn new(mut http: HttpConnector, uri: &Uri) -> Result<Self, String> {
        if uri.scheme_str() != Some("https") {
            return Ok(Self::Http(http));
        }
        http.enforce_http(false);
        Ok(Self::Https(HttpsConnector::from((http, tls_config()?))))
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Http(http) => http.poll_ready(cx).map_err(Into::into),
            Self::Https(https) => https.poll_ready(cx),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self {
            Self::Http(http) => {
                let connecting = http.call(uri);
                Box::pin(async { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Self::Https(https) => https.call(uri),
        }
    }
}
