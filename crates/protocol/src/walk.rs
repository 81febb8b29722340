//! Random runs of a protocol.

use crate::Machine;
use std::fmt::Write;

/// How runs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkPlan {
    /// Decides the choices; the next run has the next number.
    pub seed: u64,
    /// How many runs.
    pub runs: u32,
    /// The most messages of a run.
    pub steps: u32,
}

/// Random runs for people: a line for each message, with the state that it leads to. A run ends early where no message is
/// allowed.
pub fn walks(machine: &Machine, plan: &WalkPlan) -> String {
    let width = machine.messages().iter().map(|message| message.name.len() + 1).max().unwrap_or(0);
    let mut out = String::new();
    for run in 0..plan.runs {
        let seed = plan.seed.wrapping_add(run.into());
        let _ = writeln!(out, "run {seed}: {}", machine.states[machine.start].name);
        for (message, to) in walk(machine, seed, plan.steps) {
            let signed = machine.messages()[message].signed();
            let state = &machine.states[to];
            let mut flags = String::new();
            for (set, word) in [(state.final_, "final"), (state.fair, "fair"), (state.owed, "owed")] {
                if set {
                    let _ = write!(flags, " {word}");
                }
            }
            let _ = writeln!(out, "  {signed:<width$}  {}{flags}", state.name);
        }
    }
    out
}

/// One random run: messages with the states that they lead to.
pub fn walk(machine: &Machine, seed: u64, steps: u32) -> Vec<(usize, usize)> {
    let mut random = seed;
    let mut state = machine.start;
    let mut run = Vec::new();
    for _ in 0..steps {
        let moves: Vec<(usize, usize)> = machine.moves(state).collect();
        let Some(&(message, to)) = moves.get(below(&mut random, moves.len())) else { break };
        run.push((message, to));
        state = to;
    }
    run
}

/// The next number below a limit (splitmix64).
fn below(state: &mut u64, limit: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;
    use std::collections::BTreeSet;

    #[test]
    fn runs_follow_the_protocol_and_the_seed() {
        for machine in examples::nic() {
            let mut seen = BTreeSet::new();
            for seed in 0..200 {
                let run = walk(&machine, seed, 50);
                assert_eq!(run, walk(&machine, seed, 50));
                let mut state = machine.start;
                for &(message, to) in &run {
                    assert_eq!(machine.step(state, message), Some(to));
                    seen.insert(state);
                    state = to;
                }
                assert!(run.len() == 50 || machine.moves(state).next().is_none());
                seen.insert(state);
            }
            // Random runs come everywhere.
            assert_eq!(seen.len(), machine.states.len(), "{}", machine.name());
        }
    }

    #[test]
    fn a_run_is_printed_a_message_a_line() {
        let text = walks(&examples::nic()[2], &WalkPlan { seed: 1, runs: 2, steps: 3 });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8);
        assert_eq!((lines[0], lines[1]), ("run 1: free", "  !request  masked"));
        assert_eq!(lines[4], "run 2: free");
    }
}
