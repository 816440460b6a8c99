//! The server over stdio: each process only passes bytes on, to and from the test.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{
    book::Book,
    run::{Run, Said, response},
};

/// Ends with its stdin, or when the test closes the connection.
const PROCESS: &str = r#"
exec 3<>"/dev/tcp/127.0.0.1/$1" 4<&0
cat <&3 & out=$!
cat <&4 >&3 & in=$!
wait -n
kill "$out" "$in"
"#;

/// How many processes die. After each taskgate waits twice as long before it starts one.
const DEATHS: usize = 3;

/// Listens for processes, and returns the command that starts one.
pub(crate) async fn start(book: &Arc<Book>) -> [String; 5] {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (book, deaths) = (Arc::clone(book), Arc::<AtomicUsize>::default());
    tokio::spawn(async move {
        for nth in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(process(Arc::clone(&book), Arc::clone(&deaths), format!("process-{nth}"), stream));
        }
    });
    ["bash".to_owned(), "-c".to_owned(), PROCESS.to_owned(), "server".to_owned(), port.to_string()]
}

/// Is one process, until its stdin ends or it dies.
async fn process(book: Arc<Book>, deaths: Arc<AtomicUsize>, name: String, stream: TcpStream) {
    let (read, mut write) = stream.into_split();
    let (own, mut said) = mpsc::channel::<Said>(1024);
    let died = CancellationToken::new();
    let writing = async {
        while let Some(Said::Line(line)) = said.recv().await {
            if write.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let reading = async {
        let mut lines = BufReader::new(read).lines();
        let mut calls = HashMap::<String, CancellationToken>::new();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut message: Value = serde_json::from_str(&line).unwrap();
            if message.get("method").is_none() {
                book.answered(&name, &message, true);
            } else if message["method"] == "notifications/cancelled" {
                if let Some(cancelled) = calls.get(&message["params"]["requestId"].to_string()) {
                    cancelled.cancel();
                }
            } else if message["method"] == "tools/call" {
                let end = &mut message["params"]["arguments"]["end"];
                if *end == "cut" && deaths.fetch_add(1, Ordering::Relaxed) >= DEATHS {
                    *end = "answer".into();
                }
                let cancelled = died.child_token();
                calls.insert(message["id"].to_string(), cancelled.clone());
                let (voice, book, session) = (own.clone(), Arc::clone(&book), name.clone());
                let aside = move || Some(voice.clone());
                let run = Run { book, session, message, cancelled, own: own.clone(), aside, forget: || () };
                let died = died.clone();
                tokio::spawn(async move { died.run_until_cancelled(run.work()).await });
            } else if message.get("id").is_some() {
                let _ = own.send(Said::Line(response(&message))).await;
            }
        }
    };
    // The connection ends with both halves, and then the process.
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
    died.cancel();
}
