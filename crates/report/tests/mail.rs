//! Tests the mails about findings of a stored report: one snapshot for each form. The report is made up in
//! part, and its findings are of several runs.

use guardrail_finding::Location;
use guardrail_report::list::FindingList;
use guardrail_report::{Report, json, mail};

fn stored() -> Report {
    json::read(include_bytes!("mail/report.json")).unwrap()
}

/// The mail about the finding whose fingerprint begins so.
fn of(report: &Report, id: &str) -> String {
    beside(report, id, None)
}

/// The same, with a run of another build.
fn beside(report: &Report, id: &str, other: Option<&FindingList>) -> String {
    let finding = report.findings.iter().find(|finding| finding.id.starts_with(id)).unwrap();
    let mut out = Vec::new();
    mail::mail(report, finding, other, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 76), "{text}");
    assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    text
}

#[test]
fn a_race_that_was_not_tried() {
    insta::assert_snapshot!(of(&stored(), "e527d911be898bfa"));
}

#[test]
fn a_race_that_was_made_to_happen() {
    insta::assert_snapshot!(of(&stored(), "e527d911be898bfb"));
}

#[test]
fn memory() {
    insta::assert_snapshot!(of(&stored(), "f0a8"));
}

#[test]
fn undefined() {
    insta::assert_snapshot!(of(&stored(), "1e61"));
}

#[test]
fn dma() {
    insta::assert_snapshot!(of(&stored(), "17c0"));
}

#[test]
fn locks() {
    insta::assert_snapshot!(of(&stored(), "1a41"));
}

#[test]
fn kernel() {
    insta::assert_snapshot!(of(&stored(), "3a11"));
}

#[test]
fn what_a_report_does_not_say_is_not_invented() {
    let mut report = stored();
    report.run = guardrail_report::Run::default();
    for finding in &mut report.findings {
        finding.stack.clear();
        finding.context = Default::default();
        finding.object = None;
    }
    let all: Vec<String> = report.findings.iter().map(|finding| of(&report, &finding.id)).collect();
    let text = all.concat();
    assert!(text.contains("The report does not say with which options the run was made."), "{text}");
    assert!(text.contains("(no call trace is known)"), "{text}");
    assert!(!text.contains("guardrail check"), "{text}");
}

#[test]
fn a_run_of_another_build_narrows_the_change_down() {
    let report = stored();
    let race = "e527d911be898bfa";
    let mut other = FindingList { kernel: "6.12.1-other".into(), ..FindingList::of(&report) };
    let part = |other: &FindingList| {
        let text = beside(&report, race, Some(other));
        let (_, part) = text.split_once("In another build:\n").expect("the part");
        part.split("\n\n").next().unwrap_or_default().replace('\n', " ")
    };
    assert_eq!(
        part(&other),
        "A run of 6.12.1-other has the same finding, so no change between the two brought it."
    );
    other.findings.clear();
    other.completed = true;
    let between = part(&other);
    assert!(between.starts_with("A run of 6.12.1-other did not find it."), "{between}");
    assert!(between.contains("between 6.12.1-other and 6.1"), "{between}");
    assert!(between.contains("8139cp.c"), "{between}");
    let same = FindingList { kernel: report.kernel.clone(), ..other.clone() };
    let said = format!("between the other build on {} and this one", report.kernel);
    assert!(part(&same).contains(&said), "{}", part(&same));
    other.completed = false;
    assert!(part(&other).starts_with("A run of 6.12.1-other tells nothing"));
}

#[test]
fn lines_of_the_kernel_are_not_denied_where_they_are() {
    let mut report = stored();
    let lacks = "functions of the kernel have no lines";
    let said = |report: &Report| of(report, "f0a8").replace('\n', " ");
    assert!(said(&report).contains(lacks));
    let finding = report.findings.iter_mut().find(|finding| finding.id.starts_with("f0a8")).unwrap();
    let frame = finding.stack.iter_mut().find(|frame| frame.module.is_none()).unwrap();
    frame.location = Some(Location { file: "kernel/time/timer.c".into(), line: 1790 });
    assert!(said(&report).contains("kernel/time/timer.c:1790"));
    assert!(!said(&report).contains(lacks));
}

#[test]
fn control_characters_do_not_reach_a_mail() {
    let mut report = stored();
    report.kernel = "6.1\x1b[2J".into();
    report.run.command.push("a\x07b".into());
    report.findings[0].message = "bad\x1b[31m".into();
    report.findings[0].context.level = "x\x1by".into();
    let text = of(&report, "e527d911be898bfa");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}
