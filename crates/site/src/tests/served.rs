//! The server, over sockets.

use super::{FIXTURES, folder, put};
use crate::{Port, Server, SiteError};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A server of a folder; it lives as long as the tests.
fn served(folder: &Path) -> SocketAddr {
    let server = Server::new(Port::open(0).unwrap(), folder).unwrap();
    let address = server.address();
    std::thread::spawn(move || server.run());
    address
}

/// Sends bytes and reads the whole answer.
fn sent(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn got(address: SocketAddr, path: &str) -> String {
    sent(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
}

#[test]
fn pages_are_served_and_nothing_else_is() {
    let temp = folder(&FIXTURES);
    put(temp.path(), "secret.txt", b"secret");
    let address = served(temp.path());
    assert!(address.ip().is_loopback());
    let index = got(address, "/");
    let (head, body) = index.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.contains("<h1>Results in "), "{index}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    assert!(
        head.contains("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline';"),
        "{head}"
    );
    let only_head = sent(address, format!("HEAD / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    assert_eq!(only_head, format!("{head}\r\n\r\n"));
    for path in [
        "/secret.txt",
        "/uaf-timer/report.json",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/run/../secret.txt",
        "//etc/passwd",
        "/run/uaf-timer/\0",
        "/favicon.ico",
    ] {
        let answer = got(address, path);
        assert!(
            answer.starts_with("HTTP/1.1 404 Not Found\r\n") && !answer.contains("secret"),
            "{path}: {answer}"
        );
    }
    let status =
        |bytes: &str| sent(address, bytes.as_bytes()).split("\r\n").next().unwrap_or_default().to_owned();
    let host = format!("Host: {address}\r\n");
    assert_eq!(status(&format!("DELETE / HTTP/1.1\r\n{host}\r\n")), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: attacker.example\r\n\r\n"), "HTTP/1.1 403 Forbidden");
    assert_eq!(status("\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let long = format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status(&long), "HTTP/1.1 431 Request Header Fields Too Large");
    let posted = format!("POST / HTTP/1.1\r\n{host}Content-Length: 30000\r\n\r\n{}", "x".repeat(30_000));
    assert_eq!(status(&posted), "HTTP/1.1 405 Method Not Allowed");
}

#[test]
fn what_changes_in_the_folder_is_shown() {
    let temp = folder(&FIXTURES[..1]);
    let address = served(temp.path());
    assert!(got(address, "/run/later/index.html").starts_with("HTTP/1.1 404"));
    put(temp.path(), "later/report.json", FIXTURES[1].1.as_bytes());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !got(address, "/run/later/index.html").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "the new run is not shown");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::fs::remove_dir_all(temp.path().join("uaf-timer")).unwrap();
    std::fs::remove_dir_all(temp.path().join("later")).unwrap();
    while got(address, "/").contains("uaf_timer") {
        assert!(Instant::now() < deadline, "the runs are still shown");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn slow_clients_hold_up_only_themselves() {
    let temp = folder(&FIXTURES[..1]);
    let address = served(temp.path());
    let mut slow: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET / HT").unwrap());
    assert!(got(address, "/").starts_with("HTTP/1.1 200"));
    // With more than the limit, some are refused, and none waits.
    let more: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(address).unwrap()).collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    let refused = |stream: &TcpStream| {
        let mut part = [0; 64];
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut stream = stream;
        stream.read(&mut part).is_ok_and(|read| part[..read].starts_with(b"HTTP/1.1 503"))
    };
    while !more.iter().any(refused) {
        assert!(Instant::now() < deadline, "no connection is refused");
    }
    drop((slow, more));
    while !got_or_nothing(address).starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "the server does not recover");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The answer, or what a refusal left of it.
fn got_or_nothing(address: SocketAddr) -> String {
    let mut answer = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_port_in_use_is_named() {
    let temp = folder(&FIXTURES[..1]);
    let port = served(temp.path()).port();
    let error = Port::open(port).unwrap_err();
    assert!(matches!(error, SiteError::PortInUse(_)));
    assert_eq!(
        error.to_string(),
        format!("port {port} is in use; give another one with --port, or 0 for any that is free")
    );
}
