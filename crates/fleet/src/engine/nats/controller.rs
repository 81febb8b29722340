//! The controller's side of a server: it sends jobs, stores results, and sends again what was lost.

use crate::attempt::Attempt;
use crate::claims::LOST;
use crate::engine::local::{Local, Work};
use crate::engine::nats::link::{Link, unpack};
use crate::engine::nats::{Failure, JOBS, MAX_AGE, RESULTS, build_word, subject};
use crate::engine::{Engine, Run};
use crate::job::{Job, Key};
use crate::outcome::{MOST_BODY, Outcome};
use crate::store::Store;
use crate::unfit::Unfit;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::Stream;
use futures_util::{StreamExt, TryStreamExt};
use guardrail_host::error::sentence;
use guardrail_host::{Host, HostError};
use guardrail_report::text::clean;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How many jobs are sent before their receipts are waited for.
const BATCH: usize = 200;
/// How many results are taken at a time.
const RESULTS_AT_ONCE: usize = 100;
/// The shortest and the longest wait for results.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(200);
/// How long a run that ends waits for each further result.
const PARTING: Duration = Duration::from_secs(1);
/// The most characters of what others say.
const MOST_WHY: usize = 200;
/// How many results are written at a time.
const WRITERS: usize = 8;
/// The time without a result after which the controller looks for what was lost.
const QUIET: Duration = Duration::from_secs(4);
/// How long a controller that ends fetches what is there.
const LAST: Duration = Duration::from_secs(10);
/// The time after which the server sends a result again that the controller did not acknowledge.
const STORE_WAIT: Duration = Duration::from_secs(5);

/// An engine whose workers are beside a server.
pub struct Nats {
    address: String,
    link: Link,
    streams: Option<Streams>,
    jobs: HashMap<Key, Job>,
    local: Option<Local>,
    /// When something came last, or was looked for.
    quiet: Instant,
    /// Since when the server is away.
    away: Option<Instant>,
    /// Whether it was said that no worker asks for jobs.
    alone: bool,
}

struct Streams {
    /// The word of the jobs' build in subjects.
    build: String,
    queue: String,
    jobs: Stream,
    results: Stream,
    inbox: PullConsumer,
}

impl Nats {
    /// Connects to a server.
    pub fn open(address: &str, outage: Duration) -> Result<Nats, HostError> {
        let link = Link::open(address, "controller", outage)?;
        Ok(Nats {
            address: address.to_owned(),
            link,
            streams: None,
            jobs: HashMap::new(),
            local: None,
            quiet: Instant::now(),
            away: None,
            alone: false,
        })
    }

    /// The streams of a run, made where the server has none.
    fn attach(&mut self, run: &Run<'_>) -> Result<(), HostError> {
        let queue = format!("{}-{}", run.store.id(), run.id);
        // All jobs of a run have one build.
        let build = build_word(run.left.first().map_or("", |(_, job)| &job.build));
        let (jobs, results) = self.link.streams()?;
        // The workers' consumer is there before the first job, so that its limit of deliveries holds for all.
        self.link.workers(&jobs, &build)?;
        let config = pull::Config {
            durable_name: Some(queue.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: STORE_WAIT,
            max_ack_pending: -1,
            filter_subject: format!("{}.{queue}.>", RESULTS.1),
            inactive_threshold: MAX_AGE,
            ..pull::Config::default()
        };
        let inbox = self.link.consumer(&results, &queue, config)?;
        self.streams = Some(Streams { build, queue, jobs, results, inbox });
        Ok(())
    }

    /// Sends jobs, but for those that the server has already.
    fn send(&self, host: &Host, left: &[(Key, Job)]) -> Result<(), HostError> {
        let Some(streams) = &self.streams else { return Ok(()) };
        for batch in left.chunks(BATCH) {
            let messages: Vec<(String, Vec<u8>)> = batch
                .iter()
                .map(|(key, job)| {
                    let bytes = serde_json::to_vec(job).map_err(|error| HostError::Run(error.to_string()))?;
                    Ok((subject(&streams.build, &streams.queue, key), bytes))
                })
                .collect::<Result<_, HostError>>()?;
            self.link.persist(host, "send jobs to the NATS server", async || {
                let mut receipts = Vec::new();
                for (subject, bytes) in &messages {
                    let sent = self.link.context().publish(subject.clone(), bytes.clone().into()).await;
                    receipts.push(sent.map_err(|error| sentence(&error))?);
                }
                for receipt in receipts {
                    match receipt.await {
                        Err(error) if !is_there(&sentence(&error)) => return Err(sentence(&error)),
                        _ => {}
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Takes results for about so long, and returns their number; `None` where the server is away.
    fn take(&mut self, run: &Run<'_>, time: Duration) -> Result<Option<usize>, HostError> {
        let Some(streams) = &self.streams else { return Ok(None) };
        let fetch = async {
            let batch = streams.inbox.batch().max_messages(RESULTS_AT_ONCE).expires(time).messages().await;
            let mut batch = batch.map_err(|error| sentence(&error))?;
            // The first one is waited for, and the others only if they are there.
            let mut messages = Vec::new();
            while let Some(message) = batch.next().await {
                messages.push(message.map_err(|error| error.to_string())?);
            }
            Ok::<_, String>(messages)
        };
        let Some(Ok(messages)) = self.link.within(time + Duration::from_secs(3), fetch) else {
            return self.is_away(Instant::now()).map(|()| None);
        };
        self.away = None;
        if messages.is_empty() {
            return Ok(Some(0));
        }
        self.quiet = Instant::now();
        let forgotten = self.keep(run, &messages)?;
        for key in &forgotten {
            self.forget(key);
        }
        let acknowledge = async {
            for message in &messages {
                // A result whose receipt is lost comes again, and the store has it.
                let _ = message.ack().await;
            }
        };
        let _ = self.link.within(STORE_WAIT, acknowledge);
        Ok(Some(messages.len()))
    }

    /// Bounds the time without the server.
    fn is_away(&mut self, now: Instant) -> Result<(), HostError> {
        let since = *self.away.get_or_insert(now);
        match now.saturating_duration_since(since) > self.link.outage() {
            true => Err(HostError::Run(format!(
                "the NATS server at {} was away for {} s; what it has stays there, and the same command goes on",
                self.address,
                self.link.outage().as_secs()
            ))),
            false => Ok(()),
        }
    }

    /// Stores what messages have, several at a time, since each waits for the disk. Returns jobs that are set aside.
    fn keep(&self, run: &Run<'_>, messages: &[Message]) -> Result<Vec<Key>, HostError> {
        let (store, jobs) = (run.store, &self.jobs);
        let part = messages.len().div_ceil(WRITERS);
        let kept: Vec<Result<Vec<Kept>, HostError>> = std::thread::scope(|scope| {
            let writer = |part| scope.spawn(move || of_messages(store, jobs, part));
            let writers: Vec<_> = messages.chunks(part).map(writer).collect();
            let ended = |writer: std::thread::ScopedJoinHandle<'_, _>| {
                writer.join().unwrap_or_else(|_| Err(HostError::Run("a writer of results died".to_owned())))
            };
            writers.into_iter().map(ended).collect()
        });
        let mut forgotten = Vec::new();
        for kept in kept {
            for one in kept? {
                match one {
                    Kept::Stored => {}
                    Kept::Aside(key) => forgotten.push(key),
                    Kept::Strange(why) => {
                        run.host.progress.step(&format!("a result is left out: {}", short(&why)))
                    }
                }
            }
        }
        Ok(forgotten)
    }

    /// Takes a job from the server; false where the server does not say that it is gone.
    fn forget(&self, key: &Key) -> bool {
        let Some(streams) = &self.streams else { return false };
        let subject = subject(&streams.build, &streams.queue, key);
        matches!(
            self.link.within(STORE_WAIT, async { streams.jobs.purge().filter(subject).await }),
            Some(Ok(_))
        )
    }

    /// Looks for jobs that the server lost, and for jobs that it gives to nobody any more.
    fn look_for_lost(&mut self, run: &mut Run<'_>) -> Result<(), HostError> {
        self.quiet = Instant::now();
        if self.attach(run).is_err() {
            return Ok(());
        }
        let Some(streams) = &self.streams else { return Ok(()) };
        // Other runs may have jobs at the server, so only the subjects of this one count.
        let own = format!("{}.{}.{}.>", JOBS.1, streams.build, streams.queue);
        let infos = async {
            let results = streams.inbox.get_info().await.map_err(|error| sentence(&error))?;
            let there = streams.jobs.info_with_subjects(own).await.map_err(|error| sentence(&error))?;
            let there: HashSet<String> =
                there.map_ok(|(subject, _)| subject).try_collect().await.map_err(|error| sentence(&error))?;
            Ok::<_, String>((results, there))
        };
        let Some(Ok((results, there))) = self.link.within(STORE_WAIT, infos) else { return Ok(()) };
        if results.num_pending > 0 || results.num_ack_pending > 0 {
            return Ok(());
        }
        run.left.retain(|(key, _)| !run.store.is_over(key));
        let Ok(workers) = self.link.workers(&streams.jobs, &streams.build) else { return Ok(()) };
        let Some(Ok(info)) = self.link.within(STORE_WAIT, workers.get_info()) else { return Ok(()) };
        let idle = info.num_pending == 0 && info.num_ack_pending == 0;
        let alone = info.num_pending > 0 && info.num_ack_pending == 0 && info.num_waiting == 0;
        if alone && !std::mem::replace(&mut self.alone, alone) {
            run.host.progress.step("no worker of this build asks the NATS server for jobs");
        }
        let is_there = |key: &Key| there.contains(&subject(&streams.build, &streams.queue, key));
        let (there, lost): (Vec<_>, Vec<_>) = run.left.iter().cloned().partition(|(key, _)| is_there(key));
        self.send(run.host, &lost)?;
        // What is in the stream is on its way, unless nobody gets it any more.
        if !idle {
            return Ok(());
        }
        // The server has these and gives them to nobody: each went to as many workers as it may, or a server that was killed
        // forgot that it has to go out. That counts as one failure, and they are sent anew.
        let mut anew = Vec::new();
        for (key, job) in &there {
            // One that stays at the server would be refused when it is sent again, and have failed for nothing.
            if !self.forget(key) {
                continue;
            }
            let log = format!("{LOST} workers got it and returned nothing, or the server lost it");
            if !run.store.fail(key, job, &Attempt::begin(), &log)? {
                anew.push((key.clone(), job.clone()));
            }
        }
        self.send(run.host, &anew)
    }
}

/// What came of a message.
enum Kept {
    /// The store has it.
    Stored,
    /// It was the last failure of a job.
    Aside(Key),
    /// It is of no use.
    Strange(String),
}

fn of_messages(
    store: &Store,
    jobs: &HashMap<Key, Job>,
    messages: &[Message],
) -> Result<Vec<Kept>, HostError> {
    messages.iter().map(|message| keep(store, jobs, message.subject.as_str(), &message.payload)).collect()
}

/// Stores what a message has.
fn keep(store: &Store, jobs: &HashMap<Key, Job>, subject: &str, payload: &[u8]) -> Result<Kept, HostError> {
    let stranger = || Kept::Strange("it is of no job of this run".to_owned());
    if subject.ends_with(".done") {
        let outcome = unpack(payload, MOST_BODY + (1 << 20)).and_then(|bytes| Outcome::open(&bytes));
        return match outcome {
            Ok(outcome) if jobs.contains_key(&outcome.key) => store.put(&outcome).map(|_| Kept::Stored),
            Ok(_) => Ok(stranger()),
            Err(why) => Ok(Kept::Strange(why)),
        };
    }
    if subject.ends_with(".unfit") {
        return match serde_json::from_slice::<Unfit>(payload) {
            Ok(unfit) => {
                // A note decides nothing, and a run goes on without it.
                let _ = store.note_unfit(&unfit);
                Ok(Kept::Stored)
            }
            Err(error) => Ok(Kept::Strange(error.to_string())),
        };
    }
    match serde_json::from_slice::<Failure>(payload) {
        Ok(Failure { key, attempt, worker, log }) => match jobs.get(&key) {
            Some(job) => {
                // A controller that was killed may have noted this attempt before.
                let aside = store.fail(&key, job, &attempt, &format!("on {worker}:\n{log}"))?;
                Ok(if aside { Kept::Aside(key) } else { Kept::Stored })
            }
            None => Ok(stranger()),
        },
        Err(error) => Ok(Kept::Strange(error.to_string())),
    }
}

/// Words of others, for a line of the terminal.
fn short(why: &str) -> String {
    clean(why).chars().take(MOST_WHY).collect()
}

/// Whether the server refused a job because it has it.
fn is_there(why: &str) -> bool {
    why.contains("maximum messages per subject")
}

impl Engine for Nats {
    fn usual_workers(&self) -> u32 {
        0
    }

    fn start(&mut self, run: &mut Run<'_>) -> Result<(), HostError> {
        self.attach(run)?;
        self.jobs = run.left.iter().cloned().collect();
        self.send(run.host, &run.left)?;
        self.quiet = Instant::now();
        if run.workers > 0 {
            let local =
                self.local.insert(Local::new(Work::Server(self.address.clone(), self.link.outage()))?);
            local.start(run)?;
        }
        Ok(())
    }

    fn wait(&mut self, run: &mut Run<'_>, time: Duration) -> Result<(), HostError> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.take(run, left.clamp(SHORTEST, LONGEST))?.is_none() {
                std::thread::sleep(left.min(LONGEST));
            }
            if run.host.signals.interrupted() {
                return Ok(());
            }
        }
        if let Some(local) = &mut self.local {
            local.wait(run, Duration::from_millis(1))?;
        }
        if self.quiet.elapsed() > QUIET {
            self.look_for_lost(run)?;
        }
        Ok(())
    }

    fn stop(&mut self, run: &Run<'_>) {
        if let Some(local) = &mut self.local {
            local.stop(run);
        }
        let Some(streams) = &self.streams else { return };
        // The store knows what is left, so that the server need not.
        let jobs = format!("{}.{}.{}.>", JOBS.1, streams.build, streams.queue);
        if self.link.within(STORE_WAIT, async { streams.jobs.purge().filter(jobs).await }).is_none() {
            return;
        }
        // What was computed is fetched. What comes later, or does not fit into the time, stays for the run that goes on.
        let is_over = || run.left.iter().all(|(key, _)| run.store.is_over(key));
        let end = Instant::now() + LAST;
        while !is_over() && Instant::now() < end && matches!(self.take(run, PARTING), Ok(Some(1..))) {}
        let Some(streams) = &self.streams else { return };
        if is_over() {
            let results = format!("{}.{}.>", RESULTS.1, streams.queue);
            let purge = async {
                let _ = streams.results.delete_consumer(&streams.queue).await;
                let _ = streams.results.purge().filter(results).await;
            };
            let _ = self.link.within(STORE_WAIT, purge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::nats::link::pack;
    use crate::spec::{Rehearsal, Spec};
    use std::collections::BTreeMap;

    #[test]
    fn only_results_of_the_runs_jobs_are_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let spec = Spec::Rehearsal(Rehearsal { milliseconds: 1, seed: 1, fails: false });
        let job = Job { spec, inputs: BTreeMap::new(), build: "0".to_owned() };
        let jobs = HashMap::from([(job.key(), job.clone())]);
        let of = |key: Key| {
            let outcome =
                Outcome { key, status: 0, milliseconds: 1, worker: "w".to_owned(), body: Vec::new() };
            pack(&outcome.write().unwrap()).unwrap()
        };
        let keep = |subject: &str, payload: &[u8]| keep(&store, &jobs, subject, payload).unwrap();
        let other: Key = "0".repeat(64).parse().unwrap();
        assert!(matches!(keep("x.done", &of(other.clone())), Kept::Strange(_)) && !store.has(&other));
        assert!(matches!(keep("x.done", b"\0"), Kept::Strange(_)));
        assert!(matches!(keep("x.done", &of(job.key())), Kept::Stored) && store.has(&job.key()));
        assert!(matches!(keep("x.done", &of(job.key())), Kept::Stored));
        let failure = || {
            let (attempt, log) = (Attempt::begin(), "error: x".to_owned());
            serde_json::to_vec(&Failure { key: job.key(), attempt, worker: "w".to_owned(), log }).unwrap()
        };
        // A failure that comes again, after a controller was killed, counts once.
        let first = failure();
        for _ in 0..5 {
            assert!(matches!(keep("x.failed", &first), Kept::Stored));
        }
        assert_eq!(store.failures(&job.key()), 1);
        assert!(matches!(keep("x.failed", &failure()), Kept::Stored));
        assert!(matches!(keep("x.failed", &failure()), Kept::Aside(key) if key == job.key()));
        let unfit = crate::unfit::Row::default().more(None, "w", "no space");
        assert!(matches!(keep("x.unfit", &serde_json::to_vec(&unfit).unwrap()), Kept::Stored));
        assert!(matches!(keep("x.unfit", b"{}"), Kept::Strange(_)));
        assert_eq!(store.unfit(), [unfit]);
        assert!(matches!(keep("x.failed", b"{}"), Kept::Strange(_)));
    }
}
