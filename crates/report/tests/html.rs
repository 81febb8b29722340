//! The page about a stored report. The report is made up in part, and its findings are of several runs.

use guardrail_report::{Report, html, json};

fn stored() -> Report {
    json::read(include_bytes!("mail/report.json")).unwrap()
}

fn page(report: &Report) -> String {
    let mut out = Vec::new();
    html::write(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_page() {
    insta::assert_snapshot!(page(&stored()));
}

#[test]
fn all_findings_can_be_reached_and_a_race_has_a_timeline() {
    let report = stored();
    let text = page(&report);
    for finding in &report.findings {
        assert!(text.contains(&format!("<a href=\"#{}\">", finding.id)), "{}", finding.id);
        assert!(text.contains(&format!("<details id=\"{}\"", finding.id)), "{}", finding.id);
    }
    let races = report.findings.iter().filter(|finding| finding.other.is_some()).count();
    assert_eq!(text.matches("<table class=\"timeline\">").count(), races);
    assert!(races > 1 && text.contains("The order that was forced."), "{races}");
}

#[test]
fn what_a_guest_says_is_only_text() {
    let bad = "</pre><script>alert(1)</script><a href='x' onclick=\"y\">&\x1b[31m";
    let mut report = stored();
    report.kernel = bad.into();
    report.driver = bad.into();
    report.run.detail = Some(bad.into());
    report.run.outcome = bad.into();
    report.run.notes.push(bad.into());
    for finding in &mut report.findings {
        finding.id = format!("{bad}{}", finding.id);
        for text in
            [&mut finding.kind, &mut finding.message, &mut finding.function, &mut finding.context.level]
        {
            *text = bad.into();
        }
        finding.stack.iter_mut().for_each(|frame| frame.function = bad.into());
    }
    let text = page(&report);
    assert!(!text.contains("<script") && !text.contains("onclick=\""), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
}

#[test]
fn a_page_without_findings_says_so() {
    let report = Report { findings: Vec::new(), ..stored() };
    assert!(page(&report).contains("<p>No findings.</p>"));
}
