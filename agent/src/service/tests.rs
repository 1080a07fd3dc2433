//! The client against real servers in the test: https by its certificates, and connections that are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
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
