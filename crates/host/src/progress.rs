//! Progress on standard error: a bar on a terminal, plain lines otherwise.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The display of a run's progress.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// How many lines guests had.
    guests: AtomicU64,
}

/// The most lines of guests that are shown; a guest may write more than anybody reads.
const MOST_OF_GUESTS: u64 = 10_000;

impl Progress {
    /// A spinner where standard error is a terminal, plain lines otherwise.
    pub fn shown() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
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
