//! Races of stock drivers that were judged by hand, `tests/corpus/races.toml`, and the races of reports to compare with
//! them.

use guardrail_vm::kernels;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The file, from the root of the repository.
pub const FILE: &str = "tests/corpus/races.toml";
const TEXT: &str = include_str!("../races.toml");

/// The judgment of a race by hand.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// A fault follows.
    Harmful,
    /// The accesses race, and nothing follows.
    Benign,
    /// The accesses cannot happen at the same time.
    False,
}

/// Races with one cause.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Names of drivers.
    pub driver: Vec<String>,
    /// Names of kernels; all where it is empty.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// Functions of one side. `*` stands for any text, as in the next two members.
    pub one: Vec<String>,
    /// Functions of the other side.
    pub other: Vec<String>,
    /// What they race for, in the words of a finding.
    pub field: Vec<String>,
    /// The judgment.
    pub label: Label,
    /// One sentence that gives the reason.
    pub why: String,
}

/// A race of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// The driver's functions of both sides.
    pub functions: [String; 2],
    /// What they race for.
    pub field: String,
    /// The verdict of triage.
    pub triage: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    race: Vec<Row>,
}

/// All rows of the file.
pub fn rows() -> Result<Vec<Row>, String> {
    read(TEXT, &kernels::NAMES)
}

/// Reads rows, and checks each of them.
fn read(text: &str, kernels: &[&str]) -> Result<Vec<Row>, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        format!("{FILE}, line {line}: {}", error.message())
    })?;
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (number, row) in (1..).zip(&file.race) {
        let name = row.name(number);
        for (list, what) in [
            (&row.driver, "driver"),
            (&row.one, "function of one side"),
            (&row.other, "function of the other side"),
            (&row.field, "field"),
        ] {
            if list.is_empty() || list.iter().any(String::is_empty) {
                return Err(format!("{name} names no {what}; add one, or * for any"));
            }
        }
        if let Some(kernel) = row.kernels.iter().find(|kernel| !kernels.contains(&kernel.as_str())) {
            return Err(format!("{name} is about kernel {kernel}; there are {}", kernels.join(", ")));
        }
        if !row.why.ends_with('.') || row.why.trim_end_matches('.').contains(". ") {
            return Err(format!("{name} needs one sentence in `why`"));
        }
        let key = format!("{:?}", (&row.driver, &row.kernels, &row.one, &row.other, &row.field));
        if let Some(first) = known.insert(key, number) {
            return Err(format!("{name} repeats row {first}; remove one of the two"));
        }
    }
    Ok(file.race)
}

impl Row {
    /// The row in messages.
    pub fn name(&self, number: usize) -> String {
        let first = |list: &[String]| list.first().cloned().unwrap_or_default();
        format!(
            "{FILE}, row {number} ({}: {} against {})",
            first(&self.driver),
            first(&self.one),
            first(&self.other)
        )
    }

    /// Whether the row is about a driver on a kernel.
    pub fn is_about(&self, driver: &str, kernel: &str) -> bool {
        self.driver.iter().any(|name| name == driver)
            && (self.kernels.is_empty() || self.kernels.iter().any(|name| name == kernel))
    }

    /// Whether the row names a race of such a driver.
    pub fn names(&self, race: &Race) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|pattern| matches(pattern, text));
        let [a, b] = &race.functions;
        (has(&self.one, a) && has(&self.other, b) || has(&self.one, b) && has(&self.other, a))
            && has(&self.field, &race.field)
    }
}

/// The short name of the kernel of a release, such as `6.1`; the release where it has none.
pub fn kernel(release: &str) -> &str {
    kernels::version(release).unwrap_or(release)
}

/// The race that a finding of a report in JSON is about; `None` for other findings.
pub fn race(finding: &Value) -> Option<Race> {
    if finding["kind"] != "data-race" {
        return None;
    }
    let field = finding["message"].as_str()?.strip_prefix("data race on ")?.split(": ").next()?;
    let function = |stack: &Value| {
        let frame = stack.as_array()?.iter().find(|frame| frame["module"].is_string())?;
        // Parts that the compiler split off count as the function.
        Some(frame["function"].as_str()?.split('.').next()?.to_owned())
    };
    Some(Race {
        functions: [function(&finding["stack"])?, function(&finding["other"]["stack"])?],
        field: field.to_owned(),
        triage: finding["triage"].as_str()?.to_owned(),
    })
}

/// Whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| matches(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "[[race]]\ndriver = [\"d\"]\none = [\"a*\"]\nother = [\"b\"]\nfield = [\"s.*\"]\nlabel = \"harmful\"\nwhy = \"It breaks.\"\n";

    #[test]
    fn the_corpus_is_well_formed() {
        let rows = rows().unwrap();
        for label in [Label::Harmful, Label::Benign, Label::False] {
            assert!(rows.iter().any(|row| row.label == label), "{label:?}");
        }
    }

    #[test]
    fn rows_name_races_in_either_order() {
        let row = &read(ROW, &["6.1"]).unwrap()[0];
        let race = |a: &str, b: &str, field: &str| Race {
            functions: [a.to_owned(), b.to_owned()],
            field: field.to_owned(),
            triage: String::new(),
        };
        assert!(row.names(&race("ab", "b", "s.x")) && row.names(&race("b", "a", "s.")));
        assert!(!row.names(&race("ab", "ab", "s.x")) && !row.names(&race("ab", "b", "t.x")));
        assert!(row.is_about("d", "7.2") && !row.is_about("e", "7.2"));
        assert!(matches("a*b*c", "aXbYbc") && !matches("a*b*c", "aXbY") && !matches("", "a"));
    }

    #[test]
    fn faults_of_rows_are_named() {
        for (from, to, fault) in [
            ("\"a*\"", "", "names no function of one side"),
            ("[\"d\"]", "[\"d\"]\nkernels = [\"5.0\"]", "is about kernel 5.0; there are 6.1"),
            ("breaks.", "breaks. So.", "needs one sentence"),
            ("harmful", "bad", "line 6"),
        ] {
            let error = read(&ROW.replace(from, to), &["6.1"]).unwrap_err();
            assert!(error.starts_with(FILE) && error.contains(fault), "{error}");
        }
        let twice = read(&ROW.repeat(2), &["6.1"]).unwrap_err();
        assert!(twice.contains("row 2 (d: a* against b) repeats row 1"), "{twice}");
    }
}
