//! Writes the log of a running guest to a trace file.

use crate::analysis::run_log::RunLog;
use crate::trace_head::{KERNEL_KEY, RUN_KEY};
use guardrail_finding::Finding;
use guardrail_host::HostError;
use guardrail_host::error::sentence;
use guardrail_report::Run;
use guardrail_trace::file::{RunSummary, TraceMeta, TraceWriter};
use guardrail_trace::log::{Log, MergedReader};
use guardrail_trace::source::{Source, SourceEnd, Step};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// A trace file, and a reader of the log that it gets.
pub struct Recorder {
    writer: TraceWriter,
    reader: MergedReader,
}

impl Recorder {
    /// Opens the file, and a reader's slot in the log.
    pub fn open(path: &Path, meta: &TraceMeta, log: &Log) -> Result<Recorder, HostError> {
        Ok(Recorder { writer: TraceWriter::create(path, meta)?, reader: MergedReader::attach(log)? })
    }

    /// Records on a thread of its own until the log ends, or `cut` becomes true.
    ///
    /// A file that cannot be written ends the recording, and not the run: its slot in the log is free then, so
    /// that no writer waits for it.
    pub fn start(self, cut: Arc<AtomicBool>) -> Recording {
        Recording(std::thread::spawn(move || self.record(cut)))
    }

    fn record(self, cut: Arc<AtomicBool>) -> Result<(TraceWriter, bool), HostError> {
        let Recorder { mut writer, reader } = self;
        let mut log = RunLog::new(reader, cut);
        loop {
            match log.step().map_err(|error| HostError::Run(error.to_string()))? {
                Step::Segment(segment) => writer.add(&segment)?,
                Step::Idle => writer.flush()?,
                Step::End(end) => return Ok((writer, end != SourceEnd::Complete)),
            }
        }
    }
}

/// A recording that goes on. Its thread returns the file, and whether the log was cut.
pub struct Recording(JoinHandle<Result<(TraceWriter, bool), HostError>>);

impl Recording {
    /// Waits until the log is recorded. Then ends the trace with the run's description, and with the findings of
    /// the kernel's log, which is not recorded. Without a run, the file reads as one that was cut.
    pub fn finish(self, run: Option<Run>, kernel: &[Finding]) -> Result<(), HostError> {
        let (writer, cut) = self.0.join().map_err(|_| HostError::Run("the recorder died".into()))??;
        let Some(run) = run else { return Ok(()) };
        let mut summary = RunSummary { outcome: run.outcome.clone(), cut, ..RunSummary::default() };
        for (key, value) in [(RUN_KEY, serde_json::to_value(run)), (KERNEL_KEY, serde_json::to_value(kernel))]
        {
            if let Ok(value) = value {
                summary.more.insert(key.to_owned(), value);
            }
        }
        Ok(writer.finish(summary)?)
    }
}

/// The note on a recording that ended before the run.
pub fn cut_short(error: &HostError) -> String {
    format!("the recording ended early: {}; 'guardrail analyze' reads the trace up to there", sentence(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_trace::log::LogOptions;
    use std::ffi::CString;
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;

    /// Words in a ring of the test's log.
    const RING: u64 = 1 << 12;

    #[test]
    fn a_file_that_cannot_be_written_ends_the_recording_alone() {
        let folder = tempfile::tempdir().unwrap();
        let options = LogOptions { words_per_ring: RING, readers: 2, ..LogOptions::new(1) };
        let log = Log::create_with(folder.path().join("log"), &options).unwrap();
        // A pipe that nobody reads refuses what is written after the head of the trace.
        let file = folder.path().join("trace");
        let name = CString::new(file.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with 0 and lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let end = std::thread::spawn({
            let file = file.clone();
            move || File::open(file).unwrap()
        });
        let recorder = Recorder::open(&file, &TraceMeta::default(), &log).unwrap();
        drop(end.join().unwrap());

        let mut analysis = RunLog::new(MergedReader::attach(&log).unwrap(), Arc::default());
        let recording = recorder.start(Arc::default());
        let mut writer = log.writer(0).unwrap();
        let mut read = 0;
        // More than the ring holds: the writer waits for all readers that are left.
        for word in 0..4 * RING {
            writer.begin();
            writer.push(word);
            writer.close();
            read += u64::from(matches!(analysis.step().unwrap(), Step::Segment(_)));
        }
        log.mark_producer_dead();
        let error = recording.finish(Some(Run::default()), &[]).unwrap_err();
        assert!(error.to_string().starts_with("cannot write the trace "), "{error}");
        assert_eq!((read, log.failed()), (4 * RING, None));
    }

    #[test]
    fn the_note_on_a_full_disk_names_file_and_cut() {
        let full = guardrail_trace::file::FileError::DiskFull { path: "/t/run.trace".into(), offset: 4096 };
        assert_eq!(
            cut_short(&full.into()),
            "the recording ended early: the disk is full: the trace /t/run.trace ends at byte 4096; free some space \
             or record elsewhere; 'guardrail analyze' reads the trace up to there"
        );
    }
}
