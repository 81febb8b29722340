//! Lines around boxes and labels.

use super::arrows::Arrows;
use super::place::{Placed, head};
use super::{Rect, place};
use crate::Machine;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// From a state to a label.
    To(usize),
    /// From a label to its target, with a head.
    From(usize),
    /// From a mark to the state that is entered, with a head.
    Enter(usize),
}

/// A line: its corners, in half points. The ends lie on borders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub role: Role,
    pub corners: Vec<(i32, i32)>,
}

/// The costs of a way, in tenths of a point.
mod cost {
    pub const STEP: u32 = 10;
    pub const BEND: u32 = 35;
    /// Crosses another line.
    pub const CROSS: u32 = 60;
    /// Lies on another line.
    pub const SHARE: u32 = 800;
    /// Passes through a super-state that it does not concern.
    pub const FOREIGN: u32 = 25;
    /// Leaves a border far from its middle, for each point.
    pub const SIDE: u32 = 3;
}

/// Right, down, left, up.
const STEPS: [(i32, i32); 4] = [(1, 0), (0, 1), (-1, 0), (0, -1)];

/// All lines, and how many points of them lie on other lines.
pub(super) fn lines(machine: &Machine, arrows: &Arrows, placed: &Placed) -> (Vec<Line>, usize) {
    let mut grid = Grid::new(machine, arrows, placed);
    let mut wanted: Vec<(Role, Rect, Rect, Vec<usize>)> = Vec::new();
    for (&state, &mark) in &placed.marks {
        wanted.push((Role::Enter(state), mark, placed.states[state], vec![state]));
    }
    for (at, label) in arrows.labels.iter().enumerate() {
        for &source in &label.sources {
            wanted.push((Role::To(at), placed.states[source], placed.labels[at], vec![source, label.target]));
        }
        let ends = label.sources.iter().copied().chain([label.target]).collect();
        wanted.push((Role::From(at), placed.labels[at], placed.states[label.target], ends));
    }
    // Short lines first: they have least choice.
    wanted.sort_by_key(|(_, from, to, _)| {
        let middle = |rect: &Rect| (rect.x + rect.w / 2, rect.y + rect.h / 2);
        let ((x, y), (u, v)) = (middle(from), middle(to));
        (x - u).abs() + (y - v).abs()
    });
    let mut lines = Vec::new();
    let mut shared = 0;
    for (number, (role, from, to, ends)) in wanted.into_iter().enumerate() {
        // Lines to one label may join.
        let owner = match role {
            Role::To(label) => label as u32 + 1,
            _ => (arrows.labels.len() + number) as u32 + 1,
        };
        let Some(path) = grid.path(machine, &from, &to, &ends, owner) else { continue };
        shared += grid.take(&path, owner);
        lines.push(Line { role, corners: corners(&path) });
    }
    (lines, shared)
}

/// The corners of a path of points, in half points. Its first and last points are inside the boxes that it joins.
fn corners(path: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let [first, second, ..] = path[..] else { return Vec::new() };
    let [.., before, last] = path[..] else { return Vec::new() };
    let mut found = vec![(first.0 + second.0, first.1 + second.1)];
    for window in path.windows(3) {
        let [(a, b), (x, y), (u, v)] = window[..] else { continue };
        if (x - a, y - b) != (u - x, v - y) {
            found.push((2 * x, 2 * y));
        }
    }
    found.push((before.0 + last.0, before.1 + last.1));
    found
}

/// The points of a picture, and what is there.
struct Grid {
    width: i32,
    height: i32,
    /// Boxes of leaves, labels and marks, and names of super-states.
    blocked: Vec<bool>,
    /// The innermost super-state around a point.
    within: Vec<Option<usize>>,
    /// The lines that pass a point from side to side and from top to bottom; 0 is no line.
    owners: [Vec<u32>; 2],
}

/// Which of [`Grid::owners`] a step belongs to.
fn axis(direction: usize) -> usize {
    direction % 2
}

impl Grid {
    fn new(machine: &Machine, arrows: &Arrows, placed: &Placed) -> Grid {
        let (width, height) = (placed.width, placed.height);
        let count = (width.max(1) * height.max(1)) as usize;
        let mut grid = Grid {
            width,
            height,
            blocked: vec![false; count],
            within: vec![None; count],
            owners: [vec![0; count], vec![0; count]],
        };
        for (state, &rect) in placed.states.iter().enumerate() {
            if machine.protocol.parts(Some(state)).next().is_none() {
                grid.block(rect);
                continue;
            }
            // A super-state stands before its parts, so that theirs overwrite it.
            for at in grid.points(rect) {
                grid.within[at] = Some(state);
            }
            let name = place::name_width(machine, arrows, state).min(rect.w - 1);
            grid.block(Rect { w: name, h: head(arrows, state), ..rect });
        }
        for &rect in placed.labels.iter().chain(placed.marks.values()) {
            grid.block(rect);
        }
        grid
    }

    fn index(&self, x: i32, y: i32) -> Option<usize> {
        // No line runs at the edge of the picture.
        let inside = (1..self.width - 1).contains(&x) && (1..self.height - 1).contains(&y);
        inside.then(|| (y * self.width + x) as usize)
    }

    fn points(&self, rect: Rect) -> Vec<usize> {
        let rows = rect.y..rect.y + rect.h;
        rows.flat_map(|y| (rect.x..rect.x + rect.w).filter_map(move |x| self.index(x, y))).collect()
    }

    fn block(&mut self, rect: Rect) {
        for at in self.points(rect) {
            self.blocked[at] = true;
        }
    }

    /// What it costs a line to pass a point in a direction.
    fn passing(&self, at: usize, direction: usize, owner: u32) -> u32 {
        let taken = |axis: usize| !matches!(self.owners[axis][at], 0) && self.owners[axis][at] != owner;
        match (taken(axis(direction)), taken(1 - axis(direction))) {
            (true, _) => cost::SHARE,
            (false, true) => cost::CROSS,
            (false, false) => 0,
        }
    }

    /// The cheapest path from inside one box to inside another.
    fn path(
        &self,
        machine: &Machine,
        from: &Rect,
        to: &Rect,
        ends: &[usize],
        owner: u32,
    ) -> Option<Vec<(i32, i32)>> {
        let concerned: Vec<bool> = (0..machine.protocol.states.len())
            .map(|state| ends.iter().any(|&end| machine.protocol.around(end).any(|at| at == state)))
            .collect();
        let rest = |x: i32, y: i32| {
            let far = |at: i32, start: i32, length: i32| (start - at).max(at - (start + length - 1)).max(0);
            (far(x, to.x, to.w) + far(y, to.y, to.h)) as u32 * cost::STEP
        };
        let count = self.blocked.len();
        let mut best = vec![u32::MAX; count * 4];
        let mut before: Vec<u32> = vec![u32::MAX; count * 4];
        let mut open: BinaryHeap<Reverse<(u32, u32, usize)>> = BinaryHeap::new();
        for (direction, &(dx, dy)) in STEPS.iter().enumerate() {
            for (x, y, side) in ports(from, direction) {
                let Some(at) = self.index(x + dx, y + dy).filter(|&at| !self.blocked[at]) else { continue };
                let spent = cost::STEP + side + self.passing(at, direction, owner);
                if spent < best[at * 4 + direction] {
                    best[at * 4 + direction] = spent;
                    open.push(Reverse((spent + rest(x + dx, y + dy), spent, at * 4 + direction)));
                }
            }
        }
        let goal = |x: i32, y: i32, direction: usize| {
            let port = ports(to, (direction + 2) % 4).find(|&(u, v, _)| (u, v) == (x, y));
            port.map(|(.., side)| side)
        };
        while let Some(Reverse((_, spent, node))) = open.pop() {
            if spent > best[node] {
                continue;
            }
            let (at, last) = (node / 4, node % 4);
            let (x, y) = (at as i32 % self.width, at as i32 / self.width);
            if to.has(x, y) {
                return Some(self.walk_back(&before, node));
            }
            for (direction, &(dx, dy)) in STEPS.iter().enumerate() {
                let Some(next) = self.index(x + dx, y + dy).filter(|_| direction != (last + 2) % 4) else {
                    continue;
                };
                let mut more = cost::STEP;
                if direction != last {
                    more += cost::BEND;
                    // The bend lies on lines of both directions.
                    if self.passing(at, direction, owner) == cost::SHARE {
                        more += cost::SHARE;
                    }
                }
                if to.has(x + dx, y + dy) {
                    let Some(side) = goal(x + dx, y + dy, direction) else { continue };
                    more += side;
                } else {
                    if self.blocked[next] || from.has(x + dx, y + dy) {
                        continue;
                    }
                    more += self.passing(next, direction, owner);
                    if self.within[next].is_some_and(|state| !concerned[state]) {
                        more += cost::FOREIGN;
                    }
                }
                let (to_node, total) = (next * 4 + direction, spent + more);
                if total < best[to_node] {
                    best[to_node] = total;
                    before[to_node] = node as u32;
                    open.push(Reverse((total + rest(x + dx, y + dy), total, to_node)));
                }
            }
        }
        None
    }

    /// The points of a path, with the one inside the box where it begins.
    fn walk_back(&self, before: &[u32], end: usize) -> Vec<(i32, i32)> {
        let point = |node: usize| ((node / 4) as i32 % self.width, (node / 4) as i32 / self.width);
        let mut path = vec![point(end)];
        let mut node = end;
        while let Some(&last) = before.get(node).filter(|&&last| last != u32::MAX) {
            node = last as usize;
            path.push(point(node));
        }
        let ((x, y), (dx, dy)) = (point(node), STEPS[node % 4]);
        path.push((x - dx, y - dy));
        path.reverse();
        path
    }

    /// Notes a line. Gives how many of its points lie on other lines.
    fn take(&mut self, path: &[(i32, i32)], owner: u32) -> usize {
        let mut shared = 0;
        for window in path.windows(3) {
            let [(a, _), (x, y), (u, _)] = window[..] else { continue };
            let Some(at) = self.index(x, y) else { continue };
            let (flat, steep) = (a != x || u != x, a == x || u == x);
            let mut lies = false;
            for (axis, passes) in [flat, steep].into_iter().enumerate() {
                if passes {
                    let known = &mut self.owners[axis][at];
                    lies |= *known != 0 && *known != owner;
                    *known = owner;
                }
            }
            shared += usize::from(lies);
        }
        shared
    }
}

/// The points of a box where lines may leave in a direction, with what it costs to be far from the middle. Corners have no
/// line.
fn ports(rect: &Rect, direction: usize) -> impl Iterator<Item = (i32, i32, u32)> + use<> {
    let Rect { x, y, w, h } = *rect;
    let length = if axis(direction) == 0 { h } else { w };
    let (first, end) = if length >= 3 { (1, length - 1) } else { (0, length) };
    (first..end).map(move |at| {
        let side = (2 * at - (length - 1)).unsigned_abs() * cost::SIDE / 2;
        match direction {
            0 => (x + w - 1, y + at, side),
            1 => (x + at, y + h - 1, side),
            2 => (x, y + at, side),
            _ => (x + at, y, side),
        }
    })
}
