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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        sync::oneshot,
    };

    use super::*;

    #[tokio::test]
    async fn clients_are_told_to_try_again_until_the_start_is_over() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = tcp.local_addr().expect("an address");
        let (done, started) = oneshot::channel::<()>();
        let asking = async {
            for _ in 0..3 {
                let mut connection = TcpStream::connect(address).await.expect("a connection");
                connection.write_all(b"POST /mcp HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
                let mut answer = String::new();
                connection.read_to_string(&mut answer).await.expect("an answer");
                assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
                assert!(answer.contains("taskgate is starting"), "{answer}");
            }
            drop(done);
        };
        let (started, ()) = tokio::join!(while_starting(&tcp, None, started), asking);
        assert!(started.is_err(), "its result is handed on");
    }
}
