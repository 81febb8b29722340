//! Strongly connected components of a graph of steps.

use super::search::Step;
use rustc_hash::FxHashMap;

/// A step with the state where it begins.
pub type Move = (u32, Step);

/// Strongly connected components that have a step, each as its steps.
pub fn parts(moves: &[Move]) -> Vec<Vec<Move>> {
    let mut index: FxHashMap<u32, u32> = FxHashMap::default();
    let mut names = Vec::new();
    let mut number = |state: u32, names: &mut Vec<u32>| {
        *index.entry(state).or_insert_with(|| {
            names.push(state);
            names.len() as u32 - 1
        })
    };
    let ends: Vec<(u32, u32)> =
        moves.iter().map(|(from, step)| (number(*from, &mut names), number(step.to, &mut names))).collect();
    let mut out: Vec<Vec<u32>> = vec![Vec::new(); names.len()];
    for (from, to) in &ends {
        out[*from as usize].push(*to);
    }
    let component = components(&out);
    let mut found: FxHashMap<u32, Vec<Move>> = FxHashMap::default();
    for ((from, to), one) in ends.iter().zip(moves) {
        if component[*from as usize] == component[*to as usize] {
            found.entry(component[*from as usize]).or_default().push(*one);
        }
    }
    let mut found: Vec<(u32, Vec<Move>)> = found.into_iter().collect();
    found.sort_unstable_by_key(|(component, _)| *component);
    found.into_iter().map(|(_, part)| part).collect()
}

/// The component of each node, by Tarjan's algorithm.
fn components(out: &[Vec<u32>]) -> Vec<u32> {
    const NEW: u32 = u32::MAX;
    let count = out.len();
    let (mut order, mut low, mut component) = (vec![NEW; count], vec![0; count], vec![NEW; count]);
    let (mut stack, mut next, mut components) = (Vec::new(), 0, 0);
    for root in 0..count {
        if order[root] != NEW {
            continue;
        }
        let mut work = vec![(root, 0)];
        while let Some((node, at)) = work.pop() {
            if at == 0 {
                order[node] = next;
                low[node] = next;
                next += 1;
                stack.push(node);
            }
            if let Some(&to) = out[node].get(at) {
                let to = to as usize;
                work.push((node, at + 1));
                if order[to] == NEW {
                    work.push((to, 0));
                } else if component[to] == NEW {
                    low[node] = low[node].min(order[to]);
                }
                continue;
            }
            if low[node] == order[node] {
                while let Some(member) = stack.pop() {
                    component[member] = components;
                    if member == node {
                        break;
                    }
                }
                components += 1;
            }
            if let Some((parent, _)) = work.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(to: u32) -> Step {
        Step { edge: 0, received: None, to }
    }

    #[test]
    fn parts_have_a_step() {
        let moves = [(0, step(1)), (1, step(2)), (2, step(1)), (2, step(3)), (3, step(3)), (4, step(0))];
        let mut sizes: Vec<usize> = parts(&moves).iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2]);
    }
}
