//! Spin on what is exported: it finds as many states as a walk does, and that the rules of a decomposition mean the same as
//! their protocol.

use crate::table::Table;
use guardrail_tests::guardrail;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What Spin's verifier counts.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    errors: u64,
    states: u64,
    transitions: u64,
}

/// Runs a program in a folder, and returns what it prints.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).current_dir(folder).output();
    let done =
        done.unwrap_or_else(|error| panic!("{program} cannot be run ({error}); scripts/setup installs it"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program}: {said}");
    said
}

/// Searches all states of a model for violated assertions and for states in which no process can go on.
fn search(folder: &Path, model: &str) -> Counted {
    fs::write(folder.join("model.pml"), model).unwrap();
    run(folder, "spin", &["-a", "model.pml"]);
    run(folder, "gcc", &["-O0", "-w", "-DSAFETY", "-DNOCLAIM", "-DNOREDUCE", "-o", "pan", "pan.c"]);
    let said = run(folder, "./pan", &[]);
    assert!(!said.contains("search not completed") && !said.contains("max search depth"), "{said}");
    let number = |text: &str| text.split_whitespace().next().unwrap().parse().unwrap();
    let before = |what: &str| number(said.lines().find(|line| line.contains(what)).unwrap());
    Counted {
        errors: number(said.split_once("errors: ").unwrap().1),
        states: before("states, stored"),
        transitions: before("transitions (="),
    }
}

/// The verifier stores one state for each state of the protocol: the driver's process has one. Its first step, which jumps
/// to the start, counts as a transition.
#[test]
fn spin_reaches_the_states_of_every_stock_protocol_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    for name in super::names() {
        let table = Table::of(&name);
        let done = guardrail(&["protocol", "export", &name, "--as", "promela"]);
        let counted = search(folder.path(), &done.stdout);
        let expected = Counted {
            errors: 0,
            states: table.reached().len() as u64,
            transitions: table.moves.len() as u64 + 1,
        };
        assert_eq!(table.reached().len(), table.states.len(), "{name}");
        assert_eq!(counted, expected, "{name}");
    }
}

#[test]
fn spin_finds_a_state_in_which_the_protocol_stops() {
    let folder = tempfile::tempdir().unwrap();
    let chart = super::OWN.replace("answer(long result): busy -> idle", "answer(long result): idle -> idle");
    let (status, model, _) = super::with(&chart, &["export", "own", "--as", "promela"]);
    assert_eq!(status, 0);
    assert_eq!(search(folder.path(), &model).errors, 1);
}

#[test]
fn spin_finds_that_rules_and_protocol_mean_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let done = guardrail(&["protocol", "decompose", "--format", "json"]);
    let all: Value = serde_json::from_str(&done.stdout).unwrap();
    for protocol in all["protocols"].as_array().unwrap() {
        let name = protocol["name"].as_str().unwrap();
        let table = Table::of(name);
        let counted = search(folder.path(), &product(&table, &protocol["rules"]));
        assert_eq!((counted.errors, counted.states), (0, table.states.len() as u64), "{name}");
        assert_eq!(protocol["places_compared"].as_u64(), Some(counted.states), "{name}");
    }
}

/// Rules of one protocol in turn are made wrong, and Spin finds it.
#[test]
fn spin_finds_rules_that_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let done = guardrail(&["protocol", "decompose", "mixer", "--format", "json"]);
    let all: Value = serde_json::from_str(&done.stdout).unwrap();
    let (table, rules) = (Table::of("mixer"), &all["protocols"][0]["rules"]);
    let count = rules.as_array().unwrap().len();
    assert_eq!(count, 14);
    for at in (0..count).step_by(3) {
        let mut wrong = rules.clone();
        match at % 2 {
            0 => {
                let holds = &mut wrong[at]["states"][0]["holds"];
                *holds = Value::from(!holds.as_bool().unwrap());
            }
            _ => _ = wrong[at]["moves"].as_array_mut().unwrap().remove(0),
        }
        assert_eq!(search(folder.path(), &product(&table, &wrong)).errors, 1, "rule {at}");
    }
}

/// States as a condition on a variable.
fn among(variable: &str, states: impl IntoIterator<Item = u64>) -> String {
    let parts: Vec<String> = states.into_iter().map(|state| format!("{variable} == {state}")).collect();
    if parts.is_empty() { "false".to_owned() } else { format!("({})", parts.join(" || ")) }
}

/// The next value of a variable, which stays where no move leads on.
fn moved(variable: &str, moves: &[(u64, u64)]) -> String {
    let step = |rest: String, (from, to): &(u64, u64)| format!("({variable} == {from} -> {to} : {rest})");
    moves.iter().fold(variable.to_owned(), step)
}

/// A rule's states in which it holds.
fn holding(rule: &Value) -> impl Iterator<Item = u64> {
    let states = rule["states"].as_array().unwrap().iter().enumerate();
    states.filter(|(_, state)| state["holds"] == true).map(|(at, _)| at as u64)
}

/// A rule's moves by a message.
fn moves(rule: &Value, message: &str) -> Vec<(u64, u64)> {
    let all = rule["moves"].as_array().unwrap().iter().filter(|step| step["message"] == message);
    all.map(|step| (step["from"].as_u64().unwrap(), step["to"].as_u64().unwrap())).collect()
}

/// The protocol and all rules, side by side: any message that one side allows comes, and the assertions say that the other
/// one allows it, and that both are fair for the same messages.
fn product(table: &Table, rules: &Value) -> String {
    let rules = rules.as_array().unwrap();
    let mut out = format!("byte p = {};\n", table.start);
    for (at, rule) in rules.iter().enumerate() {
        let start = rule["states"].as_array().unwrap().iter().position(|state| state["initial"] == true);
        let _ = writeln!(out, "byte r{at} = {};", start.unwrap());
    }
    let subject = |rule: &Value| -> BTreeSet<String> {
        let messages = rule["messages"].as_array().unwrap().iter();
        messages.map(|message| message.as_str().unwrap().to_owned()).collect()
    };
    out.push_str("active proctype product()\n{\nend:\n\tdo\n");
    for message in table.messages() {
        let here: Vec<(u64, u64)> = (table.moves.iter().filter(|(_, by, _)| by == message))
            .map(|(from, _, to)| (*from as u64, *to as u64))
            .collect();
        let allowed = among("p", here.iter().map(|(from, _)| *from));
        let mut about = rules.iter().enumerate().filter(|(_, rule)| {
            rule["about"] == "message" && subject(rule).iter().any(|known| known == message)
        });
        // A message that every state allows has no rule.
        let by_rule =
            about.next().map_or("true".to_owned(), |(at, rule)| among(&format!("r{at}"), holding(rule)));
        assert!(about.next().is_none(), "{message} has two rules");
        let _ = writeln!(out, "\t:: atomic {{ ({allowed} || {by_rule}) -> assert({allowed} && {by_rule});");
        let _ = writeln!(out, "\t\tp = {};", moved("p", &here));
        for (at, rule) in rules.iter().enumerate() {
            let name = format!("r{at}");
            let _ = writeln!(out, "\t\t{name} = {};", moved(&name, &moves(rule, message)));
        }
        out.push_str("\t}\n");
    }
    out.push_str("\tod\n}\n\n");
    // A second process looks at each state.
    out.push_str("active proctype fairness()\n{\nend:\n\tdo\n");
    let set =
        |state: usize| -> BTreeSet<String> { table.incoming(state).into_iter().map(str::to_owned).collect() };
    let mut covered: BTreeSet<usize> = BTreeSet::new();
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| rule["about"] == "fair") {
        let states: Vec<usize> =
            table.fair.iter().copied().filter(|&state| set(state) == subject(rule)).collect();
        covered.extend(&states);
        let expected = among("p", states.iter().map(|&state| state as u64));
        let found = among(&format!("r{at}"), holding(rule));
        let _ = writeln!(out, "\t:: atomic {{ ({expected} != {found}) -> assert(false) }}");
    }
    out.push_str("\t:: false\n\tod\n}\n");
    let needed: BTreeSet<usize> =
        table.fair.iter().copied().filter(|&state| !set(state).is_empty()).collect();
    assert_eq!(covered, needed);
    out
}
