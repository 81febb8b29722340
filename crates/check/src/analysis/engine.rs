//! Runs the checkers over a source of segments, live or recorded.

use crate::analysis::wire::Analyzed;
use crate::analysis::world::Known;
use crate::subject::Subject;
use guardrail_analysis::{Config, Outcome, Session, checkers};
use guardrail_host::HostError;
use guardrail_trace::source::{Source, SourceEnd, SourceError, Step};

/// Names that stand for several checkers. DRCheck must be requested by name, since all drivers have races
/// that do no harm.
const GROUPS: [(&str, &[&str]); 2] = [
    ("all", &["dmcheck", "drcheck", "dmacheck", "lockcheck", "protocheck"]),
    ("quiet", &["dmcheck", "dmacheck", "lockcheck", "protocheck"]),
];

/// Segments between two reports of progress.
const REPORT_EVERY: u64 = 8192;

/// All inputs that are opened before the first event.
pub struct Engine {
    session: Session,
}

impl Engine {
    /// Opens kernel image and modules.
    pub fn open(subject: &Subject) -> Result<Engine, HostError> {
        let world = Box::new(Known::open(subject)?);
        let config = Config { world, tools: subject.tools.clone() };
        let session = Session::new(config).map_err(|error| HostError::Usage(error.to_string()))?;
        Ok(Engine { session })
    }

    /// Reads the source to its end. `progress` receives the number of words read from time to time, also
    /// while the source is idle.
    ///
    /// `judge` receives each new finding before the source learns that its segment was checked.
    pub fn run(
        mut self,
        source: &mut dyn Source,
        progress: &mut dyn FnMut(u64),
        judge: &mut dyn FnMut(&guardrail_finding::Finding),
    ) -> Result<Analyzed, HostError> {
        let mut segments = 0u64;
        let mut words = 0u64;
        let cut = loop {
            match source.step().map_err(source_error)? {
                Step::Segment(segment) => {
                    words += segment.words.len() as u64;
                    self.session.segment(segment.ring, segment.words);
                    self.session.news(&mut *judge);
                    source.checked();
                    segments += 1;
                    if segments.is_multiple_of(REPORT_EVERY) {
                        progress(words);
                    }
                }
                Step::Idle => progress(words),
                Step::End(SourceEnd::Complete) => break None,
                Step::End(SourceEnd::Cut(why)) => break Some(why),
                Step::End(SourceEnd::Failed(reason)) => {
                    return Err(HostError::Run(format!("the trace is not whole: {reason}")));
                }
            }
        };
        let Outcome { findings, statistics } = self.session.finish();
        Ok(Analyzed { findings, statistics, cut })
    }
}

fn source_error(error: SourceError) -> HostError {
    match error {
        SourceError::Log(error) => error.into(),
        SourceError::File(error) => error.into(),
    }
}

/// Splits a list of tools, and refuses unknown ones.
pub fn tools(list: &str) -> Result<Vec<String>, HostError> {
    let mut tools = Vec::new();
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let group =
        |name| GROUPS.iter().find(|(group, _)| *group == name).map_or(vec![name], |(_, all)| all.to_vec());
    for name in names.flat_map(group) {
        let known = checkers::names_of_tools();
        if !known.clone().any(|other| other == name) && checkers::by_name(name).is_none() {
            let near = guardrail_vm::error::suggest(name, known.clone());
            let near = if near.is_empty() { known.map(str::to_owned).collect() } else { near };
            let error = guardrail_vm::Error::Unknown { what: "tool", name: name.to_owned(), near };
            return Err(error.into());
        }
        if !tools.iter().any(|other| other == name) {
            tools.push(name.to_owned());
        }
    }
    if tools.is_empty() {
        return Err(HostError::Usage("--tool names no tool; see 'guardrail list tools'".into()));
    }
    Ok(tools)
}
