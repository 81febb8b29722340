//! The messages between the supervisor and the analysis process: one JSON value a line.

use crate::analysis::policy::Policy;
use crate::input::AnalysisInput;
use guardrail_analysis::Statistics;
use guardrail_finding::Finding;
use guardrail_report::Run;
use guardrail_trace::file::TraceMeta;
use guardrail_trace::log::Schedule;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

/// The longest line that is read, in bytes. Findings are merged, so a report is far smaller.
const MAX_LINE: u64 = 256 << 20;

/// The input of the analysis at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The path of the shared-memory log.
    pub log: PathBuf,
    /// The file for the recorder's trace; `None` without a recording.
    pub record: Option<PathBuf>,
    /// The kernel and modules to analyze.
    pub input: AnalysisInput,
    /// The head of the trace file.
    pub meta: TraceMeta,
    /// The policy of a run whose device accesses wait for the analysis; `None` where none waits.
    pub policy: Option<Policy>,
    /// How the analysis waits while the log is empty.
    pub schedule: Schedule,
    /// How the analysis waits at findings while the guest is saved.
    #[serde(default)]
    pub saves: Saves,
}

/// How the analysis, and with it the driver, waits at findings while the guest is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saves {
    /// The most findings at which it waits.
    pub most: u32,
    /// The longest wait at a finding, in seconds.
    pub seconds: u64,
    /// True where a finding that is contained closes the gate before the guest is saved: the device continues
    /// meanwhile.
    pub close_first: bool,
}

/// The names of the hooked functions, by number. They follow the job, which has none: while the process reads the kernel, the
/// tracer's configuration is worked out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hooks(pub Vec<String>);

/// An order of the supervisor during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Continue: the guest was saved at this finding, or will not be.
    GoOn(String),
    /// The guest has ended in this way.
    Ended(Box<GuestEnd>),
    /// Read the log no further: the user has interrupted the run, and waits for the report.
    Cut,
}

/// The end of a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestEnd {
    /// The description of the run.
    pub run: Run,
    /// What the guest's console showed; `None` where the driver had not begun to run.
    pub kernel_log: Option<String>,
}

/// A report of the analysis.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The process has opened all inputs, dropped its privileges, and reads the log.
    Ready,
    /// The number of words read so far.
    Progress(u64),
    /// A finding that is new, or has a new judgment.
    Found(ShortFinding),
    /// The log has ended and was read to its end. The supervisor answers with [`Order::Ended`].
    Drained,
    /// The results; this is the last message.
    Done(Box<Analyzed>),
    /// The analysis cannot continue, for this reason.
    Failed(String),
}

/// The short form of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortFinding {
    /// The fingerprint.
    pub id: String,
    /// The name of the checker.
    pub checker: String,
    /// The kind of finding, by the checker's name for it.
    pub kind: String,
    /// One sentence for people.
    pub message: String,
    /// The decision, in the words of the report.
    pub action: String,
    /// True where the analysis waits for [`Order::GoOn`].
    #[serde(default)]
    pub waits: bool,
}

/// The findings and counts of the analysis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Analyzed {
    /// Findings in the order of their first occurrence.
    pub findings: Vec<Finding>,
    /// Counts of the log's contents.
    pub statistics: Statistics,
    /// Where the log stopped; `None` if it ended in order.
    pub cut: Option<String>,
    /// Facts about the run that only the analysis knows, one sentence each.
    pub notes: Vec<String>,
    /// Why the trace file has less than the run; `None` where it is whole, or none was asked for.
    pub unrecorded: Option<String>,
}

impl Analyzed {
    /// Adds the counts to the description of the run.
    pub fn complete(&self, run: Run) -> Run {
        let counted = &self.statistics;
        let mut notes = run.notes.clone();
        notes.extend(self.notes.iter().chain(&self.unrecorded).cloned());
        if counted.stacks_not_kept > 0 {
            notes.push(format!(
                "for {} entries into the driver the kernel's stack above it is not known: the run had too many \
                 different stacks",
                counted.stacks_not_kept
            ));
        }
        Run {
            notes,
            events: counted.events,
            blocks: counted.blocks,
            coverage: counted.coverage.clone(),
            accesses: counted.accesses,
            device_accesses: counted.device_accesses,
            unclaimed_accesses: counted.unclaimed_accesses,
            damaged_segments: counted.damaged_segments,
            unknown_instructions: counted.unknown_instructions.clone(),
            ..run
        }
    }
}

/// Writes one message as a line.
pub fn send<T: Serialize>(out: &mut dyn Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Reads one message; `None` at the end.
pub fn receive<T: for<'de> Deserialize<'de>>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        Some(_) => Err(io::Error::other("a message was cut")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines() {
        let mut bytes = Vec::new();
        send(&mut bytes, &Message::Ready).unwrap();
        send(&mut bytes, &Message::Progress(7)).unwrap();
        assert_eq!(bytes, b"\"ready\"\n{\"progress\":7}\n");
        let mut input = &bytes[..];
        assert!(matches!(receive(&mut input).unwrap(), Some(Message::Ready)));
        assert!(matches!(receive(&mut input).unwrap(), Some(Message::Progress(7))));
        assert!(receive::<Message>(&mut input).unwrap().is_none());
        assert!(receive::<Message>(&mut &b"\"rea"[..]).is_err());
    }
}
