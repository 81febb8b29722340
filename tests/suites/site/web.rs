//! A server that runs, and a client that follows its links.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time for what takes less than a second.
const TIME: Duration = Duration::from_secs(30);

/// `guardrail serve`, until the end of the test.
pub struct Served {
    child: Child,
    said: String,
    port: u16,
}

impl Served {
    /// Serves a folder at a free port.
    pub fn start(folder: &Path) -> Served {
        let mut command = Command::new(guardrail_tests::program());
        command.arg("serve").arg(folder).args(["--port", "0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let port = said.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.split('/').next());
        let port = port.and_then(|digits| digits.parse().ok());
        let Some(port) = port else {
            let _ = child.kill();
            panic!("no address: {said}, {:?}", child.wait());
        };
        Served { child, said, port }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The line that it printed.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a page.
    pub fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Loads a page until it is as wanted.
    pub fn until(&self, path: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + TIME;
        loop {
            let page = get(self, path);
            if wanted(&page) {
                return page;
            }
            assert!(Instant::now() < deadline, "{page}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole answer to a GET.
pub fn get(served: &Served, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
    stream.set_read_timeout(Some(TIME)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", served.port).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// All pages that links reach from the index, by their addresses.
pub fn crawl(served: &Served) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut open = vec!["index.html".to_owned()];
    while let Some(path) = open.pop() {
        if pages.contains_key(&path) {
            continue;
        }
        let answer = get(served, &format!("/{path}"));
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(
            head.contains("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'"),
            "{head}"
        );
        let links = page.split("<a href=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
        for link in links.filter(|link| !link.starts_with('#')) {
            assert!(!link.contains(':') && !link.starts_with('/'), "{path}: {link}");
            open.push(joined(&path, link));
        }
        pages.insert(path, page.to_owned());
    }
    pages
}

fn joined(path: &str, link: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        if part == ".." {
            parts.pop().unwrap();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}
