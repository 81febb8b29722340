//! What is printed of mutants and campaigns.

use super::Made;
use super::folder::{Line, Way};
use super::verdict::{How, Verdict};
use crate::errors::CliError;
use crate::output;
use serde::Serialize;

/// One kind of bug in one way to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The kind, or `all`.
    pub name: String,
    /// How the mutants ran.
    pub way: Way,
    /// How many ran.
    pub mutants: usize,
    /// How many harmed the rest of the system.
    pub escaped: usize,
    /// Of those: by a crash outside of the driver.
    pub crash: usize,
    /// By a hang of the guest.
    pub hang: usize,
    /// By corrupted data.
    pub data: usize,
    /// By damage that the kernel found, or the end of the virtual machine.
    pub other: usize,
    /// How many failed alone.
    pub internal: usize,
    /// How many showed nothing.
    pub none: usize,
    /// How many the kernel did not load.
    pub refused: usize,
    /// How many runs say nothing.
    pub failed: usize,
}

/// The rows of a campaign: each kind in each way, then all kinds together.
pub fn rows(lines: &[Line]) -> Vec<Row> {
    let mut kinds: Vec<&str> = Vec::new();
    for line in lines {
        if !kinds.contains(&line.kind.as_str()) {
            kinds.push(&line.kind);
        }
    }
    let of = |kind: Option<&str>, way: Way| {
        let lines: Vec<&Line> = lines
            .iter()
            .filter(|line| line.way == way && kind.is_none_or(|kind| line.kind == kind))
            .collect();
        let count = |wanted: &dyn Fn(&Line) -> bool| lines.iter().filter(|line| wanted(line)).count();
        let verdict = |verdict| count(&|line| line.judged.verdict == verdict);
        let escaped = |hows: &[How]| {
            count(&|line| {
                line.judged.verdict == Verdict::Escaped
                    && line.judged.how.is_some_and(|how| hows.contains(&how))
            })
        };
        Row {
            name: kind.unwrap_or("all").to_owned(),
            way,
            mutants: lines.len(),
            escaped: verdict(Verdict::Escaped),
            crash: escaped(&[How::Crash]),
            hang: escaped(&[How::Hang]),
            data: escaped(&[How::Data]),
            other: escaped(&[How::Damage, How::Machine]),
            internal: verdict(Verdict::Internal),
            none: verdict(Verdict::None),
            refused: verdict(Verdict::Refused),
            failed: verdict(Verdict::Failed),
        }
    };
    let mut rows: Vec<Row> = kinds.iter().flat_map(|kind| Way::ALL.map(|way| of(Some(kind), way))).collect();
    if kinds.len() > 1 {
        rows.extend(Way::ALL.map(|way| of(None, way)));
    }
    rows
}

/// The table of a campaign.
pub fn text(rows: &[Row]) -> String {
    let head = [
        "kind", "way", "mutants", "escaped", "crash", "hang", "data", "other", "internal", "none", "refused",
        "failed",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let numbers = [
            row.mutants,
            row.escaped,
            row.crash,
            row.hang,
            row.data,
            row.other,
            row.internal,
            row.none,
            row.refused,
            row.failed,
        ];
        let mut line = vec![row.name.clone(), row.way.word().to_owned()];
        line.extend(numbers.map(|number| number.to_string()));
        lines.push(line);
    }
    output::table(&lines)
}

/// What was made.
pub fn of_mutants(made: &[Made]) -> String {
    let mut lines = vec![["kind", "places", "mutants", "bugs each"].map(str::to_owned).to_vec()];
    for made in made {
        let bugs = made.mutants.iter().map(|mutant| mutant.bugs.len());
        let bugs = match (bugs.clone().min(), bugs.max()) {
            (Some(least), Some(most)) if least == most => most.to_string(),
            (Some(least), Some(most)) => format!("{least} to {most}"),
            _ => "-".to_owned(),
        };
        lines.push(vec![
            made.kind.name().to_owned(),
            made.places.to_string(),
            made.mutants.len().to_string(),
            bugs,
        ]);
    }
    output::table(&lines)
}

/// Anything, for programs.
pub fn json(value: &impl Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::Run(error.to_string()))?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Judged;
    use super::*;
    use guardrail_inject::{Description, Kind};

    fn made(kind: Kind, count: u64) -> Made {
        let mutant = |number| Description {
            schema: String::new(),
            driver: "x".into(),
            kernel: "6.1".into(),
            kind,
            seed: 1,
            number,
            stock: String::new(),
            sha256: String::new(),
            bugs: Vec::new(),
        };
        Made { kind, places: 7, mutants: (0..count).map(mutant).collect() }
    }

    fn line(kind: &str, verdict: Verdict, how: Option<How>) -> Line {
        let judged = Judged { verdict, how, why: String::new(), at: None, step: String::new() };
        let (mutant, digest) = (String::new(), String::new());
        Line { mutant, kind: kind.into(), digest, way: Way::Plain, judged, seconds: 1.0 }
    }

    #[test]
    fn rows_add_up() {
        let lines = [
            line("flip-branch", Verdict::Escaped, Some(How::Crash)),
            line("flip-branch", Verdict::Escaped, Some(How::Data)),
            line("flip-branch", Verdict::Internal, Some(How::Crash)),
            line("off-by-one", Verdict::None, None),
        ];
        let text = text(&rows(&lines));
        let expected = "\
kind         way    mutants  escaped  crash  hang  data  other  internal  none  refused  failed
flip-branch  plain  3        2        1      0     1     0      1         0     0        0
off-by-one   plain  1        0        0      0     0     0      0         1     0        0
all          plain  4        2        1      0     1     0      1         1     0        0
";
        assert_eq!(text, expected);
        let made = [made(Kind::FlipBranch, 3), made(Kind::EarlyFree, 0)];
        assert!(of_mutants(&made).contains("early-free   7       0        -"));
    }
}
