use super::*;

const NIC: &str = "
chart other
  key x
  state new initial

protocol pci
  of pci
  state unbound initial final fair
  state probing owed
  state bound
    state running initial fair
    state suspending owed
  in probe(struct pci_dev *dev) sleeps: unbound -> probing      is begin probe
  out probed: probing -> bound                                  is end probe if zero
  out probe_failed(long error): probing -> unbound              is end probe if nonzero
  in suspend: running -> suspending
  out suspended: suspending -> running    unseen
  in remove: bound -> unbound

protocol queue  # of its own
  state on initial
    state flowing initial
    state full
  in xmit(struct sk_buff *skb, long flags) head room 1024:
    flowing -> same
  out stop: flowing -> full keeps xmit is call netif_stop_queue|netif_tx_stop_queue
  out wake: any -> flowing
";

fn said(text: &str) -> String {
    match machines("x.chart", text) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn protocols_are_read_and_flattened() {
    let all = machines("x.chart", NIC).unwrap();
    let [pci, queue] = &all[..] else { panic!("{}", all.len()) };
    let names: Vec<&str> = pci.states.iter().map(|leaf| leaf.name.as_str()).collect();
    assert_eq!(names, ["unbound", "probing", "bound.running", "bound.suspending"]);
    assert_eq!((pci.start, pci.transitions()), (0, 7));
    assert!(pci.states[0].final_ && pci.states[0].fair && pci.states[3].owed && !pci.states[2].final_);
    let [probe, remove] = ["probe", "remove"].map(|name| pci.message(name).unwrap());
    assert_eq!(pci.step(0, probe), Some(1));
    assert_eq!(pci.step(3, remove), Some(0));
    assert_eq!(pci.step(1, pci.message("probed").unwrap()), Some(2));
    assert_eq!(pci.enabled(2).collect::<Vec<_>>(), [pci.message("suspend").unwrap(), remove]);
    assert!(pci.messages()[probe].sleeps);
    assert_eq!(pci.messages()[probe].pointer(), Some(("dev", "struct pci_dev")));
    assert_eq!(pci.messages()[pci.message("probe_failed").unwrap()].number(), Some("error"));
    assert_eq!(pci.protocol.transitions[0].link, Some(Link::Begin("probe".to_owned())));
    assert_eq!(pci.protocol.transitions[1].link, Some(Link::End("probe".to_owned(), Outcome::Zero)));
    assert_eq!(pci.protocol.of.as_deref(), Some("pci"));

    let xmit = &queue.messages()[0];
    assert!(xmit.head && !xmit.sleeps && xmit.room == 1024 && xmit.payload.len() == 2);
    assert_eq!(queue.step(0, 0), Some(0));
    assert_eq!(queue.transitions(), 4);
    assert_eq!(
        (&queue.protocol.transitions[1].keeps[..], &queue.protocol.transitions[1].refuses[..]),
        (&[0][..], &[][..])
    );
    let functions = ["netif_stop_queue", "netif_tx_stop_queue"].map(str::to_owned).to_vec();
    assert_eq!(queue.protocol.transitions[1].link, Some(Link::Call(functions, Outcome::Any)));
}

/// A protocol with these lines behind two states.
fn with(lines: &str) -> String {
    said(&format!("protocol p\n state a initial\n state b\n{lines}"))
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    for (text, error) in [
        ("states a", "x.chart, line 1: expected 'protocol NAME' or 'chart NAME'"),
        ("protocol a b", "x.chart, line 1: expected 'protocol NAME'"),
        (
            "protocol 1",
            "x.chart, line 1: '1' is no name; expected letters, digits and '_', with no digit first",
        ),
        ("protocol p", "x.chart, line 1: protocol p has no initial state; expected 'state NAME initial'"),
        ("protocol p\n state a initial", "x.chart, line 1: protocol p has no message"),
        ("protocol p\n state same", "x.chart, line 2: 'same' names no state"),
        ("protocol p\n\n state a begin", "x.chart, line 3: 'begin' is not one of initial, final, fair, owed"),
        ("protocol p\n of\n", "x.chart, line 2: expected a name"),
        (
            "protocol p\n state a initial\n state b initial",
            "x.chart, line 3: b is initial, as a is in line 2; expected one",
        ),
        ("protocol p\n state a initial\n state a", "x.chart, line 3: state a is in line 2 already"),
        (
            "protocol p\n state a initial\n in x: a -> a\nprotocol p\n state a initial\n in x: a -> a",
            "x.chart, line 4: protocol p is in line 1 already",
        ),
        (
            "protocol p\n state a initial\n  state b\n in x: a -> a",
            "x.chart, line 1: no state is initial; expected 'state NAME initial'",
        ),
        (
            "protocol p\n state a initial\n state b\n  state c\n in x: a -> b",
            "x.chart, line 5: state b has no part that is initial, so it cannot be entered",
        ),
    ] {
        assert_eq!(said(text), error, "{text}");
    }
    for (lines, error) in [
        ("call x", "line 4: 'call' begins no line of a protocol; expected of, state, in or out"),
        ("in x a -> b", "line 4: expected 'MESSAGE: STATES -> STATE'"),
        ("in x: a", "line 4: expected 'MESSAGE: STATES -> STATE'"),
        ("in x: c -> b", "line 4: there is no state c; there are a, b"),
        ("in x: a -> ", "line 4: expected the name of a state"),
        ("in x y: a -> b", "line 4: 'y' is not one of sleeps, head, room"),
        ("out x sleeps: a -> b", "line 4: 'sleeps' is for messages of the kernel, which begin with 'in'"),
        ("in x room none: a -> b", "line 4: expected 'room N', a number from 1 to 1048576"),
        ("in x(int y): a -> b", "line 4: 'int y' should be 'long NAME', 'struct TYPE *NAME' or 'void *NAME'"),
        ("in x(long y, long z): a -> b", "line 4: a message has at most one pointer and one long"),
        ("in x(long y, void *y): a -> b", "line 4: two parameters are named 'y'"),
        ("in x(long y: a -> b", "line 4: expected ')' after the payload"),
        ("in x: a -> b\nout x: b -> a", "line 5: x is 'in' in line 4; expected one direction"),
        (
            "in x sleeps: a -> b\nin x head: b -> a",
            "line 5: x has another payload or other words in line 4; expected the same or nothing",
        ),
        (
            "in x: a -> b\nin x: any -> same",
            "line 5: x moves a to a, but to b by line 4; expected one target",
        ),
        ("in x: a -> b is begin probe", "line 4: 'is begin' needs a line 'of CHART' before it"),
        (
            "in x: a -> b is call",
            "line 4: 'is call' should be 'is begin CALLBACK', 'is end CALLBACK', 'is call FUNCTION' or 'unseen', behind 'keeps MESSAGES' or 'refuses MESSAGES'",
        ),
        ("out x: a -> b keeps", "line 4: expected a name"),
        ("out x: a -> b keeps y", "line 4: 'y' is no message that begins with 'in'"),
        ("out x: a -> b refuses x", "line 4: 'x' is no message that begins with 'in'"),
        ("out x: a -> b keeps y refuses y\nin y: a -> b", "line 4: y is kept or refused already"),
    ] {
        assert_eq!(with(lines), format!("x.chart, {error}"), "{lines}");
    }
}

#[test]
fn a_line_may_say_again_what_another_says() {
    assert_eq!(with("in x(long e) sleeps: a -> b\nin x(long e) sleeps: b -> same\nin x: a -> b"), "accepted");
}

#[test]
fn limits_hold() {
    let deep: String = (0..40).map(|at| format!("{}state s{at} initial\n", " ".repeat(at))).collect();
    assert!(said(&format!("protocol p\n{deep}")).contains("nested deeper than 16"));
    let wide: String = (0..300).map(|at| format!(" state s{at}\n")).collect();
    assert!(said(&format!("protocol p\n{wide}")).contains("more than 255 states"));
    let many: String = (0..70).map(|at| format!(" in m{at}: a -> a\n")).collect();
    assert!(with(&many).contains("more than 64 messages"));
    let again = " in m: a -> b\n".repeat(5000);
    assert!(with(&again).contains("more than 4096 transitions"));
    let blocks: String =
        (0..70).map(|at| format!("protocol p{at}\n state a initial\n in x: a -> a\n")).collect();
    assert!(said(&blocks).contains("more than 64 protocols"));
    assert!(said(&"#".repeat(2 << 20)).contains("more than 1048576 bytes"));
    assert!(said(&format!("protocol {}", "x".repeat(100))).contains("more than 64 letters"));
}

/// Texts made from pieces of the language in random order: each gives a value or an error, and a value is a
/// machine all of whose indices are there.
#[test]
fn random_texts_do_not_panic() {
    const PIECES: [&str; 35] = [
        "protocol ",
        "chart ",
        "p",
        "\n",
        "\n  ",
        "\n    ",
        "state ",
        "a",
        "b",
        "c.",
        ".",
        " initial",
        " final",
        " fair",
        " owed",
        "in ",
        "out ",
        "x",
        "y",
        "(",
        ")",
        "long ",
        "struct s *",
        "void *",
        ",",
        ": ",
        " -> ",
        "|",
        "any",
        "same",
        " is begin ",
        " if zero",
        " room 4294967296",
        " keeps x|y",
        "é",
    ];
    let mut seed = 88172645463325252_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut accepted = 0;
    for round in 0..20_000 {
        let mut text = String::new();
        if round % 2 == 0 {
            for _ in 0..random(60) {
                text.push_str(PIECES[random(PIECES.len())]);
            }
        } else {
            // A good text with pieces put in and taken out.
            let mut letters: Vec<char> = NIC.chars().collect();
            for _ in 0..=random(3) {
                let at = random(letters.len());
                let to = (at + random(6)).min(letters.len());
                letters.splice(at..to, PIECES[random(PIECES.len())].chars());
            }
            text.extend(letters);
        }
        for machine in machines("x.chart", &text).into_iter().flatten() {
            accepted += 1;
            assert!(machine.start < machine.states.len());
            assert!(machine.next.iter().flatten().flatten().all(|&to| to < machine.states.len()));
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn the_stock_protocols_are_read() {
    let all = crate::stock::machines().unwrap_or_else(|error| panic!("{error}"));
    for machine in &all {
        assert!(machine.transitions() > 0, "{}", machine.name());
    }
}
