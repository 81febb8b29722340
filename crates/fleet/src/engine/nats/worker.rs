//! A worker that gets its jobs from a server.

use crate::attempt::Attempt;
use crate::compute::{Computed, Computer, last_words};
use crate::engine::nats::link::{Beats, CALL, CALL_LAST, Connected, Link, NO_ANSWER, pack, until};
use crate::engine::nats::{Failure, JOBS, RESULTS, build_word};
use crate::job::{Job, Key};
use crate::outcome::Outcome;
use crate::spec::Spec;
use crate::store::{MOST_LOG, Store};
use crate::unfit::Row;
use crate::work::Worked;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{AckKind, Context, Message};
use futures_util::StreamExt;
use guardrail_host::error::sentence;
use guardrail_host::from_source::is_source;
use guardrail_host::process::BEYOND;
use guardrail_host::{Host, HostError};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long the server keeps a request for a job.
const REQUEST: Duration = Duration::from_secs(2);
/// The time between two looks at signals while a worker waits for a job.
const GLANCE: Duration = Duration::from_millis(50);
/// How long a worker that ends waits for a job that is on its way to it.
const ENDING: Duration = Duration::from_millis(200);
/// The wait before a job that failed goes out again. The controller has noted the failure by then.
const AGAIN: Duration = Duration::from_secs(1);
/// A worker whose jobs take less asks for the next one while it computes: the way to the server would be much of its time.
/// With longer jobs, the next one would wait at this worker while another one has none.
const QUICK: Duration = Duration::from_secs(1);
/// How long a worker that begins waits for the server.
const OPENING: Duration = Duration::from_secs(5);
/// How long the inputs of a job may take to be fetched.
const FETCHING: Duration = Duration::from_secs(3600);

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
    /// How long the server may be away.
    pub outage: Duration,
}

/// Works until the server has had no job for long enough.
pub fn work(how: &Worker<'_>, host: &Host, build: &str) -> Result<Worked, HostError> {
    let store = how.store.map(Store::create).transpose()?;
    let name = format!("{}-{}", crate::machine(), how.index);
    host.signals.run_begins();
    let link = opened(how, &name, host)?;
    let own = build_word(build);
    let mut consumer = consumer(&link, &own)?;
    let computer = Computer::new(host, build, &name);
    let mut worker = Working {
        link,
        store,
        computer,
        host,
        name,
        worked: Worked::default(),
        row: Row::default(),
        sending: None,
        ahead: None,
        quick: false,
    };
    let mut since = Instant::now();
    while !host.signals.interrupted() {
        match worker.next(&consumer) {
            Ok(Some(taken)) => {
                worker.job(taken, &consumer)?;
                since = Instant::now();
            }
            Ok(None) if how.idle.is_some_and(|idle| since.elapsed() > idle) => {
                worker.settle()?;
                return Ok(worker.worked);
            }
            Ok(None) => {}
            Err(_) if how.idle.is_some_and(|idle| since.elapsed() > idle.max(how.outage)) => {
                worker.settle()?;
                return Ok(worker.worked);
            }
            Err(_) => {
                // The server went away, came back without its streams, or refuses at once.
                std::thread::sleep(GLANCE);
                consumer = again(&worker.link, &own, host)?;
            }
        }
    }
    Err(HostError::Interrupted)
}

/// The way to the server. One that is just being started again is waited for.
fn opened(how: &Worker<'_>, name: &str, host: &Host) -> Result<Link, HostError> {
    let end = Instant::now() + OPENING.min(how.outage);
    loop {
        match Link::open(how.address, name, how.outage) {
            Err(_) if host.signals.interrupted() => return Err(HostError::Interrupted),
            Err(HostError::Run(why)) if why.starts_with(NO_ANSWER) && Instant::now() < end => {
                std::thread::sleep(AGAIN);
            }
            other => return other,
        }
    }
}

fn consumer(link: &Link, build: &str) -> Result<PullConsumer, HostError> {
    let (jobs, _) = link.streams()?;
    link.workers(&jobs, build)
}

/// The consumer, as soon as the server is back.
fn again(link: &Link, build: &str, host: &Host) -> Result<PullConsumer, HostError> {
    let end = Instant::now() + link.outage();
    loop {
        match consumer(link, build) {
            Ok(consumer) => return Ok(consumer),
            Err(_) if host.signals.interrupted() => return Err(HostError::Interrupted),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(GLANCE),
        }
    }
}

/// A job that this worker has, and says so to the server.
struct Taken {
    message: Message,
    beats: Beats,
}

struct Working<'a> {
    link: Link,
    store: Option<Store>,
    computer: Computer<'a>,
    host: &'a Host,
    name: String,
    worked: Worked,
    row: Row,
    /// The last result on its way, while the next job is fetched and computed.
    sending: Option<JoinHandle<Result<(), String>>>,
    /// The next job on its way, while this one is computed.
    ahead: Option<Ahead>,
    /// Whether the last job took little time.
    quick: bool,
}

/// A job that is asked for.
type Ahead = JoinHandle<Result<Option<Taken>, String>>;

/// What a message says.
struct Asked {
    queue: String,
    key: Key,
    job: Job,
}

impl Working<'_> {
    /// The next job; `None` where the server has no job for now.
    fn next(&mut self, consumer: &PullConsumer) -> Result<Option<Taken>, String> {
        let mut ahead = self.ahead.take().unwrap_or_else(|| self.ask(consumer));
        let host = self.host;
        match self.link.block(until(host, Duration::ZERO, &mut ahead)) {
            Some(taken) => taken.map_err(|error| error.to_string())?,
            None => {
                ahead.abort();
                Ok(None)
            }
        }
    }

    /// Asks for a job.
    fn ask(&self, consumer: &PullConsumer) -> Ahead {
        let (consumer, connected) = (consumer.clone(), self.link.connected().clone());
        self.link.spawn(async move {
            let fetch = async {
                let batch = consumer.batch().max_messages(1).expires(REQUEST).messages().await;
                let mut batch = batch.map_err(|error| sentence(&error))?;
                batch.next().await.transpose().map_err(|error| error.to_string())
            };
            let fetched = connected.attempt(REQUEST + Duration::from_secs(3), fetch).await;
            let message = fetched.unwrap_or_else(|| Err("no answer".to_owned()))?;
            // From here on the server is to know that somebody has the job.
            Ok(message.map(|message| Taken { beats: Beats::begin(&message, longest(&message)), message }))
        })
    }

    /// Computes a job, and sends what comes of it.
    fn job(&mut self, taken: Taken, consumer: &PullConsumer) -> Result<(), HostError> {
        let asked = match asked(&taken.message) {
            Ok(asked) => asked,
            Err(why) => {
                self.host.progress.step(&format!("a message is no job: {}", last_words(&why)));
                return self.answer(taken, AckKind::Term);
            }
        };
        // A build runs what the sources' makefile says, with all rights of this user.
        if let Spec::Check(check) = &asked.job.spec
            && is_source(&check.driver)
        {
            let log = format!(
                "{} names sources, which no job from a server may; build the driver first (guardrail build)",
                check.driver
            );
            return self.failed(taken, &asked, log);
        }
        if self.quick {
            self.ahead = Some(self.ask(consumer));
        }
        let began = Instant::now();
        let known = self.store.as_ref().and_then(|store| store.result(&asked.key));
        let computed = known.map_or_else(|| self.computer.compute(&asked.job), Computed::Done);
        self.quick = began.elapsed() < QUICK;
        if matches!(computed, Computed::Done(_) | Computed::Failed(_)) {
            self.row.over();
        }
        match computed {
            Computed::Interrupted => self.answer(taken, AckKind::Nak(None)),
            Computed::Failed(log) => self.failed(taken, &asked, log),
            Computed::Unfit(why) => self.unfit(taken, &asked, None, &why),
            Computed::Foreign(why) => self.unfit(taken, &asked, Some(&asked.key), &why),
            Computed::Done(outcome) => self.done(taken, &asked, &outcome),
        }
    }

    /// Gives a job back that this machine cannot compute, and leaves jobs to others for a while; an error after several.
    fn unfit(
        &mut self,
        taken: Taken,
        asked: &Asked,
        foreign: Option<&Key>,
        why: &str,
    ) -> Result<(), HostError> {
        let unfit = self.row.more(foreign, &self.name, &last_words(why));
        self.host.progress.step(&format!("{} goes back: {}", asked.job.spec.name(), unfit.why));
        self.worked.given_back += 1;
        self.give_back_ahead(REQUEST);
        self.quick = false;
        let bytes = serde_json::to_vec(&unfit).map_err(|error| HostError::Run(error.to_string()))?;
        self.answer(taken, AckKind::Nak(Some(AGAIN)))?;
        self.send(&format!("{}.{}.unfit", RESULTS.1, asked.queue), bytes)?;
        if unfit.aside {
            self.settle()?;
            return Err(unfit.error());
        }
        unfit.wait(self.host);
        Ok(())
    }

    /// Gives back the job that was asked for, where one comes within the limit.
    fn give_back_ahead(&mut self, limit: Duration) {
        let Some(mut ahead) = self.ahead.take() else { return };
        // A job that is on its way would come to nobody, and go out again only later.
        match self.link.within(limit + GLANCE, &mut ahead) {
            Some(Ok(Ok(Some(taken)))) => _ = self.answer(taken, AckKind::Nak(None)),
            Some(_) => {}
            None => ahead.abort(),
        }
    }

    fn done(&mut self, taken: Taken, asked: &Asked, outcome: &Outcome) -> Result<(), HostError> {
        // The store is the worker's own help; the result is the controller's.
        if let Some(store) = &self.store
            && let Err(error) = store.put(outcome)
        {
            self.host.progress.step(&sentence(&error));
        }
        let packed = pack(&outcome.write()?).map_err(HostError::Run)?;
        // The server counts the headers, too.
        let most = self.link.max_payload().saturating_sub(1024);
        if packed.len() > most {
            let log = format!(
                "the result has {} bytes, and the NATS server takes {most}; raise its max_payload",
                packed.len()
            );
            return self.failed(taken, asked, log);
        }
        // One at a time, so that little is lost when the worker is killed.
        self.settle()?;
        let subject = format!("{}.{}.done", RESULTS.1, asked.queue);
        let way = Way {
            context: self.link.context().clone(),
            connected: self.link.connected().clone(),
            outage: self.link.outage(),
        };
        self.sending = Some(self.link.spawn(deliver(way, taken, subject, packed)));
        self.worked.computed += 1;
        Ok(())
    }

    /// Waits until the server has the last result; not for long where the user interrupts it.
    fn settle(&mut self) -> Result<(), HostError> {
        let Some(sending) = self.sending.take() else { return Ok(()) };
        match self.link.block(until(self.host, CALL_LAST, sending)) {
            None => Err(HostError::Interrupted),
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(why))) => {
                Err(HostError::Run(format!("cannot send results to the NATS server: {why}")))
            }
            Some(Err(_)) => Err(HostError::Run("the sender of a result died".to_owned())),
        }
    }

    fn failed(&mut self, taken: Taken, asked: &Asked, log: String) -> Result<(), HostError> {
        self.host.progress.step(&format!("{}: {}", asked.job.spec.name(), last_words(&log)));
        let mut log = log;
        while log.len() > MOST_LOG {
            let cut = log.char_indices().map(|(at, _)| at).find(|at| *at >= log.len() - MOST_LOG);
            log.drain(..cut.unwrap_or(log.len()));
        }
        let (key, worker) = (asked.key.clone(), self.name.clone());
        let failure = Failure { key, attempt: Attempt::begin(), worker, log };
        let bytes = serde_json::to_vec(&failure).map_err(|error| HostError::Run(error.to_string()))?;
        self.send(&format!("{}.{}.failed", RESULTS.1, asked.queue), bytes)?;
        self.worked.failed += 1;
        self.answer(taken, AckKind::Nak(Some(AGAIN)))
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
    fn answer(&self, taken: Taken, kind: AckKind) -> Result<(), HostError> {
        // A word that the job is worked on, after the answer, would be of no use.
        drop(taken.beats);
        if !matches!(self.link.within(REQUEST, taken.message.ack_with(kind)), Some(Ok(()))) {
            self.host.progress.step("the NATS server did not take an answer");
        }
        Ok(())
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        // What was computed is sent, unless the server is away, and what was not begun goes to others.
        if let Some(sending) = self.sending.take() {
            let _ = self.link.within(REQUEST, sending);
        }
        self.give_back_ahead(ENDING);
    }
}

/// The way of results to the server.
struct Way {
    context: Context,
    connected: Connected,
    outage: Duration,
}

/// Sends a result until the server has it, and acknowledges the job afterwards.
async fn deliver(way: Way, taken: Taken, subject: String, packed: Vec<u8>) -> Result<(), String> {
    let publish = PublishMessage::build().payload(packed.into());
    let end = Instant::now() + way.outage;
    loop {
        let sent = async {
            let sent = way.context.send_publish(subject.clone(), publish.clone()).await;
            sent.map_err(|error| sentence(&error))?.await.map(drop).map_err(|error| sentence(&error))
        };
        match way.connected.attempt(CALL, sent).await {
            Some(Ok(())) => break,
            Some(Err(why)) if Instant::now() > end => return Err(why),
            None if Instant::now() > end => return Err("it does not answer".to_owned()),
            Some(Err(_)) | None => tokio::time::sleep(GLANCE).await,
        }
    }
    drop(taken.beats);
    // Where the answer is lost, the job goes out again, and the store keeps its first result.
    let _ = way.connected.attempt(REQUEST, taken.message.double_ack()).await;
    Ok(())
}

/// How long the job of a message may take at most.
fn longest(message: &Message) -> Duration {
    let run = match asked(message).map(|asked| asked.job.spec) {
        Ok(Spec::Check(check)) => Duration::from_secs(check.timeout) + BEYOND,
        Ok(Spec::Rehearsal(rehearsal)) => Duration::from_millis(rehearsal.milliseconds),
        Err(_) => Duration::ZERO,
    };
    run + FETCHING
}

/// The job of a message, with its key and its queue from the subject.
fn asked(message: &Message) -> Result<Asked, String> {
    parse(message.subject.as_str(), &message.payload)
}

fn parse(subject: &str, payload: &[u8]) -> Result<Asked, String> {
    let rest = subject.strip_prefix(JOBS.1).and_then(|rest| rest.strip_prefix('.')).ok_or("its subject")?;
    let mut words = rest.splitn(3, '.');
    let mut word = || words.next().ok_or("its subject");
    let (build, queue, key) = (word()?, word()?, word()?);
    let key: Key = key.parse()?;
    let job: Job = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    if build_word(&job.build) != build {
        return Err("its build is not that of its subject".to_owned());
    }
    match job.key() == key {
        true => Ok(Asked { queue: queue.to_owned(), key, job }),
        false => Err("its key is that of another job".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::nats::subject;
    use crate::spec::Rehearsal;
    use std::collections::BTreeMap;

    #[test]
    fn a_message_is_a_job_only_with_its_key() {
        let spec = Spec::Rehearsal(Rehearsal { milliseconds: 1, seed: 1, fails: false });
        let job = Job { spec, inputs: BTreeMap::new(), build: "0".to_owned() };
        let bytes = serde_json::to_vec(&job).unwrap();
        let own = build_word("0");
        let of = |build: &str, key: &Key| subject(build, "a-b", key);
        let asked = parse(&of(&own, &job.key()), &bytes).unwrap();
        assert_eq!((asked.queue.as_str(), &asked.job), ("a-b", &job));
        let other: Key = "0".repeat(64).parse().unwrap();
        assert_eq!(parse(&of(&own, &other), &bytes).err().unwrap(), "its key is that of another job");
        let why = parse(&of(&build_word("1"), &job.key()), &bytes).err().unwrap();
        assert_eq!(why, "its build is not that of its subject");
        let short = ["", "x", "guardrail-2.jobs", "guardrail-2.jobs.a", "guardrail-2.jobs.a.b.c"];
        for subject in short {
            assert!(parse(subject, &bytes).is_err(), "{subject}");
        }
        assert!(parse(&of(&own, &job.key()), b"{}").is_err());
    }
}
