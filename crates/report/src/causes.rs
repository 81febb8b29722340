//! Findings with one likely cause, ranked. A missing lock between two functions shows in every member that
//! both touch, and an unguarded member in every pair of functions that touch it.

use crate::model::Report;
use guardrail_finding::{BaselineState, Finding, Frame, Severity};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Findings with one likely cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// What they have in common, in a few words: a member, or functions.
    pub what: String,
    /// The severity of the worst.
    pub severity: Severity,
    /// Their kinds, each once.
    pub kinds: Vec<String>,
    /// The fingerprints, the worst first.
    pub findings: Vec<String>,
}

/// What findings can have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Common {
    /// Races of two functions.
    Functions(String, String),
    /// Findings of one checker about a member, a variable, or what a function allocated.
    Target(String, String),
    /// Findings of one checker in a function.
    Place(String, String),
    /// Undefined values from one place.
    Origin(String),
}

/// Findings in groups, by repeatedly taking the group with the most findings that have none.
pub fn causes(report: &Report) -> Vec<Cause> {
    let mut open: Vec<(&Finding, Vec<Common>)> =
        report.shown().into_iter().map(|finding| (finding, commons(finding))).collect();
    let mut causes = Vec::new();
    while !open.is_empty() {
        let mut members: BTreeMap<&Common, usize> = BTreeMap::new();
        for common in open.iter().flat_map(|(_, commons)| commons) {
            *members.entry(common).or_default() += 1;
        }
        // Of equal ones the first in order: two functions say more than a member.
        let largest = members.into_iter().min_by_key(|(_, count)| Reverse(*count));
        let Some(common) = largest.map(|(common, _)| common.clone()) else { break };
        let (group, rest): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|(_, commons)| commons.contains(&common));
        causes.push(cause(&common, group.into_iter().map(|(finding, _)| finding).collect()));
        open = rest;
    }
    causes.sort_by_key(|(rank, _)| *rank);
    causes.into_iter().map(|(_, cause)| cause).collect()
}

/// The order of findings and causes in a list: the least comes first.
type Rank = (u8, Severity, u8, u64);

/// Where a finding belongs in a list, the worst first: new ones, then severity, then what the kind can do.
fn rank(finding: &Finding) -> Rank {
    let checker = match finding.checker.as_str() {
        "dmcheck" | "dmacheck" => 0,
        "drcheck" | "datacollider" => 2,
        _ => 1,
    };
    let known = u8::from(finding.baseline == Some(BaselineState::Unchanged));
    (known, finding.severity, checker, finding.event)
}

fn cause(common: &Common, mut group: Vec<&Finding>) -> (Rank, Cause) {
    group.sort_by_key(|finding| rank(finding));
    let kinds: BTreeSet<&str> = group.iter().map(|finding| finding.kind.as_str()).collect();
    let first = group.first().map_or((u8::MAX, Severity::Note, 0, 0), |finding| rank(finding));
    let cause = Cause {
        what: what(common, &group),
        severity: group.first().map_or(Severity::Note, |finding| finding.severity),
        kinds: kinds.into_iter().map(str::to_owned).collect(),
        findings: group.iter().map(|finding| finding.id.clone()).collect(),
    };
    (first, cause)
}

fn commons(finding: &Finding) -> Vec<Common> {
    let checker = || finding.checker.clone();
    let mut commons = Vec::new();
    if let Some((one, other)) = sides(finding) {
        commons.push(Common::Functions(one, other));
    } else {
        commons.push(Common::Place(checker(), finding.function.clone()));
    }
    if let Some(target) = finding.target() {
        commons.push(Common::Target(checker(), target.to_string()));
    }
    if let Some(frame) = finding.origin.as_ref().and_then(|origin| driver_frame(&origin.stack)) {
        commons.push(Common::Origin(format!("{frame}")));
    }
    commons
}

/// The functions of a race, in order.
fn sides(finding: &Finding) -> Option<(String, String)> {
    let other = finding.other.as_ref()?;
    let name = |stack: &[Frame]| driver_frame(stack).map_or("?", Frame::base).to_owned();
    let (one, two) = (name(&finding.stack), name(&other.stack));
    Some(if one <= two { (one, two) } else { (two, one) })
}

fn driver_frame(stack: &[Frame]) -> Option<&Frame> {
    stack.iter().find(|frame| frame.in_driver()).or(stack.first())
}

/// The line about a group: what is common to it, then in what its findings differ.
fn what(common: &Common, group: &[&Finding]) -> String {
    let targets = group.iter().filter_map(|finding| finding.target());
    let targets: BTreeSet<String> = targets.map(|target| target.to_string()).collect();
    let functions: BTreeSet<String> = group
        .iter()
        .flat_map(|finding| match sides(finding) {
            Some((one, other)) => vec![one, other],
            None => vec![finding.function.clone()],
        })
        .collect();
    let in_functions = |verb: &str| list(&functions, verb, "functions");
    match common {
        Common::Functions(one, other) => {
            let pair = if one == other { format!("{one} twice") } else { format!("{one} against {other}") };
            pair + &list(&targets, " for ", "members")
        }
        Common::Target(_, target) => format!("{target}{}", in_functions(" in ")),
        // The kernel names a driver without a place in it.
        Common::Place(_, function) if function == "?" => {
            let modules: BTreeSet<String> = group.iter().map(|finding| finding.module.clone()).collect();
            list(&modules, "", "modules")
        }
        Common::Place(_, function) => function.clone() + &list(&targets, " with ", "objects"),
        Common::Origin(frame) => format!("undefined bytes of {frame}{}", in_functions(" in ")),
    }
}

/// Up to two names, otherwise their number.
fn list(names: &BTreeSet<String>, verb: &str, many: &str) -> String {
    let mut all = names.iter();
    match (names.len(), all.next(), all.next()) {
        (1, Some(one), _) => format!("{verb}{one}"),
        (2, Some(one), Some(two)) => format!("{verb}{one}, {two}"),
        (0, ..) => String::new(),
        (n, ..) => format!("{verb}{n} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::{ObjectInfo, OtherAccess};

    fn stack(function: &str) -> Vec<Frame> {
        vec![Frame { function: function.into(), module: Some("drv".into()), ..Frame::default() }]
    }

    fn race(id: &str, field: &str, sides: [&str; 2]) -> Finding {
        Finding {
            id: id.into(),
            checker: "drcheck".into(),
            kind: "data-race".into(),
            severity: Severity::Warning,
            function: sides[0].into(),
            stack: stack(sides[0]),
            other: Some(OtherAccess { stack: stack(sides[1]), ..OtherAccess::default() }),
            object: Some(ObjectInfo { field: Some(field.into()), ..ObjectInfo::default() }),
            ..Finding::default()
        }
    }

    fn grouped(findings: Vec<Finding>) -> Vec<(String, Vec<String>)> {
        let report = Report { findings, ..Report::default() };
        causes(&report).into_iter().map(|cause| (cause.what, cause.findings)).collect()
    }

    #[test]
    fn without_a_place_the_driver_is_named() {
        let (checker, kind) = ("kernel".into(), "transmit-timeout".into());
        let (module, function) = ("8139cp".into(), "?".into());
        let found = Finding { id: "t".into(), checker, kind, module, function, ..Finding::default() };
        assert_eq!(grouped(vec![found]), [("8139cp".to_owned(), vec!["t".to_owned()])]);
    }

    #[test]
    fn races_of_two_functions_or_one_member_have_one_cause() {
        let leak = Finding {
            id: "l".into(),
            checker: "dmcheck".into(),
            kind: "leak".into(),
            function: "open".into(),
            ..Finding::default()
        };
        let found = vec![
            race("a", "priv.head", ["xmit", "clean"]),
            race("b", "priv.tail", ["clean", "xmit"]),
            race("c", "priv.ring[3].len", ["clean", "xmit"]),
            race("d", "priv.speed", ["watchdog", "show"]),
            race("e", "priv.speed", ["set", "reset"]),
            leak,
        ];
        let names = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            grouped(found),
            [
                ("open".to_owned(), names(&["l"])),
                ("clean against xmit for 3 members".to_owned(), names(&["a", "b", "c"])),
                ("priv.speed in 4 functions".to_owned(), names(&["d", "e"])),
            ]
        );
    }

    #[test]
    fn each_finding_has_one_cause() {
        // Each belongs to a pair and to a member.
        let sides = [["f", "g"], ["f", "h"], ["g", "h"], ["f", "f"]];
        let all: Vec<Finding> =
            (0..16).map(|i| race(&i.to_string(), ["x", "y", "z"][i % 3], sides[i % 4])).collect();
        let mut ids: Vec<String> = grouped(all).into_iter().flat_map(|(_, ids)| ids).collect();
        ids.sort_by_key(|id| id.parse::<u32>().unwrap());
        assert_eq!(ids, (0..16).map(|i| i.to_string()).collect::<Vec<_>>());
    }
}
