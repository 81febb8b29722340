use super::place::{LETTER, POINT};
use super::*;
use crate::{examples, parse, stock};

/// A rectangle in pixels: left, top, right, bottom.
type Pixels = (i32, i32, i32, i32);

fn meet(one: Pixels, other: Pixels) -> bool {
    one.0 < other.2 && other.0 < one.2 && one.1 < other.3 && other.1 < one.3
}

fn pixels(rect: Rect) -> Pixels {
    let (x, y) = (rect.x * POINT - POINT / 2, rect.y * POINT - POINT / 2);
    (x, y, x + rect.w * POINT, y + rect.h * POINT)
}

/// Checks a picture: no two texts meet, texts and boxes are inside what they belong to, boxes do not meet, lines keep
/// off boxes and texts.
fn check(machine: &Machine) {
    let name = machine.name();
    let picture = picture(machine).unwrap();
    let whole = (0, 0, picture.placed.width * POINT, picture.placed.height * POINT);
    let inside = |one: Pixels, outer: Pixels| {
        one.0 >= outer.0 && one.1 >= outer.1 && one.2 <= outer.2 && one.3 <= outer.3
    };
    let texts: Vec<(Pixels, String)> = svg::texts(machine, &picture)
        .into_iter()
        .map(|text| {
            let size = if text.class == "title" { 4 } else { 3 };
            let width = text.text.len() as i32 * LETTER * size / 3000;
            ((text.x, text.y - 10, text.x + width, text.y + 3), text.text)
        })
        .collect();
    for (at, (one, text)) in texts.iter().enumerate() {
        assert!(inside(*one, whole), "{name}: {text} is outside");
        for (other, also) in &texts[..at] {
            assert!(!meet(*one, *other), "{name}: {text} and {also} overlap");
        }
    }
    // Boxes are inside those around them, and apart from all others.
    let around = |state: usize| machine.protocol.states[state].parent;
    let mut boxes: Vec<(Pixels, Option<usize>)> = Vec::new();
    for (state, &rect) in picture.placed.states.iter().enumerate() {
        boxes.push((pixels(rect), around(state)));
    }
    for (label, &rect) in picture.arrows.labels.iter().zip(&picture.placed.labels) {
        boxes.push((pixels(rect), label.within));
    }
    for (at, (one, within)) in boxes.iter().enumerate() {
        let outer = within.map_or(whole, |within| pixels(picture.placed.states[within]));
        assert!(inside(*one, outer), "{name}: box {at} is outside");
        for (other, also_within) in &boxes[..at] {
            assert!(within != also_within || !meet(*one, *other), "{name}: box {at} meets another");
        }
    }
    // Each line is there, and keeps off the boxes of leaves and labels, and off texts.
    let wanted: usize = picture.arrows.labels.iter().map(|label| label.sources.len() + 1).sum();
    assert_eq!(picture.lines.len(), wanted + picture.placed.marks.len(), "{name}: lines are missing");
    let leaves = machine.states.iter().map(|leaf| pixels(picture.placed.states[leaf.state]));
    let solid: Vec<Pixels> = leaves
        .chain(picture.placed.labels.iter().map(|&rect| pixels(rect)))
        .chain(texts.iter().map(|(rect, _)| *rect))
        .collect();
    for line in &picture.lines {
        for part in line.corners.windows(2) {
            let [(x, y), (u, v)] = [part[0], part[1]].map(|(x, y)| (x * POINT / 2, y * POINT / 2));
            let strip = (x.min(u), y.min(v), x.max(u), y.max(v));
            let kept = (POINT, POINT, whole.2 - POINT, whole.3 - POINT);
            assert!(inside(strip, kept), "{name}: a line is outside");
            for &rect in &solid {
                // Ends touch borders, which is no overlap.
                let grown = (strip.0, strip.1, strip.2 + 1, strip.3 + 1);
                let inner = (rect.0 + 1, rect.1 + 1, rect.2 - 1, rect.3 - 1);
                assert!(!meet(grown, inner), "{name}: a line crosses a box or a text");
            }
        }
    }
}

#[test]
fn pictures_are_readable() {
    for machine in stock::machines().unwrap().iter().chain(&examples::nic()) {
        check(machine);
    }
}

#[test]
fn pictures_have_all_states_messages_and_signs() {
    let machine = &examples::nic()[0];
    let text = svg(machine).unwrap();
    for state in &machine.protocol.states {
        assert!(text.contains(&format!(">{}</text>", state.name)), "{}", state.name);
    }
    for message in machine.messages() {
        assert!(text.contains(&format!(">{}</text>", message.signed())), "{}", message.name);
    }
    let owed = machine.states.iter().filter(|state| state.owed).count();
    assert_eq!(text.matches("<circle class=\"clock\"").count(), owed + 1);
    let last = machine.states.iter().filter(|state| state.final_).count();
    assert_eq!(text.matches("class=\"leaf second").count(), last + 1);
    // An arrow into each super-state, and one into the protocol.
    assert_eq!(text.matches("<circle class=\"mark\"").count(), 3);
    assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
}

/// Random hierarchies and arrows: pictures stay readable.
#[test]
fn pictures_of_random_protocols_are_readable() {
    let mut seed = 99_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for _ in 0..25 {
        let states = 2 + random(14);
        let mut text = String::from("protocol p\n");
        let mut depth = 0;
        for state in 0..states {
            depth = random(depth + 2).min(4);
            let name = "x".repeat(random(20));
            let flags = [" fair", " owed", " final", ""][random(4)];
            text.push_str(&format!("{}state s{state}{name}{flags}\n", "  ".repeat(depth + 1)));
            if state == 0 {
                depth = 0;
            }
        }
        // The first part of each state is initial.
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut text = String::new();
        for (at, line) in lines.iter().enumerate() {
            let first = at > 0 && (at == 1 || indent(line) > indent(&lines[at - 1]));
            text.push_str(&format!("{line}{}\n", if first { " initial" } else { "" }));
        }
        let names: Vec<&str> = lines[1..].iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
        for message in 0..2 + random(14) {
            let (from, to) = (names[random(names.len())], names[random(names.len())]);
            let word = ["in", "out"][random(2)];
            text.push_str(&format!(" {word} message{message}: {from} -> {to}\n"));
        }
        let machine = parse::machines("x", &text).unwrap_or_else(|error| panic!("{error}\n{text}")).remove(0);
        check(&machine);
    }
}

#[test]
fn a_picture_of_too_many_lines_is_refused() {
    let mut text = String::from("protocol p\n state s0 initial\n");
    text.extend((1..250).map(|at| format!(" state s{at}\n")));
    text.extend((1..250).map(|at| format!(" in x: s{} -> s{at}\n", at - 1)));
    let machine = parse::machines("x", &text).unwrap().remove(0);
    let error = svg(&machine).unwrap_err();
    assert_eq!(error, "protocol p has 498 lines between states; a picture has at most 400");
}
