//! A server of HTTP/1.1 that a test starts in itself: it counts, is slow, fails and hangs as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The number at the end of the path.
    pub(crate) fn number(&self) -> u64 {
        self.path.rsplit(['/', '=']).next().unwrap().parse().unwrap_or_else(|_| panic!("{}", self.path))
    }
}

/// What is done about it.
pub(crate) enum Reply {
    Answer(u16, String),
    /// The connection is closed without a word.
    Close,
    /// Nothing, until the other side goes.
    Hang,
}

#[derive(Default)]
struct Seen {
    now: AtomicUsize,
    most: AtomicUsize,
    connections: AtomicUsize,
    /// Connections whose other side went while it waited for an answer.
    left: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

/// It serves until the test's process ends.
pub(crate) struct Server {
    pub(crate) address: String,
    seen: Arc<Seen>,
}

impl Server {
    /// `reply` says how long a request takes, and what comes of it.
    pub(crate) fn start(reply: impl Fn(&Request) -> (Duration, Reply) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, reply) = (Arc::<Seen>::default(), Arc::new(reply));
        let served = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, reply) = (Arc::clone(&served), Arc::clone(&reply));
                seen.connections.fetch_add(1, Ordering::SeqCst);
                // One that breaks off ends its thread, and nothing else.
                std::thread::spawn(move || serve(stream.ok()?, &seen, &*reply));
            }
        });
        Self { address, seen }
    }

    /// The most requests that were under way at once.
    pub(crate) fn most(&self) -> usize {
        self.seen.most.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn left(&self) -> usize {
        self.seen.left.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, seen: &Seen, reply: &dyn Fn(&Request) -> (Duration, Reply)) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    loop {
        let request = read(&mut input)?;
        let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most.fetch_max(now, Ordering::SeqCst);
        seen.requests.lock().unwrap().push(request.clone());
        let (time, answer) = reply(&request);
        std::thread::sleep(time);
        if matches!(answer, Reply::Hang) {
            // It ends when the other side goes.
            let gone = input.read(&mut [0]).is_ok_and(|read| read == 0);
            seen.left.fetch_add(usize::from(gone), Ordering::SeqCst);
        }
        seen.now.fetch_sub(1, Ordering::SeqCst);
        let Reply::Answer(status, body) = answer else { return None };
        write!(out, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
    }
}

fn read(input: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    (input.read_line(&mut line).ok()? > 0).then_some(())?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    input.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body: String::from_utf8(body).unwrap() })
}
