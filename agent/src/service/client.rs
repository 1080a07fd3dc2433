//! HTTP/1.1 connections of an agent, kept for the next request; https by the system's certificates.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use tuplane_core::job::USER_IN_URL;

use super::CallError;

/// A connection that was not used for so long is closed.
const IDLE: Duration = Duration::from_mins(1);
/// So many connections to one server are kept when nobody uses them.
const MOST_IDLE: usize = 256;

/// A connection that is not free so long after its answer is not kept.
const READY: Duration = Duration::from_millis(50);

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// `Retry-After` in seconds.
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Origin {
    https: bool,
    host: String,
    port: u16,
}

/// A connection; its end ends what is under way on it.
#[derive(Debug)]
struct Connection {
    send: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    since: Instant,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    fn is_usable(&self) -> bool {
        let most = if self.send.is_ready() { IDLE } else { READY };
        !self.send.is_closed() && self.since.elapsed() < most
    }

    /// Waits until the request before is over, which it is a moment after its answer, unless the server wants to
    /// close the connection or has not read the whole request.
    async fn is_free(&mut self) -> bool {
        let rest = READY.saturating_sub(self.since.elapsed());
        self.send.is_ready()
            || tokio::time::timeout(rest, self.send.ready()).await.is_ok_and(|ready| ready.is_ok())
    }
}

/// The agent's connections to servers.
#[derive(Debug, Default)]
pub(crate) struct HttpClient {
    idle: Mutex<HashMap<Origin, Vec<Connection>>>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl HttpClient {
    /// One that trusts these certificates instead of the system's.
    #[cfg(test)]
    pub(super) fn trusting(roots: RootCertStore) -> Self {
        let client = Self::default();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        client.tls.get_or_init(|| Ok(Arc::new(config)));
        client
    }

    /// Sends a request and reads its answer, at most `most` bytes of body. `request` has a whole address.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>, most: u64) -> Result<Reply, CallError> {
        let origin = Origin::of(request.uri())?;
        let request = in_origin_form(request)?;
        // What a server has closed in the meantime is often seen only when it is used. A request that may have
        // arrived is sent again unasked only where that changes nothing (RFC 9110, section 9.2.2): of others,
        // `retries` alone says how often the server may see them.
        let safe = request.method().is_idempotent();
        while let Some(mut kept) = self.take(&origin) {
            if !kept.is_free().await {
                continue;
            }
            match self.exchange(kept, &origin, request.clone(), most).await {
                Err(Broken { closed: true, .. }) if safe => {}
                Err(Broken { unsent: true, .. }) => {}
                Err(broken) => return Err(broken.error),
                Ok(reply) => return Ok(reply),
            }
        }
        let connection = self.connect(&origin).await?;
        self.exchange(connection, &origin, request, most).await.map_err(|broken| broken.error)
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        origin: &Origin,
        request: Request<Full<Bytes>>,
        most: u64,
    ) -> Result<Reply, Broken> {
        let sent = connection.send.try_send_request(request).await;
        let response = sent.map_err(|mut error| {
            let unsent = error.take_message().is_some();
            let cause = error.into_error();
            let closed = cause.is_incomplete_message()
                || cause.is_canceled()
                || cause.is_closed()
                // The request crossed the server's close on its way.
                || is_reset(&cause);
            Broken { closed, unsent, error: CallError::passing(root_cause(&cause)) }
        })?;
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let retry_after = head.headers.get(header::RETRY_AFTER);
        let retry_after =
            retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok()).map(Duration::from_secs);
        let body = Limited::new(body, most as usize).collect().await;
        // What such an answer says besides is not looked at, so it may be longer, or break off.
        if is_passing(status) && body.is_err() {
            return Ok(Reply { status, retry_after, body: Bytes::new() });
        }
        let body = body.map_err(|error| {
            let error = match error.downcast_ref::<LengthLimitError>() {
                Some(_) => CallError::lasting(format!(
                    "the answer is longer than {most} bytes, which `max_response` allows"
                )),
                None => CallError::passing(format!("the answer broke off: {}", root_cause(&*error))),
            };
            Broken { closed: false, unsent: false, error }
        })?;
        self.keep(origin, connection);
        Ok(Reply { status, retry_after, body: body.to_bytes() })
    }

    fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(origin)?;
        kept.retain(Connection::is_usable);
        let free = kept.iter().rposition(|connection| connection.send.is_ready());
        free.map(|at| kept.swap_remove(at)).or_else(|| kept.pop())
    }

    fn keep(&self, origin: &Origin, mut connection: Connection) {
        connection.since = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Those to servers that nobody asks any more go, too.
        idle.retain(|_, kept| {
            kept.retain(Connection::is_usable);
            !kept.is_empty()
        });
        let kept = idle.entry(origin.clone()).or_default();
        if kept.len() < MOST_IDLE {
            kept.push(connection);
        }
    }

    async fn connect(&self, origin: &Origin) -> Result<Connection, CallError> {
        let refused = |error: &std::io::Error| CallError::passing(root_cause(error));
        let stream =
            TcpStream::connect((origin.host.as_str(), origin.port)).await.map_err(|e| refused(&e))?;
        // Without it a small request may wait for an acknowledgement; it works all the same.
        let _ = stream.set_nodelay(true);
        if !origin.https {
            return handshake(stream).await;
        }
        let config = self.tls.get_or_init(system_certificates).clone().map_err(CallError::lasting)?;
        let name = ServerName::try_from(origin.host.clone())
            .map_err(|_| CallError::lasting(format!("`{}` is no host name", origin.host.escape_debug())))?;
        let secured = TlsConnector::from(config).connect(name, stream).await.map_err(|e| refused(&e))?;
        handshake(secured).await
    }
}

/// A status that may be another one later: the server has too much to do, or fails.
pub(super) fn is_passing(status: u16) -> bool {
    status == 429 || status >= 500
}

/// The other side had closed the connection when something was sent or awaited.
fn is_reset(error: &(dyn std::error::Error + 'static)) -> bool {
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe];
    let found = std::iter::successors(Some(error), |error| error.source());
    found
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| kinds.contains(&error.kind()))
}

/// A request that was not answered.
struct Broken {
    /// The connection was closed before a word of the answer.
    closed: bool,
    /// Nothing of it has left.
    unsent: bool,
    error: CallError,
}

impl Origin {
    fn of(uri: &Uri) -> Result<Self, CallError> {
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(CallError::lasting("`url` must begin with http:// or https://")),
        };
        // It would be left out of the request, which the server then refuses for another reason.
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(CallError::lasting(format!("`url` names a user before `@`: {USER_IN_URL}")));
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| CallError::lasting("`url` names no host"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        Ok(Self { https, host: bare.to_owned(), port })
    }
}

/// With the path alone in its first line, and the host in a header (RFC 9112, section 3.2.1).
fn in_origin_form(mut request: Request<Full<Bytes>>) -> Result<Request<Full<Bytes>>, CallError> {
    let uri = request.uri();
    let host = match (uri.host(), uri.port_u16()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    };
    let mut path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    // `http://host?x=1` has an empty path, which is sent as `/`.
    if !path.starts_with('/') {
        path.insert(0, '/');
    }
    let host = HeaderValue::try_from(host).map_err(|_| CallError::lasting("`url` names no host"))?;
    request.headers_mut().entry(header::HOST).or_insert(host);
    *request.uri_mut() = Uri::try_from(path).map_err(|e| CallError::lasting(e.to_string()))?;
    Ok(request)
}

async fn handshake<S>(stream: S) -> Result<Connection, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (send, driver) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| CallError::passing(root_cause(&error)))?;
    let driver = tokio::spawn(async move {
        // The request that it breaks says so.
        let _ = driver.await;
    });
    Ok(Connection { send, driver: driver.abort_handle(), since: Instant::now() })
}

/// The certificates of the machine that the agent runs on.
fn system_certificates() -> Result<Arc<ClientConfig>, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        let cause = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(format!("https needs certificates of authorities, and this machine has none{cause}"));
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

/// What lies at the bottom of an error.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}
