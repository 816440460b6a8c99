//! The floors: the least that a server of their kind can do with hyper.

use std::{convert::Infallible, error::Error, future::Future};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::{Body, Incoming},
    header::{CONTENT_TYPE, HOST, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::TcpListener;

use crate::Result;

/// Serves HTTP/1.1 on a free port while the process lives, and says on stderr which port it is.
pub async fn serve<H, F, B>(handler: H) -> Result<()>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = std::result::Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let handler = handler.clone();
        tokio::spawn(async move {
            // An error here is a client that left, which is how every round ends.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(handler)).await;
        });
    }
}

/// The bare forwarder: pooled connections, bodies streamed both ways, nothing rewritten but the authority.
pub async fn forward(upstream: &str) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    let host = HeaderValue::from_str(upstream)?;
    serve(move |mut request: Request<Incoming>| {
        let client = client.clone();
        let host = host.clone();
        async move {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let uri = [b"http://", host.as_bytes(), path.as_bytes()].concat();
            let forwarded = match Uri::try_from(uri) {
                Ok(uri) => {
                    *request.uri_mut() = uri;
                    request.headers_mut().insert(HOST, host);
                    client.request(request).await.map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            Ok(match forwarded {
                Ok(response) => response.map(Either::Left),
                Err(error) => {
                    let mut response = Response::new(Either::Right(Full::from(error)));
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    response
                }
            })
        }
    })
    .await
}

/// The bare server: reads the request to its end, answers the same bytes each time.
pub async fn answer(body: Bytes) -> Result<()> {
    serve(move |request: Request<Incoming>| {
        let body = body.clone();
        async move {
            let mut response = Response::new(Full::new(body));
            match request.into_body().collect().await {
                Ok(_) => {
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                }
                Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
            }
            Ok(response)
        }
    })
    .await
}
