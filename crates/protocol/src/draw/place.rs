//! Where boxes and labels are.

use super::Rect;
use super::arrows::{Arrows, Label};
use crate::Machine;
use std::collections::BTreeMap;

/// Pixels between two points of the grid.
pub(super) const POINT: i32 = 10;
/// Width of a letter in a thousandth of a pixel. The font has letters of one width.
pub(super) const LETTER: i32 = 7_300;
/// Points between boxes side by side.
const GAP: i32 = 3;
/// Points around the parts of a super-state.
const MARGIN: i32 = 2;
/// A layer wider than this is broken into several.
const WIDEST: i32 = 110;
/// The width of a picture whose content is narrower: the key has room.
const NARROWEST: i32 = 36;
/// How often neighbors pull boxes to them.
const SWEEPS: usize = 12;
/// Points of the mark where a super-state is entered.
const MARK: i32 = 1;

/// The places of everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Placed {
    /// For each state of the protocol its box.
    pub states: Vec<Rect>,
    /// For each label its box.
    pub labels: Vec<Rect>,
    /// For each state that is entered at its super-state, or at the top, the mark whose arrow leads to it.
    pub marks: BTreeMap<usize, Rect>,
    /// The size of the picture.
    pub width: i32,
    /// The height of the picture.
    pub height: i32,
}

/// Points that hold so many letters beside each other and as many pixels around them.
fn letters(count: usize, around: i32) -> i32 {
    (count as i32 * LETTER / 1000 + around + POINT - 1) / POINT
}

/// Points that hold so many lines of text.
fn lines(count: usize, around: i32) -> i32 {
    (count as i32 * 15 + around + POINT - 1) / POINT
}

/// The height of a super-state's name and of the messages under it, in points.
pub(super) fn head(arrows: &Arrows, state: usize) -> i32 {
    lines(1 + arrows.inside[state].len(), 8)
}

/// How many points the texts at a super-state's top are wide.
pub(super) fn name_width(machine: &Machine, arrows: &Arrows, state: usize) -> i32 {
    let inside = arrows.inside[state].iter().map(|&at| machine.messages()[at].name.len() + 1);
    letters(inside.max().unwrap_or(0).max(machine.protocol.states[state].name.len()), 44)
}

/// Places everything; `space` is how many points are added to each gap.
pub(super) fn place(machine: &Machine, arrows: &Arrows, space: i32) -> Placed {
    let mut placer = Placer {
        machine,
        arrows,
        space,
        placed: Placed {
            states: vec![Rect::default(); machine.protocol.states.len()],
            labels: vec![Rect::default(); arrows.labels.len()],
            ..Placed::default()
        },
    };
    let (w, h) = placer.inside(None);
    let width = (w + 4 * MARGIN).max(NARROWEST);
    // The title stands above, and the key below.
    placer.shift(None, (width - w) / 2, MARGIN + 3);
    placer.placed.width = width;
    placer.placed.height = h + 2 * MARGIN + 11;
    placer.placed
}

/// What a layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    State(usize),
    Label(usize),
    /// The mark whose arrow leads to this state.
    Mark(usize),
}

struct Placer<'a> {
    machine: &'a Machine,
    arrows: &'a Arrows,
    space: i32,
    placed: Placed,
}

impl Placer<'_> {
    /// Places what is inside a state, from the origin. Gives the size.
    fn inside(&mut self, state: Option<usize>) -> (i32, i32) {
        let parts: Vec<usize> = self.machine.protocol.parts(state).collect();
        for &part in &parts {
            self.size(part);
        }
        let labels: Vec<usize> =
            (0..self.arrows.labels.len()).filter(|&at| self.arrows.labels[at].within == state).collect();
        for &label in &labels {
            let messages = &self.arrows.labels[label].messages;
            let longest =
                messages.iter().map(|&at| self.machine.messages()[at].name.len() + 1).max().unwrap_or(1);
            let (w, h) = (letters(longest, 10), lines(messages.len(), 5));
            self.placed.labels[label] = Rect { x: 0, y: 0, w, h };
        }
        let layers = self.layers(&parts, &labels);
        self.arrange(layers)
    }

    /// The size of a state's box, with all that is inside it placed relative to it.
    fn size(&mut self, state: usize) {
        let (head, name) = (head(self.arrows, state), name_width(self.machine, self.arrows, state));
        let is_leaf = self.machine.protocol.parts(Some(state)).next().is_none();
        let (w, h) = if is_leaf {
            (name, head + 1)
        } else {
            let (w, h) = self.inside(Some(state));
            self.shift(Some(state), MARGIN, MARGIN + head);
            ((w + 2 * MARGIN).max(name + 1), h + 2 * MARGIN + head)
        };
        self.placed.states[state] = Rect { x: 0, y: 0, w, h };
    }

    /// Moves all that is inside a state.
    fn shift(&mut self, state: Option<usize>, x: i32, y: i32) {
        let protocol = &self.machine.protocol;
        let inside = |inner: Option<usize>| match (state, inner) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(outer), Some(inner)) => protocol.around(inner).any(|at| at == outer),
        };
        for at in 0..protocol.states.len() {
            if Some(at) != state && inside(Some(at)) {
                self.placed.states[at] = self.placed.states[at].moved(x, y);
                if let Some(mark) = self.placed.marks.get_mut(&at) {
                    *mark = mark.moved(x, y);
                }
            }
        }
        for (at, label) in self.arrows.labels.iter().enumerate() {
            if inside(label.within) {
                self.placed.labels[at] = self.placed.labels[at].moved(x, y);
            }
        }
    }

    /// The part that an inner state belongs to.
    fn part(&self, parts: &[usize], state: usize) -> Option<usize> {
        self.machine.protocol.around(state).find_map(|at| parts.iter().position(|&part| part == at))
    }

    /// Puts parts and labels into layers: targets below sources where that is possible, labels between them.
    fn layers(&self, parts: &[usize], labels: &[usize]) -> Vec<Vec<Item>> {
        let ends = |label: &Label| {
            let mut sources: Vec<usize> =
                label.sources.iter().filter_map(|&source| self.part(parts, source)).collect();
            sources.dedup();
            Some((sources, self.part(parts, label.target)?))
        };
        let mut edges: Vec<(usize, usize)> = Vec::new();
        for &label in labels {
            if let Some((sources, target)) = ends(&self.arrows.labels[label]) {
                edges.extend(sources.into_iter().map(|source| (source, target)));
            }
        }
        let first = parts.iter().position(|&part| self.machine.protocol.states[part].initial);
        let rank = ranks(parts.len(), first.unwrap_or(0), &edges);
        let deepest = rank.iter().max().copied().unwrap_or(0);
        // One layer more on top, for the mark.
        let mut layers: Vec<Vec<Item>> = vec![Vec::new(); deepest + 3];
        for (at, &part) in parts.iter().enumerate() {
            layers[rank[at] + 1].push(Item::State(part));
        }
        if let Some(first) = first {
            layers[rank[first]].push(Item::Mark(parts[first]));
        }
        for &label in labels {
            let Some((sources, target)) = ends(&self.arrows.labels[label]) else { continue };
            let target = rank[target];
            // Near the lowest source above the target, or else right below the target.
            let above = sources.iter().map(|&source| rank[source]).filter(|&source| source < target).max();
            let below = sources.iter().map(|&source| rank[source]).min().unwrap_or(target);
            let layer = match above {
                Some(source) => source + 1,
                None if below > target => below - 1,
                None => target + 1,
            };
            layers[layer + 1].push(Item::Label(label));
        }
        layers.retain(|layer| !layer.is_empty());
        layers
    }

    fn rect(&mut self, item: Item) -> &mut Rect {
        match item {
            Item::State(state) => &mut self.placed.states[state],
            Item::Label(label) => &mut self.placed.labels[label],
            Item::Mark(state) => {
                self.placed.marks.entry(state).or_insert(Rect { x: 0, y: 0, w: MARK, h: MARK })
            }
        }
    }

    /// Places the layers below each other. Gives the size.
    fn arrange(&mut self, layers: Vec<Vec<Item>>) -> (i32, i32) {
        let gap = GAP + self.space;
        let mut layers = self.broken(layers, gap);
        let mut x: Vec<Vec<i32>> = Vec::new();
        for layer in &layers {
            let mut at = 0;
            let row = layer.iter().map(|&item| {
                let here = at;
                at += self.rect(item).w + gap;
                here
            });
            x.push(row.collect());
        }
        for _ in 0..SWEEPS {
            for at in 0..layers.len() {
                self.pull(&mut layers, &mut x, at, gap);
            }
            for at in (0..layers.len()).rev() {
                self.pull(&mut layers, &mut x, at, gap);
            }
        }
        let left = x.iter().flatten().min().copied().unwrap_or(0);
        let (mut y, mut width, mut height) = (0, 0, 0);
        for (layer, x) in layers.iter().zip(&x) {
            let tallest = layer.iter().map(|&item| self.rect(item).h).max().unwrap_or(0);
            for (&item, &x) in layer.iter().zip(x) {
                let rect = *self.rect(item);
                let (x, y) = (x - left, y + (tallest - rect.h) / 2);
                self.move_item(item, x, y);
                width = width.max(x + rect.w);
            }
            height = y + tallest;
            // Between layers the lines of all items run side by side.
            y += tallest + 2 + self.space + (layer.len() as i32 / 2).min(4);
        }
        (width, height)
    }

    fn move_item(&mut self, item: Item, x: i32, y: i32) {
        *self.rect(item) = self.rect(item).moved(x, y);
        if let Item::State(state) = item {
            self.shift(Some(state), x, y);
        }
    }

    /// Breaks layers that are too wide.
    fn broken(&mut self, layers: Vec<Vec<Item>>, gap: i32) -> Vec<Vec<Item>> {
        let mut all = Vec::new();
        for layer in layers {
            let width: i32 = layer.iter().map(|&item| self.rect(item).w + gap).sum();
            let rows = (width / WIDEST + 1).min(layer.len() as i32).max(1) as usize;
            for row in 0..rows {
                all.push(layer.iter().skip(row).step_by(rows).copied().collect());
            }
        }
        all
    }

    /// The middle of what an item has lines to, by what is placed now; `None` if it has no line.
    fn wish(&self, item: Item, middle: &BTreeMap<usize, i32>, labels: &BTreeMap<usize, i32>) -> Option<i32> {
        let protocol = &self.machine.protocol;
        let of_state = |state: usize| {
            protocol.around(state).find_map(|at| {
                let inner = self.placed.states[state];
                let offset =
                    if at == state { 0 } else { inner.x + inner.w / 2 - self.placed.states[at].w / 2 };
                middle.get(&at).map(|middle| middle + offset)
            })
        };
        let wishes: Vec<i32> = match item {
            Item::Mark(state) => of_state(state).into_iter().collect(),
            Item::Label(label) => {
                let Label { sources, target, .. } = &self.arrows.labels[label];
                sources.iter().chain([target]).filter_map(|&state| of_state(state)).collect()
            }
            Item::State(state) => {
                let touches = |end: usize| protocol.around(end).any(|at| at == state);
                let near = self.arrows.labels.iter().enumerate().filter(|(_, label)| {
                    touches(label.target) || label.sources.iter().any(|&source| touches(source))
                });
                near.filter_map(|(at, _)| labels.get(&at).copied()).collect()
            }
        };
        (!wishes.is_empty()).then(|| wishes.iter().sum::<i32>() / wishes.len() as i32)
    }

    /// Orders a layer by the wishes of its items, and moves them as near to the wishes as they fit.
    fn pull(&mut self, layers: &mut [Vec<Item>], x: &mut [Vec<i32>], at: usize, gap: i32) {
        let (mut middle, mut labels) = (BTreeMap::new(), BTreeMap::new());
        for (layer, x) in layers.iter().zip(x.iter()) {
            for (&item, &x) in layer.iter().zip(x) {
                let center = x + self.rect(item).w / 2;
                match item {
                    Item::State(state) => middle.insert(state, center),
                    Item::Label(label) => labels.insert(label, center),
                    Item::Mark(_) => None,
                };
            }
        }
        let mut items: Vec<(i32, i32, Item)> = Vec::new();
        for (&item, &x) in layers[at].iter().zip(&x[at]) {
            let w = self.rect(item).w;
            let wish = self.wish(item, &middle, &labels).unwrap_or(x + w / 2);
            items.push((wish, w, item));
        }
        items.sort_by_key(|(wish, ..)| *wish);
        let mut offset = 0;
        let mut wishes = Vec::new();
        let mut offsets = Vec::new();
        for &(wish, w, _) in &items {
            wishes.push(wish - w / 2 - offset);
            offsets.push(offset);
            offset += w + gap;
        }
        let fitted = rising(&wishes);
        layers[at] = items.iter().map(|(_, _, item)| *item).collect();
        x[at] = fitted.iter().zip(&offsets).map(|(fitted, offset)| fitted + offset).collect();
    }
}

/// The numbers that never fall and are nearest to these, by the sum of squares.
fn rising(wishes: &[i32]) -> Vec<i32> {
    // Blocks of equal numbers: sum and count.
    let mut blocks: Vec<(i64, i64)> = Vec::new();
    for &wish in wishes {
        blocks.push((wish.into(), 1));
        while let [.., (sum, count), (last, more)] = blocks[..]
            && sum * more > last * count
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push((sum + last, count + more));
        }
    }
    let even = |(sum, count): (i64, i64)| vec![sum.div_euclid(count) as i32; count as usize];
    blocks.into_iter().flat_map(even).collect()
}

/// A rank for each node: even numbers, larger at the target of an edge unless the edge leads back.
fn ranks(count: usize, first: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count];
    for &(from, to) in edges {
        if from != to && !next[from].contains(&to) {
            next[from].push(to);
        }
    }
    // Depth first, so that an edge to a node that is not finished leads back.
    let mut state = vec![0_u8; count];
    let mut forward: Vec<(usize, usize)> = Vec::new();
    let mut finished: Vec<usize> = Vec::new();
    for root in (first..count).chain(0..first) {
        if state[root] != 0 {
            continue;
        }
        state[root] = 1;
        let mut stack = vec![(root, 0)];
        while let Some((node, edge)) = stack.pop() {
            let Some(&to) = next[node].get(edge) else {
                state[node] = 2;
                finished.push(node);
                continue;
            };
            stack.push((node, edge + 1));
            if state[to] != 1 {
                forward.push((node, to));
            }
            if state[to] == 0 {
                state[to] = 1;
                stack.push((to, 0));
            }
        }
    }
    let mut rank = vec![0; count];
    for &node in finished.iter().rev() {
        for &(_, to) in forward.iter().filter(|(from, _)| *from == node) {
            rank[to] = rank[to].max(rank[node] + 2);
        }
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_met_as_far_as_order_allows() {
        assert_eq!(rising(&[1, 2, 9]), [1, 2, 9]);
        assert_eq!(rising(&[5, 1, 3]), [3, 3, 3]);
        assert_eq!(rising(&[]), Vec::<i32>::new());
    }

    #[test]
    fn targets_are_below_sources_but_for_edges_that_lead_back() {
        assert_eq!(ranks(3, 0, &[(0, 1), (1, 2), (2, 0)]), [0, 2, 4]);
        assert_eq!(ranks(3, 1, &[(0, 1), (1, 2), (2, 0)]), [4, 0, 2]);
        assert_eq!(ranks(4, 0, &[(0, 1), (0, 2), (1, 2)]), [0, 2, 4, 0]);
    }
}
