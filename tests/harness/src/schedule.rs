//! Decides which step starts when; has no side effects and starts no process.

use crate::steps::Step;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Passed,
    /// It failed, or was skipped.
    Failed,
}

/// The steps' order. A step starts when all steps before it have passed and its weight fits beside the
/// running steps.
pub struct Schedule<'a> {
    steps: &'a [Step],
    states: Vec<State>,
    /// Numbers of skipped steps that the caller has not fetched yet.
    skipped: Vec<usize>,
    processors: usize,
}

impl<'a> Schedule<'a> {
    /// The machine's processors carry one unit of weight each, but two at least: on one processor, two light
    /// steps share it.
    pub fn new(steps: &'a [Step], processors: usize) -> Schedule<'a> {
        Schedule {
            steps,
            states: vec![State::Waiting; steps.len()],
            skipped: Vec::new(),
            processors: processors.max(2),
        }
    }

    /// True when nothing runs and nothing waits.
    pub fn is_over(&self) -> bool {
        self.states.iter().all(|state| matches!(state, State::Passed | State::Failed))
            && self.skipped.is_empty()
    }

    /// The steps that start now, by number.
    pub fn start(&mut self) -> Vec<usize> {
        let ready: Vec<usize> = (0..self.steps.len()).filter(|&number| self.is_ready(number)).collect();
        let mut started = Vec::new();
        for number in ready {
            let weight = self.weight(number);
            if self.load() + weight <= self.processors {
                self.states[number] = State::Running;
                started.push(number);
            }
        }
        started
    }

    /// Notes that a step ended. Steps that depend on a failed one are skipped.
    pub fn ended(&mut self, number: usize, passed: bool) {
        self.states[number] = if passed { State::Passed } else { State::Failed };
        while let Some(lost) = (0..self.steps.len()).find(|&number| self.is_lost(number)) {
            self.states[lost] = State::Failed;
            self.skipped.push(lost);
        }
    }

    /// The steps that will not run, each once.
    pub fn skipped(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.skipped)
    }

    fn before(&self, number: usize) -> impl Iterator<Item = State> {
        let after = &self.steps[number].after;
        let before = self.steps.iter().zip(&self.states).filter(|(step, _)| after.contains(&step.name));
        before.map(|(_, state)| *state)
    }

    fn is_ready(&self, number: usize) -> bool {
        self.states[number] == State::Waiting && self.before(number).all(|state| state == State::Passed)
    }

    fn is_lost(&self, number: usize) -> bool {
        self.states[number] == State::Waiting && self.before(number).any(|state| state == State::Failed)
    }

    /// A step that is heavier than the machine runs alone.
    fn weight(&self, number: usize) -> usize {
        self.steps[number].weight.min(self.processors)
    }

    fn load(&self) -> usize {
        let running = (0..self.steps.len()).filter(|&number| self.states[number] == State::Running);
        running.map(|number| self.weight(number)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Counts;
    use std::time::Duration;

    fn step(name: &'static str, weight: usize, after: &[&'static str]) -> Step {
        Step {
            name,
            command: Vec::new(),
            counts: Counts::One,
            weight,
            after: after.to_vec(),
            builds: false,
            limit: Duration::ZERO,
        }
    }

    #[test]
    fn light_steps_run_beside_each_other_and_heavy_ones_alone() {
        let steps = [step("a", 1, &[]), step("heavy", 2, &[]), step("b", 1, &[]), step("c", 1, &[])];
        let mut schedule = Schedule::new(&steps, 2);
        assert_eq!(schedule.start(), [0, 2]);
        assert_eq!(schedule.start(), [] as [usize; 0]);
        schedule.ended(2, true);
        assert_eq!(schedule.start(), [3]);
        schedule.ended(0, true);
        schedule.ended(3, true);
        assert_eq!(schedule.start(), [1]);
        assert!(!schedule.is_over());
        schedule.ended(1, false);
        assert!(schedule.is_over());
    }

    #[test]
    fn more_processors_carry_more() {
        let steps = [step("a", 2, &[]), step("b", 2, &[]), step("giant", 9, &[])];
        let mut schedule = Schedule::new(&steps, 4);
        assert_eq!(schedule.start(), [0, 1]);
        schedule.ended(0, true);
        assert!(schedule.start().is_empty());
        schedule.ended(1, true);
        assert_eq!(schedule.start(), [2]);
    }

    #[test]
    fn idle_steps_run_beside_heavy_ones() {
        let steps = [step("heavy", 2, &[]), step("idle", 0, &[])];
        assert_eq!(Schedule::new(&steps, 2).start(), [0, 1]);
    }

    #[test]
    fn what_comes_after_a_failed_step_is_skipped() {
        let steps =
            [step("a", 1, &[]), step("b", 1, &["a"]), step("c", 1, &["b"]), step("d", 1, &["elsewhere"])];
        let mut schedule = Schedule::new(&steps, 2);
        assert_eq!(schedule.start(), [0, 3]);
        schedule.ended(0, false);
        assert!(schedule.start().is_empty());
        assert!(!schedule.is_over());
        assert_eq!(schedule.skipped(), [1, 2]);
        schedule.ended(3, true);
        assert!(schedule.is_over());
    }
}
