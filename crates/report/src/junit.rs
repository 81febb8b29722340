//! The report as JUnit XML, for CI servers: the elements and attributes that Jenkins, GitLab and GitHub's actions read.

use crate::cases::{self, Case, End};
use crate::fail_on::FailOn;
use crate::model::Report;
use crate::text::clean;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};
use std::io::{self, Write};

/// Writes the report as one suite. A finding that counts is a failure, and a run that did not complete is an error.
pub fn write(report: &Report, fail_on: &FailOn, out: &mut dyn Write) -> io::Result<()> {
    let cases = cases::of(report, fail_on);
    let count = |wanted: fn(&End) -> bool| cases.iter().filter(|case| wanted(&case.end)).count().to_string();
    let [tests, failures, errors, skipped] = [
        count(|_| true),
        count(|end| matches!(end, End::Failed { .. })),
        count(|end| matches!(end, End::Broken { .. })),
        count(|end| matches!(end, End::Skipped(_))),
    ];
    let seconds = format!("{:.3}", report.run.wall_seconds);
    let counts =
        [("tests", tests.as_str()), ("failures", &failures), ("errors", &errors), ("time", &seconds)];
    let driver = clean(&report.driver);
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let suites = xml.create_element("testsuites").with_attribute(("name", "guardrail"));
    let suite = |xml: &mut Writer<Vec<u8>>| {
        xml.create_element("properties").write_inner_content(|xml| properties(report, xml))?;
        for case in &cases {
            write_case(case, report, xml)?;
        }
        Ok(())
    };
    suites.with_attributes(counts).write_inner_content(|xml| {
        let element = xml.create_element("testsuite").with_attribute(("name", driver.as_str()));
        element
            .with_attributes(counts)
            .with_attribute(("skipped", skipped.as_str()))
            .write_inner_content(suite)?;
        Ok(())
    })?;
    out.write_all(&xml.into_inner())?;
    out.write_all(b"\n")
}

fn properties(report: &Report, xml: &mut Writer<Vec<u8>>) -> io::Result<()> {
    let workload = report.run.workload.clone().unwrap_or_default();
    let command = report.run.command.join(" ");
    let all = [
        ("kernel", &report.kernel),
        ("tools", &report.tools.join(",")),
        ("mode", &report.mode),
        ("workload", &workload),
        ("command", &command),
    ];
    for (name, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
        let value = clean(value);
        xml.create_element("property")
            .with_attributes([("name", name), ("value", value.as_str())])
            .write_empty()?;
    }
    Ok(())
}

fn write_case(case: &Case, report: &Report, xml: &mut Writer<Vec<u8>>) -> io::Result<()> {
    let seconds = format!("{:.3}", if case.name == "run" { report.run.wall_seconds } else { 0.0 });
    let attributes = [("classname", case.class.as_str()), ("name", &case.name), ("time", &seconds)];
    let element = xml.create_element("testcase").with_attributes(attributes);
    let ended = |xml: &mut Writer<Vec<u8>>, word: &str, message: &str, kind: &str, text: &str| {
        let attributes = [("message", message), ("type", kind)];
        xml.create_element(word)
            .with_attributes(attributes)
            .write_text_content(BytesText::new(text))
            .map(|_| ())
    };
    match &case.end {
        End::Passed => element.write_empty()?,
        End::Skipped(why) => element.write_inner_content(|xml| {
            xml.create_element("skipped").with_attribute(("message", why.as_str())).write_empty().map(|_| ())
        })?,
        End::Failed { kind, message, text } => {
            element.write_inner_content(|xml| ended(xml, "failure", message, kind, text))?
        }
        End::Broken { outcome, detail } => element
            .write_inner_content(|xml| ended(xml, "error", "the run did not complete", outcome, detail))?,
    };
    Ok(())
}
