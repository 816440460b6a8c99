//! While the process starts it does not know yet which sessions and tasks there are, so clients are told to try again.

use std::{future::Future, pin::pin, sync::Arc};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::{listener::accept, tls::Tls, unavailable::tell};
use crate::wire::RpcError;

/// How many connections are told at once. Further ones are just closed.
const AT_ONCE: usize = 64;

/// Answers 503 on every connection until `starting` is done. Hosts drop a server after one 404.
pub async fn while_starting<T>(tcp: &TcpListener, tls: Option<&Arc<Tls>>, starting: impl Future<Output = T>) -> T {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut starting = pin!(starting);
    loop {
        let (stream, _) = tokio::select! {
            biased;
            started = &mut starting => return started,
            accepted = accept(tcp, || false) => accepted,
        };
        let Ok(turn) = Arc::clone(&turns).try_acquire_owned() else { continue };
        let tls = tls.cloned();
        tokio::spawn(async move {
            refuse(stream, tls).await;
            drop(turn);
        });
    }
}

async fn refuse(stream: TcpStream, tls: Option<Arc<Tls>>) {
    let body = RpcError::internal("taskgate is starting; try again in a moment").to_response(None);
    match tls {
        None => tell(stream, &body).await,
        Some(tls) => {
            // A client that speaks HTTP/2 alone finds the connection closed.
            if let Ok(connection) = tls.accept(stream).await {
                tell(connection.stream, &body).await;
            }
        }
    }
}
