//! What is known of one attempt, and the table of all.

use std::collections::BTreeMap;
use std::fmt;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Reported, and nothing was changed.
    Stopped,
    /// A fault of the processor or a loop, ended without harm.
    Ended,
    /// What it called did nothing, and said so.
    Refused,
    /// It returned, and nothing was reported or changed.
    Returned,
    /// Something of the kernel's was changed: what.
    Harm(String),
    /// The kernel warned.
    Warned,
    /// The guest's kernel oopsed or gave no sign of life.
    Oops,
    /// The attempt did not return in time.
    Stuck,
}

/// An attempt with its end.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The class, as the file of the module is named.
    pub class: String,
    /// The function that makes the attempt.
    pub name: String,
    /// How it ended.
    pub end: End,
    /// What the kernel's log says of it.
    pub log: String,
}

impl Verdict {
    /// Reads the guest's line about the end, and the lines of the log.
    pub fn read(class: &str, name: &str, line: &str, log: &[&str]) -> Verdict {
        let word = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default();
        let has = |words: &[&str]| log.iter().any(|line| words.iter().any(|word| line.contains(word)));
        let contained = has(&["guardrail: fault: ", "is ended"]);
        let warned = has(&["WARNING: ", "refcount_t: "])
            || has(&["BUG: ", "Oops", "general protection"]) && !contained;
        let end = match (word("harm=").trim_end_matches(','), word("status="), word("violations=")) {
            (harm, ..) if !harm.is_empty() => End::Harm(harm.to_owned()),
            (_, "stuck", _) => End::Stuck,
            _ if warned => End::Warned,
            (_, "0", "0") if has(&["the attempt was refused"]) => End::Refused,
            (_, "0", "0") if class != "limits" || !contained => End::Returned,
            (_, _, "0") if contained => End::Ended,
            (_, _, "0") => End::Returned,
            _ => End::Stopped,
        };
        Verdict { class: class.to_owned(), name: name.to_owned(), end, log: log.join(" | ") }
    }

    /// True where the attempt had no success. Races may find nothing to win.
    pub fn is_stopped(&self) -> bool {
        matches!(self.end, End::Stopped | End::Ended | End::Refused)
            || self.class == "races" && self.end == End::Returned
    }

    /// True where the kernel did not survive it, or says that something is wrong.
    pub fn is_oops(&self) -> bool {
        matches!(self.end, End::Oops | End::Stuck | End::Warned)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {:?} {}", self.class, self.name, self.end, self.log)
    }
}

/// A row for each class: attempts, those stopped, escapes, oopses.
pub fn table(kernel: &str, verdicts: &[Verdict]) -> String {
    let mut rows: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for verdict in verdicts {
        let (stopped, oops) = (verdict.is_stopped(), verdict.is_oops());
        for class in [verdict.class.as_str(), "all"] {
            let row = rows.entry(class).or_default();
            row[0] += 1;
            row[1] += usize::from(stopped);
            row[2] += usize::from(!stopped && !oops);
            row[3] += usize::from(oops);
        }
    }
    let rows = rows.iter().map(|(class, [all, stopped, escapes, oopses])| {
        format!("| {class} | {kernel} | {all} | {stopped} | {escapes} | {oopses} |")
    });
    rows.collect::<Vec<_>>().join("\n")
}
