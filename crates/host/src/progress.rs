//! Progress on standard error: a bar on a terminal, plain lines otherwise.
//!
//! All that a command says besides its results, its errors and their reasons is said here, so that `--quiet` and
//! `--verbose` decide about it in one place.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much a command says besides its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loudness {
    /// Nothing but errors and the reasons of the exit status.
    Quiet,
    /// The steps and notes of a run.
    #[default]
    Usual,
    /// Also what is fetched, started and waited for; each on a line that stays.
    Verbose,
}

/// What the user chose; unset before that.
static LOUDNESS: OnceLock<Loudness> = OnceLock::new();

/// Chooses for the whole process how much is said. It is chosen once, before any progress is shown.
pub fn choose(loudness: Loudness) {
    // A second choice is ignored: progress that is shown already has the first.
    let _ = LOUDNESS.set(loudness);
}

/// How much this process says.
pub fn loudness() -> Loudness {
    LOUDNESS.get().copied().unwrap_or_default()
}

/// Says what only a verbose command says: what is fetched, started or waited for.
pub fn detail(text: &str) {
    if loudness() == Loudness::Verbose {
        line(text);
    }
}

/// The display of a run's progress.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// How many lines guests had.
    guests: AtomicU64,
}

/// The most lines of guests that are shown; a guest may write more than anybody reads.
const MOST_OF_GUESTS: u64 = 10_000;

impl Progress {
    /// A spinner where standard error is a terminal, plain lines otherwise and in a verbose command. A quiet one
    /// shows nothing.
    pub fn shown() -> Progress {
        let terminal = std::io::stderr().is_terminal();
        if loudness() == Loudness::Quiet {
            return Progress::silent();
        }
        let bar = (terminal && loudness() < Loudness::Verbose).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} [{elapsed_precise}] {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress { bar, guests: AtomicU64::new(0) }
    }

    /// A display that shows nothing, for calls that must be quiet.
    pub fn silent() -> Progress {
        Progress { bar: Some(ProgressBar::hidden()), guests: AtomicU64::new(0) }
    }

    /// A step that is worth a line of its own.
    pub fn step(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => line(text),
        }
    }

    /// A note that stays on the screen.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("guardrail: {text}")),
            None => line(text),
        }
    }

    /// A step of the guest, with the time since it started.
    pub fn guest(&self, time: Duration, text: &str) {
        match self.guests.fetch_add(1, Ordering::Relaxed) {
            shown if shown < MOST_OF_GUESTS => self.step(&format!("{:6.1} s  {text}", time.as_secs_f64())),
            MOST_OF_GUESTS => self.step("the guest reports more steps than are shown"),
            _ => {}
        }
    }

    /// A line that a program in the guest printed.
    pub fn printed(&self, text: &str) {
        if self.guests.fetch_add(1, Ordering::Relaxed) < MOST_OF_GUESTS {
            self.note(&format!("| {text}"));
        }
    }

    /// A finding, at the moment of its report.
    pub fn found(&self, checker: &str, kind: &str, action: &str) {
        self.step(&format!("{checker}: {kind} ({action})"));
    }

    /// Removes the bar, so that it does not mix with later output.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "guardrail: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_command_shows_nothing_and_the_first_choice_stays() {
        assert_eq!(loudness(), Loudness::Usual);
        choose(Loudness::Quiet);
        choose(Loudness::Verbose);
        assert_eq!(loudness(), Loudness::Quiet);
        let progress = Progress::shown();
        assert!(progress.bar.as_ref().is_some_and(ProgressBar::is_hidden));
    }
}
