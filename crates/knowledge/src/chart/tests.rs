use super::parse::{self, ChartError, Draft};

use super::{Hand, Set};
use crate::effect::When;
use std::collections::BTreeSet;

const TIMER: &str = "chart timer deferred
  key timer
  state idle initial
  state pending busy \"the timer is pending\"
  state off
    state stopped
    state dead initial
  call mod_timer(timer, expires), add_timer(t; timer=t.wrap.timer): idle|pending -> pending wakes fn
  call timer_delete_sync(timer) if nonzero: any -> off waits fn nowait # why not
  callback fn(x, timer) from call_timer_fn|expire_timers:
    in any serial enters idle leaves pending if nonzero wakes late
  callback late(x): in off.stopped turns x.some.part
";

fn one(text: &str) -> Result<Draft, ChartError> {
    Ok(parse::file("test", text)?.remove(0))
}

#[test]
fn protocols_of_messages_are_skipped() {
    let protocol = "protocol p\n  state a initial\n  in x(void *y, long z) sleeps: a -> same is begin z\n";
    let text = format!("{protocol}{TIMER}{protocol}{TIMER}");
    let names: Vec<String> =
        parse::file("test", &text).unwrap().into_iter().map(|draft| draft.chart.name).collect();
    assert_eq!(names, ["timer", "timer"]);
    // Before the first block nothing else may stand.
    assert!(parse::file("test", &format!("key x\n{text}")).is_err());
}

#[test]
fn a_chart_is_read() {
    let Draft { chart, rules, turns, elsewhere } = one(TIMER).unwrap();
    assert!(chart.deferred && !elsewhere && chart.name == "timer" && chart.keys == ["timer"]);
    let parents: Vec<Option<usize>> = chart.states.iter().map(|state| state.parent).collect();
    assert_eq!(parents, [None, None, None, Some(2), Some(2)]);
    assert_eq!(chart.states[1].busy.as_deref(), Some("the timer is pending"));
    assert_eq!((chart.initial, chart.path(4).as_str()), (0, "off.dead"));
    assert_eq!(rules.len(), 3);
    assert_eq!((rules[0].from, rules[0].to, rules[0].wakes), (0b11, Some(1), 1));
    assert_eq!(rules[0].keys, [Some("timer".to_owned())]);
    assert_eq!(rules[1].keys, [Some("t.wrap.timer".to_owned())]);
    // A move to a state with parts leads to its initial one.
    assert_eq!((rules[2].from, rules[2].to, rules[2].when), (Set::MAX, Some(4), Some("nonzero")));
    assert!(rules[2].nowait && rules[2].waits == 1);
    let callback = &chart.callbacks[0];
    assert_eq!(callback.from, ["call_timer_fn", "expire_timers"]);
    assert_eq!(callback.keys, [Some(1)]);
    assert_eq!((callback.enters, callback.leaves), (Some(0), Some((1, When::NonZero))));
    assert!(callback.serial && callback.wakes == 2 && callback.states == Set::MAX);
    assert_eq!(turns, [(1, vec!["x".to_owned()], "x.some.part".to_owned())]);
    assert_eq!((chart.callbacks[1].states, &chart.callbacks[1].keys), (0b1000, &vec![None]));
}

#[test]
fn memory_changes_hands() {
    let text = "chart a\n key k\n state x\n call f(k): any lends\n call g(p): any gives\n call h(k): any
 callback b(k): in any takes some\n callback c(k): in any completes\n callback d(k): in any takes serial\n";
    let draft = one(text).unwrap();
    let calls: Vec<Option<Hand>> = draft.rules.iter().map(|rule| rule.hand).collect();
    assert_eq!(calls, [Some(Hand::Lends), Some(Hand::Gives), None]);
    let callbacks: Vec<Option<Hand>> = draft.chart.callbacks.iter().map(|callback| callback.hand).collect();
    assert_eq!(callbacks, [Some(Hand::TakesSome), Some(Hand::Completes), Some(Hand::Takes)]);
    assert!(draft.chart.callbacks[2].serial);
}

#[test]
fn a_parents_name_means_its_parts() {
    let text =
        "chart a\n key k\n state x initial\n  state y\n   state z\n  state w\n state v\n call f(k): x\n";
    let draft = one(text).unwrap();
    assert_eq!((draft.rules[0].from, draft.chart.initial), (0b1100, 2));
}

#[test]
fn bad_lines_are_named() {
    let wrong = |line: &str| {
        let text = format!("chart a\n key k\n state x\n callback c(k): in x\n {line}\n");
        let error = one(&text).err().unwrap_or_else(|| panic!("accepted: {line}"));
        assert_eq!((error.file.as_str(), error.line), ("test", 5), "{line}");
        error.what
    };
    assert_eq!(wrong("states x"), "'states' begins no line; expected key, state, call or callback");
    assert_eq!(wrong("state x"), "state x is there already");
    assert_eq!(wrong("state y idle"), "'idle' is not one of initial, busy, owed");
    assert_eq!(wrong("state y busy why"), "expected busy \"why\"");
    assert_eq!(wrong("state any"), "'any' names no state");
    assert_eq!(wrong("key l m"), "a key has one or 2 parts");
    assert_eq!(wrong("call f(k) x"), "expected a colon");
    assert_eq!(wrong("call f(k): y"), "there is no state y; there are x");
    assert_eq!(wrong("call f(k): x -> y"), "there is no state y; there are x");
    assert_eq!(wrong("call f(k): x wakes d"), "there is no callback d; there are c");
    assert_eq!(wrong("call f(k): x wakes"), "'wakes' lacks the names of callbacks");
    assert_eq!(wrong("call f(k): x maybe"), "'maybe' is not one of ->, nowait, wakes, waits, lends, gives");
    assert_eq!(wrong("call f(k) if done: x"), "expected 'if zero' or 'if nonzero'");
    assert_eq!(wrong("call f(p; k=q): x"), "'q' is no parameter of f(p)");
    assert_eq!(wrong("call f(p; l=p): x"), "'l' is no part of the key; there are k");
    assert_eq!(wrong("callback d(p): in x turns q"), "'q' is no parameter of d(p)");
    assert_eq!(wrong("call f(p; k=p.q): x"), "'p.q' should be PARAMETER or PARAMETER.struct.member");
    assert_eq!(wrong("call f k: x"), "expected 'FUNCTION(PARAMETER, …)' at 'f k'");
    assert_eq!(wrong("callback c(k): in x"), "callback c is there already");
    assert_eq!(wrong("callback d(k): serial"), "expected 'in STATES' after the colon");
    assert_eq!(wrong("callback d(k) by f: in x"), "expected 'from FUNCTION|FUNCTION' before the colon");
    assert_eq!(wrong("callback d(p; k=p.s.m): in x"), "a callback's key is an argument as it is");
    assert!(one("state x\n").unwrap_err().to_string().starts_with("test, line 1: expected 'chart NAME'"));
    assert_eq!(
        one("chart a quick\n").unwrap_err().what,
        "'quick' is not one of deferred, pins, made, ticks, elsewhere"
    );
    assert_eq!(one("chart a\n key k\n").map(|_| ()).unwrap_err().what, "chart a needs a key and a state");
    let many: String = (0..65).map(|i| format!(" state s{i}\n")).collect();
    assert!(one(&format!("chart a\n key k\n{many}")).unwrap_err().what.contains("more than 64"));
}

#[test]
fn a_part_of_the_key_that_no_call_has_is_named() {
    let text = "chart a\n key k\n state x\n call f(k): x\n";
    assert!(one(text).is_ok());
    for wrong in [text.replace("key k", "key rgn"), text.replace("key k", "key k rgn")] {
        let error = one(&wrong).unwrap_err().to_string();
        assert_eq!(error, "test, line 2: no call or callback has a parameter 'rgn'");
    }
    let error = one("chart a\n key k\n state x\n call f(k): x wakes d\n").unwrap_err().what;
    assert_eq!(error, "there is no callback d, nor any other");
}

#[test]
fn two_states_of_one_name_are_told_apart_by_their_parents() {
    let text = "chart a\n key k\n state x\n  state on\n state y\n  state on\n call f(k): ";
    assert!(one(&format!("{text}on\n")).unwrap_err().what.starts_with("there are several states on"));
    assert_eq!(one(&format!("{text}y.on\n")).unwrap().rules[0].from, 0b1000);
}

/// All charts of this crate, with the paths and texts of their files.
fn placed() -> impl Iterator<Item = (&'static str, &'static str, Draft)> {
    crate::files::named("protocol.chart").flat_map(|(path, text)| {
        let drafts = parse::file(path, text).unwrap_or_else(|e| panic!("{e}"));
        drafts.into_iter().map(move |draft| (path, text, draft))
    })
}

/// The file and line of the first statement of a chart that begins like this.
fn place(path: &str, text: &str, chart: &str, statement: &str) -> String {
    let begins = |line: &str, start: &str| {
        let rest = line.trim_start().strip_prefix(start);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let chart = format!("chart {chart}");
    let mut lines = text.lines().zip(1..).skip_while(|(line, _)| !begins(line, &chart));
    match lines.find(|(line, _)| begins(line, statement)) {
        Some((_, line)) => format!("{path}, line {line}"),
        None => path.to_owned(),
    }
}

/// What is wrong with charts as a whole: two have one name, no object reaches a state, or an object whose
/// beginning was missed may not have a callback.
fn mistakes(charts: impl Iterator<Item = (&'static str, &'static str, Draft)>) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut mistakes = Vec::new();
    for (path, text, draft) in charts {
        let chart = &draft.chart;
        let name = &chart.name;
        let mut add = |statement: &str, what: &str| {
            mistakes.push(format!("{}: {what}", place(path, text, name, statement)));
        };
        if !names.insert(name.clone()) {
            add(&format!("chart {name}"), &format!("another chart is called {name}"));
        }
        let lost = lost(&draft);
        for state in (0..chart.states.len()).filter(|state| lost >> state & 1 != 0) {
            let what = format!("no call or callback of {name} leads to state {}", chart.path(state));
            add(&format!("state {}", chart.states[state].name), &what);
        }
        for callback in chart.callbacks.iter().filter(|callback| callback.states >> chart.initial & 1 == 0) {
            let first = chart.path(chart.initial);
            let what =
                format!("callback {} of {name} must be allowed in {first}, the first state", callback.name);
            add(&format!("callback {}", callback.name), &what);
        }
    }
    mistakes
}

/// The leaves that no object reaches.
fn lost(Draft { chart, rules, .. }: &Draft) -> Set {
    let leaves = (0..chart.states.len())
        .filter(|&leaf| !chart.states.iter().any(|state| state.parent == Some(leaf)))
        .fold(0, |set: Set, leaf| set | 1 << leaf);
    let mut reached: Set = 1 << chart.initial;
    loop {
        let before = reached;
        let moves = rules.iter().filter_map(|rule| Some((rule.from, rule.to?)));
        let moves = moves.chain(chart.callbacks.iter().flat_map(|callback| {
            let targets = callback.enters.into_iter().chain(callback.leaves.map(|(to, _)| to));
            targets.map(|to| (callback.states, to))
        }));
        for (from, to) in moves {
            if from & reached != 0 {
                reached |= 1 << to;
            }
        }
        if reached == before {
            return leaves & !reached;
        }
    }
}

#[test]
fn the_charts_are_sound() {
    assert_eq!(mistakes(placed()), [""; 0]);
}

#[test]
fn a_mistake_of_a_whole_chart_has_a_place() {
    let text = "chart a
  key k
  state x
  state spare
  call f(k): x
  callback read(k): in spare
chart a
  key k
  state x
  call f(k): x
";
    let drafts = parse::file("t", text).unwrap();
    assert_eq!(
        mistakes(drafts.into_iter().map(|draft| ("t", text, draft))),
        [
            "t, line 4: no call or callback of a leads to state spare",
            "t, line 6: callback read of a must be allowed in x, the first state",
            "t, line 1: another chart is called a",
        ]
    );
}

#[test]
fn a_functions_rules_agree_on_their_keys_and_tell_their_cases_apart() {
    for (path, text, Draft { chart, rules, .. }) in placed() {
        for (i, rule) in rules.iter().enumerate() {
            for other in rules[..i].iter().filter(|other| other.function == rule.function) {
                let at = place(path, text, &chart.name, &format!("chart {}", chart.name));
                let name = format!("{at}: {}: {}", chart.name, rule.function);
                assert_eq!((&other.params, &other.keys), (&rule.params, &rule.keys), "{name}");
                let apart = other.from & rule.from == 0 || other.when != rule.when;
                assert!(apart, "{name} has two rules for one state");
            }
        }
    }
}

#[test]
fn a_caller_makes_one_callback_of_a_chart_with_the_same_arguments() {
    for (path, text, Draft { chart, .. }) in placed() {
        for (i, callback) in chart.callbacks.iter().enumerate() {
            for other in &chart.callbacks[..i] {
                // The object's state decides between them where the first is not always allowed.
                let same = other.keys == callback.keys && callback.states & !other.states == 0;
                let shared = callback.from.iter().find(|from| same && other.from.contains(from));
                let at = place(path, text, &chart.name, &format!("callback {}", callback.name));
                assert_eq!(shared, None, "{at}: {} and {} of {}", other.name, callback.name, chart.name);
            }
        }
    }
}

#[test]
fn a_key_may_be_the_task_that_runs_and_objects_may_keep_their_module() {
    let text = "chart thread pins made\n  key task\n  state born\n  callback main(data; task=current) from kthread: in any\n";
    let Draft { chart, .. } = one(text).unwrap();
    assert!(chart.pins && chart.made && !chart.deferred);
    assert_eq!(chart.callbacks[0].keys, [Some(crate::chart::CURRENT)]);
    // No argument of a call is the task.
    assert!(one(&text.replace("current", "nobody")).is_err());
}
