//! The HTTP server that the scriptable servers stand on.

use std::{error::Error, future::Future};

use http_body::Body;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Answers requests until `token` is cancelled, which breaks every connection. An error breaks the one it came on.
pub(crate) async fn serve<A, F, B, E>(listener: TcpListener, token: CancellationToken, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let accept = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (token, service) = (token.clone(), service_fn(answer.clone()));
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                token.run_until_cancelled(builder.serve_connection(TokioIo::new(stream), service)).await.is_some()
            });
        }
    };
    token.run_until_cancelled(accept).await;
}
