//! What is known of one call, and the table of all.

use crate::functions::{Call, Function};
use std::collections::BTreeMap;
use std::fmt;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The runtime reported it.
    Reported,
    /// It returned, or ended its own thread as it has to, and did no harm.
    Returned,
    /// Something of others was changed: what.
    Changed(String),
    /// The kernel warned.
    Warned,
    /// The kernel oopsed.
    Oops,
    /// It did not return in time: the state of its thread.
    Stuck(String),
    /// The guest gave no sign of life.
    Dead,
}

/// A call with its end.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The kernel.
    pub kernel: String,
    /// The function.
    pub function: String,
    /// The argument that is wrong, counted from 1; 0 where none is.
    pub argument: usize,
    /// How it is wrong.
    pub wrongness: &'static str,
    /// How the call ended.
    pub end: End,
    /// False where a call before may be the cause.
    pub certain: bool,
    /// What the kernel's log says of it.
    pub log: String,
}

impl Verdict {
    /// Whether others than the module suffer.
    pub fn is_harmful(&self) -> bool {
        !matches!(self.end, End::Reported | End::Returned)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doubt = if self.certain || !self.is_harmful() { "" } else { " (perhaps by a call before)" };
        write!(
            f,
            "{} {} {}: {:?}{doubt} {}",
            self.function, self.argument, self.wrongness, self.end, self.log
        )
    }
}

const DEATH: [&str; 4] = ["] BUG: ", "Oops", "general protection", "Kernel panic"];
/// It is logged before the runtime can end the call.
const CHECK: &str = "kernel BUG at";
const WARNINGS: [&str; 2] = ["WARNING: ", "refcount_t: "];
const TOLD: [&str; 4] = ["RIP: 0010:", "guardrail: violation: ", "guardrail: fault: ", "is ended"];

/// The verdicts of a guest, in the order of the calls.
pub fn read(console: &str, kernel: &str, functions: &[Function], calls: &[Call]) -> Vec<Verdict> {
    let mut found: Vec<(usize, Vec<&str>)> = Vec::new();
    for line in console.lines() {
        if let Some((_, code)) = line.split_once("wrong: begin ") {
            found.extend(code.trim().parse().ok().map(|code| (code, Vec::new())));
        } else if let Some((_, lines)) = found.last_mut() {
            lines.push(line);
        }
    }
    let judge = |(call, (code, lines)): (&Call, &(usize, Vec<&str>))| {
        (call.code() == *code).then(|| judge(kernel, &functions[call.function], call, lines))
    };
    calls.iter().zip(&found).map_while(judge).collect()
}

/// Judges a call by the lines of the console until the next one.
fn judge(kernel: &str, function: &Function, call: &Call, lines: &[&str]) -> Verdict {
    let after = |word: &str| lines.iter().find_map(|line| Some(line.split_once(word)?.1.trim_end()));
    let has = |words: &[&str]| lines.iter().any(|line| words.iter().any(|word| line.contains(word)));
    let counted = after("wrong: end ").or(after("wrong: after ")).unwrap_or_default();
    let value = |key: &str| counted.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default();
    let contained = has(&["guardrail: fault: ", "is ended"]);
    let harm = value("harm=").trim_end_matches(',');
    let end = if has(&DEATH) || (has(&[CHECK]) && !contained) {
        End::Oops
    } else if !harm.is_empty() {
        End::Changed(harm.to_owned())
    } else if let Some(stuck) = after("wrong: stuck ") {
        End::Stuck(stuck.split_once(' ').map_or("", |(_, state)| state).to_owned())
    } else if has(&WARNINGS) {
        End::Warned
    } else if counted.is_empty() {
        End::Dead
    } else if value("violations=") != "0" || contained {
        End::Reported
    } else {
        End::Returned
    };
    let told = |line: &&&str| {
        [&DEATH[..], &[CHECK], &WARNINGS, &TOLD].concat().iter().any(|word| line.contains(word))
    };
    let log: Vec<&str> = lines
        .iter()
        .filter(told)
        .take(4)
        .map(|line| line.split_once("] ").map_or(*line, |(_, rest)| rest).trim())
        .collect();
    let caller = format!("call_{}", function.name);
    Verdict {
        kernel: kernel.to_owned(),
        function: function.name.clone(),
        argument: (call.argument + 1) % (function.words.len() + 1),
        wrongness: call.wrongness.word(),
        end,
        certain: lines.iter().any(|line| line.contains(&caller)),
        log: log.join(" | "),
    }
}

/// A row for each wrongness: calls, those reported, those that returned, those that changed something, oopses, warnings, and those
/// that did not return.
pub fn table(kernel: &str, verdicts: &[Verdict]) -> String {
    let mut rows: BTreeMap<&str, [usize; 7]> = BTreeMap::new();
    for verdict in verdicts {
        let column = match verdict.end {
            End::Reported => 1,
            End::Returned => 2,
            End::Changed(_) => 3,
            End::Oops | End::Dead => 4,
            End::Warned => 5,
            End::Stuck(_) => 6,
        };
        for name in [verdict.wrongness, "all"] {
            let row = rows.entry(name).or_default();
            row[0] += 1;
            row[column] += 1;
        }
    }
    let rows = rows
        .iter()
        .map(|(name, row)| format!("| {name} | {kernel} | {} |", row.map(|n| n.to_string()).join(" | ")));
    rows.collect::<Vec<_>>().join("\n")
}
