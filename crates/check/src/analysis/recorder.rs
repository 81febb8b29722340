//! Writes the log of a running guest to a trace file.

use crate::trace_head::{KERNEL_KEY, RUN_KEY};
use guardrail_finding::Finding;
use guardrail_host::HostError;
use guardrail_report::Run;
use guardrail_trace::file::{RunSummary, TraceMeta, TraceWriter};
use guardrail_trace::log::{FailReason, Log, MergedReader};
use guardrail_trace::source::{Live, Source, SourceEnd, Step};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the log may be silent before the words read so far are written out.
const IDLE: Duration = Duration::from_millis(500);

/// Writes the log to a trace file, on a thread of its own.
pub struct Recorder {
    writer: TraceWriter,
    reader: MergedReader,
    log: Log,
}

impl Recorder {
    /// Opens the file, and a reader's slot in the log.
    pub fn open(path: &Path, meta: &TraceMeta, log: &Log) -> Result<Recorder, HostError> {
        let writer = TraceWriter::create(path, meta)?;
        Ok(Recorder { writer, reader: MergedReader::attach(log)?, log: log.clone() })
    }

    /// Records on a thread of its own. The thread returns the file, and whether the log was cut.
    pub fn start(self) -> JoinHandle<Result<(TraceWriter, bool), HostError>> {
        std::thread::spawn(move || {
            let log = self.log.clone();
            let result = self.record();
            if result.is_err() {
                // A run that cannot be recorded ends, because its continuation would be useless.
                log.fail(FailReason::Stopped);
            }
            result
        })
    }

    fn record(self) -> Result<(TraceWriter, bool), HostError> {
        let mut writer = self.writer;
        let mut live = Live { reader: self.reader, timeout: IDLE };
        loop {
            match live.step().map_err(|error| HostError::Run(error.to_string()))? {
                Step::Segment(segment) => writer.add(&segment)?,
                Step::Idle => writer.flush()?,
                Step::End(end) => return Ok((writer, end != SourceEnd::Complete)),
            }
        }
    }
}

/// Ends the trace with the run's description, and with the findings of the kernel's log, which is not recorded.
/// Without it the file reads as one that was cut.
pub fn finish(writer: TraceWriter, cut: bool, run: Option<Run>, kernel: &[Finding]) -> Result<(), HostError> {
    let Some(run) = run else { return Ok(()) };
    let mut summary = RunSummary { outcome: run.outcome.clone(), cut, ..RunSummary::default() };
    for (key, value) in [(RUN_KEY, serde_json::to_value(run)), (KERNEL_KEY, serde_json::to_value(kernel))] {
        if let Ok(value) = value {
            summary.more.insert(key.to_owned(), value);
        }
    }
    Ok(writer.finish(summary)?)
}
