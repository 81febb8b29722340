use super::*;
use crate::{examples, parse, stock};

fn all() -> Vec<Machine> {
    stock::machines().unwrap().into_iter().chain(examples::nic()).collect()
}

/// A line for each pair of states that a message joins, with all its messages.
#[test]
fn dot_has_every_move_and_every_flag() {
    let text = export(&examples::nic()[0], Form::Dot).unwrap();
    for part in [
        "\t\"\" -> \"unbound\";\n",
        "\t\"unbound\" [label = \"unbound\", style = \"rounded,dashed\", peripheries = 2];\n",
        "\tsubgraph \"cluster_bound\" {\n\t\tlabel = \"bound\";\n",
        "\t\t\"bound.suspending\" [label = \"suspending ⏱\"];\n",
        "\t\"probing\" -> \"bound.running\" [label = \"!probed\"];\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    for machine in all() {
        let text = export(&machine, Form::Dot).unwrap();
        let labels: usize = text
            .lines()
            .filter(|line| line.contains("->"))
            .map(|line| line.matches(['?', '!']).count())
            .sum();
        assert_eq!(labels, machine.transitions(), "{}", machine.name());
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}

/// Reads the dialect as the kernel's `tools/verification/rvgen/rvgen/automata.py` does: node lines, then lines of
/// transitions.
#[test]
fn rv_is_read_as_the_kernels_tool_reads_it() {
    for machine in all() {
        let text = export(&machine, Form::Rv).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().take(2).collect::<Vec<_>>(), ["digraph", "state_automaton"]);
        let first = lines.iter().position(|line| line.trim().starts_with("{node")).unwrap();
        let nodes = lines[first..].iter().take_while(|line| line.trim().starts_with("{node")).count();
        let mut states = Vec::new();
        let mut initial = None;
        for line in &lines[first..first + nodes] {
            let last = line.split_whitespace().last().unwrap().replace(['"', ';', '}'], "");
            match last.strip_prefix("__init_") {
                Some(name) => initial = Some(name.to_owned()),
                None => states.push((last, line.contains("doublecircle"))),
            }
        }
        let expected: Vec<(String, bool)> =
            machine.states.iter().map(|state| (flat(&state.name), state.final_)).collect();
        assert_eq!(states, expected);
        assert_eq!(initial, Some(flat(&machine.states[machine.start].name)));
        // One line for the arrow of the initial state, which the tool skips.
        let mut moves = 0;
        for line in lines[first + nodes + 1..].iter().take_while(|line| line.trim().starts_with('"')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[1] != "->" {
                continue;
            }
            let state = |word: &str| {
                let name = word.replace('"', "");
                expected.iter().position(|(known, _)| *known == name).unwrap()
            };
            let (from, to) = (state(words[0]), state(words[2]));
            for event in words[words.len() - 2].replace('"', "").split("\\n") {
                assert_eq!(
                    machine.step(from, machine.message(event.split_once('_').unwrap().1).unwrap()),
                    Some(to),
                    "{line}"
                );
                moves += 1;
            }
        }
        assert_eq!(moves, machine.transitions(), "{}", machine.name());
    }
}

#[test]
fn rv_as_c_has_the_table() {
    let machine = &examples::nic()[2];
    let text = export(machine, Form::RvC).unwrap();
    let start = "enum states_line_protocol {\n\tfree_line_protocol = 0,\n\tenabled_line_protocol,\n\tmasked_line_protocol,\n\tstate_max_line_protocol\n};\n";
    assert!(text.contains(start), "{text}");
    assert_eq!(text.matches("INVALID_STATE,").count(), 3 * 5 - machine.transitions());
    assert!(text.contains("\t.initial_state = free_line_protocol,\n\t.final_states = { 1, 0, 0 },\n"));
}

#[test]
fn states_that_meet_in_an_automaton_are_refused() {
    let text = "protocol p\n state a initial\n  state b initial\n state a_b\n in x: b -> a_b\n";
    let machine = parse::machines("x", text).unwrap().remove(0);
    let error = export(&machine, Form::Rv).unwrap_err();
    assert_eq!(error, "x: states a.b and a_b would have one name in this language; rename one");
    assert!(export(&machine, Form::Dot).is_ok() && export(&machine, Form::Promela).is_err());
    let text = "protocol p\n state a initial\n state in_x\n in x: a -> in_x\n";
    let machine = parse::machines("x", text).unwrap().remove(0);
    let error = export(&machine, Form::RvC).unwrap_err();
    assert_eq!(error, "x: state in_x has the name of an event in this language; rename it");
    assert!(export(&machine, Form::Promela).is_ok());
}

#[test]
fn promela_has_a_label_for_each_state_and_a_claim_for_each_owed_one() {
    for machine in all() {
        let text = export(&machine, Form::Promela).unwrap();
        let owed = machine.states.iter().filter(|state| state.owed).count();
        assert_eq!(text.matches("\nltl leaves_").count(), owed);
        assert_eq!(text.matches("-> goto").count(), machine.transitions(), "{}", machine.name());
        for state in &machine.states {
            let end = if state.final_ { "end_" } else { "" };
            assert!(text.contains(&format!("\n{end}at_{}:\n", flat(&state.name))), "{}", state.name);
        }
    }
}
