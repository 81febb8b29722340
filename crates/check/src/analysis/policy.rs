//! The policy of a run: which findings are contained, and which are only reported (thesis 3.2).

use crate::plan::{GateKind, Mode, Observe, RunPlan};
use guardrail_finding::triage::{BENIGN, UNDECIDED};
use guardrail_finding::{Finding, Severity, kinds};
use guardrail_host::HostError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file that is read unless the user names another.
pub const FILE: &str = "guardrail.toml";
/// The most bytes that are read of it.
const MAX_FILE: u64 = 1 << 20;
/// The beginnings of a checker's verdict where no harm is known, each with the decision where that counts.
const NO_HARM: [(&str, Decision); 2] = [(BENIGN, Decision::Harmless), (UNDECIDED, Decision::Undecided)];
/// The kind of finding that every driver has; alone it is judged in mode `stringent` as well.
const RACE: &str = "data-race";

/// The action of a policy on a kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The device is cut off.
    Contain,
    /// It is reported, and the run continues.
    Warn,
}

/// The policy of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The action on findings in general.
    pub mode: Mode,
    /// Exceptions for some kinds; they apply where the mode contains anything at all.
    pub kinds: BTreeMap<String, Action>,
}

/// The contents of the policy file.
#[derive(Debug, Default, Deserialize)]
struct PolicyFile {
    #[serde(default)]
    kinds: BTreeMap<String, Action>,
    /// Suppression files, from the folder of this file.
    #[serde(default)]
    suppress: Vec<PathBuf>,
    /// What the usual file has besides: options of commands, which are checked where commands are known.
    #[serde(flatten)]
    others: BTreeMap<String, toml::Value>,
}

/// The decision about a finding, in the words of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The gate is closed.
    Contained,
    /// The finding is only reported, by the mode or by the exception for its kind.
    Reported,
    /// The finding is only reported because it was judged harmless.
    Harmless,
    /// The finding is only reported because no harm is known to follow.
    Undecided,
    /// The finding is only reported because what is wrong puts no memory at risk by itself, such as a leak.
    Lesser,
}

impl Decision {
    /// The report's word for the decision.
    pub fn word(self) -> &'static str {
        match self {
            Decision::Contained => "contained",
            Decision::Reported => "passed",
            Decision::Harmless => "passed: judged harmless",
            Decision::Undecided => "passed: undecided",
            Decision::Lesser => "passed: puts no memory at risk",
        }
    }
}

impl Policy {
    /// The policy of a run whose device accesses wait for the analysis; `None` where none waits.
    pub fn of_plan(plan: &RunPlan) -> Result<Option<Policy>, HostError> {
        let policy = Policy::open(plan.mode, plan.policy.as_deref())?;
        match (plan.gate, plan.mode) {
            (GateKind::Off, Mode::Permissive) => Ok(None),
            (GateKind::Off, _) => Err(HostError::Usage(
                "--mode stringent and --mode triage need a gate that they can close; add --gate vmm or --gate vfio-user".into(),
            )),
            (GateKind::Vmm | GateKind::VfioUser, _) => Ok(Some(policy).filter(|_| plan.observe == Observe::Check)),
        }
    }

    /// The policy of a mode, with the exceptions of a file. Without a name, the file is `guardrail.toml` of
    /// the current folder, if it exists.
    pub fn open(mode: Mode, file: Option<&Path>) -> Result<Policy, HostError> {
        Ok(Policy { mode, kinds: read(file)?.1.kinds })
    }

    /// The suppression files that the same file names.
    pub fn suppressions(file: Option<&Path>) -> Result<Vec<PathBuf>, HostError> {
        let (path, file) = read(file)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(file.suppress.iter().map(|name| folder.join(name)).collect())
    }

    /// The decision about a finding.
    pub fn decide(&self, finding: &Finding) -> Decision {
        let kind = finding.kind.as_str();
        match (self.mode, self.kinds.get(kind)) {
            (Mode::Permissive, _) | (_, Some(Action::Warn)) => Decision::Reported,
            (_, Some(Action::Contain)) => Decision::Contained,
            (Mode::Stringent, None) if kind != RACE => Decision::Contained,
            (Mode::Stringent | Mode::Triage, None) => {
                let triage = finding.triage.as_deref().unwrap_or_default();
                match NO_HARM.iter().find(|(verdict, _)| triage.starts_with(verdict)) {
                    Some((_, decision)) => *decision,
                    None if kind == RACE => Decision::Contained,
                    None if kinds::endangers_memory(kind) && finding.severity == Severity::Error => {
                        Decision::Contained
                    }
                    None => Decision::Lesser,
                }
            }
        }
    }
}

/// Reads the policy file that the user named, or the usual one, if it exists.
fn read(file: Option<&Path>) -> Result<(PathBuf, PolicyFile), HostError> {
    let path = file.map_or_else(|| PathBuf::from(FILE), Path::to_path_buf);
    let mut text = String::new();
    let opened = fs::File::open(&path);
    match opened.and_then(|opened| opened.take(MAX_FILE).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(HostError::io("read", path.display())(error)),
    }
    let bad = |why: String| HostError::Usage(format!("{}: {why}", path.display()));
    let read = parse(&text).map_err(bad)?;
    match read.others.keys().next().filter(|_| file.is_some()) {
        Some(name) => Err(bad(format!("'{name}' is not of a policy, which has 'kinds' and 'suppress'"))),
        None => Ok((path, read)),
    }
}

fn parse(text: &str) -> Result<PolicyFile, String> {
    let file: PolicyFile = toml::from_str(text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        format!("line {line}: {}", error.message().lines().next().unwrap_or("it cannot be read"))
    })?;
    let known = kinds::all();
    match file.kinds.keys().find(|kind| !known.iter().any(|other| other == kind)) {
        None => Ok(file),
        Some(kind) => {
            let near = guardrail_vm::error::suggest(kind, known.iter().copied());
            let near = if near.is_empty() {
                String::new()
            } else {
                format!("; did you mean {}?", near.join(" or "))
            };
            Err(format!("there is no kind of finding '{kind}'{near}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: &str, triage: Option<&str>) -> Finding {
        Finding { kind: kind.to_owned(), triage: triage.map(str::to_owned), ..Finding::default() }
    }

    fn policy(mode: Mode, text: &str) -> Policy {
        Policy { mode, kinds: parse(text).unwrap().kinds }
    }

    #[test]
    fn modes_decide_where_the_file_says_nothing() {
        let decide = |mode, triage| policy(mode, "").decide(&finding("data-race", triage));
        assert_eq!(decide(Mode::Permissive, Some("harmful")), Decision::Reported);
        assert_eq!(decide(Mode::Stringent, Some("likely benign: a counter")), Decision::Harmless);
        assert_eq!(decide(Mode::Triage, Some("likely benign: a counter")), Decision::Harmless);
        assert_eq!(decide(Mode::Triage, Some("undecided: x")), Decision::Undecided);
        assert_eq!(decide(Mode::Stringent, Some("undecided: x")), Decision::Undecided);
        assert_eq!(decide(Mode::Stringent, Some("harmful: x")), Decision::Contained);
        let other =
            policy(Mode::Stringent, "").decide(&finding("uninit-to-device", Some("likely benign: x")));
        assert_eq!(other, Decision::Contained);
        assert_eq!(decide(Mode::Triage, Some("harmful: x")), Decision::Contained);
        assert_eq!(decide(Mode::Triage, None), Decision::Contained);
    }

    #[test]
    fn triage_contains_what_puts_memory_at_risk() {
        let decide =
            |kind, severity| policy(Mode::Triage, "").decide(&Finding { severity, ..finding(kind, None) });
        for kind in ["use-after-free", "out-of-bounds", "uninit-to-device", "dma-freed-while-mapped"] {
            assert_eq!(decide(kind, Severity::Error), Decision::Contained, "{kind}");
            assert_eq!(decide(kind, Severity::Warning), Decision::Lesser, "{kind}");
        }
        for kind in ["leak", "lock-order", "dma-race", "dma-direction", "protocol-order", "kernel-warning"] {
            assert_eq!(decide(kind, Severity::Error), Decision::Lesser, "{kind}");
        }
        let stringent = policy(Mode::Stringent, "").decide(&finding("leak", None));
        assert_eq!(stringent, Decision::Contained);
    }

    #[test]
    fn the_file_makes_exceptions() {
        let text = "[kinds]\nleak = \"warn\"\ndata-race = \"contain\"\n";
        let decide = |mode, kind, triage| policy(mode, text).decide(&finding(kind, triage));
        assert_eq!(decide(Mode::Stringent, "leak", None), Decision::Reported);
        assert_eq!(decide(Mode::Triage, "data-race", Some("likely benign: x")), Decision::Contained);
        assert_eq!(decide(Mode::Permissive, "data-race", None), Decision::Reported);
    }

    #[test]
    fn suppression_files_lie_beside_the_policy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        fs::write(&file, "suppress = [\"a.toml\", \"/b.toml\"]\n[kinds]\nleak = \"warn\"\n").unwrap();
        let found = Policy::suppressions(Some(&file)).unwrap();
        assert_eq!(found, [folder.path().join("a.toml"), PathBuf::from("/b.toml")]);
    }

    #[test]
    fn faults_in_the_file_are_reported_with_their_line() {
        assert_eq!(
            parse("[kinds]\nleek = \"warn\"").unwrap_err(),
            "there is no kind of finding 'leek'; did you mean leak?"
        );
        assert!(parse("[kinds]\nleak = \"drop\"").unwrap_err().starts_with("line 2: "));
        assert!(parse("[kinds\n").unwrap_err().starts_with("line 1: "));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        fs::write(&file, "[other]\n").unwrap();
        let error = Policy::open(Mode::Triage, Some(&file)).unwrap_err().to_string();
        assert!(error.ends_with("'other' is not of a policy, which has 'kinds' and 'suppress'"), "{error}");
    }
}
