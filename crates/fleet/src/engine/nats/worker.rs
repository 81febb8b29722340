//! A worker that gets its jobs from a server.

use crate::compute::{Computed, Computer, last_words};
use crate::engine::nats::link::{CALL, Connected, Link, OUTAGE, pack};
use crate::engine::nats::{Failure, JOBS, PROGRESS, RESULTS};
use crate::job::{Job, Key};
use crate::outcome::Outcome;
use crate::spec::Spec;
use crate::store::{MOST_LOG, Store};
use crate::work::Worked;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{AckKind, Context, Message};
use futures_util::StreamExt;
use guardrail_host::error::sentence;
use guardrail_host::from_source::is_source;
use guardrail_host::{Host, HostError};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long the server keeps a request for a job.
const REQUEST: Duration = Duration::from_secs(2);
/// The time between two looks at signals while a worker waits for a job.
const GLANCE: Duration = Duration::from_millis(50);
/// The wait before a job that failed goes out again. The controller has noted the failure by then.
const AGAIN: Duration = Duration::from_secs(1);

/// How a worker works.
pub struct Worker<'a> {
    /// The server.
    pub address: &'a str,
    /// A store that the worker looks into first; it need not be the controller's.
    pub store: Option<&'a Path>,
    /// The worker's number, for names.
    pub index: u32,
    /// How long the worker waits for a job before it ends; without an end where absent.
    pub idle: Option<Duration>,
}

/// Works until the server has had no job for long enough.
pub fn work(how: &Worker<'_>, host: &Host, build: &str) -> Result<Worked, HostError> {
    let store = how.store.map(Store::create).transpose()?;
    let name = format!("{}-{}", crate::machine(), how.index);
    let link = Link::open(how.address, &name)?;
    let mut consumer = consumer(&link)?;
    host.signals.run_begins();
    let computer = Computer::new(host, build, &name);
    let mut worker =
        Working { link, store, computer, host, build, name, worked: Worked::default(), sending: None };
    let mut since = Instant::now();
    while !host.signals.interrupted() {
        match worker.next(&consumer) {
            Ok(Some(message)) => {
                worker.job(message)?;
                since = Instant::now();
            }
            Ok(None) if how.idle.is_some_and(|idle| since.elapsed() > idle) => {
                worker.settle()?;
                return Ok(worker.worked);
            }
            Ok(None) => {}
            Err(_) => {
                // The server went away, or came back without its streams.
                consumer = again(&worker.link, host)?;
            }
        }
    }
    // What was computed is sent, unless the server is away.
    worker.settle_soon();
    Err(HostError::Interrupted)
}

fn consumer(link: &Link) -> Result<PullConsumer, HostError> {
    let (jobs, _) = link.streams()?;
    link.workers(&jobs)
}

/// The consumer, as soon as the server is back.
fn again(link: &Link, host: &Host) -> Result<PullConsumer, HostError> {
    let end = Instant::now() + OUTAGE;
    loop {
        match consumer(link) {
            Ok(consumer) => return Ok(consumer),
            Err(_) if host.signals.interrupted() => return Err(HostError::Interrupted),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(GLANCE),
        }
    }
}

struct Working<'a> {
    link: Link,
    store: Option<Store>,
    computer: Computer<'a>,
    host: &'a Host,
    build: &'a str,
    name: String,
    worked: Worked,
    /// The last result on its way, while the next job is fetched and computed.
    sending: Option<JoinHandle<Result<(), String>>>,
}

/// What a message says.
struct Asked {
    queue: String,
    key: Key,
    job: Job,
}

impl Working<'_> {
    /// The next job; `None` where the server has no job for now.
    fn next(&self, consumer: &PullConsumer) -> Result<Option<Message>, String> {
        let fetch = async {
            let mut batch = consumer
                .batch()
                .max_messages(1)
                .expires(REQUEST)
                .messages()
                .await
                .map_err(|error| sentence(&error))?;
            loop {
                match timeout(GLANCE, batch.next()).await {
                    Ok(Some(message)) => return message.map(Some).map_err(|error| error.to_string()),
                    Ok(None) => return Ok(None),
                    Err(_) if self.host.signals.interrupted() => return Ok(None),
                    Err(_) => {}
                }
            }
        };
        let connected = self.link.connected();
        let fetched = self.link.block(connected.attempt(REQUEST + Duration::from_secs(3), fetch));
        fetched.unwrap_or_else(|| Err("no answer".to_owned()))
    }

    /// Computes the job of a message, and sends what comes of it.
    fn job(&mut self, message: Message) -> Result<(), HostError> {
        let asked = match asked(&message) {
            Ok(asked) => asked,
            Err(why) => {
                self.host.progress.step(&format!("a message is no job: {why}"));
                return self.answer(&message, AckKind::Term);
            }
        };
        if asked.job.build != self.build {
            // Another worker may have the right build; this one is of no use to the run.
            self.answer(&message, AckKind::Nak(Some(AGAIN)))?;
            return Err(HostError::Usage(format!(
                "the server has jobs for guardrail {}, and this is {}; use the same build on all machines",
                asked.job.build, self.build
            )));
        }
        // A build runs what the sources' makefile says, with all rights of this user.
        if let Spec::Check(check) = &asked.job.spec
            && is_source(&check.driver)
        {
            let log = format!(
                "{} names sources, which no job from a server may; build the driver first (guardrail build)",
                check.driver
            );
            return self.failed(&message, &asked, log);
        }
        let known = self.store.as_ref().and_then(|store| store.result(&asked.key));
        let computed = match known {
            Some(outcome) => Computed::Done(outcome),
            None => {
                let (link, mut said) = (&self.link, Instant::now());
                self.computer.compute(&asked.job, &mut || {
                    if said.elapsed() > PROGRESS {
                        said = Instant::now();
                        let _ = link.within(REQUEST, message.ack_with(AckKind::Progress));
                    }
                    link.pump();
                })
            }
        };
        match computed {
            Computed::Interrupted => self.answer(&message, AckKind::Nak(None)),
            Computed::Failed(log) => self.failed(&message, &asked, log),
            Computed::Done(outcome) => self.done(message, &asked, &outcome),
        }
    }

    fn done(&mut self, message: Message, asked: &Asked, outcome: &Outcome) -> Result<(), HostError> {
        if let Some(store) = &self.store {
            store.put(outcome)?;
        }
        let packed = pack(&outcome.write()?).map_err(HostError::Run)?;
        // The server counts the headers, too.
        let most = self.link.max_payload().saturating_sub(1024);
        if packed.len() > most {
            let log = format!(
                "the result has {} bytes, and the NATS server takes {most}; raise its max_payload",
                packed.len()
            );
            return self.failed(&message, asked, log);
        }
        // One at a time, so that little is lost when the worker is killed.
        self.settle()?;
        let subject = format!("{}.{}.done", RESULTS.1, asked.queue);
        let (context, connected) = (self.link.context().clone(), self.link.connected().clone());
        self.sending = Some(self.link.spawn(deliver(context, connected, message, (subject, packed))));
        self.worked.computed += 1;
        Ok(())
    }

    /// Waits until the server has the last result.
    fn settle(&mut self) -> Result<(), HostError> {
        match self.sending.take().map(|sending| self.link.block(sending)) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(why))) => {
                Err(HostError::Run(format!("cannot send results to the NATS server: {why}")))
            }
            Some(Err(_)) => Err(HostError::Run("the sender of a result died".to_owned())),
        }
    }

    /// The same for a worker that is to end.
    fn settle_soon(&mut self) {
        if let Some(sending) = self.sending.take() {
            let _ = self.link.within(REQUEST, sending);
        }
    }

    fn failed(&mut self, message: &Message, asked: &Asked, log: String) -> Result<(), HostError> {
        self.host.progress.step(&format!("{}: {}", asked.job.spec.name(), last_words(&log)));
        let mut log = log;
        while log.len() > MOST_LOG {
            let cut = log.char_indices().map(|(at, _)| at).find(|at| *at >= log.len() - MOST_LOG);
            log.drain(..cut.unwrap_or(log.len()));
        }
        let failure = Failure { key: asked.key.clone(), worker: self.name.clone(), log };
        let bytes = serde_json::to_vec(&failure).map_err(|error| HostError::Run(error.to_string()))?;
        self.send(&format!("{}.{}.failed", RESULTS.1, asked.queue), bytes)?;
        self.worked.failed += 1;
        self.answer(message, AckKind::Nak(Some(AGAIN)))
    }

    /// Sends, and waits until the server has it.
    fn send(&self, subject: &str, bytes: Vec<u8>) -> Result<(), HostError> {
        let bytes = PublishMessage::build().payload(bytes.into());
        self.link.persist(self.host, "send results to the NATS server", async || {
            let sent = self.link.context().send_publish(subject.to_owned(), bytes.clone()).await;
            sent.map_err(|error| sentence(&error))?.await.map(drop).map_err(|error| sentence(&error))
        })
    }

    /// Answers a message. Where the answer is lost, the job goes out again, and the store keeps its first result.
    fn answer(&self, message: &Message, kind: AckKind) -> Result<(), HostError> {
        if !matches!(self.link.within(REQUEST, message.ack_with(kind)), Some(Ok(()))) {
            self.host.progress.step("the NATS server did not take an answer");
        }
        Ok(())
    }
}

/// Sends a result until the server has it, and acknowledges the job afterwards.
async fn deliver(
    context: Context,
    connected: Connected,
    message: Message,
    (subject, packed): (String, Vec<u8>),
) -> Result<(), String> {
    let publish = PublishMessage::build().payload(packed.into());
    let end = Instant::now() + OUTAGE;
    loop {
        let sent = async {
            let sent = context.send_publish(subject.clone(), publish.clone()).await;
            sent.map_err(|error| sentence(&error))?.await.map(drop).map_err(|error| sentence(&error))
        };
        match connected.attempt(CALL, sent).await {
            Some(Ok(())) => break,
            Some(Err(why)) if Instant::now() > end => return Err(why),
            None if Instant::now() > end => return Err("it does not answer".to_owned()),
            Some(Err(_)) | None => tokio::time::sleep(GLANCE).await,
        }
    }
    // Where the answer is lost, the job goes out again, and the store keeps its first result.
    let _ = connected.attempt(REQUEST, message.double_ack()).await;
    Ok(())
}

/// The job of a message, with its key and its queue from the subject.
fn asked(message: &Message) -> Result<Asked, String> {
    parse(message.subject.as_str(), &message.payload)
}

fn parse(subject: &str, payload: &[u8]) -> Result<Asked, String> {
    let rest = subject.strip_prefix(JOBS.1).and_then(|rest| rest.strip_prefix('.')).ok_or("its subject")?;
    let (queue, key) = rest.split_once('.').ok_or("its subject")?;
    let key: Key = key.parse()?;
    let job: Job = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    match job.key() == key {
        true => Ok(Asked { queue: queue.to_owned(), key, job }),
        false => Err("its key is that of another job".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rehearsal;
    use std::collections::BTreeMap;

    #[test]
    fn a_message_is_a_job_only_with_its_key() {
        let spec = Spec::Rehearsal(Rehearsal { milliseconds: 1, seed: 1, fails: false });
        let job = Job { spec, inputs: BTreeMap::new(), build: "0".to_owned() };
        let bytes = serde_json::to_vec(&job).unwrap();
        let subject = format!("guardrail.jobs.a-b.{}", job.key());
        let asked = parse(&subject, &bytes).unwrap();
        assert_eq!((asked.queue.as_str(), asked.job), ("a-b", job));
        let other = format!("guardrail.jobs.a-b.{}", "0".repeat(64));
        assert_eq!(parse(&other, &bytes).err().unwrap(), "its key is that of another job");
        for subject in ["guardrail.jobs", "x", "guardrail.jobs.a", "guardrail.jobs.a.b"] {
            assert!(parse(subject, &bytes).is_err(), "{subject}");
        }
        assert!(parse(&subject, b"{}").is_err());
    }
}
