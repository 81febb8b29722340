//! As much of HTTP/1.1 as a browser on the same machine needs: GET and HEAD, one request a connection.

use crate::html::{Html, POLICY};

/// The most bytes of a request that are read.
pub(crate) const MAX_REQUEST: usize = 8 << 10;

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
    NotAllowed,
    TimedOut,
    TooLarge,
    Busy,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::NotAllowed => "405 Method Not Allowed",
            Status::TimedOut => "408 Request Timeout",
            Status::TooLarge => "431 Request Header Fields Too Large",
            Status::Busy => "503 Service Unavailable",
        }
    }

    /// What the page of an error says.
    fn sentence(self) -> &'static str {
        match self {
            Status::Ok => "",
            Status::BadRequest => "The request is no request of HTTP/1.1.",
            Status::Forbidden => "Only 127.0.0.1 and localhost, with the port, name this server.",
            Status::NotFound => "The run may have been removed or renamed.",
            Status::NotAllowed => "This server only answers GET and HEAD.",
            Status::TimedOut => "The request did not end in time.",
            Status::TooLarge => "The request is too long.",
            Status::Busy => "Too many connections are open; load the page again.",
        }
    }
}

/// What a browser asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The address of a page, relative to the index.
    pub(crate) path: String,
    /// True for HEAD, which wants no page.
    pub(crate) only_head: bool,
}

/// Where the head of a request ends; `None` before its end was read.
pub(crate) fn end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

impl Request {
    /// Parses the head of a request to a server at `port`.
    ///
    /// A page of another server could have its own name lead to 127.0.0.1, and then read what is served there. Its requests
    /// name that server, so they are refused.
    pub(crate) fn parse(head: &[u8], port: u16) -> Result<Request, Status> {
        let text = std::str::from_utf8(head).map_err(|_| Status::BadRequest)?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Status::BadRequest);
        };
        if !matches!(version, "HTTP/1.0" | "HTTP/1.1") || !target.starts_with('/') {
            return Err(Status::BadRequest);
        }
        let hosts = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim())
        });
        match hosts.collect::<Vec<_>>().as_slice() {
            [host] if is_own(host, port) => {}
            [_] => return Err(Status::Forbidden),
            _ => return Err(Status::BadRequest),
        }
        let only_head = match method {
            "GET" => false,
            "HEAD" => true,
            _ => return Err(Status::NotAllowed),
        };
        let path = target[1..].split('?').next().unwrap_or_default();
        let path = if path.is_empty() { "index.html" } else { path };
        Ok(Request { path: path.to_owned(), only_head })
    }
}

fn is_own(host: &str, port: u16) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, digits)) if digits.parse() == Ok(port) => name,
        None if port == 80 => host,
        _ => return false,
    };
    name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")
}

/// An answer with a page.
pub(crate) fn answer(status: Status, page: &str, only_head: bool) -> Vec<u8> {
    let allow = if status == Status::NotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
    let mut bytes = format!(
        "HTTP/1.1 {}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: {POLICY}; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n{allow}\
         Connection: close\r\n\r\n",
        status.line(),
        page.len(),
    )
    .into_bytes();
    if !only_head {
        bytes.extend_from_slice(page.as_bytes());
    }
    bytes
}

/// An answer without a result.
pub(crate) fn refusal(status: Status, only_head: bool) -> Vec<u8> {
    let title = match status {
        Status::NotFound => "There is no such page",
        _ => "This is not answered",
    };
    let page = Html::page(title, &[("/index.html".to_owned(), "Results".to_owned())], |page| {
        page.element("<p>", status.sentence(), "</p>\n");
    });
    answer(status, &page, only_head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Request, Status> {
        Request::parse(text.as_bytes(), 8470)
    }

    fn path(target: &str) -> Result<String, Status> {
        parsed(&format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:8470\r\n\r\n")).map(|request| request.path)
    }

    #[test]
    fn a_browser_is_understood() {
        let text = "GET /run/a/index.html?x=1 HTTP/1.1\r\nhOST:  localhost:8470 \r\nAccept: */*\r\n\r\n";
        assert_eq!(parsed(text), Ok(Request { path: "run/a/index.html".into(), only_head: false }));
        assert_eq!(path("/").unwrap(), "index.html");
        assert!(parsed("HEAD / HTTP/1.0\r\nHost: 127.0.0.1:8470\r\n\r\n").unwrap().only_head);
    }

    #[test]
    fn what_is_no_request_of_a_browser_here_is_refused() {
        let host = "\r\nHost: 127.0.0.1:8470\r\n\r\n";
        for (line, status) in [
            ("POST / HTTP/1.1", Status::NotAllowed),
            ("get / HTTP/1.1", Status::NotAllowed),
            ("GET / HTTP/2", Status::BadRequest),
            ("GET  / HTTP/1.1", Status::BadRequest),
            ("GET http://127.0.0.1:8470/ HTTP/1.1", Status::BadRequest),
            ("GET / HTTP/1.1 x", Status::BadRequest),
            ("", Status::BadRequest),
        ] {
            assert_eq!(parsed(&format!("{line}{host}")), Err(status), "{line}");
        }
        for (host, status) in [
            ("Host: attacker.example:8470\r\n", Status::Forbidden),
            ("Host: 127.0.0.1\r\n", Status::Forbidden),
            ("Host: 127.0.0.1:80\r\n", Status::Forbidden),
            ("Host: 127.0.0.1:8470.example:8470\r\n", Status::Forbidden),
            ("Host: localhost:8470\r\nHost: attacker.example\r\n", Status::BadRequest),
            ("", Status::BadRequest),
        ] {
            assert_eq!(parsed(&format!("GET / HTTP/1.1\r\n{host}\r\n")), Err(status), "{host}");
        }
        assert_eq!(
            Request::parse(b"GET /\xff HTTP/1.1\r\nHost: localhost:8470\r\n\r\n", 8470),
            Err(Status::BadRequest)
        );
    }

    #[test]
    fn any_bytes_give_a_request_or_a_status() {
        let good = b"GET /run/a/index.html HTTP/1.1\r\nHost: 127.0.0.1:8470\r\n\r\n";
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.to_vec();
                bytes[at] = byte;
                let _ = Request::parse(&bytes, 8470);
                let _ = Request::parse(&bytes[..at], 8470);
                assert_eq!(end(&bytes[..at]), None);
            }
        }
        assert_eq!(end(good), Some(good.len()));
    }
}
