//! `guardrail internal-analysis`: reads the log of a running guest. It opens what it needs, drops its privileges, and
//! tells its findings on standard output (see [`crate::wire`]).

use crate::engine::Engine;
use crate::errors::{CliError, Status, sentence};
use crate::policy::{Decision, Policy};
use crate::sandbox;
use crate::wire::{Analyzed, Found, Job, Message, Order, Saves, receive, send};
use guardrail_finding::Finding;
use guardrail_report::Run;
use guardrail_trace::file::{RunSummary, TraceMeta, TraceWriter};
use guardrail_trace::log::{Closed, FailReason, Log, MergedReader};
use guardrail_trace::source::{Live, Source, SourceEnd, Step};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the log may be silent before we tell that we are alive.
const IDLE: Duration = Duration::from_millis(500);
/// The key under which a trace keeps what is known of its run.
pub const RUN_KEY: &str = "run";

/// Runs the analysis process.
pub fn run() -> Result<Status, CliError> {
    let mut out = io::stdout();
    match analyze(&mut out) {
        Ok(()) => Ok(Status::Clean),
        Err(error) => {
            // The supervisor prints it; if it has gone, nobody needs to know.
            let _ = send(&mut out, &Message::Failed(sentence(&error)));
            Ok(error.status())
        }
    }
}

fn analyze(out: &mut dyn Write) -> Result<(), CliError> {
    let gone = || CliError::Run("the supervisor has gone".into());
    let mut input = BufReader::new(io::stdin());
    let job: Job = receive(&mut input).map_err(CliError::io("read", "the job"))?.ok_or_else(gone)?;
    let engine = Engine::open(&job.subject)?;
    let log = Log::open(&job.log)?;
    let recorder = match &job.record {
        Some(path) => Some(Recorder::open(path, &job.meta, &log)?),
        None => None,
    };
    let mut reader = MergedReader::attach(&log)?;
    reader.set_schedule(job.schedule);
    let saves = job.saves;
    let keeper =
        job.policy.map(|policy| Keeper { policy, log: log.clone(), decided: BTreeMap::new(), saves });
    let keeper = RefCell::new(keeper);
    let out = RefCell::new(out);
    let tell = |message: &Message| send(&mut **out.borrow_mut(), message);
    sandbox::enter().map_err(CliError::io("drop privileges of", "the analysis"))?;
    let recorder = recorder.map(Recorder::start);
    let orders = RefCell::new(Orders::listen(input));
    tell(&Message::Ready).map_err(|_| gone())?;

    let mut live = Live { reader, timeout: IDLE };
    // A supervisor that has gone takes us with it.
    let mut progress = |words| {
        let _ = tell(&Message::Progress(words));
    };
    let mut judge = |finding: &Finding| {
        if let Some(keeper) = keeper.borrow_mut().as_mut() {
            let mut tell = |found: Found| {
                let _ = tell(&Message::Found(found));
            };
            keeper.judge(finding, &mut tell, &mut orders.borrow_mut());
        }
    };
    let mut analyzed = engine.run(&mut live, &mut progress, &mut judge);
    // Release the reader's place, lest the recorder wait for a ring that we no longer empty.
    drop(live);
    if analyzed.is_err() {
        log.fail(FailReason::ReaderDied);
    }
    tell(&Message::Drained).map_err(|_| gone())?;
    let run = orders.into_inner().ended();
    if let Some(recorder) = recorder {
        let recorded = recorder.join().map_err(|_| CliError::Run("the recorder died".into()))?;
        // What the recorder says comes first: if it fails, it ends the log, and the analysis hears only that.
        let (writer, cut) = recorded?;
        analyzed = analyzed.and_then(|analyzed| finish(writer, cut, run).map(|()| analyzed));
    }
    let mut analyzed = analyzed?;
    if let Some(keeper) = keeper.into_inner() {
        keeper.finish(&mut analyzed);
    }
    tell(&Message::Done(Box::new(analyzed))).map_err(|_| gone())
}

/// What the supervisor says in the middle of a run.
struct Orders {
    heard: Receiver<Order>,
    ended: Option<Run>,
}

impl Orders {
    /// Listens on a thread of its own, which ends with the supervisor.
    fn listen(mut input: impl BufRead + Send + 'static) -> Orders {
        let (sender, heard) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok(Some(order)) = receive(&mut input) {
                if sender.send(order).is_err() {
                    break;
                }
            }
        });
        Orders { heard, ended: None }
    }

    /// Waits until the guest was saved at a finding. False where it has ended, or nobody answers.
    fn saved(&mut self, finding: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Order::GoOn(id)) if id == finding => return true,
                // The answer to an earlier one, for which nobody waited anymore.
                Ok(Order::GoOn(_)) => {}
                Ok(Order::Ended(run)) => {
                    self.ended = Some(*run);
                    return false;
                }
                Err(_) => return false,
            }
        }
    }

    /// Waits for the outcome of the run; `None` where the supervisor has gone.
    fn ended(mut self) -> Option<Run> {
        self.ended.take().or_else(|| {
            self.heard.iter().find_map(|order| match order {
                Order::Ended(run) => Some(*run),
                Order::GoOn(_) => None,
            })
        })
    }
}

/// Decides what happens at findings, and closes the gate.
struct Keeper {
    policy: Policy,
    log: Log,
    decided: BTreeMap<String, Decision>,
    saves: Saves,
}

impl Keeper {
    /// Decides about a finding before anybody hears that it was checked, and tells of it where anything is new. While the guest is
    /// saved, nothing passes either: accesses wait for what is checked, and that is not told before this returns.
    fn judge(&mut self, finding: &Finding, tell: &mut dyn FnMut(Found), orders: &mut Orders) {
        let decision = match self.decided.get(&finding.id) {
            // What is closed stays closed.
            Some(Decision::Contained) => return,
            _ => self.policy.decide(&finding.kind, finding.triage.as_deref()),
        };
        let before = self.decided.insert(finding.id.clone(), decision);
        let waits = before.is_none() && self.saves.most > 0;
        let log = &self.log;
        let close = || {
            if decision == Decision::Contained {
                log.close_gate(Closed::Finding);
            }
        };
        if !waits || self.saves.close_first {
            close();
        }
        if before != Some(decision) {
            tell(Found {
                id: finding.id.clone(),
                checker: finding.checker.clone(),
                kind: finding.kind.clone(),
                message: finding.message.clone(),
                action: decision.word().to_owned(),
                waits,
            });
        }
        if waits {
            let saved = orders.saved(&finding.id, Duration::from_secs(self.saves.seconds));
            close();
            // Nobody waits a second time for somebody who does not answer.
            self.saves.most = if saved { self.saves.most - 1 } else { 0 };
        }
    }

    /// Tells of each finding what was decided. What was found only when all was over could not be contained anymore.
    fn finish(self, analyzed: &mut Analyzed) {
        for finding in &mut analyzed.findings {
            let decided = self.decided.get(&finding.id).copied().unwrap_or(Decision::Told);
            finding.action = Some(decided.word().to_owned());
        }
    }
}

/// Writes the log to a trace file, on a thread of its own.
struct Recorder {
    writer: TraceWriter,
    reader: MergedReader,
    log: Log,
}

impl Recorder {
    fn open(path: &Path, meta: &TraceMeta, log: &Log) -> Result<Recorder, CliError> {
        let writer = TraceWriter::create(path, meta)?;
        Ok(Recorder { writer, reader: MergedReader::attach(log)?, log: log.clone() })
    }

    fn start(self) -> JoinHandle<Result<(TraceWriter, bool), CliError>> {
        std::thread::spawn(move || {
            let log = self.log.clone();
            let result = self.record();
            if result.is_err() {
                // The run cannot keep its promise to record; it ends instead of going on in vain.
                log.fail(FailReason::Stopped);
            }
            result
        })
    }

    fn record(self) -> Result<(TraceWriter, bool), CliError> {
        let mut writer = self.writer;
        let mut live = Live { reader: self.reader, timeout: IDLE };
        loop {
            match live.step().map_err(|error| CliError::Run(error.to_string()))? {
                Step::Segment(segment) => writer.add(&segment)?,
                Step::Idle => writer.flush()?,
                Step::End(end) => return Ok((writer, end != SourceEnd::Complete)),
            }
        }
    }
}

/// Ends the trace with what is known of the run. Without that the file reads as one that was cut.
fn finish(writer: TraceWriter, cut: bool, run: Option<Run>) -> Result<(), CliError> {
    let Some(run) = run else { return Ok(()) };
    let mut summary = RunSummary { outcome: run.outcome.clone(), cut, ..RunSummary::default() };
    if let Ok(value) = serde_json::to_value(run) {
        summary.more.insert(RUN_KEY.to_owned(), value);
    }
    Ok(writer.finish(summary)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(said: &[Order]) -> Orders {
        let mut bytes = Vec::new();
        said.iter().for_each(|order| send(&mut bytes, order).unwrap());
        Orders::listen(io::Cursor::new(bytes))
    }

    #[test]
    fn the_analysis_goes_on_where_the_finding_was_saved_and_nowhere_else() {
        let long = Duration::from_secs(60);
        let go_on = |id: &str| Order::GoOn(id.to_owned());
        let ended = || Order::Ended(Box::new(Run { outcome: "completed".into(), ..Run::default() }));
        // An answer that came too late for an earlier one is passed over.
        let mut told = orders(&[go_on("a"), go_on("b"), ended()]);
        assert!(told.saved("b", long));
        assert_eq!(told.ended().map(|run| run.outcome).as_deref(), Some("completed"));
        // A guest that has ended is not saved, and its outcome is not lost.
        let mut told = orders(&[ended(), go_on("a")]);
        assert!(!told.saved("a", long));
        assert_eq!(told.ended().map(|run| run.outcome).as_deref(), Some("completed"));
        // Nor is one whose supervisor has gone.
        let mut told = orders(&[]);
        assert!(!told.saved("a", long));
        assert_eq!(told.ended(), None);
    }
}
