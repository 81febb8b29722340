//! A run of the analysis, live or over a recorded trace: the code is the same.

use crate::checkers;
use crate::machine::World;
use crate::order::Parts;
use crate::outcome::{Outcome, Statistics};
use crate::replay::Replay;
use guardrail_finding::Finding;

/// What to analyze, and with which tools.
pub struct Config {
    /// What is known about kernel and modules.
    pub world: Box<dyn World>,
    /// Names of the tools to run.
    pub tools: Vec<String>,
}

/// Why a session cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The name of a tool that does not exist.
    #[error("there is no tool `{0}`; choose from: {list}", list = checkers::names_of_tools().collect::<Vec<_>>().join(", "))]
    UnknownTool(String),
}

/// A run of the analysis.
pub struct Session {
    machine: Replay,
}

impl Session {
    /// A session in which nothing has happened.
    pub fn new(config: Config) -> Result<Session, SessionError> {
        let checkers = checkers::by_names(&config.tools).map_err(SessionError::UnknownTool)?;
        Ok(Session { machine: Replay::new(config.world, checkers) })
    }

    /// Like [`Session::new`], but only these parts of the order count, instead of the tools' choice.
    pub fn with_parts(config: Config, parts: Parts) -> Result<Session, SessionError> {
        let mut session = Session::new(config)?;
        session.machine.set_parts(parts);
        Ok(session)
    }

    /// Takes the next segment in the order of the run. `ring` is the vCPU that wrote it.
    pub fn segment(&mut self, ring: u32, words: &[u64]) {
        self.machine.segment(ring, words);
    }

    /// The counts so far.
    pub fn statistics(&self) -> &Statistics {
        self.machine.statistics()
    }

    /// The number of findings so far.
    pub fn findings(&self) -> usize {
        self.machine.findings()
    }

    /// Calls `each` with the findings that are new or may have been judged anew since the last call.
    pub fn news(&mut self, mut each: impl FnMut(&Finding)) {
        let reports = self.machine.reports();
        if reports.has_news() {
            reports.news().for_each(&mut each);
        }
    }

    /// Ends the run and returns its findings and counts.
    pub fn finish(self) -> Outcome {
        self.machine.finish()
    }
}
