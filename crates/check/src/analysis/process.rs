//! The analysis process of a run (`guardrail internal-analysis`). It opens what it needs, drops its privileges, reads the log of a
//! running guest, and reports its findings on standard output (see [`wire`](crate::analysis::wire)).

use crate::analysis::engine::Engine;
use crate::analysis::inbox::Inbox;
use crate::analysis::keeper::Keeper;
use crate::analysis::kernel_log;
use crate::analysis::recorder::{self, Recorder};
use crate::analysis::run_log::RunLog;
use crate::analysis::wire::{Analyzed, Hooks, Job, Message, ShortFinding, receive, send};
use crate::sandbox;
use guardrail_finding::Finding;
use guardrail_host::error::sentence;
use guardrail_host::files;
use guardrail_host::{HostError, Status};
use guardrail_jail::Jail;
use guardrail_trace::log::{FailReason, Log, MergedReader};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Write};

/// Runs the analysis process.
pub fn run() -> Result<Status, HostError> {
    let mut out = io::stdout();
    match analyze(&mut out) {
        Ok(()) => Ok(Status::Clean),
        Err(error) => {
            // The supervisor prints it, if it still runs.
            let _ = send(&mut out, &Message::Failed(sentence(&error)));
            Ok(error.status())
        }
    }
}

/// The inputs that are opened before the process drops its privileges.
struct Opened {
    engine: Engine,
    log: Log,
    reader: MergedReader,
    recorder: Option<Recorder>,
    keeper: Option<Keeper>,
}

impl Opened {
    /// Opens what the job names, and reads the names of the hooks from the supervisor.
    fn new(mut job: Job, supervisor: &mut impl BufRead) -> Result<Opened, HostError> {
        let engine = Engine::hooked(&job.input, || {
            let Hooks(hooks) = listen(supervisor, "the hooks")?;
            job.meta.hooks = hooks.clone();
            Ok(hooks)
        })?;
        let log = Log::open(&job.log)?;
        let recorder = match &job.record {
            Some(path) => Some(Recorder::open(path, &job.meta, &log)?),
            None => None,
        };
        let mut reader = MergedReader::attach(&log)?;
        reader.set_schedule(job.schedule);
        let keeper = job.policy.map(|policy| Keeper::new(policy, log.clone(), job.saves));
        Ok(Opened { engine, log, reader, recorder, keeper })
    }
}

/// A message of the supervisor at the start.
fn listen<T: DeserializeOwned>(supervisor: &mut impl BufRead, what: &str) -> Result<T, HostError> {
    receive(supervisor).map_err(HostError::io("read", what))?.ok_or_else(supervisor_gone)
}

fn supervisor_gone() -> HostError {
    HostError::Run("the supervisor has gone".into())
}

fn analyze(out: &mut dyn Write) -> Result<(), HostError> {
    let mut input = BufReader::new(io::stdin());
    let job: Job = listen(&mut input, "the job")?;
    let confined = HostError::io("drop privileges of", "the analysis");
    let written = job.record.iter().chain([&job.log]).map(|file| files::place(file));
    sandbox::confine(&written.fold(sandbox::inputs(&job.input), Jail::writes)).map_err(confined)?;
    let Opened { engine, log, reader, recorder, mut keeper } = Opened::new(job, &mut input)?;
    sandbox::enter().map_err(HostError::io("drop privileges of", "the analysis"))?;
    let mut inbox = Inbox::listen(input);
    let recording = recorder.map(|recorder| recorder.start(inbox.cut()));
    let sources = engine.sources();
    send(out, &Message::Ready).map_err(|_| supervisor_gone())?;

    let analyzed = read(engine, reader, out, keeper.as_mut(), &mut inbox);
    if analyzed.is_err() {
        log.fail(FailReason::ReaderDied);
    }
    send(out, &Message::Drained).map_err(|_| supervisor_gone())?;
    let (mut run, log_text) = inbox.ended().map_or((None, None), |end| (Some(end.run), end.kernel_log));
    let read = log_text.map(|text| kernel_log::read(&text, &sources)).unwrap_or_default();
    if let Some(run) = &mut run {
        run.notes.extend(read.notes.iter().cloned());
    }
    let run = run.filter(|_| analyzed.is_ok());
    let recorded = recording.map_or(Ok(()), |recording| recording.finish(run, &read.findings));
    let mut analyzed = analyzed?;
    analyzed.unrecorded = recorded.err().map(|error| recorder::cut_short(&error));
    analyzed.findings.extend(read.findings);
    analyzed.notes.extend(read.notes);
    if let Some(keeper) = keeper {
        keeper.finish(&mut analyzed);
    }
    send(out, &Message::Done(Box::new(analyzed))).map_err(|_| supervisor_gone())
}

/// Reads the log to its end. The reader's slot in the log is free afterwards, so that the recorder does not
/// wait for it.
fn read(
    engine: Engine,
    reader: MergedReader,
    out: &mut dyn Write,
    mut keeper: Option<&mut Keeper>,
    inbox: &mut Inbox,
) -> Result<Analyzed, HostError> {
    let out = RefCell::new(out);
    let cut = inbox.cut();
    // The kernel ends this process with its supervisor, so a failed send needs no handling.
    let report = |message: &Message| _ = send(&mut **out.borrow_mut(), message);
    let mut progress = |words| report(&Message::Progress(words));
    let mut judge = |finding: &Finding, in_doubt: bool| {
        keeper.as_deref_mut().is_some_and(|keeper| {
            let mut report = |found: ShortFinding| report(&Message::Found(found));
            keeper.judge(finding, in_doubt, &mut report, inbox)
        })
    };
    engine.run(&mut RunLog::new(reader, cut), &mut progress, &mut judge)
}
