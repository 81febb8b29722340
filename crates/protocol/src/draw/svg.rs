//! A placed picture as SVG.

use super::place::POINT;
use super::route::{Line, Role};
use super::{Picture, Rect};
use crate::Machine;
use crate::model::Direction;
use std::fmt::Write;

/// Pixels between two lines of text.
const LEADING: i32 = 15;
/// How much of a corner is round, in pixels.
const ROUND: i32 = 4;

/// A line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// The left end, or the middle where it is centered, in pixels.
    pub x: i32,
    /// The base line.
    pub y: i32,
    pub class: &'static str,
    pub text: String,
}

/// The corners of a rectangle in pixels: left, top, width, height.
fn pixels(rect: Rect) -> (i32, i32, i32, i32) {
    let half = POINT / 2;
    (rect.x * POINT - half, rect.y * POINT - half, rect.w * POINT, rect.h * POINT)
}

/// What the picture says about a message: in which direction it goes.
fn class(machine: &Machine, message: usize) -> &'static str {
    match machine.messages()[message].direction {
        Direction::In => "in",
        Direction::Out => "out",
    }
}

/// All texts, with their places.
pub(super) fn texts(machine: &Machine, picture: &Picture) -> Vec<Text> {
    let mut all = Vec::new();
    let title = format!("protocol {}", machine.name());
    all.push(Text { x: 2 * POINT, y: 2 * POINT + 5, class: "title", text: title });
    for (state, declared) in machine.protocol.states.iter().enumerate() {
        let (x, y, ..) = pixels(picture.placed.states[state]);
        all.push(Text { x: x + 9, y: y + 18, class: "state", text: declared.name.clone() });
        for (row, &message) in picture.arrows.inside[state].iter().enumerate() {
            let y = y + 18 + LEADING * (row as i32 + 1);
            let text = machine.messages()[message].signed();
            all.push(Text { x: x + 9, y, class: class(machine, message), text });
        }
    }
    for (label, &rect) in picture.arrows.labels.iter().zip(&picture.placed.labels) {
        let (x, y, _, h) = pixels(rect);
        let top = y + (h - LEADING * label.messages.len() as i32) / 2 + 12;
        for (row, &message) in label.messages.iter().enumerate() {
            let y = top + LEADING * row as i32;
            let text = machine.messages()[message].signed();
            all.push(Text { x: x + 5, y, class: class(machine, message), text });
        }
    }
    all
}

/// The whole picture.
pub(super) fn print(machine: &Machine, picture: &Picture) -> String {
    let (width, height) = (picture.placed.width * POINT, picture.placed.height * POINT);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>The protocol {}</title>\n{STYLE}<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
        machine.name()
    );
    boxes(&mut out, machine, picture);
    for line in &picture.lines {
        out.push_str(&path(line));
    }
    for &rect in &picture.placed.labels {
        let (x, y, w, h) = pixels(rect);
        let _ = writeln!(
            out,
            "<rect class=\"label\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"5\"/>"
        );
    }
    for &rect in picture.placed.marks.values() {
        let _ = writeln!(
            out,
            "<circle class=\"mark\" cx=\"{}\" cy=\"{}\" r=\"5\"/>",
            rect.x * POINT,
            rect.y * POINT
        );
    }
    for Text { x, y, class, text } in texts(machine, picture) {
        // Names have letters, digits and '_' only.
        let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
    }
    key(&mut out, 2 * POINT, height - 6 * POINT);
    out.push_str("</svg>\n");
    out
}

const STYLE: &str = "<style>
text { font: 12px 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #222 }
text.title { font-size: 16px; font-weight: bold }
text.state { font-weight: bold }
text.in { fill: #0b4a8f }
text.out { fill: #9a3b00 }
rect.leaf { fill: #fff; stroke: #222; stroke-width: 1.4 }
rect.super { fill: #5b7ea61a; stroke: #666 }
rect.fair { stroke-dasharray: 5 3 }
rect.second { fill: none }
rect.label { fill: #fff; stroke: #ccc }
path { fill: none; stroke: #444; stroke-width: 1.2 }
path.head { fill: #444; stroke: none }
path.clock { stroke: #222 }
circle.clock { fill: #fff; stroke: #222 }
</style>
";

/// The boxes of all states, super-states first.
fn boxes(out: &mut String, machine: &Machine, picture: &Picture) {
    for (state, declared) in machine.protocol.states.iter().enumerate() {
        let rect = picture.placed.states[state];
        match machine.states.iter().find(|leaf| leaf.state == state) {
            Some(leaf) => flagged(out, pixels(rect), leaf.fair, leaf.owed, leaf.final_),
            None => {
                let (x, y, w, h) = pixels(rect);
                let fair = if declared.fair { " fair" } else { "" };
                let _ = writeln!(
                    out,
                    "<rect class=\"super{fair}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"9\"/>"
                );
            }
        }
    }
}

/// The box of a leaf with the signs of its flags.
fn flagged(out: &mut String, (x, y, w, h): (i32, i32, i32, i32), fair: bool, owed: bool, last: bool) {
    let fair = if fair { " fair" } else { "" };
    let _ = writeln!(
        out,
        "<rect class=\"leaf{fair}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"7\"/>"
    );
    if last {
        let (x, y, w, h) = (x + 3, y + 3, w - 6, h - 6);
        let _ = writeln!(
            out,
            "<rect class=\"leaf second{fair}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"5\"/>"
        );
    }
    if owed {
        let (x, y) = (x + w - 14, y + 14);
        let _ = writeln!(
            out,
            "<circle class=\"clock\" cx=\"{x}\" cy=\"{y}\" r=\"7\"/><path class=\"clock\" d=\"M{x} {} V{y} H{}\"/>",
            y - 5,
            x + 4
        );
    }
}

/// A line with round corners, and a head where it ends at a state.
fn path(line: &Line) -> String {
    let points: Vec<(i32, i32)> = line.corners.iter().map(|&(x, y)| (x * POINT / 2, y * POINT / 2)).collect();
    let [(x, y), ..] = points[..] else { return String::new() };
    let mut d = format!("M{x} {y}");
    for window in points.windows(3) {
        let [from, at, to] = window[..] else { continue };
        let (before, behind) = (towards(at, from), towards(at, to));
        let _ = write!(d, " L{} {} Q{} {} {} {}", before.0, before.1, at.0, at.1, behind.0, behind.1);
    }
    let [.., from, (x, y)] = points[..] else { return String::new() };
    let _ = write!(d, " L{x} {y}");
    let mut out = format!("<path d=\"{d}\"/>\n");
    if !matches!(line.role, Role::To(_)) {
        let (dx, dy) = ((x - from.0).signum(), (y - from.1).signum());
        let (u, v) = (x - 9 * dx, y - 9 * dy);
        let _ = writeln!(
            out,
            "<path class=\"head\" d=\"M{x} {y} L{} {} L{} {} Z\"/>",
            u - 4 * dy,
            v + 4 * dx,
            u + 4 * dy,
            v - 4 * dx
        );
    }
    out
}

/// The point near one end of a straight line, where its round corner begins.
fn towards(at: (i32, i32), to: (i32, i32)) -> (i32, i32) {
    let length = ((to.0 - at.0).abs() + (to.1 - at.1).abs()) / 2;
    let step = ROUND.min(length);
    (at.0 + step * (to.0 - at.0).signum(), at.1 + step * (to.1 - at.1).signum())
}

/// What the signs mean, in two rows.
fn key(out: &mut String, left: i32, y: i32) {
    let flags = [(true, false, false, "fair"), (false, true, false, "owed"), (false, false, true, "final")];
    for ((fair, owed, last, text), x) in flags.into_iter().zip((left..).step_by(110)) {
        flagged(out, (x, y - 12, 36, 26), fair, owed, last);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{text}</text>", x + 44, y + 5);
    }
    let directions = [("in", "?received by the driver"), ("out", "!sent by it")];
    for ((class, text), x) in directions.into_iter().zip((left..).step_by(190)) {
        let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{}\">{text}</text>", y + 38);
    }
}
