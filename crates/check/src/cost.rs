//! What the checkers cost over a recorded trace, for those who make them faster.

use crate::analysis::engine::Engine;
use crate::input::AnalysisInput;
use crate::reach::Reach;
use crate::tools::tools;
use crate::trace_head;
use guardrail_analysis::Statistics;
use guardrail_finding::Finding;
use guardrail_host::HostError;
use guardrail_trace::Segment;
use guardrail_trace::file::TraceReader;
use guardrail_trace::source::{Source, SourceEnd, SourceError, Step};
use guardrail_vm::OwnedFolder;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

/// A trace in memory, with the files that its analysis reads.
pub struct Loaded {
    input: AnalysisInput,
    words: Vec<u64>,
    /// For each segment its ring, whether it continues, and the number of words up to its end.
    segments: Vec<(u32, bool, usize)>,
    _folder: OwnedFolder,
}

/// What one analysis has cost.
#[derive(Clone, Debug)]
pub struct Cost {
    /// What the log held.
    pub counted: Statistics,
    /// The processor's time from the first event to the last finding.
    pub processor: Duration,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Cost {
    /// Nanoseconds of the processor for each event.
    pub fn nanoseconds(&self) -> f64 {
        self.processor.as_nanos() as f64 / self.counted.events.max(1) as f64
    }
}

impl Loaded {
    /// Reads a trace into memory, and unpacks the modules that it names.
    pub fn open(file: &Path, reach: &Reach) -> Result<Loaded, HostError> {
        let folder =
            OwnedFolder::large("guardrail-").map_err(HostError::io("create", "a temporary folder"))?;
        let mut trace = TraceReader::open(file)?;
        let meta = trace.meta().clone();
        let subject = trace_head::subject(&meta, reach)?;
        let input = trace_head::input(&meta, &subject, folder.path())?;
        let (mut words, mut segments) = (Vec::new(), Vec::new());
        while let Some(segment) = trace.next()? {
            words.extend_from_slice(segment.words);
            segments.push((segment.ring, segment.continuation, words.len()));
        }
        Ok(Loaded { input, words, segments, _folder: folder })
    }

    /// Runs the checkers of a list over the trace. Reading the kernel and the modules is not in the cost.
    pub fn run(&self, tool_list: &str) -> Result<Cost, HostError> {
        let input = AnalysisInput { tools: tools(tool_list)?, ..self.input.clone() };
        let engine = Engine::open(&input)?;
        let mut source = Words { loaded: self, next: 0 };
        let before = processor()?;
        let analyzed = engine.run(&mut source, &mut |_| {}, &mut |_, _| false)?;
        let processor = processor()?.saturating_sub(before);
        Ok(Cost { counted: analyzed.statistics, processor, findings: analyzed.findings })
    }
}

/// The segments of a trace in memory.
struct Words<'a> {
    loaded: &'a Loaded,
    next: usize,
}

impl Source for Words<'_> {
    fn step(&mut self) -> Result<Step<'_>, SourceError> {
        let segments = &self.loaded.segments;
        let Some(&(ring, continuation, end)) = segments.get(self.next) else {
            return Ok(Step::End(SourceEnd::Complete));
        };
        let from = self.next.checked_sub(1).map_or(0, |before| segments[before].2);
        let ticket = self.next as u64;
        self.next += 1;
        Ok(Step::Segment(Segment { ring, ticket, continuation, words: &self.loaded.words[from..end] }))
    }
}

/// The time that the processor has worked for this thread so far.
fn processor() -> Result<Duration, HostError> {
    const FILE: &str = "/proc/thread-self/schedstat";
    let read = || {
        let text = fs::read_to_string(FILE)?;
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        nanos.map(Duration::from_nanos).ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    read().map_err(HostError::io("read", FILE))
}
