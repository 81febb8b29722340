//! Runs the checkers over a source of segments, live or recorded.

use crate::analysis::sources::Sources;
use crate::analysis::wire::Analyzed;
use crate::analysis::world::KernelWorld;
use crate::input::AnalysisInput;
use guardrail_analysis::checker::Checker;
use guardrail_analysis::replay::Replay;
use guardrail_analysis::{Outcome, checkers};
use guardrail_host::HostError;
use guardrail_trace::source::{Source, SourceEnd, SourceError, Step};

/// Segments between two reports of progress.
const REPORT_EVERY: u64 = 8192;

/// All inputs that are opened before the first event.
pub struct Engine {
    replay: Replay,
    sources: Sources,
}

/// The checkers of these tools.
fn named(tools: &[String]) -> Result<Vec<Box<dyn Checker>>, HostError> {
    checkers::by_names(tools).map_err(|name| {
        let list = checkers::names_of_tools().collect::<Vec<_>>().join(", ");
        HostError::Usage(format!("there is no tool `{name}`; choose from: {list}"))
    })
}

impl Engine {
    /// Opens kernel image and modules.
    pub fn open(input: &AnalysisInput) -> Result<Engine, HostError> {
        Engine::with(input, named(&input.tools)?)
    }

    /// Opens kernel image and modules for checkers that are no tools.
    pub fn with(input: &AnalysisInput, checkers: Vec<Box<dyn Checker>>) -> Result<Engine, HostError> {
        Ok(Engine::of(KernelWorld::open(input)?, checkers))
    }

    /// Opens kernel image and modules, and asks for the names of the hooks only then.
    pub fn hooked(
        input: &AnalysisInput,
        hooks: impl FnOnce() -> Result<Vec<String>, HostError>,
    ) -> Result<Engine, HostError> {
        let checkers = named(&input.tools)?;
        let mut world = KernelWorld::open(input)?;
        world.hook(hooks()?);
        Ok(Engine::of(world, checkers))
    }

    fn of(world: KernelWorld, checkers: Vec<Box<dyn Checker>>) -> Engine {
        let sources = world.sources();
        Engine { replay: Replay::new(Box::new(world), checkers), sources }
    }

    /// The source lines of the drivers and the kernel.
    pub fn sources(&self) -> Sources {
        self.sources.clone()
    }

    /// Reads the source to its end. `progress` receives the number of words read from time to time, also
    /// while the source is idle.
    ///
    /// `judge` receives each new finding before the source learns that its segment was checked, and whether
    /// what follows may take it back. It returns whether it acted upon the finding, which then stays reported.
    pub fn run(
        mut self,
        source: &mut dyn Source,
        progress: &mut dyn FnMut(u64),
        judge: &mut dyn FnMut(&guardrail_finding::Finding, bool) -> bool,
    ) -> Result<Analyzed, HostError> {
        let mut segments = 0u64;
        let mut words = 0u64;
        let cut = loop {
            match source.step().map_err(source_error)? {
                Step::Segment(segment) => {
                    words += segment.words.len() as u64;
                    self.replay.segment(segment.ring, segment.words);
                    self.replay.news(&mut *judge);
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
        let Outcome { mut findings, statistics } = self.replay.finish();
        self.sources.locate_kernel(&mut findings);
        Ok(Analyzed { findings, statistics, cut, ..Analyzed::default() })
    }
}

fn source_error(error: SourceError) -> HostError {
    match error {
        SourceError::Log(error) => error.into(),
        SourceError::File(error) => error.into(),
    }
}
