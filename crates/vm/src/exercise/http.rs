//! The peer of the network workload: a tiny HTTP server on the loopback address.
//!
//! The guest is not trusted. Request heads, body sizes, times and the number of connections are bounded, and
//! nothing is stored. A request can only cause bytes on its own connection.

use crate::exercise::pattern::{self, Checksum};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const MAX_HEAD: u64 = 8 << 10;
const MAX_BODY: u64 = 4 << 30;
const MAX_CONNECTIONS: usize = 32;
/// Longest wait for a peer that neither reads nor sends. A workload waits less long, so that its step fails and not the
/// connection: TCP in the guest doubles its waits where packets are lost again and again.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    connections: AtomicUsize,
    bytes: AtomicU64,
}

impl Server {
    /// Starts a server on a free port.
    pub fn start() -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread =
            std::thread::Builder::new().name("http".into()).spawn(move || accept(&listener, &shared))?;
        Ok(Server { address, state, thread: Some(thread) })
    }

    /// The TCP port on the loopback address.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Bytes moved so far; growth is a sign of life of the guest.
    pub fn activity(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        // Wakes the thread out of accept().
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for stream in listener.incoming() {
        if state.stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if state.connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            state.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let shared = Arc::clone(state);
        let spawned = std::thread::Builder::new().name("http-connection".into()).spawn(move || {
            // A connection that the guest breaks off needs no handling here: the guest's own step fails.
            let _ = serve(&stream, &shared);
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            state.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(stream: &TcpStream, state: &State) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let Some((method, path, length)) = read_head(&mut reader)? else {
        return reply(stream, "400 Bad Request", "bad request\n");
    };
    let number = |prefix: &str| path.strip_prefix(prefix)?.parse::<u64>().ok().filter(|n| *n <= MAX_BODY);
    if method == "GET" {
        if let Some(count) = number("/bytes/") {
            return send_pattern(stream, count, state);
        }
        if let Some(count) = number("/sum/") {
            return reply(stream, "200 OK", &format!("{}\n", Checksum::of_pattern(count).hex()));
        }
    } else if matches!(method.as_str(), "PUT" | "POST") && path == "/upload" && length <= MAX_BODY {
        let mut sum = Checksum::default();
        let mut buffer = vec![0; 1 << 16];
        let mut body = reader.take(length);
        loop {
            match body.read(&mut buffer)? {
                0 => break,
                count => {
                    sum.update(&buffer[..count]);
                    state.bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
            }
        }
        return reply(stream, "200 OK", &format!("{}\n", sum.hex()));
    }
    reply(stream, "404 Not Found", "not found\n")
}

/// Method, path and body length of a request; `None` where the head is not a valid request.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<(String, String, u64)>> {
    let mut head = reader.take(MAX_HEAD);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            // The peer or our limit cut the head off.
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(Some((method, path, length)));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            let Ok(value) = value.trim().parse() else { return Ok(None) };
            length = value;
        }
    }
}

/// Whether these bytes begin with the head of a request.
#[cfg(feature = "talk")]
pub fn understands(mut bytes: &[u8]) -> bool {
    read_head(&mut bytes).is_ok_and(|head| head.is_some())
}

fn reply(mut stream: &TcpStream, status: &str, body: &str) -> io::Result<()> {
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes())
}

fn send_pattern(mut stream: &TcpStream, count: u64, state: &State) -> io::Result<()> {
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {count}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut buffer = vec![0; 1 << 16];
    let mut sent = 0;
    while sent < count && !state.stop.load(Ordering::Relaxed) {
        let size = (count - sent).min(buffer.len() as u64) as usize;
        pattern::fill(sent, &mut buffer[..size]);
        stream.write_all(&buffer[..size])?;
        sent += size as u64;
        state.bytes.fetch_add(size as u64, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A server that refuses early may reset the connection; what arrived before counts.
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    #[test]
    fn the_server_waits_longer_than_the_workloads() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut limits = Vec::new();
        for folder in ["guest/workloads", "tests/fixtures/guarded"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
                for line in text.lines().filter(|line| line.contains("wget ")) {
                    let limit = line.split(" -T ").nth(1).and_then(|rest| rest.split(' ').next());
                    limits.extend(limit.and_then(|limit| limit.parse().ok()).map(Duration::from_secs));
                }
            }
        }
        assert!(limits.len() >= 3 && limits.iter().all(|limit| *limit < TIMEOUT), "{limits:?}");
    }

    #[test]
    fn downloads_sums_and_uploads_agree() {
        let server = Server::start().unwrap();
        let answer = ask(&server, b"GET /bytes/100000 HTTP/1.0\r\n\r\n");
        let body = &answer[answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4..];
        assert_eq!(body.len(), 100_000);
        let mut sum = Checksum::default();
        sum.update(body);
        let answer = ask(&server, b"GET /sum/100000 HTTP/1.0\r\n\r\n");
        assert!(String::from_utf8(answer).unwrap().ends_with(&format!("\r\n\r\n{}\n", sum.hex())));
        let echoed = ask(&server, b"PUT /upload HTTP/1.0\r\nContent-Length: 9\r\n\r\n123456789");
        assert!(String::from_utf8(echoed).unwrap().ends_with("25f9e794323b453885f5181f1b624d0b\n"));
        assert!(server.activity() >= 100_009);
    }

    #[test]
    fn bad_requests_are_refused() {
        let server = Server::start().unwrap();
        for (request, status) in [
            (&b"GET /etc/passwd HTTP/1.0\r\n\r\n"[..], "404"),
            (b"GET /bytes/99999999999999 HTTP/1.0\r\n\r\n", "404"),
            (b"PUT /upload HTTP/1.0\r\nContent-Length: x\r\n\r\n", "400"),
            (b"\r\n", "400"),
        ] {
            let answer = String::from_utf8(ask(&server, request)).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.0 {status}")), "{answer}");
        }
    }
}
