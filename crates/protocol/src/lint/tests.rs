use super::*;
use crate::{parse, stock};
use guardrail_knowledge::chart::parse as charts;

/// The mistakes of a protocol with a good frame around these lines.
fn mistakes(lines: &str) -> Vec<String> {
    let text = format!(
        "protocol p\n state off initial final fair\n state on\n in start: off -> on\n out stopped: on -> off\n{lines}"
    );
    let machine = parse::machines("x", &text).unwrap_or_else(|error| panic!("{error}")).remove(0);
    let drafts: Vec<Draft> = charts::built_in().collect();
    lint(&machine, &drafts).iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_protocol_has_no_mistake() {
    assert_eq!(mistakes(""), Vec::<String>::new());
}

#[test]
fn each_mistake_is_named_with_its_line() {
    for (lines, expected) in [
        (" state lost final", &["x, line 6: no run reaches state lost"][..]),
        (
            " state lost final\n in late: lost -> off",
            &["x, line 6: no run reaches state lost", "x, line 7: no run has message ?late"],
        ),
        (
            " state deaf fair\n out go: on -> deaf\n out back: deaf -> off",
            &["x, line 6: state deaf is fair, but allows no incoming message"],
        ),
        (
            " state busy owed\n in ask: on -> busy\n in ask: off -> same\n in more: busy -> on\n out stays: busy -> same",
            &["x, line 6: the driver must leave state busy, but no message of the driver leads out of it"],
        ),
        (
            " state trap\n out fall: on -> trap\n out again: trap -> same",
            &["x, line 6: no run from state trap reaches a final state"],
        ),
        (" of nothing", &["x, line 1: there is no chart nothing; there are"]),
        (
            " of pci\n out never: on -> same is end prob",
            &["x, line 7: chart pci has no callback prob; it has probe, remove,"],
        ),
        (
            " of pci\n out never: on -> same is begin probe",
            &["x, line 7: the kernel begins a callback, so it stands for a message that begins with 'in'"],
        ),
    ] {
        let found = mistakes(lines);
        assert_eq!(found.len(), expected.len(), "{lines}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{lines}: {found}");
        }
    }
}

#[test]
fn no_final_state_at_all_is_one_mistake() {
    let machine = parse::machines("x", "protocol p\n state a initial\n in x: a -> a").unwrap().remove(0);
    let found = lint(&machine, &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].what, "no run of protocol p reaches a final state");
}

/// The mistakes of a queue whose line of `stop` and whose other lines are these.
fn of_queue(stop: &str, others: &str) -> Vec<String> {
    let text = format!(
        "protocol p\n state up initial\n state full\n state over final\n in xmit room 8: up -> same\n out stop: up -> full{stop}\n \
         out wake: full -> up\n out end: up|full -> over{others}\n"
    );
    let machine = parse::machines("x", &text).unwrap().remove(0);
    lint(&machine, &[]).iter().map(ToString::to_string).collect()
}

#[test]
fn a_message_that_waits_must_stay_acceptable_or_the_chart_says_what_happens() {
    assert_eq!(
        of_queue("", " refuses xmit"),
        [
            "x, line 6: ?xmit may wait in its box when the driver sends !stop in state up, but state full does not allow it; \
             expected 'keeps xmit' or 'refuses xmit'"
        ]
    );
    assert_eq!(of_queue("", " refuses xmit\n in xmit: full -> same"), Vec::<String>::new());
    assert_eq!(of_queue(" keeps xmit", " refuses xmit"), Vec::<String>::new());
    assert_eq!(of_queue(" refuses xmit", " refuses xmit"), Vec::<String>::new());
}

#[test]
fn a_message_that_was_kept_is_refused_before_the_end() {
    assert_eq!(
        of_queue(" keeps xmit", " keeps xmit"),
        [
            "x, line 4: ?xmit, which was kept, may still wait when the driver ends in state over; expected 'refuses xmit' on the way"
        ]
    );
    assert_eq!(
        of_queue(" keeps xmit", " refuses xmit\n in xmit: full -> same"),
        ["x, line 6: ?xmit is neither kept nor refused here, because it never waits, or stays allowed"]
    );
}

/// What waits while the driver receives another message may be refused later, in the answer.
#[test]
fn a_message_may_be_refused_in_a_later_answer() {
    let others = " refuses xmit|halt\n state closing owed\n in halt: up -> closing\n out halted: closing -> over refuses xmit";
    let stop = " keeps xmit|halt";
    assert_eq!(of_queue(stop, others), Vec::<String>::new());
    assert_eq!(
        of_queue(stop, &format!("{others}|halt")),
        ["x, line 11: ?halt is neither kept nor refused here, because it never waits, or stays allowed"]
    );
}

#[test]
fn stock_protocols_have_no_mistake() {
    let drafts: Vec<Draft> = charts::built_in().collect();
    let found: Vec<String> = stock::machines()
        .unwrap()
        .iter()
        .flat_map(|machine| lint(machine, &drafts))
        .map(|mistake| mistake.to_string())
        .collect();
    assert_eq!(found, Vec::<String>::new());
}
