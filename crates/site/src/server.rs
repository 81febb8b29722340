//! A server for a browser on the same machine: it listens at 127.0.0.1 alone, and what it sends is made from results.
//!
//! A thread answers each connection. Their number, the bytes of a request and the time of each have limits, so that a
//! program that asks slowly or often holds up no more than itself.

use crate::error::SiteError;
use crate::folder::Folder;
use crate::http::{self, MAX_REQUEST, Request, Status};
use crate::read;
use crate::site::{Counts, Site, unreadable};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most connections at a time; browsers open about six.
const MAX_CONNECTIONS: usize = 32;
/// The longest time until a request was read, and until its answer was sent.
const REQUEST_TIME: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The longest time that a rest of a request is read, so that the answer is not lost with it.
const REST_TIME: Duration = Duration::from_millis(300);
/// The least time between two looks at the folder.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after an error that is likely to happen again at once, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shown: Arc<Shown>,
    counts: Counts,
}

/// What is shown, read again when the folder changes.
#[derive(Debug)]
struct Shown {
    folder: Folder,
    name: PathBuf,
    /// The pages of the last look. Nothing else is locked while this is.
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    site: Arc<Site>,
    stamp: u64,
    looked: Instant,
}

/// Counts a connection until it ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A port that nobody else can take. Nothing is answered before it becomes a [`Server`].
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    /// Listens at this port of 127.0.0.1; 0 is any that is free.
    pub fn open(port: u16) -> Result<Port, SiteError> {
        let refused = |source: io::Error| match source.kind() {
            ErrorKind::AddrInUse => SiteError::PortInUse(port),
            _ => SiteError::Listen { port, source },
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Port { listener, address })
    }
}

impl Server {
    /// Reads a folder, to be shown at a port. The process may be confined to reading that folder before.
    pub fn new(port: Port, folder: &Path) -> Result<Server, SiteError> {
        let opened = Folder::open(folder).map_err(|source| unreadable(folder, source))?;
        let stamp = read::stamp(&opened);
        let site = Site::of_folder(&opened, folder)?;
        let counts = site.counts();
        let last = Mutex::new(Last { site: Arc::new(site), stamp, looked: Instant::now() });
        let shown = Arc::new(Shown { folder: opened, name: folder.to_path_buf(), last });
        let Port { listener, address } = port;
        Ok(Server { listener, address, shown, counts })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many things it showed at first.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Answers until the process ends.
    pub fn run(&self) -> ! {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let Ok((mut stream, _)) = self.listener.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            open.fetch_add(1, Ordering::AcqRel);
            let counted = Counted(open.clone());
            if open.load(Ordering::Acquire) > MAX_CONNECTIONS {
                // The answer fits the socket's buffer, so this does not wait.
                let _ = stream.set_nonblocking(true);
                let _ = stream.write(&http::refusal(Status::Busy, false));
                continue;
            }
            let (shown, port) = (self.shown.clone(), self.address.port());
            let thread = std::thread::Builder::new().name("connection".into()).spawn(move || {
                let _counted = counted;
                // What a browser does with its connection is no error of the server.
                let _ = serve(&mut stream, port, &shown);
            });
            if thread.is_err() {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn serve(stream: &mut TcpStream, port: u16, shown: &Shown) -> io::Result<()> {
    let answer = match head(stream, Instant::now() + REQUEST_TIME)? {
        Err(status) => http::refusal(status, false),
        Ok(head) => match Request::parse(&head, port) {
            Err(status) => http::refusal(status, head.starts_with(b"HEAD ")),
            Ok(Request { path, only_head }) => match shown.site().page(&path) {
                Some(page) => http::answer(Status::Ok, &page, only_head),
                None => http::refusal(Status::NotFound, only_head),
            },
        },
    };
    send(stream, &answer, Instant::now() + ANSWER_TIME)?;
    stream.shutdown(Shutdown::Write)?;
    // A socket that is closed with bytes unread would take back what was sent.
    let deadline = Instant::now() + REST_TIME;
    let mut rest = [0; 4096];
    for _ in 0..64 {
        let Some(left) = left(deadline) else { break };
        stream.set_read_timeout(Some(left))?;
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Reads the head of a request, or says why it is not answered.
fn head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Result<Vec<u8>, Status>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let Some(left) = left(deadline) else { return Ok(Err(Status::TimedOut)) };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(Err(Status::BadRequest)),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(Err(Status::TimedOut));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if let Some(end) = http::end(&bytes) {
            bytes.truncate(end);
            return Ok(Ok(bytes));
        }
        if bytes.len() > MAX_REQUEST {
            return Ok(Err(Status::TooLarge));
        }
    }
}

/// Sends all bytes until a deadline.
fn send(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = left(deadline).ok_or(ErrorKind::TimedOut)?;
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time until a deadline; `None` after it.
fn left(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

impl Shown {
    /// The pages, read again where the folder has changed.
    fn site(&self) -> Arc<Site> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.looked.elapsed() >= LOOK {
            let stamp = read::stamp(&self.folder);
            if stamp != last.stamp {
                last.site = Arc::new(Site::of(self.name.display().to_string(), read::read(&self.folder)));
                last.stamp = stamp;
            }
            last.looked = Instant::now();
        }
        last.site.clone()
    }
}
