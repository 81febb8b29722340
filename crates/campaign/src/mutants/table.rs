//! The tables of mutants and campaigns.

use super::Made;
use super::folder::{Line, Protection};
use super::verdict::{How, Judged, Verdict};
use serde::Serialize;

/// The verdicts on one kind of bug in one way to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The kind of bug, or `all`.
    pub name: String,
    /// Whether the mutants ran guarded.
    pub way: Protection,
    /// How many mutants ran.
    pub mutants: usize,
    /// How many harmed the rest of the system.
    pub escaped: usize,
    /// Of those that escaped: by a crash outside of the driver.
    pub crash: usize,
    /// Of those that escaped: by a hang of the guest.
    pub hang: usize,
    /// Of those that escaped: by corrupted data.
    pub data: usize,
    /// Of those that escaped: by damage that the kernel found, or the end of the virtual machine.
    pub other: usize,
    /// How many were stopped at a violation, before any harm.
    pub contained: usize,
    /// Of those that were contained: how many recovered and did the workload to its end.
    pub recovered: usize,
    /// How many failed without harm to the rest of the system.
    pub internal: usize,
    /// How many showed no effect.
    pub none: usize,
    /// How many mutants the kernel refused to load.
    pub refused: usize,
    /// How many runs failed for another reason and show nothing.
    pub failed: usize,
    /// The verdicts on guarded mutants that escape unguarded; `None` in rows of unguarded runs.
    pub of_escaped: Option<OfEscaped>,
}

/// The verdicts on guarded mutants that escape when they run unguarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OfEscaped {
    /// How many mutants escape unguarded.
    pub all: usize,
    /// How many of them were stopped at a violation, before any harm.
    pub contained: usize,
    /// Of those that were contained: how many recovered and did the workload to its end.
    pub recovered: usize,
    /// How many escaped although they were guarded.
    pub escaped: usize,
    /// How many failed without harm to the rest of the system.
    pub internal: usize,
    /// How many showed no effect.
    pub none: usize,
    /// How many could not be run.
    pub other: usize,
}

impl OfEscaped {
    fn add(&mut self, judged: &Judged) {
        self.all += 1;
        self.recovered += usize::from(judged.how == Some(How::Recovered));
        *match judged.verdict {
            Verdict::Contained => &mut self.contained,
            Verdict::Escaped => &mut self.escaped,
            Verdict::Internal => &mut self.internal,
            Verdict::None => &mut self.none,
            Verdict::Refused | Verdict::Failed => &mut self.other,
        } += 1;
    }

    fn sentence(&self) -> String {
        let OfEscaped { all, contained, recovered, escaped, internal, none, other } = *self;
        let held = 100.0 * (all - escaped - other) as f64 / all.max(1) as f64;
        format!(
            "Of {all} mutants that escape as they are, guarded {contained} were contained ({recovered} recovered), {escaped} escaped, {internal} \
             failed alone, {none} showed nothing, {other} could not be run: {held:.1} % did no harm.\n"
        )
    }
}

/// The rows of a campaign: each kind in each way, then all kinds together.
pub fn rows(all: &[Line]) -> Vec<Row> {
    let mut kinds: Vec<&str> = Vec::new();
    for line in all {
        if !kinds.contains(&line.kind.as_str()) {
            kinds.push(&line.kind);
        }
    }
    let of = |kind: Option<&str>, way: Protection| {
        let lines: Vec<&Line> =
            all.iter().filter(|line| line.way == way && kind.is_none_or(|kind| line.kind == kind)).collect();
        let count = |wanted: &dyn Fn(&Line) -> bool| lines.iter().filter(|line| wanted(line)).count();
        let verdict = |verdict| count(&|line| line.judged.verdict == verdict);
        let escaped = |hows: &[How]| {
            count(&|line| {
                line.judged.verdict == Verdict::Escaped
                    && line.judged.how.is_some_and(|how| hows.contains(&how))
            })
        };
        let of_escaped = (way == Protection::Guarded).then(|| {
            let mut of_escaped = OfEscaped::default();
            let escaped = all
                .iter()
                .filter(|line| line.way == Protection::Plain && line.judged.verdict == Verdict::Escaped);
            for plain in escaped {
                let same = lines.iter().find(|line| line.mutant == plain.mutant && line.kind == plain.kind);
                same.into_iter().for_each(|line| of_escaped.add(&line.judged));
            }
            of_escaped
        });
        Row {
            name: kind.unwrap_or("all").to_owned(),
            way,
            mutants: lines.len(),
            escaped: verdict(Verdict::Escaped),
            crash: escaped(&[How::Crash]),
            hang: escaped(&[How::Hang]),
            data: escaped(&[How::Data]),
            other: escaped(&[How::Damage, How::Machine]),
            contained: verdict(Verdict::Contained),
            recovered: count(&|line| line.judged.how == Some(How::Recovered)),
            internal: verdict(Verdict::Internal),
            none: verdict(Verdict::None),
            refused: verdict(Verdict::Refused),
            failed: verdict(Verdict::Failed),
            of_escaped,
        }
    };
    let ways = || Protection::ALL.into_iter().filter(|way| all.iter().any(|line| line.way == *way));
    let mut rows: Vec<Row> = kinds.iter().flat_map(|kind| ways().map(|way| of(Some(kind), way))).collect();
    if kinds.len() > 1 {
        rows.extend(ways().map(|way| of(None, way)));
    }
    rows
}

/// The heading of a column, and its number in a row.
type Column = (&'static str, fn(&Row) -> usize);

/// The table of a campaign.
pub fn text(rows: &[Row]) -> String {
    // Columns that apply to guarded mutants only are printed only where some ran.
    let guarded = rows.iter().any(|row| row.way == Protection::Guarded);
    let numbers: [Column; 12] = [
        ("mutants", |row| row.mutants),
        ("escaped", |row| row.escaped),
        ("crash", |row| row.crash),
        ("hang", |row| row.hang),
        ("data", |row| row.data),
        ("other", |row| row.other),
        ("contained", |row| row.contained),
        ("recovered", |row| row.recovered),
        ("internal", |row| row.internal),
        ("none", |row| row.none),
        ("refused", |row| row.refused),
        ("failed", |row| row.failed),
    ];
    let numbers: Vec<_> = numbers
        .into_iter()
        .filter(|(name, _)| guarded || !["contained", "recovered"].contains(name))
        .collect();
    let head = ["kind", "way"].into_iter().chain(numbers.iter().map(|(name, _)| *name));
    let mut lines = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    for row in rows {
        let mut line = vec![row.name.clone(), row.way.word().to_owned()];
        line.extend(numbers.iter().map(|(_, number)| number(row).to_string()));
        lines.push(line);
    }
    let last = rows.iter().filter_map(|row| row.of_escaped).next_back();
    guardrail_report::columns::table(&lines) + &last.map_or(String::new(), |last| last.sentence())
}

/// The table of the mutants that were made.
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
    guardrail_report::columns::table(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_mutate::{Description, Kind};

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
        let violations = Vec::new();
        Line { mutant, kind: kind.into(), digest, way: Protection::Plain, judged, violations, seconds: 1.0 }
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
        let named = |name: &str, way, verdict| Line {
            mutant: name.into(),
            way,
            ..line("flip-branch", verdict, None)
        };
        let both = [
            named("a", Protection::Plain, Verdict::Escaped),
            named("a", Protection::Guarded, Verdict::Contained),
            named("b", Protection::Plain, Verdict::Escaped),
            named("b", Protection::Guarded, Verdict::Escaped),
            named("c", Protection::Plain, Verdict::None),
            named("c", Protection::Guarded, Verdict::Contained),
        ];
        let text = super::text(&rows(&both));
        let expected = "\
kind         way      mutants  escaped  crash  hang  data  other  contained  recovered  internal  none  refused  failed
flip-branch  plain    3        2        0      0     0     0      0          0          0         1     0        0
flip-branch  guarded  3        1        0      0     0     0      2          0          0         0     0        0
Of 2 mutants that escape as they are, guarded 1 were contained (0 recovered), 1 escaped, 0 failed alone, 0 showed nothing, \
0 could not be run: 50.0 % did no harm.
";
        assert_eq!(text, expected);
        let made = [made(Kind::FlipBranch, 3), made(Kind::EarlyFree, 0)];
        assert!(of_mutants(&made).contains("early-free   7       0        -"));
    }
}
