//! The client against real servers in the test: https by its certificates, and connections that are kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{Again, HttpClient};

/// Answers `answers` requests of a connection, and closes it.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, answers: usize) {
    let mut stream = BufReader::new(stream);
    for _ in 0..answers {
        let mut line = String::new();
        while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
            line.clear();
        }
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.is_err() {
            return;
        }
        stream.flush().await.unwrap();
    }
}

fn get(url: &str) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_trusts_the_certificates_that_it_is_given_and_no_others() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(secured) = TlsAcceptor::from(Arc::clone(&config)).accept(stream).await {
                tokio::spawn(serve(secured, 100));
            }
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let url = format!("https://localhost:{port}/x");
    let client = HttpClient::trusting(roots);
    for _ in 0..3 {
        let reply = client.send(get(&url), 10).await.unwrap();
        assert_eq!((reply.status, &reply.body[..]), (200, &b"hi"[..]));
    }
    let error = HttpClient::trusting(RootCertStore::empty()).send(get(&url), 10).await.unwrap_err();
    assert!(error.message.contains("invalid peer certificate"), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_that_the_server_has_closed_is_replaced_without_a_further_try() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, 2));
        }
    });
    let client = HttpClient::default();
    for _ in 0..10 {
        assert_eq!(client.send(get(&url), 10).await.unwrap().status, 200);
    }
    assert_eq!(opened.load(Ordering::SeqCst), 5, "two requests a connection");
    let error = client.send(get(&url), 1).await.unwrap_err();
    assert!(error.message.contains("longer than 1 bytes") && error.again == Again::Never, "{error:?}");
}

/// Takes connections; of each request the first line is put down. What `answers` says of a connection (by number)
/// is the requests it answers; at the next one it is closed.
async fn recording(answers: impl Fn(usize) -> usize + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let put_down = Arc::clone(&lines);
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let (put_down, answers) = (Arc::clone(&put_down), answers(number));
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                for answered in 0.. {
                    let (mut first, mut line) = (String::new(), String::new());
                    if stream.read_line(&mut first).await.unwrap_or(0) == 0 {
                        return;
                    }
                    while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
                        line.clear();
                    }
                    put_down.lock().unwrap().push(first.trim_end().to_owned());
                    if answered == answers {
                        return;
                    }
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
                }
            });
        }
    });
    (server, lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_request_that_may_be_repeated_is_sent_again_unasked() {
    for (method, times) in [(Method::GET, 2), (Method::PUT, 2), (Method::POST, 1), (Method::PATCH, 1)] {
        // The first connection answers one request, and breaks at the second, which it has read.
        let (server, lines) = recording(|number| if number == 0 { 1 } else { 9 }).await;
        let client = HttpClient::default();
        client.send(get(&server), 10).await.unwrap();
        let request = Request::builder().method(method.clone()).uri(format!("{server}/x"));
        let reply = client.send(request.body(Full::default()).unwrap(), 10).await;
        assert_eq!(reply.is_ok(), times == 2, "{method}: {reply:?}");
        assert!(reply.map_or_else(|error| error.again == Again::Later, |reply| reply.status == 200));
        let lines = lines.lock().unwrap();
        let wanted = format!("{method} /x HTTP/1.1");
        assert_eq!(lines.iter().filter(|line| **line == wanted).count(), times, "{lines:?}");
    }
}

#[tokio::test]
async fn an_address_without_a_path_may_have_a_query_and_none_may_have_a_user() {
    let (server, lines) = recording(|_| 9).await;
    let client = HttpClient::default();
    for rest in ["", "/", "?x=1", "/a?x=1"] {
        client.send(get(&format!("{server}{rest}")), 10).await.unwrap();
    }
    let paths = ["/", "/", "/?x=1", "/a?x=1"];
    assert_eq!(*lines.lock().unwrap(), paths.map(|path| format!("GET {path} HTTP/1.1")));
    let address = server.replace("http://", "http://me:secret@");
    let error = client.send(get(&address), 10).await.unwrap_err();
    assert!(error.message.contains("env:NAME") && !error.message.contains("secret"), "{error:?}");
    assert_eq!((error.again, lines.lock().unwrap().len()), (Again::Never, 4));
}

#[tokio::test]
async fn an_answer_before_the_whole_request_is_read_is_given_and_its_connection_left() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            // Nothing of the body is read, which is longer than what the sockets hold.
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
            kept.push(stream);
        }
    });
    let client = HttpClient::default();
    for times in 1..4 {
        let request = Request::post(&url).body(Full::from(vec![b'x'; 64 << 20])).unwrap();
        let reply = client.send(request, 10).await.unwrap();
        assert_eq!((reply.status, opened.load(Ordering::SeqCst)), (200, times));
    }
}

#[tokio::test]
async fn a_status_that_may_pass_counts_whatever_its_body_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let heads = [
        "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 20",
        "HTTP/1.1 429 Busy\r\nContent-Length: 20",
        "HTTP/1.1 404 None\r\nContent-Length: 20",
    ];
    tokio::spawn(async move {
        for head in heads {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
                line.clear();
            }
            let answer = format!("{head}\r\n\r\n{}", "x".repeat(20));
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = HttpClient::default();
    let busy = client.send(get(&url), 10).await.unwrap();
    assert_eq!((busy.status, busy.retry_after, busy.body.len()), (503, Some(Duration::from_secs(7)), 0));
    assert_eq!(client.send(get(&url), 10).await.unwrap().status, 429);
    let error = client.send(get(&url), 10).await.unwrap_err();
    assert!(error.again == Again::Never && error.message.contains("max_response"), "{error:?}");
}
