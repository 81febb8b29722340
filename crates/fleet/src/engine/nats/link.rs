//! The connection to the server. It reconnects by itself, and calls are tried again until the server has been away too long.

use crate::engine::nats::{ACK_WAIT, JOBS, MAX_AGE, PROGRESS, RESULTS, WORKERS};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, AckKind, Context, Message};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use guardrail_host::error::sentence;
use guardrail_host::{Host, HostError};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// What is said where nothing answers.
pub const NO_ANSWER: &str = "no NATS server answers";
/// The longest time of one call.
pub const CALL: Duration = Duration::from_secs(10);
/// How long a call may go on after the user interrupted it.
pub const CALL_LAST: Duration = Duration::from_secs(2);
/// The most bytes of the line by which a server introduces itself.
const MAX_INFO: u64 = 64 << 10;
/// The time between two looks at the connection while an answer is waited for.
const GLANCE: Duration = Duration::from_millis(50);
/// The wait before a call is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// The longest wait between two attempts to reconnect.
const RECONNECT: Duration = Duration::from_secs(2);
/// The environment's name for a user and a password, `USER:PASSWORD`, which a command line would show to others.
const CREDENTIALS: &str = "GUARDRAIL_NATS_CREDENTIALS";

/// A connection, and the runtime whose thread drives it.
pub struct Link {
    runtime: Runtime,
    client: Client,
    context: Context,
    address: String,
    connected: Connected,
    outage: Duration,
}

/// Says to the server that a job is being worked on, until this is dropped.
pub struct Beats(JoinHandle<()>);

impl Beats {
    /// Begins in the runtime, for at most so long: a job that hangs goes to another worker some time.
    pub fn begin(message: &Message, longest: Duration) -> Beats {
        let (message, end) = (message.clone(), Instant::now() + longest);
        Beats(tokio::spawn(async move {
            while Instant::now() < end {
                sleep(PROGRESS).await;
                let _ = timeout(PROGRESS, message.ack_with(AckKind::Progress)).await;
            }
        }))
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How often the connection was made. What waits for an answer of a server that was killed waits in vain.
#[derive(Clone, Default)]
pub struct Connected(Arc<AtomicU64>);

impl Connected {
    /// Runs a future for at most so long, and not longer than the connection lasts; `None` where it did not end.
    pub async fn attempt<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let (before, end) = (self.0.load(SeqCst), Instant::now() + limit);
        let mut future = pin!(future);
        loop {
            match timeout(GLANCE, &mut future).await {
                Ok(done) => return Some(done),
                Err(_) if self.0.load(SeqCst) != before || Instant::now() > end => return None,
                Err(_) => {}
            }
        }
    }
}

/// Refuses a server that requires TLS, for which this build has no cryptography. A server says so in its first line; one
/// that cannot be asked is left to the client's own errors.
fn refuse_tls(address: &str) -> Result<(), HostError> {
    let place = address.trim_start_matches("nats://");
    let Some(at) = place.to_socket_addrs().ok().and_then(|mut all| all.next()) else { return Ok(()) };
    let Ok(stream) = TcpStream::connect_timeout(&at, CALL) else { return Ok(()) };
    let mut line = Vec::new();
    if stream.set_read_timeout(Some(CALL)).is_ok() {
        let _ = BufReader::new(stream.take(MAX_INFO)).read_until(b'\n', &mut line);
    }
    match String::from_utf8_lossy(&line).replace(' ', "").contains("\"tls_required\":true") {
        true => Err(HostError::Run(format!(
            "the NATS server at {address} requires TLS, which this build lacks; run a leaf node without it on this machine"
        ))),
        false => Ok(()),
    }
}

impl Link {
    /// Connects. A server that is away now is an error; one that goes away later is waited for, for `outage` at most.
    pub fn open(address: &str, name: &str, outage: Duration) -> Result<Link, HostError> {
        // The thread of its own keeps the connection while this one computes, fetches or waits for a disk.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(HostError::io("start", "a runtime"))?;
        refuse_tls(address)?;
        let connected = Connected::default();
        let count = Arc::clone(&connected.0);
        let mut options = ConnectOptions::new()
            .event_callback(move |event| {
                if matches!(event, Event::Connected) {
                    count.fetch_add(1, SeqCst);
                }
                async {}
            })
            .name(name)
            // A server that names others would have this user's password sent to them.
            .ignore_discovered_servers()
            .connection_timeout(CALL)
            .request_timeout(Some(CALL))
            .reconnect_delay_callback(|attempt| {
                Duration::from_millis(100).saturating_mul(attempt as u32).min(RECONNECT)
            });
        if let Ok(credentials) = std::env::var(CREDENTIALS) {
            let (user, password) = credentials
                .split_once(':')
                .ok_or_else(|| HostError::Usage(format!("{CREDENTIALS} has to be USER:PASSWORD")))?;
            options = options.user_and_password(user.to_owned(), password.to_owned());
        }
        let client = runtime.block_on(options.connect(address)).map_err(|error| {
            HostError::Run(match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => format!(
                    "the NATS server at {address} refuses this user; set {CREDENTIALS} to USER:PASSWORD"
                ),
                _ => format!("{NO_ANSWER} at {address}: {}", sentence(&error)),
            })
        })?;
        // It starts a task of its own.
        let context = runtime.block_on(async { jetstream::new(client.clone()) });
        Ok(Link { runtime, client, context, address: address.to_owned(), connected, outage })
    }

    /// How long the server may be away.
    pub fn outage(&self) -> Duration {
        self.outage
    }

    /// The streams.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// How often the connection was made.
    pub fn connected(&self) -> &Connected {
        &self.connected
    }

    /// The most bytes of a message.
    pub fn max_payload(&self) -> usize {
        self.client.server_info().max_payload
    }

    /// Runs a future to its end.
    pub fn block<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Lets a future run beside others.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(future)
    }

    /// Runs a future for at most so long; `None` where it does not end.
    pub fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        // The clock of the limit belongs to the runtime.
        self.runtime.block_on(async { timeout(limit, future).await.ok() })
    }

    /// Tries a call until it succeeds, for as long as the server may be away.
    pub fn persist<T>(
        &self,
        host: &Host,
        doing: &str,
        mut call: impl AsyncFnMut() -> Result<T, String>,
    ) -> Result<T, HostError> {
        let end = Instant::now() + self.outage;
        self.block(async {
            loop {
                let Some(called) = until(host, CALL_LAST, self.connected.attempt(CALL, call())).await else {
                    return Err(HostError::Interrupted);
                };
                let why = match called {
                    Some(Ok(done)) => return Ok(done),
                    Some(Err(why)) => why,
                    None => "it does not answer".to_owned(),
                };
                if host.signals.interrupted() {
                    return Err(HostError::Interrupted);
                }
                if Instant::now() > end {
                    return Err(HostError::Run(format!("cannot {doing} at {}: {why}", self.address)));
                }
                sleep(AGAIN).await;
            }
        })
    }

    /// The streams of jobs and of results, made where the server has none.
    pub fn streams(&self) -> Result<(Stream, Stream), HostError> {
        let config = |(name, subjects): (&str, &str)| stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{subjects}.>")],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            max_age: MAX_AGE,
            num_replicas: 1,
            ..stream::Config::default()
        };
        // A second copy of a job that is still there is refused by the server.
        let jobs =
            stream::Config { max_messages_per_subject: 1, discard_new_per_subject: true, ..config(JOBS) };
        let make = async |config: stream::Config| {
            let made = timeout(CALL, self.context.get_or_create_stream(config)).await;
            made.map_err(|_| "it does not answer".to_owned())?.map_err(|error| sentence(&error))
        };
        let both = self.block(async { Ok((make(jobs).await?, make(config(RESULTS)).await?)) });
        both.map_err(|why: String| {
            HostError::Run(format!(
                "the NATS server at {} gives no streams, which need nats-server -js: {why}",
                self.address
            ))
        })
    }

    /// The consumer that all workers of a build share; `build` is its word in subjects.
    pub fn workers(&self, jobs: &Stream, build: &str) -> Result<PullConsumer, HostError> {
        let name = format!("{WORKERS}-{build}");
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: format!("{}.{build}.>", JOBS.1),
            inactive_threshold: MAX_AGE,
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_deliver: i64::from(crate::claims::LOST),
            max_ack_pending: -1,
            max_waiting: 100_000,
            ..pull::Config::default()
        };
        self.consumer(jobs, &name, config)
    }

    /// A consumer, made where the server has none.
    pub fn consumer(&self, of: &Stream, name: &str, config: pull::Config) -> Result<PullConsumer, HostError> {
        let made = self.within(CALL, of.get_or_create_consumer(name, config));
        made.ok_or_else(|| "it does not answer".to_owned())
            .and_then(|made| made.map_err(|error| sentence(&error)))
            .map_err(|why| {
                HostError::Run(format!("the NATS server at {} gives no consumer: {why}", self.address))
            })
    }
}

/// Waits for a future until the user interrupts, and for `grace` longer; `None` where it does not end by then.
pub async fn until<T>(host: &Host, grace: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut asked = None;
    loop {
        if let Ok(done) = timeout(GLANCE, &mut future).await {
            return Some(done);
        }
        if host.signals.interrupted() && asked.get_or_insert_with(Instant::now).elapsed() >= grace {
            return None;
        }
    }
}

/// Compresses a result for the way.
pub fn pack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    zstd::bulk::compress(bytes, 3).map_err(|error| error.to_string())
}

/// Unpacks a result of at most `limit` bytes.
pub fn unpack(bytes: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let decoder = zstd::Decoder::new(bytes).map_err(|error| error.to_string())?;
    decoder.take(limit as u64 + 1).read_to_end(&mut unpacked).map_err(|error| error.to_string())?;
    match unpacked.len() > limit {
        true => Err(format!("it has more than {limit} bytes")),
        false => Ok(unpacked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn what_is_unpacked_is_bounded() {
        let packed = pack(&vec![0; 1 << 20]).unwrap();
        assert_eq!(unpack(&packed, 1 << 20).unwrap().len(), 1 << 20);
        assert!(unpack(&packed, (1 << 20) - 1).is_err());
        assert!(unpack(b"no zstd", 100).is_err());
        assert!(unpack(&packed[..packed.len() / 2], 1 << 20).is_err());
    }

    #[test]
    fn a_server_that_is_not_there_is_one_sentence() {
        let error = Link::open("nats://127.0.0.1:1", "test", CALL).err().unwrap().to_string();
        assert!(error.starts_with("no NATS server answers at nats://127.0.0.1:1: "), "{error}");
        assert!(!error.contains('\n'));
    }

    fn opened(info: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            listener.accept().map(|(mut stream, _)| stream.write_all(info.as_bytes()))
        });
        refuse_tls(&address).map_or_else(|error| error.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn a_server_that_requires_tls_is_refused_in_a_sentence() {
        assert!(opened("INFO {\"tls_required\": true}\r\n").contains("requires TLS, which this build lacks"));
        assert_eq!(opened("INFO {\"tls_required\":false}\r\n"), "ok");
        assert_eq!(opened(""), "ok");
    }

    /// A server that only listens: it keeps the connection, and passes on each line that it gets.
    fn listener() -> (String, std::sync::mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let info = "INFO {\"server_id\":\"x\",\"version\":\"2.9.0\",\"max_payload\":1048576,\"headers\":true}\r\n";
            for stream in listener.incoming().flatten() {
                let (mut answers, sender) = (stream.try_clone().unwrap(), sender.clone());
                std::thread::spawn(move || {
                    let _ = answers.write_all(info.as_bytes());
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        if line.starts_with("PING") {
                            let _ = answers.write_all(b"PONG\r\n");
                        }
                        let _ = sender.send(line);
                    }
                });
            }
        });
        (address, receiver)
    }

    #[test]
    fn a_job_is_kept_while_the_thread_is_busy_elsewhere_and_not_afterwards() {
        let (address, lines) = listener();
        let link = Link::open(&address, "test", CALL).unwrap();
        let message = async_nats::Message {
            subject: "x".into(),
            reply: Some("$JS.ACK.test".into()),
            payload: Default::default(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        };
        let message = Message { message, context: link.context().clone() };
        let beats = link.block(async { Beats::begin(&message, CALL) });
        // As a worker that fetches a kernel.
        std::thread::sleep(3 * PROGRESS);
        drop(beats);
        std::thread::sleep(Duration::from_millis(200));
        let words = || lines.try_iter().filter(|line| line == "+WPI").count();
        let first = words();
        assert!((2..=3).contains(&first), "{first} words in the time of three");
        std::thread::sleep(2 * PROGRESS);
        assert_eq!(words(), 0);
    }
}
