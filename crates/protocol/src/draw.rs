//! Pictures of protocols: SVG for a manual.
//!
//! The picture is a statechart. Super-states are boxes around their parts. Arrows that mean the same share one label: lines
//! lead from all sources to the label, and an arrow from it to the target. Messages that leave the state as it is stand in
//! its box.
//!
//! Boxes and labels are placed layer by layer from the inside out (`place`), and lines are then led around them (`route`),
//! all on one grid. Lines run on the points of the grid and borders between them, so that no line lies on a border.

mod arrows;
mod place;
mod route;
mod svg;
#[cfg(test)]
mod tests;

use crate::Machine;

/// The most lines of a picture. More would take long, and could not be read.
const MAX_LINES: usize = 400;

/// How often the picture is made anew with more space where lines lie on each other.
const ATTEMPTS: usize = 4;

/// A rectangle on the grid: it covers the points `x .. x + w` by `y .. y + h`, and its border lies between points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rect {
    x: i32,
    y: i32,
    w: i32,
    h: i32,
}

impl Rect {
    fn has(&self, x: i32, y: i32) -> bool {
        (self.x..self.x + self.w).contains(&x) && (self.y..self.y + self.h).contains(&y)
    }

    fn moved(self, x: i32, y: i32) -> Rect {
        Rect { x: self.x + x, y: self.y + y, ..self }
    }
}

/// A picture before it is printed.
#[derive(Debug)]
struct Picture {
    arrows: arrows::Arrows,
    placed: place::Placed,
    /// The lines, each from border to border.
    lines: Vec<route::Line>,
}

/// The picture of a protocol, or why it cannot be drawn.
pub fn svg(machine: &Machine) -> Result<String, String> {
    Ok(svg::print(machine, &picture(machine)?))
}

fn picture(machine: &Machine) -> Result<Picture, String> {
    let arrows = arrows::arrows(machine);
    let count: usize = arrows.labels.iter().map(|label| label.sources.len() + 1).sum();
    if count > MAX_LINES {
        return Err(format!(
            "protocol {} has {count} lines between states; a picture has at most {MAX_LINES}",
            machine.name()
        ));
    }
    let mut best: Option<(usize, Picture)> = None;
    for attempt in 0..ATTEMPTS {
        let placed = place::place(machine, &arrows, attempt as i32);
        let (lines, shared) = route::lines(machine, &arrows, &placed);
        if best.as_ref().is_none_or(|(known, _)| shared < *known) {
            best = Some((shared, Picture { arrows: arrows.clone(), placed, lines }));
        }
        if shared == 0 {
            break;
        }
    }
    best.map(|(_, picture)| picture).ok_or_else(|| "no picture was made".to_owned())
}
