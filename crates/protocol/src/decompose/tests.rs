use super::*;
use crate::{equivalence, examples, parse, stock};

#[test]
fn rules_are_small_and_mean_the_same() {
    for machine in examples::nic() {
        let rules = decompose(&machine);
        assert_eq!(equivalence::check(&machine, &rules), Ok(machine.states.len()), "{}", machine.name());
        let largest = rules.iter().map(|rule| rule.next.len()).max().unwrap();
        assert!(largest <= 4, "{}: {largest} states", machine.name());
    }
}

#[test]
fn rules_of_stock_protocols_mean_the_same() {
    for machine in stock::machines().unwrap() {
        let rules = decompose(&machine);
        let places = equivalence::check(&machine, &rules).unwrap_or_else(|difference| panic!("{difference}"));
        assert!(places <= machine.states.len(), "{}", machine.name());
    }
}

/// Each single change of a table that changes its meaning is found: a rule left out, an answer turned round, a move
/// to another state.
#[test]
fn a_rule_that_was_tampered_with_is_found() {
    for machine in examples::nic() {
        let rules = decompose(&machine);
        let (mut tried, mut passed) = (0, Vec::new());
        let mut attempt = |name: String, rules: &[Subprotocol]| {
            tried += 1;
            if equivalence::check(&machine, rules).is_ok() {
                passed.push(name);
            }
        };
        for at in 0..rules.len() {
            let mut fewer = rules.clone();
            fewer.remove(at);
            attempt(format!("without rule {at}"), &fewer);
            for state in 0..rules[at].next.len() {
                let mut turned = rules.clone();
                turned[at].yes[state] ^= true;
                attempt(format!("answer of state {state} of rule {at}"), &turned);
                for message in rules[at].moved_by() {
                    if rules[at].next[state][message].is_some_and(|to| to != state) {
                        let mut stays = rules.clone();
                        stays[at].next[state][message] = None;
                        attempt(format!("state {state} of rule {at} by message {message}"), &stays);
                    }
                }
            }
        }
        assert!(tried > 20, "{tried}");
        // A move that the rule needs only for a run that another rule forbids may be left out; these protocols have no such move.
        assert_eq!(passed, Vec::<String>::new(), "{} of {tried}", machine.name());
    }
}

#[test]
fn a_difference_names_the_run() {
    let machine = &examples::nic()[2];
    let rules = decompose(machine);
    let without: Vec<Subprotocol> = rules
        .iter()
        .filter(|rule| rule.subject != Subject::Message(machine.message("irq").unwrap()))
        .cloned()
        .collect();
    let difference = equivalence::check(machine, &without).unwrap_err();
    assert_eq!(difference.to_string(), "at the start, no rule refuses ?irq, the protocol does");
}

/// Random charts: the decomposition is exact for each of them.
#[test]
fn rules_of_random_protocols_mean_the_same() {
    let mut random = Random(7);
    for round in 0..150 {
        let (states, messages) = (2 + random.below(12), 1 + random.below(8));
        let mut text = String::from("protocol p\n");
        for state in 0..states {
            let initial = if state == 0 { " initial" } else { "" };
            let fair = if random.below(3) == 0 { " fair" } else { "" };
            text.push_str(&format!(" state s{state}{initial}{fair}\n"));
        }
        for message in 0..messages {
            let word = if random.below(2) == 0 { "in" } else { "out" };
            text.push_str(&format!(" {word} m{message}: s0 -> s{}\n", random.below(states)));
            for state in 1..states {
                if random.below(2) == 0 {
                    text.push_str(&format!(" {word} m{message}: s{state} -> s{}\n", random.below(states)));
                }
            }
        }
        let machine = parse::machines("x", &text).unwrap().remove(0);
        let rules = decompose(&machine);
        if let Err(difference) = equivalence::check(&machine, &rules) {
            panic!("round {round}: {difference}\n{text}");
        }
    }
}
