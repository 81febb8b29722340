//! Suppressions: findings that are accepted, each with a reason, in a file of TOML that people write.
//!
//! A row accepts the findings of one fingerprint, or those that fit all patterns that it has. A row with a
//! date holds until the end of that day (UTC).

mod date;

pub use date::Date;

use crate::baseline::is_fingerprint;
use crate::list::ran;
use crate::marks::{Idle, Suppressions};
use crate::model::Report;
use guardrail_finding::kinds::KINDS;
use guardrail_finding::{Finding, Suppressed};
use guardrail_trace::client::fits;
use serde::Deserialize;
use toml::Spanned;

/// Name and version of the format.
pub const SCHEMA: &str = "guardrail-suppress/1";
/// The largest file, in bytes.
pub const MAX_FILE: u64 = 1 << 20;
/// The most rows of one file.
const MAX_ROWS: usize = 10_000;
/// The longest pattern, in bytes. What matching costs grows with it.
const MAX_PATTERN: usize = 256;
/// The longest name that is compared with a pattern, in bytes.
const MAX_NAME: usize = 1024;

/// The file without its rows.
#[derive(Deserialize)]
struct Head {
    schema: Option<Spanned<String>>,
}

/// The file as it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "schema")]
    _schema: Option<String>,
    #[serde(default)]
    suppress: Vec<Spanned<Row>>,
}

/// A row of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    fingerprint: Option<String>,
    kind: Option<String>,
    function: Option<String>,
    object: Option<String>,
    field: Option<String>,
    module: Option<String>,
    checker: Option<String>,
    reason: Option<String>,
    expires: Option<toml::value::Datetime>,
}

/// One suppression.
#[derive(Debug)]
struct Rule {
    file: String,
    line: u32,
    row: Row,
    reason: String,
    expires: Option<Date>,
}

/// The suppressions of all files, in their order.
#[derive(Debug, Default)]
pub struct Rules {
    files: Vec<String>,
    rules: Vec<Rule>,
}

impl Rules {
    /// Adds the suppressions of a file. An error is the rest of a sentence that begins with the file's name.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), String> {
        let line =
            |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1;
        let wrong = |error: toml::de::Error| {
            let line = line(error.span().map_or(0, |span| span.start));
            let why = error.message().lines().next().unwrap_or("it cannot be read");
            format!("line {line}: {why}; rows '[[suppress]]' of TOML were expected")
        };
        let head: Head = toml::from_str(text).map_err(wrong)?;
        if let Some(schema) = head.schema.filter(|schema| schema.get_ref() != SCHEMA) {
            let (line, schema) = (line(schema.span().start), schema.into_inner());
            return Err(format!(
                "line {line}: it has the schema {schema:?}, but this version reads {SCHEMA:?}"
            ));
        }
        let read: File = toml::from_str(text).map_err(wrong)?;
        if read.suppress.len() > MAX_ROWS {
            return Err(format!("it has {} rows; at most {MAX_ROWS} are read", read.suppress.len()));
        }
        for row in read.suppress {
            let line = line(row.span().start);
            let rule = rule(file, line, row.into_inner()).map_err(|why| format!("line {line}: {why}"))?;
            self.rules.push(rule);
        }
        self.files.push(file.to_owned());
        Ok(())
    }

    /// Marks the findings of a report that are suppressed, and keeps in the report what the rows did.
    pub fn apply(&self, report: &mut Report, today: Date) {
        if self.files.is_empty() {
            return;
        }
        let mut used = vec![false; self.rules.len()];
        for finding in &mut report.findings {
            // A row that is not the first to accept a finding is used as well.
            for (rule, used) in self.rules.iter().zip(&mut used) {
                if !rule.expired(today) && rule.row.accepts(finding) {
                    *used = true;
                    finding.suppressed.get_or_insert_with(|| rule.suppressed());
                }
            }
        }
        let suppressed = report.findings.iter().filter(|finding| finding.suppressed.is_some()).count();
        let completed = report.run.outcome == "completed";
        let idle = |wanted: &dyn Fn(usize, &Rule) -> bool| -> Vec<Idle> {
            let all = self.rules.iter().enumerate().filter(|(at, rule)| wanted(*at, rule));
            all.map(|(_, rule)| rule.idle()).collect()
        };
        report.suppressions = Some(Suppressions {
            files: self.files.clone(),
            suppressed: suppressed as u64,
            unused: idle(&|at, rule| {
                completed && !used[at] && !rule.expired(today) && rule.row.concerns(report)
            }),
            expired: idle(&|_, rule| rule.expired(today)),
        });
    }
}

/// Checks a row. An error says what was expected.
fn rule(file: &str, line: usize, row: Row) -> Result<Rule, String> {
    let reason = row.reason.clone().unwrap_or_default().trim().to_owned();
    if reason.is_empty() {
        return Err("the row has no reason; add reason = \"why it is accepted\"".to_owned());
    }
    let patterns = [&row.kind, &row.function, &row.object, &row.field, &row.module, &row.checker];
    if patterns.into_iter().flatten().any(|pattern| pattern.is_empty() || pattern.len() > MAX_PATTERN) {
        return Err(format!("a pattern has no character, or more than {MAX_PATTERN}"));
    }
    let what = [&row.kind, &row.function, &row.object, &row.field];
    match &row.fingerprint {
        Some(_) if what.into_iter().any(Option::is_some) => {
            return Err("the row has a fingerprint and a pattern; one of both was expected".to_owned());
        }
        Some(text) if !is_fingerprint(text) => {
            return Err(format!("{text:?} is no fingerprint, which has hexadecimal digits only"));
        }
        None if what.into_iter().all(Option::is_none) => {
            return Err(
                "the row accepts everything; a fingerprint, kind, function, object or field was expected"
                    .to_owned(),
            );
        }
        _ => {}
    }
    if let Some(kind) = row.kind.as_ref().filter(|kind| !KINDS.iter().any(|known| fits(kind, known.name))) {
        return Err(format!("no kind of finding fits {kind:?}"));
    }
    let expires = match &row.expires {
        None => None,
        Some(given) => Some(
            given
                .date
                .filter(|_| given.time.is_none())
                .and_then(|date| Date::new(date.year, date.month, date.day))
                .ok_or_else(|| format!("{given} is no day; a date such as 2030-12-31 was expected"))?,
        ),
    };
    Ok(Rule { file: file.to_owned(), line: line.try_into().unwrap_or(u32::MAX), row, reason, expires })
}

impl Rule {
    fn expired(&self, today: Date) -> bool {
        self.expires.is_some_and(|last| last < today)
    }

    fn suppressed(&self) -> Suppressed {
        Suppressed { file: self.file.clone(), line: self.line, reason: self.reason.clone() }
    }

    fn idle(&self) -> Idle {
        Idle {
            file: self.file.clone(),
            line: self.line,
            what: self.row.what(),
            reason: self.reason.clone(),
            expires: self.expires.map(|date| date.to_string()),
        }
    }
}

impl Row {
    /// The patterns as the file has them.
    fn what(&self) -> String {
        let parts = [
            ("fingerprint", &self.fingerprint),
            ("kind", &self.kind),
            ("function", &self.function),
            ("object", &self.object),
            ("field", &self.field),
            ("module", &self.module),
            ("checker", &self.checker),
        ];
        let given = parts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        given.collect::<Vec<_>>().join(", ")
    }

    /// Whether the row accepts a finding. A race has two functions, and the row may name either.
    fn accepts(&self, finding: &Finding) -> bool {
        let fits_any = |pattern: &Option<String>, names: &[&str]| {
            pattern.as_ref().is_none_or(|pattern| names.iter().any(|name| fits(pattern, short(name))))
        };
        let other = finding.other.as_ref().and_then(|other| other.stack.first());
        let functions = [finding.function.as_str(), other.map_or("", |frame| &frame.function)];
        let functions = &functions[..if other.is_some() { 2 } else { 1 }];
        let object = finding.object.as_ref();
        let name: Vec<&str> =
            object.map(|object| object.name.as_ref().unwrap_or(&object.class).as_str()).into_iter().collect();
        let field: Vec<&str> = object.and_then(|object| object.field.as_deref()).into_iter().collect();
        self.fingerprint.as_ref().is_none_or(|id| *id == finding.id)
            && fits_any(&self.kind, &[&finding.kind])
            && fits_any(&self.function, functions)
            && fits_any(&self.object, &name)
            && fits_any(&self.field, &field)
            && fits_any(&self.module, &[&finding.module])
            && fits_any(&self.checker, &[&finding.checker])
    }

    /// Whether the run had a driver and a checker that the row names.
    fn concerns(&self, report: &Report) -> bool {
        let mut modules = report.driver.split(',').map(str::trim);
        self.module.as_ref().is_none_or(|pattern| modules.any(|name| fits(pattern, short(name))))
            && self
                .checker
                .as_ref()
                .is_none_or(|pattern| pattern.contains(['*', '?']) || ran(&report.tools, pattern))
    }
}

/// The beginning of a name, where it is longer than names are.
fn short(name: &str) -> &str {
    let end = (0..=MAX_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests;
