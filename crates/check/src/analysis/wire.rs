//! What passes between the supervisor and the analysis process: one JSON object a line.

use crate::analysis::policy::Policy;
use crate::subject::Subject;
use guardrail_analysis::Statistics;
use guardrail_finding::Finding;
use guardrail_report::Run;
use guardrail_trace::file::TraceMeta;
use guardrail_trace::log::Schedule;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

/// The longest line that is read. Findings are merged, so a report is far smaller.
const MAX_LINE: u64 = 256 << 20;

/// What the analysis gets at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The shared-memory log.
    pub log: PathBuf,
    /// The trace that the recorder writes.
    pub record: Option<PathBuf>,
    /// What is analyzed.
    pub subject: Subject,
    /// The head of the trace file.
    pub meta: TraceMeta,
    /// Device accesses wait for the analysis, which decides what happens at a finding.
    pub policy: Option<Policy>,
    /// What the analysis does while there is nothing to read.
    pub schedule: Schedule,
    /// How it waits at findings while the guest is saved.
    #[serde(default)]
    pub saves: Saves,
}

/// How the analysis waits at findings, and the driver with it, while the guest is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saves {
    /// At how many findings.
    pub most: u32,
    /// How long at most, in seconds.
    pub seconds: u64,
    /// A finding that is contained closes the gate before: its device goes on while the guest is saved.
    pub close_first: bool,
}

/// What the supervisor orders in the middle of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The guest was saved at this finding, or will not be: go on.
    GoOn(String),
    /// The guest has ended, and how.
    Ended(Box<Run>),
}

/// What the analysis reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// It has opened everything, dropped its privileges, and reads the log.
    Ready,
    /// Words read so far.
    Progress(u64),
    /// A finding that is new, or was judged anew.
    Found(Found),
    /// The log has ended and was read to its end. The supervisor answers with [`Order::Ended`].
    Drained,
    /// The end.
    Done(Box<Analyzed>),
    /// It cannot go on, and why.
    Failed(String),
}

/// A finding, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its fingerprint.
    pub id: String,
    /// The checker.
    pub checker: String,
    /// The kind.
    pub kind: String,
    /// One sentence.
    pub message: String,
    /// What was decided, in the words of the report.
    pub action: String,
    /// The analysis waits for [`Order::GoOn`].
    #[serde(default)]
    pub waits: bool,
}

/// What the analysis found and counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Analyzed {
    /// Findings in the order of their first occurrence.
    pub findings: Vec<Finding>,
    /// What the log held.
    pub statistics: Statistics,
    /// Where the log stopped, if it did not end in order.
    pub cut: Option<String>,
}

impl Analyzed {
    /// Adds what was counted to what is known of the run.
    pub fn complete(&self, run: Run) -> Run {
        let counted = &self.statistics;
        Run {
            events: counted.events,
            blocks: counted.blocks,
            accesses: counted.accesses,
            device_accesses: counted.device_accesses,
            unclaimed_accesses: counted.unclaimed_accesses,
            damaged_segments: counted.damaged_segments,
            unknown_instructions: counted.unknown_instructions.clone(),
            ..run
        }
    }
}

/// Writes one message.
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
